"""What the kernel keeps its numbers in: arrays, pending events, cached contention, trace rows, and figures."""

# ruff: noqa: F405 - as in kernel.py

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import cython
from cython import longlong as i64

if not cython.compiled:  # the compiled kernel has these from kernel.pxd
    from socsched.sim.kernel.values import *  # noqa: F403


# Flat arrays of int64, doubles and sets of slots, which compiled code accesses through bare pointers.


class Columns:
    """Owner of arrays; the results of its methods are valid as long as the owner lives."""

    def __init__(self) -> None:
        self.buffers: list[Any] = []

    def own(self, values: Any) -> Any:
        """Keep an array of int64 and return its numbers; its length is fixed from now on."""
        self.buffers.append(memoryview(values))
        if cython.compiled:
            view: cython.longlong[::1] = values
            return cython.address(view[0])
        else:
            return values

    def fill(self, count: i64, value: i64) -> Any:
        """Return `max(count, 1)` numbers of the same value."""
        return self.own(array("q", [value]) * max(count, 1))

    def own_sets(self, values: Any) -> Any:
        """Keep sets of slots, given as whole numbers with bit k for slot k, and return them."""
        if cython.compiled:
            flat = array("Q", [value >> 64 * i & 0xFFFFFFFFFFFFFFFF for value in values for i in range(WORDS)])
            self.buffers.append(memoryview(flat))
            view: cython.ulonglong[::1] = flat
            return cython.cast(slot_sets, cython.address(view[0]))
        else:
            return list(values)

    def own_doubles(self, values: Any) -> Any:
        """Keep an array of doubles and return its numbers."""
        self.buffers.append(memoryview(values))
        if cython.compiled:
            view: cython.double[::1] = values
            return cython.address(view[0])
        else:
            return values

    def fill_sets(self, count: i64) -> Any:
        """Return `max(count, 1)` empty sets of slots."""
        return self.own_sets([0] * max(count, 1))


# The next event of every event source, soonest first: an indexed binary heap without allocation.
#
# Each of `n` sources has at most one pending event.  Events at the same instant are ordered by source number, which
# makes a simulation repeatable: the numbering is part of the simulator's semantics (`kernel.Kernel`).


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


# Contention for the DRAM.
#
# Where times are drawn, nearly every event meets a new combination of segments.  What the laws of `cost.contention`
# give is therefore computed here, with the operations of their `paces` in the same order, hence to the nanosecond.


