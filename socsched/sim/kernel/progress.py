"""Progress of the segments of running jobs: their pace on the present slots, under contention for the DRAM."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import SlotSet, first_slot, has_any, scale_ceil, slot_set, subtract
    from cython.cimports.socsched_kernel.codes import SHIFT
    from cython.cimports.socsched_kernel.contention import ContentionCache
    from cython.cimports.socsched_kernel.fair_share import FairShare
else:
    from .arithmetic import SlotSet, first_slot, has_any, scale_ceil, slot_set, subtract
    from .codes import SHIFT
    from .contention import ContentionCache
    from .fair_share import FairShare


class Progress(FairShare):
    """`work_left[t]` of a segment, in 2**-20 ns at pace `base_pace[t]`, is as of `updated_at[t]`; `pace[t]` since.

    A pace is the duration of the whole segment under present conditions (ns).

    Remaining work is rounded up when the pace changes, so nothing finishes early, and at constant pace a segment takes
    exactly that long however often it is preempted.  `dram_tasks` lists the tasks that draw on the DRAM.

    `corun_time[t]`: duration in ns of its whole running segment with a co-runner (0: none).  `corunner[u]` (-1: none):
    the task co-running there since `corun_since[u]`, without slots of its own; `corunner_count` counts them over all
    units.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.work_left = self.fill(self.tasks, 0)
        self.pace = self.fill(self.tasks, 0)
        self.base_pace = self.fill(self.tasks, 0)
        self.updated_at = self.fill(self.tasks, 0)
        self.timed = self.fill(self.tasks, 0)
        self.uses_dram = self.fill(self.tasks, 0)
        self.on_dram = self.fill(self.tasks, 0)
        self.dram_tasks = self.fill(self.tasks, 0)
        self.corun_time = self.fill(self.tasks, 0)
        self.corunner = self.fill(self.units, -1)
        self.corun_since = self.fill(self.units, 0)
        self.corunner_count = 0
        self.slice_row = self.fill(self.claims, 0)
        self.slice_name = self.fill(self.claims, 0)
        self.dram_count = self.dram_changed = self.hog = self.slice_count = 0
        self.dram_limited = tables["numbers"]["dram_limited"]
        self.hog_rate = 0.0
        self.contention = ContentionCache(hooks.resolve_contention, self.tasks + 2)

    def load_segment(self, t: i64, g: i64) -> None:
        """Load a segment with its full remaining work."""
        time: i64 = self.get_segment_time(t, g)
        self.pace[t] = self.base_pace[t] = time
        self.work_left[t] = time << SHIFT
        self.uses_dram[t] = self.g_bytes[g] > 0 and time > 0
        self.timed[t] = 0

    def get_segment_time(self, t: i64, g: i64) -> i64:
        """Return the duration of a segment of this job (ns), alone and at full speed."""
        if self.up[t] == self.down[t]:
            return self.g_time[g]
        return scale_ceil(self.g_time[g], self.up[t], self.down[t])

    def begin_segment(self, t: i64, now: i64) -> None:
        """Continue from now on, starting with the overhead if there is any."""
        u: i64 = self.unit[t]
        if self.n_stalled[self.u_engine[u]]:
            return
        self.updated_at[t] = now
        self.start_budget(t, now)
        if self.overhead[t]:
            self.open_slice(t, now, 0)
            self.events.set(t, now + self.overhead[t])
            return
        self.open_slice(t, now, self.g_name[self.first[t] + self.current[t]])
        self.timed[t] = 0
        if self.uses_dram[t]:
            self.enter_dram(t)
        else:
            self.set_pace(t, self.apply_slowdown(t, self.get_segment_time(t, self.first[t] + self.current[t])), now)

    def apply_slowdown(self, t: i64, time: i64) -> i64:
        """Return the duration of a segment on its slots under present clocks and faults."""
        e: i64 = self.u_engine[self.unit[t]]
        if self.corun_time[t]:
            time = scale_ceil(time, self.corun_time[t], self.g_time[self.first[t] + self.current[t]])
        if self.n_slow[e] != self.n_fast[e]:
            time = scale_ceil(time, self.n_slow[e], self.n_fast[e])
        if self.n_level[e] != self.levels - 1:
            time = scale_ceil(
                time, self.n_clock[e * self.levels + self.levels - 1], self.n_clock[e * self.levels + self.n_level[e]]
            )
        if self.n_uneven:
            slowest: i64 = 1024
            rest: SlotSet = self.slots[t]
            while has_any(rest):
                slot: i64 = first_slot(rest)
                rest = subtract(rest, slot_set(slot))
                slot += self.n_slot0[e]
                if self.slot_speed[slot] < slowest:
                    slowest = self.slot_speed[slot]
            if slowest < 1024:
                time = scale_ceil(time, 1024, slowest)
        return time

    def set_pace(self, t: i64, pace: i64, now: i64) -> None:
        """Set the whole duration of the running segment to `pace` ns from now on, and schedule its end accordingly."""
        if self.timed[t]:
            if self.pace[t] == pace:
                return
            self.advance(t, now)
        self.pace[t] = pace
        self.timed[t] = 1
        left: i64 = self.work_left[t]
        if pace != self.base_pace[t]:
            left = scale_ceil(left, pace, self.base_pace[t])
        self.events.set(t, now + ((left + (1 << SHIFT) - 1) >> SHIFT))

    def advance(self, t: i64, now: i64) -> None:
        """Subtract the progress of a segment since its last update."""
        elapsed: i64 = now - self.updated_at[t]
        self.updated_at[t] = now
        # a pace that held for no time must not cause rounding
        if elapsed and self.timed[t]:
            if self.pace[t] != self.base_pace[t]:
                self.work_left[t] = scale_ceil(self.work_left[t], self.pace[t], self.base_pace[t])
                self.base_pace[t] = self.pace[t]
            self.work_left[t] -= elapsed << SHIFT
            if self.work_left[t] < 0:
                self.work_left[t] = 0

    def open_slice(self, c: i64, now: i64, name: i64) -> None:
        """Open a claim's execution interval; `name` is its activity (0 switch, 1 wait, or a segment)."""
        self.slice_open[c] = 1
        self.slice_name[c] = name
        self.slice_row[c] = self.slice_count
        self.slice_start[c] = now
        self.slice_count += 1

    def close_slice(self, c: i64, now: i64) -> None:
        """Close a claim's execution interval and account for its time."""
        if self.slice_open[c]:
            self.slice_open[c] = 0
            job: i64 = self.job[c if c < self.tasks else c - self.tasks]
            if c < self.tasks:
                self.j_exec[job] += now - self.slice_start[c]
                self.charge_budget(c, now)
                if self.u_fair[self.unit[c]]:
                    self.charge_vruntime(c, now - self.slice_start[c])
            if self.record:
                self.write_slice(c, self.slice_row[c], self.slice_name[c], job, now)

    def enter_dram(self, t: i64) -> None:
        at: i64 = self.dram_count
        while at > 0 and self.dram_tasks[at - 1] > t:
            self.dram_tasks[at] = self.dram_tasks[at - 1]
            at -= 1
        self.dram_tasks[at] = t
        self.dram_count += 1
        self.on_dram[t] = 1
        self.dram_changed = 1

    def leave_dram(self, t: i64) -> None:
        at: i64 = 0
        while self.dram_tasks[at] != t:
            at += 1
        self.dram_count -= 1
        while at < self.dram_count:
            self.dram_tasks[at] = self.dram_tasks[at + 1]
            at += 1
        self.on_dram[t] = 0
        self.dram_changed = 1

    def share_dram(self, now: i64) -> None:
        """Set the pace of every segment that draws on the DRAM under present contention."""
        cache: ContentionCache = self.contention
        i: i64
        rate: cython.double = 0.0
        if self.dram_limited:
            for i in range(self.dram_count):
                cache.key[i] = self.first[self.dram_tasks[i]] + self.current[self.dram_tasks[i]]
            cache.key[self.dram_count] = -1 - self.hog
            cache.length = self.dram_count + (self.hog > 0)
            at: i64 = cache.look_up()
        else:
            at = 0
        for i in range(self.dram_count):
            t: i64 = self.dram_tasks[i]
            g: i64 = self.first[t] + self.current[t]
            size: cython.double = self.g_bytes[g]
            if self.up[t] != self.down[t]:
                size = scale_ceil(self.g_bytes[g], self.up[t], self.down[t])
            if self.dram_limited:
                pace: i64 = cache.pool[at + i]
                if self.up[t] != self.down[t]:
                    pace = scale_ceil(pace, self.up[t], self.down[t])
            else:
                pace = self.get_segment_time(t, g)
            self.set_pace(t, self.apply_slowdown(t, pace), now)
            rate += size / self.pace[t]
        if self.corunner_count:
            for i in range(self.units):
                t = self.corunner[i]
                if t >= 0 and self.pace[t] > 0:
                    size = self.g_bytes[self.first[t] + self.current[t]]
                    if self.up[t] != self.down[t]:
                        size = scale_ceil(self.g_bytes[self.first[t] + self.current[t]], self.up[t], self.down[t])
                    rate += size / self.pace[t]
        if self.hog:
            rate += cache.pool[at + self.dram_count] / 1e9 if self.dram_limited else self.hog_rate
        self.dram_changed = 0
        self.rate = rate
