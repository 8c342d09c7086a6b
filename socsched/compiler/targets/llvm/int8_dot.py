"""Sums of four byte products, the basic step of every int8 kernel, by instruction set.

    vnni    vpdpbusd (AVX-512 VNNI, AVX-VNNI): unsigned by signed bytes into int32, without saturation.  TVM's own
            tensor intrinsic declares operands its LLVM no longer accepts, so it is called directly.
    madd    pmaddwd (SSE2, AVX2, AVX-512BW): bytes widened to 16 bits first, even and odd ones apart.  pmaddubsw would
            take bytes, but saturates at 16 bits: wrong for full-range data.
    sdot    aarch64 with the dot product extension: signed by signed bytes, so activations are stored minus 128.
    lanes   anything else: bytes taken from 32-bit lanes by shifts, multiplied lane by lane.

The byte layout is the same for all: four consecutive input channels in the 32 bits of a lane, one lane per output
channel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from socsched.compiler.target import TargetSpec
from socsched.compiler.targets.llvm.processor import cpu_flags, native_target, vector_unit
from socsched.compiler.targets.llvm.vector import AVX2, AVX512, NEON, Vector


@dataclass(frozen=True, slots=True)
class Dot:
    """One byte product: `lanes` int32 sums per operation; `signed`: activations are stored as signed bytes."""

    name: str
    lanes: int
    signed: bool = False

    def step(self, total: Any, activations: Any, weights: Any) -> Any:
        """Return int32 x lanes `total` plus products; activations is one int32 (four bytes), weights int8 x 4 lanes."""
        return _STEPS[self.name](self.lanes, total, activations, weights)

    @property
    def zero(self) -> int:
        """Return the stored value of the least unsigned value."""
        return -128 if self.signed else 0

    @property
    def dtype(self) -> str:
        """Return the type in which activations are stored."""
        return "int8" if self.signed else "uint8"


def dot_for(spec: TargetSpec) -> tuple[Vector, Dot]:
    """Return the vector unit and the byte product of an LLVM target, as reported by LLVM."""
    from socsched.compiler.environment import tvm

    vector = vector_unit(spec)
    target = tvm.target.Target(dict(int8_options(spec)))

    def has(*features: str) -> bool:
        return bool(tvm.target.codegen.target_has_features(list(features), target))

    if vector is NEON:
        return vector, Dot("sdot", 4, signed=True) if has("dotprod") else Dot("lanes", 4)
    if not spec.native and not spec.triple.startswith(("x86_64", "i686")):
        return vector, Dot("lanes", vector.lanes)
    if vector is AVX512 and has("avx512vnni"):
        return vector, Dot("vnni", 16)
    if vector is AVX2 and has("avxvnni"):
        return vector, Dot("vnni", 8)
    return vector, Dot("madd", vector.lanes)


def int8_options(spec: TargetSpec) -> dict[str, Any]:
    """Return TVM's int8 target options: this machine's dot product instructions, which its x86-64 level leaves out."""
    options = dict(spec.tvm)
    if spec.native and options == dict(native_target()):
        wide = str(options.get("mcpu", "")) == "x86-64-v4"
        flags = cpu_flags() if wide else cpu_flags() - {"avx512_vnni"}
        added = [f"+{llvm}" for flag, llvm in _FLAGS if flag in flags]
        if added:
            options["mattr"] = [*options.get("mattr", ()), *added]
    return options


_FLAGS = (("avx512_vnni", "avx512vnni"), ("avx_vnni", "avxvnni"), ("asimddp", "dotprod"))
_MADD = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}
_VNNI = {16: "llvm.x86.avx512.vpdpbusd.512", 8: "llvm.x86.avx512.vpdpbusd.256"}
_BYTE_PAIRS = 0x00FF00FF


def _call(name: str, dtype: str, *operands: Any) -> Any:
    from socsched.compiler.environment import T

    return T.call_llvm_pure_intrin(T.llvm_lookup_intrinsic_id(name), *operands, dtype=dtype)


def _vnni(lanes: int, total: Any, activations: Any, weights: Any) -> Any:
    from socsched.compiler.environment import T

    spread = T.reinterpret(T.broadcast(activations, lanes), dtype=f"uint8x{4 * lanes}")
    return _call(_VNNI[lanes], f"int32x{lanes}", total, spread, weights)


def _madd(lanes: int, total: Any, activations: Any, weights: Any) -> Any:
    from socsched.compiler.environment import T

    words, eight = f"int16x{2 * lanes}", T.broadcast(T.int16(8), 2 * lanes)
    even = T.bitwise_and(activations, T.int32(_BYTE_PAIRS))
    odd = T.bitwise_and(T.shift_right(activations, T.int32(8)), T.int32(_BYTE_PAIRS))
    pairs = T.reinterpret(weights, dtype=words)
    sides = (
        (even, T.shift_right(T.shift_left(pairs, eight), eight)),
        (odd, T.shift_right(pairs, eight)),
    )
    for bytes_, words_ in sides:
        spread = T.reinterpret(T.broadcast(bytes_, lanes), dtype=words)
        total = total + _call(_MADD[lanes], f"int32x{lanes}", spread, words_)
    return total


def _sdot(lanes: int, total: Any, activations: Any, weights: Any) -> Any:
    from socsched.compiler.environment import T

    spread = T.reinterpret(T.broadcast(activations, lanes), dtype=f"int8x{4 * lanes}")
    return _call(f"llvm.aarch64.neon.sdot.v{lanes}i32.v{4 * lanes}i8", f"int32x{lanes}", total, spread, weights)


def _lanes(lanes: int, total: Any, activations: Any, weights: Any) -> Any:
    from socsched.compiler.environment import T

    whole = T.reinterpret(weights, dtype=f"int32x{lanes}")
    top = T.broadcast(T.int32(24), lanes)
    for byte in range(4):
        unsigned = T.bitwise_and(T.shift_right(activations, T.int32(8 * byte)), T.int32(255))
        raised = T.shift_left(whole, T.broadcast(T.int32(24 - 8 * byte), lanes))
        total = total + T.broadcast(unsigned, lanes) * T.shift_right(raised, top)
    return total


_STEPS: dict[str, Callable[[int, Any, Any, Any], Any]] = {
    "vnni": _vnni,
    "madd": _madd,
    "sdot": _sdot,
    "lanes": _lanes,
}
