"""A bound by exhaustion: no schedule is shorter than a limit when none is left after everything longer was cut off.

Contention is left out, so what holds here holds for everything that can run, at whatever instants jobs start.  A state
is a set of started jobs; of two with the same jobs started, the same engine last for every network, the one where no
time is later dominates: whatever follows the other can follow it at the same instants.

The price of what is left (`relaxation`) takes no idle time for granted.  So the ends of all schedules are swept first,
backwards: what a set of last jobs costs at the least, idle time between them included, is known then for the sweep
from the front, or known to be more than what the sweep backwards was allowed.  Limits rise until a schedule is found
or time is up.

Source: Klein and Scholl, "Computing lower bounds by destructive improvement", EJOR 112(2), 1999; Ibaraki, "The power of
dominance relations in branch-and-bound algorithms", J. ACM 24(2), 1977.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from socsched.literature.mapping.backwards import Backwards
from socsched.literature.mapping.forwards import Forwards
from socsched.literature.mapping.relaxation import Relaxed
from socsched.literature.mapping.sweeps import OutOfTime
from socsched.literature.mapping.tables import chains, enumerable, tabulate
from socsched.planning.mapping.problem import Problem, Schedule

STATES = 2_000_000
"""States of a step, at most: two hundred bytes each."""
COMBINATIONS = 300
"""Combinations of engines that the last jobs of all networks may be on, at most: beyond, none was ever exhausted."""


@dataclass(frozen=True, slots=True)
class Exhausted:
    """What rising limits showed: nothing ends before `bound` (ns); the schedule found, if any; whether it is shortest.

    The schedule's end without contention is `value`; `ends` what the last full sweep backwards showed.
    """

    bound: int
    schedule: Schedule | None
    value: int
    complete: bool
    ends: Backwards | None = None


def suitable(problem: Problem) -> bool:
    """Say whether `exhaust` can be tried: chains of plain jobs, and few enough combinations of engines."""
    groups = chains(problem)
    if not groups or not enumerable(problem):
        return False
    lanes, nets, most = sum(engine.count for engine in problem.engines), len(groups), max(map(len, groups))
    return bool(lanes**nets <= COMBINATIONS and ((most + 1) * (lanes + 1)) ** nets < 1 << 62)


def exhaust(
    problem: Problem, relaxed: Relaxed, upper: int, step: float, until: float, width: int = STATES, exact: bool = True
) -> Exhausted:
    """Raise a limit by shares `step` of the relaxation's bound until a schedule ends within it.

    `exact`: then lower it until none is shorter.  Stops at `upper` (ns), at `until` (`time.monotonic`) and where a
    sweep has more than `width` states.  `suitable` problems only.
    """
    groups = chains(problem)
    assert groups
    table = tabulate(problem, groups, relaxed)
    least = float(table.worth[np.arange(len(groups)), 0, len(table.lanes)].sum())
    bound, reached, share = relaxed.bound, relaxed.bound, 0.5
    found: Schedule | None = None
    value, known, highest = 0, None, float(upper)
    grain = max(int(relaxed.bound * step), 1)
    while reached < upper:
        limit = min(reached + grain, upper)
        try:
            ends = Backwards(table, width, until, least + max(limit - least, 0) * share, highest)
            ends.sweep()
            known = ends
            ahead = Forwards(table, width, until, limit, ends)
            schedule = ahead.sweep()
        except OutOfTime:
            return Exhausted(bound, found, value, False, known)
        # Either sweep grows with what it is allowed: let them see about as many states.
        if ahead.seen > 2 * ends.seen and share < 0.8:
            share += 0.05
        elif ends.seen > 2 * ahead.seen and share > 0.3:
            share -= 0.05
        if schedule is None:
            bound, reached = max(bound, limit + 1), limit
            continue
        found, value = schedule, ahead.ends_at
        if value - 1 <= reached or not exact:
            break
        upper, grain = value - 1, max(value - 1 - reached, 1)
    return Exhausted(bound, found, value, True, known)
