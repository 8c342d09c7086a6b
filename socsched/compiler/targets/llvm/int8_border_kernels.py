# mypy: ignore-errors
# ruff: noqa: E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""CPU kernels between fp32 and int8, for a network's inputs, outputs and fp32 operators."""

from __future__ import annotations

from typing import Any

from socsched.compiler.environment import T
from socsched.compiler.quantize.epilogue import Stored, constant
from socsched.compiler.targets.llvm.int8_kernels import _NO_ALIAS

_ROUNDER, _ROUNDER_BITS = 12582912.0, 0x4B400000


def quantise(
    blocks: int, c: int, channels: int, height: int, width: int, b_in: int, b_out: int, inverse: float, stored: Stored
) -> Any:
    """Return quantise(X, O): fp32 to bytes, halves to even; X is [blocks, H + 2b, W + 2b, c], or NCHW for b_in -1."""
    ph, pw = height + 2 * b_out, width + 2 * b_out
    plain = b_in < 0
    shape = (1, channels, height, width) if plain else (blocks, height + 2 * b_in, width + 2 * b_in, c)
    s0, s1, s2, s3 = shape
    dtype, blank = stored.dtype, constant(stored.dtype, stored.zero)
    low, high = stored.low - stored.zero, stored.high - stored.zero

    def rounded(x: Any) -> Any:
        scaled = T.min(T.max(x * T.float32(inverse), T.float32(low)), T.float32(high))
        # Added to 1.5 * 2^23 a small number is rounded, halves to even, into the low bits of the sum.
        bits = T.reinterpret(scaled + T.float32(_ROUNDER), dtype="int32")
        return T.Cast(dtype, bits - T.int32(_ROUNDER_BITS - stored.zero))

    def source(X: Any, block: Any, y: Any, x: Any, v: Any) -> Any:
        if not plain:
            return X[block, y + b_in, x + b_in, v]
        value = X[0, T.min(block * c + v, channels - 1), y, x]
        return value if channels == blocks * c else T.if_then_else(block * c + v < channels, value, T.float32(0))

    @T.prim_func(s_tir=True, private=True)
    def quantise_int8(X: T.Buffer((s0, s1, s2, s3), "float32"), O: T.Buffer((blocks, ph, pw, c), dtype)):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(blocks * ph):
            with T.sblock("row"):
                r = T.axis.spatial(blocks * ph, task)
                T.reads(X[0:s0, 0:s1, 0:s2, 0:s3])
                T.writes(O[0:blocks, 0:ph, 0:pw, 0:c])
                if r % ph < b_out or r % ph >= ph - b_out:
                    for x in range(pw):
                        for v in T.vectorized(c):
                            O[r // ph, r % ph, x, v] = blank
                else:
                    for e in range(b_out):
                        for v in T.vectorized(c):
                            O[r // ph, r % ph, e, v] = blank
                        for v in T.vectorized(c):
                            O[r // ph, r % ph, pw - 1 - e, v] = blank
                    for x in range(width):
                        for v in T.vectorized(c):
                            O[r // ph, r % ph, x + b_out, v] = rounded(source(X, r // ph, r % ph - b_out, x, v))

    return quantise_int8


def dequantise(blocks: int, c: int, height: int, width: int, b_in: int, b_out: int, step: float, stored: Stored) -> Any:
    """Return dequantise(X, O): bytes to fp32 blocks with another border."""
    ih, iw, ph, pw = height + 2 * b_in, width + 2 * b_in, height + 2 * b_out, width + 2 * b_out
    dtype, zero = stored.dtype, stored.zero

    @T.prim_func(s_tir=True, private=True)
    def dequantise_int8(X: T.Buffer((blocks, ih, iw, c), dtype), O: T.Buffer((blocks, ph, pw, c), "float32")):
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
                    for x in range(width):
                        for v in T.vectorized(c):
                            O[r // ph, r % ph, x + b_out, v] = T.Cast(
                                "float32", T.Cast("int32", X[r // ph, r % ph - b_out + b_in, x + b_in, v]) - zero
                            ) * T.float32(step)

    return dequantise_int8
