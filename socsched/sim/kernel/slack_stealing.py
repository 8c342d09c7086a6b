"""Slack stealing: how long any order is harmless on a unit (`policies.slack_stealing` has the proof)."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import scale_ceil
    from cython.cimports.socsched_kernel.codes import SHIFT
    from cython.cimports.socsched_kernel.dispatching import Dispatcher
else:
    from .arithmetic import scale_ceil
    from .codes import SHIFT
    from .dispatching import Dispatcher


class SlackStealing(Dispatcher):
    """Tasks with guarded deadlines are numbered from `u_guarded0[u]` on, `u_guarded[u]` of them on a unit.

    `guarded[t]`: the number of a task (-1: none).  `next_order` holds them by the deadlines of their next frames,
    `next_due`.  `point_due` and `point_work` are deadlines of frames present or in transit and the work due by them,
    valid during a slack computation.  `slack_until[u]`: instant until which any order is known to be harmless.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        number: i64
        count_guarded: i64 = len(tables["d_task"])
        self.point_limit = tables["numbers"]["points"] + 1
        self.u_guarded0 = self.own(tables["u_guarded0"])
        self.u_guarded = self.own(tables["u_guarded"])
        self.u_region = self.own(tables["u_region"])
        self.u_slack_horizon = self.own(tables["u_slack_horizon"])
        self.d_task = self.own(tables["d_task"])
        self.d_worst = self.own(tables["d_worst"])
        self.d_share = self.own(tables["d_share"])
        self.d_cost = self.own(tables["d_cost"])
        self.d_source = self.own(tables["d_source"])
        self.d_timer = self.own(tables["d_timer"])
        self.d_period = self.own(tables["d_period"])
        self.d_deadline = self.own(tables["d_deadline"])
        self.d_jitter = self.own(tables["d_jitter"])
        self.d_gap = self.own(tables["d_gap"])
        self.guarded = self.fill(self.tasks, -1)
        self.next_order = self.fill(count_guarded, 0)
        self.next_due = self.fill(count_guarded, 0)
        self.point_due = self.fill(self.point_limit, 0)
        self.point_work = self.fill(self.point_limit, 0)
        self.slack_until = self.fill(self.units, 0)
        self.points = self.total_work = 0
        for number in range(count_guarded):
            self.guarded[self.d_task[number]] = self.next_order[number] = number

    def get_slack(self, u: i64, now: i64, need: i64) -> i64:
        """Return the known slack, for which any order is harmless (ns), recomputing it if it is not above `need`."""
        if self.slack_until[u] - now <= need:
            self.slack_until[u] = now + self.compute_slack(u, now, need)
        return self.slack_until[u] - now

    def compute_slack(self, u: i64, now: i64, need: i64) -> i64:
        """Return the slack from now (ns), up to `u_slack_horizon`; 0 if it is not above `need`."""
        base: i64 = self.u_guarded0[u]
        count: i64 = self.u_guarded[u]
        least: i64 = need + self.u_region[u]
        spare: i64 = self.u_slack_horizon[u] + self.u_region[u]
        if not self.collect_present(u, now, least) or self.points == self.point_limit:
            # too many deadlines to check
            return 0
        self.sort_next_deadlines(base, count)
        # upper bound on the rounding up of the rates of frames after the next one
        rounding: i64 = count + self.points
        work: i64 = 0
        rate: i64 = 0
        before: i64 = now
        i: i64 = 0
        j: i64 = 0
        while i < count or j < self.points:
            if j < self.points and (i == count or self.point_due[j] <= self.next_due[base + i]):
                due: i64 = self.point_due[j]
                cost: i64 = self.point_work[j]
                share: i64 = 0
                j += 1
            else:
                due = self.next_due[base + i]
                cost = self.d_cost[self.next_order[base + i]]
                share = self.d_share[self.next_order[base + i]]
                i += 1
            work += scale_ceil(rate, due - before, 1 << SHIFT) + cost
            before = due
            rate += share
            left: i64 = due - now - work
            if left < spare:
                spare = left
                if left <= least:
                    return 0
            self.total_work -= cost
            if left - self.total_work >= spare + rounding:
                # no later deadline leaves less
                break
        return spare - self.u_region[u]

    def collect_present(self, u: i64, now: i64, least: i64) -> i64:
        """Collect deadlines of frames present or in transit; return 0 if a single one leaves no slack."""
        i: i64
        self.points = self.total_work = 0
        for i in range(self.order_length[u]):
            t: i64 = self.order[self.u_order0[u] + i]
            number: i64 = self.guarded[t]
            if number < 0:
                continue
            job: i64 = self.job[t]
            if self.d_timer[number] and self.s_frame[self.d_source[number]] > self.j_frame[job] + 1:
                return 0
            work: i64 = self.d_worst[number] - self.get_executed(t, now)
            left: i64 = self.get_remaining(t, now)
            if left > work:
                work = left
            if self.j_deadline[job] - now - work <= least:
                return 0
            self.add_point(self.j_deadline[job], work)
        for number in range(self.u_guarded0[u], self.u_guarded0[u] + self.u_guarded[u]):
            if not self.d_timer[number]:
                self.collect_in_transit(number, now)
        return 1

    def collect_in_transit(self, number: i64, now: i64) -> None:
        """Collect deadlines of frames that may still be in transit to a task."""
        t: i64 = self.d_task[number]
        source: i64 = self.d_source[number]
        behind: i64 = self.j_frame[self.job[t]] if self.queued[t] else -1
        frame: i64 = self.s_frame[source]
        due: i64 = self.s_due[source] + self.d_deadline[number]
        first: i64 = due - self.d_jitter[number]
        last: i64 = due + self.d_jitter[number] - self.d_period[number]
        while frame > behind + 1 and last > now:
            first -= self.d_period[number] + self.d_gap[number]
            last -= self.d_period[number]
            frame -= 1
            self.add_point(first, self.d_worst[number])

    def add_point(self, due: i64, work: i64) -> None:
        """Insert a deadline at its place among those collected."""
        at: i64 = self.points
        if at == self.point_limit:
            return
        while at > 0 and self.point_due[at - 1] > due:
            self.point_due[at], self.point_work[at] = self.point_due[at - 1], self.point_work[at - 1]
            at -= 1
        self.point_due[at], self.point_work[at] = due, work
        self.points += 1
        self.total_work += work

    def sort_next_deadlines(self, base: i64, count: i64) -> None:
        """Sort tasks by their next frames' deadlines; most are still in order from the last time."""
        i: i64
        for i in range(base, base + count):
            number: i64 = self.next_order[i]
            due: i64 = self.s_due[self.d_source[number]] + self.d_deadline[number]
            at: i64 = i
            while at > base and self.next_due[at - 1] > due:
                self.next_due[at], self.next_order[at] = self.next_due[at - 1], self.next_order[at - 1]
                at -= 1
            self.next_due[at], self.next_order[at] = due, number
            self.total_work += self.d_cost[number]
