"""`socsched.book`: the plans of all cells and the switches between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.api.loading import load_pipeline, load_platform
from socsched.api.planning import options_of, pin_stages, set_deadlines
from socsched.modebook.book import Book, make_book
from socsched.modebook.build import build_entries
from socsched.modebook.cells import Surroundings, axes_of
from socsched.modebook.transitions import switches
from socsched.planning.workload import Limits
from socsched.units import parse_duration

if TYPE_CHECKING:
    from socsched.descriptor.pipeline import Pipeline
    from socsched.descriptor.platform import Platform

SETUP = "10 ms"
"""Default time in which the board changes clocks and workers change plans; assumed, no figure is published."""


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
    around = Surroundings(work, board, Limits(chosen.power_cap, chosen.bandwidth_cap))
    entries = build_entries(axes, replace(chosen, pins=(), deadlines=()), around, workers)
    return make_book(entries, switches(entries, axes, around, setup_ns), axes, around)
