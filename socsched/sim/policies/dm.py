"""Deadline monotonic: the shorter the relative deadline, the more urgent.

Leung & Whitehead, Performance Evaluation 2(4) 1982.
"""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("dm", (Term.RELATIVE_DEADLINE, Term.NOTHING))
