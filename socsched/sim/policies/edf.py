"""Earliest deadline first (Liu & Layland, JACM 20(1) 1973, theorem 7)."""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("edf", (Term.DEADLINE, Term.ACTIVATION))
"""Equal deadlines are ordered by activation, so that a tie never preempts."""
