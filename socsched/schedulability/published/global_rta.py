"""Global EDF and fixed priorities: response times from the workload in the window of a job.

Bertogna & Cirinei, "Response-time analysis for globally scheduled symmetric multiprocessor platforms", RTSS 2007,
workload in a window by equations 4 and 8, under EDF by 5 and 9 as well, with their iteration over slacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
from socsched.schedulability.published.workload import carry_in, due_within, settle

ROUNDS = 40
"""Rounds over the slacks; later ones gain only a few ns."""
Work = Callable[[PeriodicTask, int], int]
Found = tuple[PeriodicTask, int | None, Terms]


def window(task: PeriodicTask, others: Sequence[PeriodicTask], work: Work, processors: int) -> tuple[int | None, Terms]:
    """Return the response of a job from its arrival and its terms, None if it exceeds the period or deadline.

    `work` is the execution of a task in a window; the other tasks fill all m processors only while the job waits.
    """
    room = min(task.deadline_ns, task.period_ns) - task.jitter_ns

    def rows(length: int) -> list[tuple[str, int]]:
        return [(other.name, min(work(other, length), length - task.wcet_ns + 1)) for other in others]

    length = settle(lambda x: task.wcet_ns + sum(value for _, value in rows(x)) // processors, task.wcet_ns, room)
    if length is None:
        return None, ()
    terms = (("wcet", task.wcet_ns), *_shares(rows(length), length - task.wcet_ns))
    return task.jitter_ns + length, with_jitter(task, terms)


def _shares(rows: Sequence[tuple[str, int]], total: int) -> Terms:
    """Split a wait among the tasks that cause it, in proportion, so that terms add up."""
    whole, given, seen = sum(value for _, value in rows), 0, 0
    terms = []
    for name, value in rows:
        seen += value
        upto = total * seen // whole if whole else 0
        terms.append((f"interference by {name}, its share", upto - given))
        given = upto
    return tuple(term for term in terms if term[1])


def _fixed(problem: Problem) -> list[Found]:
    known: dict[str, int] = {}
    found: list[Found] = []
    for task, higher, _ in problem.by_rank():
        value: int | None = None
        terms: Terms = ()
        if all(other.name in known for other in higher):
            value, terms = window(task, higher, lambda o, x: carry_in(o, x, known[o.name]), problem.processors)
        if value is not None:
            known[task.name] = value
        found.append((task, value, terms))
    return found


def _due_work(others: Sequence[PeriodicTask], deadline: int, slack: Mapping[str, int]) -> Work:
    most = {other.name: due_within(other, deadline, slack[other.name]) for other in others}
    ends = {other.name: other.deadline_ns - slack[other.name] for other in others}

    def work(other: PeriodicTask, length: int) -> int:
        return min(carry_in(other, length, ends[other.name]), most[other.name])

    return work


def _edf(problem: Problem) -> list[Found]:
    slack = {task.name: 0 for task in problem.tasks}
    for round_number in range(ROUNDS):
        found: list[Found] = []
        for task in problem.tasks:
            others = [other for other in problem.tasks if other is not task]
            work = _due_work(others, task.deadline_ns, slack)
            found.append((task, *window(task, others, work, problem.processors)))
        # The slack found for one task tightens the others; only the last round decides that no task misses.
        better = {t.name: max(t.deadline_ns - value if value else 0, slack[t.name]) for t, value, _ in found}
        if better == slack or round_number == ROUNDS - 1:
            break
        slack = better
    if all(value for _, value, _ in found):
        return found
    return [(task, None, ()) for task, _, _ in found]  # the first miss would have no valid premise


def run(problem: Problem) -> Answer:
    """Return the response of every task; under EDF of all or none, as one miss may cause another."""
    return responses(_edf(problem) if problem.policy.rule == "edf" else _fixed(problem), exact=False)


def _no_jitter_under_edf(problem: Problem) -> str:
    return "under EDF it does not cover release jitter" if _jittery_edf(problem) else ""


def _jittery_edf(problem: Problem) -> bool:
    return problem.policy.rule == "edf" and "jitter" in problem.features


TEST = SchedulabilityTest(
    "global response times",
    "Bertogna & Cirinei, RTSS 2007, equations 4, 5, 8 and 9",
    Scope(rules=("edf", "fp", "rm", "dm"), processors="many", deadlines="constrained", takes=frozenset({"jitter"})),
    run,
    also=_no_jitter_under_edf,
    rank=17,
)
