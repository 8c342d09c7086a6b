"""The next event of every event source, soonest first: an indexed binary heap without allocation.

Each of `n` sources has at most one pending event.  Events at the same instant are ordered by source number, which makes
a simulation repeatable: the numbering is part of the simulator's semantics (`kernel.Kernel`).
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
    """Pending events as a heap: instants `times` (ns) of sources `heap`, the next at 0; `times[0]` is FAR if none is.

    `position[source]` is the heap index of its event, -1 if none is pending.
    """

    def __init__(self, sources: i64) -> None:
        super().__init__()
        self.times = self.fill(sources + 1, FAR)
        self.heap = self.fill(sources + 1, 0)
        self.position = self.fill(sources, -1)
        self.count = 0

    def set(self, source: i64, time: i64) -> None:
        """Schedule the event of `source` at `time`, replacing any pending one; `FAR` cancels it."""
        index: i64 = self.position[source]
        if index < 0:
            if time < FAR:
                self.count += 1
                self.sift_up(self.count - 1, source, time)
        elif time >= FAR:
            self.remove(index)
        elif time < self.times[index]:
            self.sift_up(index, source, time)
        else:
            self.sift_down(index, source, time)

    def remove(self, index: i64) -> None:
        """Remove an event and move the last one of the heap into its place."""
        self.position[self.heap[index]] = -1
        self.count -= 1
        source: i64 = self.heap[self.count]
        time: i64 = self.times[self.count]
        self.times[self.count] = FAR
        if index < self.count:
            if time < self.times[index]:
                self.sift_up(index, source, time)
            else:
                self.sift_down(index, source, time)

    def sift_up(self, index: i64, source: i64, time: i64) -> None:
        """Move an event up from `index` to its position."""
        while index > 0:
            above: i64 = (index - 1) >> 1
            if self.times[above] < time or (self.times[above] == time and self.heap[above] < source):
                break
            self.times[index] = self.times[above]
            self.heap[index] = self.heap[above]
            self.position[self.heap[index]] = index
            index = above
        self.times[index] = time
        self.heap[index] = source
        self.position[source] = index

    def sift_down(self, index: i64, source: i64, time: i64) -> None:
        """Move an event down from `index` to its position."""
        while True:
            below: i64 = 2 * index + 1
            if below >= self.count:
                break
            # FAR follows the last event, so that a right-hand neighbour always exists for comparison
            if self.times[below + 1] < self.times[below] or (
                self.times[below + 1] == self.times[below] and self.heap[below + 1] < self.heap[below]
            ):
                below += 1
            if self.times[below] > time or (self.times[below] == time and self.heap[below] > source):
                break
            self.times[index] = self.times[below]
            self.heap[index] = self.heap[below]
            self.position[self.heap[index]] = index
            index = below
        self.times[index] = time
        self.heap[index] = source
        self.position[source] = index
