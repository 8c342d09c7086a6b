"""EDF on one processor, and FIFO, which is EDF with one deadline for all: demand of intervals, and response times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from math import lcm
from typing import NamedTuple

from socsched.descriptor.taskset import PeriodicTask
from socsched.schedulability.native_responses import Busy, edf_answers
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    Row,
    Scope,
    deadlines_met,
    for_tasks_of,
    is_sporadic,
    is_synchronous,
    published,
    responses,
    with_jitter,
)
from socsched.schedulability.tasks import Terms, ceil_div

# The demand bound function dbf and QPA, for whole plans as well (`schedulability.edf`).  Baruah, Rosier, Howell,
# Real-Time Systems 2 1990 (demand bound); Zhang & Burns, IEEE TC 58(9) 2009 (QPA); release jitter shortens a task's
# window (Spuri, INRIA RR-2772 1996); blocking by a segment whose job is due later (Baker, RTS 3 1991; George, Rivierre,
# Spuri, INRIA RR-2966 1996).


@dataclass(frozen=True, slots=True)
class DemandTask:
    """A task as EDF sees it (ns): demand per job, period, `window` from latest activation to deadline, `deadline`.

    `segment` is the longest non-preemptive stretch, `release_jitter` the largest amount by which the distance of two
    deadlines can fall short of the period.
    """

    name: str
    wcet: int
    period: int
    window: int
    deadline: int
    segment: int = 0
    release_jitter: int = 0


@dataclass(frozen=True, slots=True)
class Overload:
    """An interval (ns) whose demand exceeds it, with the terms that add up to the demand."""

    interval: int
    demand: int
    terms: tuple[tuple[str, int], ...]


def jobs_within(task: DemandTask, interval: int) -> int:
    """Return the number of jobs that can be both activated and due within an interval."""
    return max(0, (interval - task.window) // task.period + 1)


def demand(tasks: Sequence[DemandTask], interval: int) -> int:
    """Return the demand bound function dbf(interval)."""
    return sum(jobs_within(task, interval) * task.wcet for task in tasks)


def blocking(tasks: Sequence[DemandTask], interval: int) -> tuple[str, int]:
    """Return the longest segment of a job that is due after an interval it started before."""
    late = ((task.name, task.segment) for task in tasks if task.deadline > interval and task.segment)
    return max(late, key=lambda pair: pair[1], default=("", 0))


def _ended_busy_period(tasks: Sequence[DemandTask]) -> int | None:
    """Return the longest busy period (ns), None if utilisation is too high for it to end."""
    if sum(task.wcet / task.period for task in tasks) > 1 - 1e-9:
        return None
    start = max((task.segment for task in tasks), default=0)
    length = max(start + sum(task.wcet for task in tasks), 1)
    for _ in range(100_000):
        longer = start + sum(
            ceil_div(length + max(task.deadline - task.window, 0), task.period) * task.wcet for task in tasks
        )
        if longer <= length:
            return longer
        length = longer
    return None


def overload(tasks: Sequence[DemandTask], longest: int | None = None) -> Overload | None:
    """Return an interval exceeded by its demand and blocking, None if EDF meets every deadline.

    `longest` is the longest busy period (ns) if known, which makes a fully utilised processor decidable.  Blocking
    changes only at deadlines, so QPA runs once between consecutive ones.
    """
    for task in tasks:
        if task.window < task.wcet:
            return Overload(task.window, task.wcet, ((task.name, task.wcet),))
    horizon = longest if longest is not None else _ended_busy_period(tasks) if tasks else 0
    if horizon is None:
        return _describe(tasks, _overfull_interval(tasks))
    steps = sorted({0, *(task.deadline for task in tasks if task.segment and task.deadline <= horizon), horizon + 1})
    for low, high in zip(reversed(steps[:-1]), reversed(steps[1:]), strict=True):
        found = _qpa(tasks, low, high - 1, blocking(tasks, low)[1])
        if found is not None:
            return _describe(tasks, found)
    return None


def _qpa(tasks: Sequence[DemandTask], low: int, high: int, blocked: int) -> int | None:
    """Return an overfull interval in [low, high], where the blocking is `blocked`, else None."""
    interval = _last_due(tasks, high + 1)
    while interval is not None and interval >= low:
        need = demand(tasks, interval) + blocked
        if need > interval:
            return interval
        interval = _last_due(tasks, interval) if need == interval else _due_by(tasks, need)
    return None


def _due_by(tasks: Sequence[DemandTask], interval: int) -> int | None:
    return _last_due(tasks, interval + 1)


def _last_due(tasks: Sequence[DemandTask], before: int) -> int | None:
    """Return the largest interval below `before` at which the demand steps."""
    steps = [t.window + (before - 1 - t.window) // t.period * t.period for t in tasks if t.window < before]
    return max(steps, default=None)


def _overfull_interval(tasks: Sequence[DemandTask]) -> int:
    """Return an interval that a utilisation of at least 1 overfills, or the longest one examined."""
    interval = max(max(task.window, task.period) for task in tasks)
    for _ in range(24):
        if demand(tasks, interval) > interval:
            return interval
        interval *= 2
    return interval


def _describe(tasks: Sequence[DemandTask], interval: int) -> Overload:
    terms = [(task.name, jobs_within(task, interval) * task.wcet) for task in tasks]
    name, value = blocking(tasks, interval)
    if value:
        terms.append((f"blocking by {name}", value))
    terms = [term for term in terms if term[1]]
    return Overload(interval, sum(value for _, value in terms), tuple(terms))


_STEPS = 50_000
"""Steps after which the search for the end of a busy period is abandoned."""
_NEAR = 1e-6
"""Distance from a utilisation of 1 within which it is summed exactly, as fractions are slow."""


def _demand_tasks(problem: Problem) -> list[DemandTask]:
    """Return the tasks with their longest regions, less 1 ns, as a blocking job must have started earlier."""
    whole = problem.preemption == "none"
    return [
        DemandTask(
            name=task.name,
            wcet=task.wcet_ns,
            period=task.period_ns,
            window=task.deadline_ns - task.jitter_ns,
            deadline=task.deadline_ns,
            segment=max((task.wcet_ns if whole else task.region_ns) - 1, 0),
            release_jitter=task.jitter_ns,
        )
        for task in problem.tasks
    ]


def _busy_period(problem: Problem) -> int | None:
    """Return the longest busy period (ns), None if utilisation exceeds 1 or no end is found."""
    used = sum(task.wcet_ns / task.period_ns for task in problem.tasks)
    full = abs(used - 1) < _NEAR and problem.utilisation == 1
    if used > 1 + _NEAR or (abs(used - 1) < _NEAR and problem.utilisation > 1):
        return None
    first = max((task.segment for task in _demand_tasks(problem)), default=0)
    rows = [(task.wcet_ns, task.period_ns, task.jitter_ns) for task in problem.tasks]
    if full and first == 0 and not any(jitter for _, _, jitter in rows):
        return lcm(*(period for _, period, _ in rows))
    length = first + sum(wcet for wcet, _, _ in rows)
    for _ in range(_STEPS):
        longer = first + sum(ceil_div(length + jitter, period) * wcet for wcet, period, jitter in rows)
        if longer == length:
            return length
        length = longer
    return None


_DEADLINES = 100_000
"""Deadlines examined on a fully utilised processor, where QPA offers no shortcut."""


def _demand_fits(problem: Problem, exact: bool) -> Answer:
    """Return whether the demand of every interval fits; an overfull one is a miss if all tasks can release at once."""
    horizon = _busy_period(problem)
    if horizon is None and problem.utilisation == 1 and "jitter" not in problem.features:
        # There is no blocking from the longest deadline on, and demand then repeats with the hyperperiod.
        horizon = max(*(task.deadline_ns for task in problem.tasks), lcm(*(t.period_ns for t in problem.tasks)))
    if horizon is None and problem.utilisation <= 1:
        return Answer(None, note="the busy period does not end within the search")
    if problem.utilisation == 1 and sum((horizon or 0) // task.period_ns for task in problem.tasks) > _DEADLINES:
        return Answer(None, note=f"a fully utilised processor with more than {_DEADLINES} deadlines to check")
    excess = overload(_demand_tasks(problem), horizon)
    if excess is None:
        return deadlines_met(problem, note="the demand of every interval fits")
    note = f"demand {excess.demand} ns in an interval of {excess.interval} ns"
    return Answer(False if exact and is_synchronous(problem.tasks) else None, terms=excess.terms, note=note)


@published(
    "EDF demand bound (QPA)",
    "Baruah, Mok, Rosier, RTSS 1990; Zhang & Burns, IEEE TC 58(9) 2009",
    Scope(("edf",), takes=frozenset({"jitter"})),
    exact=True,
    rank=9,
)
def qpa(problem: Problem) -> Answer:
    """The demand of every interval fits it, found by quick processor-demand analysis.

    Baruah, Mok, Rosier, RTSS 1990 (demand bound function); Zhang & Burns, "Schedulability analysis for real-time
    systems with EDF scheduling", IEEE TC 58(9) 2009 (QPA); jitter shortens windows (Spuri, INRIA RR-2772 1996).
    """
    return _demand_fits(problem, exact=True)


@published(
    "EDF demand bound with blocking",
    "George, Rivierre, Spuri, INRIA RR-2966 1996, theorem 14; regions after Baruah",
    Scope(("edf",), preemption=("none", "limited"), takes=frozenset({"jitter"})),
    rank=12,
)
def np_edf_demand(problem: Problem) -> Answer:
    """Demand and the longest region of a job due later fit every interval.

    George, Rivierre, Spuri, "Preemptive and non-preemptive real-time uniprocessor scheduling", INRIA RR-2966 1996,
    theorem 14 (no preemption); regions after Baruah.
    """
    # The blocking job is one that began just before: some phasing of sporadic tasks has it, a given one need not.
    return _demand_fits(problem, exact=problem.preemption == "none" and is_sporadic(problem.tasks))


_INTERVALS = 100_000
"""Intervals examined before Jeffay's test is abandoned."""


