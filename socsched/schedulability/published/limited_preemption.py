"""Fixed priorities with fixed preemption points: the last region, once begun, is not delayed.

Buttazzo, Bertogna, Yao, "Limited preemptive scheduling for real-time systems: a survey", IEEE TII 9(1) 2013, fixed
preemption points (after Bril, Lukkien, Verhaegh, RTS 42 2009): every job of the busy period, up to the start of its
last region.
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
    responses,
    rt_task,
    with_jitter,
)
from socsched.schedulability.published.rta import blocking


def rows(problem: Problem) -> Iterator[tuple[PeriodicTask, int | None, Terms]]:
    """Yield the response of every task."""
    longest = max(max(task.period_ns, task.deadline_ns) for task in problem.tasks)
    for task, higher, lower in problem.by_rank():
        blocked = blocking(task, lower)
        if endless(task, higher, blocked[1]):
            yield task, None, ()
            continue
        last = task.regions_ns[-1] if task.regions_ns else 1
        jitter = {other.name: other.jitter_ns for other in (*higher, task)}
        others = [rt_task(other) for other in higher]
        value, bounded, terms = rta_np.response_time(rt_task(task), others, jitter, blocked, 64 * longest, last)
        yield task, value if bounded else None, with_jitter(task, terms)


def run(problem: Problem) -> Answer:
    """Return the response of every task."""
    return responses(rows(problem), exact=False)


def _points(problem: Problem) -> str:
    return "" if any(task.regions_ns for task in problem.tasks) else "no task has fixed preemption points (regions)"


TEST = SchedulabilityTest(
    "fixed preemption points",
    "Buttazzo, Bertogna, Yao, IEEE TII 9(1) 2013, fixed preemption points",
    Scope(preemption=("limited",), takes=frozenset({"jitter", "blocking"})),
    run,
    also=_points,
    rank=6,
)
