# mypy: ignore-errors
# ruff: noqa: E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""CPU kernels of the Pillar Feature Net and the scatter, for any number of pillars."""

from __future__ import annotations

from typing import Any

from socsched.compiler.environment import T
from socsched.compiler.targets.llvm.conv_kernels import fetch
from socsched.compiler.targets.llvm.kernels import _NO_ALIAS, zero
from socsched.compiler.targets.llvm.shapes import Lying

_AHEAD = 12
"""Prefetch distance in pillars: each takes some hundred cycles, enough to hide a memory access."""
_LINE = 64


def pillar_net(
    slots: int, channels: int, lanes: int, pillar: float, origin_x: float, origin_y: float, dtype: str
) -> Any:
    """Return pfn(voxels, counts, coords, weight[9, channels], bias, features): the whole PFN in one pass over pillars.

    Empty slots are zero after decoration and contribute relu(bias), so only the filled ones are computed: the work is
    proportional to the points in a pillar, not to its capacity.  `channels` is a multiple of `lanes`.  Pillars are
    `slots` points apart in memory, most of them unused, so the hardware prefetcher cannot predict the lines read: they
    are prefetched explicitly, and the time depends little on the state of the caches.
    """
    groups = channels // lanes
    row = max(_LINE // (16 if dtype == "float32" else 8), 1)
    half_x, half_y = origin_x + pillar / 2, origin_y + pillar / 2

    @T.prim_func(s_tir=True, private=True)
    def pfn(
        voxels: T.handle,
        counts: T.handle,
        coords: T.handle,
        K: T.Buffer((9, channels), dtype),
        B: T.Buffer((channels,), dtype),
        features: T.handle,
    ):
        T.func_attr(_NO_ALIAS)
        P = T.int64()
        V = T.match_buffer(voxels, (P, slots, 4), dtype)
        N = T.match_buffer(counts, (P,), "int32")
        XY = T.match_buffer(coords, (P, 2), "int32")
        F = T.match_buffer(features, (P, channels), dtype)
        for task in T.parallel(P):
            with T.sblock("pillar"):
                p = T.axis.spatial(P, task)
                T.reads(V[p, 0:slots, 0:4], N[p], XY[p, 0:2], K[0:9, 0:channels], B[0:channels])
                T.writes(F[p, 0:channels])
                mean = T.sblock_alloc_buffer((3,), "float32")
                centre = T.sblock_alloc_buffer((2,), "float32")
                point = T.sblock_alloc_buffer((9,), dtype)
                best = T.sblock_alloc_buffer((groups, lanes), dtype)
                acc = T.sblock_alloc_buffer((groups, lanes), dtype)
                for k in T.unroll(3):
                    mean[k] = T.float32(0)
                for s in range(T.min(N[p], slots)):
                    for k in T.unroll(3):
                        mean[k] = mean[k] + V[p, s, k].astype("float32")
                for k in T.unroll(3):
                    mean[k] = mean[k] / T.Cast("float32", T.max(N[p], 1))
                for s in range((T.min(N[T.min(p + _AHEAD, P - 1)], slots) + row - 1) // row):
                    T.evaluate(fetch(V, T.min(p + _AHEAD, P - 1), s * row, 0))
                centre[0] = T.Cast("float32", XY[p, 0]) * T.float32(pillar) + T.float32(half_x)
                centre[1] = T.Cast("float32", XY[p, 1]) * T.float32(pillar) + T.float32(half_y)
                for g in range(groups):
                    for v in T.vectorized(lanes):
                        best[g, v] = T.if_then_else(N[p] < slots, T.max(B[g * lanes + v], zero(F)), zero(F))
                for s in range(T.min(N[p], slots)):
                    for k in T.unroll(4):
                        point[k] = V[p, s, k]
                    for k in T.unroll(3):
                        point[4 + k] = (V[p, s, k].astype("float32") - mean[k]).astype(dtype)
                    for k in T.unroll(2):
                        point[7 + k] = (V[p, s, k].astype("float32") - centre[k]).astype(dtype)
                    for g in T.unroll(groups):
                        for v in T.vectorized(lanes):
                            acc[g, v] = B[g * lanes + v]
                    for k in T.unroll(9):
                        for g in T.unroll(groups):
                            for v in T.vectorized(lanes):
                                acc[g, v] = acc[g, v] + point[k] * K[k, g * lanes + v]
                    for g in T.unroll(groups):
                        for v in T.vectorized(lanes):
                            best[g, v] = T.max(best[g, v], acc[g, v])
                for g in range(groups):
                    for v in T.vectorized(lanes):
                        F[p, g * lanes + v] = best[g, v]

    return pfn


def scatter(target: Lying) -> Any:
    """Return place(features[P, blocks * c], coords[P, 2], canvas): zero it, then write the pillars inside the grid."""
    blocks, ph, pw, c = target.shape
    ny, nx, border, dtype = target.height, target.width, target.border, target.dtype

    @T.prim_func(s_tir=True, private=True)
    def place(features: T.handle, coords: T.handle, O: T.Buffer((blocks, ph, pw, c), dtype)):
        T.func_attr(_NO_ALIAS)
        P = T.int64()
        F = T.match_buffer(features, (P, blocks * c), dtype)
        XY = T.match_buffer(coords, (P, 2), "int32")
        for task in T.parallel(blocks * ph):
            with T.sblock("zero"):
                r = T.axis.spatial(blocks * ph, task)
                T.reads()
                T.writes(O[r // ph, r % ph, 0:pw, 0:c])
                for x in range(pw):
                    for v in T.vectorized(c):
                        O[r // ph, r % ph, x, v] = zero(O)
        for task in T.parallel(P):
            with T.sblock("place"):
                p = T.axis.spatial(P, task)
                T.reads(F[p, 0 : blocks * c], XY[p, 0:2])
                T.writes(O[0:blocks, 0:ph, 0:pw, 0:c])
                if XY[p, 0] >= 0 and XY[p, 0] < nx and XY[p, 1] >= 0 and XY[p, 1] < ny:
                    for g in range(blocks):
                        for v in T.vectorized(c):
                            O[g, XY[p, 1] + border, XY[p, 0] + border, v] = F[p, g * c + v]

    return place
