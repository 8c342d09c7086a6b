# mypy: ignore-errors
# ruff: noqa: E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""int8 CPU kernels on channel-blocked activations, each a finished PrimFunc to which no schedule is applied.

Activations are laid out as in `kernels`: [C/c, H + 2b, W + 2b, c], the border filled with the stored zero, so that a
convolution never tests for the edge.  Elements are bytes, unsigned or signed as the target's byte product requires; the
stored byte is the value's integer plus `zero`.  Rounding is that of `quantize.fixed_point`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from socsched.compiler.environment import T
from socsched.compiler.quantize.epilogue import Epilogue, Stored, Window, constant
from socsched.compiler.targets.llvm.int8_dot import Dot
from socsched.compiler.targets.llvm.vector import Tile

_NO_ALIAS = {"tirx.noalias": True, "tirx.is_scheduled": True}


def conv2d(
    in_blocks: int,
    ci: int,
    blocks: int,
    c: int,
    height: int,
    width: int,
    window: Window,
    out: tuple[int, int],
    b_in: int,
    b_out: int,
    total: int,
    first: int,
    other: tuple[int, int, int, int],
    dtype: str,
    epilogue: Epilogue,
    dot: Dot,
    tile: Tile,
) -> Any:
    """Return conv(X, K[blocks, phases^2, in_blocks, kh, kw, ci/4, c, 4], table[blocks, phases^2, rows, c], R, O).

    `height` x `width` is the input without border, `out` the output's size in pixels of one phase; `other` is the
    physical shape of the residual R, with its own border: (blocks, height, width, border).
    """
    kh, kw = window.taps
    s, ph_, base, lift = window.stride, window.phases, window.base + b_in, window.lift
    oh, ow = out
    tw, to, ls = tile.pixels, tile.blocks, dot.lanes
    parts, quads, last = c // ls, ci // 4, ow - tw
    tiles, rows = -(-ow // tw), blocks // to * oh
    ih, iw, ph, pw = height + 2 * b_in, width + 2 * b_in, oh * ph_ + 2 * b_out, ow * ph_ + 2 * b_out
    rb, rh, rw, b_r = other
    out_dtype, nt, blank, phases = epilogue.dtype, epilogue.rows, epilogue.blank, ph_ * ph_
    vector, four, weights, step = f"int32x{ls}", f"{dtype}x4", f"int8x{4 * ls}", dot.step
    r_dtype = epilogue.dtype if epilogue.residual else "uint8"

    @T.prim_func(s_tir=True, private=True)
    def conv_int8(
        X: T.Buffer((in_blocks, ih, iw, ci), dtype),
        K: T.Buffer((blocks, phases, in_blocks, kh, kw, quads, c, 4), "int8"),
        S: T.Buffer((blocks, phases, nt, c), "int32"),
        R: T.Buffer((rb, rh, rw, c), r_dtype),
        O: T.Buffer((total, ph, pw, c), out_dtype),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(rows):
            with T.sblock("row"):
                r = T.axis.spatial(rows, task)
                T.reads(
                    X[0:in_blocks, 0:ih, 0:iw, 0:ci],
                    K[0:blocks, 0:phases, 0:in_blocks, 0:kh, 0:kw, 0:quads, 0:c, 0:4],
                    S[0:blocks, 0:phases, 0:nt, 0:c],
                    R[0:rb, 0:rh, 0:rw, 0:c],
                )
                T.writes(O[0:total, 0:ph, 0:pw, 0:c])
                for dy, dx, i in T.grid(ph_, ph_, tiles):
                    with T.sblock("tile"):
                        vy, vx, n = T.axis.remap("SSS", [dy, dx, i])
                        T.reads(
                            X[0:in_blocks, 0:ih, 0:iw, 0:ci],
                            K[0:blocks, 0:phases, 0:in_blocks, 0:kh, 0:kw, 0:quads, 0:c, 0:4],
                            S[0:blocks, 0:phases, 0:nt, 0:c],
                            R[0:rb, 0:rh, 0:rw, 0:c],
                        )
                        T.writes(O[0:total, 0:ph, 0:pw, 0:c])
                        acc = T.sblock_alloc_buffer((to, tw, c), "int32")
                        for o, t in T.grid(to, tw):
                            for v in T.vectorized(c):
                                acc[o, t, v] = S[r // oh * to + o, vy * ph_ + vx, 0, v]
                        for ic, y, x, k in T.grid(in_blocks, kh, kw, quads):
                            for o in T.unroll(to):
                                for p in T.unroll(parts):
                                    for t in T.unroll(tw):
                                        acc[o, t, T.ramp(p * ls, 1, ls)] = step(
                                            acc.vload([o, t, p * ls], dtype=vector),
                                            T.reinterpret(
                                                X.vload(
                                                    [
                                                        ic,
                                                        r % oh * s + y + (vy + lift) // ph_ + base,
                                                        (T.min(n * tw, last) + t) * s + x + (vx + lift) // ph_ + base,
                                                        k * 4,
                                                    ],
                                                    dtype=four,
                                                ),
                                                dtype="int32",
                                            ),
                                            K.vload(
                                                [r // oh * to + o, vy * ph_ + vx, ic, y, x, k, p * ls, 0],
                                                dtype=weights,
                                            ),
                                        )
                        for o in T.unroll(to):
                            for t in T.unroll(tw):
                                for v in T.vectorized(c):
                                    O[
                                        first + r // oh * to + o,
                                        r % oh * ph_ + vy + b_out,
                                        (T.min(n * tw, last) + t) * ph_ + vx + b_out,
                                        v,
                                    ] = epilogue(
                                        acc[o, t, v],
                                        S[r // oh * to + o, vy * ph_ + vx, 1, v],
                                        S[r // oh * to + o, vy * ph_ + vx, 2, v],
                                        S[r // oh * to + o, vy * ph_ + vx, 3, v],
                                        R[
                                            r // oh * to + o,
                                            r % oh * ph_ + vy + b_r,
                                            (T.min(n * tw, last) + t) * ph_ + vx + b_r,
                                            v,
                                        ],
                                    )
                for o, y, e in T.grid(to, ph_, b_out):
                    for v in T.vectorized(c):
                        O[first + r // oh * to + o, r % oh * ph_ + y + b_out, e, v] = blank
                    for v in T.vectorized(c):
                        O[first + r // oh * to + o, r % oh * ph_ + y + b_out, pw - 1 - e, v] = blank
                if r % oh == 0:
                    for o, e, x in T.grid(to, b_out, pw):
                        for v in T.vectorized(c):
                            O[first + r // oh * to + o, e, x, v] = blank
                        for v in T.vectorized(c):
                            O[first + r // oh * to + o, ph - 1 - e, x, v] = blank

    return conv_int8


def max_pool(
    blocks: int,
    c: int,
    height: int,
    width: int,
    window: tuple[int, int, int, int],
    results: tuple[int, int],
    b_in: int,
    b_out: int,
    stored: Stored,
) -> Any:
    """Return pool(X, O): maximum over windows (rows, columns, stride, padding); pixels outside the input are ignored.

    `results`: rows and columns of the output, which may begin a window that the input does not fill.
    """
    (kh, kw, stride, pad), (oh, ow) = window, results
    ih, iw, ph, pw = height + 2 * b_in, width + 2 * b_in, oh + 2 * b_out, ow + 2 * b_out
    dtype, blank, least = stored.dtype, constant(stored.dtype, stored.zero), constant(stored.dtype, stored.low)

    @T.prim_func(s_tir=True, private=True)
    def pool_int8(X: T.Buffer((blocks, ih, iw, c), dtype), O: T.Buffer((blocks, ph, pw, c), dtype)):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(blocks * ph):
            with T.sblock("row"):
                r = T.axis.spatial(blocks * ph, task)
                T.reads(X[0:blocks, 0:ih, 0:iw, 0:c])
                T.writes(O[0:blocks, 0:ph, 0:pw, 0:c])
                for x in range(pw):
                    with T.sblock("window"):
                        w = T.axis.spatial(pw, x)
                        T.reads(X[0:blocks, 0:ih, 0:iw, 0:c])
                        T.writes(O[0:blocks, 0:ph, 0:pw, 0:c])
                        best = T.sblock_alloc_buffer((c,), dtype)
                        inside = T.And(T.And(r % ph >= b_out, r % ph < ph - b_out), T.And(w >= b_out, w < pw - b_out))
                        for v in T.vectorized(c):
                            best[v] = T.if_then_else(inside, least, blank)
                        if inside:
                            for ky, kx in T.grid(kh, kw):
                                if (
                                    (r % ph - b_out) * stride + ky >= pad
                                    and (r % ph - b_out) * stride + ky < height + pad
                                    and (w - b_out) * stride + kx >= pad
                                    and (w - b_out) * stride + kx < width + pad
                                ):
                                    for v in T.vectorized(c):
                                        best[v] = T.max(
                                            best[v],
                                            X[
                                                r // ph,
                                                (r % ph - b_out) * stride + ky - pad + b_in,
                                                (w - b_out) * stride + kx - pad + b_in,
                                                v,
                                            ],
                                        )
                        for v in T.vectorized(c):
                            O[r // ph, r % ph, w, v] = best[v]

    return pool_int8


@dataclass(frozen=True, slots=True)
class Operand:
    """An input of `combine`: its bytes, border, and multiplier (fixed point of `combine`'s shift)."""

    stored: Stored
    border: int
    factor: int


def combine(
    blocks: int,
    c: int,
    height: int,
    width: int,
    left: Operand,
    right: Operand | None,
    b_out: int,
    total: int,
    first: int,
    stored: Stored,
    relu: bool,
    shift: int,
) -> Any:
    """Return combine(X[, Y], O): X and Y rescaled to the step of O and added; written to blocks `first` onwards of O.

    With one operand this is a copy to another step, border or range; `relu` clips below zero.
    """
    lh, lw = height + 2 * left.border, width + 2 * left.border
    other = right or Operand(left.stored, 0, 0)
    rb, rh, rw = (blocks, height + 2 * other.border, width + 2 * other.border) if right else (1, 1, 1)
    ph, pw, lb, b_r = height + 2 * b_out, width + 2 * b_out, left.border, other.border
    dtype, blank = stored.dtype, constant(stored.dtype, stored.zero)
    low = stored.zero if relu else stored.low
    rounding = (1 << (shift - 1)) + (stored.zero << shift)

    def finish(x: Any, y: Any) -> Any:
        value = (T.Cast("int32", x) - T.int32(left.stored.zero)) * T.int32(left.factor)
        if right:
            value = value + (T.Cast("int32", y) - T.int32(other.stored.zero)) * T.int32(other.factor)
        rounded = T.shift_right(value + T.int32(rounding), T.int32(shift))
        return T.Cast(dtype, T.min(T.max(rounded, T.int32(low)), T.int32(stored.high)))

    @T.prim_func(s_tir=True, private=True)
    def combine_int8(
        X: T.Buffer((blocks, lh, lw, c), dtype),
        Y: T.Buffer((rb, rh, rw, c), dtype),
        O: T.Buffer((total, ph, pw, c), dtype),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(blocks * ph):
            with T.sblock("row"):
                r = T.axis.spatial(blocks * ph, task)
                T.reads(X[0:blocks, 0:lh, 0:lw, 0:c], Y[0:rb, 0:rh, 0:rw, 0:c])
                T.writes(O[0:total, 0:ph, 0:pw, 0:c])
                if r % ph < b_out or r % ph >= ph - b_out:
                    for x in range(pw):
                        for v in T.vectorized(c):
                            O[first + r // ph, r % ph, x, v] = blank
                else:
                    for e in range(b_out):
                        for v in T.vectorized(c):
                            O[first + r // ph, r % ph, e, v] = blank
                        for v in T.vectorized(c):
                            O[first + r // ph, r % ph, pw - 1 - e, v] = blank
                    for x in range(width):
                        for v in T.vectorized(c):
                            O[first + r // ph, r % ph, x + b_out, v] = finish(
                                X[r // ph, r % ph - b_out + lb, x + lb, v],
                                Y[r // ph, r % ph - b_out + b_r, x + b_r, v],
                            )

    return combine_int8


_ROUNDER, _ROUNDER_BITS = 12582912.0, 0x4B400000


def quantise(
    blocks: int, c: int, channels: int, height: int, width: int, b_in: int, b_out: int, inverse: float, stored: Stored
) -> Any:
    """Return quantise(X, O): fp32 to bytes, halves to even; X is [blocks, H + 2b, W + 2b, c], or NCHW for b_in -1."""
    ph, pw = height + 2 * b_out, width + 2 * b_out
    plain = b_in < 0
    shape = (1, channels, height, width) if plain else (blocks, height + 2 * b_in, width + 2 * b_in, c)
    s0, s1, s2, s3 = shape
    dtype, blank = stored.dtype, constant(stored.dtype, stored.zero)
    low, high = stored.low - stored.zero, stored.high - stored.zero

    def rounded(x: Any) -> Any:
        scaled = T.min(T.max(x * T.float32(inverse), T.float32(low)), T.float32(high))
        # Added to 1.5 * 2^23 a small number is rounded, halves to even, into the low bits of the sum.
        bits = T.reinterpret(scaled + T.float32(_ROUNDER), dtype="int32")
        return T.Cast(dtype, bits - T.int32(_ROUNDER_BITS - stored.zero))

    def source(X: Any, block: Any, y: Any, x: Any, v: Any) -> Any:
        if not plain:
            return X[block, y + b_in, x + b_in, v]
        value = X[0, T.min(block * c + v, channels - 1), y, x]
        return value if channels == blocks * c else T.if_then_else(block * c + v < channels, value, T.float32(0))

    @T.prim_func(s_tir=True, private=True)
    def quantise_int8(X: T.Buffer((s0, s1, s2, s3), "float32"), O: T.Buffer((blocks, ph, pw, c), dtype)):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(blocks * ph):
            with T.sblock("row"):
                r = T.axis.spatial(blocks * ph, task)
                T.reads(X[0:s0, 0:s1, 0:s2, 0:s3])
                T.writes(O[0:blocks, 0:ph, 0:pw, 0:c])
                if r % ph < b_out or r % ph >= ph - b_out:
                    for x in range(pw):
                        for v in T.vectorized(c):
                            O[r // ph, r % ph, x, v] = blank
                else:
                    for e in range(b_out):
                        for v in T.vectorized(c):
                            O[r // ph, r % ph, e, v] = blank
                        for v in T.vectorized(c):
                            O[r // ph, r % ph, pw - 1 - e, v] = blank
                    for x in range(width):
                        for v in T.vectorized(c):
                            O[r // ph, r % ph, x + b_out, v] = rounded(source(X, r // ph, r % ph - b_out, x, v))

    return quantise_int8


def dequantise(blocks: int, c: int, height: int, width: int, b_in: int, b_out: int, step: float, stored: Stored) -> Any:
    """Return dequantise(X, O): bytes to fp32 blocks with another border."""
    ih, iw, ph, pw = height + 2 * b_in, width + 2 * b_in, height + 2 * b_out, width + 2 * b_out
    dtype, zero = stored.dtype, stored.zero

    @T.prim_func(s_tir=True, private=True)
    def dequantise_int8(X: T.Buffer((blocks, ih, iw, c), dtype), O: T.Buffer((blocks, ph, pw, c), "float32")):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(blocks * ph):
            with T.sblock("row"):
                r = T.axis.spatial(blocks * ph, task)
                T.reads(X[0:blocks, 0:ih, 0:iw, 0:c])
                T.writes(O[0:blocks, 0:ph, 0:pw, 0:c])
                if r % ph < b_out or r % ph >= ph - b_out:
                    for x in range(pw):
                        for v in T.vectorized(c):
                            O[r // ph, r % ph, x, v] = T.float32(0)
                else:
                    for e in range(b_out):
                        for v in T.vectorized(c):
                            O[r // ph, r % ph, e, v] = T.float32(0)
                        for v in T.vectorized(c):
                            O[r // ph, r % ph, pw - 1 - e, v] = T.float32(0)
                    for x in range(width):
                        for v in T.vectorized(c):
                            O[r // ph, r % ph, x + b_out, v] = T.Cast(
                                "float32", T.Cast("int32", X[r // ph, r % ph - b_out + b_in, x + b_in, v]) - zero
                            ) * T.float32(step)

    return dequantise_int8
