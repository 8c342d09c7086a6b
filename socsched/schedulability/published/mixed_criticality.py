"""Two levels of criticality on one processor: bounds that hold until and over the first overrun of the low level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeVar

from socsched.descriptor.taskset import PeriodicTask
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    Row,
    Scope,
    deadlines_met,
    fixed_point,
    percent,
    published,
    responses,
)
from socsched.schedulability.tasks import ceil_div


def _loads(problem: Problem) -> tuple[Fraction, Fraction, Fraction]:
    """Return the utilisations of the lower level, and of the higher one before and after an overrun."""
    low = sum((task.utilisation for task in problem.tasks if not task.level), Fraction(0))
    before = sum((Fraction(task.wcet_at(0), task.period_ns) for task in problem.tasks if task.level), Fraction(0))
    after = sum((task.utilisation for task in problem.tasks if task.level), Fraction(0))
    return low, before, after


def scaling(problem: Problem) -> Fraction | None:
    """Return the factor x of the virtual deadlines (1: plain EDF), None if EDF-VD does not accept the set."""
    low, between, high = _loads(problem)
    if low + high <= 1:
        return Fraction(1)
    if low >= 1:
        return None
    factor = between / (1 - low)  # the smallest that is feasible before an overrun (theorem 1)
    return factor if factor * low + high <= 1 else None  # feasible after one (theorem 2)


def _not_two_levels(problem: Problem) -> str:
    return "it covers two criticality levels" if any(task.level > 1 for task in problem.tasks) else ""


def _not_dropping(problem: Problem) -> str:
    degraded = any(task.degraded_ns for task in problem.tasks)
    return _not_two_levels(problem) or ("it drops low criticality, with no degraded service" if degraded else "")


@published(
    "EDF-VD",
    "Baruah et al., ECRTS 2012, section 3",
    Scope(("edf",), deadlines="equal", needs=frozenset({"levels"})),
    also=_not_dropping,
    rank=40,
)
def edf_vd(problem: Problem) -> Answer:
    """EDF with virtual deadlines: every deadline of the higher level is met, the others until an overrun.

    Baruah, Bonifaci, D'Angelo, Li, Marchetti-Spaccamela, van der Ster, Stougie, "The preemptive uniprocessor scheduling
    of mixed-criticality implicit-deadline sporadic task systems", ECRTS 2012, section 3: until the first overrun,
    deadlines of the higher level are scaled by x; from then on, the lower level is dropped and full deadlines apply.
    """
    names = ("low criticality (ppm)", "high criticality, no overrun (ppm)", "high criticality (ppm)")
    terms = tuple((name, percent(load)) for name, load in zip(names, _loads(problem), strict=True))
    factor = scaling(problem)
    if factor is None:
        return Answer(None, terms=terms, note="no virtual deadlines pass")
    if factor == 1:
        return deadlines_met(problem, terms, "plain EDF serves every level")
    return deadlines_met(problem, terms, f"deadlines of high criticality times {float(factor):.4f} until an overrun")


_Tasks = Sequence[PeriodicTask]
Over = Callable[[PeriodicTask, _Tasks, int], int | None]
"""The response (ns) of a task of high criticality over an overrun, given those above it and its R_LO; None if late."""


def before_overrun(task: PeriodicTask, higher: _Tasks) -> int | None:
    """Return the response (ns) without an overrun, None if it exceeds the deadline."""
    own = task.wcet_at(0)
    return fixed_point(
        own,
        lambda length: own + sum(ceil_div(length, other.period_ns) * other.wcet_at(0) for other in higher),
        task.deadline_ns,
    )


def _degraded(higher: _Tasks, length: int) -> int:
    """Return the largest degraded work (ns) of lower criticality in a window after the switch."""
    left = [other.degraded_ns for other in higher if not other.level and other.degraded_ns]
    return sum(ceil_div(length, period) * wcet for wcet, period in left)


def over_any_overrun(task: PeriodicTask, higher: _Tasks, quiet: int) -> int | None:
    """Return the response (ns) of a job during which an overrun may occur; `quiet` is its response without one."""
    # Work of lower criticality is released only until the first overrun, hence within `quiet`.
    fixed = task.wcet_ns + sum(ceil_div(quiet, o.period_ns) * o.wcet_at(0) for o in higher if not o.level)
    high = [other for other in higher if other.level]
    return fixed_point(
        fixed,
        lambda length: fixed + sum(ceil_div(length, o.period_ns) * o.wcet_ns for o in high) + _degraded(higher, length),
        task.deadline_ns,
    )


def over_each_overrun(task: PeriodicTask, higher: _Tasks, quiet: int) -> int | None:
    """Return the longest response (ns) over all instants of the overrun, of which `quiet` is the last."""
    low, high = [other for other in higher if not other.level], [other for other in higher if other.level]
    worst = 0
    for instant in sorted({0, *(at for other in low for at in range(0, quiet, other.period_ns))}):
        fixed = task.wcet_ns + sum((instant // other.period_ns + 1) * other.wcet_at(0) for other in low)

        def longer(length: int, instant: int = instant, fixed: int = fixed) -> int:
            inside = sum(_high_work(other, instant, length) for other in high)
            return fixed + inside + _degraded(low, length)

        response = fixed_point(fixed, longer, task.deadline_ns)
        if response is None:
            return None
        worst = max(worst, response)
    return worst


def _high_work(other: PeriodicTask, instant: int, length: int) -> int:
    """Return the work (ns) of a task of high criticality in a window of `length` with the overrun at `instant`."""
    jobs = ceil_div(length, other.period_ns)
    # A job that ends after the overrun has its deadline after it.
    long = min(max(ceil_div(length - instant - (other.period_ns - other.deadline_ns), other.period_ns) + 1, 0), jobs)
    return long * other.wcet_ns + (jobs - long) * other.wcet_at(0)


def adaptive_response(task: PeriodicTask, higher: _Tasks, over: Over = over_any_overrun) -> int | None:
    """Return the response (ns) at the task's own level of criticality, None if it exceeds the deadline."""
    quiet = before_overrun(task, higher)
    if quiet is None or not task.level:
        return quiet
    loud = over(task, higher, quiet)
    return None if loud is None else max(quiet, loud)


