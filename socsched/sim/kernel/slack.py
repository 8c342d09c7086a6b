"""How long any order is harmless on a unit: `policies.guard` documents the computation and its proof."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import scaled
    from cython.cimports.socsched_kernel.codes import SHIFT
    from cython.cimports.socsched_kernel.dispatching import Dispatcher
else:
    from .arithmetic import scaled
    from .codes import SHIFT
    from .dispatching import Dispatcher


class Slack(Dispatcher):
    """Guarded tasks are numbered from `u_load0[u]` on, `u_loads[u]` of them on a unit; `guarded[t]`: their numbers.

    `ahead_order` holds them by the deadlines of their next frames, `ahead_due`.  `point_due` and `point_work` are
    deadlines of frames present or in transit and the work due by them, valid during a slack computation.  `sure[u]`:
    instant until which any order is known to be harmless.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        load: i64
        loads: i64 = len(tables["l_task"])
        self.point_room = tables["numbers"]["points"] + 1
        self.u_load0 = self.own(tables["u_load0"])
        self.u_loads = self.own(tables["u_loads"])
        self.u_region = self.own(tables["u_region"])
        self.u_reach = self.own(tables["u_reach"])
        self.l_task = self.own(tables["l_task"])
        self.l_worst = self.own(tables["l_worst"])
        self.l_share = self.own(tables["l_share"])
        self.l_cost = self.own(tables["l_cost"])
        self.l_source = self.own(tables["l_source"])
        self.l_timer = self.own(tables["l_timer"])
        self.l_period = self.own(tables["l_period"])
        self.l_deadline = self.own(tables["l_deadline"])
        self.l_jitter = self.own(tables["l_jitter"])
        self.l_gap = self.own(tables["l_gap"])
        self.guarded = self.fill(self.tasks, -1)
        self.ahead_order = self.fill(loads, 0)
        self.ahead_due = self.fill(loads, 0)
        self.point_due = self.fill(self.point_room, 0)
        self.point_work = self.fill(self.point_room, 0)
        self.sure = self.fill(self.units, 0)
        self.points = self.all_work = 0
        for load in range(loads):
            self.guarded[self.l_task[load]] = self.ahead_order[load] = load

    def harmless(self, u: i64, now: i64, need: i64) -> i64:
        """Return for how long any order is known to be harmless (ns), recomputing if that is not above `need`."""
        if self.sure[u] - now <= need:
            self.sure[u] = now + self.slack(u, now, need)
        return self.sure[u] - now

    def slack(self, u: i64, now: i64, need: i64) -> i64:
        """Return for how long from now any order is harmless (ns), up to `u_reach`; 0 if it is not above `need`."""
        base: i64 = self.u_load0[u]
        count: i64 = self.u_loads[u]
        least: i64 = need + self.u_region[u]
        spare: i64 = self.u_reach[u] + self.u_region[u]
        if not self.present(u, now, least) or self.points == self.point_room:
            # too many deadlines to check
            return 0
        self.sort_ahead(base, count)
        # upper bound on the rounding up of the rates of frames after the next one
        rounding: i64 = count + self.points
        work: i64 = 0
        rate: i64 = 0
        before: i64 = now
        i: i64 = 0
        j: i64 = 0
        while i < count or j < self.points:
            if j < self.points and (i == count or self.point_due[j] <= self.ahead_due[base + i]):
                due: i64 = self.point_due[j]
                cost: i64 = self.point_work[j]
                share: i64 = 0
                j += 1
            else:
                due = self.ahead_due[base + i]
                cost = self.l_cost[self.ahead_order[base + i]]
                share = self.l_share[self.ahead_order[base + i]]
                i += 1
            work += scaled(rate, due - before, 1 << SHIFT) + cost
            before = due
            rate += share
            left: i64 = due - now - work
            if left < spare:
                spare = left
                if left <= least:
                    return 0
            self.all_work -= cost
            if left - self.all_work >= spare + rounding:
                # no later deadline leaves less
                break
        return spare - self.u_region[u]

    def present(self, u: i64, now: i64, least: i64) -> i64:
        """Collect deadlines of frames present or in transit; return 0 if a single one leaves no slack."""
        i: i64
        self.points = self.all_work = 0
        for i in range(self.ordered[u]):
            t: i64 = self.order[self.u_order0[u] + i]
            load: i64 = self.guarded[t]
            if load < 0:
                continue
            slot: i64 = self.job[t]
            if self.l_timer[load] and self.s_frame[self.l_source[load]] > self.j_frame[slot] + 1:
                return 0
            work: i64 = self.l_worst[load] - self.j_exec[slot]
            if self.sliced[t]:
                work -= now - self.slice_from[t]
            left: i64 = self.remaining(t, now)
            if left > work:
                work = left
            if self.j_deadline[slot] - now - work <= least:
                return 0
            self.add_point(self.j_deadline[slot], work)
        for load in range(self.u_load0[u], self.u_load0[u] + self.u_loads[u]):
            if not self.l_timer[load]:
                self.under_way(load, now)
        return 1

    def under_way(self, load: i64, now: i64) -> None:
        """Collect deadlines of frames that may still be in transit to a task."""
        t: i64 = self.l_task[load]
        source: i64 = self.l_source[load]
        behind: i64 = self.j_frame[self.job[t]] if self.listed[t] else -1
        frame: i64 = self.s_frame[source]
        due: i64 = self.s_due[source] + self.l_deadline[load]
        first: i64 = due - self.l_jitter[load]
        last: i64 = due + self.l_jitter[load] - self.l_period[load]
        while frame > behind + 1 and last > now:
            first -= self.l_period[load] + self.l_gap[load]
            last -= self.l_period[load]
            frame -= 1
            self.add_point(first, self.l_worst[load])

    def add_point(self, due: i64, work: i64) -> None:
        """Insert a deadline at its place among those collected."""
        at: i64 = self.points
        if at == self.point_room:
            return
        while at > 0 and self.point_due[at - 1] > due:
            self.point_due[at], self.point_work[at] = self.point_due[at - 1], self.point_work[at - 1]
            at -= 1
        self.point_due[at], self.point_work[at] = due, work
        self.points += 1
        self.all_work += work

    def sort_ahead(self, base: i64, count: i64) -> None:
        """Sort tasks by their next frames' deadlines; most are still in order from the last time."""
        i: i64
        for i in range(base, base + count):
            load: i64 = self.ahead_order[i]
            due: i64 = self.s_due[self.l_source[load]] + self.l_deadline[load]
            at: i64 = i
            while at > base and self.ahead_due[at - 1] > due:
                self.ahead_due[at], self.ahead_order[at] = self.ahead_due[at - 1], self.ahead_order[at - 1]
                at -= 1
            self.ahead_due[at], self.ahead_order[at] = due, load
            self.all_work += self.l_cost[load]
