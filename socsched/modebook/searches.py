"""Searches for the plans of cells, in this process or in several; the plans are the same, unless a time limit cuts in.

With several processes, cells whose search is likely to be needed are searched ahead.  Plans that are not asked for in
the end are given up, so that the book does not depend on what was searched ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING

from socsched.api.planning import PlanOptions, plan_with
from socsched.modebook.cells import Surroundings
from socsched.pool import Pool

if TYPE_CHECKING:
    from socsched.modebook.cells import Cell
    from socsched.planning.plan import Plan

WAIT = 0.2
"""Seconds to wait for a plan before further cells are searched ahead."""


def search(cell: Cell, around: Surroundings, options: PlanOptions) -> Plan:
    """Return the plan of a cell by a search of its own."""
    board = around.board(cell.loss)
    return plan_with(around.workload(cell), board, around.mode(cell).name, options, around.known(cell))


@dataclass(slots=True)
class Searches:
    """Searches by `workers` processes, a context; by this process if it is one."""

    around: Surroundings
    options: PlanOptions
    workers: int = 1
    _pool: Pool | None = None
    _asked: set[Cell] = field(default_factory=set)
    _plans: dict[Cell, Plan] = field(default_factory=dict)

    def __enter__(self) -> Searches:
        if self.workers > 1:
            fresh = replace(self.around, _boards={}, _pipelines={}, _known={})  # costs are not worth a transfer
            self._pool = Pool(_setup, (fresh, self.options), self.workers)
            self._pool.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.__exit__(kind, error, at)

    def plan(self, cell: Cell, likely: Iterator[Cell]) -> Plan:
        """Return the plan of a cell; processes without work meanwhile search cells `likely` to be asked for."""
        if self._pool is None:
            return search(cell, self.around, self.options)
        self._submit(self._pool, cell)
        left = True
        while cell not in self._plans:
            if left and self._pool.outstanding < self.workers:
                following = next(likely, None)
                left = following is not None
                if following is not None:
                    self._submit(self._pool, following)
                continue
            self._plans.update(self._pool.finished(WAIT))
        return self._plans.pop(cell)

    def _submit(self, pool: Pool, cell: Cell) -> None:
        if cell not in self._asked:
            self._asked.add(cell)
            pool.submit(cell)


def _setup(around: Surroundings, options: PlanOptions) -> Callable[[Cell], Plan]:
    return lambda cell: search(cell, around, options)
