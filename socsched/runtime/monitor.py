"""Watches a run from outside for jobs that overrun or hang, and for queues that only grow.

One thread samples the state a few times per period and never touches the path of a job.  Deadline misses are detected
where jobs end, and here for jobs that have not ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise

from socsched.planning.plan import Plan, Task
from socsched.runtime.activation import Activation
from socsched.runtime.dispatch import Dispatcher
from socsched.trace.trace import Instant
from socsched.units import format_duration

_LOOKS = 16
"""Samples in the shortest period."""
_LEAST_NS, _MOST_NS = 1_000_000, 20_000_000
_GROWN = 3
"""Consecutive periods in which a queue must have grown to be reported."""
_PATIENCE_NS = 10_000_000_000


def hang_limit(task: Task, replaceable: bool, given_ns: int = 0) -> int:
    """Return the time in ns after which a running job counts as hanging.

    With a failover plan the limit is less than a period, so that this plan takes over within two periods; without one,
    a short limit gains nothing.
    """
    if given_ns:
        return given_ns
    if replaceable:
        return max(task.period_ns * 7 // 8, task.wcet_ns * 5 // 4)
    return max(10 * task.period_ns, 10 * task.wcet_ns, _PATIENCE_NS)


class Monitor:
    """The monitor thread; a context manager.

    `current` returns the active dispatcher, `state` guards it.  `hung` is called for a job beyond its limit, with the
    guard held.  `origin_ns` is the monotonic time of the trace's zero.  `also` is called after every sample.
    """

    def __init__(
        self,
        plan: Plan,
        current: Callable[[], Dispatcher],
        state: AbstractContextManager[object],
        origin_ns: int,
        hung: Callable[[Activation, int, str], None],
        limit: Callable[[Task], int],
        also: Callable[[], None] = lambda: None,
    ) -> None:
        self._current, self._state, self._origin, self._hung, self._limit = current, state, origin_ns, hung, limit
        shortest = min((task.period_ns for task in plan.tasks), default=10**8)
        self.interval_ns = min(max(shortest // _LOOKS, _LEAST_NS), _MOST_NS)
        self._also = also
        self._reported: set[tuple[str, str, int]] = set()
        self._overruns: dict[str, int] = {}
        self._depths: dict[str, list[tuple[int, int]]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)

    def __enter__(self) -> Monitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.wait(self.interval_ns / 1e9):
            with self._state:
                self.look(time.monotonic_ns())
            self._also()

    def look(self, monotonic_ns: int) -> None:
        """Sample all running jobs and queues once; the guard is held."""
        dispatcher, now = self._current(), monotonic_ns - self._origin
        running = list(dispatcher.running.values())
        if self._reported:
            jobs = {(act.task.name, act.job.frame) for act in running}
            self._reported = {key for key in self._reported if key[1:] in jobs}
        for act in running:
            if act.begun_ns >= 0 and not act.void:
                self._watch(dispatcher, act, monotonic_ns - act.begun_ns, now)
        self._queues(dispatcher, now)

    def _watch(self, dispatcher: Dispatcher, act: Activation, lasted: int, now: int) -> None:
        task, name = act.task, act.task.name
        if lasted > self._limit(task):
            self._hung(
                act, now, f"{name} has run for {format_duration(lasted)}, {format_duration(task.wcet_ns)} planned"
            )
            return
        if lasted > task.wcet_ns and self._first("overrun", name, act.job.frame):
            self._overruns[name] = self._overruns.get(name, 0) + 1
            steps = dispatcher.trace.counters.setdefault(f"overruns.{name}", [(0, 0.0)])
            steps.append((now, float(self._overruns[name])))
            if task.high_ns:
                dispatcher.overran(act, now)
        if now > act.job.deadline_ns and self._first("late", name, act.job.frame):
            text = "still running at its deadline"
            dispatcher.trace.instants.append(Instant(now, "late", name, act.job.frame, text))

    def _first(self, what: str, task: str, frame: int) -> bool:
        """Return whether this is the first report about a job."""
        key = (what, task, frame)
        if key in self._reported:
            return False
        self._reported.add(key)
        return True

    def _queues(self, dispatcher: Dispatcher, now: int) -> None:
        """Report a queue that was deeper at the end of each of `_GROWN` periods than at the end of the one before."""
        for name, task in dispatcher.tasks.items():
            seen = self._depths.setdefault(name, [(now, dispatcher.waiting(name))])
            if now - seen[-1][0] < task.period_ns:
                continue
            seen.append((now, dispatcher.waiting(name)))
            del seen[: -_GROWN - 1]
            depths = [depth for _, depth in seen]
            if len(depths) == _GROWN + 1 and all(a < b for a, b in pairwise(depths)):
                text = f"its queue grew from {depths[0]} to {depths[-1]} in {_GROWN} periods"
                dispatcher.trace.instants.append(Instant(now, "overload", name, -1, text))
