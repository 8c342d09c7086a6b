"""XSched's laxity-based policy (LAX): a job runs after all others until its laxity runs out, then first (OSDI 2025).

A job is critical once its laxity is below `margin` (2 ms by default; the published code has one per task).
Reconstructed: jobs of one class are served by priority.  Evaluated every `tick`.
"""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term
from socsched_literature.policies import xsched


def make(*, level: int = 0, threshold: int = 8, margin_ns: int = 2_000_000, tick_ns: int = 1_000_000) -> Policy:
    """Return the policy at a level of preemption, 0 for the engine's native one (`xsched`)."""
    mechanism = xsched.level(level, threshold)
    return Policy(
        "xsched-lax", (Term.CRITICAL, Term.PRIORITY), True, True, tick_ns, preemption=mechanism, margin_ns=margin_ns
    )


POLICY = make()
