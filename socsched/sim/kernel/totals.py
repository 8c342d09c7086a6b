"""Running figures of a simulation: counts, sums and histograms that do not grow with its length.

A histogram bin holds values that agree in their leading 11 bits: exact below 2048 ns, within 2**-10 above.

Chains.  An occurrence is the position of a task in a chain; those of a task are adjacent.  At an occurrence, `mode`
selects how the frame of the chain's source that a job acts on is found: 0 the job's own number, since data triggers
every stage from the source on; 1 that of the same frame one occurrence before; 2 that of the frame of the producer it
sampled.  If it differs from the job's number, it is kept in a ring for the jobs that follow.
"""

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import bit_length
    from cython.cimports.socsched_kernel.columns import Columns
else:
    from .arithmetic import bit_length
    from .columns import Columns

BINS = cython.declare(cython.longlong, 45056)
PAGE = cython.declare(cython.longlong, 1024)
PAGES = cython.declare(cython.longlong, 44)
"""Total number of bins, bins allocated at once, and pages needed for all of them."""
FRAMES = cython.declare(cython.longlong, 4096)
"""Most frames of a chain in progress; an older one that never arrived counts as missed."""
RING = cython.declare(cython.longlong, 1024)
"""Frames of an occurrence kept for the jobs that follow."""
PENDING = cython.declare(cython.longlong, 0)
LOST = cython.declare(cython.longlong, 1)
ARRIVED = cython.declare(cython.longlong, 2)


def bin_of(value: i64) -> i64:
    """Return the bin of a duration (ns, at least 0)."""
    octave: i64 = bit_length(value) - 11
    if octave <= 0:
        return value
    return octave * 1024 + (value >> octave) if octave <= 42 else BINS - 1


class Histograms(Columns):
    """Histograms in parallel, each with an exact sum and extremes.

    Bins are allocated in pages of PAGE, on the first value: `page[which * PAGES + bin // PAGE]` is the start of a page
    in `bins` (-1: none).  `sum` is the remainder after `carries` times 2**62.
    """

    def __init__(self, count: i64) -> None:
        super().__init__()
        one: i64 = max(count, 1)
        self.arrays = (
            array("q", [-1]) * (PAGES * one), array("q", bytes(8 * one)), array("q", [-1]) * one,
            array("q", bytes(8 * one)), array("q", [1 << 62]) * one, array("q", bytes(8 * one)),
        )  # fmt: skip
        self.page = self.own(self.arrays[0])
        self.sum = self.own(self.arrays[1])
        self.largest = self.own(self.arrays[2])
        self.count = self.own(self.arrays[3])
        self.smallest = self.own(self.arrays[4])
        self.carries = self.own(self.arrays[5])
        self.pages = 0
        self.page_limit = 64
        self.bin_array = array("q", bytes(8 * PAGE * self.page_limit))
        self.bins = self.own(self.bin_array)

    def export(self) -> object:
        """Return (pages, bins), sums, largest values, numbers of values and least values."""
        page, sums, most, number, least, carried = self.arrays
        whole = [rest + (times << 62) for rest, times in zip(sums, carried)]  # noqa: B905
        return (page, self.bin_array), whole, most, number, least

    def add(self, which: i64, value: i64) -> None:
        """Count one value (ns)."""
        bin: i64 = bin_of(value)
        at: i64 = self.page[which * PAGES + (bin >> 10)]
        if at < 0:
            at = self.add_page(which * PAGES + (bin >> 10))
        self.bins[at + (bin & (PAGE - 1))] += 1
        self.sum[which] += value
        if self.sum[which] >= 4611686018427387904:
            self.sum[which] -= 4611686018427387904
            self.carries[which] += 1
        self.count[which] += 1
        if value > self.largest[which]:
            self.largest[which] = value
        if value < self.smallest[which]:
            self.smallest[which] = value

    def add_page(self, where: i64) -> i64:
        """Allocate a page of bins and return its start."""
        if self.pages == self.page_limit:
            self.page_limit *= 2
            self.bin_array = self.bin_array + array("q", bytes(8 * PAGE * self.pages))
            self.bins = self.own(self.bin_array)
        at: i64 = self.pages * PAGE
        self.page[where] = at
        self.pages += 1
        return at