def _adaptive(problem: Problem, over: Over) -> Answer:
    """Return the response of every task; of low criticality, until an overrun."""
    rows: list[Row] = []
    for task, higher, _ in problem.by_rank():
        value = adaptive_response(task, higher, over)
        terms = () if value is None else (("wcet", task.wcet_ns), ("interference", value - task.wcet_ns))
        rows.append((task, value, terms))
    return responses(rows)


Ranked = TypeVar("Ranked")


def audsley_order(tasks: Sequence[Ranked], fits: Callable[[Ranked, Sequence[Ranked]], bool]) -> list[Ranked] | None:
    """Return the tasks by priority, highest first, None if no order passes; `fits(task, those above)` is the test.

    Audsley, "On priority assignment in fixed priority scheduling", Information Processing Letters 79(1) 2001: optimal
    for every test whose answer for a task depends on the set of tasks above and below it, not on their order, and does
    not get worse when the task is raised.  AMC-rtb and AMC-max are such tests (Baruah, Burns, Davis, RTSS 2011).
    """
    left, lowest = list(tasks), list[Ranked]()
    while left:
        for index, task in enumerate(left):
            above = [*left[:index], *left[index + 1 :]]
            if fits(task, above):
                lowest.append(task)
                left = above
                break
        else:
            return None
    return lowest[::-1]


_SYSTEM = Scope(deadlines="constrained", needs=frozenset({"levels"}))


@published("AMC-rtb", "Baruah, Burns, Davis, RTSS 2011, section IV.A", _SYSTEM, also=_not_two_levels, rank=41)
def amc_rtb(problem: Problem) -> Answer:
    """Adaptive mixed criticality, response-time bound: low criticality interferes within R_LO only.

    Baruah, Burns, Davis, "Response-time analysis for mixed criticality systems", RTSS 2011, section IV.A.  Degraded
    service after the switch adds ceil(R / T') C' (docs/proofs.md).
    """
    return _adaptive(problem, over_any_overrun)


@published("AMC-max", "Baruah, Burns, Davis, RTSS 2011, section IV.B", _SYSTEM, also=_not_two_levels, rank=42)
def amc_max(problem: Problem) -> Answer:
    """Adaptive mixed criticality, maximum over the instant of the overrun; at most the bound of AMC-rtb.

    Baruah, Burns, Davis, RTSS 2011, section IV.B: for each instant s of the overrun, low criticality is released up to
    s, and only the jobs of high criticality that end after s take long.
    """
    return _adaptive(problem, over_each_overrun)
