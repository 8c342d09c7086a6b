# mypy: ignore-errors
# ruff: noqa: B007, E741
# (The body is TVMScript: parsed by TVM, not run by Python.)
"""Attention on tensor cores: a kernel that calls the device function in attention.cuh, which is added to the source."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from socsched.compiler.environment import T
from socsched.compiler.targets.cuda.sequence_kernels import AttentionShape, bias_table
from socsched.compiler.targets.cuda.tiles import EDGE, LANES, gpu, round_up

_CALL, _FIRST = "socsched_attention<", 'extern "C" __global__'
_FUNCTIONS, _PARTS = {_CALL: "attention.cuh", "socsched_recurrent<": "recurrent.cuh"}, "fragments.cuh"
_WIDE = 64
"""Columns of a head beyond which chunks of keys are shorter, so that two fit into 48 KiB with the queries."""
_WIDEST = 96
"""Columns beyond which blocks have fewer queries for the same reason."""


@cache
def _code(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def completed(source: str) -> str:
    """Return CUDA source with the device functions that it calls, and with what these are made of."""
    called = [file for call, file in _FUNCTIONS.items() if call in source and _code(file) not in source]
    if not called:
        return source
    head, first, rest = source.partition(_FIRST)
    return "\n".join([head, *map(_code, (_PARTS, *called)), first + rest])


def warps(shape: AttentionShape, arch: str, sms: int = 0) -> int:
    """Return the warps of a block: four if that gives every SM a block, no more than rows need."""
    wide = round_up(shape.width, EDGE) > _WIDEST or shape.batch * -(-shape.rows // (4 * EDGE)) < (sms or gpu(arch).sms)
    return min(2 if wide else 4, -(-shape.rows // (2 * EDGE)) * 2 if shape.rows > EDGE else 1)


def attention_kernel(
    shape: AttentionShape, steps: tuple[int, ...], sizes: tuple[int, ...], arch: str, sms: int = 0
) -> Any:
    """Return attention(Q, K, V, q, k, v, B, O), as `sequence_kernels.attention` does, bound to threads."""
    batch, rows, length, width, biases = shape.batch, shape.rows, shape.length, shape.width, shape.biases
    count, chunk = warps(shape, arch, sms), 64 if width <= _WIDE else 32
    blocks, total = -(-rows // (16 * count)), batch * rows
    name = f"{_CALL}{width}, {count}, {chunk}, {biases}>"
    queries, keys, values = sizes
    table = bias_table(shape)
    b0, b1, b2 = table
    numbers = (shape.heads, rows, length, *steps)

    @T.prim_func(s_tir=True, private=True)
    def attention(
        Q: T.Buffer((queries,), "float16"),
        K: T.Buffer((keys,), "float16"),
        V: T.Buffer((values,), "float16"),
        q: T.Buffer((batch,), "int32"),
        k: T.Buffer((batch,), "int32"),
        v: T.Buffer((batch,), "int32"),
        B: T.Buffer(table, "float16"),
        O: T.Buffer((total, width), "float16"),
    ):
        T.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        for x in T.thread_binding(blocks, "blockIdx.x"):
            for y in T.thread_binding(batch, "blockIdx.y"):
                for w in T.thread_binding(count, "threadIdx.y"):
                    for t in T.thread_binding(LANES, "threadIdx.x"):
                        with T.sblock("attention"):
                            T.reads(
                                *(Q[0:queries], K[0:keys], V[0:values], q[0:batch], k[0:batch], v[0:batch]),
                                B[0:b0, 0:b1, 0:b2],
                            )
                            T.writes(O[0:total, 0:width])
                            T.evaluate(
                                T.call_extern(
                                    *("int32", name, Q.data, K.data, V.data, q.data, k.data, v.data, B.data, O.data),
                                    *(*numbers, T.float32(shape.factor)),
                                )
                            )

    return attention