class Chains(Columns):
    """Outcomes of the frames of every chain; histogram 2c holds responses of chain c, 2c + 1 the data's age."""

    def __init__(self, tables: dict[str, Any]) -> None:
        super().__init__()
        self.count = len(tables["c_deadline"])
        self.deadline = self.own(tables["c_deadline"])
        self.max_age = self.own(tables["c_max_age"])
        self.exact = self.own(tables["c_exact"])
        self.occurrence0 = self.own(tables["o_first"])
        self.occurrences = self.own(tables["o_count"])
        self.chain = self.own(tables["o_chain"])
        self.mode = self.own(tables["o_mode"])
        self.row = self.own(tables["o_row"])
        self.previous = self.own(tables["o_previous"])
        self.producer = self.own(tables["o_producer"])
        self.last = self.own(tables["o_last"])
        self.loses = self.own(tables["o_loses"])
        self.start0 = self.own(tables["x_first"])
        self.starts = self.own(tables["x_count"])
        self.start_chain = self.own(tables["x_chain"])
        room: i64 = max(self.count, 1)
        self.ring = self.fill(len(tables["o_row"]) * RING, -1)
        self.release = self.fill(room * FRAMES, 0)
        self.state = self.fill(room * FRAMES, 0)
        self.head = self.fill(room, 0)
        self.next_frame = self.fill(room, 0)
        names = ("released", "missed", "dropped", "completed", "stale")
        self.counters = {name: array("q", bytes(8 * room)) for name in names}
        self.tail = self.own(self.counters["released"])
        self.missed = self.own(self.counters["missed"])
        self.dropped = self.own(self.counters["dropped"])
        self.completed = self.own(self.counters["completed"])
        self.stale = self.own(self.counters["stale"])
        self.histograms = Histograms(2 * room)

    def record_release(self, source: i64, now: i64, lost: i64) -> None:
        """Record a frame of a source; `lost` if no task will receive it."""
        i: i64
        for i in range(self.start0[source], self.start0[source] + self.starts[source]):
            c: i64 = self.start_chain[i]
            if self.tail[c] - self.head[c] >= FRAMES:
                at: i64 = c * FRAMES + self.head[c] % FRAMES
                if self.state[at] == PENDING:
                    self.missed[c] += 1
                self.head[c] += 1
            at = c * FRAMES + self.tail[c] % FRAMES
            self.release[at] = now
            self.state[at] = PENDING
            self.tail[c] += 1
            if lost:
                self.state[at] = LOST
                self.dropped[c] += 1

    def record_loss(self, task: i64, frame: i64) -> None:
        """Record that a job never ran to its end."""
        i: i64
        for i in range(self.occurrence0[task], self.occurrence0[task] + self.occurrences[task]):
            c: i64 = self.chain[i]
            if self.loses[i] and self.head[c] <= frame < self.tail[c]:
                at: i64 = c * FRAMES + frame % FRAMES
                if self.state[at] == PENDING:
                    self.state[at] = LOST
                    self.dropped[c] += 1

    def record_start(self, task: i64, frame: i64, latest: cython.p_longlong) -> None:
        """Record the source frames that a job acts on in its chains, as it samples its inputs."""
        i: i64
        for i in range(self.occurrence0[task], self.occurrence0[task] + self.occurrences[task]):
            if self.mode[i] == 0:
                continue
            other: i64 = frame if self.mode[i] == 1 else latest[self.producer[i]]
            if other < 0:
                source_frame: i64 = -1
            elif self.previous[i] < 0:
                source_frame = other
            else:
                source_frame = self.ring[self.previous[i] * RING + other % RING]
            self.ring[self.row[i] * RING + frame % RING] = source_frame

    def record_end(self, task: i64, frame: i64, now: i64) -> None:
        """Record the end of a job: the last job of a chain completes frames of the chain."""
        i: i64
        for i in range(self.occurrence0[task], self.occurrence0[task] + self.occurrences[task]):
            if not self.last[i]:
                continue
            c: i64 = self.chain[i]
            source_frame: i64 = frame if self.mode[i] == 0 else self.ring[self.row[i] * RING + frame % RING]
            if source_frame < self.head[c] or source_frame >= self.tail[c]:
                continue
            age: i64 = now - self.release[c * FRAMES + source_frame % FRAMES]
            self.histograms.add(2 * c + 1, age)
            self.stale[c] += age > self.max_age[c]
            if self.exact[c]:
                self.complete_frame(c, source_frame, now)
                continue
            covered: i64 = self.next_frame[c] if self.next_frame[c] > self.head[c] else self.head[c]
            while covered <= source_frame:
                self.complete_frame(c, covered, now)
                covered += 1
            if covered > self.next_frame[c]:
                self.next_frame[c] = covered

    def complete_frame(self, c: i64, frame: i64, now: i64) -> None:
        at: i64 = c * FRAMES + frame % FRAMES
        response: i64 = now - self.release[at]
        if self.state[at] == PENDING:
            self.state[at] = ARRIVED
            self.completed[c] += 1
            self.histograms.add(2 * c, response)
            if response > self.deadline[c]:
                self.missed[c] += 1

    def close(self, end: i64) -> dict[str, Any]:
        """Count frames already late at `end` as missed, and return the outcomes of all frames by name."""
        c: i64
        frame: i64
        for c in range(self.count):
            for frame in range(self.head[c], self.tail[c]):
                at: i64 = c * FRAMES + frame % FRAMES
                if self.state[at] == PENDING and self.release[at] + self.deadline[c] <= end:
                    self.missed[c] += 1
        return self.counters
