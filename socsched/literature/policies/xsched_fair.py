"""XSched's completely fair policy (CFS): the task that had least time runs, times divided by 1024 * 1.2**priority.

XSched, OSDI 2025; the weights are those of its code.  Priorities count from 0, the highest, downwards here, and
`steps` of them differ.  Looked at every `tick`; a task that was away starts with the least of those present.
"""

from __future__ import annotations

from socsched.literature.policies import xsched
from socsched.literature.policies.shares import by_priority
from socsched.sim.policies.terms import Policy, Term


def make(*, level: int = 0, threshold: int = 8, steps: int = 20, tick_ns: int = 2_000_000) -> Policy:
    """Return the policy at a level of preemption, 0 for the engine's own (`xsched`)."""
    weight = by_priority(1024, 1.2, steps)
    how = xsched.level(level, threshold)
    return Policy("xsched-fair", (Term.SERVICE, Term.ACTIVATION), True, True, tick_ns, taking=how, weight=weight)


POLICY = make()
