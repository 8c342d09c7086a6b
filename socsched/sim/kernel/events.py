"""The next event of every source of events, soonest first: an indexed binary heap without allocation.

Each of `n` sources has at most one event to come.  Events at the same instant are ordered by the source's number, which
is what makes a simulation repeatable: the numbering is part of the simulator's meaning (`kernel.Kernel`).
"""

from __future__ import annotations

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.codes import FAR
    from cython.cimports.socsched_kernel.columns import Columns
else:
    from .codes import FAR
    from .columns import Columns


class EventQueue(Columns):
    """Pending events as a heap: instants `times` (ns) of sources `heap`, the next at 0; `times[0]` is FAR when none is.

    `place[source]` is where in the heap its event is, -1 when it expects none.
    """

    def __init__(self, sources: i64) -> None:
        super().__init__()
        self.times = self.fill(sources + 1, FAR)
        self.heap = self.fill(sources + 1, 0)
        self.place = self.fill(sources, -1)
        self.count = 0

    def set(self, source: i64, time: i64) -> None:
        """Expect the event of `source` at `time` instead of when it was expected; `FAR` for never."""
        place: i64 = self.place[source]
        if place < 0:
            if time < FAR:
                self.count += 1
                self.rise(self.count - 1, source, time)
        elif time >= FAR:
            self.remove(place)
        elif time < self.times[place]:
            self.rise(place, source, time)
        else:
            self.sink(place, source, time)

    def remove(self, place: i64) -> None:
        """Take an event out and let the last one of the heap fill its place."""
        self.place[self.heap[place]] = -1
        self.count -= 1
        source: i64 = self.heap[self.count]
        time: i64 = self.times[self.count]
        self.times[self.count] = FAR
        if place < self.count:
            if time < self.times[place]:
                self.rise(place, source, time)
            else:
                self.sink(place, source, time)

    def rise(self, place: i64, source: i64, time: i64) -> None:
        """Put an event at `place` or as far above as it belongs."""
        while place > 0:
            above: i64 = (place - 1) >> 1
            if self.times[above] < time or (self.times[above] == time and self.heap[above] < source):
                break
            self.times[place] = self.times[above]
            self.heap[place] = self.heap[above]
            self.place[self.heap[place]] = place
            place = above
        self.times[place] = time
        self.heap[place] = source
        self.place[source] = place

    def sink(self, place: i64, source: i64, time: i64) -> None:
        """Put an event at `place` or as far below as it belongs."""
        while True:
            below: i64 = 2 * place + 1
            if below >= self.count:
                break
            # beyond the last event stands FAR, so that there is always a right-hand neighbour to compare with
            if self.times[below + 1] < self.times[below] or (
                self.times[below + 1] == self.times[below] and self.heap[below + 1] < self.heap[below]
            ):
                below += 1
            if self.times[below] > time or (self.times[below] == time and self.heap[below] > source):
                break
            self.times[place] = self.times[below]
            self.heap[place] = self.heap[below]
            self.place[self.heap[place]] = place
            place = below
        self.times[place] = time
        self.heap[place] = source
        self.place[source] = place
