# mypy: ignore-errors
# ruff: noqa: E741, SIM102
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""GPU kernels in int8 other than matrix products, on images [pixels, channels] in bytes; bound by `kernels.spread`.

Values are stored as their integers, so zero is zero for signed and unsigned bytes.  Channels are padded in memory to
multiples of 16; the padding never affects a result.  Rounding is that of `quantize.fixed_point`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from socsched.compiler.environment import T
from socsched.compiler.quantize.epilogue import Stored
from socsched.compiler.targets.cuda.kernels import elements, planes
from socsched.compiler.targets.cuda.tiles import VECTOR

_ATTRIBUTES = {"tirx.noalias": True}
QUAD = 4
"""Bytes handled at once by a thread."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An input of `combine`: its dtype and its multiplier."""

    dtype: str
    factor: int


def _finish(operands: tuple[Operand, ...], stored: Stored, relu: bool, shift: int) -> Any:
    low = 0 if relu else stored.low

    def finish(*values: Any) -> Any:
        total = T.int32(1 << (shift - 1))
        for value, operand in zip(values, operands, strict=True):
            total = total + T.Cast("int32", value) * T.int32(operand.factor)
        rounded = T.shift_right(total, T.int32(shift))
        return T.Cast(stored.dtype, T.min(T.max(rounded, T.int32(low)), T.int32(stored.high)))

    return finish


