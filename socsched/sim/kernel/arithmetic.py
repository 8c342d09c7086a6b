"""Whole-number arithmetic and sets of slots, identical in compiled and interpreted code.

Products have as many bits as they need; a result beyond 2**62 is clamped to 2**62, a time that never comes.
"""

from __future__ import annotations

import struct

import cython

if not cython.compiled:
    # when compiled, most of these are single processor instructions (arithmetic.pxd)
    SlotSet = int
    WORDS = 1 << 20
    """Most 64-slot words of a set; effectively unlimited."""
    _FAR = 1 << 62

    def bit_length(value: int) -> int:
        """Return the number of bits of a non-negative number, at least one."""
        return value.bit_length() or 1

    def float_bits(value: float) -> int:
        """Return the eight bytes of a double as an int64."""
        return int(struct.unpack("<q", struct.pack("<d", value))[0])

    def scale_ceil(value: int, up: int, down: int) -> int:
        """Return value * up / down rounded up (value where `down` is 0)."""
        if down <= 0:
            return value
        found = (value * up + down - 1) // down
        return found if found < _FAR else _FAR

    def scale_floor(value: int, up: int, down: int) -> int:
        """Return value * up / down rounded down."""
        found = value * up // down
        return found if found < _FAR else _FAR

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
