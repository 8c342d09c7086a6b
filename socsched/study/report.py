"""The page of a sweep: the answer, fronts, heat maps, tornado and the best rows; one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import combinations
from typing import Any

from socsched.descriptor.study import Study
from socsched.reporting.page import wrap_page
from socsched.reporting.svg import element, table
from socsched.study import columns, figures
from socsched.study.summary import Answers
from socsched.study.sweep import rank
from socsched.units import format_duration, format_power

Row = Mapping[str, Any]
MOST_ROWS, MOST_MAPS = 100, 4
METRICS = ("slack", "latency_ns", "planned_power_mw", "misses_per_million")


def page(study: Study, rows: Sequence[Row], found: Answers, made_by: Mapping[str, str]) -> str:
    """Return the whole page; `made_by` gives command and versions."""
    title = study.title or study.name
    varying = columns.varying(study, rows)
    blocks = [
        element("h1", escape(title)),
        _verdict(study, rows, found),
        _tiles(rows, found),
        _fronts(rows, found, varying),
        _maps(rows, varying),
        _tornados(rows, varying),
        _rows(study, rows, varying),
        _made_by(made_by),
    ]
    return wrap_page(title, "".join(blocks))


def _verdict(study: Study, rows: Sequence[Row], found: Answers) -> str:
    items = "".join(
        element("li", f"{element('strong', escape(name))}: {escape(answer(study, row))}")
        for name, row in found.best.items()
    )
    if items:
        head = headline(study, rows, found)
        return element("div", element("strong", escape(head)) + element("ul", items), class_="verdict good")
    head = headline(study, rows, found)
    near = ""
    if found.nearest is not None:
        near = element("ul", element("li", escape(f"nearest: {answer(study, found.nearest)}")))
    return element("div", element("strong", escape(head)) + near, class_="verdict no")


def headline(study: Study, rows: Sequence[Row], found: Answers) -> str:
    """Return a headline with the number of configurations that hold, and of those still open."""
    unsure = f"; {found.open} are open: more runs would decide them" if found.open else ""
    if found.holding:
        return f"{found.holding} of {len(rows)} configurations hold{describe_requirements(study)}{unsure}"
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
    parts += [f"{name} {figures._short(row[name])}" for name in own]
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


def _tiles(rows: Sequence[Row], found: Answers) -> str:
    frames = sum(row["frames"] for row in rows)
    lost = sum(row["missed"] + row["dropped"] for row in rows)
    tiles = [
        ("configurations", f"{len(rows):,}"),
        ("hold", f"{found.holding:,}"),
        ("open", f"{found.open:,}"),
        ("without a result", f"{found.failed:,}"),
        ("plans", f"{len({row['plan'] for row in rows}):,}"),
        ("frames simulated", f"{frames:,}"),
        ("of them missed", f"{lost:,}"),
    ]
    boxes = (element("div", element("b", value) + element("span", name), class_="tile") for name, value in tiles)
    return element("div", "".join(boxes), class_="tiles")


def _fronts(rows: Sequence[Row], found: Answers, varying: Sequence[str]) -> str:
    colour = "platform" if "platform" in varying else next((n for n in varying if n != "seed"), "platform")
    shown = [
        figures.pareto(rows, configs, pair, colour)
        for pair, configs in found.fronts.items()
        if any(row[pair[1]] is not None and row["latency_ns"] is not None for row in rows)
    ]
    note = "Filled: holds. Dashed: the Pareto front of the configurations that hold."
    return element("h2", "Fronts") + element("p", note, class_="dim") + "".join(shown) if shown else ""


def _maps(rows: Sequence[Row], varying: Sequence[str]) -> str:
    names = [name for name in varying if name != "seed"]
    pairs = list(combinations(names, 2))[:MOST_MAPS]
    if not pairs:
        return ""
    note = "Each cell: number of its configurations that hold; empty if the design has none."
    maps = "".join(figures.heat_map(rows, *_ordered(rows, pair)) for pair in pairs)
    return element("h2", "Feasibility over two parameters") + element("p", note, class_="dim") + maps


def _ordered(rows: Sequence[Row], pair: tuple[str, str]) -> tuple[str, str]:
    """Return the pair with the parameter that has more values second (down), where there is more space."""
    counts = {name: len({row[name] for row in rows}) for name in pair}
    return (pair[0], pair[1]) if counts[pair[0]] <= counts[pair[1]] else (pair[1], pair[0])


def _tornados(rows: Sequence[Row], varying: Sequence[str]) -> str:
    drawn = [figures.tornado(rows, varying, metric) for metric in METRICS]
    shown = "".join(filter(None, drawn))
    note = "Lowest to highest mean over the values of a parameter, averaged over all others; line: overall mean."
    return element("h2", "Sensitivities") + element("p", note, class_="dim") + shown if shown else ""


def _rows(study: Study, rows: Sequence[Row], varying: Sequence[str]) -> str:
    best = sorted(rows, key=lambda row: rank(study, row))[:MOST_ROWS]
    own = [name for name in varying if name not in ("platform", "mode")]
    names = ["platform", "mode", *own, *("holds", "verdict", "slack", "latency_ns", "planned_power_mw", "tdp_mw")]
    names += ["misses_per_million", "misses_high_per_million", "runs"]
    if any(row["measured"] for row in rows):
        names += ["measured_ns", "measured_planned_ns"]
    lines = [[str(row["config"]), *(_cell(name, row[name]) for name in names)] for row in best]
    numeric = [0, *(i for i, n in enumerate(names, 1) if n not in ("platform", "mode", "holds", "verdict", *own))]
    head = element("h2", "Configurations" if len(rows) <= MOST_ROWS else f"The best {MOST_ROWS} of {len(rows):,}")
    failed = _failures(row for row in rows if row["error"])
    return head + table(["config", *(_title(name) for name in names)], lines, numeric) + failed


def _failures(rows: Iterable[Row]) -> str:
    configs_of: dict[str, list[int]] = {}
    for row in rows:
        configs_of.setdefault(row["error"], []).append(row["config"])
    items = "".join(
        element("li", escape(f"{error} ({len(configs)} configurations, first {configs[0]})"))
        for error, configs in list(configs_of.items())[:20]
    )
    return element("div", element("p", "Without a result:") + element("ul", items), class_="note") if items else ""


def _cell(name: str, value: Any) -> str:
    return element("span", escape(format_cell(name, value)), class_="firm")


def _title(name: str) -> str:
    return name.removesuffix("_ns").removesuffix("_mw").replace("_", " ")


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


def _made_by(made_by: Mapping[str, str]) -> str:
    rows = [[escape(key), element("code", escape(value))] for key, value in made_by.items()]
    return element("h2", "How this was made") + table(["what", "value"], rows)
