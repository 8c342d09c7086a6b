"""`socsched.book`: the plans of all cells and the switches between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from socsched.api.loading import load_pipeline, load_platform
from socsched.api.options import PlanOptions
from socsched.api.planning import options_of, pin_stages, plan_with, set_deadlines
from socsched.api.stamp import stamped
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.modebook.book import Book, make_book
from socsched.modebook.build import build_entries
from socsched.modebook.cells import Cell, CellContext, axes_of
from socsched.modebook.transitions import switches
from socsched.planning.plan import Plan
from socsched.planning.workload import Limits
from socsched.units import parse_duration

QUICK = 500
"""Budget (evaluations) of the search for a plan that only shows what is unmet."""
SETUP = "10 ms"
"""Default time in which the board changes clocks and workers change plans; assumed, no figure is published."""


@dataclass(frozen=True, slots=True)
class _CellPlanner:
    """The searches of a book's cells, with the same options."""

    options: PlanOptions

    @property
    def objective(self) -> str:
        return self.options.objective

    def search(self, cell: Cell, context: CellContext, quick: bool = False) -> Plan:
        options = self.options
        if quick:
            options = replace(options, solver="heft", refine=False, cuts=False, explain=False, evaluations=QUICK)
        board, mode = context.board(cell.loss), context.mode(cell).name
        return plan_with(context.workload(cell), board, mode, options, context.known(cell))

    def stamped(self, plan: Plan, cell: Cell, context: CellContext) -> Plan:
        mode = context.mode(cell).name
        return stamped(plan, context.workload(cell), context.board(cell.loss), mode, self.options)


def book(
    pipeline: str | Path | Pipeline,
    platform: str | Path | Platform,
    *,
    modes: Sequence[str] = (),
    thermal: Sequence[str] = (),
    losses: Sequence[str] | None = None,
    conditions: Sequence[str] = (),
    setup: str | int = SETUP,
    workers: int = 1,
    **options: Any,
) -> Book:
    """Return the book of a pipeline on a platform: a plan for every cell, and the switches between cells.

    The axes are those of the platform and the pipeline unless stated: power modes, thermal states, lost engines (in
    addition to none) and operating conditions.  `setup`: time (text or ns) between the last job of a plan and the
    start of the next.  `workers`: processes that search cells; a script that asks for several needs a guard
    `if __name__ == "__main__"`.  `options`: fields of `PlanOptions`, for the search of each cell; `evaluations` and
    `time_limit` apply to one cell.  Raises UsageError for unknown names, DescriptorError for files with faults.
    """
    setup_ns = parse_duration(setup) if isinstance(setup, str) else setup
    chosen = options_of(**options)
    board = load_platform(platform)
    work = pin_stages(set_deadlines(load_pipeline(pipeline), chosen.deadlines), board, chosen.pins)
    axes = axes_of(work, board, modes, thermal, losses, conditions)
    context = CellContext(work, board, Limits(chosen.power_cap, chosen.bandwidth_cap))
    entries = build_entries(axes, _CellPlanner(replace(chosen, pins=(), deadlines=())), context, workers)
    return make_book(entries, switches(entries, axes, context, setup_ns), axes, context)
