"""Named numbers, sets of slots and whole-number arithmetic of the interpreted kernel.

The compiled kernel has the numbers as macros (`sim.build` passes them) and the functions as single processor
instructions (kernel.pxd); both give the same results.  Products have as many bits as they need; a result beyond 2**62
is clamped to 2**62, a time that never comes.
"""

from __future__ import annotations

import math

FAR = 4611686018427387904
"""A time that never comes (2**62 ns)."""
SHIFT = 20
"""Remaining work of a segment is kept in 2**-20 ns at its present pace."""
# preemption
FULL = 0
SEGMENT = 1
NONE = 2
RESTART = 3
# when a running job finishes rather than being preempted
SLOWDOWN = 1
# how a job that will be late is handled
SKIP = 1
ABORT = 2
DEGRADE = 3
# queues: 0 drops the newest frame, 1 the oldest waiting one
LATEST = 1
# how a job ended
DONE = 1
DROPPED = 2
ABORTED = 3
# notes (`trace.columns`)
MISS = 0
UNFINISHED = 1
QUEUE_FULL = 2
LOST_FRAME = 3
LATE_ABORT = 4
OVERRUN = 8
SKIPPED = 12
KILLED = 13
SHED = 14
RAISED = 15
BINS = 45056
PAGE = 1024
PAGES = 44
"""Total number of bins, bins allocated at once, and pages needed for all of them."""
FRAMES = 4096
"""Most frames of a chain in progress; an older one that never arrived counts as missed."""
RING = 1024
"""Frames of an occurrence kept for the jobs that follow."""
PENDING = 0
LOST = 1
ARRIVED = 2
# terms of a policy's order (`sim.policies`)
T_PRIORITY = 1
T_DEADLINE = 2
T_ACTIVATION = 3
T_PERIOD = 4
T_RELATIVE = 5
T_CRITICALITY = 6
T_LAXITY = 7
T_TURN = 8
T_SERVER = 9
T_REMAINING = 10
T_COST = 11
T_CUSTOM = 12
T_CANDIDATE = 13
T_CRITICAL = 14
T_SERVICE = 15
T_BEST_EFFORT = 16
MOVING = 1
"""Keys that depend on time: only those of running claims (1), or of all claims (2)."""
DRAWS = 128
"""Random numbers requested at once (`Callbacks.draw_numbers`)."""

SlotSet = int
WORDS = 1 << 20
"""Most 64-slot words of a set; effectively unlimited."""


def bit_length(value: int) -> int:
    """Return the number of bits of a non-negative number, at least one."""
    return value.bit_length() or 1


def to_traffic(rate: float) -> int:
    """Return traffic (bytes/ns) in 10 kB/s: sums of whole numbers repeat in a trace, whatever their order."""
    return int(rate * 1e5 + 0.5) if rate < 4e10 else 1 << 52


def ceil_product(value: int, factor: float) -> int:
    """Return value * factor rounded up."""
    return min(math.ceil(min(value * factor, 5e18)), FAR)


def ceil_quotient(value: float, divisor: float) -> int:
    """Return value / divisor rounded up; a divisor of 0 gives a time that never comes."""
    return min(-int(-value // divisor), FAR) if divisor > 0 else FAR


def scale_ceil(value: int, up: int, down: int) -> int:
    """Return value * up / down rounded up (value where `down` is 0)."""
    if down <= 0:
        return value
    found = (value * up + down - 1) // down
    return found if found < FAR else FAR


def scale_floor(value: int, up: int, down: int) -> int:
    """Return value * up / down rounded down."""
    found = value * up // down
    return found if found < FAR else FAR


def product_exceeds(a: int, b: int, c: int, d: int) -> bool:
    """Return whether a * b > c * d."""
    return a * b > c * d


def no_slots() -> SlotSet:
    """Return the set of no slots."""
    return 0


def slot_set(slot: int) -> SlotSet:
    """Return the set of one slot."""
    return 1 << slot


def intersect(a: SlotSet, b: SlotSet) -> SlotSet:
    """Return the slots in both sets."""
    return a & b


def unite(a: SlotSet, b: SlotSet) -> SlotSet:
    """Return the slots in either set."""
    return a | b


def subtract(a: SlotSet, b: SlotSet) -> SlotSet:
    """Return the slots in the first set only."""
    return a & ~b


def has_any(a: SlotSet) -> bool:
    """Return whether a set has any slot."""
    return a != 0


def overlap(a: SlotSet, b: SlotSet) -> bool:
    """Return whether two sets have a slot in common."""
    return a & b != 0


def equal(a: SlotSet, b: SlotSet) -> bool:
    """Return whether two sets are the same."""
    return a == b


def contains(a: SlotSet, slot: int) -> int:
    """Return whether a slot is in a set."""
    return a >> slot & 1


def count_slots(a: SlotSet) -> int:
    """Return the number of slots in a set."""
    return a.bit_count()


def first_slot(a: SlotSet) -> int:
    """Return the first slot of a non-empty set."""
    return (a & -a).bit_length() - 1


def word(a: SlotSet, which: int) -> int:
    """Return 64 slots of a set as an int64, slot 0 in the lowest bit of word 0."""
    found = a >> 64 * which & 0xFFFFFFFFFFFFFFFF
    return found - (1 << 64) if found >> 63 else found
