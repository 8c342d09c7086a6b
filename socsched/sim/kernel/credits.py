"""Credits of jobs for waiting and service received by tasks: tokens and weighted service."""

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import portion
    from cython.cimports.socsched_kernel.codes import FAR, SHIFT
    from cython.cimports.socsched_kernel.reservations import Reservations
else:
    from .arithmetic import portion
    from .codes import FAR, SHIFT
    from .reservations import Reservations


class Credits(Reservations):
    """`waited[t]`: waiting time of a job as of `waits_from[t]` (ns), which determines its tokens.

    `waits[levels_at[t] + i]`: waiting time to reach level i of its unit's tokens, followed by the waiting times to be a
    candidate at level i (`g_levels`: where those of a segment's unit start).  `steps` holds the same times in ascending
    order, of which the job has passed `stepped[t]`.  `reached[t]`: the job's level (-1: none); `bar[u]`: the level
    reached on the unit.  `service[t]`: execution time of a task divided by its weight.  `least[u]`: service of the task
    with the least when another arrived, or of the last task that left; no returning task starts below it.  `pull[t]`:
    2**26 divided by the weight.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        t: i64
        g: i64
        self.waited = self.fill(self.tasks, 0)
        self.waits_from = self.fill(self.tasks, 0)
        self.service = self.fill(self.tasks, 0)
        self.pull = self.fill(self.tasks, 0)
        self.levels_at = self.fill(self.tasks, 0)
        self.bar = self.fill(self.units, 0)
        self.reached = self.fill(self.tasks, -1)
        self.stepped = self.fill(self.tasks, 0)
        self.steps = self.own(array("q", tables["waits"]))
        self.least = self.fill(self.units, 0)
        for t in range(self.tasks):
            self.pull[t] = (1 << 26) // self.t_weight[t]
        for g in range(self.segments):
            self.put_in_order(self.g_levels[g], 2 * self.u_tokens[self.g_unit[g]])

    def credit(self, t: i64, now: i64) -> None:
        """Reset the waiting time for a new job."""
        self.waited[t] = 0
        self.waits_from[t] = now
        self.reached[t] = -1
        self.stepped[t] = 0

    def credit_anew(self, t: i64) -> None:
        """Reset the level of a job that moves to another unit; its waiting time counts there by that unit's levels."""
        self.reached[t] = -1
        self.stepped[t] = 0

    def debit(self, t: i64, ran: i64) -> None:
        """Charge a task for execution time."""
        self.service[t] += self.share_of(t, ran)

    def share_of(self, t: i64, ran: i64) -> i64:
        """Return a time divided by a task's weight."""
        return portion(ran, self.pull[t], 1 << SHIFT)

    def put_in_order(self, first: i64, count: i64) -> None:
        """Sort a range of `steps`."""
        i: i64
        for i in range(first, first + count):
            value: i64 = self.steps[i]
            at: i64 = i
            while at > first and self.steps[at - 1] > value:
                self.steps[at] = self.steps[at - 1]
                at -= 1
            self.steps[at] = value

    def level_of(self, u: i64, t: i64) -> i64:
        """Return the highest token level a job has reached, -1 for none."""
        level: i64 = self.reached[t]
        while level + 1 < self.u_tokens[u] and self.waited[t] >= self.waits[self.levels_at[t] + level + 1]:
            level += 1
        self.reached[t] = level
        return level

    def time_to_level(self, u: i64, t: i64) -> i64:
        """Return the waiting time left until a job's next token level (ns)."""
        at: i64 = self.levels_at[t] + self.stepped[t]
        end: i64 = self.levels_at[t] + 2 * self.u_tokens[u]
        while at < end and self.steps[at] <= self.waited[t]:
            at += 1
        self.stepped[t] = at - self.levels_at[t]
        return self.steps[at] - self.waited[t] if at < end else FAR

    def candidate(self, u: i64, t: i64) -> i64:
        """Return 0 for a job with enough tokens, 1 for others, as an ordering key."""
        return self.waited[t] < self.waits[self.levels_at[t] + self.u_tokens[u] + self.bar[u]]
