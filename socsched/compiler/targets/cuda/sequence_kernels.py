# mypy: ignore-errors
# ruff: noqa: E741
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""GPU kernels over the rows of plain tensors in fp16: softmax, layer norm, products; and attention as plain loops.

A warp computes a row, with sums in fp32; `by_rows` binds the loops to threads.  Unbound kernels also run on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from socsched.compiler.environment import T, s_tir, te, tirx
from socsched.compiler.targets.cuda.tiles import EDGE, LANES, VECTOR, Convolution, Tile, candidates, estimate, round_up
from socsched.compiler.targets.llvm.kernels import beside, pixel_at, share
from socsched.errors import CompileError

_ATTRIBUTES = {"tirx.noalias": True}
_ROWS = (8, 4, 2, 1)
"""Rows of a block of threads."""


def by_rows(function: Any, rows: int, at_once: bool = False) -> Any:
    """Return a kernel of reductions over rows, and a last block over all elements, bound: a warp to each row.

    `at_once`: a thread asks for all its elements of a row before it adds.
    """
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
        steps, lane = sch.split(sch.get_loops(reduction)[-1], [None, LANES])
        sch.bind(lane, "threadIdx.x")
        if at_once:
            sch.unroll(steps)
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


def softmax_across(length: int, count: int) -> Any:
    """Return softmax(X[length, count], O[length, count]) along the first axis, by a thread for each column."""

    @T.prim_func(s_tir=True, private=True)
    def across(X: T.Buffer((length, count), "float16"), O: T.Buffer((length, count), "float16")):
        T.func_attr(_ATTRIBUTES)
        for x in range(count):
            with T.sblock("column"):
                i = T.axis.spatial(count, x)
                T.reads(X[0:length, i])
                T.writes(O[0:length, i])
                most = T.sblock_alloc_buffer((1,), "float32", scope="local")
                total = T.sblock_alloc_buffer((1,), "float32", scope="local")
                most[0] = T.Cast("float32", X[0, i])
                for k in range(1, length):
                    most[0] = T.max(most[0], T.Cast("float32", X[k, i]))
                total[0] = T.float32(0)
                for k in range(length):
                    total[0] = total[0] + T.exp(T.Cast("float32", X[k, i]) - most[0])
                for k in range(length):
                    O[k, i] = T.Cast("float16", T.exp(T.Cast("float32", X[k, i]) - most[0]) / total[0])

    return across


def sums(length: int, count: int) -> Any:
    """Return sums(X[length, count], O[count]) along the first axis, by a thread for each column."""

    @T.prim_func(s_tir=True, private=True)
    def added(X: T.Buffer((length, count), "float16"), O: T.Buffer((count,), "float16")):
        T.func_attr(_ATTRIBUTES)
        for x in range(count):
            with T.sblock("column"):
                i = T.axis.spatial(count, x)
                T.reads(X[0:length, i])
                T.writes(O[i])
                total = T.sblock_alloc_buffer((1,), "float32", scope="local")
                total[0] = T.float32(0)
                for k in range(length):
                    total[0] = total[0] + T.Cast("float32", X[k, i])
                O[i] = T.Cast("float16", total[0])

    return added


@dataclass(frozen=True, slots=True)
class Points:
    """`rows` of `channels`, each a sum over `points`; `values`, `places`, `weights`: elements of what is read."""

    rows: int
    points: int
    channels: int
    values: int
    weights: int
    places: int = 0


def pooled(shape: Points) -> Any:
    """Return pooled(X[values], A[weights], V[rows, points], W[rows, points], O[rows, channels]).

    O[q] = the sum over k of A[W[q, k]] X[V[q, k] * 8 ...]: rows of channels from wherever they are, in vectors.
    """
    rows, points, groups = shape.rows, shape.points, shape.channels // VECTOR
    values, weights = shape.values, shape.weights

    @T.prim_func(s_tir=True, private=True)
    def summed(
        X: T.Buffer((values,), "float16"),
        A: T.Buffer((weights,), "float16"),
        V: T.Buffer((rows, points), "int32"),
        W: T.Buffer((rows, points), "int32"),
        O: T.Buffer((rows, groups * VECTOR), "float16"),
    ):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(rows, groups):
            with T.sblock("pool"):
                q, g = T.axis.remap("SS", [x, y])
                T.reads(X[0:values], A[0:weights], V[q, 0:points], W[q, 0:points])
                T.writes(O[q, g * VECTOR : g * VECTOR + VECTOR])
                total = T.sblock_alloc_buffer((VECTOR,), "float32", scope="local")
                found = T.sblock_alloc_buffer((VECTOR,), "float16", scope="local")
                for v in T.unroll(VECTOR):
                    total[v] = T.float32(0)
                for k in range(points):
                    for v in T.vectorized(VECTOR):
                        found[v] = X[(V[q, k] + g) * VECTOR + v]
                    for v in T.unroll(VECTOR):
                        total[v] = total[v] + T.Cast("float32", A[W[q, k]]) * T.Cast("float32", found[v])
                for v in T.unroll(VECTOR):
                    found[v] = T.Cast("float16", total[v])
                for v in T.vectorized(VECTOR):
                    O[q, g * VECTOR + v] = found[v]

    return summed


