"""Helpers of uniprocessor EDF tests: tasks as demand, and the longest busy period."""

from __future__ import annotations

from math import lcm

from socsched.schedulability.edf_demand import DemandTask
from socsched.schedulability.published.model import Problem
from socsched.schedulability.rta_fp import ceil_div

LONGEST = 50_000
"""Steps after which the search for the end of a busy period is abandoned."""
_NEAR = 1e-6
"""Distance from a utilisation of 1 within which it is summed exactly."""


def demand_tasks(problem: Problem) -> list[DemandTask]:
    """Return the tasks with their longest regions, less 1 ns, as a blocking job must have started earlier."""
    whole = problem.preemption == "none"
    return [
        DemandTask(
            name=task.name,
            wcet=task.wcet_ns,
            period=task.period_ns,
            window=task.deadline_ns - task.jitter_ns,
            deadline=task.deadline_ns,
            segment=max((task.wcet_ns if whole else task.region_ns) - 1, 0),
            release_jitter=task.jitter_ns,
        )
        for task in problem.tasks
    ]


def busy_period(problem: Problem) -> int | None:
    """Return the longest busy period (ns), None if utilisation exceeds 1 or no end is found."""
    used = sum(task.wcet_ns / task.period_ns for task in problem.tasks)
    full = abs(used - 1) < _NEAR and problem.utilisation == 1
    if used > 1 + _NEAR or (abs(used - 1) < _NEAR and problem.utilisation > 1):
        return None
    first = max((task.segment for task in demand_tasks(problem)), default=0)
    rows = [(task.wcet_ns, task.period_ns, task.jitter_ns) for task in problem.tasks]
    if full and first == 0 and not any(jitter for _, _, jitter in rows):
        return lcm(*(period for _, period, _ in rows))
    length = first + sum(wcet for wcet, _, _ in rows)
    for _ in range(LONGEST):
        longer = first + sum(ceil_div(length + jitter, period) * wcet for wcet, period, jitter in rows)
        if longer == length:
            return length
        length = longer
    return None
