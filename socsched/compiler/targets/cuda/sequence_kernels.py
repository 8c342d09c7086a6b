# mypy: ignore-errors
# ruff: noqa: E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""GPU kernels over the rows of plain tensors in fp16: softmax, layer norm, and the operand of a product turned.

A warp computes a row, with sums in fp32; `by_rows` binds the loops to threads.  Unbound kernels also run on a CPU.
"""

from __future__ import annotations

from typing import Any

from socsched.compiler.environment import T, s_tir
from socsched.compiler.targets.cuda.shapes import LANES

_ATTRIBUTES = {"tirx.noalias": True}
_ROWS = (8, 4, 2, 1)
"""Rows of a block of threads."""


def by_rows(function: Any, rows: int) -> Any:
    """Return a kernel of reductions over rows, and a last block over all elements, bound: a warp to each row."""
    sch = s_tir.Schedule(function)
    *sums, out = sch.get_child_blocks(sch.get_sblock("root"))
    row, column = sch.get_loops(out)
    block, warp = sch.split(row, [None, next(count for count in _ROWS if rows % count == 0)])
    sch.bind(block, "blockIdx.x")
    sch.bind(warp, "threadIdx.y")
    sch.bind(sch.split(column, [None, LANES])[1], "threadIdx.x")
    for reduction in reversed(sums):
        sch.compute_at(reduction, warp)
        sch.set_scope(reduction, 0, "local")  # of every thread: shared memory would need a barrier
        sch.bind(sch.split(sch.get_loops(reduction)[-1], [None, LANES])[1], "threadIdx.x")
    return sch.mod["main"].with_attr("tirx.is_scheduled", True)


def softmax(rows: int, length: int, source: int, held: int, factor: float) -> Any:
    """Return softmax(X[rows, source], O[rows, held]) of the first `length` columns times a factor; others become 0."""

    @T.prim_func(s_tir=True, private=True)
    def shares(X: T.Buffer((rows, source), "float16"), O: T.Buffer((rows, held), "float16")):
        T.func_attr(_ATTRIBUTES)
        M = T.sblock_alloc_buffer((rows,), "float32")
        S = T.sblock_alloc_buffer((rows,), "float32")
        for x, y in T.grid(rows, length):
            with T.sblock("most"):
                i, k = T.axis.remap("SR", [x, y])
                with T.init():
                    M[i] = T.min_value("float32")
                M[i] = T.max(M[i], T.Cast("float32", X[i, k]) * T.float32(factor))
        for x, y in T.grid(rows, length):
            with T.sblock("sum"):
                i, k = T.axis.remap("SR", [x, y])
                with T.init():
                    S[i] = T.float32(0)
                S[i] = S[i] + T.exp(T.Cast("float32", X[i, k]) * T.float32(factor) - M[i])
        for x, y in T.grid(rows, held):
            with T.sblock("share"):
                i, k = T.axis.remap("SS", [x, y])
                O[i, k] = T.if_then_else(
                    k < length,
                    T.Cast(
                        "float16",
                        T.exp(T.Cast("float32", X[i, T.min(k, length - 1)]) * T.float32(factor) - M[i]) / S[i],
                    ),
                    T.float16(0),
                )

    return shares


def layer_norm(rows: int, length: int, epsilon: float) -> Any:
    """Return layer_norm(X[rows, length], G[length], B[length], O[rows, length]), the variance from centred values."""

    @T.prim_func(s_tir=True, private=True)
    def normalised(
        X: T.Buffer((rows, length), "float16"),
        G: T.Buffer((length,), "float32"),
        B: T.Buffer((length,), "float32"),
        O: T.Buffer((rows, length), "float16"),
    ):
        T.func_attr(_ATTRIBUTES)
        S = T.sblock_alloc_buffer((rows,), "float32")
        V = T.sblock_alloc_buffer((rows,), "float32")
        for x, y in T.grid(rows, length):
            with T.sblock("sum"):
                i, k = T.axis.remap("SR", [x, y])
                with T.init():
                    S[i] = T.float32(0)
                S[i] = S[i] + T.Cast("float32", X[i, k])
        for x, y in T.grid(rows, length):
            with T.sblock("squares"):
                i, k = T.axis.remap("SR", [x, y])
                with T.init():
                    V[i] = T.float32(0)
                V[i] = V[i] + (T.Cast("float32", X[i, k]) - S[i] * T.float32(1 / length)) * (
                    T.Cast("float32", X[i, k]) - S[i] * T.float32(1 / length)
                )
        for x, y in T.grid(rows, length):
            with T.sblock("normal"):
                i, k = T.axis.remap("SS", [x, y])
                O[i, k] = T.Cast(
                    "float16",
                    (T.Cast("float32", X[i, k]) - S[i] * T.float32(1 / length))
                    * T.rsqrt(V[i] * T.float32(1 / length) + T.float32(epsilon))
                    * G[k]
                    + B[k],
                )

    return normalised


def turned(batch: int, count: int, width: int, held: int, inside: bool) -> Any:
    """Return turned(X, O[batch * width, held]): the matrices [count, width] of a batch transposed, further columns 0.

    X is [count, batch * width] if matrices are `inside` its rows, else [batch * count, width].
    """
    rows, columns = (count, batch * width) if inside else (batch * count, width)

    @T.prim_func(s_tir=True, private=True)
    def moved(X: T.Buffer((rows, columns), "float16"), O: T.Buffer((batch * width, held), "float16")):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(batch * width, held):
            with T.sblock("turn"):
                r, j = T.axis.remap("SS", [x, y])
                T.reads(X[0:rows, 0:columns])
                T.writes(O[r, j])
                O[r, j] = T.if_then_else(
                    j < count,
                    X[
                        T.min(j, count - 1) if inside else r // width * count + T.min(j, count - 1),
                        r if inside else r % width,
                    ],
                    T.float16(0),
                )

    return moved
