# mypy: ignore-errors
# ruff: noqa: E741, B023
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""CPU kernels other than convolutions on channel-blocked activations: finished PrimFuncs, no schedule is applied.

An activation is [C/c, H + 2b, W + 2b, c]: blocks of c channels with a zero border of b pixels written by the producer,
so that a convolution never tests for the edge.  Every kernel writes output blocks from `first` on in a tensor of
`total` blocks: several kernels can fill one tensor, which makes concatenation free.  Channels beyond the logical ones
are zero, because their weights are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from socsched.compiler.environment import T, tirx
from socsched.compiler.targets.llvm.fuse import Activation, apply_activation, exponential, finish, function
from socsched.compiler.targets.llvm.vector import Lying, Product, Tile, Window

_NO_ALIAS = {"tirx.noalias": True, "tirx.is_scheduled": True}


def wide(value: Any) -> Any:
    """Return a number as float32."""
    return value.astype("float32")


def zero(buffer: Any) -> Any:
    """Return a zero of a buffer's type."""
    return tirx.const(0, buffer.dtype)


def fetch(buffer: Any, *at: Any, write: bool = False) -> Any:
    """Return the instruction that prefetches an element's cache line into the first-level cache."""
    return tirx.call_intrin("void", "tirx.prefetch", T.address_of(buffer[at]), int(write), 3, 1)


def whole(*buffers: Any) -> list[Any]:
    """Return all of each buffer, as blocks state what they read and write."""
    return [buffer[tuple(slice(0, int(size)) for size in buffer.shape)] for buffer in buffers]


@T.macro
def blank_row(O, block, y, width, c, blank):
    """Fill a row of a block, borders included."""
    for x in range(width):
        for v in T.vectorized(c):
            O[block, y, x, v] = blank


@T.macro
def blank_sides(O, block, y, width, border, c, blank):
    """Fill what is left and right of a row's pixels; `width` includes both borders."""
    for e in range(border):
        for v in T.vectorized(c):
            O[block, y, e, v] = blank
        for v in T.vectorized(c):
            O[block, y, width - 1 - e, v] = blank


@T.macro
def blank_ends(O, block, height, width, border, c):
    """Write zeros over the rows above and below an image; `height` and `width` include both borders."""
    for e in range(border):
        blank_row(O, block, e, width, c, zero(O))
        blank_row(O, block, height - 1 - e, width, c, zero(O))


@T.macro
def over_tile(sums, tile, value):
    """Set the sums of a register tile (blocks, pixels, lanes), each to value(block, pixel, lane)."""
    for o in T.unroll(tile[0]):
        for t in T.unroll(tile[1]):
            for v in T.vectorized(tile[2]):
                sums[o, t, v] = value(o, t, v)


@T.macro
def add_products(sums, tile, ci, pixel, weight):
    """Add the products of `ci` channels to a register tile: pixel(t, k) from memory times weight(o, k, v)."""
    for k in range(ci):
        over_tile(sums, tile, lambda o, t, v: sums[o, t, v] + pixel(t, k) * weight(o, k, v))


@T.macro
def add_lanes(sums, near, tile, ci, pixel, weight):
    """Add the products of `ci` channels, whose pixels are first loaded into registers, `near`."""
    for t in T.unroll(tile[1]):
        for k in T.vectorized(ci):
            near[t, k] = pixel(t, k)
    for k in T.unroll(ci):
        over_tile(sums, tile, lambda o, t, v: sums[o, t, v] + near[t, k] * weight(o, k, v))


