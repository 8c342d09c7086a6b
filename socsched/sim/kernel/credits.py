"""What jobs have earned by waiting, and tasks have had: tokens and weighted service."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import scaled
    from cython.cimports.socsched_kernel.codes import SHIFT
    from cython.cimports.socsched_kernel.reservations import Reservations
else:
    from .arithmetic import scaled
    from .codes import SHIFT
    from .reservations import Reservations


class Credits(Reservations):
    """`token[t]` of a job in 2**-20, as of `waits_from[t]`; `bar[u]` is what candidates have.

    `service[t]`: time a task has run (ns), divided by its weight, in 2**-20; `least[u]` that of the one that had least
    when last looked at, below which nobody who comes back starts.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.token = self.fill(self.tasks, 0)
        self.waits_from = self.fill(self.tasks, 0)
        self.service = self.fill(self.tasks, 0)
        self.bar = self.fill(self.units, 0)
        self.least = self.fill(self.units, 0)

    def credit(self, t: i64, now: i64) -> None:
        """A job comes: it has its task's tokens, and its task no more of a lead than those that were here."""
        self.token[t] = self.t_weight[t] << SHIFT
        self.waits_from[t] = now
        if self.service[t] < self.least[self.unit[t]]:
            self.service[t] = self.least[self.unit[t]]

    def debit(self, t: i64, ran: i64) -> None:
        """A task has run for that long."""
        self.service[t] += self.share_of(t, ran)

    def share_of(self, t: i64, ran: i64) -> i64:
        """Return a time divided by a task's weight, in 2**-20 ns."""
        return scaled(ran, 1 << SHIFT, self.t_weight[t])

    def earn(self, t: i64, now: i64) -> None:
        """A job has waited until now."""
        self.token[t] += scaled(now - self.waits_from[t], self.t_weight[t] << SHIFT, self.t_cost[t])
        self.waits_from[t] = now

    def raise_bar(self, u: i64, most: i64) -> None:
        """Set what candidates have, `most` being the tokens of the one that has most."""
        i: i64
        level: i64 = self.u_fixed[u] << SHIFT
        if not level:
            level = self.levels_of[self.u_level0[u]] << SHIFT
            for i in range(1, self.u_tokens[u]):
                if self.levels_of[self.u_level0[u] + i] << SHIFT <= most:
                    level = self.levels_of[self.u_level0[u] + i] << SHIFT
        self.bar[u] = level + self.u_strict[u]
