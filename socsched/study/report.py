"""The page of a sweep: the answer, fronts, heat maps, tornado and the best rows; one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from socsched.descriptor.study import Study
from socsched.reporting import markup as html
from socsched.reporting.charts import Axes, plain_ticks
from socsched.reporting.markup import (
    Markup,
    element,
    facts,
    fit,
    listed,
    picture,
    section,
    table,
    text,
    tiles,
    verdict_box,
)
from socsched.study import columns
from socsched.study.sweep import Answers, rank
from socsched.units import format_duration, format_power

Row = Mapping[str, Any]
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 64, 190, 26, 42
COLOURS = tuple(f"var(--c{number})" for number in (1, 2, 3, 4, 5, 6, 7, 0))
MOST_CELLS, MOST_MARKS = 40, 4000
AXES: dict[str, tuple[str, float]] = {
    "latency_ns": ("expected latency of all chains [ms]", 1e6),
    "planned_power_mw": ("expected power [W]", 1e3),
    "tdp_mw": ("power cap of the mode, TDP [W]", 1e3),
    "platform_tdp_mw": ("largest power cap of the module, TDP [W]", 1e3),
    "energy_mj_per_round": ("simulated energy per longest period [mJ]", 1.0),
    "price": ("price", 1.0),
    "slack": ("slack of the tightest chain [%]", 0.01),
    "misses_per_million": ("misses [per million frames]", 1.0),
    "power_mw": ("simulated power [W]", 1e3),
}
"""Label and divisor of a column."""


def pareto(rows: Sequence[Row], front: frozenset[int], columns: tuple[str, str], colour: str) -> Markup:
    """Return one column against another: rows that hold are filled, the front is a line, `colour` sets the colours."""
    known = [row for row in rows if all(row[column] is not None for column in columns)]
    step = max(len(known) // MOST_MARKS, 1)
    shown = [row for number, row in enumerate(known) if row["config"] in front or number % step == 0]
    (y_name, x_name), height = columns, 360
    x_label, x_unit = AXES[x_name]
    y_label, y_unit = AXES[y_name]
    right = max((row[x_name] / x_unit for row in shown), default=1) * 1.06 or 1
    top = max((row[y_name] / y_unit for row in shown), default=1) * 1.06 or 1
    axes = Axes((0, right), (0, top), WIDTH, height, (LEFT, RIGHT, TOP, BOTTOM))

    def place(row: Row) -> tuple[float, float]:
        return axes.x(row[x_name] / x_unit), axes.y(row[y_name] / y_unit)

    body = [axes.grid(plain_ticks((0, right), 8), plain_ticks((0, top), 6), x_label, y_label)]
    line = sorted((row for row in shown if row["config"] in front), key=lambda row: (row[x_name], row[y_name]))
    if len(line) > 1:
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, line))
        body.append(element("polyline", points=joined, fill="none", stroke="var(--dim)", stroke_dasharray="4 3"))
    names = list(dict.fromkeys(str(row[colour]) for row in rows))
    for row in sorted(shown, key=lambda row: bool(row["holds"])):
        paint, (x, y) = COLOURS[names.index(str(row[colour])) % len(COLOURS)], place(row)
        title, fill = element("title", describe_row(row)), paint if row["holds"] else "none"
        body.append(element("circle", title, cx=x, cy=y, r=5, fill=fill, stroke=paint, stroke_width=1.6))
    for number, name in enumerate(names[:15]):
        paint, at = COLOURS[number % len(COLOURS)], TOP + 12 + 18 * number
        body.append(element("rect", x=WIDTH - RIGHT + 14, y=at - 9, width=10, height=10, fill=paint))
        body.append(text(fit(name, RIGHT - 34), WIDTH - RIGHT + 30, at, class_="axis"))
    return picture(body, WIDTH, height, f"{y_label} against {x_label}", "chart")


def describe_row(row: Row) -> str:
    """Return a configuration in one line."""
    latency = "" if row["latency_ns"] is None else f", {format_duration(row['latency_ns'])}"
    power = "" if row["planned_power_mw"] is None else f", {format_power(row['planned_power_mw'])}"
    verdict = {True: "holds", None: "open", False: "does not hold"}[row["holds"]]
    return f"{row['config']}: {row['platform']} {row['mode']}, {row['objective']}{latency}{power}, {verdict}"


def heat_map(rows: Sequence[Row], across: str, down: str) -> Markup:
    """Return the share of configurations that hold for each pair of values of two parameters: green all, red none."""
    columns, lines = (_levels(rows, name) for name in (across, down))
    left, cell, line = 150, max(min((WIDTH - 170) // max(len(columns), 1), 145), 16), 26
    height = 60 + line * len(lines)
    body = text(f"{down} ↓   {across} →", 4, 14, class_="axis")
    for number, column in enumerate(columns):
        x = left + cell * number + cell / 2
        body += text(fit(_short(column), cell - 2, 10), x, 36, class_="axis mid")
    for number, name in enumerate(lines):
        body += text(fit(_short(name), left - 10), left - 8, 48 + line * number + line / 2 + 4, class_="axis end")
        for position, column in enumerate(columns):
            inside = [row for row in rows if row[across] == column and row[down] == name]
            if inside:
                body += _cell(inside, left + cell * position, 48 + line * number, cell, line)
    width = max(left + cell * len(columns) + 8, WIDTH // 2 + 110)
    return picture(body, width, height, f"feasibility over {across} and {down}", "chart")


def _cell(rows: Sequence[Row], x: float, y: float, width: float, height: float) -> Markup:
    good = sum(row["holds"] is True for row in rows)
    share = good / len(rows)
    paint = "var(--ok)" if share >= 0.5 else "var(--bad)"
    title = element("title", f"{good} of {len(rows)} configurations hold")
    box = element(
        "rect", title, x=x + 1.0, y=y + 1.0, width=width - 2.0, height=height - 2.0, fill=paint,
        fill_opacity=0.15 + 0.6 * abs(2 * share - 1), stroke="var(--line)",
    )  # fmt: skip
    shown = f"{good}/{len(rows)}" if width >= 30 else ""
    return box + text(shown, x + width / 2, y + height / 2 + 4, class_="mid", pointer_events="none")


def _levels(rows: Sequence[Row], name: str) -> list[Any]:
    levels = list(dict.fromkeys(row[name] for row in rows))
    if all(isinstance(value, (int, float)) for value in levels):
        levels.sort()
    return levels[:MOST_CELLS]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def tornado(rows: Sequence[Row], names: Sequence[str], metric: str) -> Markup:
    """Return the range of a column's mean over the values of each parameter, averaged over all others."""
    label, unit = AXES[metric]
    spans = effects(rows, names, metric)
    known = [row[metric] / unit for row in rows if row[metric] is not None]
    if not spans or not known:
        return Markup()
    middle = sum(known) / len(known)
    low = min(min(ends[0][0] for _, ends in spans) / unit, middle)
    high = max(max(ends[1][0] for _, ends in spans) / unit, middle)
    room, left = 420, 230
    scale: Callable[[float], float] = lambda v: left + 30 + (v / unit - low) / ((high - low) or 1) * (room - 40)  # noqa: E731
    height = 46 + 26 * len(spans)
    body = text(f"mean {label}", 4, 14, class_="axis")
    at = scale(middle * unit)
    for number, (name, ((least, low_value), (most, high_value))) in enumerate(spans):
        y = 26 + 26 * number
        title = element("title", f"{name}: {least / unit:.4g} to {most / unit:.4g}")
        width = max(scale(most) - scale(least), 1.0)
        body += element("rect", title, x=scale(least), y=float(y), width=width, height=18, fill="var(--c1)")
        body += text(fit(name, left - 100), left - 90, y + 13, class_="axis end")
        body += text(fit(_short(low_value), 76, 10), scale(least) - 4, y + 13, class_="axis end")
        body += text(fit(_short(high_value), 130, 10), scale(most) + 4, y + 13, class_="axis")
    body += element("line", x1=at, x2=at, y1=20, y2=height - 18, class_="bound")
    body += text(f"{middle:.4g}", at, height - 5, class_="axis mid")
    return picture(body, WIDTH, height, f"sensitivity of {label}", "chart")