def sampled(shape: Points, align: bool, border: bool) -> Any:
    """Return sampled(X[values], G[places], A[weights], S[points, 3], V, P, W [rows, points], O[rows, channels]).

    O[q] = the sum over k of A[W[q, k]] times what lies at G[P[q, k]], G[P[q, k] + 1] (x, y in -1..1, as of ONNX's
    GridSample) in an image, between four pixels of channels.  It begins at X[V[q, k] * 8] and has S[k, 0] rows of
    S[k, 1] pixels that are S[k, 2] * 8 elements apart.  Outside are zeros, or its `border`.
    """
    rows, points, groups = shape.rows, shape.points, shape.channels // VECTOR
    values, weights, places = shape.values, shape.weights, shape.places

    def at(g, size):
        return pixel_at(g, size, align, border)

    def pixel(place, S, k, i, j):
        return beside(place[1], S[k, 0], i) * S[k, 1] + beside(place[0], S[k, 1], j)

    def both(place, S, k, i, j):
        return share(place[1], S[k, 0], i) * share(place[0], S[k, 1], j)

    @T.prim_func(s_tir=True, private=True)
    def summed(
        X: T.Buffer((values,), "float16"),
        G: T.Buffer((places,), "float16"),
        A: T.Buffer((weights,), "float16"),
        S: T.Buffer((points, 3), "int32"),
        V: T.Buffer((rows, points), "int32"),
        P: T.Buffer((rows, points), "int32"),
        W: T.Buffer((rows, points), "int32"),
        O: T.Buffer((rows, groups * VECTOR), "float16"),
    ):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(rows, groups):
            with T.sblock("sample"):
                q, g = T.axis.remap("SS", [x, y])
                T.reads(X[0:values], G[0:places], A[0:weights], S[0:points, 0:3],
                        V[q, 0:points], P[q, 0:points], W[q, 0:points])  # fmt: skip
                T.writes(O[q, g * VECTOR : g * VECTOR + VECTOR])
                total = T.sblock_alloc_buffer((VECTOR,), "float32", scope="local")
                place = T.sblock_alloc_buffer((2,), "float32", scope="local")
                part = T.sblock_alloc_buffer((4,), "float32", scope="local")
                found = T.sblock_alloc_buffer((4, VECTOR), "float16", scope="local")
                ended = T.sblock_alloc_buffer((VECTOR,), "float16", scope="local")
                for v in T.unroll(VECTOR):
                    total[v] = T.float32(0)
                for k in range(points):
                    place[0] = at(G[P[q, k]], S[k, 1])
                    place[1] = at(G[P[q, k] + 1], S[k, 0])
                    for i in T.unroll(2):
                        for j in T.unroll(2):
                            part[i * 2 + j] = both(place, S, k, i, j) * T.Cast("float32", A[W[q, k]])
                            for v in T.vectorized(VECTOR):
                                found[i * 2 + j, v] = X[(V[q, k] + pixel(place, S, k, i, j) * S[k, 2] + g) * VECTOR + v]
                    for c in T.unroll(4):
                        for v in T.unroll(VECTOR):
                            total[v] = total[v] + part[c] * T.Cast("float32", found[c, v])
                for v in T.unroll(VECTOR):
                    ended[v] = T.Cast("float16", total[v])
                for v in T.vectorized(VECTOR):
                    O[q, g * VECTOR + v] = ended[v]

    return summed