def pixelwise(
    target: Lying, value: Callable[..., Any], sources: Sequence[tuple[tuple[int, ...], str]], blank: int = 0
) -> Any:
    """Return kernel(X, O) or, of two `sources` (shape and dtype), kernel(X, Y, O), which fills an image's blocks.

    A pixel is value(X, Y, block, row, column, lane), the border `blank`.
    """
    blocks, c, height, width = target.blocks, target.block, target.height, target.width
    total, ph, pw, _ = target.shape
    border, first, dtype, edge = target.border, target.first, target.dtype, tirx.const(blank, target.dtype)
    (x_shape, x_dtype), (y_shape, y_dtype) = sources[0], sources[-1]

    @T.macro
    def rows(X, Y, O, read):
        for task in T.parallel(blocks * ph):
            with T.sblock("row"):
                r = T.axis.spatial(blocks * ph, task)
                T.reads(*read)
                T.writes(*whole(O))
                if T.Or(r % ph < border, r % ph >= height + border):
                    blank_row(O, first + r // ph, r % ph, pw, c, edge)
                else:
                    blank_sides(O, first + r // ph, r % ph, pw, border, c, edge)
                    for x in range(width):
                        for v in T.vectorized(c):
                            O[first + r // ph, r % ph, x + border, v] = value(*(X, Y, r // ph, r % ph - border, x, v))

    if len(sources) > 1:

        @T.prim_func(s_tir=True, private=True)
        def of_two(
            X: T.Buffer(x_shape, x_dtype), Y: T.Buffer(y_shape, y_dtype), O: T.Buffer((total, ph, pw, c), dtype)
        ):
            T.func_attr(_NO_ALIAS)
            rows(X, Y, O, whole(X, Y))

        return of_two

    @T.prim_func(s_tir=True, private=True)
    def of_one(X: T.Buffer(x_shape, x_dtype), O: T.Buffer((total, ph, pw, c), dtype)):
        T.func_attr(_NO_ALIAS)
        rows(X, X, O, whole(X))

    return of_one


def map_kernel(source: Lying, target: Lying, activation: Activation) -> Any:
    """Return map(X, O): an element-wise function, from blocks `source.first` to blocks `target.first` onwards."""
    border, start, act = source.border, source.first, apply_activation(activation, target.dtype)

    def value(X, _, g, y, x, v):
        return act(X[start + g, y + border, x + border, v])

    return pixelwise(target, value, [(source.shape, target.dtype)])


def binary_kernel(left: Lying, right: Lying, target: Lying, op: str, activation: Activation) -> Any:
    """Return op(X, Y, O): add, subtract, multiply, maximum or minimum; a 1x1 image is broadcast over the other."""
    lb, rb, act, combine = left.border, right.border, apply_activation(activation, target.dtype), _BINARY[op]
    ly, lx, ry, rx = (int(size > 1) for size in (left.height, left.width, right.height, right.width))

    def value(X, Y, g, y, x, v):
        return act(combine(X[g, y * ly + lb, x * lx + lb, v], Y[g, y * ry + rb, x * rx + rb, v]))

    return pixelwise(target, value, [(left.shape, target.dtype), (right.shape, target.dtype)])


_BINARY = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "maximum": lambda x, y: T.max(x, y),
    "minimum": lambda x, y: T.min(x, y),
}


def pool(source: Lying, target: Lying, window: Window, average: str, blank: int = 0) -> Any:
    """Return pool(X, O): the maximum over a window, or its mean; the border of O is `blank`.

    `average` is "" for the maximum, "inside" for the mean of the pixels inside the image, "all" for that of the whole
    window (outside counts as zero); pixels outside are never part of a maximum.
    """
    (kh, kw), (sh, sw), (top, left) = window.kernel, window.stride, window.pad
    blocks, c, height, width = target.blocks, target.block, source.height, source.width
    _, ih, iw, _ = source.shape
    _, ph, pw, _ = target.shape
    oh, ow, b_in, b_out = target.height, target.width, source.border, target.border
    dtype, edge = target.dtype, tirx.const(blank, target.dtype)
    kept = "float32" if average else dtype
    start = T.float32(0) if average else T.min_value(dtype)
    take = (lambda x, y: x + y.astype("float32")) if average else (lambda x, y: T.max(x, y))
    whole = float(kh * kw)

    def size(y, x):
        if average != "inside":
            return T.float32(whole)
        rows = T.min(y * sh + kh - top, height) - T.max(y * sh - top, 0)
        columns = T.min(x * sw + kw - left, width) - T.max(x * sw - left, 0)
        return T.Cast("float32", rows * columns)

    def done(value, y, x):
        return (value / size(y, x)).astype(dtype) if average else value

    @T.prim_func(s_tir=True, private=True)
    def pool_image(X: T.Buffer((blocks, ih, iw, c), dtype), O: T.Buffer((blocks, ph, pw, c), dtype)):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(blocks * ph):
            with T.sblock("row"):
                r = T.axis.spatial(blocks * ph, task)
                T.reads(X[0:blocks, 0:ih, 0:iw, 0:c])
                T.writes(O[0:blocks, 0:ph, 0:pw, 0:c])
                if T.Or(r % ph < b_out, r % ph >= oh + b_out):
                    blank_row(O, r // ph, r % ph, pw, c, edge)
                else:
                    blank_sides(O, r // ph, r % ph, pw, b_out, c, edge)
                    for x in range(ow):
                        with T.sblock("window"):
                            w = T.axis.spatial(ow, x)
                            T.reads(X[0:blocks, 0:ih, 0:iw, 0:c])
                            T.writes(O[0:blocks, 0:ph, 0:pw, 0:c])
                            found = T.sblock_alloc_buffer((c,), kept)
                            y: T.let[T.int32] = r % ph - b_out
                            for v in T.vectorized(c):
                                found[v] = start
                            for ky, kx in T.grid(kh, kw):
                                if T.And(
                                    T.And(y * sh + ky >= top, y * sh + ky < height + top),
                                    T.And(w * sw + kx >= left, w * sw + kx < width + left),
                                ):
                                    for v in T.vectorized(c):
                                        found[v] = take(
                                            found[v],
                                            X[r // ph, y * sh + ky - top + b_in, w * sw + kx - left + b_in, v],
                                        )
                            for v in T.vectorized(c):
                                O[r // ph, r % ph, w + b_out, v] = done(found[v], y, w)

    return pool_image


def resize(source: Lying, target: Lying, linear: bool, activation: Activation, residual: int) -> Any:
    """Return resize(X, at[oh + ow, 2], share[oh + ow], R, O): interpolation between, or repetition of, pixels.

    `at`: the two rows of each row of the result, then the two columns of each column; `share` is that of the second.
    `residual` is the border of an image R that is added before the activation, -1 for none.
    """
    blocks, c, oh, ow = target.blocks, target.block, target.height, target.width
    b_in, b_out, first, dtype = source.border, target.border, target.first, target.dtype
    _, ih, iw, _ = source.shape
    total, ph, pw, _ = target.shape
    done, rb = finish(activation, residual >= 0), residual
    rn, rh, rw, rc = (blocks, oh + 2 * rb, ow + 2 * rb, c) if rb >= 0 else (1, 1, 1, 1)

    def between(one, other, share):
        return wide(one) + (wide(other) - wide(one)) * share

    @T.prim_func(s_tir=True, private=True)
    def resize_image(
        X: T.Buffer((blocks, ih, iw, c), dtype),
        P: T.Buffer((oh + ow, 2), "int32"),
        S: T.Buffer((oh + ow,), "float32"),
        R: T.Buffer((rn, rh, rw, rc), dtype),
        O: T.Buffer((total, ph, pw, c), dtype),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(blocks * ph):
            with T.sblock("row"):
                r = T.axis.spatial(blocks * ph, task)
                T.reads(*whole(X, P, S, R))
                T.writes(O[0:total, 0:ph, 0:pw, 0:c])
                line = T.sblock_alloc_buffer((iw, c), "float32")
                g: T.let[T.int32] = r // ph
                y: T.let[T.int32] = r % ph - b_out
                if T.Or(y < 0, y >= oh):
                    blank_row(O, first + g, y + b_out, pw, c, zero(O))
                else:
                    blank_sides(O, first + g, y + b_out, pw, b_out, c, zero(O))
                    if linear:
                        for x in range(iw):
                            for v in T.vectorized(c):
                                line[x, v] = between(X[g, P[y, 0] + b_in, x, v], X[g, P[y, 1] + b_in, x, v], S[y])
                        for x in range(ow):
                            for v in T.vectorized(c):
                                O[first + g, y + b_out, x + b_out, v] = done(
                                    between(line[P[oh + x, 0] + b_in, v], line[P[oh + x, 1] + b_in, v], S[oh + x]),
                                    *(R, g, y + rb, x + rb, v),
                                ).astype(dtype)
                    else:
                        for x in range(ow):
                            for v in T.vectorized(c):
                                O[first + g, y + b_out, x + b_out, v] = done(
                                    wide(X[g, P[y, 0] + b_in, P[oh + x, 0] + b_in, v]), R, g, y + rb, x + rb, v
                                ).astype(dtype)

    return resize_image


def pixel_at(coordinate: Any, size: Any, align: bool, border: bool) -> Any:
    """Return where a coordinate in -1..1 is along a side of `size` pixels, no further outside than counts."""
    side = T.Cast("float32", size)
    scaled = (wide(coordinate) + T.float32(1)) * (side - T.float32(int(align))) * T.float32(0.5)
    low, high = (T.float32(0), side - T.float32(1)) if border else (T.float32(-2), side + T.float32(1))
    return T.min(T.max(scaled - T.float32(0 if align else 0.5), low), high)


def beside(x: Any, size: Any, step: Any) -> Any:
    """Return the pixel before a place, or `step` after it, within the image."""
    return T.min(T.max(T.Cast("int32", T.floor(x)) + step, 0), size - 1)


def share(x: Any, size: Any, step: Any) -> Any:
    """Return what that pixel contributes: nothing outside."""
    first, part = T.Cast("int32", T.floor(x)) + step, x - T.floor(x)
    own = tirx.if_then_else(step == 0, T.float32(1) - part, part)
    return tirx.if_then_else(tirx.all(first >= 0, first < size), own, T.float32(0))


def grid_sample(image: tuple[int, int, int, int], places: int, align: bool, border: bool, dtype: str) -> Any:
    """Return sample(X[N, C, H W], G[N, 2, P], O[N, C, P]): bilinear, coordinates in -1..1 as of ONNX's GridSample.

    What four pixels contribute to a place is computed once for all channels.  Outside of the image are zeros, or its
    `border`.
    """
    batch, channels, height, width = image
    chunk = min(places, _CHUNK)
    parts = -(-places // chunk)

    @T.prim_func(s_tir=True, private=True)
    def sample(
        X: T.Buffer((batch, channels, height * width), dtype),
        G: T.Buffer((batch, 2, places), dtype),
        O: T.Buffer((batch, channels, places), dtype),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(batch * parts):
            with T.sblock("part"):
                r = T.axis.spatial(batch * parts, task)
                T.reads(*whole(X, G))
                T.writes(O[0:batch, 0:channels, 0:places])
                first = T.meta_var(T.min(r % parts * chunk, places - chunk))
                place = T.sblock_alloc_buffer((2, chunk), "float32")
                pixels = T.sblock_alloc_buffer((4, chunk), "int32")
                shares = T.sblock_alloc_buffer((4, chunk), "float32")
                for p in range(chunk):
                    place[0, p] = pixel_at(G[r // parts, 0, first + p], width, align, border)
                    place[1, p] = pixel_at(G[r // parts, 1, first + p], height, align, border)
                for i in T.unroll(2):
                    for j in T.unroll(2):
                        for p in range(chunk):
                            pixels[i * 2 + j, p] = beside(place[1, p], height, i) * width + beside(
                                place[0, p], width, j
                            )
                            shares[i * 2 + j, p] = share(place[1, p], height, i) * share(place[0, p], width, j)
                for c, p in T.grid(channels, chunk):
                    O[r // parts, c, first + p] = (
                        shares[0, p] * wide(X[r // parts, c, pixels[0, p]])
                        + shares[1, p] * wide(X[r // parts, c, pixels[1, p]])
                        + shares[2, p] * wide(X[r // parts, c, pixels[2, p]])
                        + shares[3, p] * wide(X[r // parts, c, pixels[3, p]])
                    ).astype(dtype)

    return sample


@dataclass(frozen=True, slots=True)
class Points:
    """A weighted sum over `points` for each of `rows`: `vectors` of `lanes` channels; sizes of its flat operands."""

    rows: int
    points: int
    vectors: int
    lanes: int
    values: int
    weights: int
    places: int = 0

    @property
    def held(self) -> int:
        """Return the vectors that are summed at once, in registers."""
        return next(n for n in range(8, 0, -1) if self.vectors % n == 0)


def weighted_rows(points: Points, dtype: str) -> Any:
    """Return pooled(X[values], A[weights], V[rows, points], W[rows, points], O[rows, channels]).

    O[q] = the sum over k of A[W[q, k]] X[V[q, k] ...]: rows of channels from wherever they are.
    """
    rows, count, vectors, held, c = points.rows, points.points, points.vectors, points.held, points.lanes
    chunk, channels, values, weights, tile = min(rows, _CHUNK), vectors * c, points.values, points.weights, (1, held, c)

    @T.prim_func(s_tir=True, private=True)
    def pooled(
        X: T.Buffer((values,), dtype),
        A: T.Buffer((weights,), dtype),
        V: T.Buffer((rows, count), "int32"),
        W: T.Buffer((rows, count), "int32"),
        O: T.Buffer((rows, channels), dtype),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(-(-rows // chunk)):
            with T.sblock("part"):
                r = T.axis.spatial(-(-rows // chunk), task)
                T.reads(*whole(X, A, V, W))
                T.writes(*whole(O))
                for i, h in T.grid(chunk, vectors // held):
                    with T.sblock("row"):
                        n, part = T.axis.remap("SS", [i, h])
                        T.reads(*whole(X, A, V, W))
                        T.writes(*whole(O))
                        acc = T.sblock_alloc_buffer(tile, "float32")
                        q: T.let[T.int32] = T.min(r * chunk, rows - chunk) + n
                        first: T.let[T.int32] = part * held * c
                        over_tile(acc, tile, lambda o, t, v: T.float32(0))
                        for k in range(count):
                            over_tile(
                                *(acc, tile),
                                lambda o, t, v: acc[o, t, v] + wide(A[W[q, k]]) * wide(X[V[q, k] + first + t * c + v]),
                            )
                        for t in T.unroll(held):
                            for v in T.vectorized(c):
                                O[q, first + t * c + v] = acc[0, t, v].astype(dtype)

    return pooled


def weighted_samples(points: Points, align: bool, border: bool, dtype: str) -> Any:
    """Return sampled(X[values], G[places], A[weights], S[points, 3], V, P, W [rows, points], O[rows, channels]).

    O[q] = the sum over k of A[W[q, k]] times what lies at G[P[q, k]], G[P[q, k] + 1] (x, y in -1..1, as of ONNX's
    GridSample) in an image, between four pixels of channels.  It begins at X[V[q, k]] and has S[k, 0] rows of S[k, 1]
    pixels that are S[k, 2] elements apart.  Outside are zeros, or its `border`.
    """
    rows, count, vectors, held, c = points.rows, points.points, points.vectors, points.held, points.lanes
    chunk, channels, values, weights, tile = min(rows, _CHUNK), vectors * c, points.values, points.weights, (1, held, c)
    places = points.places

    @T.prim_func(s_tir=True, private=True)
    def sampled(
        X: T.Buffer((values,), dtype),
        G: T.Buffer((places,), dtype),
        A: T.Buffer((weights,), dtype),
        S: T.Buffer((count, 3), "int32"),
        V: T.Buffer((rows, count), "int32"),
        P: T.Buffer((rows, count), "int32"),
        W: T.Buffer((rows, count), "int32"),
        O: T.Buffer((rows, channels), dtype),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(-(-rows // chunk)):
            with T.sblock("part"):
                r = T.axis.spatial(-(-rows // chunk), task)
                T.reads(*whole(X, G, A, S, V, P, W))
                T.writes(*whole(O))
                for i in range(chunk):
                    with T.sblock("row"):
                        n = T.axis.spatial(chunk, i)
                        T.reads(*whole(X, G, A, S, V, P, W))
                        T.writes(*whole(O))
                        acc = T.sblock_alloc_buffer(tile, "float32")
                        place = T.sblock_alloc_buffer((2, count), "float32")
                        at = T.sblock_alloc_buffer((4, count), "int32")
                        part = T.sblock_alloc_buffer((4, count), "float32")
                        q: T.let[T.int32] = T.min(r * chunk, rows - chunk) + n
                        for k in range(count):
                            place[0, k] = pixel_at(G[P[q, k]], S[k, 1], align, border)
                            place[1, k] = pixel_at(G[P[q, k] + 1], S[k, 0], align, border)
                        for y in T.unroll(2):
                            for x in T.unroll(2):
                                for k in range(count):
                                    at[y * 2 + x, k] = (
                                        beside(place[1, k], S[k, 0], y) * S[k, 1] + beside(place[0, k], S[k, 1], x)
                                    ) * S[k, 2] + V[q, k]
                                    part[y * 2 + x, k] = (
                                        share(place[1, k], S[k, 0], y)
                                        * share(place[0, k], S[k, 1], x)
                                        * wide(A[W[q, k]])
                                    )
                        for h in range(vectors // held):
                            over_tile(acc, tile, lambda o, t, v: T.float32(0))
                            for k in range(count):
                                for m in T.unroll(4):
                                    over_tile(
                                        *(acc, tile),
                                        lambda o, t, v: (
                                            acc[o, t, v] + part[m, k] * wide(X[at[m, k] + (h * held + t) * c + v])
                                        ),
                                    )
                            for t in T.unroll(held):
                                for v in T.vectorized(c):
                                    O[q, (h * held + t) * c + v] = acc[0, t, v].astype(dtype)

    return sampled


_CHUNK = 64
"""Places of a sampled image, or rows of a weighted sum, that a task computes."""


def rows_to_image(target: Lying) -> Any:
    """Return blocked(X[height * width, channels], O): rows of channels, as tokens have them, to a blocked image."""
    blocks, c, height, width, border = target.blocks, target.block, target.height, target.width, target.border
    _, ph, pw, _ = target.shape
    dtype = target.dtype

    @T.prim_func(s_tir=True, private=True)
    def blocked(X: T.Buffer((height * width, blocks * c), dtype), O: T.Buffer((blocks, ph, pw, c), dtype)):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(blocks * ph):
            with T.sblock("row"):
                r = T.axis.spatial(blocks * ph, task)
                T.reads(X[0 : height * width, 0 : blocks * c])
                T.writes(O[0:blocks, 0:ph, 0:pw, 0:c])
                y: T.let[T.int32] = r % ph - border
                if T.Or(y < 0, y >= height):
                    blank_row(O, r // ph, y + border, pw, c, zero(O))
                else:
                    blank_sides(O, r // ph, y + border, pw, border, c, zero(O))
                    for x in range(width):
                        for v in T.vectorized(c):
                            O[r // ph, y + border, x + border, v] = X[y * width + x, r // ph * c + v]

    return blocked


def image_to_rows(source: Lying) -> Any:
    """Return rows(X, O[height * width, channels]): a blocked image to rows of channels."""
    blocks, c, height, width, border = source.blocks, source.block, source.height, source.width, source.border
    total, ph, pw, _ = source.shape
    dtype = source.dtype

    @T.prim_func(s_tir=True, private=True)
    def rows(X: T.Buffer((total, ph, pw, c), dtype), O: T.Buffer((height * width, blocks * c), dtype)):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(height):
            with T.sblock("row"):
                y = T.axis.spatial(height, task)
                T.reads(X[0:total, 0:ph, 0:pw, 0:c])
                T.writes(O[0 : height * width, 0 : blocks * c])
                for x in range(width):
                    for g in range(blocks):
                        for v in T.vectorized(c):
                            O[y * width + x, g * c + v] = X[g, y + border, x + border, v]

    return rows


def product(sizes: Product, tile: Tile, parts: int, activation: Activation, dtype: str) -> Any:
    """Return product(X[batch, rows, inputs], W, bias[columns], O[batch, rows, columns]).

    W is [groups, inputs, n] where it was packed (n columns a group, a tile's blocks of channels), else
    [batch, inputs, columns], of which every matrix serves `shared` ones of X.  Rows and columns of a last tile are
    shifted back over those before it, so that none is partial.  Sums and products are fp32 for every `dtype`.  Of a
    group's columns all rows are computed before the next, in `parts` tasks: its part of W stays in the cache.
    """
    batch, rows, inputs, columns = sizes.batch, sizes.rows, sizes.inputs, sizes.columns
    c, tw, to, packed, shared = sizes.lanes, tile.pixels, tile.blocks, sizes.packed, sizes.shared
    n, act, biased = to * c, function(activation), sizes.biased
    groups, tiles = -(-columns // n), -(-rows // tw)
    each = -(-tiles // parts)
    parts = -(-tiles // each)
    tasks, extent = batch * groups * parts, columns if biased else 1
    matrices, depth = (groups, n) if packed else (batch // shared, columns)

    @T.prim_func(s_tir=True, private=True)
    def product_rows(
        X: T.Buffer((batch, rows, inputs), dtype),
        W: T.Buffer((matrices, inputs, depth), dtype),
        B: T.Buffer((extent,), "float32"),
        O: T.Buffer((batch, rows, columns), dtype),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(tasks):
            with T.sblock("part"):
                r = T.axis.spatial(tasks, task)
                T.reads(*whole(X, W, B))
                T.writes(O[0:batch, 0:rows, 0:columns])
                b: T.let[T.int32] = r // (groups * parts)
                g: T.let[T.int32] = r // parts % groups
                m: T.let[T.int32] = g if packed else b // shared
                s: T.let[T.int32] = T.min(g * n, columns - n)
                w: T.let[T.int32] = 0 if packed else s
                for i in range(each):
                    with T.sblock("tile"):
                        t0 = T.axis.spatial(each, i)
                        T.reads(*whole(X, W, B))
                        T.writes(O[0:batch, 0:rows, 0:columns])
                        acc = T.sblock_alloc_buffer((to, tw, c), "float32")
                        x0: T.let[T.int32] = T.min((r % parts * each + t0) * tw, rows - tw)
                        for o in T.unroll(to):
                            for t in T.unroll(tw):
                                for v in T.vectorized(c):
                                    acc[o, t, v] = B[s + o * c + v] if biased else T.float32(0)
                        for k in range(inputs):
                            for o in T.unroll(to):
                                for t in T.unroll(tw):
                                    for v in T.vectorized(c):
                                        acc[o, t, v] = acc[o, t, v] + wide(X[b, x0 + t, k]) * wide(
                                            W[m, k, w + o * c + v]
                                        )
                        for o in T.unroll(to):
                            for t in T.unroll(tw):
                                for v in T.vectorized(c):
                                    O[b, x0 + t, s + o * c + v] = act(acc[o, t, v]).astype(dtype)

    return product_rows


def softmax(rows: int, width: int, c: int, dtype: str) -> Any:
    """Return softmax(X[rows, width], O): over the last axis, in fp32, `c` lanes at a time."""
    whole, rest = width // c, width % c

    @T.prim_func(s_tir=True, private=True)
    def softmax_rows(X: T.Buffer((rows, width), dtype), O: T.Buffer((rows, width), dtype)):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(rows):
            with T.sblock("row"):
                r = T.axis.spatial(rows, task)
                T.reads(X[0:rows, 0:width])
                T.writes(O[0:rows, 0:width])
                most = T.sblock_alloc_buffer((c,), "float32")
                total = T.sblock_alloc_buffer((c,), "float32")
                power = T.sblock_alloc_buffer((width,), "float32")
                one = T.sblock_alloc_buffer((2,), "float32")
                for v in T.vectorized(c):
                    most[v] = T.float32(-3.4e38)
                    total[v] = T.float32(0)
                for i in range(whole):
                    for v in T.vectorized(c):
                        most[v] = T.max(most[v], wide(X[r, i * c + v]))
                for i in range(rest):
                    most[i] = T.max(most[i], wide(X[r, whole * c + i]))
                one[0] = T.float32(-3.4e38)
                for v in range(c):
                    one[0] = T.max(one[0], most[v])
                for i in range(whole):
                    for v in T.vectorized(c):
                        power[i * c + v] = exponential(wide(X[r, i * c + v]) - one[0])
                    for v in T.vectorized(c):
                        total[v] = total[v] + power[i * c + v]
                for i in range(rest):
                    power[whole * c + i] = exponential(wide(X[r, whole * c + i]) - one[0])
                    total[i] = total[i] + power[whole * c + i]
                one[1] = T.float32(0)
                for v in range(c):
                    one[1] = one[1] + total[v]
                one[1] = T.float32(1) / one[1]
                for i in range(whole):
                    for v in T.vectorized(c):
                        O[r, i * c + v] = (power[i * c + v] * one[1]).astype(dtype)
                for i in range(rest):
                    O[r, whole * c + i] = (power[whole * c + i] * one[1]).astype(dtype)

    return softmax_rows


def layer_norm(rows: int, width: int, epsilon: float, c: int, dtype: str) -> Any:
    """Return norm(X[rows, width], scale[width], shift[width], O): each row about its mean, over its deviation."""
    whole, rest = width // c, width % c

    @T.macro
    def average(part, one, place, X, r, moment):
        for v in T.vectorized(c):
            part[v] = T.float32(0)
        for i in range(whole):
            for v in T.vectorized(c):
                part[v] = part[v] + moment(wide(X[r, i * c + v]), one[0])
        for i in range(rest):
            part[i] = part[i] + moment(wide(X[r, whole * c + i]), one[0])
        one[place] = T.float32(0)
        for v in range(c):
            one[place] = one[place] + part[v]
        one[place] = one[place] / T.float32(width)

    @T.prim_func(s_tir=True, private=True)
    def norm_rows(
        X: T.Buffer((rows, width), dtype),
        S: T.Buffer((width,), "float32"),
        B: T.Buffer((width,), "float32"),
        O: T.Buffer((rows, width), dtype),
    ):
        T.func_attr(_NO_ALIAS)
        for task in T.parallel(rows):
            with T.sblock("row"):
                r = T.axis.spatial(rows, task)
                T.reads(X[0:rows, 0:width], S[0:width], B[0:width])
                T.writes(O[0:rows, 0:width])
                part = T.sblock_alloc_buffer((c,), "float32")
                one = T.sblock_alloc_buffer((2,), "float32")
                average(part, one, 0, X, r, lambda value, mean: value)
                average(part, one, 1, X, r, lambda value, mean: (value - mean) * (value - mean))
                one[1] = T.float32(1) / T.sqrt(one[1] + T.float32(epsilon))
                for i in range(whole):
                    for v in T.vectorized(c):
                        O[r, i * c + v] = (
                            (wide(X[r, i * c + v]) - one[0]) * one[1] * S[i * c + v] + B[i * c + v]
                        ).astype(dtype)
                for i in range(rest):
                    O[r, whole * c + i] = (
                        (wide(X[r, whole * c + i]) - one[0]) * one[1] * S[whole * c + i] + B[whole * c + i]
                    ).astype(dtype)

    return norm_rows


def plain(X: Any, channels: int, block: int, g: Any, y: Any, x: Any, v: Any) -> Any:
    """Return lane v of block g at a pixel of X[1, channels, H, W]; channels that are missing are zero.

    Both sides of a Select are read, so the index is bounded.  A comparison of the channel would tell TVM's simplifier
    that it needs no bound; of the sign of a difference it concludes nothing.
    """
    channel = g * block + v
    if channels % block == 0:
        return X[0, channel, y, x]
    pixel = X[0, T.min(channel, channels - 1), y, x]
    return T.Select(T.shift_right(channel - channels, 31) != 0, pixel, zero(X))


def pack(channels: int, target: Lying) -> Any:
    """Return pack(X[1, C, H, W], O): to blocks of ci channels with a border; missing channels are zero."""
    shape = (1, channels, target.height, target.width)
    return pixelwise(target, lambda X, _, *at: plain(X, channels, target.block, *at), [(shape, target.dtype)])


def unpack(source: Lying, channels: int, offset: int) -> Any:
    """Return unpack(X, O[1, channels, H, W]): channels from `offset` on of a blocked tensor as plain NCHW.

    Of whole blocks each pixel is read once; a channel at a time, as of others, each of its lines is read c times.
    """
    blocks, ih, iw, c = source.shape
    height, width, b_in, dtype = source.height, source.width, source.border, source.dtype
    blocks_whole = channels // c if offset % c == 0 else 0

    @T.prim_func(s_tir=True, private=True)
    def unpacked(X: T.Buffer((blocks, ih, iw, c), dtype), O: T.Buffer((1, channels, height, width), dtype)):
        T.func_attr(_NO_ALIAS)
        for y in T.parallel(height):
            with T.sblock("row"):
                r = T.axis.spatial(height, y)
                T.reads(X[0:blocks, 0:ih, 0:iw, 0:c])
                T.writes(O[0, 0:channels, 0:height, 0:width])
                for g, x in T.grid(blocks_whole, width):
                    for v in T.unroll(c):
                        O[0, g * c + v, r, x] = X[g + offset // c, r + b_in, x + b_in, v]
                for n, x in T.grid(channels - blocks_whole * c, width):
                    k = blocks_whole * c + n
                    O[0, k, r, x] = X[(k + offset) // c, r + b_in, x + b_in, (k + offset) % c]

    return unpacked


_AHEAD = 12
"""Prefetch distance in pillars: each takes some hundred cycles, enough to hide a memory access."""
_LINE = 64


def pillar_net(
    slots: int, channels: int, lanes: int, pillar: float, origin_x: float, origin_y: float, dtype: str
) -> Any:
    """Return pfn(voxels, counts, coords, weight[9, channels], bias, features): the whole PFN in one pass over pillars.

    Empty slots are zero after decoration and contribute relu(bias), so only the filled ones are computed: the work is
    proportional to the points in a pillar, not to its capacity.  `channels` is a multiple of `lanes`.  Pillars are
    `slots` points apart in memory, most of them unused, so the hardware prefetcher cannot predict the lines read: they
    are prefetched explicitly, and the time depends little on the state of the caches.
    """
    groups = channels // lanes
    row = max(_LINE // (16 if dtype == "float32" else 8), 1)
    half_x, half_y = origin_x + pillar / 2, origin_y + pillar / 2

    @T.prim_func(s_tir=True, private=True)
    def pfn(
        voxels: T.handle,
        counts: T.handle,
        coords: T.handle,
        K: T.Buffer((9, channels), dtype),
        B: T.Buffer((channels,), dtype),
        features: T.handle,
    ):
        T.func_attr(_NO_ALIAS)
        P = T.int64()
        V = T.match_buffer(voxels, (P, slots, 4), dtype)
        N = T.match_buffer(counts, (P,), "int32")
        XY = T.match_buffer(coords, (P, 2), "int32")
        F = T.match_buffer(features, (P, channels), dtype)
        for task in T.parallel(P):
            with T.sblock("pillar"):
                p = T.axis.spatial(P, task)
                T.reads(V[p, 0:slots, 0:4], N[p], XY[p, 0:2], K[0:9, 0:channels], B[0:channels])
                T.writes(F[p, 0:channels])
                mean = T.sblock_alloc_buffer((3,), "float32")
                centre = T.sblock_alloc_buffer((2,), "float32")
                point = T.sblock_alloc_buffer((9,), dtype)
                best = T.sblock_alloc_buffer((groups, lanes), dtype)
                acc = T.sblock_alloc_buffer((groups, lanes), dtype)
                for k in T.unroll(3):
                    mean[k] = T.float32(0)
                for s in range(T.min(N[p], slots)):
                    for k in T.unroll(3):
                        mean[k] = mean[k] + V[p, s, k].astype("float32")
                for k in T.unroll(3):
                    mean[k] = mean[k] / T.Cast("float32", T.max(N[p], 1))
                for s in range((T.min(N[T.min(p + _AHEAD, P - 1)], slots) + row - 1) // row):
                    T.evaluate(fetch(V, T.min(p + _AHEAD, P - 1), s * row, 0))
                centre[0] = T.Cast("float32", XY[p, 0]) * T.float32(pillar) + T.float32(half_x)
                centre[1] = T.Cast("float32", XY[p, 1]) * T.float32(pillar) + T.float32(half_y)
                for g in range(groups):
                    for v in T.vectorized(lanes):
                        best[g, v] = T.if_then_else(N[p] < slots, T.max(B[g * lanes + v], zero(F)), zero(F))
                for s in range(T.min(N[p], slots)):
                    for k in T.unroll(4):
                        point[k] = V[p, s, k]
                    for k in T.unroll(3):
                        point[4 + k] = (V[p, s, k].astype("float32") - mean[k]).astype(dtype)
                    for k in T.unroll(2):
                        point[7 + k] = (V[p, s, k].astype("float32") - centre[k]).astype(dtype)
                    for g in T.unroll(groups):
                        for v in T.vectorized(lanes):
                            acc[g, v] = B[g * lanes + v]
                    for k in T.unroll(9):
                        for g in T.unroll(groups):
                            for v in T.vectorized(lanes):
                                acc[g, v] = acc[g, v] + point[k] * K[k, g * lanes + v]
                    for g in T.unroll(groups):
                        for v in T.vectorized(lanes):
                            best[g, v] = T.max(best[g, v], acc[g, v])
                for g in range(groups):
                    for v in T.vectorized(lanes):
                        F[p, g * lanes + v] = best[g, v]

    return pfn


def scatter(target: Lying) -> Any:
    """Return place(features[P, blocks * c], coords[P, 2], canvas): zero it, then write the pillars inside the grid."""
    blocks, ph, pw, c = target.shape
    ny, nx, border, dtype = target.height, target.width, target.border, target.dtype

    @T.prim_func(s_tir=True, private=True)
    def place(features: T.handle, coords: T.handle, O: T.Buffer((blocks, ph, pw, c), dtype)):
        T.func_attr(_NO_ALIAS)
        P = T.int64()
        F = T.match_buffer(features, (P, blocks * c), dtype)
        XY = T.match_buffer(coords, (P, 2), "int32")
        for task in T.parallel(blocks * ph):
            with T.sblock("zero"):
                r = T.axis.spatial(blocks * ph, task)
                T.reads()
                T.writes(O[r // ph, r % ph, 0:pw, 0:c])
                for x in range(pw):
                    for v in T.vectorized(c):
                        O[r // ph, r % ph, x, v] = zero(O)
        for task in T.parallel(P):
            with T.sblock("place"):
                p = T.axis.spatial(P, task)
                T.reads(F[p, 0 : blocks * c], XY[p, 0:2])
                T.writes(O[0:blocks, 0:ph, 0:pw, 0:c])
                if XY[p, 0] >= 0 and XY[p, 0] < nx and XY[p, 1] >= 0 and XY[p, 1] < ny:
                    for g in range(blocks):
                        for v in T.vectorized(c):
                            O[g, XY[p, 1] + border, XY[p, 0] + border, v] = F[p, g * c + v]

    return place
