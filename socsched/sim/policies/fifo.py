"""First in, first out: what an engine's hardware queue does without help."""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("fifo", (Term.ACTIVATION, Term.NOTHING))
