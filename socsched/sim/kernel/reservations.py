"""Budgets and quanta: how long a task may run before it must yield."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import portion
    from cython.cimports.socsched_kernel.books import Books
    from cython.cimports.socsched_kernel.codes import FAR
else:
    from .arithmetic import portion
    from .books import Books
    from .codes import FAR


class Reservations(Books):
    """Constant bandwidth servers and round-robin.

    `budget[t]` ns are left until the deadline `server[t]` of a reservation; while `throttled`, the task waits for that
    deadline.  `turn[t]`: end of the current quantum.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.budget = self.fill(self.tasks, 0)
        self.server = self.fill(self.tasks, 0)
        self.throttled = self.fill(self.tasks, 0)
        self.turn = self.fill(self.tasks, 0)

    def serve(self, t: i64, now: i64) -> None:
        """Start the budget or quantum of a task that runs from now; a quantum's end is an event only if jobs wait."""
        u: i64 = self.unit[t]
        if self.u_serves[u] and self.t_budget[t]:
            self.events.set(self.from_budget + t, now + self.budget[t])
        elif self.u_quantum[u] and not self.turn[t]:
            self.turn[t] = now + self.u_quantum[u]

    def end_turn(self, t: i64) -> None:
        """Forfeit the rest of the quantum of a task that leaves its lanes."""
        if self.turn[t]:
            self.turn[t] = 0
            self.events.set(self.from_turn + t, FAR)

    def consume(self, t: i64, now: i64) -> None:
        """Charge a task's budget for running until now."""
        u: i64 = self.unit[t]
        if self.u_serves[u] and self.t_budget[t]:
            self.budget[t] -= now - self.slice_from[t]
            if not self.throttled[t]:
                self.events.set(self.from_budget + t, FAR)

    def replenish(self, t: i64, now: i64) -> None:
        """Wake up a reservation: new deadline unless the remaining budget fits before the old (CBS wake-up rule)."""
        if not self.t_budget[t] or self.throttled[t]:
            return
        if self.server[t] <= now or self.budget[t] > portion(self.server[t] - now, self.t_budget[t], self.t_server[t]):
            self.server[t] = now + self.t_server[t]
            self.budget[t] = self.t_budget[t]
