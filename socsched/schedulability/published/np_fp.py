"""Fixed priorities without preemption: every job of the level-i busy period, as a job can delay its successor.

Davis, Burns, Bril, Lukkien, "Controller Area Network (CAN) schedulability analysis: refuted, revisited and revised",
RTS 35 2007; Bril, Lukkien, Verhaegh, "Worst-case response time analysis of real-time tasks under fixed-priority
scheduling with deferred preemption", RTS 42 2009 (self-pushing).
"""

from __future__ import annotations

from collections.abc import Iterator

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.schedulability import rta_np
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    Terms,
    endless,
    is_sporadic,
    responses,
    rt_task,
    with_jitter,
)


def rows(problem: Problem) -> Iterator[tuple[PeriodicTask, int | None, Terms]]:
    """Yield the response of every task."""
    longest = max(max(task.period_ns, task.deadline_ns) for task in problem.tasks)
    for task, higher, lower in problem.by_rank():
        name, begun = max(((o.name, o.wcet_ns - 1) for o in lower), key=lambda pair: pair[1], default=("", 0))
        blocking = (name, begun) if begun >= task.blocking_ns else ("a shared resource", task.blocking_ns)
        if endless(task, higher, blocking[1]):
            yield task, None, ()
            continue
        jitter = {other.name: other.jitter_ns for other in (*higher, task)}
        others = [rt_task(other) for other in higher]
        value, bounded, terms = rta_np.response_time(rt_task(task), others, jitter, blocking, 64 * longest)
        yield task, value if bounded else None, with_jitter(task, terms)


def run(problem: Problem) -> Answer:
    """Return the response of every task; exact if the longest lower-priority job can have just begun: if sporadic."""
    exact = is_sporadic(problem.tasks) and not any(task.blocking_ns for task in problem.tasks)
    return responses(rows(problem), exact=exact)


TEST = SchedulabilityTest(
    "non-preemptive fixed priorities",
    "Davis, Burns, Bril, Lukkien, RTS 35 2007",
    Scope(preemption=("none",), takes=frozenset({"jitter", "blocking"})),
    run,
    rank=5,
)
