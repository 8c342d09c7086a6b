"""Waking workers ahead of expected jobs: time-triggered releases, and successors of running jobs.

Release times are known in advance; the end of a job is predicted from its shortest recent execution time.  A worker is
woken shortly before and stays awake for at most `awake_ns`, unless another job holds its lanes; see `parking`.  The
release thread first rehearses the release on a throw-away dispatcher: the executor's code and tables have been evicted
from the caches since the last release, and refetching them takes longer than using them.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping
from typing import TYPE_CHECKING

from socsched.runtime.dispatch import Dispatcher
from socsched.runtime.plan_instance import Version
from socsched.trace.trace import Trace

if TYPE_CHECKING:
    from socsched.runtime.worker import Worker

REHEARSAL_NS = 400_000
"""Time before a release at which its rehearsal begins: several times its duration."""
LEAD_NS = 150_000
"""Lead time of a wake-up: enough for a sleeping core to become ready, even on a virtual machine."""
AUTO_NS = 300_000
"""Time workers stay awake for a job if they own their cores."""
_FORGET = 64
"""The recorded shortest time grows by 1/`_FORGET` with every longer job."""


class Anticipation:
    """Expected jobs in a version of a plan; with `awake_ns` 0, none are expected.

    Workers that are not pinned to cores are left alone.  Seats are read without the guard: a mistake costs only a
    needless wake-up.
    """

    def __init__(self, version: Version, awake_ns: int) -> None:
        self._awake = awake_ns
        self._shortest: dict[str, int] = {}
        self._waiting: dict[str, list[tuple[Worker, tuple[Hashable, ...]]]] = {}
        if not awake_ns or version.rules.name != "event-chained":
            return
        for key, crew in version.rules.crews().items():
            if not (worker := version.workers[key]).pinned:
                continue
            seats, own = tuple((key[0], lane) for lane in key[1]), {task.name for task in crew.tasks}
            for task in crew.tasks:
                for name in (task.name,) if task.timer else {*task.after} - own:
                    if task.name not in version.chained.get(name, ()):
                        self._waiting.setdefault(name, []).append((worker, seats))

    def released(self, source: str, at_ns: int, taken: Container[Hashable]) -> set[int]:
        """Expect the jobs that a sensor or timer releases at `at_ns` (monotonic); return the cores kept awake."""
        kept: set[int] = set()
        for worker, seats in self._waiting.get(source, ()):
            if not any(seat in taken for seat in seats):
                worker.expect(at_ns - LEAD_NS, at_ns + self._awake)
                kept |= worker.cpus
        return kept

    def began(self, task: str, now_ns: int, taken: Container[Hashable]) -> None:
        """Expect the successors of a job that begins now."""
        if task in self._waiting and (shortest := self._shortest.get(task)):
            self.released(task, now_ns + shortest, taken)

    def ended(self, task: str, lasted_ns: int) -> None:
        """Record the execution time of a job."""
        before = self._shortest.get(task, lasted_ns)
        self._shortest[task] = min(lasted_ns, before + before // _FORGET)


class Rehearsal:
    """A dry run of a frame's release and the start of its first jobs.  Used by one thread only."""

    def __init__(self, version: Version, needs: Mapping[str, set[str]]) -> None:
        self._trace = Trace("rehearsed", 0, 0)
        self._books = Dispatcher(version.plan, needs, self._trace, version.rules)

    def of(self, source: str, now_ns: int) -> None:
        """Release a frame of a sensor or timer, and end the jobs that start with it."""
        books, trace = self._books, self._trace
        books.release(source, 0, now_ns, now_ns, {})
        for act in books.start(now_ns):
            books.ended(act, now_ns, now_ns, {})
        books.close(now_ns)
        for rows in (trace.jobs, trace.slices, trace.instants):
            rows.clear()
        trace.releases.clear()
        trace.counters.clear()
