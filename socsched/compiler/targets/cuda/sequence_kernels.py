# mypy: ignore-errors
# ruff: noqa: E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""GPU kernels over the rows of plain tensors in fp16: softmax, layer norm, and the operand of a product turned.

A warp computes a row, with sums in fp32; `by_rows` binds the loops to threads.  Unbound kernels also run on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from socsched.compiler.environment import T, s_tir, tirx
from socsched.compiler.targets.cuda.tiles import EDGE, LANES, VECTOR, Convolution, Tile, candidates, estimate, round_up
from socsched.errors import CompileError

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


PADDED = ("A", "W")
"""The blocks of padded operands."""


@dataclass(frozen=True, slots=True)
class Product:
    """C[s, m, n] = sum_k A[s, m, k] W[s, n, k] for `batch` values of s.

    `left`, `right`: columns of the operands in memory, multiples of 8.  An operand is [rows, batch * columns] if its
    matrices are `inside` the rows, else [batch * rows, columns]; so is the result, with `held` columns (16, 32, ...).
    """

    batch: int
    m: int
    n: int
    left: int
    right: int
    held: int
    left_inside: bool = False
    right_inside: bool = False
    inside: bool = False

    @property
    def k(self) -> int:
        """Return the length of the sums: further columns of the longer operand meet zeros."""
        return min(self.left, self.right)

    def sides(self, rows: int, columns: int, inside: bool) -> tuple[int, int]:
        """Return the rows and columns of a batch of matrices in memory."""
        return (rows, self.batch * columns) if inside else (self.batch * rows, columns)


@cache
def tile_of(shape: Product, arch: str) -> Tile:
    """Return the fastest tile by the model of `tiles.estimate`; CompileError if none fits."""
    one = Convolution(shape.m, 1, round_up(shape.k, EDGE), shape.held)
    all_of_them = Convolution(shape.m * shape.batch, 1, round_up(shape.k, EDGE), shape.held)
    fitting = [tile for tile in candidates(one, arch) if tile.splits == 1]
    if not fitting:
        raise CompileError(f"no tile fits products of {shape.m} x {shape.n} x {shape.k}", "report this shape")
    return min(fitting, key=lambda tile: estimate(all_of_them, tile, arch))


def product(shape: Product, tile: Tile) -> Any:
    """Return product(X, Y, O), not yet scheduled."""
    rows, length = round_up(shape.m, tile.rows), round_up(shape.k, tile.depth)
    batch, held = shape.batch, shape.held
    a = _padded(shape.m, shape.k, shape.left, shape.left_inside, rows, length)
    w = _padded(shape.n, shape.k, shape.right, shape.right_inside, held, length)
    x_rows, x_columns = shape.sides(shape.m, shape.left, shape.left_inside)
    y_rows, y_columns = shape.sides(shape.n, shape.right, shape.right_inside)
    o_rows, o_columns = shape.sides(shape.m, held, shape.inside)
    m_all, inside = shape.m, shape.inside

    @T.prim_func(s_tir=True, private=True)
    def products(
        X: T.Buffer((x_rows, x_columns), "float16"),
        Y: T.Buffer((y_rows, y_columns), "float16"),
        O: T.Buffer((o_rows, o_columns), "float16"),
    ):
        T.func_attr(_ATTRIBUTES)
        A = T.sblock_alloc_buffer((batch, rows, length), "float16")
        W = T.sblock_alloc_buffer((batch, held, length), "float16")
        C = T.sblock_alloc_buffer((batch, rows, held), "float32")
        for u, x, y in T.grid(batch, rows, length):
            with T.sblock("A"):
                s, m, k = T.axis.remap("SSS", [u, x, y])
                A[s, m, k] = a(X, s, m, k)
        for u, x, y in T.grid(batch, held, length):
            with T.sblock("W"):
                s, n, k = T.axis.remap("SSS", [u, x, y])
                W[s, n, k] = w(Y, s, n, k)
        for u, x, y, z in T.grid(batch, rows, held, length):
            with T.sblock("C"):
                s, m, n, k = T.axis.remap("SSSR", [u, x, y, z])
                with T.init():
                    C[s, m, n] = T.float32(0)
                C[s, m, n] = C[s, m, n] + T.Cast("float32", A[s, m, k]) * T.Cast("float32", W[s, n, k])
        for u, x, y in T.grid(batch, m_all, held):
            with T.sblock("out"):
                s, m, n = T.axis.remap("SSS", [u, x, y])
                O[m if inside else s * m_all + m, s * held + n if inside else n] = T.Cast("float16", C[s, m, n])

    return products


def _padded(count: int, k_all: int, columns: int, inside: bool, rows: int, length: int) -> Any:
    """Return a function (X, s, row, k) -> the element of matrix s, zero outside of `count` rows and `k_all` columns."""

    def value(X: Any, s: Any, row: Any, k: Any) -> Any:
        within = ([row < count] if rows != count else []) + ([k // VECTOR < k_all // VECTOR] if length != k_all else [])
        found = X[row, s * columns + k] if inside else X[s * count + row, k]
        return tirx.if_then_else(tirx.all(*within), found, tirx.const(0, "float16")) if within else found

    return value
