"""Earliest deadline first (Liu & Layland, JACM 20(1) 1973, theorem 7)."""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("edf", (Term.DEADLINE, Term.ACTIVATION))
"""Of equal deadlines the job activated first, so that a tie never preempts."""