def effects(
    rows: Sequence[Row], names: Sequence[str], metric: str
) -> list[tuple[str, tuple[tuple[float, Any], tuple[float, Any]]]]:
    """Return the minimum and maximum mean of a column over the values of each parameter, widest range first.

    These are main effects of the sample: means over all rows with a value, regardless of the other parameters.
    """
    rows_of_effects = []
    for name in names:
        groups: dict[Any, list[float]] = {}
        for row in rows:
            if row[metric] is not None:
                groups.setdefault(row[name], []).append(row[metric])
        means = [(sum(values) / len(values), value) for value, values in groups.items()]
        if len(means) > 1:
            least, most = min(means, key=lambda m: m[0]), max(means, key=lambda m: m[0])
            if most[0] > least[0]:
                rows_of_effects.append((name, (least, most)))
    return sorted(rows_of_effects, key=lambda item: item[1][0][0] - item[1][1][0])


MOST_ROWS, MOST_MAPS = 100, 4
METRICS = ("slack", "latency_ns", "planned_power_mw", "misses_per_million")


def page(study: Study, rows: Sequence[Row], result: Answers, made_by: Mapping[str, str]) -> str:
    """Return the whole page; `made_by` gives command and versions."""
    title = study.title or study.name
    varying = columns.varying(study, rows)
    parameters = [name for name in varying if name != "seed"]
    colour = "platform" if "platform" in varying else next(iter(parameters), "platform")
    fronts = (
        pareto(rows, configs, pair, colour)
        for pair, configs in result.fronts.items()
        if any(row[pair[1]] is not None and row["latency_ns"] is not None for row in rows)
    )
    maps = (heat_map(rows, *_ordered(rows, pair)) for pair in list(combinations(parameters, 2))[:MOST_MAPS])
    return html.page(
        title,
        element("h1", title),
        _verdict(study, rows, result),
        _tiles(rows, result),
        section("Fronts", fronts, note="Filled: holds. Dashed: the Pareto front of the configurations that hold."),
        section(
            "Feasibility over two parameters",
            maps,
            note="Each cell: number of its configurations that hold; empty if the design has none.",
        ),
        section(
            "Sensitivities",
            (tornado(rows, varying, metric) for metric in METRICS),
            note="Lowest to highest mean over the values of a parameter, averaged over all others; line: overall mean.",
        ),
        _rows(study, rows, varying),
        section("How this was made", facts(made_by)),
    )


