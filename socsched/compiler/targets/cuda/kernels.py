# mypy: ignore-errors
# ruff: noqa: E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""GPU kernels other than matrix products, on images [pixels, channels] in fp16; `spread` binds a kernel to threads.

Unbound kernels also run on a CPU, which is how their indexing is tested.
"""

from __future__ import annotations

from typing import Any

from socsched.compiler.environment import T, s_tir, tirx
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


def _activation(relu: bool) -> Any:
    zero = tirx.const(0, "float16")
    return (lambda x: tirx.max(x, zero)) if relu else (lambda x: x)


def reduction(shape: Convolution, parts: int) -> Any:
    """Return finish(P[parts, m, n], B, (R,) O): add the parts of a split product, then apply the epilogue."""
    act, m, n, outputs = _activation(shape.relu), shape.m, shape.n, shape.outputs
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


def max_pool(channels: int, height: int, width: int, window: tuple[int, int, int, int, int, int, int]) -> Any:
    """Return pool(X, O); `window` is (kernel_h, kernel_w, stride, pad_h, pad_w, out_height, out_width)."""
    kh, kw, stride, pad_h, pad_w, oh, ow = window
    groups = channels // VECTOR

    @T.prim_func(s_tir=True, private=True)
    def pool(X: T.Buffer((height * width, channels), "float16"), O: T.Buffer((oh * ow, channels), "float16")):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(oh * ow, groups):
            with T.sblock("window"):
                p, g = T.axis.remap("SS", [x, y])
                T.reads(X[0 : height * width, g * VECTOR : g * VECTOR + VECTOR])
                T.writes(O[p, g * VECTOR : g * VECTOR + VECTOR])
                best = T.sblock_alloc_buffer((VECTOR,), "float16", scope="local")
                for v in T.vectorized(VECTOR):
                    best[v] = T.min_value("float16")
                for i, j in T.grid(kh, kw):
                    if (
                        p // ow * stride + i >= pad_h
                        and p // ow * stride + i < height + pad_h
                        and p % ow * stride + j >= pad_w
                        and p % ow * stride + j < width + pad_w
                    ):
                        for v in T.vectorized(VECTOR):
                            best[v] = T.max(
                                best[v],
                                X[(p // ow * stride + i - pad_h) * width + p % ow * stride + j - pad_w, g * VECTOR + v],
                            )
                for v in T.vectorized(VECTOR):
                    O[p, g * VECTOR + v] = best[v]

    return pool


def mean(pixels: int, channels: int) -> Any:
    """Return mean(X, O[1, channels]): the average over all pixels, summed in fp32."""
    factor = 1.0 / pixels

    @T.prim_func(s_tir=True, private=True)
    def average(X: T.Buffer((pixels, channels), "float16"), O: T.Buffer((1, channels), "float16")):
        T.func_attr(_ATTRIBUTES)
        for x in range(channels):
            with T.sblock("channel"):
                c = T.axis.spatial(channels, x)
                T.reads(X[0:pixels, c])
                T.writes(O[0, c])
                total = T.sblock_alloc_buffer((1,), "float32", scope="local")
                total[0] = T.float32(0)
                for p in range(pixels):
                    total[0] = total[0] + T.Cast("float32", X[p, c])
                O[0, c] = T.Cast("float16", total[0] * T.float32(factor))

    return average


def add(pixels: int, channels: int, relu: bool) -> Any:
    """Return add(X, Y, O): the sum of two images and, if requested, ReLU."""
    act, groups = _activation(relu), channels // VECTOR

    @T.prim_func(s_tir=True, private=True)
    def total(
        X: T.Buffer((pixels, channels), "float16"),
        Y: T.Buffer((pixels, channels), "float16"),
        O: T.Buffer((pixels, channels), "float16"),
    ):
        T.func_attr(_ATTRIBUTES)
        for x, y, z in T.grid(pixels, groups, VECTOR):
            with T.sblock("sum"):
                p, g, v = T.axis.remap("SSS", [x, y, z])
                O[p, g * VECTOR + v] = act(X[p, g * VECTOR + v] + Y[p, g * VECTOR + v])

    return total


def copy(pixels: int, source: int, start: int, count: int, total: int, first: int, relu: bool) -> Any:
    """Return copy(X[pixels, source], O[pixels, total]): channels from `start` of X to `first` of O, optionally
    rectified.

    Channels of O past `count` are zeroed if O holds nothing else (first = 0 and total < count + 16), so that padding
    channels are defined.
    """
    act = _activation(relu)
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
