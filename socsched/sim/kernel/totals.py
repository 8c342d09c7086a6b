"""Running figures of a simulation: counts, sums and histograms that do not grow with its length.

A histogram bin holds values that agree in their leading 11 bits: exact below 2048 ns, within 2**-10 above.

Chains.  `owner` lists the positions of every task in chains.  At a position, `mode` selects how the frame of the
chain's source that a job acts on is found: 0 the job's own number, since data triggers every stage from the source on;
1 that of the same frame one position before; 2 that of the frame of the producer it sampled.  If it differs from the
job's number, it is kept in a ring for the jobs that follow.
"""

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import length
    from cython.cimports.socsched_kernel.columns import Columns
else:
    from .arithmetic import length
    from .columns import Columns

BINS = cython.declare(cython.longlong, 45056)
PAGE = cython.declare(cython.longlong, 1024)
PAGES = cython.declare(cython.longlong, 44)
"""Total number of bins, bins allocated at once, and pages needed for all of them."""
FRAMES = cython.declare(cython.longlong, 4096)
"""Most frames of a chain in progress; an older one that never arrived counts as missed."""
RING = cython.declare(cython.longlong, 1024)
"""Frames of a position kept for the jobs that follow."""
PENDING = cython.declare(cython.longlong, 0)
LOST = cython.declare(cython.longlong, 1)
ARRIVED = cython.declare(cython.longlong, 2)


def bin_of(value: i64) -> i64:
    """Return the bin of a duration (ns, at least 0)."""
    octave: i64 = length(value) - 11
    if octave <= 0:
        return value
    return octave * 1024 + (value >> octave) if octave <= 42 else BINS - 1


