# mypy: ignore-errors
# ruff: noqa: E741, B023
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""3x3 convolution of stride 1 by Winograd's minimal filtering F(m x m, 3x3), on channel-blocked activations.

A tile of m x m outputs takes (m + 2)^2 multiplications per input channel instead of 9 m^2: 4 times fewer for m = 4 and
2.25 times for m = 2.  The input patch and the weights are transformed, multiplied position by position (small matrix
products), and the products are transformed back.  Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks",
CVPR 2016, sections 4.1 and 4.3.  The transforms' constants cost some accuracy: about 5e-6 of the largest output in
fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from socsched.compiler.environment import T
from socsched.compiler.targets.llvm.conv_kernels import residual_shape
from socsched.compiler.targets.llvm.fuse import Activation, finish
from socsched.compiler.targets.llvm.half import TERMS
from socsched.compiler.targets.llvm.half import runs as partial_sums
from socsched.compiler.targets.llvm.kernels import (
    _NO_ALIAS,
    add_lanes,
    add_products,
    blank_ends,
    blank_sides,
    over_tile,
    whole,
    wide,
    zero,
)
from socsched.compiler.targets.llvm.vector import LANED, Lying, Vector

FEWEST_TILES = 32  # below, transforming and reading more weights costs more than it saves
_MANY = 256  # number of tiles from which a task takes two groups
_G = {
    2: np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], np.float64) / 2,
    4: np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], np.float64) / 24,
}


def transform_weight(weight: np.ndarray[Any, Any], m: int) -> np.ndarray[Any, Any]:
    """Return G g G^T of weights [O, I, 3, 3] as fp32 [O, I, m + 2, m + 2]."""
    g = np.asarray(weight, np.float64)
    both = g.reshape(-1, 9) @ np.kron(_G[m], _G[m]).T  # one product, twenty times as fast as a sum over four axes
    return both.astype(np.float32).reshape(*g.shape[:2], m + 2, m + 2)


