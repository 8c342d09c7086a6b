"""Constant bandwidth server with hard reservations, as Linux's SCHED_DEADLINE (Abeni & Buttazzo, RTSS 1998; GRUB off).

A task may run `budget_ns` in every `server_ns`; EDF orders by the reservation's deadline.  A job whose reservation has
expired, or has more budget than fits before the deadline at that rate, gets a new one; a task that has used up its
budget waits until the reservation's deadline.  Tasks without a reservation run in order of their own deadlines.
"""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("cbs", (Term.SERVER, Term.ACTIVATION), serves=True)
