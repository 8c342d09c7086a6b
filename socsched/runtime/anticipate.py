"""Ready when the next job comes: what is released by the clock, and what follows a job that is running.

A release is known beforehand, the end of a job from the shortest time it took of late.  A worker is told to be awake a
little before, for `awake_ns` at most, unless somebody else has its lanes; see `parking`.  The thread that releases goes
through the motions once on books nobody reads: the code and tables of the executor have left the caches since the last
time, and fetching them back takes longer than what they are for.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping
from typing import TYPE_CHECKING

from socsched.runtime.dispatch import Dispatcher
from socsched.runtime.version import Version
from socsched.trace.trace import Trace

if TYPE_CHECKING:
    from socsched.runtime.worker import Worker

REHEARSAL_NS = 400_000
"""How long before a release its rehearsal begins: several times what it takes."""
LEAD_NS = 150_000
"""How long before: what a sleeping processor needs to be up, on a virtual machine too."""
AUTO_NS = 300_000
"""How long workers stay awake for a job where their processors are theirs."""
_FORGET = 64
"""A shortest time seen gains one part in this many with every job that took longer."""


class Anticipation:
    """What is expected in a version of a plan; `awake_ns` 0: nothing.

    Workers without processors of their own are left alone.  Seats are looked at without the guard: a mistake costs a
    wake-up.
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
        """Expect what follows a sensor or is a timer at a moment (monotonic ns); return the processors kept awake."""
        kept: set[int] = set()
        for worker, seats in self._waiting.get(source, ()):
            if not any(seat in taken for seat in seats):
                worker.expect(at_ns - LEAD_NS, at_ns + self._awake)
                kept |= worker.cpus
        return kept

    def began(self, task: str, now_ns: int, taken: Container[Hashable]) -> None:
        """Expect what follows a job that begins now."""
        if task in self._waiting and (shortest := self._shortest.get(task)):
            self.released(task, now_ns + shortest, taken)

    def ended(self, task: str, lasted_ns: int) -> None:
        """Take note of how long a job took."""
        before = self._shortest.get(task, lasted_ns)
        self._shortest[task] = min(lasted_ns, before + before // _FORGET)


class Rehearsal:
    """The release of a frame and the start of its first jobs, without consequences.  Used by one thread."""

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
