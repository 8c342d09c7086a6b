"""EDF worst-case response times: every job of a deadline busy period.

Spuri, "Analysis of deadline scheduled real-time systems", INRIA RR-2772 1996 (preemptive, jitter); George, Rivierre,
Spuri, "Preemptive and non-preemptive real-time uniprocessor scheduling", INRIA RR-2966 1996 (without preemption a job
that has started is not delayed).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.schedulability.published.demand import busy_period, demand_tasks
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    Terms,
    responses,
    with_jitter,
)
from socsched.schedulability.rta_fp import ceil_div

WORK = 5_000_000
"""Task pairs at arrivals examined before bounds are abandoned (some seconds)."""


def rows(problem: Problem, work: int | None = None) -> Iterator[tuple[PeriodicTask, int | None, Terms]]:
    """Yield the response of every task, None where there are too many arrivals to examine (see `WORK`)."""
    busy = busy_period(problem)
    segments = {task.name: task.segment for task in demand_tasks(problem)}
    whole = problem.preemption == "none"
    arrivals = sum((busy or 0) // task.period_ns + 1 for task in problem.tasks)
    for task in problem.tasks:
        others = [other for other in problem.tasks if other is not task]
        if busy is None or arrivals * len(problem.tasks) ** 2 > (WORK if work is None else work):
            yield task, None, ()
            continue
        worst, longest, before = -1, _NONE, _NONE
        rivals = [_Rival(o.wcet_ns, o.period_ns, o.deadline_ns, o.jitter_ns, segments[o.name]) for o in others]
        for arrival in sorted(_arrivals(task, others, busy)):
            if task.wcet_ns and busy - arrival <= worst:
                break  # every job ends within the longest busy period
            before = _busy(task, rivals, arrival, whole, before)
            value = _value(task, before, whole)
            if value > worst:
                worst, longest = value, before
        terms = _terms(task, others, segments, longest, whole) if worst >= 0 else ()
        yield task, worst, with_jitter(task, terms)


def _arrivals(task: PeriodicTask, others: list[PeriodicTask], busy: int) -> set[int]:
    """Return the arrivals of `task` (others release at 0, with maximal jitter) that can have the longest response."""
    found = set(range(-task.jitter_ns, busy, task.period_ns))
    for other in others:
        first = other.deadline_ns - other.jitter_ns - task.deadline_ns
        skip = max(ceil_div(-task.jitter_ns - first, other.period_ns), 0)
        found.update(range(first + skip * other.period_ns, busy, other.period_ns))
    return found


class _Rival(NamedTuple):
    """Another task (ns); this module's inner loop reads it millions of times."""

    wcet: int
    period: int
    deadline: int
    jitter: int
    segment: int


class _Busy(NamedTuple):
    """The deadline busy period of a job by its arrival: its length, the blocking in it, and the job's earlier frames.

    `length` ends with the job, or with its start where jobs are not preempted (ns).
    """

    arrival: int
    blocked: int
    length: int
    earlier: int


_NONE = _Busy(0, 0, 0, 0)


def _busy(task: PeriodicTask, rivals: Sequence[_Rival], arrival: int, whole: bool, before: _Busy) -> _Busy:
    """Return the busy period of the job that arrives next after that of `before`.

    With the same blocking, later arrivals have longer busy periods, as demand never decreases.
    """
    due = arrival + task.deadline_ns
    earlier = (arrival + task.jitter_ns) // task.period_ns
    blocked, urgent = 0, []
    for wcet, period, deadline, jitter, segment in rivals:
        if deadline > due and segment > blocked:
            blocked = segment
        if deadline - jitter <= due:
            urgent.append((wcet, period, jitter, (due - deadline + jitter) // period + 1))
    least = blocked + earlier * task.wcet_ns + (0 if whole else task.wcet_ns)
    length = max(least, before.length if before.blocked == blocked else 0)
    while True:
        longer = least
        for wcet, period, jitter, most in urgent:
            # Without preemption the start counts, and jobs released at that very instant go first.
            jobs = (length + jitter) // period + 1 if whole else -(-(length + jitter) // period)
            longer += (jobs if jobs < most else most) * wcet
        if longer <= length:
            return _Busy(arrival, blocked, length, earlier)
        length = longer


def _value(task: PeriodicTask, busy: _Busy, whole: bool) -> int:
    finish = busy.length + (task.wcet_ns if whole else 0)
    return max(finish - busy.arrival, task.jitter_ns + task.wcet_ns)


def _terms(
    task: PeriodicTask, others: Sequence[PeriodicTask], segments: Mapping[str, int], busy: _Busy, whole: bool
) -> Terms:
    """Return the terms of a response, which its value and the release jitter are the sum of."""
    if _value(task, busy, whole) <= task.jitter_ns + task.wcet_ns:
        return (("wcet", task.wcet_ns),)
    due = busy.arrival + task.deadline_ns
    late = [(other.name, segments[other.name]) for other in others if other.deadline_ns > due and segments[other.name]]
    name, blocked = max(late, key=lambda pair: pair[1], default=("", 0))
    terms = [("wcet", task.wcet_ns), ("earlier frames of its own", busy.earlier * task.wcet_ns)]
    terms.append((f"blocking by {name}", blocked))
    for other in others:
        if other.deadline_ns - other.jitter_ns <= due:
            most = (due - other.deadline_ns + other.jitter_ns) // other.period_ns + 1
            until = busy.length + other.jitter_ns
            jobs = until // other.period_ns + 1 if whole else ceil_div(until, other.period_ns)
            terms.append((f"interference by {other.name}", min(jobs, most) * other.wcet_ns))
    terms.append(("offset within busy period", -busy.arrival - task.jitter_ns))
    return tuple(term for term in terms if term[1])


def run(problem: Problem) -> Answer:
    """Return the response of every task; exact without blocking."""
    return responses(rows(problem), exact=problem.preemption == "full")


TEST = SchedulabilityTest(
    "EDF response times",
    "Spuri, INRIA RR-2772 1996; George, Rivierre, Spuri, INRIA RR-2966 1996",
    Scope(rules=("edf",), preemption=("full", "limited", "none"), takes=frozenset({"jitter"})),
    run,
    exact=True,
    rank=10,
)
