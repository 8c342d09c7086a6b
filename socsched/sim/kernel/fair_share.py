"""Shares of an engine: tokens that jobs earn by waiting, and the virtual runtime of tasks."""

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import scale_floor
    from cython.cimports.socsched_kernel.codes import FAR, SHIFT
    from cython.cimports.socsched_kernel.reservations import Reservations
else:
    from .arithmetic import scale_floor
    from .codes import FAR, SHIFT
    from .reservations import Reservations


class FairShare(Reservations):
    """`waited[t]`: waiting time of a job as of `waiting_since[t]` (ns), which determines its tokens.

    `waits[waits_start[t] + i]`: waiting time to reach level i of its unit's tokens, followed by the waiting times to be
    a candidate at level i (`g_waits0`: where those of a segment's unit start).  `sorted_waits` holds the same times in
    ascending order, of which the job has passed `steps_passed[t]`.  `token_level[t]`: the job's level (-1: none);
    `unit_level[u]`: the level reached on the unit.

    `vruntime[t]`, the virtual runtime: execution time of a task divided by its weight (as in Linux's CFS).
    `min_vruntime[u]`: the least of the tasks present when another arrived, or that of the last task that left; no
    returning task starts below it.  `inverse_weight[t]`: 2**26 divided by the weight.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        t: i64
        g: i64
        self.waited = self.fill(self.tasks, 0)
        self.waiting_since = self.fill(self.tasks, 0)
        self.vruntime = self.fill(self.tasks, 0)
        self.inverse_weight = self.fill(self.tasks, 0)
        self.waits_start = self.fill(self.tasks, 0)
        self.unit_level = self.fill(self.units, 0)
        self.token_level = self.fill(self.tasks, -1)
        self.steps_passed = self.fill(self.tasks, 0)
        self.sorted_waits = self.own(array("q", tables["waits"]))
        self.min_vruntime = self.fill(self.units, 0)
        for t in range(self.tasks):
            self.inverse_weight[t] = (1 << 26) // self.t_weight[t]
        for g in range(self.segments):
            self.sort_waits(self.g_waits0[g], 2 * self.u_tokens[self.g_unit[g]])

    def reset_waiting(self, t: i64, now: i64) -> None:
        """Reset the waiting time for a new job."""
        self.waited[t] = 0
        self.waiting_since[t] = now
        self.token_level[t] = -1
        self.steps_passed[t] = 0

    def reset_level(self, t: i64) -> None:
        """Reset the level of a job that moves to another unit; its waiting time counts there by that unit's levels."""
        self.token_level[t] = -1
        self.steps_passed[t] = 0

    def charge_vruntime(self, t: i64, ran: i64) -> None:
        """Charge a task for execution time."""
        self.vruntime[t] += self.scale_vruntime(t, ran)

    def scale_vruntime(self, t: i64, ran: i64) -> i64:
        """Return a time divided by a task's weight."""
        return scale_floor(ran, self.inverse_weight[t], 1 << SHIFT)

    def sort_waits(self, first: i64, count: i64) -> None:
        """Sort a range of `sorted_waits`."""
        i: i64
        for i in range(first, first + count):
            value: i64 = self.sorted_waits[i]
            at: i64 = i
            while at > first and self.sorted_waits[at - 1] > value:
                self.sorted_waits[at] = self.sorted_waits[at - 1]
                at -= 1
            self.sorted_waits[at] = value

    def update_level(self, u: i64, t: i64) -> i64:
        """Return the highest token level a job has reached, -1 for none."""
        level: i64 = self.token_level[t]
        while level + 1 < self.u_tokens[u] and self.waited[t] >= self.waits[self.waits_start[t] + level + 1]:
            level += 1
        self.token_level[t] = level
        return level

    def time_to_level(self, u: i64, t: i64) -> i64:
        """Return the waiting time left until a job's next token level (ns)."""
        at: i64 = self.waits_start[t] + self.steps_passed[t]
        end: i64 = self.waits_start[t] + 2 * self.u_tokens[u]
        while at < end and self.sorted_waits[at] <= self.waited[t]:
            at += 1
        self.steps_passed[t] = at - self.waits_start[t]
        return self.sorted_waits[at] - self.waited[t] if at < end else FAR

    def rank_candidate(self, u: i64, t: i64) -> i64:
        """Return 0 for a job with enough tokens, 1 for others, as an ordering key."""
        return self.waited[t] < self.waits[self.waits_start[t] + self.u_tokens[u] + self.unit_level[u]]
