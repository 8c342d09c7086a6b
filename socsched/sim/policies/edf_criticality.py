"""Criticality first, earliest deadline within it: hard tasks never wait for firm ones, nor firm for soft."""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("edf-criticality", (Term.CRITICALITY, Term.DEADLINE))
