"""Global fixed priorities without preemption: how long all processors can be busy before a job starts.

After Guan, Yi, Gu, Deng, Yu, "New schedulability test conditions for non-preemptive scheduling on multiprocessor
platforms", RTSS 2008, here over the window from release to start and with the workload bound of Bertogna & Cirinei,
RTSS 2007, equation 8: of lower priority only the m jobs begun before the release can interfere.
"""

from __future__ import annotations

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    Terms,
    responses,
    with_jitter,
)
from socsched.schedulability.published.workload import carry_in, settle


def run(problem: Problem) -> Answer:
    """Return the response of every task; a job has started within x once less than m x of work can interfere."""
    m = problem.processors
    known: dict[str, int] = {}
    found: list[tuple[PeriodicTask, int | None, Terms]] = []
    for task, higher, lower in problem.by_rank():
        begun = sorted(((other.wcet_ns - 1, other.name) for other in lower), reverse=True)[:m]
        value, terms = _start(task, higher, begun, known, m)
        if value is not None:
            known[task.name] = value
        found.append((task, value, with_jitter(task, terms)))
    return responses(found, exact=False)


def _start(
    task: PeriodicTask, higher: list[PeriodicTask], begun: list[tuple[int, str]], known: dict[str, int], m: int
) -> tuple[int | None, Terms]:
    if any(other.name not in known for other in higher):
        return None, ()

    def busy(wait: int) -> int:
        """Return how long other jobs occupy all processors if the job has not started up to and including `wait`."""
        inside = wait + 1
        work = sum(min(carry_in(other, inside, known[other.name]), inside) for other in higher)
        return (work + sum(min(rest, inside) for rest, _ in begun)) // m

    wait = settle(busy, 0, min(task.deadline_ns, task.period_ns) - task.jitter_ns - task.wcet_ns)
    if wait is None:
        return None, ()
    blocked = min(sum(rest for rest, _ in begun) // m, wait)
    rows = (("wcet", task.wcet_ns), ("lower priorities on all processors", blocked))
    terms = (*rows, ("higher priorities on all processors", wait - blocked))
    return task.jitter_ns + wait + task.wcet_ns, tuple(term for term in terms if term[1])


TEST = SchedulabilityTest(
    "global non-preemptive fixed priorities",
    "after Guan, Yi, Gu, Deng, Yu, RTSS 2008",
    Scope(preemption=("none",), processors="many", deadlines="constrained", takes=frozenset({"jitter"})),
    run,
    rank=19,
)
