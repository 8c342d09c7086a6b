# mypy: ignore-errors
# ruff: noqa: E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""GPU kernels that end or move products, on images [pixels, channels] in fp16; `spread` binds a kernel to threads.

Unbound kernels also run on a CPU, which is how their indexing is tested.
"""

from __future__ import annotations

from typing import Any

from socsched.compiler.environment import T, s_tir
from socsched.compiler.targets.cuda.activation import function
from socsched.compiler.targets.cuda.gemm import target
from socsched.compiler.targets.cuda.shapes import VECTOR, Convolution

_ATTRIBUTES = {"tirx.noalias": True}
_THREADS = 128


def spread(function: Any) -> Any:
    """Return `function` with the loops of each of its blocks bound to GPU threads; a third loop is vectorised."""
    sch = s_tir.Schedule(function)
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        *outer, last = sch.get_loops(block)
        lanes = len(outer) == 2
        fused = sch.fuse(*outer) if lanes else sch.fuse(*outer, last)
        grid, threads = sch.split(fused, [None, _THREADS])
        sch.bind(grid, "blockIdx.x")
        sch.bind(threads, "threadIdx.x")
        if lanes:
            sch.vectorize(last)
    return sch.mod["main"].with_attr("tirx.is_scheduled", True)


def reduction(shape: Convolution, parts: int) -> Any:
    """Return finish(P[parts, m, n], B, (R,) O): add the parts of a split product, then apply the epilogue."""
    act, m, n, outputs = function(shape.final), shape.m, shape.n, shape.outputs
    results, total, quads = shape.pixels, shape.total or shape.outputs, n // 4
    at = target(shape)

    @T.prim_func(s_tir=True, private=True)
    def finish(
        P: T.Buffer((parts, m, n), "float32"),
        B: T.Buffer((outputs,), "float32"),
        O: T.Buffer((results, total), "float16"),
    ):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(m, quads):
            with T.sblock("sum"):
                i, q = T.axis.remap("SS", [x, y])
                T.reads(P[0:parts, i, q * 4 : q * 4 + 4], B[0:outputs])
                T.writes(O[0:results, 0:total])
                acc = T.sblock_alloc_buffer((4,), "float32", scope="local")
                for v in T.vectorized(4):
                    acc[v] = B[q * 4 % outputs + v]
                for s in T.unroll(parts):
                    for v in T.vectorized(4):
                        acc[v] = acc[v] + P[s, i, q * 4 + v]
                for v in T.vectorized(4):
                    O[at(i, q * 4)[0], at(i, q * 4)[1] + v] = act(T.Cast("float16", acc[v]))

    @T.prim_func(s_tir=True, private=True)
    def finish_add(
        P: T.Buffer((parts, m, n), "float32"),
        B: T.Buffer((outputs,), "float32"),
        R: T.Buffer((results, total), "float16"),
        O: T.Buffer((results, total), "float16"),
    ):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(m, quads):
            with T.sblock("sum"):
                i, q = T.axis.remap("SS", [x, y])
                T.reads(P[0:parts, i, q * 4 : q * 4 + 4], B[0:outputs], R[0:results, 0:total])
                T.writes(O[0:results, 0:total])
                acc = T.sblock_alloc_buffer((4,), "float32", scope="local")
                for v in T.vectorized(4):
                    acc[v] = B[q * 4 % outputs + v] + T.Cast("float32", R[at(i, q * 4)[0], at(i, q * 4)[1] + v])
                for s in T.unroll(parts):
                    for v in T.vectorized(4):
                        acc[v] = acc[v] + P[s, i, q * 4 + v]
                for v in T.vectorized(4):
                    O[at(i, q * 4)[0], at(i, q * 4)[1] + v] = act(T.Cast("float16", acc[v]))

    return finish_add if shape.residual else finish


def copy(pixels: int, source: int, start: int, count: int, total: int, first: int, relu: bool) -> Any:
    """Return copy(X[pixels, source], O[pixels, total]): channels from `start` of X to `first` of O, optionally
    rectified.

    Channels of O past `count` are zeroed if O holds nothing else (first = 0 and total < count + 16), so that padding
    channels are defined.
    """
    act = function(("relu",) if relu else ())
    written = total if first == 0 and total - count < 16 else count
    lanes = VECTOR if all(n % VECTOR == 0 for n in (source, start, count, total, first, written)) else 1
    groups = written // lanes

    @T.prim_func(s_tir=True, private=True)
    def moved(X: T.Buffer((pixels, source), "float16"), O: T.Buffer((pixels, total), "float16")):
        T.func_attr(_ATTRIBUTES)
        for x, y, z in T.grid(pixels, groups, lanes):
            with T.sblock("copy"):
                p, g, v = T.axis.remap("SSS", [x, y, z])
                O[p, first + g * lanes + v] = act(
                    T.if_then_else(g * lanes + v < count, X[p, start + g * lanes + v], T.float16(0))
                )

    return moved
