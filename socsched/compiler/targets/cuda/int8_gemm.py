# mypy: ignore-errors
# ruff: noqa: E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""int8 convolution as an implicit GEMM on tensor cores: the computation, not yet scheduled.

It is `gemm` on bytes.  Operands are stored in pairs that are copied as one fp16 each, so that tiles, swizzle and
asynchronous copies are those of fp16: in a `Convolution` here `channels` and k count pairs.  Zero is stored as zero for
signed and unsigned values, so that pixels outside the image are the copies' zero fill.  Sums are requantised by the
rule of `quantize.fixed_point` on their way out, in 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from socsched.compiler.environment import T
from socsched.compiler.quantize.epilogue import Epilogue
from socsched.compiler.targets.cuda.gemm import pixel, target
from socsched.compiler.targets.cuda.intrinsics import SIGNED, UNSIGNED, Family
from socsched.compiler.targets.cuda.shapes import Convolution, Tile, round_up

_ATTRIBUTES = {"tirx.noalias": True}


@dataclass(frozen=True, slots=True)
class Form:
    """Interpretation of a product's bytes: whether its source is `signed`, its `epilogue`, and the dtype `added`."""

    signed: bool
    epilogue: Epilogue
    added: str = ""

    @property
    def family(self) -> Family:
        """The tensor-core product."""
        return SIGNED if self.signed else UNSIGNED


def convolution(shape: Convolution, tile: Tile, form: Form) -> Any:
    """Return conv(X[pixels, pairs], W[n, k], S[rows, outputs], (R,) O[pixels, total]); k counts pairs, in whole steps.

    X and W are pairs of bytes, S the epilogue's table: bias, low, high and multiplier, or bias and the bits of an fp32
    factor.  With splits it is conv(X, W, P[splits, m, n]), to be finished by `reduction`.
    """
    rows, length = round_up(shape.m, tile.rows), round_up(shape.k, tile.depth * tile.splits)
    if tile.splits > 1:
        return _split(shape, tile, rows, length, form)
    return _added(shape, rows, length, form) if form.added else _whole(shape, rows, length, form)


def _products(shape: Convolution, rows: int, length: int, form: Form) -> Any:
    """Return a macro (X, W, A, C) that computes the sums C from the matrix A of pixels."""
    a, n_all, product = pixel(shape, length, rows), shape.n, form.family.product

    @T.macro
    def products(X, W, A, C):
        for x, y in T.grid(rows, length):
            with T.sblock("A"):
                m, k = T.axis.remap("SS", [x, y])
                A[m, k] = a(X, m, k)
        for x, y, z in T.grid(rows, n_all, length):
            with T.sblock("C"):
                m, n, k = T.axis.remap("SSR", [x, y, z])
                with T.init():
                    C[m, n] = T.int32(0)
                C[m, n] = C[m, n] + product(A[m, k], W[n, k])

    return products


def ending(form: Form, outputs: int) -> Any:
    """Return a function (sum, S, n, other) -> result; the table's last row stands in for missing ones."""
    last = form.epilogue.rows - 1

    def finish(total: Any, S: Any, n: Any, other: Any = None) -> Any:
        rows = [S[min(row, last), n % outputs] for row in range(4)]
        return form.epilogue(total + rows[0], *rows[1:], other)

    return finish


def _whole(shape: Convolution, rows: int, length: int, form: Form) -> Any:
    m_all, n_all, outputs = shape.m, shape.n, shape.outputs
    pixels, channels = shape.height * shape.width, shape.channels
    results, total, entries, dtype = shape.pixels, shape.total or shape.outputs, form.epilogue.rows, form.epilogue.dtype
    at, finish, products = target(shape), ending(form, outputs), _products(shape, rows, length, form)

    @T.prim_func(s_tir=True, private=True)
    def conv_int8(
        X: T.Buffer((pixels, channels), "float16"),
        W: T.Buffer((n_all, length), "float16"),
        S: T.Buffer((entries, outputs), "int32"),
        O: T.Buffer((results, total), dtype),
    ):
        T.func_attr(_ATTRIBUTES)
        A = T.sblock_alloc_buffer((rows, length), "float16")
        C = T.sblock_alloc_buffer((rows, n_all), "int32")
        products(X, W, A, C)
        for x, y in T.grid(m_all, n_all):
            with T.sblock("out"):
                m, n = T.axis.remap("SS", [x, y])
                O[at(m, n)[0], at(m, n)[1]] = finish(C[m, n], S, n)

    return conv_int8


