"""Requests to one accelerator, busy-waited without preemption, served first come, first served.

Gai, Lipari, Di Natale, "Minimizing memory utilization of real-time task sets in single and multi-processor
systems-on-a-chip", RTSS 2001 (MSRP): at most one request of every other processor goes first, and lower priorities
block by their longest request with its wait.
"""

from __future__ import annotations

from dataclasses import replace

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.schedulability.published import rta
from socsched.schedulability.published.model import Answer, Problem, SchedulabilityTest, Scope, responses


def longest(task: PeriodicTask) -> int:
    """Return the duration of the longest request of a task, handling included."""
    return max((request.time_ns + request.handling_ns for request in task.requests), default=0)


def run(problem: Problem) -> Answer:
    """Return the response of every task on this processor, with requests and their waits counted as computation."""
    elsewhere: dict[int | None, int] = {}
    here = {task.name for task in problem.tasks}
    for task in problem.taskset.tasks:
        if task.name not in here:
            elsewhere[task.cpu] = max(elsewhere.get(task.cpu, 0), longest(task))
    wait = sum(elsewhere.values())
    by_name = {task.name: task for task in problem.tasks}
    spinning = tuple(
        replace(
            task,
            wcet_ns=task.wcet_ns + sum(r.time_ns + r.handling_ns + wait for r in task.requests),
            # One more than a region begun before: a request issued at the instant of a release may go first.
            longest_region_ns=longest(task) + wait + 1 if task.requests else 0,
        )
        for task in problem.tasks
    )
    rows = rta.window(replace(problem, tasks=spinning), whole=True)
    return responses([(by_name[task.name], value, terms) for task, value, terms in rows], exact=False)


def _busy(problem: Problem) -> str:
    accelerator = problem.taskset.accelerator
    return "" if accelerator and accelerator.wait == "busy" else "jobs suspend while they wait for requests"


TEST = SchedulabilityTest(
    "accelerator, busy waiting",
    "Gai, Lipari, Di Natale, RTSS 2001 (MSRP)",
    Scope(takes=frozenset({"jitter"}), needs=frozenset({"accelerator"})),
    run,
    also=_busy,
    rank=26,
)
