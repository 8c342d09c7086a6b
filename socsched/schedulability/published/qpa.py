"""EDF on one processor: the demand of every interval fits it, found by quick processor-demand analysis.

Baruah, Mok, Rosier, RTSS 1990 (demand bound function); Zhang & Burns, "Schedulability analysis for real-time systems
with EDF scheduling", IEEE TC 58(9) 2009 (QPA); jitter shortens windows (Spuri, INRIA RR-2772 1996).
"""

from __future__ import annotations

from math import lcm

from socsched.schedulability.edf_demand import Overload, overload
from socsched.schedulability.published.demand import busy_period, demand_tasks
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    deadlines_met,
    is_synchronous,
)

DEADLINES = 100_000
"""Deadlines examined on a fully utilised processor, where QPA offers no shortcut."""


def judge(problem: Problem, exact: bool) -> Answer:
    """Return whether the demand of every interval fits; an overfull one is a miss if all tasks can release at once."""
    horizon = busy_period(problem)
    if horizon is None and problem.utilisation == 1 and "jitter" not in problem.features:
        # There is no blocking from the longest deadline on, and demand then repeats with the hyperperiod.
        horizon = max(*(task.deadline_ns for task in problem.tasks), lcm(*(t.period_ns for t in problem.tasks)))
    if horizon is None and problem.utilisation <= 1:
        return Answer(None, note="the busy period does not end within the search")
    if problem.utilisation == 1 and sum((horizon or 0) // task.period_ns for task in problem.tasks) > DEADLINES:
        return Answer(None, note=f"a fully utilised processor with more than {DEADLINES} deadlines to check")
    found = overload(demand_tasks(problem), horizon)
    if found is None:
        return deadlines_met(problem, note="the demand of every interval fits")
    return Answer(False if exact and is_synchronous(problem.tasks) else None, terms=found.terms, note=_shown(found))


def _shown(found: Overload) -> str:
    return f"demand {found.demand} ns in an interval of {found.interval} ns"


def run(problem: Problem) -> Answer:
    """Return whether EDF meets every deadline; exact for tasks that can be released together."""
    return judge(problem, exact=True)


TEST = SchedulabilityTest(
    "EDF demand bound (QPA)",
    "Baruah, Mok, Rosier, RTSS 1990; Zhang & Burns, IEEE TC 58(9) 2009",
    Scope(rules=("edf",), takes=frozenset({"jitter"})),
    run,
    exact=True,
    rank=9,
)
