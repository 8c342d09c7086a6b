"""A bound by exhaustion: no schedule is shorter than a limit if pruning everything longer leaves none.

Contention is left out, so the bound holds for every real execution, at whatever instants jobs start.  A state is a set
of started jobs.  Of two states with the same jobs started and the same last engine for every network, the one in which
no time is later dominates: any continuation of the other can follow it at the same instants.

The price of the remaining work (`relaxation`) assumes no idle time.  The suffixes of all schedules are therefore swept
first, backwards: for the forward sweep, the least cost of each set of last jobs, idle time between them included, is
then known, or known to exceed the allowance of the backward sweep.  Limits rise until a schedule is found or time runs
out.

Source: Klein and Scholl, "Computing lower bounds by destructive improvement", EJOR 112(2), 1999; Ibaraki, "The power of
dominance relations in branch-and-bound algorithms", J. ACM 24(2), 1977.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from socsched.planning.mapping.problem import Problem, Schedule
from socsched_literature.mapping.backwards import Backwards
from socsched_literature.mapping.forwards import Forwards
from socsched_literature.mapping.relaxation import Relaxed
from socsched_literature.mapping.sweeps import OutOfTime
from socsched_literature.mapping.tables import chains, enumerable, tabulate

STATES = 2_000_000
"""Maximum number of states per step, at two hundred bytes each."""
COMBINATIONS = 300
"""Maximum number of engine combinations for the last jobs of all networks: no larger problem was ever exhausted."""


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Result of rising limits: nothing ends before `bound` (ns); the schedule found, if any; whether it is shortest.

    `value` is the end of the schedule without contention; `ends` is the last complete backward sweep.
    """

    bound: int
    schedule: Schedule | None
    value: int
    complete: bool
    ends: Backwards | None = None


def suitable(problem: Problem) -> bool:
    """Return whether `exhaust` applies: chains of plain jobs, and few enough combinations of engines."""
    groups = chains(problem)
    if not groups or not enumerable(problem):
        return False
    lanes, nets, most = sum(engine.count for engine in problem.engines), len(groups), max(map(len, groups))
    return bool(lanes**nets <= COMBINATIONS and ((most + 1) * (lanes + 1)) ** nets < 1 << 62)


def exhaust(
    problem: Problem, relaxed: Relaxed, upper: int, step: float, until: float, width: int = STATES, exact: bool = True
) -> Exhausted:
    """Raise a limit in steps of `step` times the relaxation's bound until a schedule ends within it.

    With `exact`, the limit is then lowered until no schedule is shorter.  Stops at `upper` (ns), at `until`
    (`time.monotonic`), and if a sweep has more than `width` states.  Only for `suitable` problems.
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
        # Each sweep grows with its allowance: balance the number of states both visit.
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
