# mypy: ignore-errors
# (The body is TVMScript: parsed by TVM, not run by Python.)
"""The Pillar Feature Net as one OpenCL kernel."""

from __future__ import annotations

from typing import Any

from socsched.compiler.environment import T


def pillar_net(
    slots: int, channels: int, items: int, pillar: float, origin_x: float, origin_y: float, dtype: str
) -> Any:
    """Return pfn(voxels, counts, coords, weight[9, channels], bias, features): one work-item per pillar and channel.

    Work-items of a group read the same points, so decorating them again for every channel costs less than the [P,
    slots, channels] intermediate of the plain form.  Only filled slots are computed; empty ones contribute relu(bias).
    Arithmetic is fp32.  `items` divides `channels`.
    """
    half_x, half_y = origin_x + pillar / 2, origin_y + pillar / 2
    parts = channels // items

    @T.prim_func(s_tir=True, private=True)
    def pfn(
        voxels: T.handle,
        counts: T.handle,
        coords: T.handle,
        K: T.Buffer((9, channels), dtype),
        B: T.Buffer((channels,), dtype),
        features: T.handle,
    ):
        T.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        P = T.int64()
        V = T.match_buffer(voxels, (P, slots, 4), dtype)
        N = T.match_buffer(counts, (P,), "int32")
        XY = T.match_buffer(coords, (P, 2), "int32")
        F = T.match_buffer(features, (P, channels), dtype)
        for group in T.thread_binding(P, thread="blockIdx.x"):
            for part in T.thread_binding(parts, thread="blockIdx.y"):
                for item in T.thread_binding(items, thread="threadIdx.x"):
                    with T.sblock("pillar"):
                        p = T.axis.spatial(P, group)
                        c = T.axis.spatial(channels, part * items + item)
                        T.reads(V[p, 0:slots, 0:4], N[p], XY[p, 0:2], K[0:9, c], B[c])
                        T.writes(F[p, c])
                        mean = T.sblock_alloc_buffer((3,), "float32", scope="local")
                        value = T.sblock_alloc_buffer((2,), "float32", scope="local")
                        for k in T.unroll(3):
                            mean[k] = T.float32(0)
                        for s in range(T.min(N[p], slots)):
                            for k in T.unroll(3):
                                mean[k] = mean[k] + T.Cast("float32", V[p, s, k])
                        for k in T.unroll(3):
                            mean[k] = mean[k] / T.Cast("float32", T.max(N[p], 1))
                        value[0] = T.if_then_else(
                            N[p] < slots, T.max(T.Cast("float32", B[c]), T.float32(0)), T.float32(0)
                        )
                        for s in range(T.min(N[p], slots)):
                            value[1] = T.Cast("float32", B[c])
                            for k in T.unroll(4):
                                value[1] = value[1] + T.Cast("float32", V[p, s, k]) * T.Cast("float32", K[k, c])
                            for k in T.unroll(3):
                                value[1] = value[1] + (T.Cast("float32", V[p, s, k]) - mean[k]) * T.Cast(
                                    "float32", K[4 + k, c]
                                )
                            value[1] = value[1] + (
                                T.Cast("float32", V[p, s, 0])
                                - (T.Cast("float32", XY[p, 0]) * T.float32(pillar) + T.float32(half_x))
                            ) * T.Cast("float32", K[7, c])
                            value[1] = value[1] + (
                                T.Cast("float32", V[p, s, 1])
                                - (T.Cast("float32", XY[p, 1]) * T.float32(pillar) + T.float32(half_y))
                            ) * T.Cast("float32", K[8, c])
                            value[0] = T.max(value[0], value[1])
                        F[p, c] = T.Cast(dtype, value[0])

    return pfn
