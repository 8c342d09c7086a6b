"""EDF worst-case response times: every job of a deadline busy period.

Spuri, "Analysis of deadline scheduled real-time systems", INRIA RR-2772 1996 (preemptive, jitter); George, Rivierre,
Spuri, "Preemptive and non-preemptive real-time uniprocessor scheduling", INRIA RR-2966 1996 (without preemption a job
that has started is not delayed).
"""

from __future__ import annotations

from collections.abc import Iterator

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.planning.schedulability.published.demand import busy_period, demand_tasks
from socsched.planning.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    Terms,
    responses,
    with_jitter,
)
from socsched.planning.schedulability.rta_fp import ceil_div

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
        worst, before = -1, (0, 0)
        terms: Terms = ()
        for arrival in sorted(_arrivals(task, others, busy)):
            value, found, before = _response(task, others, arrival, segments, whole, before)
            if value > worst:
                worst, terms = value, found
        yield task, worst, with_jitter(task, terms)


def _arrivals(task: PeriodicTask, others: list[PeriodicTask], busy: int) -> set[int]:
    """Return the arrivals of `task` (others release at 0, with maximal jitter) that can have the longest response."""
    found = set(range(-task.jitter_ns, busy, task.period_ns))
    for other in others:
        first = other.deadline_ns - other.jitter_ns - task.deadline_ns
        skip = max(ceil_div(-task.jitter_ns - first, other.period_ns), 0)
        found.update(range(first + skip * other.period_ns, busy, other.period_ns))
    return found


def _response(
    task: PeriodicTask,
    others: list[PeriodicTask],
    arrival: int,
    segments: dict[str, int],
    whole: bool,
    before: tuple[int, int],
) -> tuple[int, Terms, tuple[int, int]]:
    """Return response, terms, and (blocking, busy length) for the next arrival to start from.

    With the same blocking, later arrivals have longer busy periods, as demand never decreases.
    """
    due = arrival + task.deadline_ns
    earlier = (arrival + task.jitter_ns) // task.period_ns
    late = [(other.name, segments[other.name]) for other in others if other.deadline_ns > due and segments[other.name]]
    name, blocked = max(late, key=lambda pair: pair[1], default=("", 0))
    urgent = [
        (other, (due - other.deadline_ns + other.jitter_ns) // other.period_ns + 1)
        for other in others
        if other.deadline_ns - other.jitter_ns <= due
    ]
    own = earlier * task.wcet_ns + (0 if whole else task.wcet_ns)
    length = max(blocked + own, before[1] if before[0] == blocked else 0)
    while True:
        # Without preemption the start counts, and jobs released at that very instant go first.
        jobs = [
            ((length + o.jitter_ns) // o.period_ns + 1 if whole else ceil_div(length + o.jitter_ns, o.period_ns), most)
            for o, most in urgent
        ]
        inside = [
            (f"interference by {o.name}", min(pair) * o.wcet_ns) for (o, _), pair in zip(urgent, jobs, strict=True)
        ]
        longer = blocked + own + sum(value for _, value in inside)
        if longer <= length:
            break
        length = longer
    finish = length + (task.wcet_ns if whole else 0)
    if finish - arrival <= task.jitter_ns + task.wcet_ns:
        return task.jitter_ns + task.wcet_ns, (("wcet", task.wcet_ns),), (blocked, length)
    terms = [("wcet", task.wcet_ns), ("earlier frames of its own", earlier * task.wcet_ns)]
    terms += [(f"blocking by {name}", blocked), *inside, ("offset within busy period", -arrival - task.jitter_ns)]
    return finish - arrival, tuple(term for term in terms if term[1]), (blocked, length)


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