def _verdict(study: Study, rows: Sequence[Row], result: Answers) -> Markup:
    lines: list[Any] = [[element("strong", name), f": {answer(study, row)}"] for name, row in result.best.items()]
    good = bool(lines)
    if result.nearest is not None and not lines:
        lines.append(f"nearest: {answer(study, result.nearest)}")
    return verdict_box(good, headline(study, rows, result), listed(lines))


def headline(study: Study, rows: Sequence[Row], result: Answers) -> str:
    """Return a headline with the number of configurations that hold, and of those still open."""
    unsure = f"; {result.open} are open: more runs would decide them" if result.open else ""
    if result.holding:
        return f"{result.holding} of {len(rows)} configurations hold{describe_requirements(study)}{unsure}"
    return f"none of {len(rows)} configurations is shown to hold{describe_requirements(study)}{unsure}"


def describe_requirements(study: Study) -> str:
    """Return the study's requirements beyond a feasible plan, as the end of a sentence."""
    holds, parts = study.holds, []
    if holds.slack is not None:
        parts.append(f"{holds.slack:.0%} slack")
    if holds.growth is not None:
        parts.append(f"room for {holds.growth:g} times the execution times")
    if holds.misses is not None:
        parts.append(f"at most {holds.misses * 1e6:g} misses in a million frames")
    return f" (feasible, {', '.join(parts)})" if parts else " (feasible)"


