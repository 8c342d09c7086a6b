"""Memory-bandwidth reservations: a processor that has used up its budget stalls until the period ends.

Yun, Yao, Pellizzoni, Caccamo, Sha, "MemGuard: memory bandwidth reservation system for efficient performance isolation
in multi-core platforms", RTAS 2013: budgets are guaranteed if they sum to at most the memory's capacity.  In a busy
period every stall after the first follows Q accesses made in it, so there are at most 1 + accesses / Q of them, each
shorter than the regulation period.
"""

from __future__ import annotations

from collections.abc import Iterator

from socsched.descriptor.taskset_model import PeriodicTask
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
    """Return the response of every task, none if the budgets exceed the memory's capacity."""
    guard = problem.taskset.memguard
    assert guard is not None
    promised = sum(guard.budgets)
    if promised > guard.guaranteed:
        return Answer(
            None, note=f"budgets of {promised} accesses over the {guard.guaranteed} that the memory serves in a period"
        )
    return responses(_rows(problem, guard.budgets[problem.tasks[0].cpu or 0], guard.period_ns), exact=False)


def _rows(problem: Problem, budget: int, period: int) -> Iterator[tuple[PeriodicTask, int | None, Terms]]:
    memory = problem.taskset.memory
    price = memory.latency_ns + memory.contention_ns if memory else 0
    throttled = any(task.accesses for task in problem.tasks)  # then even tasks without accesses stall
    for task, higher, _ in problem.by_rank():
        yield task, *_window(task, higher, budget, period if throttled else 0, price)


def _window(
    task: PeriodicTask, higher: list[PeriodicTask], budget: int, period: int, price: int
) -> tuple[int | None, Terms]:
    window, limit = task.wcet_ns, min(task.deadline_ns, task.period_ns) - task.jitter_ns
    while window <= limit:
        jobs = [(other, ceil_div(window + other.jitter_ns, other.period_ns)) for other in higher]
        accesses = task.accesses + sum(count * other.accesses for other, count in jobs)
        standing = (1 + accesses // budget) * period
        rows = [("release jitter", task.jitter_ns), ("wcet and accesses", task.wcet_ns + task.accesses * price)]
        rows += [(f"interference by {o.name}", count * (o.wcet_ns + o.accesses * price)) for o, count in jobs]
        rows.append((f"standstills, {accesses} accesses at {budget} a period", standing))
        longer = sum(value for _, value in rows[1:])
        if longer <= window:
            return task.jitter_ns + longer, tuple(row for row in rows if row[1])
        window = longer
    return None, ()


TEST = SchedulabilityTest(
    "bandwidth reservations (MemGuard)",
    "Yun et al., RTAS 2013, admission; standstills counted over the busy period",
    Scope(deadlines="constrained", takes=frozenset({"jitter", "memory"}), needs=frozenset({"memguard"})),
    run,
    rank=29,
)
