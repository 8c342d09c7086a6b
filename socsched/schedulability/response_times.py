"""Fixed priorities: response times of one task with release jitter, arbitrary deadlines and blocking; gangs.

One processor: Joseph & Pandya, The Computer Journal 29(5) 1986; several jobs in a busy period, Lehoczky, RTSS 1990;
release jitter, Tindell, Burns, Wellings, RTS 6(2) 1994; blocking by one segment of lower priority.  Gangs: a job waits
only while a job of higher priority holds one of its lanes (greedy dispatching, fixed lanes), so the interference of all
such tasks is summed, each with the carry-in R - C (Bertogna & Cirinei, RTSS 2007, workload bound).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy

import numpy as np

from socsched.schedulability.tasks import RtTask, Terms, ceil_div

Interference = Callable[[int], Terms]
"""Window length (ns) -> the most other tasks execute in it, by task."""
_MANY = 32
"""Tasks from which on their interference is summed as an array."""


class Classic:
    """The interference of higher-priority tasks on the same lanes; each arrival costs one context switch."""

    def __init__(self, higher: Sequence[RtTask], jitter: Mapping[str, int]) -> None:
        self._rows = [(f"interference by {t.name}", jitter[t.name], t.period, t.wcet + t.switch) for t in higher]
        self._arrays = np.array([row[1:] for row in self._rows]).T if len(higher) >= _MANY else None
        self._most = 0.0  # window (ns) up to which sums are sure to fit 64 bits
        if self._arrays is not None and self._arrays.dtype == np.int64:
            late, period, cost = self._arrays.astype(np.float64)
            self._most = (2.0**61 - cost.sum()) / max((cost / period).sum(), 1.0) - late.max()

    def first(self, count: int) -> Classic:
        """Return the interference by the first `count` of the tasks alone."""
        part = copy(self)
        part._rows = self._rows[:count]
        part._arrays = None if self._arrays is None or count < _MANY else self._arrays[:, :count]
        return part

    def __call__(self, window: int) -> Terms:
        """Return the interference in a window (ns) by task."""
        return tuple((name, ceil_div(window + late, period) * cost) for name, late, period, cost in self._rows)

    def total(self, window: int) -> int:
        """Return the interference (ns) in a window (ns)."""
        if self._arrays is not None and window < self._most:
            late, period, cost = self._arrays
            return int((-(-(window + late) // period) * cost).sum())
        return sum(ceil_div(window + late, period) * cost for _, late, period, cost in self._rows)


def gang(
    task: RtTask, sharing: Sequence[RtTask], connected: Sequence[RtTask], finish: Mapping[str, int]
) -> Interference:
    """Return the interference on fixed, partly shared lanes.

    `sharing` are the tasks that can keep `task` from a lane; `connected` those of higher priority anywhere in its
    component.  Every arrival or completion of a `connected` job preempts at most one job on each lane of `task`.
    """

    def jobs(other: RtTask, window: int) -> int:
        return ceil_div(window + max(finish[other.name] - other.wcet, 0), other.period)

    def terms(window: int) -> Terms:
        found = [(f"interference by {t.name}", jobs(t, window) * t.wcet) for t in sharing]
        events = 2 * sum(jobs(t, window) for t in connected)
        return (*found, ("context switches", events * len(task.lanes) * task.switch))

    return terms


def preemptive(
    task: RtTask, interference: Interference, blocking: tuple[str, int], jitter: int, limit: int
) -> tuple[int, bool, Terms]:
    """Return (response after the nominal release, whether it is a bound, terms that add up to it minus `jitter`).

    Unbounded as soon as a window exceeds `limit`.
    """
    worst: tuple[int, bool, Terms] = (-1, True, ())
    frame, window = 0, 0
    while True:
        window, terms = _window(task, interference, blocking[1], frame, window, limit)
        value = jitter + window - frame * task.period
        if value > worst[0]:
            worst = (value, True, with_own(task, terms, blocking, frame))
        if window > limit:
            return value, False, with_own(task, terms, blocking, frame)
        if window <= (frame + 1) * task.period - jitter:
            return worst
        frame += 1


def _window(
    task: RtTask, interference: Interference, blocking: int, frame: int, start: int, limit: int
) -> tuple[int, Terms]:
    window = max(start, blocking + (frame + 1) * task.wcet)
    while True:
        if isinstance(interference, Classic):
            found = interference.total(window)
        else:
            found = sum(value for _, value in interference(window))
        longer = blocking + (frame + 1) * task.wcet + found
        if longer <= window or longer > limit:
            return longer, interference(window)
        window = longer


def with_own(task: RtTask, interference: Terms, blocking: tuple[str, int], frame: int) -> Terms:
    """Return the terms of the response of job `frame` of a busy period, without jitter; zeros are omitted."""
    own = [("wcet", task.wcet)]
    if frame:
        own.append((f"{frame} earlier frames of its own, less their periods", frame * (task.wcet - task.period)))
    if blocking[1]:
        own.append((f"blocking by {blocking[0]}", blocking[1]))
    return (*own, *((name, value) for name, value in interference if value))


def until_start(
    task: RtTask,
    higher: Sequence[RtTask],
    jitter: Mapping[str, int],
    blocking: tuple[str, int],
    limit: int,
    last: int,
) -> tuple[int, bool, Terms]:
    """Return (response after the nominal release, whether it is a bound, terms that add up to it minus its jitter).

    Every job of the busy period up to the start of its `last` part (ns), which nothing delays once begun (Davis, Burns,
    Bril, Lukkien, "Controller Area Network (CAN) schedulability analysis: refuted, revisited and revised", Real-Time
    Systems 35 2007).  `jitter` covers `task` and `higher`; unbounded if busy period or start exceeds `limit`.
    """
    busy = _busy_period(task, higher, jitter, blocking[1], limit)
    frames = max(ceil_div(min(busy, limit) + jitter[task.name], task.period), 1)
    worst: tuple[int, bool, Terms] = (-1, True, ())
    start = 0
    for frame in range(frames):
        before = frame * task.wcet + task.wcet - last
        start, terms = _start(before, higher, jitter, blocking[1], start, limit)
        value = jitter[task.name] + start + last - frame * task.period
        if value > worst[0]:
            worst = (value, worst[1], with_own(task, terms, blocking, frame))
        if start > limit:
            return value, False, with_own(task, terms, blocking, frame)
    return worst[0], busy <= limit, worst[2]


def _busy_period(task: RtTask, higher: Sequence[RtTask], jitter: Mapping[str, int], blocking: int, limit: int) -> int:
    length = blocking + task.wcet
    while length <= limit:
        longer = blocking + sum(ceil_div(length + jitter[t.name], t.period) * t.wcet for t in (*higher, task))
        if longer <= length:
            return longer
        length = longer
    return length


def _start(
    before: int, higher: Sequence[RtTask], jitter: Mapping[str, int], blocking: int, at: int, limit: int
) -> tuple[int, Terms]:
    start = max(at, blocking + before)
    while True:
        terms = before_start(higher, jitter, start)
        later = blocking + before + sum(value for _, value in terms)
        if later <= start or later > limit:
            return later, terms
        start = later


def before_start(higher: Sequence[RtTask], jitter: Mapping[str, int], start: int) -> Terms:
    """Return the interference before a job's start (ns): one that arrives at that instant still goes first."""
    return tuple((f"interference by {t.name}", ((start + jitter[t.name]) // t.period + 1) * t.wcet) for t in higher)
