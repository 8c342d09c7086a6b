# mypy: ignore-errors
# ruff: noqa: E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""Convolution as an implicit GEMM on tensor cores: the computation, not yet scheduled.

The matrix A of shifted pixels is never stored: scheduling (`schedule.py`) inlines it into the copy from global to
shared memory, where pixels outside the image become zeros, and inlines the epilogue into the copy back.
"""

from __future__ import annotations

from typing import Any

from socsched.compiler.environment import T, tirx
from socsched.compiler.targets.cuda.activation import function
from socsched.compiler.targets.cuda.shapes import VECTOR, Convolution, Tile, round_up

_ATTRIBUTES = {"tirx.noalias": True}


def pixel(shape: Convolution, length: int, rows: int) -> Any:
    """Return a function (X, m, k) -> A[m, k]; `length` and `rows` are the padded k and m.

    Indices are formed by groups of 8 channels, so that TVM can prove that the 8 elements of a 16-byte copy share a
    pixel.
    """
    groups, taps, width = shape.channels // VECTOR, shape.kernel_w, shape.out_width
    down, right = shape.strides
    plain = shape.kernel_h == shape.kernel_w == down == right == 1 and not shape.pad

    def value(X: Any, m: Any, k: Any) -> Any:
        zero, group = tirx.const(0, "float16"), k // VECTOR
        inside = [group < shape.k // VECTOR] if length != shape.k else []
        if plain:
            inside += [m < shape.m] if rows != shape.m else []
            return tirx.if_then_else(tirx.all(*inside), X[m, k], zero) if inside else X[m, k]
        h = m // width * down + group // (taps * groups) * shape.dilation - shape.pad
        w = m % width * right + group // groups % taps * shape.dilation - shape.pad
        inside.append(h < shape.height)  # rows past the last come from the kernel or from rounding m up
        if shape.pad:
            inside += [h >= 0, w >= 0, w < shape.width]
        channel = group % groups * VECTOR + k % VECTOR
        return tirx.if_then_else(tirx.all(*inside), X[h * shape.width + w, channel], zero)

    return value


def target(shape: Convolution) -> Any:
    """Return a function (m, n) -> indices of C[m, n] in the result."""
    s, width, first, outputs = shape.scale, shape.out_width, shape.first, shape.outputs

    def place(m: Any, n: Any) -> Any:
        if s == 1:
            return m
        row, column = m // width * s + n // (outputs * s), m % width * s + n // outputs % s
        return row * (width * s) + column

    def in_plane(m: Any, n: Any) -> tuple[Any, Any]:
        """Return the indices of C[m, n] in a plane: pairs of channels share one, so that they are written together."""
        pair, start = n // 2, sum(shape.planes)
        place = None
        for count in reversed(shape.planes):
            start -= count
            here = start * shape.m + m * count + (2 * pair - start)
            place = here if place is None else tirx.if_then_else(pair < (start + count) // 2, here, place)
        place = place + n % 2
        return place // outputs, place % outputs

    return in_plane if shape.planes else (lambda m, n: (place(m, n), first + (n if s == 1 else n % outputs)))


def convolution(shape: Convolution, tile: Tile) -> Any:
    """Return conv(X[pixels, channels], W[n, k], B[outputs], (R,) O[pixels, total]); k is rounded up to whole steps.

    With splits it is conv(X, W, P[splits, m, n]), to be finished by `reduction`.
    """
    rows, length = round_up(shape.m, tile.rows), round_up(shape.k, tile.depth * tile.splits)
    return _split(shape, tile, rows, length) if tile.splits > 1 else _whole(shape, rows, length)


def _whole(shape: Convolution, rows: int, length: int) -> Any:
    m_all, n_all, outputs = shape.m, shape.n, shape.outputs
    pixels, channels = shape.height * shape.width, shape.channels
    results, total = shape.pixels, shape.total or shape.outputs
    a, at = pixel(shape, length, rows), target(shape)
    act = function(shape.final)  # after rounding: the same values under ReLU

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
                    C[m, n] = T.float32(0)
                C[m, n] = C[m, n] + T.Cast("float32", A[m, k]) * T.Cast("float32", W[n, k])

    if not shape.residual:

        @T.prim_func(s_tir=True, private=True)
        def conv(
            X: T.Buffer((pixels, channels), "float16"),
            W: T.Buffer((n_all, length), "float16"),
            B: T.Buffer((outputs,), "float32"),
            O: T.Buffer((results, total), "float16"),
        ):
            T.func_attr(_ATTRIBUTES)
            A = T.sblock_alloc_buffer((rows, length), "float16")
            C = T.sblock_alloc_buffer((rows, n_all), "float32")
            products(X, W, A, C)
            for x, y in T.grid(m_all, n_all):
                with T.sblock("out"):
                    m, n = T.axis.remap("SS", [x, y])
                    O[at(m, n)[0], at(m, n)[1]] = act(T.Cast("float16", C[m, n] + B[n % outputs]))

        return conv

    @T.prim_func(s_tir=True, private=True)
    def conv_add(
        X: T.Buffer((pixels, channels), "float16"),
        W: T.Buffer((n_all, length), "float16"),
        B: T.Buffer((outputs,), "float32"),
        R: T.Buffer((results, total), "float16"),
        O: T.Buffer((results, total), "float16"),
    ):
        T.func_attr(_ATTRIBUTES)
        A = T.sblock_alloc_buffer((rows, length), "float16")
        C = T.sblock_alloc_buffer((rows, n_all), "float32")
        products(X, W, A, C)
        for x, y in T.grid(m_all, n_all):
            with T.sblock("out"):
                m, n = T.axis.remap("SS", [x, y])
                O[at(m, n)[0], at(m, n)[1]] = act(
                    T.Cast("float16", C[m, n] + B[n % outputs] + T.Cast("float32", R[at(m, n)[0], at(m, n)[1]]))
                )

    return conv_add


def _split(shape: Convolution, tile: Tile, rows: int, length: int) -> Any:
    m_all, n_all, parts = shape.m, shape.n, tile.splits
    pixels, channels, part = shape.height * shape.width, shape.channels, length // tile.splits
    a = pixel(shape, length, rows)

    @T.prim_func(s_tir=True, private=True)
    def conv_part(
        X: T.Buffer((pixels, channels), "float16"),
        W: T.Buffer((n_all, length), "float16"),
        P: T.Buffer((parts, m_all, n_all), "float32"),
    ):
        T.func_attr(_ATTRIBUTES)
        A = T.sblock_alloc_buffer((rows, length), "float16")
        C = T.sblock_alloc_buffer((parts, rows, n_all), "float32")
        for x, y in T.grid(rows, length):
            with T.sblock("A"):
                m, k = T.axis.remap("SS", [x, y])
                A[m, k] = a(X, m, k)
        for v, x, y, z in T.grid(parts, rows, n_all, part):
            with T.sblock("C"):
                s, m, n, k = T.axis.remap("SSSR", [v, x, y, z])
                with T.init():
                    C[s, m, n] = T.float32(0)
                C[s, m, n] = C[s, m, n] + T.Cast("float32", A[m, s * part + k]) * T.Cast("float32", W[n, s * part + k])
        for v, x, y in T.grid(parts, m_all, n_all):
            with T.sblock("out"):
                s, m, n = T.axis.remap("SSS", [v, x, y])
                P[s, m, n] = C[s, m, n]

    return conv_part
