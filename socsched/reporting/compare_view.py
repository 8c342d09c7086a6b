"""Views of a comparison of plans or results, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from socsched.reporting.compare import Comparison
from socsched.reporting.diff import Move, PlanDiff
from socsched.reporting.summary import plain
from socsched.reporting.summary import table as markdown_table
from socsched.reporting.terminal import table
from socsched.units import format_duration

_FIGURES = ("what", "figure", "A", "B", "B/A")


def result_rows(found: Comparison) -> list[list[str]]:
    """Return the figures of two results, with regressions marked."""
    shown = [
        (row, [row.name, row.figure, format_duration(row.a), format_duration(row.b), f"{row.ratio:.3f}"])
        for row in found.rows
    ]
    return [[*cells, "✗" if row.regressed else ""] for row, cells in shown]


def plan_rows(found: PlanDiff) -> list[list[str]]:
    """Return the figures of two plans, with regressions marked."""
    return [[row.name, row.figure, *row.shown(), "✗" if row.regressed else ""] for row in found.figures]


def requirement_rows(found: PlanDiff) -> list[list[str]]:
    """Return the requirements that differ, with whether they became weaker, and whether that is allowed."""
    return [
        [
            f"{change.kind} of {change.subject}" if change.kind else change.subject,
            change.before or "–",
            change.after or "–",
            f"✗ {change.sense}" if change in found.weaker else change.sense + " (allowed)" * (change.sense == "weaker"),
        ]
        for change in found.requirements
    ]


def move_rows(found: Sequence[Move]) -> list[list[str]]:
    """Return the stages whose placement, configuration or cost changed."""
    return [
        [
            move.stage,
            move.before or "–",
            move.after or "–",
            format_duration(move.cost_a_ns) if move.before else "–",
            format_duration(move.cost_b_ns) if move.after else "–",
        ]
        for move in found
    ]


_REQUIREMENTS = ("requirement", "A", "B", "became")
_MOVES = ("stage", "A", "B", "alone A", "alone B")


def view(found: Comparison | PlanDiff, a: str, b: str, allowed: float) -> RenderableType:
    """Return everything that `socsched compare` prints for two results or two plans."""
    parts: list[RenderableType] = [Text(f"A: {a}"), Text(f"B: {b}")]
    if isinstance(found, PlanDiff):
        rows, notes = plan_rows(found), found.changes
    else:
        rows, notes = result_rows(found), found.remarks
    parts += [Text(line) for line in notes]
    if isinstance(found, PlanDiff) and found.requirements:
        parts += [Text(""), table("Requirements", _REQUIREMENTS, requirement_rows(found))]
    if found.moves:
        parts += [Text(""), table("What changed", _MOVES, move_rows(found.moves), (3, 4))]
    if rows:
        parts += [Text(""), table("Figures", (*_FIGURES, f"> {1 + allowed:.3g}"), rows, (2, 3, 4))]
    parts.append(Text(""))
    if isinstance(found, PlanDiff) and not (found.moves or found.changes or found.requirements):
        parts.append(Text("the plans are identical"))
    parts += [Text(f"✗ {line}", "bold red") for line in found.regressions]
    if isinstance(found, Comparison) and found.slower_chains:
        parts.append(Text(f"to explain its worst frame: socsched why {b} --chain {found.slower_chains[0]}"))
    count = len(found.regressions)
    parts.append(Text(f"{count} regression{'s' if count > 1 else ''}" if count else "no regression"))
    return Group(*parts)


def markdown(found: Comparison | PlanDiff, a: str, b: str, allowed: float) -> str:
    """Return the same as Markdown."""
    count = len(found.regressions)
    head = f"❌ {count} regression{'s' if count > 1 else ''}" if count else "✅ no regression"
    lines = [f"## {head}", "", f"A: {plain(a)}, B: {plain(b)}; tolerance {allowed:.1%}.", ""]
    lines += [f"- {plain(line)}" for line in found.regressions]
    notes = found.changes if isinstance(found, PlanDiff) else found.remarks
    rows = plan_rows(found) if isinstance(found, PlanDiff) else result_rows(found)
    lines += [f"- {plain(line)}" for line in notes] + [""]
    if isinstance(found, PlanDiff) and found.requirements:
        lines += [*markdown_table(_REQUIREMENTS, requirement_rows(found)), ""]
    if found.moves:
        lines += [*markdown_table(_MOVES, move_rows(found.moves)), ""]
    lines += [*markdown_table((*_FIGURES, ""), rows), ""] if rows else []
    return "\n".join(lines)
