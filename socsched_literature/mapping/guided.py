"""Beam search and enumeration with contention, guided by the contention-free cost of schedule suffixes (`destructive`).

The bound of a state is the sum of three prices: the work finished by its clock, the time since then that engines idled
or lost to contention, and the least price of all the rest, idle time included.  Contention can only add to it.
"""

from __future__ import annotations

import time

import numpy as np

from socsched.planning.mapping.problem import Problem, Schedule
from socsched_literature.mapping.backwards import Backwards
from socsched_literature.mapping.beam import ALL_WAITS, Beam
from socsched_literature.mapping.fluid import State
from socsched_literature.mapping.relaxation import Relaxed
from socsched_literature.mapping.sweeps import states_of
from socsched_literature.mapping.tables import Floats, Table, chains, tabulate, with_conversions

STATES = 500_000
"""Maximum number of states per step."""
FACTOR = 1.15
PATIENCE = 3.0
"""Once the steps took `PATIENCE` times as long as the backward sweep, its allowance grows by `FACTOR`."""


class _Guided(Beam):
    def __init__(
        self, table: Table, width: int, waits: int, ends: Backwards, limit: float = np.inf, until: float = np.inf
    ) -> None:
        super().__init__(table, width, waits, limit, until)
        self.known = ends

    def _bound(self, state: State) -> tuple[Floats, Floats]:
        bound, ways = super()._bound(state)
        if not len(bound):
            return bound, ways
        table, running = self.table, state["run"] >= 0
        row, lane = np.nonzero(running)
        net = state["run"][row, lane]
        position, before = state["pos"][row, net], state["last"][row, net]
        done = np.zeros(running.shape)
        lag = np.maximum(table.lag[net, position, before, lane] - state["lag"][row, lane], 0.0)
        done[row, lane] = lag + (1 - state["rem"][row, lane]) * state["time"][row, lane]
        spent = (state["t"][:, None] - done) @ self.known.table.price
        least = self.known.least(self.known.renamed(states_of(state["pos"], state["last"], self.lanes)))
        # Times of states are floating point: their error is below a hundredth of a ns.
        return np.maximum(bound, spent + least - 0.01), ways


def search(problem: Problem, relaxed: Relaxed, ends: Backwards, width: int) -> Schedule | None:
    """Return the best schedule found with `width` states per step; only for `destructive.suitable` problems."""
    groups = chains(problem)
    assert groups
    found = _Guided(tabulate(problem, groups, relaxed), width, 0, ends).search()
    return with_conversions(problem, found) if found else None


def rise(
    problem: Problem, relaxed: Relaxed, ends: Backwards, reached: int, upper: int, step: float, until: float
) -> tuple[Schedule | None, int]:
    """Raise a limit from `reached` to `upper` (ns) in steps of the fraction `step` until a schedule ends within it.

    Returns the schedule, and a time below which enumeration found none (as `beam.enumerate_below`, with the same
    restriction: jobs start immediately or at the end of another job).
    """
    groups = chains(problem)
    assert groups
    table = tabulate(problem, groups, relaxed)
    grain, took = max(int(reached * step), 1), 0.0
    while reached < upper:
        limit = min(reached + grain, upper)
        begun = time.monotonic()
        if took > PATIENCE * ends.seconds and until - begun > PATIENCE * took:
            # The cost of a step grows with the limit as fast as the cost of a wider backward sweep.
            wider = ends.wider(FACTOR, min(until, begun + took))
            took, ends = (0.0, wider) if wider else (-np.inf, ends)
            continue
        beam = _Guided(table, STATES, ALL_WAITS, ends, float(limit), until)
        found = beam.search()
        took += time.monotonic() - begun
        if found or not beam.complete:
            return (with_conversions(problem, found) if found else None), reached
        reached = limit
    return None, reached