class Histograms(Columns):
    """Histograms in parallel, each with an exact sum and extremes.

    Bins are allocated in pages of PAGE, on the first value: `page[which * PAGES + bin // PAGE]` is the start of a page
    in `bins` (-1: none).  `sum` is the remainder after `carried` times 2**62.
    """

    def __init__(self, count: i64) -> None:
        super().__init__()
        one: i64 = max(count, 1)
        self.books = (
            array("q", [-1]) * (PAGES * one), array("q", bytes(8 * one)), array("q", [-1]) * one,
            array("q", bytes(8 * one)), array("q", [1 << 62]) * one, array("q", bytes(8 * one)),
        )  # fmt: skip
        self.page = self.own(self.books[0])
        self.sum = self.own(self.books[1])
        self.most = self.own(self.books[2])
        self.number = self.own(self.books[3])
        self.least = self.own(self.books[4])
        self.carried = self.own(self.books[5])
        self.pages = 0
        self.room = 64
        self.own_bins = array("q", bytes(8 * PAGE * self.room))
        self.bins = self.own(self.own_bins)

    def found(self) -> object:
        """Return (pages, bins), sums, largest values, numbers of values and least values."""
        page, sums, most, number, least, carried = self.books
        whole = [rest + (times << 62) for rest, times in zip(sums, carried)]  # noqa: B905
        return (page, self.own_bins), whole, most, number, least

    def add(self, which: i64, value: i64) -> None:
        """Count one value (ns)."""
        bin: i64 = bin_of(value)
        at: i64 = self.page[which * PAGES + (bin >> 10)]
        if at < 0:
            at = self.new_page(which * PAGES + (bin >> 10))
        self.bins[at + (bin & (PAGE - 1))] += 1
        self.sum[which] += value
        if self.sum[which] >= 4611686018427387904:
            self.sum[which] -= 4611686018427387904
            self.carried[which] += 1
        self.number[which] += 1
        if value > self.most[which]:
            self.most[which] = value
        if value < self.least[which]:
            self.least[which] = value

    def new_page(self, where: i64) -> i64:
        """Allocate a page of bins and return its start."""
        if self.pages == self.room:
            self.room *= 2
            self.own_bins = self.own_bins + array("q", bytes(8 * PAGE * self.pages))
            self.bins = self.own(self.own_bins)
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
        self.exact = self.own(tables["c_exact"])
        self.owner0 = self.own(tables["o_first"])
        self.owners = self.own(tables["o_count"])
        self.chain = self.own(tables["o_chain"])
        self.mode = self.own(tables["o_mode"])
        self.slot = self.own(tables["o_slot"])
        self.before = self.own(tables["o_before"])
        self.producer = self.own(tables["o_producer"])
        self.last = self.own(tables["o_last"])
        self.loses = self.own(tables["o_loses"])
        self.source0 = self.own(tables["x_first"])
        self.sources = self.own(tables["x_count"])
        self.source = self.own(tables["x_chain"])
        room: i64 = max(self.count, 1)
        self.ring = self.fill(len(tables["o_slot"]) * RING, -1)
        self.release = self.fill(room * FRAMES, 0)
        self.state = self.fill(room * FRAMES, 0)
        self.head = self.fill(room, 0)
        self.following = self.fill(room, 0)
        self.books = {name: array("q", bytes(8 * room)) for name in ("released", "missed", "dropped", "completed")}
        self.tail = self.own(self.books["released"])
        self.missed = self.own(self.books["missed"])
        self.dropped = self.own(self.books["dropped"])
        self.completed = self.own(self.books["completed"])
        self.figures = Histograms(2 * room)

    def released(self, source: i64, now: i64, lost: i64) -> None:
        """Record a frame of a source; `lost` if no task will receive it."""
        i: i64
        for i in range(self.source0[source], self.source0[source] + self.sources[source]):
            c: i64 = self.source[i]
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

    def lost(self, task: i64, frame: i64) -> None:
        """Record that a job never ran to its end."""
        i: i64
        for i in range(self.owner0[task], self.owner0[task] + self.owners[task]):
            c: i64 = self.chain[i]
            if self.loses[i] and self.head[c] <= frame < self.tail[c]:
                at: i64 = c * FRAMES + frame % FRAMES
                if self.state[at] == PENDING:
                    self.state[at] = LOST
                    self.dropped[c] += 1

    def started(self, task: i64, frame: i64, latest: cython.p_longlong) -> None:
        """Record the source frames that a job acts on in its chains, as it samples its inputs."""
        i: i64
        for i in range(self.owner0[task], self.owner0[task] + self.owners[task]):
            if self.mode[i] == 0:
                continue
            other: i64 = frame if self.mode[i] == 1 else latest[self.producer[i]]
            if other < 0:
                taken: i64 = -1
            elif self.before[i] < 0:
                taken = other
            else:
                taken = self.ring[self.before[i] * RING + other % RING]
            self.ring[self.slot[i] * RING + frame % RING] = taken

    def finished(self, task: i64, frame: i64, now: i64) -> None:
        """Record the end of a job: the last job of a chain completes frames of the chain."""
        i: i64
        for i in range(self.owner0[task], self.owner0[task] + self.owners[task]):
            if not self.last[i]:
                continue
            c: i64 = self.chain[i]
            taken: i64 = frame if self.mode[i] == 0 else self.ring[self.slot[i] * RING + frame % RING]
            if taken < self.head[c] or taken >= self.tail[c]:
                continue
            self.figures.add(2 * c + 1, now - self.release[c * FRAMES + taken % FRAMES])
            if self.exact[c]:
                self.arrive(c, taken, now)
                continue
            covered: i64 = self.following[c] if self.following[c] > self.head[c] else self.head[c]
            while covered <= taken:
                self.arrive(c, covered, now)
                covered += 1
            if covered > self.following[c]:
                self.following[c] = covered

    def arrive(self, c: i64, frame: i64, now: i64) -> None:
        at: i64 = c * FRAMES + frame % FRAMES
        response: i64 = now - self.release[at]
        if self.state[at] == PENDING:
            self.state[at] = ARRIVED
            self.completed[c] += 1
            self.figures.add(2 * c, response)
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
        return self.books
