# mypy: ignore-errors
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""Plain TIR for the two layers without a Relax operator: their definition, lowered by targets without a rule."""

from __future__ import annotations

from typing import Any

from socsched.compiler.environment import T


def pillar_sums(slots: int, dtype: str = "float32") -> Any:
    """Return sums(voxels[P, slots, 4], counts[P]) -> fp32 [P, 3]: x, y, z summed over the filled slots."""

    @T.prim_func(s_tir=True, private=True)
    def sums(voxels: T.handle, counts: T.handle, totals: T.handle):
        T.func_attr({"tirx.noalias": True, "socsched.kind": "pillar_sums"})
        P = T.int64()
        V = T.match_buffer(voxels, (P, slots, 4), dtype)
        N = T.match_buffer(counts, (P,), "int32")
        S = T.match_buffer(totals, (P, 3), "float32")
        for p, k, s in T.grid(P, 3, slots):
            with T.sblock("sums"):
                vp, vk, vs = T.axis.remap("SSR", [p, k, s])
                with T.init():
                    S[vp, vk] = T.float32(0)
                S[vp, vk] = S[vp, vk] + T.if_then_else(vs < N[vp], T.Cast("float32", V[vp, vs, vk]), T.float32(0))

    return sums


def pillar_features(slots: int, pillar: float, origin_x: float, origin_y: float, dtype: str = "float32") -> Any:
    """Return decorate(voxels[P, slots, 4], counts[P], coords[P, 2], sums[P, 3]) -> [P, slots, 9].

    Pillar centres are (x + 0.5) * pillar + origin in m; slots at and beyond counts are zero.
    """
    half_x, half_y = origin_x + pillar / 2, origin_y + pillar / 2

    @T.prim_func(s_tir=True, private=True)
    def decorate(voxels: T.handle, counts: T.handle, coords: T.handle, sums: T.handle, features: T.handle):
        T.func_attr({"tirx.noalias": True, "socsched.kind": "pillar_features"})
        P = T.int64()
        V = T.match_buffer(voxels, (P, slots, 4), dtype)
        N = T.match_buffer(counts, (P,), "int32")
        XY = T.match_buffer(coords, (P, 2), "int32")
        S = T.match_buffer(sums, (P, 3), "float32")
        F = T.match_buffer(features, (P, slots, 9), dtype)
        for p, s, k in T.grid(P, slots, 9):
            with T.sblock("decorate"):
                vp, vs, vk = T.axis.remap("SSS", [p, s, k])
                T.reads(V[vp, vs, 0:4], N[vp], XY[vp, 0:2], S[vp, 0:3])
                T.writes(F[vp, vs, vk])
                # Column 4..6 is coordinate k - 4 less the mean, column 7..8 coordinate k - 7 less the pillar centre.
                F[vp, vs, vk] = T.if_then_else(
                    vs >= N[vp],
                    T.Cast(dtype, T.float32(0)),
                    T.if_then_else(
                        vk < 4,
                        V[vp, vs, T.min(vk, 3)],
                        T.Cast(
                            dtype,
                            T.if_then_else(
                                vk < 7,
                                T.Cast("float32", V[vp, vs, T.min(T.max(vk - 4, 0), 2)])
                                - S[vp, T.min(T.max(vk - 4, 0), 2)] / T.Cast("float32", T.max(N[vp], 1)),
                                T.Cast("float32", V[vp, vs, T.min(T.max(vk - 7, 0), 1)])
                                - T.Cast("float32", XY[vp, T.min(T.max(vk - 7, 0), 1)]) * T.float32(pillar)
                                - T.if_then_else(vk < 8, T.float32(half_x), T.float32(half_y)),
                            ),
                        ),
                    ),
                )

    return decorate


def scatter(channels: int, ny: int, nx: int, dtype: str = "float32") -> Any:
    """Return scatter(features[P, channels], coords[P, 2]) -> [1, channels, ny, nx], zero where no pillar lies."""

    @T.prim_func(s_tir=True, private=True)
    def place(features: T.handle, coords: T.handle, canvas: T.handle):
        T.func_attr({"tirx.noalias": True, "socsched.kind": "scatter"})
        P = T.int64()
        F = T.match_buffer(features, (P, channels), dtype)
        XY = T.match_buffer(coords, (P, 2), "int32")
        C = T.match_buffer(canvas, (1, channels, ny, nx), dtype)
        for n, c, y, x in T.grid(1, channels, ny, nx):
            with T.sblock("zero"):
                vn, vc, vy, vx = T.axis.remap("SSSS", [n, c, y, x])
                C[vn, vc, vy, vx] = T.Cast(dtype, T.float32(0))
        for p, c in T.grid(P, channels):
            with T.sblock("place"):
                vp, vc = T.axis.remap("SS", [p, c])
                T.reads(XY[vp, 0:2], F[vp, vc])
                T.writes(C[0, vc, 0:ny, 0:nx])
                if XY[vp, 0] >= 0 and XY[vp, 0] < nx and XY[vp, 1] >= 0 and XY[vp, 1] < ny:
                    C[0, vc, XY[vp, 1], XY[vp, 0]] = F[vp, vc]

    return place
