"""The next event of every source of events, soonest first: an indexed binary heap without allocation.

Each of `n` sources has at most one event to come.  Events at the same instant are ordered by the source's number, which
is what makes a simulation repeatable: the numbering is part of the simulator's meaning (`kernel.Kernel`).
"""

from __future__ import annotations

from array import array

from cython import longlong as i64

FAR = 4611686018427387904
"""A time that never comes (2**62 ns)."""


class EventQueue:
    """At most one pending event a source; `first` and `top` answer which is next."""

    def __init__(self, sources: i64) -> None:
        self.at = array("q", [FAR]) * max(sources, 1)
        self.heap = array("q", range(max(sources, 1)))
        self.place = array("q", range(max(sources, 1)))
        self.count = max(sources, 1)

    def first(self) -> i64:
        """Return when the next event is (ns), `FAR` when there is none."""
        return self.at[self.heap[0]]

    def top(self) -> i64:
        """Return whose event is next."""
        return self.heap[0]

    def set(self, source: i64, time: i64) -> i64:
        """Expect the event of `source` at `time` instead of when it was expected; `FAR` for never."""
        before: i64 = self.at[source]
        self.at[source] = time
        if time < before:
            self.rise(source)
        elif time > before:
            self.sink(source)
        return 0

    def rise(self, source: i64) -> i64:
        place: i64 = self.place[source]
        time: i64 = self.at[source]
        above: i64
        other: i64
        while place > 0:
            above = (place - 1) >> 1
            other = self.heap[above]
            if self.at[other] < time or (self.at[other] == time and other < source):
                break
            self.heap[place] = other
            self.place[other] = place
            place = above
        self.heap[place] = source
        self.place[source] = place
        return 0

    def sink(self, source: i64) -> i64:
        place: i64 = self.place[source]
        time: i64 = self.at[source]
        below: i64
        other: i64
        right: i64
        while True:
            below = 2 * place + 1
            if below >= self.count:
                break
            other = self.heap[below]
            if below + 1 < self.count:
                right = self.heap[below + 1]
                if self.at[right] < self.at[other] or (self.at[right] == self.at[other] and right < other):
                    below += 1
                    other = right
            if self.at[other] > time or (self.at[other] == time and other > source):
                break
            self.heap[place] = other
            self.place[other] = place
            place = below
        self.heap[place] = source
        self.place[source] = place
        return 0
