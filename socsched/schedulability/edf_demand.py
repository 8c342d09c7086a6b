"""EDF: the processor demand of every interval fits the interval.

Baruah, Rosier, Howell, Real-Time Systems 2 1990 (demand bound); Zhang & Burns, IEEE TC 58(9) 2009 (QPA); release jitter
shortens a task's window (Spuri, INRIA RR-2772 1996); blocking by a segment whose job is due later (Baker, RTS 3 1991;
George, Rivierre, Spuri, INRIA RR-2966 1996).  Gangs on fixed lanes: the interval of each job holds the demand of every
task that shares a lane with it (after Bertogna, Cirinei, Lipari, ECRTS 2005, with intersecting lanes instead of all
processors).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from socsched.schedulability.tasks import ceil_div


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


def busy_period(tasks: Sequence[DemandTask]) -> int | None:
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
    horizon = longest if longest is not None else busy_period(tasks) if tasks else 0
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


def gang_overload(task: DemandTask, sharing: Sequence[DemandTask], switches: int) -> Overload | None:
    """Return the interval of a job of `task` if it can be overfull, else None.

    `sharing` are the tasks that can keep it from a lane; `switches` (ns) all context switches in the interval.  A job
    due within the interval counts with its whole demand, the earliest one with the part that fits after its start.
    """
    terms = [("wcet", task.wcet)]
    for other in sharing:
        terms.append((f"interference by {other.name}", _gang_demand(other, max(task.window, 0))))
    earlier = max(ceil_div(task.window + task.release_jitter, task.period) - 1, 0)
    terms += [("earlier frames of its own", earlier * task.wcet), ("context switches", switches)]
    terms = [term for term in terms if term[1]]
    need = sum(value for _, value in terms)
    return Overload(task.window, need, tuple(terms)) if need > task.window else None


def _gang_demand(task: DemandTask, interval: int) -> int:
    if task.segment:
        # It cannot be preempted at once, so all its work that may run in the interval counts, due within it or not.
        return ceil_div(interval + task.deadline, task.period) * task.wcet
    whole, rest = divmod(interval + task.release_jitter, task.period)
    return whole * task.wcet + min(task.wcet, rest)
