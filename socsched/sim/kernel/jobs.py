"""The life cycle of a job: promotion by its task, completion or removal, and the resulting clock changes and stalls."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import bits, has, scaled
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
    from cython.cimports.socsched_kernel.places import Places
else:
    from .arithmetic import bits, has, scaled
    from .codes import ABORT, ABORTED, DEGRADE, DROPPED, FAR, OVERRUN, SEGMENT, SHIFT, SKIP, SKIPPED
    from .places import Places

DRAWS = cython.declare(cython.longlong, 128)
"""Random numbers requested at once (`Conductor.draws`)."""


class Jobs(Places):
    """Waiting jobs of a task are linked from `head[t]` to `tail[t]`, `waiting[t]` of them.

    `owes[t]`: the job must pay for a switch when it resumes.  `stop[t]`: the segment after which it launches no more
    (-1: none); `ahead[t]`: the same, due to a more urgent job on another engine.  `blocked[t]`: instant since which it
    waits for non-preemptible work (-1: it does not).  `begun[t]`: the segment at which it was last resumed.
    `mates[t]`: the jobs served together with its own, linked like waiting ones (-1: none).  `util[t]`: its utilization
    of its engine in 2**-20, for clocks that follow the load.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.waiting = self.fill(self.tasks, 0)
        self.owes = self.fill(self.tasks, 0)
        self.util = self.fill(self.tasks, 0)
        self.head = self.fill(self.tasks, -1)
        self.tail = self.fill(self.tasks, -1)
        self.stop = self.fill(self.tasks, -1)
        self.ahead = self.fill(self.tasks, -1)
        self.begun = self.fill(self.tasks, 0)
        self.mates = self.fill(self.tasks, -1)
        self.blocked = self.fill(self.tasks, -1)
        streams: i64 = tables["numbers"]["streams"]
        self.drawn = self.fill(streams * DRAWS, 0)
        self.draw_at = self.fill(streams, DRAWS)

    def promote(self, t: i64, slot: i64, now: i64) -> i64:
        """Make a waiting job its task's current one; return 0 if it would be late and is skipped instead."""
        late: i64 = self.t_late[t]
        self.job[t] = slot
        self.first[t], self.count[t] = self.t_first[t], self.t_count[t]
        self.stop[t] = self.ahead[t] = -1
        self.up[t] = self.down[t] = 1
        if self.t_stream[t] >= 0:
            self.sample_time(t)
        if self.t_over[t] >= 0 and (self.draw(self.t_over[t]) >> 9) < self.t_chance[t]:
            # an overrun multiplies the job's drawn execution time
            self.lengthen(t, self.t_up[t], self.t_down[t])
            self.note(now, OVERRUN, t, self.j_frame[slot], self.t_up[t] * 1000000 // self.t_down[t])
        hopeless: i64 = late and now + scaled(self.t_cost[t], self.up[t], self.down[t]) > self.j_deadline[slot]
        if hopeless and late == SKIP:
            self.note(now, SKIPPED, t, self.j_frame[slot], 0)
            self.finish(t, slot, now, DROPPED)
            self.job[t] = -1
            return 0
        if hopeless and late == DEGRADE and self.t_alts[t]:
            self.first[t], self.count[t] = self.t_alt[t], self.t_alts[t]
        if late == ABORT:
            self.events.set(self.from_abort + t, self.j_deadline[slot] if self.j_deadline[slot] > now else now)
        self.place[t] = 0
        self.load(t, self.first[t])
        self.aim(t, self.first[t])
        if self.n_governor[self.u_engine[self.unit[t]]]:
            self.govern(t, self.t_cost[t], now)
        if self.u_serves[self.unit[t]]:
            self.replenish(t, now)
        self.credit(t, now)
        if self.u_weighed[self.unit[t]]:
            self.catch_up(t, now)
        self.begun[t] = 0
        self.enlist(t, now)
        return 1

    def sample_time(self, t: i64) -> None:
        """Draw this job's execution time: a sample, or a point between two quantiles."""
        drawn: i64 = self.draw(self.t_stream[t]) >> 30
        size: i64 = self.t_table[t]
        if self.t_between[t]:
            at: i64 = drawn * (size - 1) >> 32
            rest: i64 = drawn * (size - 1) - (at << 32)
            value: i64 = self.times[self.t_table0[t] + at]
            # 2**12 steps between two quantiles keep the product small
            value += (self.times[self.t_table0[t] + at + 1] - value) * (rest >> 20) >> 12
        else:
            value = self.times[self.t_table0[t] + (drawn * size >> 32)]
        self.up[t], self.down[t] = value, self.t_cost[t]

    def lengthen(self, t: i64, up: i64, down: i64) -> None:
        """Scale this job's duration by `up` / `down`; rounded up if the fraction grows too large."""
        if self.up[t] < 2147483648 and self.down[t] < 2147483648 and up < 2147483648 and down < 2147483648:
            self.up[t] *= up
            self.down[t] *= down
        else:
            self.up[t] = scaled(self.up[t], up, down)

    def draw(self, stream: i64) -> i64:
        """Return a random number from 0 to 2**62 - 1."""
        at: i64 = self.draw_at[stream]
        i: i64
        base: i64 = stream * DRAWS
        if at == DRAWS:
            fresh = self.hooks.draws(stream)
            for i in range(DRAWS):
                self.drawn[base + i] = fresh[i]
            at = 0
        self.draw_at[stream] = at + 1
        return self.drawn[base + at]

    def follow(self, t: i64, now: i64) -> None:
        """Promote the oldest waiting job of a task that is not skipped."""
        taken: i64 = 0
        self.blocked[t] = -1
        if self.t_late[t] == ABORT:
            self.events.set(self.from_abort + t, FAR)
        while self.head[t] >= 0 and not taken:
            slot: i64 = self.head[t]
            self.head[t] = self.j_next[slot]
            if self.head[t] >= 0:
                self.j_before[self.head[t]] = -1
            else:
                self.tail[t] = -1
            self.waiting[t] -= 1
            taken = self.promote(t, slot, now)

    def kill(self, t: i64, now: i64, status: i64) -> None:
        """Remove a task's current job, in whatever state it is."""
        slot: i64 = self.job[t]
        home: i64 = self.tasks + t
        claim: i64
        self.part(self.unit[t], now)
        for claim in (home, t):
            if self.listed[claim]:
                if self.running[claim]:
                    if self.sliced[claim]:
                        self.end_slice(claim, now)
                    if claim == t and self.drawing[t]:
                        self.leave_memory(t)
                    self.vacate(claim, now)
                self.unlist(claim)
        self.events.set(t, FAR)
        self.soil(self.unit[t])
        self.owes[t] = self.prefix[t] = self.timed[t] = 0
        self.finish(t, slot, now, status)
        while self.mates[t] >= 0:
            slot = self.mates[t]
            self.mates[t] = self.j_next[slot]
            self.finish(t, slot, now, status)
        self.job[t] = -1
        self.follow(t, now)

    def govern(self, t: i64, cost: i64, now: i64) -> None:
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
        self.util[t] = scaled(cost, 1 << SHIFT, within) if self.t_period[t] else 0
        # capped, since such a load is never attainable, so that sums over many tasks stay below 2**63
        if self.util[t] > 1099511627776:
            self.util[t] = 1099511627776
        for u in range(self.units):
            if self.u_engine[u] == e and self.needed(u) > need:
                need = self.needed(u)
        if need > 2 << SHIFT:
            need = 2 << SHIFT
        while level < self.n_top[e] and self.n_clock[base + level] << SHIFT < need * top:
            level += 1
        if level != self.n_level[e]:
            self.charge(e, now)
            self.n_level[e] = level
            self.adapt(e, now)

    def needed(self, u: i64) -> i64:
        """Return the speed at which a unit's lanes carry its load under EDF, in 2**-20 of full speed.

        One lane: the sum U.  Several lanes open to any job: (U + (m - 1) u_max) / m (Goossens, Funk & Baruah, RTS 25
        2003; their proof compares rates of work at every instant, so it holds for changing speeds).  Otherwise U again:
        the most urgent job always has its lanes, so that work proceeds at least as fast as on one lane.
        """
        other: i64
        lane: i64
        sum: i64 = 0
        most: i64 = 0
        for other in range(self.tasks):
            if self.g_unit[self.t_first[other]] == u:
                sum += self.util[other]
                if self.util[other] > most:
                    most = self.util[other]
        count: i64 = bits(self.u_mask[u])
        if self.u_global[u]:
            sum = (sum + (count - 1) * most + count - 1) // count
        slowest: i64 = 1024
        first: i64 = self.n_lane0[self.u_engine[u]]
        for lane in range(self.n_lanes[self.u_engine[u]] if self.n_uneven else 0):
            if has(self.u_mask[u], lane) and self.lane_speed[first + lane] < slowest:
                slowest = self.lane_speed[first + lane]
        return sum if slowest == 1024 else scaled(sum, 1024, slowest)

    def adapt(self, e: i64, now: i64) -> None:
        """Adapt running jobs to changed clocks, faults or stalls of an engine."""
        u: i64
        engine: i64
        if self.record and self.n_level[e] != self.noted[e]:
            self.noted[e] = self.n_level[e]
            self.write_level(e, self.n_level[e], now)
        for u in range(self.units):
            if self.u_engine[u] == e:
                self.part(u, now)
        self.load_now = 0
        for engine in range(self.engines):
            self.load_now += self.busy[engine] * self.n_power[engine * self.levels + self.n_level[engine]]
        for u in range(self.units):
            if self.guest[u] >= 0:
                self.load_now += self.guest_power[u]
        for u in range(self.units):
            if self.u_engine[u] != e:
                continue
            self.soil(u)
            i: i64 = 0
            while i < self.runs[u]:
                c: i64 = self.run[self.u_order0[u] + i]
                t: i64 = c if c < self.tasks else c - self.tasks
                if self.n_still[e] == 2:
                    self.kill(t, now, ABORTED)
                    i = 0
                    continue
                i += 1
                if self.n_still[e]:
                    self.freeze(c, now)
                    continue
                if self.frozen[c]:
                    self.frozen[c] = 0
                    self.occupy(e, bits(self.lanes[c]), now)
                if not self.sliced[c]:
                    if self.u_kind[u] != SEGMENT or self.locked[c]:
                        if c < self.tasks:
                            self.begin(c, now)
                        else:
                            self.open_slice(c, now, 1)
                elif c < self.tasks:
                    self.pace_again(c, now)

    def freeze(self, c: i64, now: i64) -> None:
        """Suspend a claim on a stalled engine: it keeps its lanes and makes no progress."""
        if not self.frozen[c]:
            self.frozen[c] = 1
            self.occupy(self.u_engine[self.unit[c]], -bits(self.lanes[c]), now)
        if self.sliced[c]:
            self.end_slice(c, now)
            if c < self.tasks:
                self.events.set(c, FAR)
                if not self.prefix[c]:
                    self.advance(c, now)
                    if self.drawing[c]:
                        self.leave_memory(c)