def _added(shape: Convolution, rows: int, length: int, form: Form) -> Any:
    m_all, n_all, outputs = shape.m, shape.n, shape.outputs
    pixels, channels = shape.height * shape.width, shape.channels
    results, total, entries, dtype = shape.pixels, shape.total or shape.outputs, form.epilogue.rows, form.epilogue.dtype
    at, finish, products = target(shape), ending(form, outputs), _products(shape, rows, length, form)
    added = form.added

    @T.prim_func(s_tir=True, private=True)
    def conv_int8_add(
        X: T.Buffer((pixels, channels), "float16"),
        W: T.Buffer((n_all, length), "float16"),
        S: T.Buffer((entries, outputs), "int32"),
        R: T.Buffer((results, total), added),
        O: T.Buffer((results, total), dtype),
    ):
        T.func_attr(_ATTRIBUTES)
        A = T.sblock_alloc_buffer((rows, length), "float16")
        C = T.sblock_alloc_buffer((rows, n_all), "int32")
        products(X, W, A, C)
        for x, y in T.grid(m_all, n_all):
            with T.sblock("out"):
                m, n = T.axis.remap("SS", [x, y])
                O[at(m, n)[0], at(m, n)[1]] = finish(C[m, n], S, n, R[at(m, n)[0], at(m, n)[1]])

    return conv_int8_add


def _split(shape: Convolution, tile: Tile, rows: int, length: int, form: Form) -> Any:
    m_all, n_all, parts = shape.m, shape.n, tile.splits
    pixels, channels, part = shape.height * shape.width, shape.channels, length // tile.splits
    a, product = pixel(shape, length, rows), form.family.product

    @T.prim_func(s_tir=True, private=True)
    def conv_int8_part(
        X: T.Buffer((pixels, channels), "float16"),
        W: T.Buffer((n_all, length), "float16"),
        P: T.Buffer((parts, m_all, n_all), "int32"),
    ):
        T.func_attr(_ATTRIBUTES)
        A = T.sblock_alloc_buffer((rows, length), "float16")
        C = T.sblock_alloc_buffer((parts, rows, n_all), "int32")
        for x, y in T.grid(rows, length):
            with T.sblock("A"):
                m, k = T.axis.remap("SS", [x, y])
                A[m, k] = a(X, m, k)
        for v, x, y, z in T.grid(parts, rows, n_all, part):
            with T.sblock("C"):
                s, m, n, k = T.axis.remap("SSSR", [v, x, y, z])
                with T.init():
                    C[s, m, n] = T.int32(0)
                C[s, m, n] = C[s, m, n] + product(A[m, s * part + k], W[n, s * part + k])
        for v, x, y in T.grid(parts, m_all, n_all):
            with T.sblock("out"):
                s, m, n = T.axis.remap("SSS", [v, x, y])
                P[s, m, n] = C[s, m, n]

    return conv_int8_part


def reduction(shape: Convolution, parts: int, form: Form) -> Any:
    """Return finish(P[parts, m, n], S, (R,) O): add the parts of a split product, then apply the epilogue."""
    m, n, outputs, entries = shape.m, shape.n, shape.outputs, form.epilogue.rows
    results, total, quads, dtype = shape.pixels, shape.total or shape.outputs, n // 4, form.epilogue.dtype
    at, finish, added = target(shape), ending(form, outputs), form.added

    @T.prim_func(s_tir=True, private=True)
    def sum_int8(
        P: T.Buffer((parts, m, n), "int32"),
        S: T.Buffer((entries, outputs), "int32"),
        O: T.Buffer((results, total), dtype),
    ):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(m, quads):
            with T.sblock("sum"):
                i, q = T.axis.remap("SS", [x, y])
                T.reads(P[0:parts, i, q * 4 : q * 4 + 4], S[0:entries, 0:outputs])
                T.writes(O[0:results, 0:total])
                acc = T.sblock_alloc_buffer((4,), "int32", scope="local")
                for v in T.vectorized(4):
                    acc[v] = T.int32(0)
                for s in T.unroll(parts):
                    for v in T.vectorized(4):
                        acc[v] = acc[v] + P[s, i, q * 4 + v]
                for v in T.vectorized(4):
                    O[at(i, q * 4)[0], at(i, q * 4)[1] + v] = finish(acc[v], S, q * 4 + v)

    @T.prim_func(s_tir=True, private=True)
    def sum_int8_add(
        P: T.Buffer((parts, m, n), "int32"),
        S: T.Buffer((entries, outputs), "int32"),
        R: T.Buffer((results, total), added or "int8"),
        O: T.Buffer((results, total), dtype),
    ):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(m, quads):
            with T.sblock("sum"):
                i, q = T.axis.remap("SS", [x, y])
                T.reads(P[0:parts, i, q * 4 : q * 4 + 4], S[0:entries, 0:outputs], R[0:results, 0:total])
                T.writes(O[0:results, 0:total])
                acc = T.sblock_alloc_buffer((4,), "int32", scope="local")
                for v in T.vectorized(4):
                    acc[v] = T.int32(0)
                for s in T.unroll(parts):
                    for v in T.vectorized(4):
                        acc[v] = acc[v] + P[s, i, q * 4 + v]
                for v in T.vectorized(4):
                    O[at(i, q * 4)[0], at(i, q * 4)[1] + v] = finish(
                        acc[v], S, q * 4 + v, R[at(i, q * 4)[0], at(i, q * 4)[1] + v]
                    )

    return sum_int8_add if added else sum_int8
