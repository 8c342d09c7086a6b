"""Report of a policy study: a table per load, and a figure of misses, turnaround and energy."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from socsched.reporting.markup import element, text, ticks
from socsched.reporting.terminal import table
from socsched.units import format_duration
from socsched_literature.studies.policies import PLANNED, Cell, Study

COLUMNS = ("misses", "p99_9", "antt", "stp", "fairness", "sla", "energy", "preemptions")
_HEADS = ("", "policy", "missed", "p99.9", "ANTT", "STP", "fairness", "SLA", "mJ/s", "preempt/s")
_COLOURS = ("#1b6ca8", "#c8553d", "#2f7d4f", "#7b4ea3", "#b8860b", "#3d7f8c")
LEFT, TOP, ROW, PANEL, GAP = 150, 56, 22, 250, 34


def view(found: Study) -> RenderableType:
    """Return one table per load, policies in the order of misses and ANTT, and a legend of the marks."""
    parts: list[RenderableType] = []
    for load in found.loads:
        cells = sorted((c for c in found.cells if c.load == load), key=_rank)
        rows = [["●" if cell.on_front else "", cell.policy, *_numbers(cell)] for cell in cells]
        parts.append(table(f"load {load:g}", list(_HEADS), rows, tuple(range(2, 10))))
        beaten = found.beats(load)
        verdict = f"beaten by {', '.join(beaten)}" if beaten else "on the front"
        parts.append(Text(f"the unchanged plan: {verdict} of misses and energy", "dim"))
    sampling = f"mean ± 95 % interval of {found.seeds} seeds, {format_duration(found.duration_ns)} each"
    marks = "●: no other policy is better in misses or energy and no worse in the other"
    alone = f"p99.9, ANTT in times alone; SLA: within {found.multiple:g} of them"
    parts.append(Text(f"{sampling}, jobs from {1 - found.spread:.0%} of their cost; {alone}; {marks}", "dim"))
    if found.left_out:
        parts.append(Text("left out: " + "; ".join(f"{name} {why}" for name, why in found.left_out.items()), "dim"))
    return Group(*parts)


def _rank(cell: Cell) -> tuple[float, float, str]:
    return (cell.figures["misses"][0], cell.figures["antt"][0], cell.policy)


def _numbers(cell: Cell) -> list[str]:
    return [_shown(name, *cell.figures[name]) for name in COLUMNS]


def _shown(name: str, mean: float, half: float) -> str:
    if name in ("misses", "sla"):
        return f"{mean:.2%} ± {half:.2%}"
    digits = 0 if name in ("energy", "preemptions") else 2
    return f"{mean:.{digits}f} ± {half:.{max(digits, 1)}f}"


def markdown(found: Study) -> str:
    """Return the tables in Markdown."""
    lines = []
    for load in found.loads:
        lines += [f"Load {load:g}:", "", f"| {' | '.join(_HEADS)} |", "|---|---|" + "--:|" * 8]
        for cell in sorted((c for c in found.cells if c.load == load), key=_rank):
            name = f"**{cell.policy}**" if cell.policy == PLANNED else f"`{cell.policy}`"
            lines.append(f"| {'●' if cell.on_front else ''} | {name} | {' | '.join(_numbers(cell))} |")
        lines.append("")
    return "\n".join(lines)


def figure(found: Study) -> str:
    """Return the figure: a row per policy, panels for misses, ANTT and energy, a bar per load with its interval."""
    first = [c for c in found.cells if c.load == found.loads[-1]]
    names = [cell.policy for cell in sorted(first, key=_rank)]
    panels = (("misses", "frames missed [%]", 100.0), ("antt", "ANTT", 1.0), ("energy", "energy [mJ/s]", 1.0))
    height = TOP + ROW * len(names) + 40
    width = LEFT + len(panels) * (PANEL + GAP)
    body = element("rect", x=0, y=0, width=width, height=height, fill="#ffffff")
    title = f"{found.plan.pipeline} on {found.plan.platform}: policies at {len(found.loads)} loads, {found.seeds} seeds"
    body += text(title, 12, 20, font_size=14, font_weight="bold")
    for place, load in enumerate(found.loads):
        x = 12 + place * 90
        body += element("rect", x=x, y=28, width=10, height=10, fill=_COLOURS[place % len(_COLOURS)])
        body += text(f"load {load:g}", x + 15, 37, font_size=11)
    for row, name in enumerate(names):
        weight = "bold" if name == PLANNED else None
        body += text(name, LEFT - 8, TOP + ROW * (row + 0.68), font_size=11, text_anchor="end", font_weight=weight)
    for number, (key, label, scale) in enumerate(panels):
        body += _panel(found, names, key, label, scale, LEFT + number * (PANEL + GAP))
    return element(
        "svg", element("title", title) + body, viewBox=f"0 0 {width} {height}", width=width, height=height,
        xmlns="http://www.w3.org/2000/svg", font_family="sans-serif",
    )  # fmt: skip


def _panel(found: Study, names: list[str], key: str, label: str, scale: float, left: int) -> str:
    tops = [sum(cell.figures[key]) * scale for cell in found.cells]
    most = max([*tops, 1e-9]) * 1.05
    bottom, body = TOP + ROW * len(names), ""
    for tick in ticks(0, most, 4):
        x = left + tick / most * PANEL
        body += element("line", x1=x, x2=x, y1=TOP, y2=bottom, stroke="#dddddd")
        body += text(f"{tick:g}", x, bottom + 14, font_size=10, text_anchor="middle")
    body += text(label, left + PANEL / 2, bottom + 30, font_size=11, text_anchor="middle")
    thick = (ROW - 6) / len(found.loads)
    for row, name in enumerate(names):
        for place, load in enumerate(found.loads):
            mean, half = (value * scale for value in found.cell(name, load).figures[key])
            y = TOP + ROW * row + 3 + thick * place
            long = mean / most * PANEL
            body += element("rect", x=left, y=y, width=long, height=thick - 0.5, fill=_COLOURS[place % len(_COLOURS)])
            if half:
                reach = half / most * PANEL
                middle = y + thick / 2
                body += element(
                    "line", x1=max(left + long - reach, left), x2=left + long + reach, y1=middle, y2=middle,
                    stroke="#333333",
                )  # fmt: skip
    return body
