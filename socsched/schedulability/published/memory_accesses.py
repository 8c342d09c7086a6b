"""Memory accesses counted individually: each adds its latency and contention to the WCET.

Memory model of the WATERS 2019 industrial challenge: cost = ticks / f + lines (latency + contention); then the usual
response times.
"""

from __future__ import annotations

from dataclasses import replace

from socsched.descriptor.taskset_model import Memory, PeriodicTask
from socsched.schedulability.published import rta
from socsched.schedulability.published.model import Answer, Problem, SchedulabilityTest, Scope, responses


def with_accesses(task: PeriodicTask, memory: Memory) -> int:
    """Return the WCET (ns) of a task including its memory accesses, each under contention."""
    return task.wcet_ns + task.accesses * (memory.latency_ns + memory.contention_ns)


def run(problem: Problem) -> Answer:
    """Return the response of every task with memory accesses counted as computation."""
    memory = problem.taskset.memory
    assert memory is not None
    by_name = {task.name: task for task in problem.tasks}
    longer = tuple(replace(task, wcet_ns=with_accesses(task, memory)) for task in problem.tasks)
    rows = rta.window(replace(problem, tasks=longer), whole=True)
    return responses([(by_name[task.name], value, terms) for task, value, terms in rows], exact=False)


TEST = SchedulabilityTest(
    "memory accesses in the WCET",
    "WATERS 2019 industrial challenge, memory model; Lehoczky, RTSS 1990",
    Scope(takes=frozenset({"jitter"}), needs=frozenset({"memory"})),
    run,
    rank=28,
)
