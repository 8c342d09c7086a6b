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
from socsched.compiler.quantize.epilogue import Epilogue, Stored, Window
from socsched.compiler.targets.llvm.int8_dot import Dot
from socsched.compiler.targets.llvm.kernels import _NO_ALIAS, blank_sides, pixelwise, plain, whole
from socsched.compiler.targets.llvm.vector import Lying, Tile


def _dots(source: Lying, window: Window, dot: Dot, tile: Tile, sizes: tuple[int, int, int], words: bool) -> Any:
    """Return add(acc, X, K, (row, tile, phases), start): the products of a tile.

    `sizes`: rows of output, last tile, block.  X is the image `source`, or with `words` its rows from `start` on, every
    pixel an int32.
    """
    (kh, kw), s, ph_, base, lift = window.taps, window.stride, window.phases, window.base + source.border, window.lift
    (oh, last, c), in_blocks, quads = sizes, source.blocks, source.block // 4
    tw, to, ls, step = tile.pixels, tile.blocks, dot.lanes, dot.step
    parts, vector, four, weights = c // ls, f"int32x{ls}", f"{source.dtype}x4", f"int8x{4 * ls}"

    def pixels(X: Any, ic: Any, y: Any, x: Any, k: Any, t: Any, at: Any, start: Any) -> Any:
        """Return four channels of an input pixel."""
        r, n, vy, vx = at
        row = r % oh * s + y + (vy + lift) // ph_ + base - start
        column = (T.min(n * tw, last) + t) * s + x + (vx + lift) // ph_ + base
        if words:
            return X.vload([row, column], dtype="int32")
        return T.reinterpret(X.vload([ic, row, column, k * 4], dtype=four), dtype="int32")

    @T.macro
    def add(acc, X, K, at, start):
        for ic, y, x, k in T.grid(in_blocks, kh, kw, quads):
            for o in T.unroll(to):
                for p in T.unroll(parts):
                    for t in T.unroll(tw):
                        acc[o, t, T.ramp(p * ls, 1, ls)] = step(
                            acc.vload([o, t, p * ls], dtype=vector),
                            pixels(X, ic, y, x, k, t, at, start),
                            K.vload([at[0] // oh * to + o, at[2] * ph_ + at[3], ic, y, x, k, p * ls, 0], dtype=weights),
                        )

    return add


def _row(
    source: Lying,
    target: Lying,
    window: Window,
    residual: Lying | None,
    epilogue: Epilogue,
    dot: Dot,
    tile: Tile,
    words: bool = False,
) -> Any:
    """Return row(X, K, S, R, O, r, start): row r of output of some blocks; `words` and `start` as of `_dots`."""
    c, first, tw, to, ph_ = target.block, target.first, tile.pixels, tile.blocks, window.phases
    oh, ow, b_out = target.height // ph_, target.width // ph_, target.border
    last, tiles, b_r, blank = ow - tw, -(-ow // tw), residual.border if residual else 0, epilogue.blank
    _, ph, pw, _ = target.shape
    add = _dots(source, window, dot, tile, (oh, last, c), words)

    def spot(first: int, border: int, o: Any, t: Any, at: Any) -> tuple[Any, Any, Any]:
        """Return block, row and column of a tile's pixel."""
        r, n, vy, vx = at
        rows, columns = r % oh * ph_ + vy + border, (T.min(n * tw, last) + t) * ph_ + vx + border
        return first + r // oh * to + o, rows, columns

    @T.macro
    def row(X, K, S, R, O, r, start):
        for dy, dx, i in T.grid(ph_, ph_, tiles):
            with T.sblock("tile"):
                vy, vx, n = T.axis.remap("SSS", [dy, dx, i])
                T.reads(*whole(X, K, S, R))
                T.writes(*whole(O))
                acc = T.sblock_alloc_buffer((to, tw, c), "int32")
                for o, t in T.grid(to, tw):
                    for v in T.vectorized(c):
                        acc[o, t, v] = S[r // oh * to + o, vy * ph_ + vx, 0, v]
                add(acc, X, K, (r, n, vy, vx), start)
                for o in T.unroll(to):
                    for t in T.unroll(tw):
                        for v in T.vectorized(c):
                            O[(*spot(first, b_out, o, t, (r, n, vy, vx)), v)] = epilogue(
                                acc[o, t, v],
                                S[r // oh * to + o, vy * ph_ + vx, 1, v],
                                S[r // oh * to + o, vy * ph_ + vx, 2, v],
                                S[r // oh * to + o, vy * ph_ + vx, 3, v],
                                R[(*spot(0, b_r, o, t, (r, n, vy, vx)), v)],
                            )
        for o, y in T.grid(to, ph_):
            blank_sides(O, first + r // oh * to + o, r % oh * ph_ + y + b_out, pw, b_out, c, blank)
        if r % oh == 0:
            for o, e, x in T.grid(to, b_out, pw):
                for v in T.vectorized(c):
                    O[first + r // oh * to + o, e, x, v] = blank
                for v in T.vectorized(c):
                    O[first + r // oh * to + o, ph - 1 - e, x, v] = blank

    return row


def _shapes(
    source: Lying, target: Lying, window: Window, residual: Lying | None, epilogue: Epilogue
) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a convolution's weights, table and residual."""
    blocks, c, phases = target.blocks, target.block, window.phases**2
    weights = (blocks, phases, source.blocks, *window.taps, source.block // 4, c, 4)
    return weights, (blocks, phases, epilogue.rows, c), residual.shape if residual else (1, 1, 1, c)


def conv2d(
    source: Lying, target: Lying, window: Window, residual: Lying | None, epilogue: Epilogue, dot: Dot, tile: Tile
) -> Any:
    """Return conv(X, K[blocks, phases^2, in_blocks, kh, kw, ci/4, c, 4], table[blocks, phases^2, rows, c], R, O).

    `residual`: the image R that is added, if any; else R is a single pixel, which is not read.
    """
    rows = target.blocks // tile.blocks * (target.height // window.phases)
    row = _row(source, target, window, residual, epilogue, dot, tile)
    k_shape, s_shape, r_shape = _shapes(source, target, window, residual, epilogue)
    x_shape, o_shape, x_dtype, out_dtype = source.shape, target.shape, source.dtype, epilogue.dtype
    r_dtype = out_dtype if epilogue.residual else "uint8"

    @T.prim_func(s_tir=True, private=True)
    def conv_int8(
        X: T.Buffer(x_shape, x_dtype),
        K: T.Buffer(k_shape, "int8"),
        S: T.Buffer(s_shape, "int32"),
        R: T.Buffer(r_shape, r_dtype),
        O: T.Buffer(o_shape, out_dtype),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(rows):
            with T.sblock("row"):
                r = T.axis.spatial(rows, task)
                T.reads(*whole(X, K, S, R))
                T.writes(*whole(O))
                row(X, K, S, R, O, r, 0)

    return conv_int8


@dataclass(frozen=True, slots=True)
class Canvas:
    """fp32 input [1, channels <= 4, H, W] of a convolution that rounds it, for `rows` rows of output at a time."""

    channels: int
    inverse: float
    stored: Stored
    rows: int

    def word(self, X: Any, y: Any, x: Any) -> Any:
        """Return the bytes of a pixel as int32; channels that are missing are zero."""
        whole = T.int32(self.blank(self.channels))
        for n in range(self.channels):
            byte = T.bitwise_and(rounded(X[0, n, y, x], self.inverse, self.stored), 255)
            whole = T.bitwise_or(whole, T.shift_left(byte, T.int32(8 * n)))
        return whole

    def blank(self, first: int = 0) -> int:
        """Return a pixel that is zero from channel `first` on, and has no bits in others."""
        return int.from_bytes([0] * first + [self.stored.zero & 255] * (4 - first), "little", signed=True)


def conv_canvas(
    canvas: Canvas,
    source: Lying,
    target: Lying,
    window: Window,
    residual: Lying | None,
    epilogue: Epilogue,
    dot: Dot,
    tile: Tile,
) -> Any:
    """Return `conv2d` with the canvas as X: each task rounds the rows that it reads; `source`: how these would lie."""
    strip, blank, word, stride = canvas.rows, canvas.blank(), canvas.word, window.stride
    height, width, pad, lanes = source.height, source.width, source.border, min(dot.lanes, source.width)
    row_width, base = width + 2 * pad, window.base + pad
    oh, groups = target.height // window.phases, target.blocks // tile.blocks
    reach = (strip - 1) * stride + window.taps[0] + (window.phases - 1 + window.lift) // window.phases
    k_shape, s_shape, r_shape = _shapes(source, target, window, residual, epilogue)
    x_shape, o_shape, out_dtype = (1, canvas.channels, height, width), target.shape, epilogue.dtype
    r_dtype = out_dtype if epilogue.residual else "uint8"
    row = _row(source, target, window, residual, epilogue, dot, tile, True)

    @T.macro
    def fill(B, X, y, at):
        """Put row `at` of the canvas into row y of B."""
        for e in range(pad):
            B[y, e] = blank
            B[y, row_width - 1 - e] = blank
        for i in range(-(-width // lanes)):
            for v in T.vectorized(lanes):
                B[y, pad + T.min(i * lanes, width - lanes) + v] = word(X, at, T.min(i * lanes, width - lanes) + v)

    @T.prim_func(s_tir=True, private=True)
    def conv_int8(
        X: T.Buffer(x_shape, "float32"),
        K: T.Buffer(k_shape, "int8"),
        S: T.Buffer(s_shape, "int32"),
        R: T.Buffer(r_shape, r_dtype),
        O: T.Buffer(o_shape, out_dtype),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(oh // strip):
            with T.sblock("strip"):
                m = T.axis.spatial(oh // strip, task)
                T.reads(*whole(X, K, S, R))
                T.writes(*whole(O))
                B = T.sblock_alloc_buffer((reach, row_width), "int32")
                for y in range(reach):
                    if (m * strip * stride + base + y >= pad) and (m * strip * stride + base + y < height + pad):
                        fill(B, X, y, m * strip * stride + base + y - pad)
                    else:
                        for x in range(row_width):
                            B[y, x] = blank
                for g, i in T.grid(groups, strip):
                    with T.sblock("row"):
                        r = T.axis.spatial(groups * oh, g * oh + m * strip + i)
                        T.reads(*whole(X, K, S, R))
                        T.writes(*whole(O))
                        row(B, K, S, R, O, r, m * strip * stride + base)

    return conv_int8


@dataclass(frozen=True, slots=True)
class Operand:
    """An input of `combine`: where it lies, its stored zero, and its multiplier (fixed point of `combine`'s shift)."""

    lying: Lying
    zero: int
    factor: int


def combine(left: Operand, right: Operand | None, target: Lying, stored: Stored, relu: bool, shift: int) -> Any:
    """Return combine(X, Y, O): X and Y rescaled to the step of O and added; written to blocks `first` onwards of O.

    With one operand this is a copy to another step, border or range, and Y a single pixel; `relu` clips below zero.
    """
    lb, b_r, dtype = left.lying.border, right.lying.border if right else 0, stored.dtype
    low = stored.zero if relu else stored.low
    rounding = (1 << (shift - 1)) + (stored.zero << shift)
    other = right.lying.shape if right else (1, 1, 1, target.block)

    def value(X: Any, Y: Any, g: Any, y: Any, x: Any, v: Any) -> Any:
        sums = (T.Cast("int32", X[g, y + lb, x + lb, v]) - T.int32(left.zero)) * T.int32(left.factor)
        if right:
            added = T.Cast("int32", Y[g, y + b_r, x + b_r, v]) - T.int32(right.zero)
            sums = sums + added * T.int32(right.factor)
        rounded = T.shift_right(sums + T.int32(rounding), T.int32(shift))
        return T.Cast(dtype, T.min(T.max(rounded, T.int32(low)), T.int32(stored.high)))

    return pixelwise(target, value, [(left.lying.shape, dtype), (other, dtype)], stored.zero)


_ROUNDER, _ROUNDER_BITS = 12582912.0, 0x4B400000


def rounded(value: Any, inverse: float, stored: Stored) -> Any:
    """Return the stored byte of an fp32 value as int32, halves to even."""
    low, high = stored.low - stored.zero, stored.high - stored.zero
    scaled = T.min(T.max(value * T.float32(inverse), T.float32(low)), T.float32(high))
    # Added to 1.5 * 2^23 a small number is rounded, halves to even, into the low bits of the sum.
    bits = T.reinterpret(scaled + T.float32(_ROUNDER), dtype="int32")
    return bits - T.int32(_ROUNDER_BITS - stored.zero)


def quantise(channels: int, edge: int, target: Lying, inverse: float, stored: Stored) -> Any:
    """Return quantise(X, O): fp32 to bytes; X is in blocks with a border `edge`, or NCHW for -1."""
    blocks, c, height, width = target.blocks, target.block, target.height, target.width
    shape = (1, channels, height, width) if edge < 0 else (blocks, height + 2 * edge, width + 2 * edge, c)

    def byte(X: Any, _: Any, g: Any, y: Any, x: Any, v: Any) -> Any:
        value = plain(X, channels, c, g, y, x, v) if edge < 0 else X[g, y + edge, x + edge, v]
        return T.Cast(stored.dtype, rounded(value, inverse, stored))

    return pixelwise(target, byte, [(shape, "float32")], stored.zero)


def dequantise(source: Lying, target: Lying, step: float, stored: Stored) -> Any:
    """Return dequantise(X, O): bytes to fp32 blocks with another border."""
    border = source.border

    def value(X: Any, _: Any, g: Any, y: Any, x: Any, v: Any) -> Any:
        byte = T.Cast("int32", X[g, y + border, x + border, v])
        return T.Cast("float32", byte - stored.zero) * T.float32(step)

    return pixelwise(target, value, [(source.shape, stored.dtype)])
