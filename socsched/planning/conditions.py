"""The costs on which a proof rests: how far the most uncertain stage of every chain may slow down.

Bisection on one cost (Bini, Di Natale, Buttazzo, RTS 39, 2008).  The mapping stays, and local deadlines and priorities
are set anew for each cost: they are chosen as tight as the stated costs allow, which would leave no room.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from socsched.cost.cost import Cost
from socsched.planning.clock import NO_CLOCK, THOROUGH, Clock, count
from socsched.planning.costs_in_doubt import interval_ns, rescale_cost
from socsched.planning.evidence import Condition
from socsched.planning.infeasible_subset import Judge
from socsched.planning.plan import Plan, Violation
from socsched.planning.workload import Unconnectable, Workload

FEASIBLE, UNPROVED = "feasible", "not proved"
MOST = 4.0
"""Largest factor that is distinguished from larger ones."""
ACCURACY = 0.02
"""Largest error of a factor, which is never too large."""


def conditions(
    plan: Plan, workload: Workload, mapping: Mapping[str, Cost], judge: Judge, clock: Clock = NO_CLOCK
) -> tuple[Condition, ...]:
    """Return the condition of every chain of a feasible plan that has an uncertain stage; () for any other plan.

    Chains whose stage was not bisected before the `clock` runs out are left out.
    """
    if plan.verdict != "feasible":
        return ()
    factors: dict[str, float] = {}
    result = []
    for chain in plan.chains:
        path = [mapping[name] for name in chain.path if name in mapping and mapping[name].error]
        if not path:
            continue
        cost = max(path, key=lambda cost: cost.time_ns * cost.error)
        if cost.stage not in factors:
            if clock.over():
                continue
            factors[cost.stage] = break_even(workload, mapping, judge, cost)
        factor = math.floor(factors[cost.stage] * 100) / 100
        result.append(Condition(chain.name, cost.stage, factor, round(1 + cost.error, 4)))
    return tuple(result)


def break_even(workload: Workload, mapping: Mapping[str, Cost], judge: Judge, cost: Cost) -> float:
    """Return the largest factor on a cost of a feasible mapping with which it is feasible, `MOST` if none is known."""

    def holds(factor: float) -> bool:
        slower = rescale_cost(cost, round(cost.time_ns * factor))
        return is_feasible(workload, {**mapping, cost.stage: slower}, judge)

    low, high = 1.0, min(1 + cost.error, MOST)
    if holds(high):  # the interval's end is the figure of interest
        if high == MOST or holds(MOST):
            return MOST
        low, high = high, MOST
    while high - low > ACCURACY * low:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def is_feasible(workload: Workload, mapping: Mapping[str, Cost], judge: Judge) -> bool:
    """Return whether a mapping is proved feasible, with deadlines and priorities set for its costs."""
    try:
        for thorough in (False, True):
            candidate = judge(workload, mapping, thorough)
            if not candidate.violations and all(chain.bound_ns is not None for chain in candidate.assessment.chains):
                return True
            if any(map(_whatever_the_analysis, candidate.violations)):
                count(0 if thorough else THOROUGH)  # the budget does not depend on what is left out
                return False
    except Unconnectable:
        pass
    return False


def _whatever_the_analysis(violation: Violation) -> bool:
    """Return whether a requirement is violated by the mapping itself, whatever bounds an analysis finds."""
    return violation.unit in ("ns/s", "mW", "B/s", "B", "jobs") or violation.requirement == "accuracy loss"


def upper(plan: Plan, workload: Workload, mapping: Mapping[str, Cost], judge: Judge) -> str | None:
    """Return the verdict on a feasible plan's mapping with all costs at their upper ends, None for any other plan."""
    if plan.verdict != "feasible":
        return None
    slower = {name: rescale_cost(cost, interval_ns(cost)[1]) for name, cost in mapping.items()}
    return FEASIBLE if is_feasible(workload, slower, judge) else UNPROVED
