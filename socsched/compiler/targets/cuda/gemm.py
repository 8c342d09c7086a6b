# mypy: ignore-errors
# ruff: noqa: E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""Convolution as an implicit GEMM on tensor cores, in fp16 or in bytes: the computation, not yet scheduled.

The matrix A of shifted pixels is never stored: scheduling (`schedule.py`) inlines it into the copy from global to
shared memory, where pixels outside the image become zeros, and inlines the epilogue into the copy back.

Bytes are stored in pairs that are copied as one fp16 each, so that tiles, swizzle and asynchronous copies are those of
fp16: in their `Convolution` `channels` and k count pairs.  Zero is stored as zero for signed and unsigned values, so
that pixels outside the image are the copies' zero fill.  Sums are requantised by the rule of `quantize.fixed_point` on
their way out, in 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from socsched.compiler.environment import T, tirx
from socsched.compiler.quantize.epilogue import Epilogue
from socsched.compiler.targets.cuda.activation import function
from socsched.compiler.targets.cuda.intrinsics import HALVES, SIGNED, UNSIGNED, Family
from socsched.compiler.targets.cuda.tiles import VECTOR, Convolution, Tile, round_up

_ATTRIBUTES = {"tirx.noalias": True}


class Halves:
    """The arithmetic of a product in fp16 with fp32 sums; its table holds the biases."""

    family, dtype, table_dtype = HALVES, "float16", "float32"

    def __init__(self, shape: Convolution) -> None:
        self.added = "float16" if shape.residual else ""
        self.inner = shape.inner
        self.act = function(shape.final)  # after rounding: the same values under ReLU

    def table(self, outputs: int) -> tuple[int, ...]:
        return (outputs,)

    def result(self, total: Any, B: Any, n: Any, other: Any, outputs: int) -> Any:
        """Return what is stored for the sum of column n, with another image's element added if there is one."""
        total = total + B[n % outputs]
        if other is not None and not self.inner:
            total = total + T.Cast("float32", other)
        return self.end(total, B, n, other, outputs)

    def start(self, B: Any, n: Any, v: Any, other: Any, outputs: int) -> Any:
        """Return the first term of a sum of parts, for column n + v."""
        bias = B[n % outputs + v]
        return bias if other is None or self.inner else bias + T.Cast("float32", other)

    def end(self, total: Any, B: Any, n: Any, other: Any, outputs: int) -> Any:
        """Return what is stored for a sum of parts."""
        value = T.Cast("float16", total)
        if self.inner:
            value = T.Cast("float16", T.Cast("float32", function(self.inner)(value)) + T.Cast("float32", other))
        return self.act(value)


@dataclass(frozen=True, slots=True)
class Bytes:
    """That of a product of bytes: whether its source is `signed`, its `epilogue`, and the dtype `added`, "" for none.

    The table is the epilogue's: bias, low, high and multiplier, or bias and the bits of an fp32 factor.
    """

    signed: bool
    epilogue: Epilogue
    added: str = ""

    @property
    def family(self) -> Family:
        """The tensor-core product."""
        return SIGNED if self.signed else UNSIGNED

    @property
    def dtype(self) -> str:
        return self.epilogue.dtype

    @property
    def table_dtype(self) -> str:
        return "int32"

    def table(self, outputs: int) -> tuple[int, ...]:
        return (self.epilogue.rows, outputs)

    def result(self, total: Any, B: Any, n: Any, other: Any, outputs: int) -> Any:
        """Return what is stored for a sum; the table's last row stands in for missing ones."""
        rows = [B[min(row, self.epilogue.rows - 1), n % outputs] for row in range(4)]
        return self.epilogue(total + rows[0], *rows[1:], other)

    def start(self, B: Any, n: Any, v: Any, other: Any, outputs: int) -> Any:
        return T.int32(0)

    end = result


Form = Halves | Bytes


def without_operand(function: Any, name: str) -> Any:
    """Return a kernel without an operand that its body does not read."""
    params = [buffer for buffer in function.params if buffer.name != name]
    return tirx.PrimFunc(params, function.body, function.ret_type, function.attrs)