class Contention(Columns):
    """The durations `pace` (ns) of the segments of rows `row` while exactly these run.

    `tables` has the law (`sim.callbacks`); a model without one, foreign traffic, and what takes too long: `resolve`.
    """

    def __init__(
        self, resolve: Callable[[tuple[int, ...]], tuple[int, ...]], tables: dict[str, Any], size: i64
    ) -> None:
        super().__init__()
        self.resolve = resolve
        self.stated, self.curved = tables["numbers"]["law"], len(tables["curves"]) > 0
        self.limit, self.longest = tables["numbers"]["limit"], tables["numbers"]["longest"]
        self.time, self.size, self.fixed = (
            self.own(tables["g_time"]),
            self.own(tables["g_bytes"]),
            self.own(tables["g_fixed"]),
        )
        self.engine = self.own(tables["g_engine"])
        self.draw, self.ratio = self.own_doubles(tables["g_draw"]), self.own_doubles(tables["g_ratio"])
        self.curves = self.own_doubles(tables["curves"] or array("d", [0.0]))
        self.row, self.pace, self.order = self.fill(size, 0), self.fill(size, 0), self.fill(size, 0)
        self.demand, self.share = (
            self.own_doubles(array("d", bytes(8 * size))),
            self.own_doubles(array("d", bytes(8 * size))),
        )

    def find_paces(self, count: i64, foreign: i64) -> None:
        """Find the durations of the first `count` rows; those of `foreign` traffic follow: the bytes/s it attains."""
        i: i64
        if foreign or not self.stated or not self.compute(count):
            key = [self.row[i] for i in range(count)]
            found = self.resolve(tuple([*key, -1 - foreign] if foreign else key))
            for i in range(len(found)):
                self.pace[i] = found[i]

    def compute(self, count: i64) -> i64:
        """Compute the durations; return whether none is too long."""
        i: i64
        total: cython.double = 0.0
        for i in range(count):
            self.demand[i] = self.share[i] = self.draw[self.row[i]]
            total += self.demand[i]
        if self.limit > 0 and (total > self.limit or not self.curved):
            self.divide(count)
        for i in range(count):
            g: i64 = self.row[i]
            self.pace[i] = self.time[g]
            if not self.curved:
                if self.share[i] < self.demand[i]:
                    self.stretch(i)
            elif self.demand[i] > 0 and total != self.demand[i]:
                factor: cython.double = max(100.0 / self.get_speed(i, count), self.demand[i] / self.share[i])
                if factor > 1:
                    self.pace[i] = self.fixed[g] + ceil_product(self.time[g] - self.fixed[g], factor)
            if self.pace[i] * self.ratio[g] > self.longest:
                return 0
        return 1

    def divide(self, count: i64) -> None:
        """Give every demand its share of the limit, as `fair_shares`."""
        i: i64
        at: i64
        left: cython.double = self.limit
        for i in range(count):
            at = i
            while at > 0 and self.demand[self.order[at - 1]] > self.demand[i]:
                self.order[at] = self.order[at - 1]
                at -= 1
            self.order[at] = i
        for at in range(count):
            i = self.order[at]
            self.share[i] = min(self.demand[i], left / (count - at))
            left -= self.share[i]

    def stretch(self, i: i64) -> None:
        """Set the duration with less than the demand, as `stretch`."""
        g: i64 = self.row[i]
        taken: i64 = ceil_quotient(self.size[g] * 1e9, self.share[i])
        self.pace[i] = max(self.time[g], self.fixed[g] + taken)

    def get_speed(self, i: i64, count: i64) -> cython.double:
        """Return the relative speed (%) beside the others, as `Curve.speed`."""
        j: i64
        e: i64 = self.engine[self.row[i]]
        others: cython.double = 0.0
        for j in range(count):
            if (self.engine[self.row[j]] != e) if self.limit > 0 else j != i:
                others += self.demand[j]
        if others <= 0:
            return 100.0
        e *= 7
        own: cython.double = self.demand[i]
        normal: cython.double = self.curves[e]
        intensive: cython.double = self.curves[e + 1]
        tbwdc: cython.double = self.curves[e + 3]
        cbp: cython.double = self.curves[e + 4]
        rate: cython.double = self.curves[e + 5]
        peak: cython.double = self.curves[e + 6]
        lost: cython.double = self.curves[e + 2] * min(others / peak, 1.0) if peak > 0 else 0.0
        felt: cython.double = min(others, cbp)
        if own >= intensive and cbp > 0:
            lost = max(lost, rate * (own + cbp - tbwdc) / cbp * felt / 1e9)
        elif own > normal:
            lost = max(lost, rate * (own + felt - tbwdc) / 1e9)
        return max(100.0 - lost, 5.0)


ROWS = 1 << 14


# Trace records of a simulation: rows of int64, appended and never read again here.
#
# A row is written when its subject ends and carries the number assigned when it began, so that blocks can be handed on
# as they fill.  `sim.results` sorts the rows and names the columns.


class Log(Columns):
    """Rows of `width` numbers; full blocks are in `blocks`, the last one in `block` up to `used`."""

    def __init__(self, width: i64) -> None:
        super().__init__()
        self.width = width
        self.limit = width * ROWS
        self.used = 0
        self.block_array = array("q", bytes(8 * self.limit))
        self.block = self.own(self.block_array)
        self.blocks: list[bytes] = []

    def add_row(self) -> i64:
        """Return the start of the next row in `block`."""
        if self.used == self.limit:
            self.flush()
        at: i64 = self.used
        self.used += self.width
        return at

    def flush(self) -> object:
        """Move the written rows to `blocks`."""
        if self.used:
            self.blocks.append(bytes(memoryview(self.block_array)[: self.used]))
            self.used = 0
        return self.blocks

    def take(self) -> object:
        """Return the blocks with the rows written since the last call."""
        self.flush()
        blocks = self.blocks
        self.blocks = []
        return blocks


# Running figures of a simulation: counts, sums and histograms that do not grow with its length.
#
# A histogram bin holds values that agree in their leading 11 bits: exact below 2048 ns, within 2**-10 above.
#
# Chains.  An occurrence is the position of a task in a chain; those of a task are adjacent.  At an occurrence, `mode`
# selects how the frame of the chain's source that a job acts on is found: 0 the job's own number, since data triggers
# every stage from the source on; 1 that of the same frame one occurrence before; 2 that of the frame of the producer it
# sampled.  If it differs from the job's number, it is kept in a ring for the jobs that follow.


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
