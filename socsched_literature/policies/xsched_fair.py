"""XSched's completely fair policy (CFS): least virtual runtime first, times divided by 1024 * 1.2**priority.

XSched, OSDI 2025; the weights are those of its code.  Here priorities count downwards from 0, the highest, and `steps`
of them are distinguished.  Evaluated every `tick`; a returning task starts with the least virtual runtime of those
present.
"""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term
from socsched_literature.policies import xsched
from socsched_literature.policies.shares import by_priority


def make(*, level: int = 0, threshold: int = 8, steps: int = 20, tick_ns: int = 2_000_000) -> Policy:
    """Return the policy at a level of preemption, 0 for the engine's native one (`xsched`)."""
    weight = by_priority(1024, 1.2, steps)
    mechanism = xsched.level(level, threshold)
    return Policy(
        "xsched-fair", (Term.SERVICE, Term.ACTIVATION), True, True, tick_ns, preemption=mechanism, weight=weight
    )


POLICY = make()