def tiles(height: int, width: int, m: int) -> int:
    """Return the number of m x m tiles in an output of `height` x `width`."""
    return -(-height // m) * -(-width // m)


def best(height: int, width: int) -> int:
    """Return the best m for an image, 0 if none pays off: the larger m saves more, given enough tiles."""
    return next((m for m in (4, 2) if tiles(height, width, m) >= FEWEST_TILES), 0)


@dataclass(frozen=True, slots=True)
class Division:
    """F(m x m, 3x3): `together` tiles are transformed by a task, `held` of them in registers for `pair` output blocks.

    U and the transformed input are of type `products`, of which in half precision at most `most` are summed before they
    are added to fp32 totals (`half`).
    """

    m: int
    together: int
    held: int
    pair: int
    products: str = "float32"
    most: int = TERMS


def group(count: int, blocks: int, vector: Vector) -> tuple[int, int, int]:
    """Return `together`, `held` and `pair` of a `Division` of `count` tiles and of output `blocks`.

    A few tiles stay in the first cache levels while the weights are streamed, which the hardware prefetches; this beats
    transforming many tiles to read the weights less often.  As many tiles are held as pixels of a convolution
    (`vector.tile`), for two of the output `blocks` at once if their number is even and a register holds a block.
    """
    pair = 2 if vector.per_block == 1 and not vector.by_element and blocks % 2 == 0 else 1
    if vector.by_element and vector.per_block == 1:  # same as pixels and blocks of a convolution's tile
        return LANED * (2 if count >= _MANY else 1), LANED, 2 if blocks % 2 == 0 else 1
    held = max(vector.registers * 7 // 16 // vector.per_block, 2)
    if pair == 2:
        held = 7 if vector.registers > 16 else 5
    return held * (2 if count >= _MANY else 1), held, pair


def _patch_row(m: int, i: int, x: Any) -> Any:
    """Return row i of B^T times the column x(0), x(1), ..."""
    if m == 2:
        return (x(0) - x(2), x(1) + x(2), x(2) - x(1), x(1) - x(3))[i]
    if i in (0, 5):
        return x(i and 1) * 4.0 - x(2 + (i and 1)) * 5.0 + x(4 + (i and 1))
    sign = 1.0 if i % 2 else -1.0
    if i < 3:
        return (x(4) + x(3) * sign) - (x(2) + x(1) * sign) * 4.0
    return (x(4) - x(2)) + (x(3) - x(1)) * (2.0 * sign)


def _output_row(m: int, i: int, x: Any) -> Any:
    """Return row i of A^T times the column x(0), x(1), ..."""
    if m == 2:
        return (x(0) + x(1) + x(2), x(1) - x(2) - x(3))[i]
    near, far = (x(1) - x(2), x(3) - x(4)) if i % 2 else (x(1) + x(2), x(3) + x(4))
    total = near + far * float(2**i)
    return x(0) + total if i == 0 else total + x(5) if i == 3 else total


def _input(m: int, ci: int, products: str) -> Any:
    """Return transform(X, V, (top, left), (block, tile)): V = B^T d B of the patch of X from (top, left) on."""
    q = m + 2

    @T.macro
    def columns(D, W, i):
        for x in T.unroll(q):
            for v in T.vectorized(ci):
                W[i, x, v] = _patch_row(m, i, lambda j: D[j, x, v])

    @T.macro
    def rows(W, V, i, at):
        for y in T.unroll(q):
            for v in T.vectorized(ci):
                V[y * q + i, at[0], at[1], v] = _patch_row(m, i, lambda j: W[y, j, v])

    @T.macro
    def transform(X, V, corner, at):
        D = T.sblock_alloc_buffer((q, q, ci), products)
        W = T.sblock_alloc_buffer((q, q, ci), products)
        top: T.let[T.int32] = corner[0]
        left: T.let[T.int32] = corner[1]
        for y, x in T.grid(q, q):
            for v in T.vectorized(ci):
                D[y, x, v] = T.if_then_else(
                    T.And(top + y < X.shape[1], left + x < X.shape[2]), X[at[0], top + y, left + x, v], zero(X)
                ).astype(products)
        columns(D, W, 0)
        columns(D, W, 1)
        columns(D, W, 2)
        columns(D, W, 3)
        if m > 2:
            columns(D, W, 4)
            columns(D, W, 5)
        rows(W, V, 0, at)
        rows(W, V, 1, at)
        rows(W, V, 2, at)
        rows(W, V, 3, at)
        if m > 2:
            rows(W, V, 4, at)
            rows(W, V, 5, at)

    return transform


def _products(d: Division, in_blocks: int, ci: int, c: int) -> Any:
    """Return multiply(V, U, M, (group of output blocks, position, part)): the products of `held` tiles."""
    tile, held, pair, products = (d.pair, d.held, c), d.held, d.pair, d.products
    runs, each = (1, in_blocks) if products == "float32" else partial_sums(in_blocks, ci, d.most)

    def total_of(run: Any, before: Any, value: Any) -> Any:
        return value if runs == 1 else T.Select(run == 0, T.float32(0), before) + value

    def pixels(V: Any, at: Any, ic: Any) -> Any:
        return lambda t, k: V[at[1], ic, at[2] * held + t, k]

    def weights(U: Any, at: Any, ic: Any) -> Any:
        return lambda h, k, v: U[at[0] * pair + h, at[1], ic, k, v]

    @T.macro
    def multiply(V, U, M, at):
        acc = T.sblock_alloc_buffer(tile, products)
        if products != "float32":
            near = T.sblock_alloc_buffer((held, ci), products)
        for run in range(runs):
            over_tile(acc, tile, lambda h, t, v: zero(U))
            for step in range(T.min(each, in_blocks - run * each)):
                if products == "float32":
                    add_products(*(acc, tile, ci, pixels(V, at, run * each + step)), weights(U, at, run * each + step))
                else:
                    add_lanes(
                        *(acc, near, tile, ci, pixels(V, at, run * each + step)), weights(U, at, run * each + step)
                    )
            for h in T.unroll(pair):
                for t in T.unroll(held):
                    for v in T.vectorized(c):
                        M[h, at[1], at[2] * held + t, v] = total_of(
                            run, M[h, at[1], at[2] * held + t, v], wide(acc[h, t, v])
                        )

    return multiply


def _output(m: int, c: int) -> Any:
    """Return transform(M, S, (block of the group, tile)): S = A^T M A."""
    q = m + 2

    @T.macro
    def columns(M, H, i, at):
        for x in T.unroll(q):
            for v in T.vectorized(c):
                H[i, x, v] = _output_row(m, i, lambda j: M[at[0], j * q + x, at[1], v])

    @T.macro
    def rows(H, S, i):
        for y in T.unroll(m):
            for v in T.vectorized(c):
                S[y, i, v] = _output_row(m, i, lambda j: H[y, j, v])

    @T.macro
    def transform(M, H, S, at):
        columns(M, H, 0, at)
        columns(M, H, 1, at)
        if m > 2:
            columns(M, H, 2, at)
            columns(M, H, 3, at)
        rows(H, S, 0)
        rows(H, S, 1)
        if m > 2:
            rows(H, S, 2)
            rows(H, S, 3)

    return transform


def conv2d_winograd(source: Lying, target: Lying, activation: Activation, residual: int, division: Division) -> Any:
    """Return conv(X, U[blocks, (m + 2)^2, in_blocks, ci, c], bias[blocks, c], Z, O) for 3x3, stride 1, padding 1.

    The source's border is at least 1; Z corresponds to R in `conv_kernels`.  The output is transformed in fp32.
    """
    dtype, products, m, together, pair = (
        source.dtype,
        *(division.products, division.m, division.together, division.pair),
    )
    in_blocks, ci, blocks, c = source.blocks, source.block, target.blocks, target.block
    height, width, b_out, first = target.height, target.width, target.border, target.first
    q, across = m + 2, -(-width // m)
    positions, count = q * q, -(-height // m) * across
    tasks, parts = -(-count // together), together // division.held
    (_, ih, iw, _), (total, ph, pw, _) = source.shape, target.shape
    lead, end = source.border - 1, count - 1
    rb, (rn, rh, rw, rc), done = residual, residual_shape(target, residual), finish(activation, residual >= 0)
    transform, multiply = _input(m, ci, products), _products(division, in_blocks, ci, c)
    back = _output(m, c)

    def corner(g: Any, n: Any, lead: int) -> tuple[Any, Any]:
        at = T.min(g * together + n, end)
        return at // across * m + lead, at % across * m + lead

    @T.prim_func(s_tir=True, private=True)
    def conv_winograd(
        X: T.Buffer((in_blocks, ih, iw, ci), dtype),
        U: T.Buffer((blocks, positions, in_blocks, ci, c), products),
        B: T.Buffer((blocks, c), "float32"),
        Z: T.Buffer((rn, rh, rw, rc), dtype),
        O: T.Buffer((total, ph, pw, c), dtype),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(tasks):
            with T.sblock("group"):
                g = T.axis.spatial(tasks, task)
                T.reads(*whole(X, U, B, Z))
                T.writes(*whole(O))
                V = T.sblock_alloc_buffer((positions, in_blocks, together, ci), products)
                M = T.sblock_alloc_buffer((pair, positions, together, c), "float32")
                for ic, n in T.grid(in_blocks, together):
                    with T.sblock("input"):
                        vi, vn = T.axis.remap("SS", [ic, n])
                        T.reads(X[vi, 0:ih, 0:iw, 0:ci])
                        T.writes(V[0:positions, vi, vn, 0:ci])
                        transform(X, V, corner(g, vn, lead), (vi, vn))
                for o in range(blocks // pair):
                    for p, part in T.grid(positions, parts):
                        with T.sblock("product"):
                            vo, vp, vq = T.axis.remap("SSS", [o, p, part])
                            T.reads(V[vp, 0:in_blocks, 0:together, 0:ci], U[0:blocks, vp, 0:in_blocks, 0:ci, 0:c])
                            T.writes(M[0:pair, vp, 0:together, 0:c])
                            multiply(V, U, M, (vo, vp, vq))
                    for h, n in T.grid(pair, together):
                        with T.sblock("output"):
                            vw, vh, vn = T.axis.remap("SSS", [o, h, n])
                            vo: T.let[T.int32] = vw * pair + vh
                            T.reads(M[vh, 0:positions, vn, 0:c], B[0:blocks, 0:c], Z[0:rn, 0:rh, 0:rw, 0:rc])
                            T.writes(O[0:total, 0:ph, 0:pw, 0:c])
                            H = T.sblock_alloc_buffer((m, q, c), "float32")
                            S = T.sblock_alloc_buffer((m, m, c), "float32")
                            top: T.let[T.int32] = corner(g, vn, 0)[0]
                            left: T.let[T.int32] = corner(g, vn, 0)[1]
                            back(M, H, S, (vh, vn))
                            for y, x in T.grid(m, m):
                                if T.And(T.And(top + y < height, left + x < width), g * together + vn < count):
                                    for v in T.vectorized(c):
                                        O[first + vo, top + y + b_out, left + x + b_out, v] = done(
                                            S[y, x, v] + B[vo, v], Z, vo, top + y + rb, left + x + rb, v
                                        ).astype(dtype)
                for o in range(blocks):
                    if o % tasks == g:
                        blank_ends(O, first + o, ph, pw, b_out, c)
                        for y in range(height):
                            blank_sides(O, first + o, y + b_out, pw, b_out, c, zero(O))

    return conv_winograd
