# mypy: ignore-errors
# ruff: noqa: E741, SIM102
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""GPU kernels of the Pillar Feature Net and the scatter, for any number of pillars; bound by `kernels.spread`.

Loops over pillars run one iteration past the last, since launching zero threads is an error.
"""

from __future__ import annotations

from typing import Any

from socsched.compiler.environment import T
from socsched.compiler.targets.cuda.shapes import VECTOR

_ATTRIBUTES = {"tirx.noalias": True}


def pillar_net(slots: int, channels: int, pillar: float, origin_x: float, origin_y: float) -> Any:
    """Return pfn(voxels, counts, coords, weight[9, channels], bias, features): one thread per channel of a pillar.

    Voxels and features are fp16, all intermediate values are fp32.  Empty slots are zero after decoration and
    contribute relu(bias), so only the filled ones are computed.
    """
    half_x, half_y = origin_x + pillar / 2, origin_y + pillar / 2

    @T.prim_func(s_tir=True, private=True)
    def pfn(
        voxels: T.handle,
        counts: T.handle,
        coords: T.handle,
        K: T.Buffer((9, channels), "float32"),
        B: T.Buffer((channels,), "float32"),
        features: T.handle,
    ):
        T.func_attr(_ATTRIBUTES)
        P = T.int64()
        V = T.match_buffer(voxels, (P, slots, 4), "float16")
        N = T.match_buffer(counts, (P,), "int32")
        XY = T.match_buffer(coords, (P, 2), "int32")
        F = T.match_buffer(features, (P, channels), "float16")
        for x, y in T.grid(P + 1, channels):
            with T.sblock("pillar"):
                p, c = T.axis.remap("SS", [x, y])
                T.reads(V[p, 0:slots, 0:4], N[p], XY[p, 0:2], K[0:9, c], B[c])
                T.writes(F[p, c])
                mean = T.sblock_alloc_buffer((3,), "float32", scope="local")
                centre = T.sblock_alloc_buffer((2,), "float32", scope="local")
                point = T.sblock_alloc_buffer((4,), "float32", scope="local")
                best = T.sblock_alloc_buffer((1,), "float32", scope="local")
                acc = T.sblock_alloc_buffer((1,), "float32", scope="local")
                if p < P:
                    for k in T.unroll(3):
                        mean[k] = T.float32(0)
                    for s in range(T.min(N[p], slots)):
                        for k in T.unroll(3):
                            mean[k] = mean[k] + T.Cast("float32", V[p, s, k])
                    for k in T.unroll(3):
                        mean[k] = mean[k] / T.Cast("float32", T.max(N[p], 1))
                    centre[0] = T.Cast("float32", XY[p, 0]) * T.float32(pillar) + T.float32(half_x)
                    centre[1] = T.Cast("float32", XY[p, 1]) * T.float32(pillar) + T.float32(half_y)
                    best[0] = T.if_then_else(N[p] < slots, T.max(B[c], T.float32(0)), T.float32(0))
                    for s in range(T.min(N[p], slots)):
                        for k in T.unroll(4):
                            point[k] = T.Cast("float32", V[p, s, k])
                        acc[0] = B[c]
                        for k in T.unroll(4):
                            acc[0] = acc[0] + point[k] * K[k, c]
                        for k in T.unroll(3):
                            acc[0] = acc[0] + (point[k] - mean[k]) * K[4 + k, c]
                        for k in T.unroll(2):
                            acc[0] = acc[0] + (point[k] - centre[k]) * K[7 + k, c]
                        best[0] = T.max(best[0], acc[0])
                    F[p, c] = T.Cast("float16", best[0])

    return pfn


def scatter(channels: int, ny: int, nx: int) -> Any:
    """Return place(features[P, channels], coords[P, 2], canvas): zero it, then write the pillars inside the grid."""
    groups = channels // VECTOR

    @T.prim_func(s_tir=True, private=True)
    def place(features: T.handle, coords: T.handle, O: T.Buffer((ny * nx, channels), "float16")):
        T.func_attr(_ATTRIBUTES)
        P = T.int64()
        F = T.match_buffer(features, (P, channels), "float16")
        XY = T.match_buffer(coords, (P, 2), "int32")
        for x, y, z in T.grid(ny * nx, groups, VECTOR):
            with T.sblock("zero"):
                i, g, v = T.axis.remap("SSS", [x, y, z])
                O[i, g * VECTOR + v] = T.float16(0)
        for x, y in T.grid(P + 1, groups):
            with T.sblock("place"):
                p, g = T.axis.remap("SS", [x, y])
                T.reads(F[p, g * VECTOR : g * VECTOR + VECTOR], XY[p, 0:2])
                T.writes(O[0 : ny * nx, g * VECTOR : g * VECTOR + VECTOR])
                if p < P:
                    if XY[p, 0] >= 0 and XY[p, 0] < nx and XY[p, 1] >= 0 and XY[p, 1] < ny:
                        for v in T.vectorized(VECTOR):
                            O[XY[p, 1] * nx + XY[p, 0], g * VECTOR + v] = F[p, g * VECTOR + v]

    return place