def rescale(
    size: tuple[int, int], count: int, target: tuple[int, int], operand: Operand, stored: Stored, relu: bool, shift: int
) -> Any:
    """Return rescale(X, O): `count` channels of X, rescaled to the step of O, from a channel of O on.

    `size`: the pixels and channels of X; `target`: the channels of O and the first of these.  `relu` clips below zero;
    channels are multiples of four.
    """
    finish, (pixels, _), (total, first) = _finish((operand,), stored, relu, shift), size, target

    def value(X, _, p, c, v):
        return finish(X[p, c + v])

    result = (pixels, total), stored.dtype
    return elements("rescale", [(size, operand.dtype)], result, value, (count // QUAD, QUAD), first)


def add(pixels: int, channels: int, left: Operand, right: Operand, stored: Stored, relu: bool, shift: int) -> Any:
    """Return add(X, Y, O): X and Y rescaled to the step of O and added; `relu` clips below zero."""
    finish, size = _finish((left, right), stored, relu, shift), (pixels, channels)

    def value(X, Y, p, c, v):
        return finish(X[p, c + v], Y[p, c + v])

    sources = [(size, left.dtype), (size, right.dtype)]
    return elements("sum", sources, (size, stored.dtype), value, (channels // QUAD, QUAD))


def max_pool(channels: int, height: int, width: int, window: tuple[int, ...], stored: Stored) -> Any:
    """Return pool(X, O); `window` is (kernel_h, kernel_w, stride, pad, out_height, out_width)."""
    kh, kw, stride, pad, oh, ow = window
    groups, dtype, least = channels // QUAD, stored.dtype, stored.low

    @T.prim_func(s_tir=True, private=True)
    def pool_int8(X: T.Buffer((height * width, channels), dtype), O: T.Buffer((oh * ow, channels), dtype)):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(oh * ow, groups):
            with T.sblock("window"):
                p, g = T.axis.remap("SS", [x, y])
                T.reads(X[0 : height * width, g * QUAD : g * QUAD + QUAD])
                T.writes(O[p, g * QUAD : g * QUAD + QUAD])
                best = T.sblock_alloc_buffer((QUAD,), "int32", scope="local")
                for v in T.vectorized(QUAD):
                    best[v] = T.int32(least)
                for i, j in T.grid(kh, kw):
                    if (
                        p // ow * stride + i >= pad
                        and p // ow * stride + i < height + pad
                        and p % ow * stride + j >= pad
                        and p % ow * stride + j < width + pad
                    ):
                        for v in T.vectorized(QUAD):
                            best[v] = T.max(
                                best[v],
                                T.Cast(
                                    "int32",
                                    X[(p // ow * stride + i - pad) * width + p % ow * stride + j - pad, g * QUAD + v],
                                ),
                            )
                for v in T.vectorized(QUAD):
                    O[p, g * QUAD + v] = T.Cast(dtype, best[v])

    return pool_int8


def _rounding(inverse: float, stored: Stored) -> Any:
    """Return the function of an fp32 value that gives its byte as an int32."""
    low, high = float(stored.low), float(stored.high)

    def rounded(x: Any) -> Any:
        return T.Cast("int32", T.nearbyint(T.min(T.max(x * T.float32(inverse), T.float32(low)), T.float32(high))))

    return rounded


def scatter(channels: int, ny: int, nx: int, inverse: float, stored: Stored) -> Any:
    """Return place(features[P, channels], coords[P, 2], canvas): zero it, then quantise the pillars inside the grid.

    Features are fp32; the canvas holds pairs of bytes, in fp16 elements, so that zeroing it takes whole vectors.
    """
    words, rounded = channels // 2, _rounding(inverse, stored)
    groups = words // VECTOR

    def pair(first: Any, second: Any) -> Any:
        bits = T.bitwise_or(T.bitwise_and(rounded(first), 255), T.shift_left(T.bitwise_and(rounded(second), 255), 8))
        return T.reinterpret("float16", T.Cast("uint16", bits))

    @T.prim_func(s_tir=True, private=True)
    def place_int8(features: T.handle, coords: T.handle, O: T.Buffer((ny * nx, words), "float16")):
        T.func_attr(_ATTRIBUTES)
        P = T.int64()
        F = T.match_buffer(features, (P, channels), "float32")
        XY = T.match_buffer(coords, (P, 2), "int32")
        for x, y, z in T.grid(ny * nx, groups, VECTOR):
            with T.sblock("zero"):
                i, g, v = T.axis.remap("SSS", [x, y, z])
                O[i, g * VECTOR + v] = T.float16(0)
        for x, y in T.grid(P + 1, words):
            with T.sblock("place"):
                p, w = T.axis.remap("SS", [x, y])
                T.reads(F[p, w * 2 : w * 2 + 2], XY[p, 0:2])
                T.writes(O[0 : ny * nx, w])
                if p < P:
                    if XY[p, 0] >= 0 and XY[p, 0] < nx and XY[p, 1] >= 0 and XY[p, 1] < ny:
                        O[XY[p, 1] * nx + XY[p, 0], w] = pair(F[p, w * 2], F[p, w * 2 + 1])

    return place_int8


def quantise(pixels: int, channels: int, total: int, inverse: float, stored: Stored, plain: bool) -> Any:
    """Return quantise(X, O[pixels, total]): fp32 to bytes, halves to even.

    X is [pixels, channels], with `plain` [channels, pixels].
    """
    rounded, size = _rounding(inverse, stored), (channels, pixels) if plain else (pixels, channels)
    lanes = QUAD if channels == total and not plain else 1

    def value(X, _, p, c, v):
        held = X[c + v, p] if plain else X[p, c + v]
        within = held if channels == total else T.if_then_else(c + v < channels, held, T.float32(0))
        return T.Cast(stored.dtype, rounded(within))

    return elements("value", [(size, "float32")], ((pixels, total), stored.dtype), value, (total // lanes, lanes))


def dequantise(pixels: int, source: int, channels: int, step: float, dtype: str, plain: bool) -> Any:
    """Return dequantise(X[pixels, source], O): bytes to fp32 [pixels, channels], with `plain` transposed."""

    def scaled(byte):
        return T.Cast("float32", T.Cast("int32", byte)) * T.float32(step)

    given = (pixels, source), dtype
    if plain:
        return planes("value", given, (channels, "float32"), scaled)
    lanes = QUAD if channels % QUAD == 0 else 1
    result = (pixels, channels), "float32"
    return elements("value", [given], result, lambda X, _, p, c, v: scaled(X[p, c + v]), (channels // lanes, lanes))


def narrow(pixels: int, source: int, start: int, channels: int) -> Any:
    """Return narrow(X[pixels, source], O[pixels, channels]): channels of fp32 sums from `start` on."""
    given, result = ((pixels, source), "float32"), ((pixels, channels), "float32")
    return elements("copy", [given], result, lambda X, _, p, c, v: X[p, start + c + v], (channels, 1))
