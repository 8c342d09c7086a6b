# mypy: ignore-errors
"""Warp-level tensor-core operations as tensor intrinsics of TVM's schedules: fp16 with fp32 sums, int8 with int32 sums.

A 16x16 tile is distributed over a warp as the PTX fragments of `mma.m16n8k16` (PTX ISA, "Matrix Fragments for
mma.m16n8k16"): lane 4 (i mod 8) + (j mod 8) / 2 holds element (i, j) in register 4 (j / 8) + 2 (i / 8) + j mod 2.  Two
such instructions make one 16x16x16 product.  Bytes are stored in pairs, each pair the bits of one fp16 element: the
fragments of `mma.m16n8k32` (ibid.) then have exactly the layout above.  TVM ships equivalents for fp16 and single
bytes, but importing them parses hundreds of others (20 s), its swizzle of shared memory supports only 16-bit elements,
and its asynchronous copies support only a floating-point zero fill.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from socsched.compiler.environment import T, s_tir

EDGE, LANES, HELD = 16, 32, 8
"""Side of a tile, lanes of a warp, elements of a tile that each lane holds."""

SHARED = "shared.dyn"


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of product of fp16 containers: the operand type `instruction` assumes, and the type of the `sums`."""

    name: str
    sums: str
    instruction: tuple[str, str, str, str, str, str]

    @property
    def fill(self) -> str:
        """Return the name of the intrinsic that clears a tile of sums; those below load, multiply and store."""
        return f"socsched.{self.name}.fill"

    @property
    def load_a(self) -> str:
        return f"socsched.{self.name}.load_a"

    @property
    def load_b(self) -> str:
        return f"socsched.{self.name}.load_b"

    @property
    def multiply(self) -> str:
        return f"socsched.{self.name}.multiply"

    @property
    def store(self) -> str:
        return f"socsched.{self.name}.store"

    def product(self, a: Any, b: Any) -> Any:
        """Return the contribution of one element of each operand to a sum: one product, or two for pairs of bytes."""
        if self.instruction[3] == "fp16":
            return T.Cast(self.sums, a) * T.Cast(self.sums, b)
        a_low, a_high = _bytes(a, self.instruction[3] == "int8")
        b_low, b_high = _bytes(b, True)
        return a_low * b_low + a_high * b_high


def _bytes(pair: Any, signed: bool) -> tuple[Any, Any]:
    """Return the two bytes in an element, the lower first, as int32."""
    wide = T.Cast("int32", T.reinterpret(pair, dtype="int16"))
    if signed:
        return T.shift_right(T.shift_left(wide, T.int32(24)), T.int32(24)), T.shift_right(wide, T.int32(8))
    return T.bitwise_and(wide, T.int32(255)), T.bitwise_and(T.shift_right(wide, T.int32(8)), T.int32(255))


HALVES = Family("f16", "float32", ("m16n8k16", "row", "col", "fp16", "fp16", "fp32"))
SIGNED = Family("s8", "int32", ("m16n8k32", "row", "col", "int8", "int8", "int32"))
UNSIGNED = Family("u8", "int32", ("m16n8k32", "row", "col", "uint8", "int8", "int32"))
"""Bytes times signed weights: activations are signed, or unsigned after a ReLU."""


def fragment(i: Any, j: Any) -> tuple[Any, Any]:
    """Return (lane, register) of element (i, j) of a 16x16 tile."""
    return 4 * (i % 8) + (j % 8) // 2, 4 * (j // 8) + 2 * (i // 8) + j % 2


