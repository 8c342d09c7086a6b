"""Progress of the segments of running jobs: their pace on the present lanes, under contention for the DRAM."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import Lanes, lane_set, lowest, scaled, some, without
    from cython.cimports.socsched_kernel.codes import SHIFT
    from cython.cimports.socsched_kernel.credits import Credits
    from cython.cimports.socsched_kernel.memory import Combinations
else:
    from .arithmetic import Lanes, lane_set, lowest, scaled, some, without
    from .codes import SHIFT
    from .credits import Credits
    from .memory import Combinations


class Progress(Credits):
    """`left[t]` of a segment, in 2**-20 ns at pace `base[t]`, is as of `since[t]`; it has run at `pace[t]` since.

    Remaining work is rounded up when the pace changes, so nothing finishes early, and at constant pace a segment takes
    exactly that long however often it is preempted.  `active` lists the tasks that draw on the DRAM.

    `beside[t]`: duration in ns of its whole running segment with a guest (0: no guest).  `guest[u]` (-1: none): the
    task co-running there without lanes of its own; `guests` counts them over all units.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.left = self.fill(self.tasks, 0)
        self.pace = self.fill(self.tasks, 0)
        self.base = self.fill(self.tasks, 0)
        self.since = self.fill(self.tasks, 0)
        self.timed = self.fill(self.tasks, 0)
        self.demand = self.fill(self.tasks, 0)
        self.drawing = self.fill(self.tasks, 0)
        self.active = self.fill(self.tasks, 0)
        self.beside = self.fill(self.tasks, 0)
        self.guest = self.fill(self.units, -1)
        self.guests = 0
        self.slice_row = self.fill(self.width, 0)
        self.slice_name = self.fill(self.width, 0)
        self.actives = self.memory_changed = self.hog = self.slices_begun = 0
        self.memory_limits = tables["numbers"]["capacity"]
        self.hog_rate = 0.0
        self.combinations = Combinations(hooks.stretch, self.tasks + 2)

    def load(self, t: i64, g: i64) -> None:
        """Load a segment with its full remaining work."""
        time: i64 = self.load_time(t, g)
        self.pace[t] = self.base[t] = time
        self.left[t] = time << SHIFT
        self.demand[t] = self.g_bytes[g] > 0 and time > 0
        self.timed[t] = 0

    def load_time(self, t: i64, g: i64) -> i64:
        """Return the duration of a segment of this job (ns), alone and at full speed."""
        if self.up[t] == self.down[t]:
            return self.g_time[g]
        return scaled(self.g_time[g], self.up[t], self.down[t])

    def begin(self, t: i64, now: i64) -> None:
        """Continue from now on, starting with the prefix if there is one."""
        u: i64 = self.unit[t]
        if self.n_still[self.u_engine[u]]:
            return
        self.since[t] = now
        self.serve(t, now)
        if self.prefix[t]:
            self.open_slice(t, now, 0)
            self.events.set(t, now + self.prefix[t])
            return
        self.open_slice(t, now, self.g_name[self.first[t] + self.place[t]])
        self.timed[t] = 0
        if self.demand[t]:
            self.enter_memory(t)
        else:
            self.keep_pace(t, self.slowed(t, self.load_time(t, self.first[t] + self.place[t])), now)

    def slowed(self, t: i64, time: i64) -> i64:
        """Return the duration of a segment on its lanes under present clocks and faults."""
        e: i64 = self.u_engine[self.unit[t]]
        if self.beside[t]:
            time = scaled(time, self.beside[t], self.g_time[self.first[t] + self.place[t]])
        if self.n_slow[e] != self.n_fast[e]:
            time = scaled(time, self.n_slow[e], self.n_fast[e])
        if self.n_level[e] != self.levels - 1:
            time = scaled(
                time, self.n_clock[e * self.levels + self.levels - 1], self.n_clock[e * self.levels + self.n_level[e]]
            )
        if self.n_uneven:
            slowest: i64 = 1024
            rest: Lanes = self.lanes[t]
            while some(rest):
                lane: i64 = lowest(rest)
                rest = without(rest, lane_set(lane))
                lane += self.n_lane0[e]
                if self.lane_speed[lane] < slowest:
                    slowest = self.lane_speed[lane]
            if slowest < 1024:
                time = scaled(time, 1024, slowest)
        return time

    def keep_pace(self, t: i64, pace: i64, now: i64) -> None:
        """Set the whole duration of the running segment to `pace` ns from now on, and schedule its end accordingly."""
        if self.timed[t]:
            if self.pace[t] == pace:
                return
            self.advance(t, now)
        self.pace[t] = pace
        self.timed[t] = 1
        left: i64 = self.left[t]
        if pace != self.base[t]:
            left = scaled(left, pace, self.base[t])
        self.events.set(t, now + ((left + (1 << SHIFT) - 1) >> SHIFT))

    def advance(self, t: i64, now: i64) -> None:
        """Subtract the progress of a segment since its last update."""
        elapsed: i64 = now - self.since[t]
        self.since[t] = now
        # a pace that held for no time must not cause rounding
        if elapsed and self.timed[t]:
            if self.pace[t] != self.base[t]:
                self.left[t] = scaled(self.left[t], self.pace[t], self.base[t])
                self.base[t] = self.pace[t]
            self.left[t] -= elapsed << SHIFT
            if self.left[t] < 0:
                self.left[t] = 0

    def open_slice(self, c: i64, now: i64, name: i64) -> None:
        """Open a claim's execution interval; `name` is its activity (0 switch, 1 wait, or a segment)."""
        self.sliced[c] = 1
        self.slice_name[c] = name
        self.slice_row[c] = self.slices_begun
        self.slice_from[c] = now
        self.slices_begun += 1

    def end_slice(self, c: i64, now: i64) -> None:
        """Close a claim's execution interval and account for its time."""
        if self.sliced[c]:
            self.sliced[c] = 0
            slot: i64 = self.job[c if c < self.tasks else c - self.tasks]
            if c < self.tasks:
                self.j_exec[slot] += now - self.slice_from[c]
                self.consume(c, now)
                if self.u_weighed[self.unit[c]]:
                    self.debit(c, now - self.slice_from[c])
            if self.record:
                self.write_slice(c, self.slice_row[c], self.slice_name[c], slot, now)

    def enter_memory(self, t: i64) -> None:
        at: i64 = self.actives
        while at > 0 and self.active[at - 1] > t:
            self.active[at] = self.active[at - 1]
            at -= 1
        self.active[at] = t
        self.actives += 1
        self.drawing[t] = 1
        self.memory_changed = 1

    def leave_memory(self, t: i64) -> None:
        at: i64 = 0
        while self.active[at] != t:
            at += 1
        self.actives -= 1
        while at < self.actives:
            self.active[at] = self.active[at + 1]
            at += 1
        self.drawing[t] = 0
        self.memory_changed = 1

    def share(self, now: i64) -> None:
        """Set the pace of every segment that draws on the DRAM under present contention."""
        mixes: Combinations = self.combinations
        i: i64
        rate: cython.double = 0.0
        if self.memory_limits:
            for i in range(self.actives):
                mixes.key[i] = self.first[self.active[i]] + self.place[self.active[i]]
            mixes.key[self.actives] = -1 - self.hog
            mixes.length = self.actives + (self.hog > 0)
            at: i64 = mixes.find()
        else:
            at = 0
        for i in range(self.actives):
            t: i64 = self.active[i]
            g: i64 = self.first[t] + self.place[t]
            size: cython.double = self.g_bytes[g]
            if self.up[t] != self.down[t]:
                size = scaled(self.g_bytes[g], self.up[t], self.down[t])
            if self.memory_limits:
                pace: i64 = mixes.pool[at + i]
                if self.up[t] != self.down[t]:
                    pace = scaled(pace, self.up[t], self.down[t])
            else:
                pace = self.load_time(t, g)
            self.keep_pace(t, self.slowed(t, pace), now)
            rate += size / self.pace[t]
        if self.guests:
            for i in range(self.units):
                t = self.guest[i]
                if t >= 0 and self.pace[t] > 0:
                    size = self.g_bytes[self.first[t] + self.place[t]]
                    if self.up[t] != self.down[t]:
                        size = scaled(self.g_bytes[self.first[t] + self.place[t]], self.up[t], self.down[t])
                    rate += size / self.pace[t]
        if self.hog:
            rate += mixes.pool[at + self.actives] / 1e9 if self.memory_limits else self.hog_rate
        self.memory_changed = 0
        self.rate = rate
