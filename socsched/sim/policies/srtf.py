"""Shortest remaining time first (Schrage, Oper. Res. 16(3) 1968): least mean response, no regard for deadlines."""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("srtf", (Term.REMAINING, Term.ACTIVATION), dynamic=True)
