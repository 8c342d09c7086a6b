"""Fixed priorities, deadlines within periods: w = C + B + sum of ceil((w + J_j) / T_j) C_j, and R = w + J.

Joseph & Pandya, The Computer Journal 29(5) 1986; Audsley et al., "Applying new scheduling theory to static priority
pre-emptive scheduling", Software Engineering Journal 8(5) 1993 (blocking and jitter).
"""

from __future__ import annotations

from collections.abc import Iterator

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.schedulability import rta_fp
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

SCOPE = Scope(preemption=("full", "limited"), deadlines="constrained", takes=frozenset({"jitter", "blocking"}))


def blocking(task: PeriodicTask, lower: list[PeriodicTask]) -> tuple[str, int]:
    """Return the blocking task and the longest blocking by lower priority: a region just begun, or the stated value."""
    regions = [(f"a region of {other.name}", other.region_ns - 1) for other in lower if other.region_ns]
    return max([*regions, ("a shared resource", task.blocking_ns)], key=lambda pair: pair[1])


def window(problem: Problem, whole: bool) -> Iterator[tuple[PeriodicTask, int | None, Terms]]:
    """Yield the response of every task; over the `whole` busy period, or of its first job alone."""
    longest = max(max(task.period_ns, task.deadline_ns) for task in problem.tasks)
    for task, higher, lower in problem.by_rank():
        jitter = {other.name: other.jitter_ns for other in (*higher, task)}
        inside = rta_fp.classic([rt_task(other) for other in higher], jitter)
        blocked = blocking(task, lower)
        if whole and endless(task, higher, blocked[1]):
            yield task, None, ()
            continue
        limit = 64 * longest if whole else max(task.period_ns - task.jitter_ns, 0)
        value, bounded, terms = rta_fp.response_time(rt_task(task), inside, blocked, task.jitter_ns, limit)
        yield task, value if bounded else None, with_jitter(task, terms)


def run(problem: Problem) -> Answer:
    """Return the response of every task, none for one that does not finish within its period."""
    exact = "blocking" not in problem.features and problem.preemption == "full"
    return responses(window(problem, whole=False), exact, none_is_late=True)


TEST = SchedulabilityTest(
    "response-time analysis",
    "Joseph & Pandya 1986; Audsley et al., SEJ 8(5) 1993",
    SCOPE,
    run,
    exact=True,
    rank=3,
)
