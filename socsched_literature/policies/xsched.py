"""Common part of XSched's policies: preemption at levels that hardware may lack (XSched, OSDI 2025).

Level 1 launches ahead and waits: on preemption an accelerator finishes the `threshold` commands in flight.  Level 2
revokes commands that have not begun: only the running command finishes.  Level 3 interrupts the running command.  Level
0 here means the engine's native preemption; fully preemptive engines keep it at every level.
"""

from __future__ import annotations

from socsched.sim.policies.terms import PreemptionMechanism


def level(number: int, threshold: int) -> tuple[PreemptionMechanism, ...]:
    """Return the preemption mechanism of a level; ValueError for an unknown level."""
    if not 0 <= number <= 3:
        raise ValueError(f"level must be from 0 to 3, got {number}")
    if threshold < 1:
        raise ValueError(f"threshold must be at least 1, got {threshold}")
    ways = (
        (),
        (PreemptionMechanism("segment", in_flight=threshold),),
        (PreemptionMechanism("segment", in_flight=1),),
        (PreemptionMechanism("full", save_ns=INTERRUPT_NS),),
    )
    return ways[number]


INTERRUPT_NS = 32_000
"""Time of a level 3 interrupt on a GV100 (p99, XSched's artifact)."""
