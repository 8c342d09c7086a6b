# mypy: ignore-errors
# ruff: noqa: E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""CPU kernels on channel-blocked activations, each a finished PrimFunc: no schedule is applied to them.

An activation is [C/c, H + 2b, W + 2b, c]: blocks of c channels, and a zero border of b pixels its producer writes, so
that a convolution never tests for the edge.  Every kernel writes output blocks `first` onwards of a tensor of `total`
blocks: several can fill one tensor, which makes concatenation free.  Channels beyond the logical ones are zero (their
weights are).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from socsched.compile.cpu.vector import Tile
from socsched.compile.environment import T

_NO_ALIAS = {"tirx.noalias": True, "tirx.is_scheduled": True}


def _activation(relu: bool) -> Callable[[Any], Any]:
    return (lambda value: T.max(value, T.float32(0))) if relu else (lambda value: value)


def conv2d(
    in_blocks: int,
    ci: int,
    blocks: int,
    c: int,
    height: int,
    width: int,
    kernel: tuple[int, int],
    stride: int,
    pad: int,
    b_in: int,
    b_out: int,
    total: int,
    first: int,
    relu: bool,
    tile: Tile,
) -> Any:
    """Return conv(X, weight[blocks, in_blocks, kh, kw, ci, c], bias[blocks, c], O): direct convolution, bias, ReLU.

    `height` x `width` is the input without border, whose width `b_in` is at least `pad`.
    """
    kh, kw = kernel
    oh, ow = (height + 2 * pad - kh) // stride + 1, (width + 2 * pad - kw) // stride + 1
    tw, to = tile.pixels, tile.blocks
    tiles, rows, last = -(-ow // tw), blocks // to * oh, ow - tw
    ih, iw, ph, pw, shift = height + 2 * b_in, width + 2 * b_in, oh + 2 * b_out, ow + 2 * b_out, b_in - pad
    act = _activation(relu)

    @T.prim_func(s_tir=True, private=True)
    def conv(
        X: T.Buffer((in_blocks, ih, iw, ci), "float32"),
        K: T.Buffer((blocks, in_blocks, kh, kw, ci, c), "float32"),
        B: T.Buffer((blocks, c), "float32"),
        O: T.Buffer((total, ph, pw, c), "float32"),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(rows):
            with T.sblock("row"):
                r = T.axis.spatial(rows, task)
                T.reads(
                    X[0:in_blocks, 0:ih, 0:iw, 0:ci], K[0:blocks, 0:in_blocks, 0:kh, 0:kw, 0:ci, 0:c], B[0:blocks, 0:c]
                )
                T.writes(O[0:total, 0:ph, 0:pw, 0:c])
                for i in range(tiles):
                    with T.sblock("tile"):
                        n = T.axis.spatial(tiles, i)
                        T.reads(
                            X[0:in_blocks, 0:ih, 0:iw, 0:ci],
                            K[0:blocks, 0:in_blocks, 0:kh, 0:kw, 0:ci, 0:c],
                            B[0:blocks, 0:c],
                        )
                        T.writes(O[0:total, 0:ph, 0:pw, 0:c])
                        acc = T.sblock_alloc_buffer((to, tw, c), "float32")
                        for o, t in T.grid(to, tw):
                            for v in T.vectorized(c):
                                acc[o, t, v] = B[r // oh * to + o, v]
                        for ic, y, x, k in T.grid(in_blocks, kh, kw, ci):
                            for o in T.unroll(to):
                                for t in T.unroll(tw):
                                    for v in T.vectorized(c):
                                        acc[o, t, v] = (
                                            acc[o, t, v]
                                            + X[
                                                ic,
                                                r % oh * stride + y + shift,
                                                (T.min(n * tw, last) + t) * stride + x + shift,
                                                k,
                                            ]
                                            * K[r // oh * to + o, ic, y, x, k, v]
                                        )
                        for o in T.unroll(to):
                            for t in T.unroll(tw):
                                for v in T.vectorized(c):
                                    O[first + r // oh * to + o, r % oh + b_out, T.min(n * tw, last) + t + b_out, v] = (
                                        act(acc[o, t, v])
                                    )
                for o, e in T.grid(to, b_out):
                    for v in T.vectorized(c):
                        O[first + r // oh * to + o, r % oh + b_out, e, v] = T.float32(0)
                    for v in T.vectorized(c):
                        O[first + r // oh * to + o, r % oh + b_out, pw - 1 - e, v] = T.float32(0)
                if r % oh == 0:
                    for o, e, x in T.grid(to, b_out, pw):
                        for v in T.vectorized(c):
                            O[first + r // oh * to + o, e, x, v] = T.float32(0)
                        for v in T.vectorized(c):
                            O[first + r // oh * to + o, ph - 1 - e, x, v] = T.float32(0)

    return conv


def conv2d_transpose(
    in_blocks: int,
    ci: int,
    blocks: int,
    c: int,
    height: int,
    width: int,
    stride: int,
    b_in: int,
    b_out: int,
    total: int,
    first: int,
    relu: bool,
    tile: Tile,
) -> Any:
    """Return deconv(X, weight[blocks, s, s, in_blocks, ci, c], bias, O) for kernel = stride = s, bias, ReLU.

    No output pixel gets more than one input pixel, so this is s * s matrix products whose results are written s pixels
    apart.
    """
    oh, ow = height * stride, width * stride
    tw, to = tile.pixels, tile.blocks
    tiles, rows, last = -(-width // tw), blocks // to * height, width - tw
    ih, iw, ph, pw = height + 2 * b_in, width + 2 * b_in, oh + 2 * b_out, ow + 2 * b_out
    act = _activation(relu)

    @T.prim_func(s_tir=True, private=True)
    def deconv(
        X: T.Buffer((in_blocks, ih, iw, ci), "float32"),
        K: T.Buffer((blocks, stride, stride, in_blocks, ci, c), "float32"),
        B: T.Buffer((blocks, c), "float32"),
        O: T.Buffer((total, ph, pw, c), "float32"),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(rows):
            with T.sblock("row"):
                r = T.axis.spatial(rows, task)
                T.reads(
                    X[0:in_blocks, 0:ih, 0:iw, 0:ci],
                    K[0:blocks, 0:stride, 0:stride, 0:in_blocks, 0:ci, 0:c],
                    B[0:blocks, 0:c],
                )
                T.writes(O[0:total, 0:ph, 0:pw, 0:c])
                for y, x, i in T.grid(stride, stride, tiles):
                    with T.sblock("tile"):
                        dy, dx, n = T.axis.remap("SSS", [y, x, i])
                        T.reads(
                            X[0:in_blocks, 0:ih, 0:iw, 0:ci],
                            K[0:blocks, 0:stride, 0:stride, 0:in_blocks, 0:ci, 0:c],
                            B[0:blocks, 0:c],
                        )
                        T.writes(O[0:total, 0:ph, 0:pw, 0:c])
                        acc = T.sblock_alloc_buffer((to, tw, c), "float32")
                        for o, t in T.grid(to, tw):
                            for v in T.vectorized(c):
                                acc[o, t, v] = B[r // height * to + o, v]
                        for ic, k in T.grid(in_blocks, ci):
                            for o in T.unroll(to):
                                for t in T.unroll(tw):
                                    for v in T.vectorized(c):
                                        acc[o, t, v] = (
                                            acc[o, t, v]
                                            + X[ic, r % height + b_in, T.min(n * tw, last) + t + b_in, k]
                                            * K[r // height * to + o, dy, dx, ic, k, v]
                                        )
                        for o in T.unroll(to):
                            for t in T.unroll(tw):
                                for v in T.vectorized(c):
                                    O[
                                        first + r // height * to + o,
                                        r % height * stride + dy + b_out,
                                        (T.min(n * tw, last) + t) * stride + dx + b_out,
                                        v,
                                    ] = act(acc[o, t, v])
                for o, y, e in T.grid(to, stride, b_out):
                    for v in T.vectorized(c):
                        O[first + r // height * to + o, r % height * stride + y + b_out, e, v] = T.float32(0)
                    for v in T.vectorized(c):
                        O[first + r // height * to + o, r % height * stride + y + b_out, pw - 1 - e, v] = T.float32(0)
                if r % height == 0:
                    for o, e, x in T.grid(to, b_out, pw):
                        for v in T.vectorized(c):
                            O[first + r // height * to + o, e, x, v] = T.float32(0)
                        for v in T.vectorized(c):
                            O[first + r // height * to + o, ph - 1 - e, x, v] = T.float32(0)

    return deconv


def max_pool(
    blocks: int, c: int, height: int, width: int, kernel: int, stride: int, pad: int, b_in: int, b_out: int
) -> Any:
    """Return pool(X, O): maximum over kernel x kernel windows; pixels outside the input do not take part."""
    oh, ow = (height + 2 * pad - kernel) // stride + 1, (width + 2 * pad - kernel) // stride + 1
    ih, iw, ph, pw = height + 2 * b_in, width + 2 * b_in, oh + 2 * b_out, ow + 2 * b_out

    @T.prim_func(s_tir=True, private=True)
    def pool(X: T.Buffer((blocks, ih, iw, c), "float32"), O: T.Buffer((blocks, ph, pw, c), "float32")):
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
                    for x in range(ow):
                        with T.sblock("window"):
                            w = T.axis.spatial(ow, x)
                            T.reads(X[0:blocks, 0:ih, 0:iw, 0:c])
                            T.writes(O[0:blocks, 0:ph, 0:pw, 0:c])
                            best = T.sblock_alloc_buffer((c,), "float32")
                            for v in T.vectorized(c):
                                best[v] = T.min_value("float32")
                            for ky, kx in T.grid(kernel, kernel):
                                if (
                                    (r % ph - b_out) * stride + ky >= pad
                                    and (r % ph - b_out) * stride + ky < height + pad
                                    and w * stride + kx >= pad
                                    and w * stride + kx < width + pad
                                ):
                                    for v in T.vectorized(c):
                                        best[v] = T.max(
                                            best[v],
                                            X[
                                                r // ph,
                                                (r % ph - b_out) * stride + ky - pad + b_in,
                                                w * stride + kx - pad + b_in,
                                                v,
                                            ],
                                        )
                            for v in T.vectorized(c):
                                O[r // ph, r % ph, w + b_out, v] = best[v]

    return pool


def add(blocks: int, c: int, height: int, width: int, b_left: int, b_right: int, b_out: int, relu: bool) -> Any:
    """Return add(X, Y, O): element-wise sum and, if asked for, ReLU."""
    lh, lw, rh, rw = height + 2 * b_left, width + 2 * b_left, height + 2 * b_right, width + 2 * b_right
    ph, pw = height + 2 * b_out, width + 2 * b_out
    act = _activation(relu)

    @T.prim_func(s_tir=True, private=True)
    def total(
        X: T.Buffer((blocks, lh, lw, c), "float32"),
        Y: T.Buffer((blocks, rh, rw, c), "float32"),
        O: T.Buffer((blocks, ph, pw, c), "float32"),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(blocks * ph):
            with T.sblock("row"):
                r = T.axis.spatial(blocks * ph, task)
                T.reads(X[0:blocks, 0:lh, 0:lw, 0:c], Y[0:blocks, 0:rh, 0:rw, 0:c])
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
                            O[r // ph, r % ph, x + b_out, v] = act(
                                X[r // ph, r % ph - b_out + b_left, x + b_left, v]
                                + Y[r // ph, r % ph - b_out + b_right, x + b_right, v]
                            )

    return total


def copy(
    blocks: int, c: int, height: int, width: int, b_in: int, b_out: int, total: int, first: int, relu: bool
) -> Any:
    """Return copy(X, O): into blocks `first` onwards of a tensor with another border; with `relu`, rectified."""
    ih, iw, ph, pw = height + 2 * b_in, width + 2 * b_in, height + 2 * b_out, width + 2 * b_out
    act = _activation(relu)

    @T.prim_func(s_tir=True, private=True)
    def copied(X: T.Buffer((blocks, ih, iw, c), "float32"), O: T.Buffer((total, ph, pw, c), "float32")):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(blocks * ph):
            with T.sblock("row"):
                r = T.axis.spatial(blocks * ph, task)
                T.reads(X[0:blocks, 0:ih, 0:iw, 0:c])
                T.writes(O[0:total, 0:ph, 0:pw, 0:c])
                if r % ph < b_out or r % ph >= ph - b_out:
                    for x in range(pw):
                        for v in T.vectorized(c):
                            O[first + r // ph, r % ph, x, v] = T.float32(0)
                else:
                    for e in range(b_out):
                        for v in T.vectorized(c):
                            O[first + r // ph, r % ph, e, v] = T.float32(0)
                        for v in T.vectorized(c):
                            O[first + r // ph, r % ph, pw - 1 - e, v] = T.float32(0)
                    for x in range(width):
                        for v in T.vectorized(c):
                            O[first + r // ph, r % ph, x + b_out, v] = act(
                                X[r // ph, r % ph - b_out + b_in, x + b_in, v]
                            )

    return copied


def pack(channels: int, ci: int, height: int, width: int, b_out: int) -> Any:
    """Return pack(X[1, C, H, W], O): into blocks of ci channels with a border; missing channels are zero."""
    blocks, ph, pw = -(-channels // ci), height + 2 * b_out, width + 2 * b_out

    @T.prim_func(s_tir=True, private=True)
    def packed(X: T.Buffer((1, channels, height, width), "float32"), O: T.Buffer((blocks, ph, pw, ci), "float32")):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(blocks * ph):
            with T.sblock("row"):
                r = T.axis.spatial(blocks * ph, task)
                T.reads(X[0, 0:channels, 0:height, 0:width])
                T.writes(O[0:blocks, 0:ph, 0:pw, 0:ci])
                for x, k in T.grid(pw, ci):
                    O[r // ph, r % ph, x, k] = T.if_then_else(
                        r % ph >= b_out
                        and r % ph < height + b_out
                        and x >= b_out
                        and x < width + b_out
                        and r // ph * ci + k < channels,
                        X[0, r // ph * ci + k, r % ph - b_out, x - b_out],
                        T.float32(0),
                    )

    return packed


def unpack(blocks: int, c: int, channels: int, offset: int, height: int, width: int, b_in: int) -> Any:
    """Return unpack(X, O[1, channels, H, W]): channels `offset` onwards of a blocked tensor as plain NCHW."""
    ih, iw = height + 2 * b_in, width + 2 * b_in

    @T.prim_func(s_tir=True, private=True)
    def unpacked(X: T.Buffer((blocks, ih, iw, c), "float32"), O: T.Buffer((1, channels, height, width), "float32")):
        T.func_attr(_NO_ALIAS)
        for y in T.parallel(height):
            with T.sblock("row"):
                r = T.axis.spatial(height, y)
                T.reads(X[0:blocks, 0:ih, 0:iw, 0:c])
                T.writes(O[0, 0:channels, 0:height, 0:width])
                for k, x in T.grid(channels, width):
                    O[0, k, r, x] = X[(k + offset) // c, r + b_in, x + b_in, (k + offset) % c]

    return unpacked
