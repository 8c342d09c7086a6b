# mypy: ignore-errors
# ruff: noqa: E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""3x3 convolution of stride 1 by Winograd's minimal filtering F(4x4, 3x3), on channel-blocked activations.

A 4x4 tile of the output takes 36 multiplications an input channel instead of 144: the input patch (6x6) and the weights
are transformed, multiplied position by position (36 small matrix products), and the products transformed back.  Lavin,
Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016, section 4.3.  The transforms' constants cost some
accuracy: about 5e-6 of the largest output in fp32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from socsched.compile.cpu.activation import Activation, finish
from socsched.compile.cpu.conv_kernels import residual_shape
from socsched.compile.cpu.kernels import _NO_ALIAS
from socsched.compile.cpu.shapes import Lying
from socsched.compile.cpu.vector import Vector
from socsched.compile.environment import T

OUT, PATCH = 4, 6
_HEAVY = 4 << 20  # bytes of transformed weights
_G = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], np.float64) / 24


def transformed(weight: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return G g G^T of weights [O, I, 3, 3] as fp32 [O, I, 6, 6]."""
    g = np.asarray(weight, np.float64)
    return np.einsum("ia,ocab,jb->ocij", _G, g, _G).astype(np.float32)


def tiles(height: int, width: int) -> int:
    """Return how many 4x4 tiles an output of `height` x `width` has."""
    return -(-height // OUT) * -(-width // OUT)


def group(count: int, channels: tuple[int, int], vector: Vector) -> tuple[int, int]:
    """Return (tiles a task transforms together, tiles whose products are held in registers) for `count` tiles.

    A task reads all transformed weights once, so it should take many tiles; but its transformed tiles should stay in
    the second-level cache, and there should be several tasks a thread.  Where the weights exceed that cache by far,
    they decide: a fourth of the image together.
    """
    held = max(vector.registers * 7 // 16 // vector.per_block, 2)
    groups = max(min(count // (held * 16), 3), 1)
    if 36 * 4 * channels[0] * channels[1] > _HEAVY:
        groups = max(min(-(-count // (held * 4)), 8), 1)
    return held * groups, held


def conv2d_winograd(
    source: Lying, target: Lying, activation: Activation, residual: int, together: int, held: int
) -> Any:
    """Return conv(X, U[blocks, 36, in_blocks, ci, c], bias[blocks, c], Z, O) for kernel 3x3, stride 1, padding 1.

    The source's border is at least 1; `together` tiles a task, `held` in registers; Z is R of `conv_kernels`.
    """
    in_blocks, ci, blocks, c = source.blocks, source.block, target.blocks, target.block
    height, width, b_out, first = target.height, target.width, target.border, target.first
    across = -(-width // 4)
    count = -(-height // 4) * across
    tasks, parts = -(-count // together), together // held
    _, ih, iw, _ = source.shape
    total, ph, pw, _ = target.shape
    lead, end = source.border - 1, count - 1
    rb, rn, rh, rw, _ = residual, *residual_shape(target, residual)
    rc = c if residual >= 0 else 1
    done = finish(activation, residual >= 0)

    @T.prim_func(s_tir=True, private=True)
    def conv_winograd(
        X: T.Buffer((in_blocks, ih, iw, ci), "float32"),
        U: T.Buffer((blocks, 36, in_blocks, ci, c), "float32"),
        B: T.Buffer((blocks, c), "float32"),
        Z: T.Buffer((rn, rh, rw, rc), "float32"),
        O: T.Buffer((total, ph, pw, c), "float32"),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(tasks):
            with T.sblock("group"):
                g = T.axis.spatial(tasks, task)
                T.reads(
                    X[0:in_blocks, 0:ih, 0:iw, 0:ci],
                    U[0:blocks, 0:36, 0:in_blocks, 0:ci, 0:c],
                    B[0:blocks, 0:c],
                    Z[0:rn, 0:rh, 0:rw, 0:rc],
                )
                T.writes(O[0:total, 0:ph, 0:pw, 0:c])
                V = T.sblock_alloc_buffer((36, in_blocks, together, ci), "float32")
                M = T.sblock_alloc_buffer((36, together, c), "float32")
                for ic, n in T.grid(in_blocks, together):
                    with T.sblock("input"):
                        vi, vn = T.axis.remap("SS", [ic, n])
                        T.reads(X[vi, 0:ih, 0:iw, 0:ci])
                        T.writes(V[0:36, vi, vn, 0:ci])
                        D = T.sblock_alloc_buffer((6, 6, ci), "float32")
                        W = T.sblock_alloc_buffer((6, 6, ci), "float32")
                        for y, x in T.grid(6, 6):
                            for v in T.vectorized(ci):
                                D[y, x, v] = T.if_then_else(
                                    T.And(
                                        T.min(g * together + vn, end) // across * 4 + y + lead < ih,
                                        T.min(g * together + vn, end) % across * 4 + x + lead < iw,
                                    ),
                                    X[
                                        vi,
                                        T.min(g * together + vn, end) // across * 4 + y + lead,
                                        T.min(g * together + vn, end) % across * 4 + x + lead,
                                        v,
                                    ],
                                    T.float32(0),
                                )
                        for x in T.unroll(6):
                            for v in T.vectorized(ci):
                                W[0, x, v] = D[0, x, v] * 4.0 - D[2, x, v] * 5.0 + D[4, x, v]
                            for v in T.vectorized(ci):
                                W[1, x, v] = (D[4, x, v] + D[3, x, v]) - (D[1, x, v] + D[2, x, v]) * 4.0
                            for v in T.vectorized(ci):
                                W[2, x, v] = (D[4, x, v] - D[3, x, v]) + (D[1, x, v] - D[2, x, v]) * 4.0
                            for v in T.vectorized(ci):
                                W[3, x, v] = (D[4, x, v] - D[2, x, v]) + (D[3, x, v] - D[1, x, v]) * 2.0
                            for v in T.vectorized(ci):
                                W[4, x, v] = (D[4, x, v] - D[2, x, v]) - (D[3, x, v] - D[1, x, v]) * 2.0
                            for v in T.vectorized(ci):
                                W[5, x, v] = D[1, x, v] * 4.0 - D[3, x, v] * 5.0 + D[5, x, v]
                        for y in T.unroll(6):
                            for v in T.vectorized(ci):
                                V[y * 6 + 0, vi, vn, v] = W[y, 0, v] * 4.0 - W[y, 2, v] * 5.0 + W[y, 4, v]
                            for v in T.vectorized(ci):
                                V[y * 6 + 1, vi, vn, v] = (W[y, 4, v] + W[y, 3, v]) - (W[y, 1, v] + W[y, 2, v]) * 4.0
                            for v in T.vectorized(ci):
                                V[y * 6 + 2, vi, vn, v] = (W[y, 4, v] - W[y, 3, v]) + (W[y, 1, v] - W[y, 2, v]) * 4.0
                            for v in T.vectorized(ci):
                                V[y * 6 + 3, vi, vn, v] = (W[y, 4, v] - W[y, 2, v]) + (W[y, 3, v] - W[y, 1, v]) * 2.0
                            for v in T.vectorized(ci):
                                V[y * 6 + 4, vi, vn, v] = (W[y, 4, v] - W[y, 2, v]) - (W[y, 3, v] - W[y, 1, v]) * 2.0
                            for v in T.vectorized(ci):
                                V[y * 6 + 5, vi, vn, v] = W[y, 1, v] * 4.0 - W[y, 3, v] * 5.0 + W[y, 5, v]
                for o in range(blocks):
                    for p, part in T.grid(36, parts):
                        with T.sblock("product"):
                            vo, vp, vq = T.axis.remap("SSS", [o, p, part])
                            T.reads(V[vp, 0:in_blocks, 0:together, 0:ci], U[vo, vp, 0:in_blocks, 0:ci, 0:c])
                            T.writes(M[vp, 0:together, 0:c])
                            acc = T.sblock_alloc_buffer((held, c), "float32")
                            for t in T.unroll(held):
                                for v in T.vectorized(c):
                                    acc[t, v] = T.float32(0)
                            for ic, k in T.grid(in_blocks, ci):
                                for t in T.unroll(held):
                                    for v in T.vectorized(c):
                                        acc[t, v] = acc[t, v] + V[vp, ic, vq * held + t, k] * U[vo, vp, ic, k, v]
                            for t in T.unroll(held):
                                for v in T.vectorized(c):
                                    M[vp, vq * held + t, v] = acc[t, v]
                    for n in range(together):
                        with T.sblock("output"):
                            vo, vn = T.axis.remap("SS", [o, n])
                            T.reads(M[0:36, vn, 0:c], B[vo, 0:c], Z[0:rn, 0:rh, 0:rw, 0:rc])
                            T.writes(O[0:total, 0:ph, 0:pw, 0:c])
                            R = T.sblock_alloc_buffer((4, 6, c), "float32")
                            S = T.sblock_alloc_buffer((4, 4, c), "float32")
                            for x in T.unroll(6):
                                for v in T.vectorized(c):
                                    R[0, x, v] = (
                                        M[x, vn, v]
                                        + (M[6 + x, vn, v] + M[12 + x, vn, v])
                                        + (M[18 + x, vn, v] + M[24 + x, vn, v])
                                    )
                                for v in T.vectorized(c):
                                    R[1, x, v] = (M[6 + x, vn, v] - M[12 + x, vn, v]) + (
                                        M[18 + x, vn, v] - M[24 + x, vn, v]
                                    ) * 2.0
                                for v in T.vectorized(c):
                                    R[2, x, v] = (M[6 + x, vn, v] + M[12 + x, vn, v]) + (
                                        M[18 + x, vn, v] + M[24 + x, vn, v]
                                    ) * 4.0
                                for v in T.vectorized(c):
                                    R[3, x, v] = (
                                        (M[6 + x, vn, v] - M[12 + x, vn, v])
                                        + (M[18 + x, vn, v] - M[24 + x, vn, v]) * 8.0
                                        + M[30 + x, vn, v]
                                    )
                            for y in T.unroll(4):
                                for v in T.vectorized(c):
                                    S[y, 0, v] = R[y, 0, v] + (R[y, 1, v] + R[y, 2, v]) + (R[y, 3, v] + R[y, 4, v])
                                for v in T.vectorized(c):
                                    S[y, 1, v] = (R[y, 1, v] - R[y, 2, v]) + (R[y, 3, v] - R[y, 4, v]) * 2.0
                                for v in T.vectorized(c):
                                    S[y, 2, v] = (R[y, 1, v] + R[y, 2, v]) + (R[y, 3, v] + R[y, 4, v]) * 4.0
                                for v in T.vectorized(c):
                                    S[y, 3, v] = (
                                        (R[y, 1, v] - R[y, 2, v]) + (R[y, 3, v] - R[y, 4, v]) * 8.0 + R[y, 5, v]
                                    )
                            for y, x in T.grid(4, 4):
                                if T.And(
                                    T.And(
                                        T.min(g * together + vn, end) // across * 4 + y < height,
                                        T.min(g * together + vn, end) % across * 4 + x < width,
                                    ),
                                    g * together + vn < count,
                                ):
                                    for v in T.vectorized(c):
                                        O[
                                            first + vo,
                                            T.min(g * together + vn, end) // across * 4 + y + b_out,
                                            T.min(g * together + vn, end) % across * 4 + x + b_out,
                                            v,
                                        ] = done(
                                            S[y, x, v] + B[vo, v],
                                            Z,
                                            vo,
                                            T.min(g * together + vn, end) // across * 4 + y + rb,
                                            T.min(g * together + vn, end) % across * 4 + x + rb,
                                            v,
                                        )
                for o in range(blocks):
                    if o % tasks == g:
                        for e, x in T.grid(b_out, pw):
                            for v in T.vectorized(c):
                                O[first + o, e, x, v] = T.float32(0)
                            for v in T.vectorized(c):
                                O[first + o, ph - 1 - e, x, v] = T.float32(0)
                        for y, e in T.grid(height, b_out):
                            for v in T.vectorized(c):
                                O[first + o, y + b_out, e, v] = T.float32(0)
                            for v in T.vectorized(c):
                                O[first + o, y + b_out, pw - 1 - e, v] = T.float32(0)

    return conv_winograd
