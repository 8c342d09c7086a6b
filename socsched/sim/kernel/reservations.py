"""Budgets and quanta: how long a task may run before it is others' turn."""

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
    """Constant bandwidth servers and rounds.

    `budget[t]` ns are left until the deadline `server[t]` of a reservation, which waits for it while `throttled`;
    `turn[t]` is when a quantum ends.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.budget = self.fill(self.tasks, 0)
        self.server = self.fill(self.tasks, 0)
        self.throttled = self.fill(self.tasks, 0)
        self.turn = self.fill(self.tasks, 0)

    def serve(self, t: i64, now: i64) -> None:
        """A task runs from now: its budget runs too, or its quantum, whose end is expected where somebody waits."""
        u: i64 = self.unit[t]
        if self.u_serves[u] and self.t_budget[t]:
            self.events.set(self.from_budget + t, now + self.budget[t])
        elif self.u_quantum[u] and not self.turn[t]:
            self.turn[t] = now + self.u_quantum[u]

    def end_turn(self, t: i64) -> None:
        """A task leaves its lanes: what is left of its quantum is forfeit."""
        if self.turn[t]:
            self.turn[t] = 0
            self.events.set(self.from_turn + t, FAR)

    def consume(self, t: i64, now: i64) -> None:
        """A task ran until now."""
        u: i64 = self.unit[t]
        if self.u_serves[u] and self.t_budget[t]:
            self.budget[t] -= now - self.slice_from[t]
            if not self.throttled[t]:
                self.events.set(self.from_budget + t, FAR)

    def replenish(self, t: i64, now: i64) -> None:
        """Wake a reservation up: a new deadline unless what is left fits before the old one (CBS, rule of wake-up)."""
        if not self.t_budget[t] or self.throttled[t]:
            return
        if self.server[t] <= now or self.budget[t] > portion(self.server[t] - now, self.t_budget[t], self.t_server[t]):
            self.server[t] = now + self.t_server[t]
            self.budget[t] = self.t_budget[t]
