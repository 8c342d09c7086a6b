"""Int8 in memory, for every target: stored bytes, expressions that turn sums into them, weights by output phase.

A stored byte is the value's integer plus `zero`.  Rounding is that of `quantize.fixed_point`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from socsched.compiler.environment import T
from socsched.compiler.quantize.fixed_point import LARGEST, Array, Scale, bounds
from socsched.compiler.quantize.network import Layer, Step


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


def window(step: Step) -> Window:
    """Return the tap positions of a convolution or transposed convolution."""
    a = step.group.attrs
    kernel, stride, pad = (int(a["kernel_h"]), int(a["kernel_w"])), int(a["stride_h"]), int(a["pad"])
    if step.group.kind == "conv2d":
        return Window(kernel, stride, 1, -pad, 0)
    taps = -(-max(kernel) // stride)
    return Window((taps, taps), 1, stride, 1 - taps, pad)


def reach(step: Step) -> int:
    """Return the border (pixels) a convolution's input must have."""
    w = window(step)
    if step.group.kind == "conv2d":
        return -w.base
    return max(-w.base - w.lift // w.phases, (w.phases - 1 + w.lift) // w.phases, 0)


def by_phase(step: Step, layer: Layer) -> Array:
    """Return the weights as [O, phases^2, I, kh, kw]: for each output phase, the taps that reach it."""
    w = window(step)
    if step.group.kind == "conv2d":
        return layer.weight[:, None]
    taps, kernel = w.taps[0], layer.weight.shape[2]
    weight = layer.weight.transpose(1, 0, 2, 3)
    out, into = weight.shape[:2]
    phased = np.zeros((out, w.phases, w.phases, into, taps, taps), np.int8)
    for dy, dx, ty, tx in np.ndindex(w.phases, w.phases, taps, taps):
        y, x = ((d + w.lift) % w.phases + (taps - 1 - t) * w.phases for d, t in ((dy, ty), (dx, tx)))
        if y < kernel and x < kernel:
            phased[:, dy, dx, :, ty, tx] = weight[:, :, y, x]
    return phased.reshape(out, w.phases**2, into, taps, taps)


def table(phased: Array, step: Step, layer: Layer, source: Stored, target: Scale | None, blocks: int, c: int) -> Array:
    """Return the epilogue's table [blocks, phases, rows, c]: bias, low, high, multiplier, or bias and fp32 factor.

    Activations are stored with an offset; the bias cancels its contribution to every sum.
    """
    phases = phased.shape[1]
    offset = source.zero * phased.astype(np.int64).sum(axis=(2, 3, 4))
    bias = (layer.bias.astype(np.int64)[:, None] - offset).astype(np.int32)
    if target is None:
        rows = [layer.factor.view(np.int32)]
    elif step.residual:
        limit = LARGEST // layer.multiplier
        rows = [-limit, limit, layer.multiplier]
    else:
        rows = [*bounds(layer.multiplier, target, step.shift), layer.multiplier]
    full = np.stack([bias, *(np.repeat(row[:, None], phases, 1) for row in rows)], axis=2)
    whole = np.zeros((blocks * c, phases, full.shape[2]), np.int32)
    whole[: len(full)] = full
    return np.ascontiguousarray(whole.reshape(blocks, c, phases, -1).transpose(0, 2, 3, 1))
