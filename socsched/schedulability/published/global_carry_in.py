"""Global fixed priorities: at most m - 1 tasks have carry-in work in the window of a job.

Guan, Stigge, Yi, Yu, "New response time bounds for fixed priority multiprocessor scheduling", RTSS 2009, equations 5
and 7-9 (interference) and 12 (iteration), with the carry-in workload of Bertogna & Cirinei, RTSS 2007, equation 8,
instead of equation 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from socsched.schedulability.published.workload import carry_in, no_carry_in, settle


def _interference(
    task: PeriodicTask, higher: Sequence[PeriodicTask], known: Mapping[str, int], length: int, processors: int
) -> Terms:
    room = length - task.wcet_ns + 1
    without = {other.name: min(no_carry_in(other, length), room) for other in higher}
    more = {
        other.name: max(min(carry_in(other, length, known[other.name]), room) - without[other.name], 0)
        for other in higher
    }
    most = sorted(more, key=lambda name: -more[name])[: processors - 1]
    return (
        *((f"work of {name}", value) for name, value in without.items()),
        *((f"work carried in by {name}", more[name]) for name in most),
    )


def _window(
    task: PeriodicTask, higher: Sequence[PeriodicTask], known: Mapping[str, int], processors: int
) -> int | None:
    def need(length: int) -> int:
        rows = _interference(task, higher, known, length, processors)
        return task.wcet_ns + sum(value for _, value in rows) // processors

    return settle(need, task.wcet_ns, min(task.deadline_ns, task.period_ns))


def run(problem: Problem) -> Answer:
    """Return the response of every task if all tasks of higher priority end within their periods."""
    known: dict[str, int] = {}
    found: list[tuple[PeriodicTask, int | None, Terms]] = []
    for task, higher, _ in problem.by_rank():
        value = _window(task, higher, known, problem.processors) if len(known) >= len(higher) else None
        terms: Terms = ()
        if value is not None:
            waits = (f"all {problem.processors} processors busy", value - task.wcet_ns)
            terms = (("wcet", task.wcet_ns), waits) if waits[1] else (("wcet", task.wcet_ns),)
        if value is not None:
            known[task.name] = value
        found.append((task, value, with_jitter(task, terms)))
    return responses(found, exact=False)


TEST = SchedulabilityTest(
    "global response times, limited carry-in",
    "Guan, Stigge, Yi, Yu, RTSS 2009, equations 7-9 and 12",
    Scope(processors="many", deadlines="constrained"),
    run,
    rank=18,
)
