"""Adaptive mixed criticality, response-time bound (AMC-rtb): fixed priorities, two levels, D <= T.

Baruah, Burns, Davis, "Response-time analysis for mixed criticality systems", RTSS 2011, section IV.A: work of lower
criticality is released only until the first overrun, hence within the response R_LO that holds without one.  Degraded
service after the switch adds ceil(R / T') C' (docs/proofs.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.schedulability.published.edf_vd import two_levels
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    Terms,
    responses,
)
from socsched.schedulability.rta_fp import ceil_div

Tasks = Sequence[PeriodicTask]
After = Callable[[PeriodicTask, Tasks, int], int | None]
"""The response (ns) of a task of high criticality over an overrun, given those above it and its R_LO; None if late."""


def fixed_point(start: int, longer: Callable[[int], int], limit: int) -> int | None:
    """Return the least fixed point from `start`, None if it exceeds `limit` (ns)."""
    length = start
    while length <= limit:
        following = longer(length)
        if following <= length:
            return length
        length = following
    return None


def before_overrun(task: PeriodicTask, higher: Tasks) -> int | None:
    """Return the response (ns) without an overrun, None if it exceeds the deadline."""
    own = task.wcet_at(0)
    return fixed_point(
        own,
        lambda length: own + sum(ceil_div(length, other.period_ns) * other.wcet_at(0) for other in higher),
        task.deadline_ns,
    )


def degraded(higher: Tasks, length: int) -> int:
    """Return the largest degraded work (ns) of lower criticality in a window after the switch."""
    left = [other.degraded_ns for other in higher if not other.level and other.degraded_ns]
    return sum(ceil_div(length, period) * wcet for wcet, period in left)


def after_overrun(task: PeriodicTask, higher: Tasks, quiet: int) -> int | None:
    """Return the response (ns) of a job during which an overrun may occur; `quiet` is its response without one."""
    fixed = task.wcet_ns + sum(ceil_div(quiet, o.period_ns) * o.wcet_at(0) for o in higher if not o.level)
    return fixed_point(
        fixed,
        lambda length: (
            fixed + sum(ceil_div(length, o.period_ns) * o.wcet_ns for o in higher if o.level) + degraded(higher, length)
        ),
        task.deadline_ns,
    )


def response(task: PeriodicTask, higher: Tasks, after: After = after_overrun) -> int | None:
    """Return the response (ns) at the task's own level of criticality, None if it exceeds the deadline."""
    quiet = before_overrun(task, higher)
    if quiet is None or not task.level:
        return quiet
    loud = after(task, higher, quiet)
    return None if loud is None else max(quiet, loud)


def rows(problem: Problem, after: After) -> Iterator[tuple[PeriodicTask, int | None, Terms]]:
    """Yield the response of every task; of low criticality, until an overrun."""
    for task, higher, _ in problem.by_rank():
        value = response(task, higher, after)
        yield task, value, () if value is None else (("wcet", task.wcet_ns), ("interference", value - task.wcet_ns))


def run(problem: Problem) -> Answer:
    """Return the response of every task."""
    return responses(rows(problem, after_overrun), exact=False)


SCOPE = Scope(deadlines="constrained", needs=frozenset({"levels"}))
TEST = SchedulabilityTest(
    "AMC-rtb", "Baruah, Burns, Davis, RTSS 2011, section IV.A", SCOPE, run, also=two_levels, rank=41
)
