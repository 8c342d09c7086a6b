"""Tasks that wait, under fixed priorities: self-suspension, and requests to an accelerator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from socsched.descriptor.taskset import PeriodicTask, TaskSet
from socsched.schedulability import response_times
from socsched.schedulability.published.fixed_priorities import busy_window
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    Scope,
    fixed_point,
    for_tasks_of,
    highest_first,
    published,
    responses,
    rt_task,
    with_jitter,
)
from socsched.schedulability.tasks import Terms, ceil_div

_SUSPENDED = Scope(deadlines="constrained", takes=frozenset({"jitter"}), needs=frozenset({"suspension"}))


@published(
    "suspension as computation",
    "Chen, Nelissen, Huang, ECRTS 2016, equation 1; Chen et al., RTS 55(1) 2019",
    _SUSPENDED,
    rank=24,
)
def suspension_oblivious(problem: Problem) -> Answer:
    """Suspension counts as computation, in the task and all of higher priority.

    Suspension-oblivious analysis: Chen, Nelissen, Huang, "A unifying response time analysis framework for dynamic
    self-suspending tasks", ECRTS 2016, section III, equation 1; reviewed in Chen et al., "Many suspensions, many
    problems: a review of self-suspending tasks in real-time systems", RTS 55(1) 2019.
    """
    tasks = tuple(replace(task, wcet_ns=task.wcet_ns + task.suspension_ns, suspension_ns=0) for task in problem.tasks)
    return for_tasks_of(problem, busy_window(replace(problem, tasks=tasks), whole=False))


@published(
    "suspension as jitter R - C",
    "Chen, Nelissen, Huang, ECRTS 2016, equation 2; Chen et al., RTS 55(1) 2019",
    _SUSPENDED,
    rank=25,
)
def suspension_jitter(problem: Problem) -> Answer:
    """Suspension of higher priorities as jitter of R - C: R_k = C_k + S_k + sum of ceil((R_k + R_j - C_j) / T_j) C_j.

    Chen, Nelissen, Huang, "A unifying response time analysis framework for dynamic self-suspending tasks", ECRTS 2016,
    section III, equation 2.
    """

    def respond(
        task: PeriodicTask, higher: list[PeriodicTask], _: object, known: Mapping[str, int]
    ) -> tuple[int | None, Terms]:
        # Never S_j alone: a job may begin late by all that delays it, not by its suspension only (refuted in Chen et
        # al., RTS 55(1) 2019).
        late = {other.name: known[other.name] - other.wcet_ns for other in higher}
        inside = response_times.Classic([rt_task(other) for other in higher], late)
        waiting = ("its own suspension", task.suspension_ns)
        limit = max(task.period_ns - task.jitter_ns, 0)
        value, bounded, terms = response_times.preemptive(rt_task(task), inside, waiting, task.jitter_ns, limit)
        return value if bounded else None, with_jitter(task, terms)

    return responses(highest_first(problem, respond))


def _longest_request(task: PeriodicTask) -> int:
    return max((request.time_ns + request.handling_ns for request in task.requests), default=0)


def _not_busy(problem: Problem) -> str:
    accelerator = problem.taskset.accelerator
    return "" if accelerator and accelerator.wait == "busy" else "jobs suspend while they wait for requests"


@published(
    "accelerator, busy waiting",
    "Gai, Lipari, Di Natale, RTSS 2001 (MSRP)",
    Scope(takes=frozenset({"jitter"}), needs=frozenset({"accelerator"})),
    also=_not_busy,
    rank=26,
)
def accelerator_busy_wait(problem: Problem) -> Answer:
    """Requests busy-waited without preemption, served first come, first served: they and their waits are computation.

    Gai, Lipari, Di Natale, "Minimizing memory utilization of real-time task sets in single and multi-processor
    systems-on-a-chip", RTSS 2001 (MSRP): at most one request of every other processor goes first, and lower priorities
    block by their longest request with its wait.
    """
    elsewhere: dict[int | None, int] = {}
    here = {task.name for task in problem.tasks}
    for task in problem.taskset.tasks:
        if task.name not in here:
            elsewhere[task.cpu] = max(elsewhere.get(task.cpu, 0), _longest_request(task))
    wait = sum(elsewhere.values())
    spinning = tuple(
        replace(
            task,
            wcet_ns=task.wcet_ns + sum(r.time_ns + r.handling_ns + wait for r in task.requests),
            # One more than a region begun before: a request issued at the instant of a release may go first.
            longest_region_ns=_longest_request(task) + wait + 1 if task.requests else 0,
        )
        for task in problem.tasks
    )
    return for_tasks_of(problem, busy_window(replace(problem, tasks=spinning), whole=True))


def _not_served(problem: Problem) -> str:
    accelerator = problem.taskset.accelerator
    return "" if accelerator and accelerator.wait == "server" else "jobs wait for requests on the processor"


@published(
    "accelerator, server",
    "Kim, Patel, Wang, Rajkumar, Journal of Systems Architecture 88 2018, wait request by request",
    Scope(deadlines="constrained", needs=frozenset({"accelerator"})),
    also=_not_served,
    rank=27,
)
def accelerator_server(problem: Problem) -> Answer:
    """Requests go through a server on one processor; waiting tasks are suspended.

    Kim, Patel, Wang, Rajkumar, "A server-based approach for predictable GPU access with improved analysis", Journal of
    Systems Architecture 88 2018, with the wait bounded request by request: the server has the highest priority on its
    processor, serves requests by task priority, and a request it has begun is not preempted.
    """
    tasks = problem.taskset
    order = sorted(range(len(tasks.tasks)), key=tasks.ranks.__getitem__)
    ranked = [tasks.tasks[index] for index in order]
    rows: dict[str, tuple[int | None, Terms]] = {}
    for index, task in enumerate(ranked):
        known = {name: value for name, (value, _) in rows.items() if value is not None}
        rows[task.name] = _behind_server(tasks, task, ranked[:index], ranked[index + 1 :], known)
    # Requests of all processors meet at the server, whose load follows from deadlines: all are met, or none is proved.
    good = all(value is not None for value, _ in rows.values())
    return responses((task, *(rows[task.name] if good else (None, ()))) for task in problem.tasks)


def _request_wait(
    task: PeriodicTask, higher: Sequence[PeriodicTask], lower: Sequence[PeriodicTask], overhead: int
) -> int | None:
    """Return the wait of one request: one of lower priority begun before, and all of higher priority meanwhile."""
    begun = max((_longest_request(other) + overhead for other in lower if other.requests), default=0)
    rivals = [
        (o.period_ns, sum(r.time_ns + r.handling_ns + overhead for r in o.requests)) for o in higher if o.requests
    ]
    return fixed_point(
        begun,
        lambda wait: begun + sum((ceil_div(wait, period) + 1) * need for period, need in rivals),
        task.deadline_ns,
    )


def _behind_server(
    tasks: TaskSet,
    task: PeriodicTask,
    higher: Sequence[PeriodicTask],
    lower: Sequence[PeriodicTask],
    known: Mapping[str, int],
) -> tuple[int | None, Terms]:
    assert tasks.accelerator is not None
    overhead, count = tasks.accelerator.overhead_ns, len(task.requests)
    wait = _request_wait(task, higher, lower, overhead) if count else 0
    local = [other for other in higher if other.cpu == task.cpu]
    if wait is None or any(other.name not in known for other in local):
        return None, ()
    own = (
        ("wcet", task.wcet_ns),
        ("its requests", sum(r.time_ns + r.handling_ns for r in task.requests)),
        ("waiting for requests of other tasks", count * wait),
        ("the server's overhead", 2 * count * overhead),
    )
    serving = [(o, sum(r.handling_ns for r in o.requests) + 2 * len(o.requests) * overhead) for o in (*higher, *lower)]

    def parts(window: int) -> list[tuple[str, int]]:
        inside = []
        for other in local:
            # waiting tasks are suspended, so their jobs may come late by R - C
            jobs = ceil_div(window + known[other.name] - other.wcet_ns, other.period_ns)
            inside.append((f"interference by {other.name}", jobs * other.wcet_ns))
        for other, time in serving if tasks.accelerator and task.cpu == tasks.accelerator.cpu else ():
            jobs = ceil_div(window + max(other.deadline_ns - time, 0), other.period_ns)
            inside.append((f"the server, for {other.name}", jobs * time))
        return inside

    base = sum(value for _, value in own)
    window = fixed_point(base, lambda length: base + sum(value for _, value in parts(length)), task.deadline_ns)
    if window is None:
        return None, ()
    return window, tuple(term for term in (*own, *parts(window)) if term[1])
