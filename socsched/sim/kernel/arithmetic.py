"""Whole-number arithmetic that compiled and interpreted code do alike."""

from __future__ import annotations

import struct

import cython
from cython import longlong as i64

if not cython.compiled:
    # compiled, these are single instructions of the processor (arithmetic.pxd)

    def length(value: int) -> int:
        """Return how many bits a number from 0 on has, at least one."""
        return value.bit_length() or 1

    def bits(mask: int) -> int:
        """Return how many lanes a mask has."""
        return mask.bit_count()

    def image(value: float) -> int:
        """Return the eight bytes of a double as a whole number."""
        return int(struct.unpack("<q", struct.pack("<d", value))[0])


def scaled(value: i64, up: i64, down: i64) -> i64:
    """Return value * up / down rounded up, without overflow: factors beyond 2**31 lose their last bits upwards."""
    if down <= 0:
        return value
    while up >= 2147483648 or down >= 2147483648:
        up = (up + 1) >> 1
        down >>= 1
    whole: i64 = value // down
    rest: i64 = value - whole * down
    return whole * up + (rest * up + down - 1) // down
