# mypy: ignore-errors
# ruff: noqa: B023, E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""Direct convolutions on channel-blocked activations, each a finished PrimFunc to which no schedule is applied.

`residual` is the border (pixels) of an image of the output's shape that is added before the activation, -1 for none
(the operand R is then a single unread number).  See `kernels` for the layout of activations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from socsched.compiler.environment import T
from socsched.compiler.targets.llvm.fuse import Activation, finish, function
from socsched.compiler.targets.llvm.half import TERMS
from socsched.compiler.targets.llvm.half import runs as partial_sums
from socsched.compiler.targets.llvm.kernels import (
    _NO_ALIAS,
    add_lanes,
    add_products,
    blank_ends,
    blank_sides,
    fetch,
    over_tile,
    whole,
    wide,
    zero,
)
from socsched.compiler.targets.llvm.vector import Lying, Order, Tile, Window

_NEAR = 1 << 17
"""Bytes of weights that stay in the second-level cache without prefetching."""


def residual_shape(target: Lying, border: int) -> tuple[int, int, int, int]:
    """Return the shape of operand R."""
    if border < 0:
        return (1, 1, 1, 1)
    return (target.blocks, target.height + 2 * border, target.width + 2 * border, target.block)


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution in blocks of channels, and its division into tiles and tasks.

    In half precision at most `most` products are summed before they are added to fp32 totals (`half`).  `joined`: so
    many blocks of output read the same blocks of input, `source.blocks` of all (a convolution in groups), 0 if every
    block does.
    """

    source: Lying
    target: Lying
    window: Window
    tile: Tile
    order: Order
    most: int = TERMS
    joined: int = 0

    @property
    def groups(self) -> int:
        """Return the number of groups of output blocks that a tile computes at once."""
        return self.target.blocks // self.tile.blocks

    @property
    def each(self) -> int:
        """Return the number of tiles of a task."""
        return -(-_tiles(self) // self.order.parts)

    @property
    def parts(self) -> int:
        """Return the number of tasks of a row and group."""
        return -(-_tiles(self) // self.each)

    @property
    def corner(self) -> tuple[int, int]:
        """Return the row and column of `source` where the window of the first output pixel begins."""
        return self.source.border - self.window.pad[0], self.source.border - self.window.pad[1]


def _tiles(conv: Convolution) -> int:
    return -(-conv.target.width // conv.tile.pixels)


@T.macro
def add_halves(acc, tile, ci, dtype, terms, pixel, weight, before):
    """Add products of `terms` (runs, terms of a run, all), each run summed in half precision, to a tile's fp32 totals.

    `before(step)` comes before a term: prefetching.
    """
    part = T.sblock_alloc_buffer(tile, dtype)
    near = T.sblock_alloc_buffer((tile[1], ci), dtype)
    for run in range(terms[0]):
        over_tile(part, tile, lambda o, t, v: zero(part))
        for step in range(T.min(terms[1], terms[2] - run * terms[1])):
            place: T.let[T.int32] = run * terms[1] + step
            before(place)
            if ci == tile[2]:
                add_lanes(part, near, tile, ci, pixel(place), weight(place))
            else:
                add_products(part, tile, ci, pixel(place), weight(place))
        over_tile(acc, tile, lambda o, t, v: acc[o, t, v] + wide(part[o, t, v]))


@T.macro
def nothing(step):
    """Do nothing before a term."""


def _prefetch(conv: Convolution) -> Any:
    """Return foresee(X, K, place, following, at): prefetching at position `at` of the window.

    While a tile is computed, a share of the next channel group's weights is prefetched and, in the first group, which
    is the first to read the image, the pixels of the next tile: channels are far apart in memory, so the hardware
    prefetcher misses them.
    """
    (kh, kw), (sh, sw), (dh, _), up = conv.window.kernel, conv.window.stride, conv.window.dilation, conv.corner[0]
    source, target, (tw, to) = conv.source, conv.target, (conv.tile.pixels, conv.tile.blocks)
    ci, c, groups, iw = source.block, target.block, conv.groups, source.shape[2]
    slots = conv.each if conv.order.rows_first else conv.each * target.height * conv.parts  # tiles that share the work
    lines = -(-ci * to // slots)  # to prefetch per tile and kernel position
    ahead = -(-tw * sw // kw) if ci == c else 0  # pixels to prefetch per kernel position
    size = 4 if source.dtype == "float32" else 2
    more = groups > 1 and size * target.blocks * c * source.blocks * ci * kh * kw > _NEAR

    @T.macro
    def foresee(X, K, place, following, at):
        if more:
            for j in range(lines):
                T.evaluate(
                    fetch(
                        K,
                        (place[0] + 1) % groups * to + T.min((place[2] * lines + j) // ci, to - 1),
                        *(at[0], at[1], at[2], (place[2] * lines + j) % ci, 0),
                    )
                )
        if place[0] == 0:
            for j in range(ahead):
                T.evaluate(
                    fetch(
                        X,
                        *(place[1] + at[0], following[0] * sh + at[1] * dh + up),
                        *(T.min(following[1] * sw + at[2] * ahead + j, iw - 1), 0),
                    )
                )

    return foresee


def _sums(conv: Convolution) -> Any:
    """Return add(acc, X, K, place, following): the products of the tile at `place` (group, base, slot, row, column)."""
    (kh, kw), (sh, sw), (dh, dw), (up, left) = conv.window.kernel, conv.window.stride, conv.window.dilation, conv.corner
    source, (tw, to), c, dtype = conv.source, (conv.tile.pixels, conv.tile.blocks), conv.target.block, conv.source.dtype
    in_blocks, ci, tiled = source.blocks, source.block, (to, tw, c)
    steps = in_blocks * kh * kw
    terms, foresee = (*partial_sums(steps, ci, conv.most), steps), _prefetch(conv)

    def position(step: Any) -> tuple[Any, Any, Any]:
        return step // (kh * kw), step // kw % kh, step % kw

    def pixels(X: Any, place: Any, at: tuple[Any, Any, Any]) -> Any:
        (_, base, _, y, x0), (ic, ky, kx) = place, at
        return lambda t, k: X[base + ic, y * sh + ky * dh + up, (x0 + t) * sw + kx * dw + left, k]

    def weights(K: Any, place: Any, at: tuple[Any, Any, Any]) -> Any:
        return lambda o, k, v: K[place[0] * to + o, at[0], at[1], at[2], k, v]

    @T.macro
    def add_half(acc, X, K, place, following):
        add_halves(
            *(acc, tiled, ci, dtype, terms),
            lambda step: pixels(X, place, position(step)),
            lambda step: weights(K, place, position(step)),
            lambda step: foresee(X, K, place, following, position(step)),
        )

    @T.macro
    def add(acc, X, K, place, following):
        for ic, ky, kx in T.grid(in_blocks, kh, kw):
            foresee(X, K, place, following, (ic, ky, kx))
            add_products(acc, tiled, ci, pixels(X, place, (ic, ky, kx)), weights(K, place, (ic, ky, kx)))

    return add if dtype == "float32" else add_half


def conv2d(conv: Convolution, activation: Activation, residual: int) -> Any:
    """Return conv(X, weight[blocks, in_blocks, kh, kw, ci, c], bias[blocks, c], R, O)."""
    source, target, (tw, to), (kh, kw) = (
        conv.source,
        conv.target,
        (conv.tile.pixels, conv.tile.blocks),
        conv.window.kernel,
    )
    in_blocks, ci, blocks, c, first = source.blocks, source.block, target.blocks, target.block, target.first
    (all_blocks, ih, iw, _), (total, ph, pw, _) = source.shape, target.shape
    oh, b_out, last, dtype = target.height, target.border, target.width - tw, source.dtype
    each, parts, groups, joined, rows_first = conv.each, conv.parts, conv.groups, conv.joined, conv.order.rows_first
    units, tasks = oh * parts, oh * parts * groups
    rb, (rn, rh, rw, rc) = residual, residual_shape(target, residual)
    done, add = finish(activation, residual >= 0), _sums(conv)

    def base_of(g: Any) -> Any:
        return g * to // joined * in_blocks if joined else T.int32(0)

    @T.prim_func(s_tir=True, private=True)
    def conv(
        X: T.Buffer((all_blocks, ih, iw, ci), dtype),
        K: T.Buffer((blocks, in_blocks, kh, kw, ci, c), dtype),
        B: T.Buffer((blocks, c), "float32"),
        R: T.Buffer((rn, rh, rw, rc), dtype),
        O: T.Buffer((total, ph, pw, c), dtype),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(tasks):
            with T.sblock("row"):
                r = T.axis.spatial(tasks, task)
                T.reads(*whole(X, K, B, R))
                T.writes(*whole(O))
                g: T.let[T.int32] = r % groups if rows_first else r // units
                y: T.let[T.int32] = (r // groups if rows_first else r % units) // parts
                base: T.let[T.int32] = base_of(g)
                part: T.let[T.int32] = (r // groups if rows_first else r % units) % parts
                for i in range(each):
                    with T.sblock("tile"):
                        n = T.axis.spatial(each, i)
                        T.reads(*whole(X, K, B, R))
                        T.writes(*whole(O))
                        acc = T.sblock_alloc_buffer((to, tw, c), "float32")
                        x0: T.let[T.int32] = T.min((part * each + n) * tw, last)
                        slot: T.let[T.int32] = n if rows_first else (y * parts + part) * each + n
                        ends: T.let[T.bool] = x0 == last
                        y1: T.let[T.int32] = T.Select(ends, T.min(y + 1, oh - 1), y)
                        x1: T.let[T.int32] = T.Select(ends, 0, x0 + tw)
                        for o, t in T.grid(to, tw):
                            T.evaluate(fetch(O, first + g * to + o, y + b_out, x0 + t + b_out, 0, write=True))
                            if rb >= 0:
                                T.evaluate(fetch(R, g * to + o, y + rb, x0 + t + rb, 0))
                            for v in T.vectorized(c):
                                acc[o, t, v] = B[g * to + o, v]
                        add(acc, X, K, (g, base, slot, y, x0), (y1, x1))
                        for o in T.unroll(to):
                            for t in T.unroll(tw):
                                for v in T.vectorized(c):
                                    O[first + g * to + o, y + b_out, x0 + t + b_out, v] = done(
                                        acc[o, t, v], R, g * to + o, y + rb, x0 + t + rb, v
                                    ).astype(dtype)
                if part == 0:
                    for o in range(to):
                        blank_sides(O, first + g * to + o, y + b_out, pw, b_out, c, zero(O))
                if T.And(part == 0, y == 0):
                    for o in range(to):
                        blank_ends(O, first + g * to + o, ph, pw, b_out, c)

    return conv


def conv2d_inside(conv: Convolution, activation: Activation, residual: int) -> Any:
    """Return conv(X, weight[blocks, kh, kw, in_blocks, ci, c], bias[blocks, c], R, O), of which most lies outside.

    Of every position of the window only the pixels are computed that it reads inside of the image, no border; a row's
    sums wait in memory meanwhile.  The last tile of a position repeats pixels and leaves their sums as they are.
    """
    source, target, window, tw, to = conv.source, conv.target, conv.window, conv.tile.pixels, conv.tile.blocks
    (kh, kw), (sh, sw), (dh, dw), (top, left) = window.kernel, window.stride, window.dilation, window.pad
    in_blocks, ci, height, width, b_in = source.blocks, source.block, source.height, source.width, source.border
    blocks, c, oh, ow, b_out = target.blocks, target.block, target.height, target.width, target.border
    (all_blocks, ih, iw, _), (total, ph, pw, _) = source.shape, target.shape
    first, groups, tiled = target.first, conv.groups, (to, tw, c)
    rb, (rn, rh, rw, rc) = residual, residual_shape(target, residual)
    done = finish(activation, residual >= 0)

    @T.prim_func(s_tir=True, private=True)
    def conv(
        X: T.Buffer((all_blocks, ih, iw, ci), "float32"),
        K: T.Buffer((blocks, kh, kw, in_blocks, ci, c), "float32"),
        B: T.Buffer((blocks, c), "float32"),
        R: T.Buffer((rn, rh, rw, rc), "float32"),
        O: T.Buffer((total, ph, pw, c), "float32"),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(oh * groups):
            with T.sblock("row"):
                r = T.axis.spatial(oh * groups, task)
                T.reads(*whole(X, K, B, R))
                T.writes(*whole(O))
                sums = T.sblock_alloc_buffer((to, ow, c), "float32")
                g: T.let[T.int32] = r // oh
                y: T.let[T.int32] = r % oh
                for o, x in T.grid(to, ow):
                    for v in T.vectorized(c):
                        sums[o, x, v] = B[g * to + o, v]
                for ky, kx in T.grid(kh, kw):
                    at_y: T.let[T.int32] = y * sh + ky * dh - top
                    off: T.let[T.int32] = kx * dw - left
                    begin: T.let[T.int32] = T.max((sw - 1 - off) // sw, 0)
                    end: T.let[T.int32] = T.min((width - 1 - off) // sw + 1, ow)
                    if T.And(at_y >= 0, at_y < height):
                        for i in range((T.max(end - begin, 0) + tw - 1) // tw):
                            with T.sblock("tile"):
                                n, p, q = T.axis.remap("SSS", [i, ky, kx])
                                T.reads(*whole(X, K, sums))
                                T.writes(*whole(sums))
                                acc = T.sblock_alloc_buffer(tiled, "float32")
                                x0: T.let[T.int32] = T.max(T.min(begin + n * tw, end - tw), 0)
                                over_tile(acc, tiled, lambda o, t, v: sums[o, x0 + t, v])
                                for ic in range(in_blocks):
                                    add_products(
                                        *(acc, tiled, ci),
                                        lambda t, k: X[
                                            ic, at_y + b_in, T.min(T.max((x0 + t) * sw + off, 0), width - 1) + b_in, k
                                        ],
                                        lambda o, k, v: K[g * to + o, p, q, ic, k, v],
                                    )
                                for t in T.unroll(tw):
                                    if T.And(x0 + t >= begin + n * tw, x0 + t < end):
                                        for o in T.unroll(to):
                                            for v in T.vectorized(c):
                                                sums[o, x0 + t, v] = acc[o, t, v]
                for o, x in T.grid(to, ow):
                    for v in T.vectorized(c):
                        O[first + g * to + o, y + b_out, x + b_out, v] = done(
                            sums[o, x, v], R, g * to + o, y + rb, x + rb, v
                        )
                for o in range(to):
                    blank_sides(O, first + g * to + o, y + b_out, pw, b_out, c, zero(O))
                    if y == 0:
                        blank_ends(O, first + g * to + o, ph, pw, b_out, c)

    return conv


def depthwise_sums(window: Window, dtype: str) -> str:
    """Return the type of a depthwise convolution's sums and bias: its storage type, if the sums are short enough."""
    return dtype if window.kernel[0] * window.kernel[1] <= TERMS else "float32"


