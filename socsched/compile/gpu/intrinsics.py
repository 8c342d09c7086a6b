# mypy: ignore-errors
"""Warp-level tensor-core operations as tensor intrinsics of TVM's schedules, fp16 operands and fp32 accumulators.

A 16x16 tile is spread over a warp as PTX lays the fragments of `mma.m16n8k16` out (PTX ISA, "Matrix Fragments for
mma.m16n8k16"): lane 4 (i mod 8) + (j mod 8) / 2 holds element (i, j) in register 4 (j / 8) + 2 (i / 8) + j mod 2.  Two
such instructions make one 16x16x16 product.  TVM ships equivalents, but importing them parses hundreds of others, 20 s.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from socsched.compile.environment import T, s_tir

EDGE, LANES, HELD = 16, 32, 8
"""Side of a tile, lanes of a warp, elements of a tile that each lane holds."""

SHARED = "shared.dyn"
PREFIX = "socsched.m16n16k16."
FILL, LOAD_A, LOAD_B, MULTIPLY, STORE = (PREFIX + name for name in ("fill", "load_a", "load_b", "multiply", "store"))


def fragment(i: Any, j: Any) -> tuple[Any, Any]:
    """Return (lane, register) of element (i, j) of a 16x16 tile."""
    return 4 * (i % 8) + (j % 8) // 2, 4 * (j // 8) + 2 * (i // 8) + j % 2


def element(lane: Any, register: Any) -> tuple[Any, Any]:
    """Return (i, j) of what a lane holds in a register: the inverse of `fragment`."""
    return 8 * (register % 4 // 2) + lane // 4, 8 * (register // 4) + lane % 4 * 2 + register % 2


@cache
def register() -> None:
    """Make the intrinsics known to TVM, once per process (a tenth of a second)."""
    s_tir.TensorIntrin.register(FILL, *_fill(), override=True)
    s_tir.TensorIntrin.register(LOAD_A, *_load(second=False), override=True)
    s_tir.TensorIntrin.register(LOAD_B, *_load(second=True), override=True)
    s_tir.TensorIntrin.register(MULTIPLY, *_multiply(), override=True)
    s_tir.TensorIntrin.register(STORE, *_store(), override=True)


def _fill() -> tuple[Any, Any]:
    @T.prim_func(s_tir=True)
    def meaning(c: T.handle) -> None:
        C = T.match_buffer(c, (LANES, HELD), "float32", scope="warp")
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:LANES, 0:HELD])
            for x, y in T.grid(EDGE, EDGE):
                with T.sblock("element"):
                    i, j = T.axis.remap("SS", [x, y])
                    lane, register = T.meta_var(fragment(i, j))
                    T.reads()
                    T.writes(C[lane, register])
                    C[lane, register] = T.float32(0)

    @T.prim_func(s_tir=True)
    def code(c: T.handle) -> None:
        C = T.match_buffer(c, (LANES, HELD), "float32", scope="warp", offset_factor=1)
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:LANES, 0:HELD])
            for _ in T.thread_binding(0, LANES, "threadIdx.x"):
                T.evaluate(T.cuda.mma_fill_legacy(HELD, C.data, C.elem_offset, dtype="float32"))

    return meaning, code


def _load(second: bool) -> tuple[Any, Any]:
    """Four 8x8 matrices by ldmatrix.x4, each lane naming a row; B lies as [n, k], so it is not transposed."""

    def row(lane: Any, stride: Any) -> Any:
        if second:
            return (lane // 16 * 8 + lane % 8) * stride + lane % 16 // 8 * 8
        return lane % 16 * stride + lane // 16 * 8

    @T.prim_func(s_tir=True)
    def meaning(w: T.handle, s: T.handle) -> None:
        S = T.match_buffer(s, (EDGE, EDGE), "float16", align=64, offset_factor=EDGE, scope=SHARED)
        W = T.match_buffer(w, (LANES, HELD), "float16", align=64, offset_factor=EDGE, scope="warp")
        with T.sblock("root"):
            T.reads(S[0:EDGE, 0:EDGE])
            T.writes(W[0:LANES, 0:HELD])
            for x, y in T.grid(EDGE, EDGE):
                with T.sblock("element"):
                    i, j = T.axis.remap("SS", [x, y])
                    lane, register = T.meta_var(fragment(i, j))
                    T.reads(S[i, j])
                    T.writes(W[lane, register])
                    W[lane, register] = S[i, j]

    @T.prim_func(s_tir=True)
    def code(w: T.handle, s: T.handle) -> None:
        outer, inner = T.int32(), T.int32()
        S = T.match_buffer(
            s, (EDGE, EDGE), "float16", align=64, offset_factor=EDGE, scope=SHARED, strides=[outer, inner]
        )
        W = T.match_buffer(w, (LANES, HELD), "float16", align=64, offset_factor=EDGE, scope="warp")
        with T.sblock("root"):
            T.reads(S[0:EDGE, 0:EDGE])
            T.writes(W[0:LANES, 0:HELD])
            for lane in T.thread_binding(0, LANES, "threadIdx.x"):
                T.evaluate(
                    T.ptx_legacy.ldmatrix(
                        *(False, 4, ".b16", W.data, W.elem_offset + HELD * lane),
                        *(S.access_ptr("r"), row(lane, outer)),
                        dtype="float16",
                    )
                )

    return meaning, code


def _multiply() -> tuple[Any, Any]:
    @T.prim_func(s_tir=True)
    def meaning(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (LANES, HELD), "float16", align=64, offset_factor=EDGE, scope="warp")
        B = T.match_buffer(b, (LANES, HELD), "float16", align=64, offset_factor=EDGE, scope="warp")
        C = T.match_buffer(c, (LANES, HELD), "float32", align=64, offset_factor=EDGE, scope="warp")
        with T.sblock("root"):
            T.reads(C[0:LANES, 0:HELD], A[0:LANES, 0:HELD], B[0:LANES, 0:HELD])
            T.writes(C[0:LANES, 0:HELD])
            for x, y, z in T.grid(EDGE, EDGE, EDGE):
                with T.sblock("element"):
                    i, j, k = T.axis.remap("SSR", [x, y, z])
                    a_lane, a_register = T.meta_var(fragment(i, k))
                    b_lane, b_register = T.meta_var(fragment(j, k))
                    c_lane, c_register = T.meta_var(fragment(i, j))
                    T.reads(C[c_lane, c_register], A[a_lane, a_register], B[b_lane, b_register])
                    T.writes(C[c_lane, c_register])
                    C[c_lane, c_register] += T.Cast("float32", A[a_lane, a_register]) * T.Cast(
                        "float32", B[b_lane, b_register]
                    )

    @T.prim_func(s_tir=True)
    def code(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (LANES, HELD), "float16", align=64, offset_factor=EDGE, scope="warp")
        B = T.match_buffer(b, (LANES, HELD), "float16", align=64, offset_factor=EDGE, scope="warp")
        C = T.match_buffer(c, (LANES, HELD), "float32", align=64, offset_factor=EDGE, scope="warp")
        with T.sblock("root"):
            T.reads(C[0:LANES, 0:HELD], A[0:LANES, 0:HELD], B[0:LANES, 0:HELD])
            T.writes(C[0:LANES, 0:HELD])
            for lane in T.thread_binding(0, LANES, "threadIdx.x"):
                T.evaluate(
                    T.ptx_legacy.mma(
                        *("m16n8k16", "row", "col", "fp16", "fp16", "fp32"),
                        *(A.data, A.elem_offset + lane * HELD, B.data, B.elem_offset + lane * HELD),
                        *(C.data, C.elem_offset + lane * HELD, False),
                        dtype="float32",
                    )
                )
                T.evaluate(
                    T.ptx_legacy.mma(
                        *("m16n8k16", "row", "col", "fp16", "fp16", "fp32"),
                        *(A.data, A.elem_offset + lane * HELD, B.data, B.elem_offset + lane * HELD + HELD // 2),
                        *(C.data, C.elem_offset + lane * HELD + HELD // 2, False),
                        dtype="float32",
                    )
                )

    return meaning, code


def _store() -> tuple[Any, Any]:
    @T.prim_func(s_tir=True)
    def meaning(w: T.handle, s: T.handle) -> None:
        W = T.match_buffer(w, (LANES, HELD), "float32", scope="warp")
        S = T.match_buffer(s, (EDGE, EDGE), "float32", scope=SHARED)
        with T.sblock("root"):
            T.reads(W[0:LANES, 0:HELD])
            T.writes(S[0:EDGE, 0:EDGE])
            for x, y in T.grid(EDGE, EDGE):
                with T.sblock("element"):
                    i, j = T.axis.remap("SS", [x, y])
                    lane, register = T.meta_var(fragment(i, j))
                    T.reads(W[lane, register])
                    T.writes(S[i, j])
                    S[i, j] = W[lane, register]

    @T.prim_func(s_tir=True)
    def code(w: T.handle, s: T.handle) -> None:
        outer, inner = T.int32(), T.int32()
        W = T.match_buffer(w, (LANES, HELD), "float32", scope="warp", offset_factor=1)
        S = T.match_buffer(s, (EDGE, EDGE), "float32", scope=SHARED, offset_factor=1, strides=[outer, inner])
        with T.sblock("root"):
            T.reads(W[0:LANES, 0:HELD])
            T.writes(S[0:EDGE, 0:EDGE])
            for lane in T.thread_binding(0, LANES, "threadIdx.x"):
                for register in T.serial(HELD):
                    i, j = T.meta_var(element(lane, register))
                    S[i, j] = W[lane, register]

    return meaning, code