def layer_norm(rows: int, length: int, epsilon: float, given: int, ordered: bool) -> Any:
    """Return layer_norm(X[given, length], G[length], B[length], R[rows], O[rows, length]).

    R: the row of X that each row of O stands for; one number that is not read where they are in order.
    """
    order = rows if ordered else 1

    def at(R: Any, i: Any) -> Any:
        return R[i] if ordered else i

    @T.prim_func(s_tir=True, private=True)
    def normalised(
        X: T.Buffer((given, length), "float16"),
        G: T.Buffer((length,), "float32"),
        B: T.Buffer((length,), "float32"),
        R: T.Buffer((order,), "int32"),
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
                S[i] = S[i] + T.Cast("float32", X[at(R, i), k])
        for x, y in T.grid(rows, length):
            with T.sblock("squares"):
                i, k = T.axis.remap("SR", [x, y])
                with T.init():
                    V[i] = T.float32(0)
                V[i] = V[i] + (T.Cast("float32", X[at(R, i), k]) - S[i] * T.float32(1 / length)) * (
                    T.Cast("float32", X[at(R, i), k]) - S[i] * T.float32(1 / length)
                )
        for x, y in T.grid(rows, length):
            with T.sblock("normal"):
                i, k = T.axis.remap("SS", [x, y])
                O[i, k] = T.Cast(
                    "float16",
                    (T.Cast("float32", X[at(R, i), k]) - S[i] * T.float32(1 / length))
                    * T.rsqrt(V[i] * T.float32(1 / length) + T.float32(epsilon))
                    * G[k]
                    + B[k],
                )

    return normalised


PADDED = ("A", "W")
"""The blocks of padded operands."""


@dataclass(frozen=True, slots=True)
class Product:
    """C[s, m, n] = sum_k A[s, m, k] W[s, n, k] for `batch` values of s.

    `left`, `right`: columns of the operands in memory, multiples of 8; `held`: those of the result (16, 32, ...).  All
    are [batch * rows, columns].
    """

    batch: int
    m: int
    n: int
    left: int
    right: int
    held: int

    @property
    def k(self) -> int:
        """Return the length of the sums: further columns of the longer operand meet zeros."""
        return min(self.left, self.right)


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
    a, w = _padded(shape.m, shape.k, rows, length), _padded(shape.n, shape.k, held, length)
    m_all, n_all, left, right = shape.m, shape.n, shape.left, shape.right

    @T.prim_func(s_tir=True, private=True)
    def products(
        X: T.Buffer((batch * m_all, left), "float16"),
        Y: T.Buffer((batch * n_all, right), "float16"),
        O: T.Buffer((batch * m_all, held), "float16"),
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
                O[s * m_all + m, n] = T.Cast("float16", C[s, m, n])

    return products


def _padded(count: int, k_all: int, rows: int, length: int) -> Any:
    """Return a function (X, s, row, k) -> the element of matrix s, zero outside of `count` rows and `k_all` columns."""

    def value(X: Any, s: Any, row: Any, k: Any) -> Any:
        within = ([row < count] if rows != count else []) + ([k // VECTOR < k_all // VECTOR] if length != k_all else [])
        found = X[s * count + row, k]
        return tirx.if_then_else(tirx.all(*within), found, tirx.const(0, "float16")) if within else found

    return value


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Scores of `rows` by `length` for each of a `batch`, whose last dimension is the `heads` of `width` columns.

    `biases`: how many tables of biases there are, for every `biases`-th of the batch one; `factor` multiplies products.
    """

    batch: int
    heads: int
    rows: int
    length: int
    width: int
    biases: int
    factor: float


def bias_table(shape: AttentionShape) -> tuple[int, int, int]:
    """Return the shape of the tables of biases, of one that is not read where there are none."""
    return (shape.biases, shape.rows, round_up(shape.length, VECTOR)) if shape.biases else (1, 1, VECTOR)


def attention(shape: AttentionShape, steps: tuple[int, ...], sizes: tuple[int, ...]) -> Any:
    """Return attention(Q, K, V, q, k, v, B, O) as plain loops, which a CPU runs: what `attention.attention_kernel`
    computes.
    """
    batch, heads, rows, length, width = shape.batch, shape.heads, shape.rows, shape.length, shape.width
    size = (batch, rows, length)
    Q, K, V = (te.placeholder((count,), "float16", name) for count, name in zip(sizes, "QKV", strict=True))
    q, k, v = (te.placeholder((batch,), "int32", name) for name in "qkv")
    bias = te.placeholder(bias_table(shape), "float16", "B")
    d, t, w = (te.reduce_axis((0, extent), name) for extent, name in ((width, "d"), (length, "t"), (length, "w")))

    def wide(value: Any) -> Any:
        return T.Cast("float32", value)

    raw = te.compute(
        size,
        lambda s, i, j: te.sum(wide(Q[q[s] + i * steps[0] + d]) * wide(K[k[s] + j * steps[1] + d]), d),
    )

    def score(s: Any, i: Any, j: Any) -> Any:
        value = raw[s, i, j] * T.float32(shape.factor)
        return value + wide(bias[s % shape.biases, i, j]) if shape.biases else value

    scores = te.compute(size, score)
    most = te.compute(size[:2], lambda s, i: te.max(scores[s, i, t], t))
    shares = te.compute(size, lambda s, i, j: T.exp(scores[s, i, j] - most[s, i]))
    total = te.compute(size[:2], lambda s, i: te.sum(shares[s, i, w], w))
    u = te.reduce_axis((0, length), "u")
    mixed = te.compute(
        (batch, rows, width), lambda s, i, c: te.sum(shares[s, i, u] * wide(V[v[s] + u * steps[2] + c]), u)
    )

    def ended(r: Any, c: Any) -> Any:
        s, i = r // (rows * heads) * heads + r % heads, r // heads % rows
        return T.Cast("float16", mixed[s, i, c] / total[s, i])

    result = te.compute((batch * rows, width), ended)
    made = te.create_prim_func([Q, K, V, q, k, v, bias, result])
    return made.without_attr("global_symbol").with_attr("tirx.noalias", True)
