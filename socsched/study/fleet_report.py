"""The page of a fleet: misses with intervals, the worst vehicles with replay commands, and the cost of more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from socsched.reporting.page import wrap_page
from socsched.reporting.svg import element, picture, table, text, ticks
from socsched.study.fleet import Driven, Group, extrapolation, fleet_of
from socsched.study.store import Row
from socsched.units import format_duration

_WORST = ("seed", "load", "ambient C", "faults/min", "missed", "dropped", "frames", "worst response", "of", "replay")


def page(done: Driven, study_argument: str, made_by: Mapping[str, str]) -> str:
    """Return the whole page."""
    title = done.study.title or done.study.name
    blocks = [element("h1", escape(f"{title}: {fleet_of(done.study).vehicles:,} vehicles"))]
    for group in done.groups:
        blocks.append(element("h2", escape(configuration_name(group))))
        blocks.append(element("p", escape(misses(group, done))))
        for name, label in (("load", "load"), ("ambient_c", "ambient temperature [C]")):
            blocks.append(_scatter(group.rows, name, label))
        rows = [
            [*map(escape, cells(row)), element("code", escape(replay(done, row, study_argument)))]
            for row in group.worst
        ]
        blocks.append(element("h3", "Worst vehicles") + table(_WORST, rows, range(8)))
    costs = [[escape(name), escape(value)] for name, value in extrapolation(done)]
    if costs:
        blocks.append(element("h2", "What more would cost") + table(["what", "here"], costs))
    rows = [[escape(key), element("code", escape(value))] for key, value in made_by.items()]
    blocks.append(element("h2", "How this was made") + table(["what", "value"], rows))
    return wrap_page(title, "".join(blocks))


def configuration_name(group: Group) -> str:
    """Return the name of the configuration that a group of vehicles runs."""
    row = group.rows[0]
    return f"{row['pipeline']} on {row['platform']} in {row['mode']}"


def misses(group: Group, done: Driven) -> str:
    """Return the misses of a group in a sentence."""
    fleet = fleet_of(done.study)
    share = f"{fleet.confidence:.0%}"
    return (
        f"{group.misses:,} of {group.frames:,} frames missed: {group.per_million:.4g} per million, "
        f"{share} interval {group.low:.4g} to {group.high:.4g} (design effect {group.effect:.3g}); "
        f"{group.hit:,} of {len(group.rows):,} vehicles missed any, {group.hit_low:.3%} to {group.hit_high:.3%}"
    )


def cells(row: Row) -> list[str]:
    """Return a vehicle as cells of a table."""
    return [
        str(row["seed"]),
        f"{row['load']:.3f}",
        "–" if row["ambient_c"] is None else f"{row['ambient_c']:.1f}",
        f"{row['faults_per_minute']:.3g}",
        str(row["missed"]),
        str(row["dropped"]),
        str(row["frames"]),
        f"{format_duration(row['worst_response_max_ns'])} ({row['worst_response_share']:.0%})",
        row["worst_chain"],
    ]


def replay(done: Driven, row: Row, study_argument: str) -> str:
    """Return the command that simulates one vehicle again, with trace and report."""
    config = f" --config {row['config']}" if len(done.groups) > 1 else ""
    return f"socsched fleet {study_argument} --vehicle {row['seed']}{config} -o vehicle-{row['seed']}"


def _scatter(rows: Sequence[Row], name: str, label: str) -> str:
    """Return every vehicle's worst response against one of its conditions; vehicles that missed frames are red."""
    known = [row for row in rows if row[name] is not None]
    low, high = (end((row[name] for row in known), default=0) for end in (min, max))
    if low == high:
        return ""
    width, height, left, base = 640, 240, 56, 200
    top = max(row["worst_response_share"] for row in known) * 1.06 or 1
    parts = []
    for tick in ticks(low, high, 8):
        x = left + (tick - low) / (high - low) * (width - left - 20)
        parts.append(text(f"{tick:g}", x, base + 16, class_="axis mid"))
        parts.append(element("line", x1=x, x2=x, y1=24.0, y2=float(base), class_="grid"))
    for tick in ticks(0, top, 5):
        y = base - tick / top * (base - 24)
        parts.append(text(f"{tick:.0%}", left - 6, y + 4, class_="axis end"))
        parts.append(element("line", x1=float(left), x2=float(width - 20), y1=y, y2=y, class_="grid"))
    step = max(len(known) // 3000, 1)
    for number, row in enumerate(known):
        lost = row["missed"] + row["dropped"]
        if lost or number % step == 0:
            x = left + (row[name] - low) / (high - low) * (width - left - 20)
            y = base - row["worst_response_share"] / top * (base - 24)
            parts.append(
                element("circle", cx=x, cy=y, r=2.4, fill="var(--bad)" if lost else "var(--c1)", fill_opacity=0.6)
            )
    parts.append(text("largest response over deadline; red: frames missed", 4, 14, class_="axis"))
    parts.append(text(label, width - 20, height - 6, class_="axis end"))
    return picture("".join(parts), width, height, f"worst response against {label}", "chart")
