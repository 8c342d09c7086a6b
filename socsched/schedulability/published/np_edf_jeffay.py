"""EDF without preemption, deadlines equal to periods: Jeffay's two conditions.

Jeffay, Stanat, Martel, "On non-preemptive scheduling of periodic and sporadic tasks", RTSS 1991.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    deadlines_met,
    is_sporadic,
)

STEPS = 100_000
"""Intervals examined before the test is abandoned."""


def run(problem: Problem) -> Answer:
    """Return whether U <= 1 and, for every task i and T_1 < L < T_i, L >= C_i + sum of floor((L - 1) / T_j) C_j.

    Sporadic tasks miss a deadline if not; periodic ones do in some phases.
    """
    if problem.utilisation > 1:
        return Answer(False, note=f"utilisation {float(problem.utilisation):.4f} is over 1")
    tasks = sorted(problem.tasks, key=lambda task: task.period_ns)
    for index, task in enumerate(tasks):
        shorter = [other for other in tasks[:index] if other.period_ns < task.period_ns]
        # Demand steps just after multiples of periods, the only points where the condition can start to fail.
        for step, length in enumerate(_steps(shorter, task.period_ns)):
            if step > STEPS:
                return Answer(None, note=f"more than {STEPS} intervals to check")
            rows = [(other.name, (length - 1) // other.period_ns * other.wcet_ns) for other in tasks[:index]]
            need = task.wcet_ns + sum(value for _, value in rows)
            if need > length:
                terms = ((f"{task.name}, begun just before", task.wcet_ns), *(row for row in rows if row[1]))
                return Answer(
                    False if is_sporadic(tasks) else None,
                    terms=terms,
                    note=f"demand {need} ns in an interval of {length} ns",
                )
    return deadlines_met(problem, note="both conditions hold")


def _steps(tasks: Sequence[PeriodicTask], below: int) -> Iterable[int]:
    return merge(*(range(task.period_ns + 1, below, task.period_ns) for task in tasks))


TEST = SchedulabilityTest(
    "non-preemptive EDF",
    "Jeffay, Stanat, Martel, RTSS 1991",
    Scope(rules=("edf",), preemption=("none",), deadlines="equal"),
    run,
    rank=11,
)
