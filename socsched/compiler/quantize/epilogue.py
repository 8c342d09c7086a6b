"""Bytes of int8 activations in memory, and the expressions that turn a kernel's sums into them; for every target.

A stored byte is the value's integer plus `zero`.  Rounding is that of `quantize.fixed_point`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from socsched.compiler.environment import T


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes in memory: their dtype, the stored zero, and the least and greatest byte."""

    dtype: str
    zero: int

    @property
    def low(self) -> int:
        return -128 if self.dtype == "int8" else 0

    @property
    def high(self) -> int:
        return self.low + 255


@dataclass(frozen=True, slots=True)
class Window:
    """Positions of a convolution's taps: output pixel (y * phases + d) reads row y * stride + tap + offset of phase d.

    The offset is (d + lift) // phases + base.  A convolution has one phase and base = -padding; a transposed one of
    stride s has s phases (Shi et al., Real-Time Single Image and Video Super-Resolution, CVPR 2016), each a convolution
    of ceil(kernel / s) taps: no zero is ever inserted.
    """

    taps: tuple[int, int]
    stride: int
    phases: int
    base: int
    lift: int

    @property
    def reach(self) -> int:
        """Return the border (pixels) the input must have."""
        return max(0, -self.base)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Conversion of a sum: to `stored` bytes by a fixed-point multiplication, or to fp32 (stored None).

    `residual` is (stored zero, multiplier) of a second operand in the kernel's own fixed point.
    """

    stored: Stored | None
    shift: int
    relu: bool
    residual: tuple[int, int] | None = None

    @property
    def dtype(self) -> str:
        return self.stored.dtype if self.stored else "float32"

    @property
    def rows(self) -> int:
        """Return the number of table rows: bias, low, high, multiplier; or bias and the bits of an fp32 factor."""
        return 4 if self.stored else 2

    @property
    def blank(self) -> Any:
        return constant(self.dtype, self.stored.zero if self.stored else 0)

    def __call__(self, total: Any, low: Any, high: Any, factor: Any, other: Any) -> Any:
        """Return the result for an int32 sum, its channel's table entries (for fp32 `low` is the factor) and R."""
        if self.stored is None:
            value = T.Cast("float32", total) * T.reinterpret(low, dtype="float32")
            return T.max(value, T.float32(0)) if self.relu else value
        s = self.stored
        product = T.min(T.max(total, low), high) * factor
        if self.residual:
            zero, ratio = self.residual
            product = product + (T.Cast("int32", other) - T.int32(zero)) * T.int32(ratio)
        rounded = T.shift_right(
            product + T.int32((1 << (self.shift - 1)) + (s.zero << self.shift)), T.int32(self.shift)
        )
        return T.Cast(s.dtype, T.min(T.max(rounded, T.int32(s.zero if self.relu else s.low)), T.int32(s.high)))


def constant(dtype: str, value: int) -> Any:
    return {"float32": T.float32, "uint8": T.uint8, "int8": T.int8}[dtype](value)
