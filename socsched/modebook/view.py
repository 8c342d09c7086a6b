"""A book, and a simulated one, as tables for terminals, a picture and a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from socsched.modebook.cells import NONE
from socsched.modebook.simulate import FATES, BookSimulation, SwitchRecord
from socsched.reporting import markup as html
from socsched.reporting.markup import Markup, element, fit, section, svg, text
from socsched.reporting.markup import table as html_table
from socsched.reporting.terminal import table
from socsched.units import format_duration, format_power, format_size

if TYPE_CHECKING:
    from socsched.modebook.book import BookDocument, CellEntry, SwitchEntry

COLOURS = {"feasible": "#2f7d4f", "undecided": "#b8860b", "infeasible": "#c8553d"}
SHADES = {"searched": 1.0, "shared": 0.75, "dominated": 0.75}
CELL_WIDTH, CELL_HEIGHT, LEFT, TOP = 104, 40, 190, 64


def _rows(book: BookDocument) -> list[tuple[str, str, str]]:
    """Return condition, mode and thermal state of every row of cells."""
    return list(dict.fromkeys((cell.condition, cell.mode, cell.thermal) for cell in book.cells))


def slack(cell: CellEntry) -> float | None:
    """Return the share of the tightest deadline that a bound leaves, None without bounds for all chains."""
    if not cell.chains or any(chain.bound_ns is None for chain in cell.chains):
        return None
    return min(1 - (chain.bound_ns or 0) / chain.deadline_ns for chain in cell.chains)


def view(book: BookDocument) -> RenderableType:
    """Return the table of cells, what plans share, and the switches."""
    several = len(book.conditions) > 1
    cells = {(cell.condition, cell.mode, cell.thermal, cell.loss): cell for cell in book.cells}
    rows = []
    for condition, mode, state in _rows(book):
        found = [cells[condition, mode, state, loss] for loss in book.losses]
        rows.append([condition if several else "", mode, state, *(_short(cell) for cell in found)])
    columns = ["condition" if several else "", "mode", "thermal", *(_lost(loss) for loss in book.losses)]
    searched = sum(cell.made == "searched" for cell in book.cells)
    feasible = sum(cell.verdict == "feasible" for cell in book.cells)
    lines = [
        f"{len(book.cells)} cells, {feasible} feasible; {searched} searched, the others share a placement or a verdict",
        f"{len(book.placements)} placements, {shared_line(book)}",
        switches_line(book),
        *why_lines(book),
    ]
    title = f"{book.pipeline} on {book.platform}: placement, power and the least slack of each cell"
    return Group(table(title, columns, rows, ()), Text(""), *(Text(line, "dim") for line in lines))


def _lost(loss: str) -> str:
    return "all units" if loss == NONE else f"without {loss}"


def _short(cell: CellEntry) -> str:
    if cell.verdict != "feasible":
        return cell.verdict
    left = slack(cell)
    spare = "" if left is None else f" {left:.0%}"
    return f"{cell.placement} {format_power(cell.power_mw or 0)}{spare}"


def shared_line(book: BookDocument) -> str:
    """Return how much the placements share, in artefacts and bytes of weights."""
    each = sum(len(one.placements) for one in book.artefacts)
    own = sum(one.weights_bytes for one in book.placements)
    once = sum(one.weights_bytes for one in book.artefacts)
    return (
        f"{len(book.artefacts)} compiled stages instead of {each}; weights {format_size(once)} "
        f"instead of {format_size(own)}; {format_size(book.resident_bytes)} of {format_size(book.capacity_bytes)} "
        "with all of them loaded"
    )


def switches_line(book: BookDocument) -> str:
    """Return how many switches the board can make while it runs, and the longest."""
    able = [one for one in book.switches if not one.why]
    if not able:
        return f"{len(book.switches)} changes from feasible cells, none with a switch"
    longest = max(able, key=lambda one: one.switch_ns or 0)
    return (
        f"{len(book.switches)} changes from feasible cells, {len(able)} with a switch, at most "
        f"{format_duration(longest.switch_ns or 0)} ({_named(book, longest)})"
    )


def _named(book: BookDocument, one: SwitchEntry) -> str:
    ends = [book.cells[number] for number in (one.source, one.target)]
    return " to ".join(f"{c.mode}/{c.thermal}/{c.loss}/{c.condition}" for c in ends)


def why_lines(book: BookDocument) -> list[str]:
    """Return the reasons of cells without a feasible plan, equal ones together."""
    found: dict[tuple[str, ...], list[str]] = {}
    for cell in book.cells:
        if cell.why:
            found.setdefault((cell.verdict, *cell.why[:3]), []).append(f"{cell.mode}/{cell.thermal}/{cell.loss}")
    return [f"{', '.join(cells)}: {verdict}; {'; '.join(why)}" for (verdict, *why), cells in found.items()]


def picture(book: BookDocument) -> Markup:
    """Return an SVG with a field per cell: its colour states the verdict, its text placement, power and slack."""
    rows = _rows(book)
    width = LEFT + CELL_WIDTH * len(book.losses) + 16
    height = TOP + CELL_HEIGHT * len(rows) + 40
    cells = {(cell.condition, cell.mode, cell.thermal, cell.loss): cell for cell in book.cells}
    body = [
        element(
            "style", "text{font-family:sans-serif;font-size:11px;fill:#222}.light{fill:#fff}.head{font-weight:600}"
        ),
        text(f"{book.pipeline} on {book.platform}", 12, 22, class_="head"),
    ]
    for column, loss in enumerate(book.losses):
        body.append(text(_lost(loss), LEFT + CELL_WIDTH * column + 6, TOP - 8, class_="head"))
    for row, (condition, mode, state) in enumerate(rows):
        y = TOP + CELL_HEIGHT * row
        label = f"{mode} {state}" + (f" {condition}" if len(book.conditions) > 1 else "")
        body.append(text(fit(label, LEFT - 20), 12, y + CELL_HEIGHT / 2 + 4))
        for column, loss in enumerate(book.losses):
            body.append(_field(cells[condition, mode, state, loss], LEFT + CELL_WIDTH * column, y))
    y = TOP + CELL_HEIGHT * len(rows) + 22
    for number, (verdict, colour) in enumerate(COLOURS.items()):
        body.append(element("rect", x=LEFT + 110 * number, y=y - 10, width=12, height=12, fill=colour))
        body.append(text(verdict, LEFT + 110 * number + 18, y))
    return svg(f"Book of {book.pipeline} on {book.platform}", body, width=width, height=height, role="img")


def _field(cell: CellEntry, x: float, y: float) -> Markup:
    left = slack(cell)
    lines = [f"{cell.placement} {cell.made}" if cell.placement else cell.made]
    if cell.verdict == "feasible":
        lines.append(f"{format_power(cell.power_mw or 0)}" + ("" if left is None else f", slack {left:.0%}"))
    else:
        lines.append(cell.verdict)
    hint = element("title", "; ".join(cell.why) or cell.verdict)
    box = element(
        "rect",
        hint,
        x=x + 1,
        y=y + 1,
        width=CELL_WIDTH - 2,
        height=CELL_HEIGHT - 2,
        rx=3,
        fill=COLOURS[cell.verdict],
        fill_opacity=SHADES.get(cell.made, 1.0),
    )
    return box + html.markup(
        text(fit(line, CELL_WIDTH - 8), x + 6, y + 16 + 14 * number, class_="light")
        for number, line in enumerate(lines)
    )


def page(book: BookDocument) -> str:
    """Return a page with the picture, the placements, the switches, and the reasons of cells without a plan."""
    heads = ["from", "to", "drain", "by", "switch", "frames held", "unpaired"]
    return html.page(
        f"Book of {book.pipeline} on {book.platform}",
        element("h1", f"{book.pipeline} on {book.platform}"),
        picture(book),
        element("p", f"{len(book.placements)} placements, {shared_line(book)}. {switches_line(book)}."),
        section("Placements", html_table(["placement", "stages", "weights"], _placements(book), [2])),
        section("Cells without a feasible plan", html_table(["cell", "verdict", "why"], _refused(book))),
        section(
            "Switches",
            element("p", f"Protocol: {book.protocol}. Times from the request, bounds."),
            html_table(heads, _switches(book), [2, 4]),
        ),
    )


def _placements(book: BookDocument) -> list[Sequence[str]]:
    return [
        [one.id, ", ".join(f"{stage} {where}" for stage, where in one.stages.items()),
         format_size(one.weights_bytes)]
        for one in book.placements
    ]  # fmt: skip


def _refused(book: BookDocument) -> list[Sequence[str]]:
    return [
        [f"{c.mode}/{c.thermal}/{c.loss}/{c.condition}", c.verdict, "; ".join(c.why)]
        for c in book.cells
        if c.verdict != "feasible"
    ]


def _switches(book: BookDocument) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for one in book.switches:
        ends = [book.cells[number] for number in (one.source, one.target)]
        names = [f"{c.mode}/{c.thermal}/{c.loss}/{c.condition}" for c in ends]
        if one.why:
            rows.append([*names, "", one.why, "", "", ""])
            continue
        counts = [", ".join(f"{name} {most}" for name, most in of.items()) for of in (one.held, one.unpaired)]
        times = [format_duration(one.drain_ns or 0), one.drain_by, format_duration(one.switch_ns or 0)]
        rows.append([*names, *times, *counts])
    return rows


_MOST_SWITCHES = 40
"""Switches listed; the rest are in result.json."""


def simulated(done: BookSimulation) -> RenderableType:
    """Return the switches, the accounts of frames and the chains of a simulated book."""
    made = [one for one in done.switches if not one.why]
    switches = table(
        "Switches: simulated / bound",
        ["at", "from", "to", "drain", "switch", "held", "unpaired", "within"],
        [_switch_row(one) for one in done.switches[:_MOST_SWITCHES]],
        (3, 4, 5, 6),
    )
    used = [fate for fate in FATES if any(count[fate] for count in done.frames.values())]
    frames = table(
        "Frames by fate",
        ["source", "released", *used],
        [[name, str(count.total()), *(str(count[fate]) for fate in used)] for name, count in done.frames.items()],
        tuple(range(1, len(used) + 2)),
    )
    chains = table(
        "Chains",
        ["chain", "answered", "late", "longest"],
        [
            [name, str(done.completed[name]), str(done.late[name]), format_duration(longest)]
            for name, longest in done.longest_ns.items()
        ],
        (1, 2, 3),
    )
    outside = sum(not one.within for one in made)
    line = (
        f"{len(made)} switches, {outside} outside their bounds; {done.unaccounted} frames unaccounted for; "
        f"{done.late.total()} late"
    )
    return Group(*((switches, Text("")) if done.switches else ()), frames, Text(""), chains, Text(""), Text(line))


def _switch_row(one: SwitchRecord) -> list[str]:
    at = format_duration(one.requested_ns)
    if one.why:
        return [at, str(one.source), str(one.target), "", "", "", "", f"refused: {one.why}"]
    return [
        at,
        str(one.source),
        str(one.target),
        f"{format_duration(one.drain_ns)} / {format_duration(one.drain_bound_ns)}",
        f"{format_duration(one.switch_ns)} / {format_duration(one.switch_bound_ns)}",
        f"{one.held.total()} / {sum(one.held_bound.values())}",
        f"{one.unpaired.total()} / {sum(one.unpaired_bound.values())}",
        "yes" if one.within else "no",
    ]
