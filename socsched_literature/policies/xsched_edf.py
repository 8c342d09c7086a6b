"""XSched's earliest deadline first (KEDF), preemption at a level (XSched, OSDI 2025)."""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term
from socsched_literature.policies import xsched


def make(*, level: int = 0, threshold: int = 8) -> Policy:
    """Return the policy at a level of preemption, 0 for the engine's native one (`xsched`)."""
    return Policy("xsched-edf", (Term.DEADLINE, Term.ACTIVATION), preemption=xsched.level(level, threshold))


POLICY = make()