def pixel(shape: Convolution, length: int, rows: int) -> Any:
    """Return a function (X, m, k, g) -> A[m, k] of group g; `length` and `rows` are the padded k and m.

    Indices are formed by groups of 8 channels, so that TVM can prove that the 8 elements of a 16-byte copy share a
    pixel.
    """
    own = shape.channels // shape.groups
    groups, taps, width = own // VECTOR, shape.kernel_w, shape.out_width
    down, right = shape.strides
    plain = shape.kernel_h == shape.kernel_w == down == right == 1 and not shape.pad

    def value(X: Any, m: Any, k: Any, g: Any = 0) -> Any:
        zero, group = tirx.const(0, "float16"), k // VECTOR
        inside = [group < shape.k // VECTOR] if length != shape.k else []
        if plain:
            inside += [m < shape.m] if rows != shape.m else []
            found = X[m, g * own + k]
            return tirx.if_then_else(tirx.all(*inside), found, zero) if inside else found
        h = m // width * down + group // (taps * groups) * shape.dilation - shape.pad
        w = m % width * right + group // groups % taps * shape.dilation - shape.pad
        inside.append(h < shape.height)  # rows past the last come from the kernel or from rounding m up
        if shape.pad:
            inside += [h >= 0, w >= 0, w < shape.width]
        channel = g * own + group % groups * VECTOR + k % VECTOR
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


def _added(shape: Convolution, form: Form) -> Any:
    """Return a function (R, m, n, v) -> the element that is added to C[m, n + v], None where nothing is."""
    at = target(shape)
    return lambda R, m, n, v=0: R[at(m, n)[0], at(m, n)[1] + v] if form.added else None


def convolution(shape: Convolution, tile: Tile, form: Form | None = None) -> Any:
    """Return conv(X[pixels, channels], W[n, k], B, (R,) O[pixels, total]); k is rounded up to whole steps.

    B is the table of `form`, by default of `Halves`; R is there if another image is added.  With splits it is
    conv(X, W, P[splits, m, n]), to be finished by `reduction`.
    """
    form = form or Halves(shape)
    rows, length = round_up(shape.m, tile.rows), round_up(shape.k, tile.depth * tile.splits)
    if shape.groups > 1:
        return _grouped(shape, rows, length, form)
    if tile.splits > 1:
        return _split(shape, tile, rows, length, form)
    m_all, n_all, sums, product = shape.m, shape.n, form.family.sums, form.family.product
    pixels, channels = shape.height * shape.width, shape.channels
    results, total = shape.pixels, shape.total or shape.outputs
    outputs, table, table_dtype, dtype, added = (
        shape.outputs,
        form.table(shape.outputs),
        form.table_dtype,
        form.dtype,
        form.added,
    )
    a, at, result, other = pixel(shape, length, rows), target(shape), form.result, _added(shape, form)

    @T.prim_func(s_tir=True, private=True)
    def conv_add(
        X: T.Buffer((pixels, channels), "float16"),
        W: T.Buffer((n_all, length), "float16"),
        B: T.Buffer(table, table_dtype),
        R: T.Buffer((results, total), added or dtype),
        O: T.Buffer((results, total), dtype),
    ):
        T.func_attr(_ATTRIBUTES)
        A = T.sblock_alloc_buffer((rows, length), "float16")
        C = T.sblock_alloc_buffer((rows, n_all), sums)
        for x, y in T.grid(rows, length):
            with T.sblock("A"):
                m, k = T.axis.remap("SS", [x, y])
                A[m, k] = a(X, m, k)
        for x, y, z in T.grid(rows, n_all, length):
            with T.sblock("C"):
                m, n, k = T.axis.remap("SSR", [x, y, z])
                with T.init():
                    C[m, n] = tirx.const(0, sums)
                C[m, n] = C[m, n] + product(A[m, k], W[n, k])
        for x, y in T.grid(m_all, n_all):
            with T.sblock("out"):
                m, n = T.axis.remap("SS", [x, y])
                O[at(m, n)[0], at(m, n)[1]] = result(C[m, n], B, n, other(R, m, n), outputs)

    return conv_add if added else without_operand(conv_add, "R")


def row(shape: Convolution) -> Any:
    """Return row(X[1, k], W[n, k], B, (R,) O[n, 1]): the product of a single pixel, whose sums no tile would share."""
    form, n_all, length, outputs = Halves(shape), shape.n, shape.channels, shape.outputs
    result, added, wide = form.result, form.added, shape.outputs

    def other(R: Any, n: Any) -> Any:
        return R[0, n] if added else None

    @T.prim_func(s_tir=True, private=True)
    def row_add(
        X: T.Buffer((1, length), "float16"),
        W: T.Buffer((n_all, length), "float16"),
        B: T.Buffer((outputs,), "float32"),
        R: T.Buffer((1, wide), "float16"),
        O: T.Buffer((n_all, 1), "float16"),
    ):
        T.func_attr(_ATTRIBUTES)
        S = T.sblock_alloc_buffer((n_all,), "float32")
        for x, y in T.grid(n_all, length):
            with T.sblock("sum"):
                n, k = T.axis.remap("SR", [x, y])
                with T.init():
                    S[n] = T.float32(0)
                S[n] = S[n] + T.Cast("float32", X[0, k]) * T.Cast("float32", W[n, k])
        for x, y in T.grid(n_all, 1):
            with T.sblock("out"):
                n, v = T.axis.remap("SS", [x, y])
                O[n, v] = result(S[n], B, n, other(R, n), outputs)

    return row_add if added else without_operand(row_add, "R")


def _grouped(shape: Convolution, rows: int, length: int, form: Halves) -> Any:
    m_all, n_all, wide, groups = shape.m, shape.n, shape.wide, shape.groups
    pixels, channels, outputs = shape.height * shape.width, shape.channels, shape.outputs
    results, total = shape.pixels, shape.total or shape.outputs
    a, at, result, other, product = (
        pixel(shape, length, rows),
        target(shape),
        form.result,
        _added(shape, form),
        form.family.product,
    )

    @T.prim_func(s_tir=True, private=True)
    def conv_add(
        X: T.Buffer((pixels, channels), "float16"),
        W: T.Buffer((n_all, length), "float16"),
        B: T.Buffer((outputs,), "float32"),
        R: T.Buffer((results, total), "float16"),
        O: T.Buffer((results, total), "float16"),
    ):
        T.func_attr(_ATTRIBUTES)
        A = T.sblock_alloc_buffer((groups, rows, length), "float16")
        C = T.sblock_alloc_buffer((groups, rows, wide), "float32")
        for u, x, y in T.grid(groups, rows, length):
            with T.sblock("A"):
                g, m, k = T.axis.remap("SSS", [u, x, y])
                A[g, m, k] = a(X, m, k, g)
        for u, x, y, z in T.grid(groups, rows, wide, length):
            with T.sblock("C"):
                g, m, n, k = T.axis.remap("SSSR", [u, x, y, z])
                with T.init():
                    C[g, m, n] = T.float32(0)
                C[g, m, n] = C[g, m, n] + product(A[g, m, k], W[g * wide + n, k])
        for u, x, y in T.grid(groups, m_all, wide):
            with T.sblock("out"):
                g, m, n = T.axis.remap("SSS", [u, x, y])
                O[at(m, g * wide + n)[0], at(m, g * wide + n)[1]] = result(
                    C[g, m, n], B, g * wide + n, other(R, m, g * wide + n), outputs
                )

    return conv_add if form.added else without_operand(conv_add, "R")


def _split(shape: Convolution, tile: Tile, rows: int, length: int, form: Form) -> Any:
    m_all, n_all, parts = shape.m, shape.n, tile.splits
    pixels, channels, part = shape.height * shape.width, shape.channels, length // tile.splits
    a, sums, product = pixel(shape, length, rows), form.family.sums, form.family.product

    @T.prim_func(s_tir=True, private=True)
    def conv_part(
        X: T.Buffer((pixels, channels), "float16"),
        W: T.Buffer((n_all, length), "float16"),
        P: T.Buffer((parts, m_all, n_all), sums),
    ):
        T.func_attr(_ATTRIBUTES)
        A = T.sblock_alloc_buffer((rows, length), "float16")
        C = T.sblock_alloc_buffer((parts, rows, n_all), sums)
        for x, y in T.grid(rows, length):
            with T.sblock("A"):
                m, k = T.axis.remap("SS", [x, y])
                A[m, k] = a(X, m, k)
        for v, x, y, z in T.grid(parts, rows, n_all, part):
            with T.sblock("C"):
                s, m, n, k = T.axis.remap("SSSR", [v, x, y, z])
                with T.init():
                    C[s, m, n] = tirx.const(0, sums)
                C[s, m, n] = C[s, m, n] + product(A[m, s * part + k], W[n, s * part + k])
        for v, x, y in T.grid(parts, m_all, n_all):
            with T.sblock("out"):
                s, m, n = T.axis.remap("SSS", [v, x, y])
                P[s, m, n] = C[s, m, n]

    return conv_part


def reduction(shape: Convolution, parts: int, form: Form | None = None) -> Any:
    """Return finish(P[parts, m, n], B, (R,) O): add the parts of a split product, then apply the epilogue."""
    form = form or Halves(shape)
    m, n, sums, at = shape.m, shape.n, form.family.sums, target(shape)
    results, total, quads = shape.pixels, shape.total or shape.outputs, n // 4
    outputs, table, table_dtype, dtype, added = (
        shape.outputs,
        form.table(shape.outputs),
        form.table_dtype,
        form.dtype,
        form.added,
    )
    start, end, other, adds = form.start, form.end, _added(shape, form), bool(added)
    everything = tuple(slice(0, size) for size in table)

    @T.prim_func(s_tir=True, private=True)
    def finish_add(
        P: T.Buffer((parts, m, n), sums),
        B: T.Buffer(table, table_dtype),
        R: T.Buffer((results, total), added or dtype),
        O: T.Buffer((results, total), dtype),
    ):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(m, quads):
            with T.sblock("sum"):
                i, q = T.axis.remap("SS", [x, y])
                if adds:
                    T.reads(P[0:parts, i, q * 4 : q * 4 + 4], B[everything], R[0:results, 0:total])
                else:
                    T.reads(P[0:parts, i, q * 4 : q * 4 + 4], B[everything])
                T.writes(O[0:results, 0:total])
                acc = T.sblock_alloc_buffer((4,), sums, scope="local")
                for v in T.vectorized(4):
                    acc[v] = start(B, q * 4, v, other(R, i, q * 4, v), outputs)
                for s in T.unroll(parts):
                    for v in T.vectorized(4):
                        acc[v] = acc[v] + P[s, i, q * 4 + v]
                for v in T.vectorized(4):
                    O[at(i, q * 4)[0], at(i, q * 4)[1] + v] = end(acc[v], B, q * 4 + v, other(R, i, q * 4, v), outputs)

    return finish_add if added else without_operand(finish_add, "R")
