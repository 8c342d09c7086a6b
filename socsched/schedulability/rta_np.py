"""Fixed priorities without preemption: response times with jitter, checking every job of the busy period.

Davis, Burns, Bril, Lukkien, "Controller Area Network (CAN) schedulability analysis: refuted, revisited and revised",
Real-Time Systems 35 2007: once a job has started, nothing delays it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from socsched.schedulability.rta_fp import Terms, ceil_div, response_terms
from socsched.schedulability.tasks import RtTask


def response_time(
    task: RtTask,
    higher: Sequence[RtTask],
    jitter: Mapping[str, int],
    blocking: tuple[str, int],
    limit: int,
    last: int | None = None,
) -> tuple[int, bool, Terms]:
    """Return (response after the nominal release, whether it is a bound, terms that add up to it minus its jitter).

    `last` is the final part of the job, which nothing delays once begun; by default the whole job.  `jitter` covers
    `task` and `higher`; unbounded if busy period or start exceeds `limit`.
    """
    busy = _busy_period(task, higher, jitter, blocking[1], limit)
    frames = max(ceil_div(min(busy, limit) + jitter[task.name], task.period), 1)
    worst: tuple[int, bool, Terms] = (-1, True, ())
    start, last = 0, task.wcet if last is None else last
    for frame in range(frames):
        before = frame * task.wcet + task.wcet - last
        start, terms = _start(before, higher, jitter, blocking[1], start, limit)
        value = jitter[task.name] + start + last - frame * task.period
        if value > worst[0]:
            worst = (value, worst[1], response_terms(task, terms, blocking, frame))
        if start > limit:
            return value, False, response_terms(task, terms, blocking, frame)
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
        # A job of higher priority that arrives at the instant of the start still goes first.
        terms = tuple(
            (f"interference by {t.name}", ((start + jitter[t.name]) // t.period + 1) * t.wcet) for t in higher
        )
        later = blocking + before + sum(value for _, value in terms)
        if later <= start or later > limit:
            return later, terms
        start = later