def answer(study: Study, row: Row) -> str:
    """Return a human-readable configuration with its merits."""
    own = [name for name in columns.varying(study, [row]) if name not in ("platform", "mode")]
    parts = [f"{row['platform']} in {row['mode']}", f"{row['objective']} plan"]
    parts += [f"{name} {_short(row[name])}" for name in own]
    if row["tdp_mw"] is not None:
        parts.append(f"TDP {format_power(row['tdp_mw'])}")
    if row["price"] is not None:
        parts.append(f"price {row['price']:g}")
    if row["latency_ns"] is not None:
        parts.append(f"chains {format_duration(row['latency_ns'])} in all")
    if row["slack"] is not None:
        parts.append(f"slack {row['slack']:.1%}")
    if row["planned_power_mw"] is not None:
        parts.append(f"{format_power(row['planned_power_mw'])} expected")
    if row["frames"]:
        parts.append(f"{row['missed'] + row['dropped']} of {row['frames']} frames missed")
    return ", ".join(parts) + f" (configuration {row['config']})"


def _tiles(rows: Sequence[Row], result: Answers) -> Markup:
    frames = sum(row["frames"] for row in rows)
    lost = sum(row["missed"] + row["dropped"] for row in rows)
    figures = [
        ("configurations", f"{len(rows):,}"),
        ("hold", f"{result.holding:,}"),
        ("open", f"{result.open:,}"),
        ("without a result", f"{result.failed:,}"),
        ("plans", f"{len({row['plan'] for row in rows}):,}"),
        ("frames simulated", f"{frames:,}"),
        ("of them missed", f"{lost:,}"),
    ]
    return tiles(figures)


def _ordered(rows: Sequence[Row], pair: tuple[str, str]) -> tuple[str, str]:
    """Return the pair with the parameter that has more values second (down), where there is more space."""
    counts = {name: len({row[name] for row in rows}) for name in pair}
    return (pair[0], pair[1]) if counts[pair[0]] <= counts[pair[1]] else (pair[1], pair[0])


def _rows(study: Study, rows: Sequence[Row], varying: Sequence[str]) -> Markup:
    best = sorted(rows, key=lambda row: rank(study, row))[:MOST_ROWS]
    own = [name for name in varying if name not in ("platform", "mode")]
    names = ["platform", "mode", *own, *("holds", "verdict", "slack", "latency_ns", "planned_power_mw", "tdp_mw")]
    names += ["misses_per_million", "misses_high_per_million", "runs"]
    lines = [[row["config"], *(format_cell(name, row[name]) for name in names)] for row in best]
    numeric = [0, *(i for i, n in enumerate(names, 1) if n not in ("platform", "mode", "holds", "verdict", *own))]
    heads = ["config", *(name.removesuffix("_ns").removesuffix("_mw").replace("_", " ") for name in names)]
    title = "Configurations" if len(rows) <= MOST_ROWS else f"The best {MOST_ROWS} of {len(rows):,}"
    return section(title, table(heads, lines, numeric, firm=range(1, len(heads))), _failures(rows))


def _failures(rows: Iterable[Row]) -> Markup | None:
    failed: dict[str, list[int]] = {}
    for row in rows:
        if row["error"]:
            failed.setdefault(row["error"], []).append(row["config"])
    lines = (f"{error} ({len(own)} configurations, first {own[0]})" for error, own in list(failed.items())[:20])
    return element("div", element("p", "Without a result:"), listed(lines), class_="note") if failed else None


def format_cell(name: str, value: Any) -> str:
    """Return a cell as human-readable text."""
    if value is None:
        return "open" if name == "holds" else "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_ns"):
        return format_duration(value)
    if name.endswith("_mw"):
        return format_power(value)
    if name == "slack":
        return f"{value:.1%}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
