# mypy: ignore-errors
# ruff: noqa: E741, B023
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""Direct convolutions on channel-blocked activations, each a finished PrimFunc to which no schedule is applied.

`residual` is the border (pixels) of an image of the output's shape that is added before the activation, -1 for none
(the operand R is then a single unread number).  See `kernels` for the layout of activations.
"""

from __future__ import annotations

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


def conv2d(
    source: Lying,
    target: Lying,
    window: Window,
    activation: Activation,
    residual: int,
    tile: Tile,
    order: Order,
    most: int = TERMS,
    joined: int = 0,
    skips: bool = False,
) -> Any:
    """Return conv(X, weight[blocks, in_blocks, kh, kw, ci, c], bias[blocks, c], R, O).

    In half precision at most `most` products are summed before they are added to fp32 totals (`half`).  While a tile is
    computed, a share of the next channel group's weights is prefetched and, in the first group, which is the first to
    read the image, the pixels of the next tile: channels are far apart in memory, so the hardware prefetcher misses
    them.  `joined`: so many blocks of output read the same blocks of input, `source.blocks` of all (a convolution in
    groups), 0 if every block does.  `skips`: positions of the window outside of the image are left
    out, and no border is read.
    """
    (kh, kw), (sh, sw), (dh, dw) = window.kernel, window.stride, window.dilation
    in_blocks, ci, blocks, c, first = source.blocks, source.block, target.blocks, target.block, target.first
    oh, ow, b_out = target.height, target.width, target.border
    total, ph, pw, _ = target.shape
    all_blocks, ih, iw, _ = source.shape
    tw, to = tile.pixels, tile.blocks
    tiles, last, groups = -(-ow // tw), ow - tw, blocks // to
    each = -(-tiles // order.parts)
    parts = -(-tiles // each)
    units, tasks = oh * parts, oh * parts * groups
    up, left = source.border - window.pad[0], source.border - window.pad[1]
    low, high = source.border, source.border + source.height
    rb, rn, rh, rw, _ = residual, *residual_shape(target, residual)
    rc = c if residual >= 0 else 1
    done = finish(activation, residual >= 0)
    rows_first = order.rows_first
    slots = each if rows_first else each * units  # tiles that share prefetching of the next group's weights
    lines = -(-ci * to // slots)  # to prefetch per tile and kernel position
    ahead = -(-tw * sw // kw) if ci == c else 0  # pixels to prefetch per kernel position
    dtype, half = source.dtype, source.dtype != "float32"
    size = 2 if half else 4
    more = groups > 1 and size * blocks * c * in_blocks * ci * kh * kw > _NEAR
    steps = in_blocks * kh * kw
    runs, each_run = partial_sums(steps, ci, most)

    tiled = (to, tw, c)

    def base_of(g: Any) -> Any:
        return g * to // joined * in_blocks if joined else T.int32(0)

    def position(step: Any) -> tuple[Any, Any, Any]:
        return step // (kh * kw), step // kw % kh, step % kw

    def pixels(X: Any, base: Any, y: Any, x0: Any, at: tuple[Any, Any, Any]) -> Any:
        ic, ky, kx = at
        return lambda t, k: X[base + ic, y * sh + ky * dh + up, (x0 + t) * sw + kx * dw + left, k]

    def inside(X: Any, block: Any, y: Any, x: Any) -> Any:
        """Return the pixels from (y, x) on, zero left and right of the image."""
        first, last = source.border, source.border + source.width
        return lambda t, k: T.Select(
            T.And(x + t * sw >= first, x + t * sw < last),
            X[block, y, T.min(T.max(x + t * sw, first), last - 1), k],
            zero(X),
        )

    def weights(K: Any, g: Any, at: tuple[Any, Any, Any]) -> Any:
        return lambda o, k, v: K[g * to + o, at[0], at[1], at[2], k, v]

    @T.macro
    def foresee(X, K, g, base, slot, following, at):
        if more:
            for j in range(lines):
                T.evaluate(
                    fetch(
                        K,
                        (g + 1) % groups * to + T.min((slot * lines + j) // ci, to - 1),
                        *(at[0], at[1], at[2], (slot * lines + j) % ci, 0),
                    )
                )
        if g == 0:
            for j in range(ahead):
                T.evaluate(
                    fetch(
                        X,
                        *(base + at[0], following[0] * sh + at[1] * dh + up),
                        *(T.min(following[1] * sw + at[2] * ahead + j, iw - 1), 0),
                    )
                )

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
                        if half:
                            part = T.sblock_alloc_buffer((to, tw, c), dtype)
                            near = T.sblock_alloc_buffer((tw, ci), dtype)
                            for run in range(runs):
                                over_tile(part, tiled, lambda o, t, v: zero(X))
                                for step in range(T.min(each_run, steps - run * each_run)):
                                    place: T.let[T.int32] = run * each_run + step
                                    foresee(X, K, g, base, slot, (y1, x1), position(place))
                                    if ci == c:
                                        add_lanes(
                                            *(part, near, tiled, ci, pixels(X, base, y, x0, position(place))),
                                            weights(K, g, position(place)),
                                        )
                                    else:
                                        add_products(
                                            *(part, tiled, ci, pixels(X, base, y, x0, position(place))),
                                            weights(K, g, position(place)),
                                        )
                                over_tile(acc, tiled, lambda o, t, v: acc[o, t, v] + wide(part[o, t, v]))
                        elif skips:
                            near = T.sblock_alloc_buffer((tw, ci), dtype)
                            for ky, kx in T.grid(kh, kw):
                                at_y: T.let[T.int32] = y * sh + ky * dh + up
                                at_x: T.let[T.int32] = x0 * sw + kx * dw + left
                                if T.And(
                                    T.And(at_y >= low, at_y < high),
                                    T.And(at_x + (tw - 1) * sw >= source.border, at_x < source.border + source.width),
                                ):
                                    for ic in range(in_blocks):
                                        add_lanes(
                                            *(acc, near, tiled, ci, inside(X, base + ic, at_y, at_x)),
                                            weights(K, g, (ic, ky, kx)),
                                        )
                        else:
                            for ic, ky, kx in T.grid(in_blocks, kh, kw):
                                foresee(X, K, g, base, slot, (y1, x1), (ic, ky, kx))
                                add_products(
                                    *(acc, tiled, ci, pixels(X, base, y, x0, (ic, ky, kx))), weights(K, g, (ic, ky, kx))
                                )
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
    runs, each_run = partial_sums(in_blocks, ci, most)

    tiled = (to, tw, c)

    def pixels(X: Any, y0: Any, n: Any, ic: Any) -> Any:
        return lambda t, k: X[ic, y0 + b_in, T.min(n * tw, last) + t + b_in, k]

    def weights(K: Any, g: Any, dy: Any, dx: Any, ic: Any) -> Any:
        return lambda o, k, v: K[g * to + o, dy, dx, ic, k, v]

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
                            T.evaluate(
                                fetch(
                                    O,
                                    first + g * to + o,
                                    y0 * stride + dy + b_out,
                                    (T.min(n * tw, last) + t) * stride + dx + b_out,
                                    0,
                                    write=True,
                                )
                            )
                            for v in T.vectorized(c):
                                acc[o, t, v] = B[g * to + o, v]
                        if half:
                            part = T.sblock_alloc_buffer((to, tw, c), dtype)
                            near = T.sblock_alloc_buffer((tw, ci), dtype)
                            for run in range(runs):
                                over_tile(part, tiled, lambda o, t, v: zero(X))
                                for step in range(T.min(each_run, in_blocks - run * each_run)):
                                    if ci == c:
                                        add_lanes(
                                            *(part, near, tiled, ci, pixels(X, y0, n, run * each_run + step)),
                                            weights(K, g, dy, dx, run * each_run + step),
                                        )
                                    else:
                                        add_products(
                                            *(part, tiled, ci, pixels(X, y0, n, run * each_run + step)),
                                            weights(K, g, dy, dx, run * each_run + step),
                                        )
                                over_tile(acc, tiled, lambda o, t, v: acc[o, t, v] + wide(part[o, t, v]))
                        else:
                            for ic in range(in_blocks):
                                add_products(acc, tiled, ci, pixels(X, y0, n, ic), weights(K, g, dy, dx, ic))
                        for o in T.unroll(to):
                            for t in T.unroll(tw):
                                for v in T.vectorized(c):
                                    O[
                                        first + g * to + o,
                                        y0 * stride + dy + b_out,
                                        (T.min(n * tw, last) + t) * stride + dx + b_out,
                                        v,
                                    ] = act(acc[o, t, v]).astype(dtype)
                for o, y in T.grid(to, stride):
                    blank_sides(O, first + g * to + o, y0 * stride + y + b_out, pw, b_out, c, zero(O))
                if y0 == 0:
                    for o in range(to):
                        blank_ends(O, first + g * to + o, ph, pw, b_out, c)

    return deconv