def element(lane: Any, register: Any) -> tuple[Any, Any]:
    """Return (i, j) of the element in a lane's register: the inverse of `fragment`."""
    return 8 * (register % 4 // 2) + lane // 4, 8 * (register // 4) + lane % 4 * 2 + register % 2


@cache
def register(family: Family) -> None:
    """Register the intrinsics of a family with TVM, once per process (a tenth of a second)."""
    s_tir.TensorIntrin.register(family.fill, *_fill(family.sums), override=True)
    s_tir.TensorIntrin.register(family.load_a, *_load(second=False), override=True)
    s_tir.TensorIntrin.register(family.load_b, *_load(second=True), override=True)
    s_tir.TensorIntrin.register(family.multiply, *_multiply(family), override=True)
    s_tir.TensorIntrin.register(family.store, *_store(family.sums), override=True)


def _fill(dtype: str) -> tuple[Any, Any]:
    zero = T.float32(0) if dtype == "float32" else T.int32(0)

    @T.prim_func(s_tir=True)
    def meaning(c: T.handle) -> None:
        C = T.match_buffer(c, (LANES, HELD), dtype, scope="warp")
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:LANES, 0:HELD])
            for x, y in T.grid(EDGE, EDGE):
                with T.sblock("element"):
                    i, j = T.axis.remap("SS", [x, y])
                    lane, register = T.meta_var(fragment(i, j))
                    T.reads()
                    T.writes(C[lane, register])
                    C[lane, register] = zero

    @T.prim_func(s_tir=True)
    def code(c: T.handle) -> None:
        C = T.match_buffer(c, (LANES, HELD), dtype, scope="warp", offset_factor=1)
        with T.sblock("root"):
            T.reads()
            T.writes(C[0:LANES, 0:HELD])
            for _ in T.thread_binding(0, LANES, "threadIdx.x"):
                T.evaluate(T.cuda.mma_fill_legacy(HELD, C.data, C.elem_offset, dtype=dtype))

    return meaning, code


def _load(second: bool) -> tuple[Any, Any]:
    """Load four 8x8 matrices by ldmatrix.x4, each lane addressing a row; B is [n, k], so it is not transposed."""

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


def _multiply(family: Family) -> tuple[Any, Any]:
    sums, product, instruction = family.sums, family.product, family.instruction

    @T.prim_func(s_tir=True)
    def meaning(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (LANES, HELD), "float16", align=64, offset_factor=EDGE, scope="warp")
        B = T.match_buffer(b, (LANES, HELD), "float16", align=64, offset_factor=EDGE, scope="warp")
        C = T.match_buffer(c, (LANES, HELD), sums, align=64, offset_factor=EDGE, scope="warp")
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
                    C[c_lane, c_register] += product(A[a_lane, a_register], B[b_lane, b_register])

    @T.prim_func(s_tir=True)
    def code(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (LANES, HELD), "float16", align=64, offset_factor=EDGE, scope="warp")
        B = T.match_buffer(b, (LANES, HELD), "float16", align=64, offset_factor=EDGE, scope="warp")
        C = T.match_buffer(c, (LANES, HELD), sums, align=64, offset_factor=EDGE, scope="warp")
        with T.sblock("root"):
            T.reads(C[0:LANES, 0:HELD], A[0:LANES, 0:HELD], B[0:LANES, 0:HELD])
            T.writes(C[0:LANES, 0:HELD])
            for lane in T.thread_binding(0, LANES, "threadIdx.x"):
                T.evaluate(
                    T.ptx_legacy.mma(
                        *instruction,
                        *(A.data, A.elem_offset + lane * HELD, B.data, B.elem_offset + lane * HELD),
                        *(C.data, C.elem_offset + lane * HELD, False),
                        dtype=sums,
                    )
                )
                T.evaluate(
                    T.ptx_legacy.mma(
                        *instruction,
                        *(A.data, A.elem_offset + lane * HELD, B.data, B.elem_offset + lane * HELD + HELD // 2),
                        *(C.data, C.elem_offset + lane * HELD + HELD // 2, False),
                        dtype=sums,
                    )
                )

    return meaning, code


def _store(dtype: str) -> tuple[Any, Any]:
    @T.prim_func(s_tir=True)
    def meaning(w: T.handle, s: T.handle) -> None:
        W = T.match_buffer(w, (LANES, HELD), dtype, scope="warp")
        S = T.match_buffer(s, (EDGE, EDGE), dtype, scope=SHARED)
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
        W = T.match_buffer(w, (LANES, HELD), dtype, scope="warp", offset_factor=1)
        S = T.match_buffer(s, (EDGE, EDGE), dtype, scope=SHARED, offset_factor=1, strides=[outer, inner])
        with T.sblock("root"):
            T.reads(W[0:LANES, 0:HELD])
            T.writes(S[0:EDGE, 0:EDGE])
            for lane in T.thread_binding(0, LANES, "threadIdx.x"):
                for register in T.serial(HELD):
                    i, j = T.meta_var(element(lane, register))
                    S[i, j] = W[lane, register]

    return meaning, code