@published(
    "non-preemptive EDF",
    "Jeffay, Stanat, Martel, RTSS 1991",
    Scope(("edf",), preemption=("none",), deadlines="equal"),
    rank=11,
)
def np_edf_jeffay(problem: Problem) -> Answer:
    """U <= 1 and, for every task i and T_1 < L < T_i, L >= C_i + sum of floor((L - 1) / T_j) C_j.

    Jeffay, Stanat, Martel, "On non-preemptive scheduling of periodic and sporadic tasks", RTSS 1991: sporadic tasks
    miss a deadline if not; periodic ones do in some phases.
    """
    if problem.utilisation > 1:
        return Answer(False, note=f"utilisation {float(problem.utilisation):.4f} is over 1")
    tasks = sorted(problem.tasks, key=lambda task: task.period_ns)
    for index, task in enumerate(tasks):
        # Demand steps just after multiples of periods, the only points where the condition can start to fail.
        shorter = [other.period_ns for other in tasks[:index] if other.period_ns < task.period_ns]
        steps: Iterable[int] = merge(*(range(period + 1, task.period_ns, period) for period in shorter))
        for step, length in enumerate(steps):
            if step > _INTERVALS:
                return Answer(None, note=f"more than {_INTERVALS} intervals to check")
            rows = [(other.name, (length - 1) // other.period_ns * other.wcet_ns) for other in tasks[:index]]
            need = task.wcet_ns + sum(value for _, value in rows)
            if need > length:
                terms = ((f"{task.name}, begun just before", task.wcet_ns), *(row for row in rows if row[1]))
                note = f"demand {need} ns in an interval of {length} ns"
                return Answer(False if is_sporadic(tasks) else None, terms=terms, note=note)
    return deadlines_met(problem, note="both conditions hold")


WORK = 5_000_000
"""Task pairs at arrivals examined before bounds are abandoned (some seconds)."""


class _Rival(NamedTuple):
    """Another task (ns); the inner loop reads it millions of times."""

    wcet: int
    period: int
    deadline: int
    jitter: int
    segment: int


_NONE = Busy(0, 0, 0, 0)


def response_rows(problem: Problem, work: int | None = None) -> Iterator[Row]:
    """Yield the response of every task, None where there are more than `work` arrivals times tasks to examine."""
    found = Responses.of(problem, work)
    for number, (task, (value, _)) in enumerate(zip(problem.tasks, found.answers, strict=True)):
        yield task, value, with_jitter(task, found.terms(number)) if value is not None else ()


@dataclass(frozen=True, slots=True)
class Responses:
    """The responses of a processor's tasks (ns, None: too many arrivals), each with the busy period that it ends."""

    tasks: Sequence[PeriodicTask]
    segments: Mapping[str, int]
    whole: bool
    answers: Sequence[tuple[int | None, Busy]]

    @staticmethod
    def of(problem: Problem, work: int | None = None) -> Responses:
        """Return the responses, None where there are more than `work` arrivals times tasks to examine."""
        empty = Responses.to_come(problem)
        rows = [(t.wcet_ns, t.period_ns, t.deadline_ns, t.jitter_ns, empty.segments[t.name]) for t in problem.tasks]
        answers = native_answers(rows, empty.whole, work or WORK)
        if answers is None:
            answers = list(_answers(problem, empty.segments, work or WORK))
        return replace(empty, answers=answers)

    @staticmethod
    def to_come(problem: Problem) -> Responses:
        """Return the responses without any answer yet."""
        segments = {task.name: task.segment for task in _demand_tasks(problem)}
        return Responses(problem.tasks, segments, problem.preemption == "none", ())

    def terms(self, number: int) -> Terms:
        """Return the terms of a response, but for the release jitter."""
        value, busy = self.answers[number]
        if value is None or value < 0:
            return ()
        task = self.tasks[number]
        return _terms(task, [other for other in self.tasks if other is not task], self.segments, busy, self.whole)


def native_answers(
    rows: Sequence[tuple[int, int, int, int, int]], whole: bool, work: int
) -> Sequence[tuple[int | None, Busy]] | None:
    """Return the answers of a processor as `edf_answers`, None where its utilisation has to be summed exactly too."""
    used = sum(wcet / period for wcet, period, *_ in rows)
    if abs(used - 1) < _NEAR:
        return None
    return [(None, _NONE)] * len(rows) if used > 1 else edf_answers(rows, whole, work, _STEPS)


def _answers(problem: Problem, segments: Mapping[str, int], work: int) -> Iterator[tuple[int | None, Busy]]:
    busy = _busy_period(problem)
    whole = problem.preemption == "none"
    arrivals = sum((busy or 0) // task.period_ns + 1 for task in problem.tasks)
    for task in problem.tasks:
        others = [other for other in problem.tasks if other is not task]
        if busy is None or arrivals * len(problem.tasks) ** 2 > work:
            yield None, _NONE
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
        yield worst, longest


def _arrivals(task: PeriodicTask, others: list[PeriodicTask], busy: int) -> set[int]:
    """Return the arrivals of `task` (others release at 0, with maximal jitter) that can have the longest response.

    Spuri: those at which its deadline coincides with one of another task's jobs, or of its own.
    """
    instants = set(range(-task.jitter_ns, busy, task.period_ns))
    for other in others:
        first = other.deadline_ns - other.jitter_ns - task.deadline_ns
        skip = max(ceil_div(-task.jitter_ns - first, other.period_ns), 0)
        instants.update(range(first + skip * other.period_ns, busy, other.period_ns))
    return instants


def _busy(task: PeriodicTask, rivals: Sequence[_Rival], arrival: int, whole: bool, before: Busy) -> Busy:
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
            return Busy(arrival, blocked, length, earlier)
        length = longer


def _value(task: PeriodicTask, busy: Busy, whole: bool) -> int:
    finish = busy.length + (task.wcet_ns if whole else 0)
    return max(finish - busy.arrival, task.jitter_ns + task.wcet_ns)


def _terms(
    task: PeriodicTask, others: Sequence[PeriodicTask], segments: Mapping[str, int], busy: Busy, whole: bool
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


@published(
    "EDF response times",
    "Spuri, INRIA RR-2772 1996; George, Rivierre, Spuri, INRIA RR-2966 1996",
    Scope(("edf",), preemption=("full", "limited", "none"), takes=frozenset({"jitter"})),
    exact=True,
    rank=10,
)
def edf_response(problem: Problem) -> Answer:
    """Every job of a deadline busy period: jobs due no later than it, within its window; exact without blocking.

    Spuri, "Analysis of deadline scheduled real-time systems", INRIA RR-2772 1996 (preemptive, jitter); George,
    Rivierre, Spuri, "Preemptive and non-preemptive real-time uniprocessor scheduling", INRIA RR-2966 1996 (without
    preemption a job that has started is not delayed).
    """
    return responses(response_rows(problem), exact=problem.preemption == "full")


@published(
    "FIFO response times",
    "Spuri, INRIA RR-2772 1996, with one deadline for all; George & Minet, ICDCS 1997",
    Scope(("fifo",), preemption=("full", "limited", "none")),
    rank=13,
)
def fifo(problem: Problem) -> Answer:
    """Jobs in order of release, which is EDF with D_i = D for all i; ties are assumed to go against a task.

    Spuri, INRIA RR-2772 1996; FIFO by itself: George & Minet, "A FIFO worst case analysis for a hard real-time
    distributed problem with consistency constraints", ICDCS 1997.
    """
    due = max(task.deadline_ns for task in problem.tasks)
    policy = replace(problem.policy, rule="edf", preemptive=True)  # no later release goes first
    tasks = tuple(replace(task, deadline_ns=due, regions_ns=(), longest_region_ns=0) for task in problem.tasks)
    alike = replace(problem, taskset=replace(problem.taskset, policy=policy), tasks=tasks)
    return for_tasks_of(problem, response_rows(alike))
