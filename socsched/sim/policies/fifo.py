"""First in, first out: the behaviour of an engine's hardware queue without scheduling."""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("fifo", (Term.ACTIVATION, Term.NOTHING))
