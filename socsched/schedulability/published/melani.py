"""Global EDF and fixed priorities over parallel graphs: interference within a graph and between graphs.

Melani, Bertogna, Bonifaci, Marchetti-Spaccamela, Buttazzo, "Response-time analysis of conditional DAG tasks in
multiprocessor systems", ECRTS 2015, without conditional branches and, under EDF, without their second, deadline-based
bound on interference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    Terms,
    responses,
)
from socsched.schedulability.published.parallel import length
from socsched.schedulability.published.workload import settle

Found = list[tuple[PeriodicTask, int | None, Terms]]


def workload(task: PeriodicTask, window: int, response: int, m: int) -> Fraction:
    """Return the most a graph executes in a window, its first job spread over all m processors just before its end."""
    shifted = window + response - Fraction(task.wcet_ns, m)
    whole = shifted // task.period_ns
    return whole * task.wcet_ns + min(Fraction(task.wcet_ns), m * (shifted - whole * task.period_ns))


def _window(
    task: PeriodicTask, others: Sequence[PeriodicTask], known: Mapping[str, int], m: int
) -> tuple[int | None, Terms]:
    path = length(task)
    within = Fraction(task.wcet_ns - path, m)

    def need(window: int) -> int:
        between = sum((workload(other, window, known[other.name], m) for other in others), Fraction(0)) / m
        return path + int(within + between)

    window = settle(need, path + int(within), min(task.deadline_ns, task.period_ns))
    if window is None:
        return None, ()
    terms = (("longest path", path), (f"the rest on {m} processors", int(within)))
    rest = ("other graphs, on all processors", window - path - int(within))
    return window, tuple(term for term in (*terms, rest) if term[1])


def run(problem: Problem) -> Answer:
    """Return the response of every task; under EDF of all or none."""
    m = problem.processors
    if problem.policy.rule != "edf":
        known: dict[str, int] = {}
        found: Found = []
        for task, higher, _ in problem.by_rank():
            ready = all(other.name in known for other in higher)
            value, terms = _window(task, higher, known, m) if ready else (None, ())
            if value is not None:
                known[task.name] = value
            found.append((task, value, terms))
        return responses(found, exact=False)
    known = {task.name: task.deadline_ns for task in problem.tasks}
    while True:
        found = [(t, *_window(t, [o for o in problem.tasks if o is not t], known, m)) for t in problem.tasks]
        better = {t.name: min(value, known[t.name]) if value else known[t.name] for t, value, _ in found}
        if better != known:
            known = better
        elif all(value for _, value, _ in found):
            return responses(found, exact=False)
        else:
            return responses([(task, None, ()) for task in problem.tasks], exact=False)


TEST = SchedulabilityTest(
    "global graphs (Melani)",
    "Melani et al., ECRTS 2015",
    Scope(
        rules=("edf", "fp", "rm", "dm"),
        processors="any",
        deadlines="constrained",
        needs=frozenset({"graph"}),
    ),
    run,
    rank=22,
)
