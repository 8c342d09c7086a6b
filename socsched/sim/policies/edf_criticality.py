"""Criticality first, earliest deadline within: what must not fail never waits for what may (firm before soft)."""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("edf-criticality", (Term.CRITICALITY, Term.DEADLINE))
