"""Rate monotonic: the shorter the period, the more urgent (Liu & Layland, JACM 20(1) 1973, theorem 2)."""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("rm", (Term.PERIOD, Term.NOTHING))
"""Tasks of equal period keep their order, as in a fixed priority assignment."""
