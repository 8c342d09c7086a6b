"""XSched's weighted sharing (UP, AWF): every task gets a share of the accelerator, as time or bandwidth (OSDI 2025).

Shares are in proportion to `high`, `medium` and `low` (hard, firm, soft tasks): the paper divides an accelerator 75 to
25 between a foreground and a background task.  Evaluated every `tick`.
"""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term
from socsched_literature.policies import xsched
from socsched_literature.policies.shares import by_criticality


def make(
    *, level: int = 0, threshold: int = 8, high: int = 75, medium: int = 50, low: int = 25, tick_ns: int = 2_000_000
) -> Policy:
    """Return the policy at a level of preemption, 0 for the engine's native one (`xsched`)."""
    weight = by_criticality(low, medium, high)
    mechanism = xsched.level(level, threshold)
    return Policy(
        "xsched-share", (Term.SERVICE, Term.ACTIVATION), True, True, tick_ns, preemption=mechanism, weight=weight
    )


POLICY = make()
