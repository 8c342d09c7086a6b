"""Memory accesses counted one by one, and reserved memory bandwidth."""

from __future__ import annotations

from dataclasses import replace

from socsched.descriptor.taskset import Memory, PeriodicTask
from socsched.schedulability.published.fixed_priorities import busy_window
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    Row,
    Scope,
    fixed_point,
    for_tasks_of,
    published,
    responses,
)
from socsched.schedulability.tasks import ceil_div


def with_accesses(task: PeriodicTask, memory: Memory) -> int:
    """Return the WCET (ns) of a task including its memory accesses, each under contention."""
    return task.wcet_ns + task.accesses * (memory.latency_ns + memory.contention_ns)


@published(
    "memory accesses in the WCET",
    "WATERS 2019 industrial challenge, memory model; Lehoczky, RTSS 1990",
    Scope(takes=frozenset({"jitter"}), needs=frozenset({"memory"})),
    rank=28,
)
def memory_accesses(problem: Problem) -> Answer:
    """Response times with accesses counted as computation: cost = ticks / f + lines (latency + contention).

    Memory model of the WATERS 2019 industrial challenge.
    """
    memory = problem.taskset.memory
    assert memory is not None
    tasks = tuple(replace(task, wcet_ns=with_accesses(task, memory)) for task in problem.tasks)
    return for_tasks_of(problem, busy_window(replace(problem, tasks=tasks), whole=True))


@published(
    "bandwidth reservations (MemGuard)",
    "Yun et al., RTAS 2013, admission; standstills counted over the busy period",
    Scope(deadlines="constrained", takes=frozenset({"jitter", "memory"}), needs=frozenset({"memguard"})),
    rank=29,
)
def memguard(problem: Problem) -> Answer:
    """A processor that has used up its budget stalls until the regulation period ends.

    Yun, Yao, Pellizzoni, Caccamo, Sha, "MemGuard: memory bandwidth reservation system for efficient performance
    isolation in multi-core platforms", RTAS 2013: budgets are guaranteed if they sum to at most the memory's capacity.
    """
    guard, memory = problem.taskset.memguard, problem.taskset.memory
    assert guard is not None
    promised = sum(guard.budgets)
    if promised > guard.guaranteed:
        note = f"budgets of {promised} accesses over the {guard.guaranteed} that the memory serves in a period"
        return Answer(None, note=note)
    budget = guard.budgets[problem.tasks[0].cpu or 0]
    price = memory.latency_ns + memory.contention_ns if memory else 0
    throttled = any(task.accesses for task in problem.tasks)  # then even tasks without accesses stall
    period = guard.period_ns if throttled else 0

    def respond(task: PeriodicTask, higher: list[PeriodicTask]) -> Row:
        def parts(window: int) -> list[tuple[str, int]]:
            jobs = [(other, ceil_div(window + other.jitter_ns, other.period_ns)) for other in higher]
            accesses = task.accesses + sum(count * other.accesses for other, count in jobs)
            return [
                ("wcet and accesses", task.wcet_ns + task.accesses * price),
                *((f"interference by {o.name}", count * (o.wcet_ns + o.accesses * price)) for o, count in jobs),
                # In a busy period every stall after the first follows Q accesses made in it, so there are at most
                # 1 + accesses / Q of them, each shorter than the regulation period.
                (f"standstills, {accesses} accesses at {budget} a period", (1 + accesses // budget) * period),
            ]

        limit = min(task.deadline_ns, task.period_ns) - task.jitter_ns
        window = fixed_point(task.wcet_ns, lambda length: sum(value for _, value in parts(length)), limit)
        if window is None:
            return task, None, ()
        terms = (("release jitter", task.jitter_ns), *parts(window))
        return task, task.jitter_ns + window, tuple(term for term in terms if term[1])

    return responses(respond(task, higher) for task, higher, _ in problem.by_rank())
