"""What XSched's policies share: preemption in levels that hardware may lack (XSched, OSDI 2025).

Level 1 launches ahead and waits: an accelerator that is asked to stop finishes the `threshold` commands in flight.
Level 2 takes those back that have not begun: the running command finishes.  Level 3 interrupts the running command.
Level 0 here means the engine's own way; engines that are preempted fully keep that at every level.
"""

from __future__ import annotations

from socsched.sim.policies.mechanisms import Taking


def level(number: int, threshold: int) -> tuple[Taking, ...]:
    """Return how an engine is taken at a level; ValueError for one that there is not."""
    if not 0 <= number <= 3:
        raise ValueError(f"level must be from 0 to 3, got {number}")
    if threshold < 1:
        raise ValueError(f"threshold must be at least 1, got {threshold}")
    ways = (
        (),
        (Taking("segment", in_flight=threshold),),
        (Taking("segment", in_flight=1),),
        (Taking("full", save_ns=INTERRUPT_NS),),
    )
    return ways[number]


INTERRUPT_NS = 32_000
"""What level 3 takes on a GV100 (p99, XSched's artifact)."""
