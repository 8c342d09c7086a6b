"""Requests to one accelerator through a server on one processor; waiting tasks are suspended.

Kim, Patel, Wang, Rajkumar, "A server-based approach for predictable GPU access with improved analysis", Journal of
Systems Architecture 88 2018, with the wait bounded request by request: the server has the highest priority on its
processor, serves requests by task priority, and a request it has begun is not preempted.
"""

from __future__ import annotations

from collections.abc import Sequence

from socsched.descriptor.taskset_model import PeriodicTask, TaskSet
from socsched.schedulability.published.accelerator_busy_wait import longest
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    Terms,
    responses,
)
from socsched.schedulability.rta_fp import ceil_div


def run(problem: Problem) -> Answer:
    """Return the response of every task, assuming that the tasks of all processors meet their deadlines."""
    tasks = problem.taskset
    order = sorted(range(len(tasks.tasks)), key=tasks.ranks.__getitem__)
    ranked = [tasks.tasks[index] for index in order]
    found: dict[str, tuple[int | None, Terms]] = {}
    for index, task in enumerate(ranked):
        higher, lower = ranked[:index], ranked[index + 1 :]
        found[task.name] = _response(tasks, task, higher, lower, {name: row[0] for name, row in found.items()})
    good = all(row[0] is not None for row in found.values())
    return responses([(t, *(found[t.name] if good else (None, ()))) for t in problem.tasks], exact=False)


def waits(
    tasks: TaskSet, task: PeriodicTask, higher: Sequence[PeriodicTask], lower: Sequence[PeriodicTask]
) -> int | None:
    """Return the wait of one request: one of lower priority begun before, and all of higher priority meanwhile."""
    extra = tasks.accelerator.overhead_ns if tasks.accelerator else 0
    begun = max((longest(other) + extra for other in lower if other.requests), default=0)
    asking = [(o.period_ns, sum(r.time_ns + r.handling_ns + extra for r in o.requests)) for o in higher if o.requests]
    wait = begun
    while wait <= task.deadline_ns:
        longer = begun + sum((ceil_div(wait, period) + 1) * need for period, need in asking)
        if longer <= wait:
            return wait
        wait = longer
    return None


def _response(
    tasks: TaskSet,
    task: PeriodicTask,
    higher: Sequence[PeriodicTask],
    lower: Sequence[PeriodicTask],
    known: dict[str, int | None],
) -> tuple[int | None, Terms]:
    assert tasks.accelerator is not None
    extra, count = tasks.accelerator.overhead_ns, len(task.requests)
    wait = waits(tasks, task, higher, lower) if count else 0
    if wait is None:
        return None, ()
    own = [("wcet", task.wcet_ns), ("its requests", sum(r.time_ns + r.handling_ns for r in task.requests))]
    own += [("waiting for requests of other tasks", count * wait), ("the server's overhead", 2 * count * extra)]
    base, window = sum(value for _, value in own), 0
    window = base
    while window <= task.deadline_ns:
        inside = []
        for other in higher:
            response = known[other.name]
            if other.cpu == task.cpu and response is not None:
                jobs = ceil_div(window + response - other.wcet_ns, other.period_ns)
                inside.append((f"interference by {other.name}", jobs * other.wcet_ns))
            elif other.cpu == task.cpu:
                return None, ()
        if task.cpu == tasks.accelerator.cpu:
            for other in (*higher, *lower):
                serving = sum(r.handling_ns for r in other.requests) + 2 * len(other.requests) * extra
                jobs = ceil_div(window + max(other.deadline_ns - serving, 0), other.period_ns)
                inside.append((f"the server, for {other.name}", jobs * serving))
        longer = base + sum(value for _, value in inside)
        if longer <= window:
            return window, tuple(term for term in (*own, *inside) if term[1])
        window = longer
    return None, ()


def _server(problem: Problem) -> str:
    accelerator = problem.taskset.accelerator
    return "" if accelerator and accelerator.wait == "server" else "jobs wait for requests on the processor"


TEST = SchedulabilityTest(
    "accelerator, server",
    "Kim, Patel, Wang, Rajkumar, Journal of Systems Architecture 88 2018, wait request by request",
    Scope(deadlines="constrained", needs=frozenset({"accelerator"})),
    run,
    also=_server,
    rank=27,
)
