# mypy: ignore-errors
# ruff: noqa: E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""Batches of products of two computed tensors on tensor cores, as attention has: the computation, and its tile.

As in `gemm.py` the padded operands are never stored: scheduling inlines them into the copies to shared memory, where
what lies outside becomes zeros.  The batch is the third dimension of the grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from socsched.compiler.environment import T, tirx
from socsched.compiler.targets.cuda.shapes import EDGE, VECTOR, Convolution, Tile, round_up
from socsched.compiler.targets.cuda.tiles import candidates, estimate
from socsched.errors import CompileError

_ATTRIBUTES = {"tirx.noalias": True}
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
