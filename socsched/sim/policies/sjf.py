"""Shortest job first, by planned cost of the whole job: a baseline of PREMA (Choi & Rhu, HPCA 2020), as `np-sjf`."""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("sjf", (Term.COST, Term.ACTIVATION))
