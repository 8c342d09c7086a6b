"""Budgets and quanta: how long a task may run before it must yield."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.accounting import Accounting
    from cython.cimports.socsched_kernel.arithmetic import scale_floor
    from cython.cimports.socsched_kernel.codes import FAR
else:
    from .accounting import Accounting
    from .arithmetic import scale_floor
    from .codes import FAR


class Reservations(Accounting):
    """Constant bandwidth servers and round-robin.

    `budget[t]` ns are left until the deadline `server_deadline[t]` of a reservation; while `throttled`, the task waits
    for that deadline.  `quantum_end[t]`: end of the current quantum.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.budget = self.fill(self.tasks, 0)
        self.server_deadline = self.fill(self.tasks, 0)
        self.throttled = self.fill(self.tasks, 0)
        self.quantum_end = self.fill(self.tasks, 0)

    def start_budget(self, t: i64, now: i64) -> None:
        """Start the budget or quantum of a task that runs from now; a quantum's end is an event only if jobs wait."""
        u: i64 = self.unit[t]
        if self.u_reservations[u] and self.t_budget[t]:
            self.events.set(self.budget_event0 + t, now + self.budget[t])
        elif self.u_quantum[u] and not self.quantum_end[t]:
            self.quantum_end[t] = now + self.u_quantum[u]

    def end_quantum(self, t: i64) -> None:
        """Forfeit the rest of the quantum of a task that leaves its slots."""
        if self.quantum_end[t]:
            self.quantum_end[t] = 0
            self.events.set(self.quantum_event0 + t, FAR)

    def charge_budget(self, t: i64, now: i64) -> None:
        """Charge a task's budget for running until now."""
        u: i64 = self.unit[t]
        if self.u_reservations[u] and self.t_budget[t]:
            self.budget[t] -= now - self.slice_start[t]
            if not self.throttled[t]:
                self.events.set(self.budget_event0 + t, FAR)

    def replenish(self, t: i64, now: i64) -> None:
        """Wake up a reservation: new deadline unless the remaining budget fits before the old (CBS wake-up rule)."""
        if not self.t_budget[t] or self.throttled[t]:
            return
        if self.server_deadline[t] <= now or self.budget[t] > scale_floor(
            self.server_deadline[t] - now, self.t_budget[t], self.t_server_period[t]
        ):
            self.server_deadline[t] = now + self.t_server_period[t]
            self.budget[t] = self.t_budget[t]
