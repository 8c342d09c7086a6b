"""Whole-number arithmetic and sets of lanes, identical in compiled and interpreted code.

Products have as many bits as they need; a result beyond 2**62 is clamped to 2**62, a time that never comes.
"""

from __future__ import annotations

import struct

import cython

if not cython.compiled:
    # when compiled, most of these are single processor instructions (arithmetic.pxd)
    Lanes = int
    WORDS = 1 << 20
    """Most 64-lane words of a set; effectively unlimited."""
    _FAR = 1 << 62

    def length(value: int) -> int:
        """Return the number of bits of a non-negative number, at least one."""
        return value.bit_length() or 1

    def image(value: float) -> int:
        """Return the eight bytes of a double as an int64."""
        return int(struct.unpack("<q", struct.pack("<d", value))[0])

    def scaled(value: int, up: int, down: int) -> int:
        """Return value * up / down rounded up (value where `down` is 0)."""
        if down <= 0:
            return value
        found = (value * up + down - 1) // down
        return found if found < _FAR else _FAR

    def portion(value: int, up: int, down: int) -> int:
        """Return value * up / down rounded down."""
        found = value * up // down
        return found if found < _FAR else _FAR

    def larger(a: int, b: int, c: int, d: int) -> bool:
        """Return whether a * b > c * d."""
        return a * b > c * d

    def nothing() -> Lanes:
        """Return the set of no lanes."""
        return 0

    def lane_set(lane: int) -> Lanes:
        """Return the set of one lane."""
        return 1 << lane

    def common(a: Lanes, b: Lanes) -> Lanes:
        """Return the lanes in both sets."""
        return a & b

    def joined(a: Lanes, b: Lanes) -> Lanes:
        """Return the lanes in either set."""
        return a | b

    def without(a: Lanes, b: Lanes) -> Lanes:
        """Return the lanes in the first set only."""
        return a & ~b

    def some(a: Lanes) -> bool:
        """Return whether a set has any lane."""
        return a != 0

    def meets(a: Lanes, b: Lanes) -> bool:
        """Return whether two sets have a lane in common."""
        return a & b != 0

    def equal(a: Lanes, b: Lanes) -> bool:
        """Return whether two sets are the same."""
        return a == b

    def has(a: Lanes, lane: int) -> int:
        """Return whether a lane is in a set."""
        return a >> lane & 1

    def bits(a: Lanes) -> int:
        """Return the number of lanes in a set."""
        return a.bit_count()

    def lowest(a: Lanes) -> int:
        """Return the first lane of a non-empty set."""
        return (a & -a).bit_length() - 1

    def word(a: Lanes, which: int) -> int:
        """Return 64 lanes of a set as an int64, lane 0 in the lowest bit of word 0."""
        found = a >> 64 * which & 0xFFFFFFFFFFFFFFFF
        return found - (1 << 64) if found >> 63 else found
