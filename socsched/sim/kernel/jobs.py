"""The life cycle of a job: promotion by its task, completion or removal, and the resulting clock changes and stalls."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import contains, count_slots, scale_ceil
    from cython.cimports.socsched_kernel.codes import (
        ABORT,
        ABORTED,
        DEGRADE,
        DROPPED,
        FAR,
        OVERRUN,
        SEGMENT,
        SHIFT,
        SKIP,
        SKIPPED,
    )
    from cython.cimports.socsched_kernel.slots import Slots
else:
    from .arithmetic import contains, count_slots, scale_ceil
    from .codes import ABORT, ABORTED, DEGRADE, DROPPED, FAR, OVERRUN, SEGMENT, SHIFT, SKIP, SKIPPED
    from .slots import Slots

DRAWS = cython.declare(cython.longlong, 128)
"""Random numbers requested at once (`Callbacks.draw_numbers`)."""


class Jobs(Slots):
    """Waiting jobs of a task are linked from `head[t]` to `tail[t]`, `waiting[t]` of them.

    `owes_switch[t]`: the job must pay for a switch when it resumes.  `launch_limit[t]`: the segment after which it
    launches no more (-1: none); `launched_until[t]`: the same, due to a more urgent job on another engine.
    `blocked_since[t]`: instant since which it waits for non-preemptible work (-1: it does not).  `resumed_at[t]`: the
    segment at which it was last resumed.  `batch[t]`: the other members of its job's batch, linked like waiting jobs
    (-1: none).  `over_up[t]` / `over_down[t]`: how long its job runs beyond its time at the low level of criticality,
    as a share of that time.  `utilization[t]`: its utilization of its engine in 2**-20, for clocks following the load.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.waiting = self.fill(self.tasks, 0)
        self.owes_switch = self.fill(self.tasks, 0)
        self.utilization = self.fill(self.tasks, 0)
        self.over_up = self.fill(self.tasks, 0)
        self.over_down = self.fill(self.tasks, 1)
        self.head = self.fill(self.tasks, -1)
        self.tail = self.fill(self.tasks, -1)
        self.launch_limit = self.fill(self.tasks, -1)
        self.launched_until = self.fill(self.tasks, -1)
        self.resumed_at = self.fill(self.tasks, 0)
        self.batch = self.fill(self.tasks, -1)
        self.blocked_since = self.fill(self.tasks, -1)
        streams: i64 = tables["numbers"]["streams"]
        self.random_numbers = self.fill(streams * DRAWS, 0)
        self.random_next = self.fill(streams, DRAWS)

    def promote(self, t: i64, job: i64, now: i64) -> i64:
        """Make a waiting job its task's current one; return 0 if it would be late and is skipped instead."""
        late: i64 = self.t_on_late[t]
        self.job[t] = job
        self.first[t], self.count[t] = self.t_first[t], self.t_count[t]
        self.launch_limit[t] = self.launched_until[t] = -1
        self.up[t] = self.down[t] = 1
        if self.t_stream[t] >= 0:
            self.draw_time(t)
        if (
            self.t_overrun_stream[t] >= 0
            and (self.draw_random(self.t_overrun_stream[t]) >> 9) < self.t_overrun_chance[t]
        ):
            # an overrun multiplies the job's drawn execution time
            self.scale_time(t, self.t_overrun_up[t], self.t_overrun_down[t])
            self.record_instant(
                now, OVERRUN, t, self.j_frame[job], self.t_overrun_up[t] * 1000000 // self.t_overrun_down[t]
            )
        hopeless: i64 = late and now + scale_ceil(self.t_cost[t], self.up[t], self.down[t]) > self.j_deadline[job]
        if hopeless and late == SKIP:
            self.record_instant(now, SKIPPED, t, self.j_frame[job], 0)
            self.end_job(t, job, now, DROPPED)
            self.job[t] = -1
            return 0
        if hopeless and late == DEGRADE and self.t_degraded[t]:
            self.first[t], self.count[t] = self.t_degraded0[t], self.t_degraded[t]
        elif self.t_over[t] and self.up[t] > self.down[t]:
            # its planned work takes its time, and the excess is a segment after it
            self.over_up[t], self.over_down[t] = self.up[t] - self.down[t], self.down[t]
            self.up[t] = self.down[t] = 1
            self.count[t] += 1
        if late == ABORT:
            self.events.set(self.abort_event0 + t, self.j_deadline[job] if self.j_deadline[job] > now else now)
        self.current[t] = 0
        self.load_segment(t, self.first[t])
        self.set_claim(t, self.first[t])
        if self.n_governor[self.u_engine[self.unit[t]]]:
            self.set_clock(t, self.t_cost[t], now)
        if self.u_reservations[self.unit[t]]:
            self.replenish(t, now)
        self.reset_waiting(t, now)
        if self.u_fair[self.unit[t]]:
            self.catch_up_vruntime(t, now)
        self.resumed_at[t] = 0
        self.enqueue(t, now)
        return 1

    def draw_time(self, t: i64) -> None:
        """Draw this job's execution time: a sample, or a point between two quantiles."""
        drawn: i64 = self.draw_random(self.t_stream[t]) >> 30
        size: i64 = self.t_times[t]
        if self.t_interpolate[t]:
            at: i64 = drawn * (size - 1) >> 32
            rest: i64 = drawn * (size - 1) - (at << 32)
            value: i64 = self.times[self.t_times0[t] + at]
            # 2**12 steps between two quantiles keep the product small
            value += (self.times[self.t_times0[t] + at + 1] - value) * (rest >> 20) >> 12
        else:
            value = self.times[self.t_times0[t] + (drawn * size >> 32)]
        self.up[t], self.down[t] = value, self.t_cost[t]

    def scale_time(self, t: i64, up: i64, down: i64) -> None:
        """Scale this job's duration by `up` / `down`; rounded up if the fraction grows too large."""
        if self.up[t] < 2147483648 and self.down[t] < 2147483648 and up < 2147483648 and down < 2147483648:
            self.up[t] *= up
            self.down[t] *= down
        else:
            self.up[t] = scale_ceil(self.up[t], up, down)

    def draw_random(self, stream: i64) -> i64:
        """Return a random number from 0 to 2**62 - 1."""
        at: i64 = self.random_next[stream]
        i: i64
        base: i64 = stream * DRAWS
        if at == DRAWS:
            fresh = self.hooks.draw_numbers(stream)
            for i in range(DRAWS):
                self.random_numbers[base + i] = fresh[i]
            at = 0
        self.random_next[stream] = at + 1
        return self.random_numbers[base + at]

    def promote_next(self, t: i64, now: i64) -> None:
        """Promote the oldest waiting job of a task that is not skipped."""
        taken: i64 = 0
        self.blocked_since[t] = -1
        if self.t_on_late[t] == ABORT:
            self.events.set(self.abort_event0 + t, FAR)
        while self.head[t] >= 0 and not taken:
            job: i64 = self.head[t]
            self.head[t] = self.j_next[job]
            if self.head[t] >= 0:
                self.j_previous[self.head[t]] = -1
            else:
                self.tail[t] = -1
            self.waiting[t] -= 1
            taken = self.promote(t, job, now)

    def remove_job(self, t: i64, now: i64, status: i64) -> None:
        """Remove a task's current job, in whatever state it is."""
        job: i64 = self.job[t]
        home: i64 = self.tasks + t
        claim: i64
        self.stop_corunning(self.unit[t], now)
        for claim in (home, t):
            if self.queued[claim]:
                if self.running[claim]:
                    if self.slice_open[claim]:
                        self.close_slice(claim, now)
                    if claim == t and self.on_dram[t]:
                        self.leave_dram(t)
                    self.release_slots(claim, now)
                self.remove_claim(claim)
        self.events.set(t, FAR)
        self.mark_dirty(self.unit[t])
        self.owes_switch[t] = self.overhead[t] = self.timed[t] = 0
        self.end_job(t, job, now, status)
        while self.batch[t] >= 0:
            job = self.batch[t]
            self.batch[t] = self.j_next[job]
            self.end_job(t, job, now, status)
        self.job[t] = -1
        self.promote_next(t, now)

    def set_clock(self, t: i64, cost: i64, now: i64) -> None:
        """Set the slowest clock that still carries the load: cycle-conserving EDF (Pillai & Shin, SOSP 2001).

        A task counts with its worst case until it ends, then with its actual execution time until its next job.
        """
        e: i64 = self.u_engine[self.g_unit[self.t_first[t]]]
        within: i64 = self.t_deadline[t]
        if 0 < self.t_period[t] < within:
            within = self.t_period[t]
        u: i64
        level: i64 = 0
        need: i64 = 0
        base: i64 = e * self.levels
        top: i64 = self.n_clock[base + self.levels - 1]
        self.utilization[t] = scale_ceil(cost, 1 << SHIFT, within) if self.t_period[t] else 0
        # capped, since such a load is never attainable, so that sums over many tasks stay below 2**63
        if self.utilization[t] > 1099511627776:
            self.utilization[t] = 1099511627776
        for u in range(self.units):
            if self.u_engine[u] == e and self.find_required_speed(u) > need:
                need = self.find_required_speed(u)
        if need > 2 << SHIFT:
            need = 2 << SHIFT
        while level < self.n_top[e] and self.n_clock[base + level] << SHIFT < need * top:
            level += 1
        if level != self.n_level[e]:
            self.charge_busy(e, now)
            self.n_level[e] = level
            self.adapt_engine(e, now)

    def find_required_speed(self, u: i64) -> i64:
        """Return the speed at which a unit's slots carry its load under EDF, in 2**-20 of full speed.

        One slot: the sum U.  Several slots open to any job: (U + (m - 1) u_max) / m (Goossens, Funk & Baruah, RTS 25
        2003; their proof compares rates of work at every instant, so it holds for changing speeds).  Otherwise U again:
        the most urgent job always has its slots, so that work proceeds at least as fast as on one slot.
        """
        other: i64
        slot: i64
        sum: i64 = 0
        most: i64 = 0
        for other in range(self.tasks):
            if self.g_unit[self.t_first[other]] == u:
                sum += self.utilization[other]
                if self.utilization[other] > most:
                    most = self.utilization[other]
        count: i64 = count_slots(self.u_mask[u])
        if self.u_global[u]:
            sum = (sum + (count - 1) * most + count - 1) // count
        slowest: i64 = 1024
        first: i64 = self.n_slot0[self.u_engine[u]]
        for slot in range(self.n_slots[self.u_engine[u]] if self.n_uneven else 0):
            if contains(self.u_mask[u], slot) and self.slot_speed[first + slot] < slowest:
                slowest = self.slot_speed[first + slot]
        return sum if slowest == 1024 else scale_ceil(sum, 1024, slowest)

    def adapt_engine(self, e: i64, now: i64) -> None:
        """Adapt running jobs to changed clocks, faults or stalls of an engine."""
        u: i64
        engine: i64
        if self.record and self.n_level[e] != self.recorded_level[e]:
            self.recorded_level[e] = self.n_level[e]
            self.write_level(e, self.n_level[e], now)
        for u in range(self.units):
            if self.u_engine[u] == e:
                self.stop_corunning(u, now)
        self.power_now = 0
        for engine in range(self.engines):
            self.power_now += self.busy[engine] * self.n_power[engine * self.levels + self.n_level[engine]]
        for u in range(self.units):
            if self.corunner[u] >= 0:
                self.power_now += self.corun_power[u]
        for u in range(self.units):
            if self.u_engine[u] != e:
                continue
            self.mark_dirty(u)
            i: i64 = 0
            while i < self.running_count[u]:
                c: i64 = self.running_claims[self.u_order0[u] + i]
                t: i64 = c if c < self.tasks else c - self.tasks
                if self.n_stalled[e] == 2:
                    self.remove_job(t, now, ABORTED)
                    i = 0
                    continue
                i += 1
                if self.n_stalled[e]:
                    self.stall_claim(c, now)
                    continue
                if self.stalled[c]:
                    self.stalled[c] = 0
                    self.occupy_engine(e, count_slots(self.slots[c]), now)
                if not self.slice_open[c]:
                    if self.u_preemption[u] != SEGMENT or self.locked[c]:
                        if c < self.tasks:
                            self.begin_segment(c, now)
                        else:
                            self.open_slice(c, now, 1)
                elif c < self.tasks:
                    self.update_pace(c, now)

    def stall_claim(self, c: i64, now: i64) -> None:
        """Suspend a claim on a stalled engine: it keeps its slots and makes no progress."""
        if not self.stalled[c]:
            self.stalled[c] = 1
            self.occupy_engine(self.u_engine[self.unit[c]], -count_slots(self.slots[c]), now)
        if self.slice_open[c]:
            self.close_slice(c, now)
            if c < self.tasks:
                self.events.set(c, FAR)
                if not self.overhead[c]:
                    self.advance(c, now)
                    if self.on_dram[c]:
                        self.leave_dram(c)
