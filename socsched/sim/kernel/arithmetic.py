"""Whole-number arithmetic that compiled and interpreted code do alike."""

from __future__ import annotations

from cython import longlong as i64


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


def bits(mask: i64) -> i64:
    """Return how many lanes a mask has."""
    count: i64 = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count