def depthwise(source: Lying, target: Lying, window: Window, activation: Activation, residual: int, pixels: int) -> Any:
    """Return conv(X, weight[blocks, kh, kw, c], bias[blocks, c], R, O): one kernel per channel."""
    (kh, kw), (sh, sw), (dh, dw) = window.kernel, window.stride, window.dilation
    blocks, c, first = target.blocks, target.block, target.first
    oh, ow, b_out = target.height, target.width, target.border
    total, ph, pw, _ = target.shape
    _, ih, iw, _ = source.shape
    tw, last, tasks = pixels, ow - pixels, blocks * oh
    tiles = -(-ow // tw)
    up, left = source.border - window.pad[0], source.border - window.pad[1]
    rb, rn, rh, rw, _ = residual, *residual_shape(target, residual)
    rc = c if residual >= 0 else 1
    done = finish(activation, residual >= 0)
    dtype = source.dtype
    kept = depthwise_sums(window, dtype)

    @T.prim_func(s_tir=True, private=True)
    def conv_depthwise(
        X: T.Buffer((blocks, ih, iw, c), dtype),
        K: T.Buffer((blocks, kh, kw, c), dtype),
        B: T.Buffer((blocks, c), kept),
        R: T.Buffer((rn, rh, rw, rc), dtype),
        O: T.Buffer((total, ph, pw, c), dtype),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(tasks):
            with T.sblock("row"):
                r = T.axis.spatial(tasks, task)
                T.reads(*whole(X, K, B, R))
                T.writes(*whole(O))
                g: T.let[T.int32] = r // oh
                y: T.let[T.int32] = r % oh
                for i in range(tiles):
                    with T.sblock("tile"):
                        n = T.axis.spatial(tiles, i)
                        T.reads(*whole(X, K, B, R))
                        T.writes(*whole(O))
                        acc = T.sblock_alloc_buffer((tw, c), kept)
                        x0: T.let[T.int32] = T.min(n * tw, last)
                        for t in T.unroll(tw):
                            for v in T.vectorized(c):
                                acc[t, v] = B[g, v]
                        for ky in T.unroll(kh):
                            for kx in T.unroll(kw):
                                for t in T.unroll(tw):
                                    for v in T.vectorized(c):
                                        acc[t, v] = acc[t, v] + X[
                                            g, y * sh + ky * dh + up, (x0 + t) * sw + kx * dw + left, v
                                        ].astype(kept) * K[g, ky, kx, v].astype(kept)
                        for t in T.unroll(tw):
                            for v in T.vectorized(c):
                                O[first + g, y + b_out, x0 + t + b_out, v] = done(
                                    wide(acc[t, v]), R, g, y + rb, x0 + t + rb, v
                                ).astype(dtype)
                blank_sides(O, first + g, y + b_out, pw, b_out, c, zero(O))
                if y == 0:
                    blank_ends(O, first + g, ph, pw, b_out, c)

    return conv_depthwise


def conv2d_transpose(
    source: Lying, target: Lying, stride: int, activation: Activation, tile: Tile, most: int = TERMS
) -> Any:
    """Return deconv(X, weight[blocks, s, s, in_blocks, ci, c], bias, O) for kernel = stride = s, bias, ReLU.

    Each output pixel depends on only one input pixel, so this is s * s matrix products whose results are written s
    pixels apart.
    """
    in_blocks, ci, blocks, c = source.blocks, source.block, target.blocks, target.block
    height, width, b_in, b_out, first = source.height, source.width, source.border, target.border, target.first
    tw, to = tile.pixels, tile.blocks
    tiles, rows, last, groups = -(-width // tw), blocks // to * height, width - tw, blocks // to
    _, ih, iw, _ = source.shape
    total, ph, pw, _ = target.shape
    act = function(activation)
    dtype, half = source.dtype, source.dtype != "float32"
    tiled, terms = (to, tw, c), (*partial_sums(in_blocks, ci, most), in_blocks)

    def pixels(X: Any, y0: Any, n: Any) -> Any:
        return lambda ic: lambda t, k: X[ic, y0 + b_in, T.min(n * tw, last) + t + b_in, k]

    def weights(K: Any, g: Any, dy: Any, dx: Any) -> Any:
        return lambda ic: lambda o, k, v: K[g * to + o, dy, dx, ic, k, v]

    def spot(g: Any, o: Any, y0: Any, dy: Any, n: Any, t: Any, dx: Any) -> tuple[Any, Any, Any]:
        rows, columns = y0 * stride + dy + b_out, (T.min(n * tw, last) + t) * stride + dx + b_out
        return first + g * to + o, rows, columns

    @T.prim_func(s_tir=True, private=True)
    def deconv(
        X: T.Buffer((in_blocks, ih, iw, ci), dtype),
        K: T.Buffer((blocks, stride, stride, in_blocks, ci, c), dtype),
        B: T.Buffer((blocks, c), "float32"),
        O: T.Buffer((total, ph, pw, c), dtype),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(rows):
            with T.sblock("row"):
                r = T.axis.spatial(rows, task)
                T.reads(*whole(X, K, B))
                T.writes(*whole(O))
                g: T.let[T.int32] = r % groups
                y0: T.let[T.int32] = r // groups
                for y, x, i in T.grid(stride, stride, tiles):
                    with T.sblock("tile"):
                        dy, dx, n = T.axis.remap("SSS", [y, x, i])
                        T.reads(*whole(X, K, B))
                        T.writes(*whole(O))
                        acc = T.sblock_alloc_buffer((to, tw, c), "float32")
                        for o, t in T.grid(to, tw):
                            T.evaluate(fetch(O, *spot(g, o, y0, dy, n, t, dx), 0, write=True))
                            for v in T.vectorized(c):
                                acc[o, t, v] = B[g * to + o, v]
                        if half:
                            add_halves(
                                *(acc, tiled, ci, dtype, terms),
                                *(pixels(X, y0, n), weights(K, g, dy, dx), nothing),
                            )
                        else:
                            for ic in range(in_blocks):
                                add_products(acc, tiled, ci, pixels(X, y0, n)(ic), weights(K, g, dy, dx)(ic))
                        for o in T.unroll(to):
                            for t in T.unroll(tw):
                                for v in T.vectorized(c):
                                    O[(*spot(g, o, y0, dy, n, t, dx), v)] = act(acc[o, t, v]).astype(dtype)
                for o, y in T.grid(to, stride):
                    blank_sides(O, first + g * to + o, y0 * stride + y + b_out, pw, b_out, c, zero(O))
                if y0 == 0:
                    for o in range(to):
                        blank_ends(O, first + g * to + o, ph, pw, b_out, c)

    return deconv
