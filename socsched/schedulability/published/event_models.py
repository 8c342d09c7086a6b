"""Fixed priorities over event streams: releases with jitter, but never closer than a minimum distance.

Henia et al., "System level performance analysis - the SymTA/S approach", IEE Proceedings - Computers and Digital
Techniques 2005: local busy windows under static priorities, and streams whose jitter grows by the spread of responses
from task to task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    Terms,
    endless,
    responses,
    with_jitter,
)
from socsched.schedulability.rta_fp import ceil_div

LONGEST = 10_000
"""Activations in a busy window after which the search is abandoned."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Events every `period`, each up to `jitter` late, never closer than `distance` (ns)."""

    period: int
    jitter: int = 0
    distance: int = 0

    def most(self, window: int) -> int:
        """Return the largest number of events in a window."""
        if window <= 0:
            return 0
        many = ceil_div(window + self.jitter, self.period)
        return min(many, ceil_div(window, self.distance)) if self.distance else many

    def closest(self, count: int) -> int:
        """Return the shortest time span of `count` events."""
        return max((count - 1) * self.period - self.jitter, (count - 1) * self.distance, 0)


@dataclass(frozen=True, slots=True)
class Activated:
    """A task on one processor: shortest and longest execution time (ns) and what activates it."""

    bcet: int
    wcet: int
    stream: Stream


@dataclass(frozen=True, slots=True)
class Local:
    """Response from activation (shortest, longest), busy windows of 0, 1, ... activations, and the output stream."""

    best: int
    worst: int
    windows: tuple[int, ...]
    out: Stream


def respond(task: Activated, higher: Sequence[Activated]) -> Local | None:
    """Return the local result of a task under preemptive static priorities, None if its busy window does not end."""
    windows, worst = [0], 0
    while len(windows) <= LONGEST:
        count = len(windows)
        window = _window(task, higher, count, windows[-1])
        if window is None:
            return None
        windows.append(window)
        worst = max(worst, window - task.stream.closest(count))
        if window <= task.stream.closest(count + 1):
            # Responses differ by worst - best, so outputs may come that much later than inputs.
            jitter = task.stream.jitter + worst - task.bcet
            return Local(task.bcet, worst, tuple(windows), Stream(task.stream.period, jitter, task.bcet))
    return None


def _window(task: Activated, higher: Sequence[Activated], count: int, start: int) -> int | None:
    window = max(start, count * task.wcet)
    while window <= LONGEST * task.stream.period:
        longer = count * task.wcet + sum(other.stream.most(window) * other.wcet for other in higher)
        if longer <= window:
            return longer
        window = longer
    return None


def _activated(task: PeriodicTask) -> Activated:
    return Activated(task.bcet_ns, task.wcet_ns, Stream(task.period_ns, task.jitter_ns, task.distance_ns))


def run(problem: Problem) -> Answer:
    """Return the response of every task from its arrival, over all activations of its busy window."""
    found: list[tuple[PeriodicTask, int | None, Terms]] = []
    for task, higher, _ in problem.by_rank():
        others = [_activated(other) for other in higher]
        local = None if endless(task, higher, 0) else respond(_activated(task), others)
        if local is None:
            found.append((task, None, ()))
            continue
        late = [window - index * task.period_ns for index, window in enumerate(local.windows[1:])]
        worst = late.index(max(late))
        window = local.windows[worst + 1]
        terms = [("wcet", task.wcet_ns), ("earlier frames of its own, less their periods", late[worst] - window)]
        terms[1] = (terms[1][0], terms[1][1] + worst * task.wcet_ns)
        terms += [
            (f"interference by {name.name}", other.stream.most(window) * other.wcet)
            for name, other in zip(higher, others, strict=True)
        ]
        value = task.jitter_ns + late[worst]
        found.append((task, value, with_jitter(task, tuple(term for term in terms if term[1]))))
    return responses(found, exact=False)


def _streams(problem: Problem) -> str:
    return "" if any(task.distance_ns for task in problem.tasks) else "no task has a least distance of releases"


TEST = SchedulabilityTest(
    "event streams",
    "Henia et al., IEE Proceedings - Computers and Digital Techniques 2005, local analysis",
    Scope(takes=frozenset({"jitter"})),
    run,
    also=_streams,
    rank=7,
)
