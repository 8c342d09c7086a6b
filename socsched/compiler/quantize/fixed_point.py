"""Definition of int8: the integers that represent a value, and the single rule that rounds sums to them.

A value is `step` times an integer of eight bits: 0..255 where it is never negative (after a ReLU), -128..127 elsewhere,
or -z..255 - z where a file states the zero point z.
A layer's sum of products is an int32; its result is

    q = clip((sum * multiplier + 2^(SHIFT - 1)) >> SHIFT)

with one positive multiplier per channel and an arithmetic shift: halves are rounded up, towards plus infinity.  A
multiplier of 2^(SHIFT - s) is a plain rounding shift by s, the requantisation of integer-only accelerators, so their
results can be reproduced bit by bit.

SHIFT is the largest value for which eight-bit results fit 32-bit arithmetic, so that no target needs wider integers:
the sum is first clipped to where the result saturates, which changes no result.  Rounding the multiplier costs at most
|sum| / 2^(SHIFT + 1) steps of the result: a sixteenth of a step for a sum of 2^19, more than trained layers reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

SHIFT = 22
"""Fraction bits of a layer's multiplier."""
RESIDUAL_SHIFT = 20
"""The same if a second operand is added: the sum of both needs two more bits."""
RATIO_SHIFT = 16
"""Fraction bits of a ratio of two steps, by which eight-bit values are multiplied."""
LARGEST = 2**30
"""Bound of the clipped product if a second operand is added."""
LARGEST_MULTIPLIER = 2**28
"""One unit of a sum may equal up to 64 steps of the result; beyond this the result could take only a few values."""
INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Scale:
    """Representation of a value: `step` is the value of one unit, `signed` selects -128..127 over 0..255.

    `zero`: of a file's asymmetric value the byte that stands for zero, whose integers are -zero..255 - zero.
    """

    step: float
    signed: bool
    zero: int = 0

    @classmethod
    def about(cls, step: float, zero: int) -> Scale:
        """Return the scale of bytes (0..255) of which `zero` stands for zero."""
        return cls(step, zero > 0, zero if zero not in (0, 128) else 0)

    @property
    def low(self) -> int:
        """Return the least integer."""
        return -self.zero or (-128 if self.signed else 0)

    @property
    def range(self) -> tuple[int, int]:
        """Return the least and greatest integer."""
        return self.low, self.low + 255


def multiplier(ratio: Any, shift: int = SHIFT) -> Array:
    """Return the fixed-point form of positive ratios (array or number) as int32 between 1 and LARGEST_MULTIPLIER."""
    scaled = np.rint(np.asarray(ratio, np.float64) * 2.0**shift)
    result: Array = np.clip(scaled, 1, LARGEST_MULTIPLIER).astype(np.int32)
    return result


def requantise(total: Array, factor: Any, scale: Scale, shift: int = SHIFT) -> Array:
    """Return the integers (int64) for sums `total` and broadcastable multipliers; this defines requantisation."""
    rounded = (total.astype(np.int64) * np.asarray(factor, np.int64) + (1 << (shift - 1))) >> shift
    clipped: Array = np.clip(rounded, *scale.range)
    return clipped


def quantise(values: Array, scale: Scale) -> Array:
    """Return fp32 `values` as integers (int64): times 1/step in fp32, halves to even as ONNX's QuantizeLinear."""
    scaled = np.asarray(values, np.float32) * np.float32(1.0 / scale.step)
    integers: Array = np.rint(np.clip(scaled, *scale.range)).astype(np.int64)
    return integers


def bounds(factor: Array, scale: Scale, shift: int = SHIFT) -> tuple[Array, Array]:
    """Return int32 (low, high): clipping sums to them changes no result of `requantise` and keeps products in range."""
    m, half = factor.astype(np.int64), 1 << (shift - 1)
    least, greatest = scale.range
    high = -(-((greatest << shift) - half) // m)
    low = (((least + 1) << shift) - half - 1) // m
    return np.clip(low, -INT32, INT32).astype(np.int32), np.clip(high, -INT32, INT32).astype(np.int32)
