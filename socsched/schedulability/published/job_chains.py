"""Helpers of chain tests with known phases: which job reads which, over repeating schedules.

Günzel, Chen, Ueter, von der Brüggen, Dürr, Chen, "Timing analysis of asynchronized distributed cause-effect chains",
RTAS 2021 (augmented job chains; maximum reaction time and maximum data age, with and without their first or last gap).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import lcm

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.schedulability.published.model import Answer, Bound, Problem

MOST_JOBS = 200_000
REACTION, AGE, REDUCED = "reaction_time", "data_age", "reduced_data_age"
REDUCED_REACTION = "reduced_reaction_time"  # from the read itself, not from just after the previous read
Events = tuple[list[int], list[int]]
"""Instants at which a task's jobs read and write, in order."""


def chain(problem: Problem) -> list[PeriodicTask]:
    """Return the tasks of the chain, in order."""
    return [problem.taskset.tasks[index] for index in problem.taskset.chain]


def hyperperiods(tasks: Sequence[PeriodicTask], every: Sequence[PeriodicTask]) -> tuple[int, int] | None:
    """Return (hyperperiod of `every`, horizon by which the chain has settled), None if that is too long."""
    whole = lcm(*(task.period_ns for task in every))
    offset = max(task.offset_ns for task in every)
    fill = sum(2 * task.period_ns + task.deadline_ns for task in tasks)
    until = offset + 2 * whole + -(-2 * fill // whole) * whole
    jobs = sum(until // task.period_ns for task in every)
    return (whole, until) if jobs <= MOST_JOBS else None


def longest(events: Sequence[Events]) -> dict[str, tuple[int, int, int]]:
    """Return the longest reaction and age, full and reduced, of chains over `events`: (length, from, to).

    The first chains count too: until every task has been released once, a schedule differs from its steady state.
    """
    found: dict[str, tuple[int, int, int]] = {}

    def keep(measure: str, begin: int, end: int) -> None:
        if measure not in found or end - begin > found[measure][0]:
            found[measure] = (end - begin, begin, end)

    reads, writes = events[0]
    for job in range(len(writes)):
        end = _forward(events, writes[job])
        if end is not None:
            keep(REDUCED_REACTION, reads[job], end)
        if end is not None and job:
            keep(REACTION, reads[job - 1], end)  # the cause occurs just after the previous job has read
    outputs = events[-1][1]
    for job in range(len(outputs) - 1):
        begin = _backward(events, events[-1][0][job])
        if begin is not None:
            keep(AGE, begin, outputs[job + 1])
            keep(REDUCED, begin, outputs[job])
    return found


def _forward(events: Sequence[Events], written: int) -> int | None:
    for reads, writes in events[1:]:
        job = bisect_left(reads, written)
        if job >= len(writes):
            return None
        written = writes[job]
    return written


def _backward(events: Sequence[Events], read: int) -> int | None:
    for reads, writes in reversed(events[:-1]):
        job = bisect_right(writes, read) - 1
        if job < 0:
            return None
        read = reads[job]
    return read


def answer(found: dict[str, tuple[int, int, int]]) -> Answer:
    """Return the longest chains as bounds."""
    chains = {
        measure: Bound(value, ((f"from {begin} ns to {end} ns of the schedule", value),))
        for measure, (value, begin, end) in found.items()
    }
    return Answer(None, chain=chains)


def implicit(problem: Problem) -> str:
    """Return why a test of implicit communication does not apply, empty if it does."""
    if problem.taskset.communication != "implicit":
        return "it applies to data that move at the start and end of jobs, here they move at arrival and deadline (let)"
    missing = [task.name for task in chain(problem) if task.name not in problem.responses]
    return f"there is no response-time bound for {', '.join(dict.fromkeys(missing))}" if missing else ""


def in_time(problem: Problem) -> str:
    """Return why a test of implicit communication with jobs ending before the next release does not apply."""
    late = [task.name for task in chain(problem) if problem.responses.get(task.name, 0) > task.period_ns]
    names = ", ".join(dict.fromkeys(late))
    return implicit(problem) or (f"the response of {names} is longer than its period" if late else "")


def logical(problem: Problem) -> str:
    """Return why a test of logical execution times does not apply, empty if it does."""
    if problem.taskset.communication != "let":
        return "it applies to logical execution times (communication: let), here data move at the start and end of jobs"
    late = [
        task.name
        for task in chain(problem)
        if problem.responses.get(task.name, task.deadline_ns + 1) > task.deadline_ns
    ]
    return f"no bound proves that {', '.join(dict.fromkeys(late))} ends by its deadline, when it writes" if late else ""
