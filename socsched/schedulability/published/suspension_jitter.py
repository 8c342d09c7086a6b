"""Self-suspending tasks, fixed priorities: suspension of higher priorities as jitter of R - C, never of S alone.

Chen, Nelissen, Huang, "A unifying response time analysis framework for dynamic self-suspending tasks", ECRTS 2016,
section III, equation 2: R_k = C_k + S_k + sum of ceil((R_k + R_j - C_j) / T_j) C_j.  Jitter of S_j is refuted in Chen
et al., "Many suspensions, many problems: a review of self-suspending tasks in real-time systems", RTS 55(1) 2019.
"""

from __future__ import annotations

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.schedulability import rta_fp
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    Terms,
    responses,
    rt_task,
    with_jitter,
)


def run(problem: Problem) -> Answer:
    """Return the response of every task as long as all of higher priority end within their periods."""
    late: dict[str, int] = {}
    found: list[tuple[PeriodicTask, int | None, Terms]] = []
    for task, higher, _ in problem.by_rank():
        value: int | None = None
        terms: Terms = ()
        if all(other.name in late for other in higher):
            inside = rta_fp.classic([rt_task(other) for other in higher], late)
            limit = max(task.period_ns - task.jitter_ns, 0)
            waiting = ("its own suspension", task.suspension_ns)
            answer, bounded, terms = rta_fp.response_time(rt_task(task), inside, waiting, task.jitter_ns, limit)
            value = answer if bounded else None
        if value is not None:
            late[task.name] = value - task.wcet_ns
        found.append((task, value, with_jitter(task, terms)))
    return responses(found, exact=False)


TEST = SchedulabilityTest(
    "suspension as jitter R - C",
    "Chen, Nelissen, Huang, ECRTS 2016, equation 2; Chen et al., RTS 55(1) 2019",
    Scope(deadlines="constrained", takes=frozenset({"jitter"}), needs=frozenset({"suspension"})),
    run,
    rank=25,
)
