# mypy: ignore-errors
# ruff: noqa: E741, SIM102
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""GPU kernels other than products in fp16, on images [pixels, channels] and pillars; `spread` binds one to threads.

A thread computes one pixel of 8 channels, so that neighbouring threads read neighbouring 16 bytes; sums are fp32.
Loops over pillars run one iteration past the last, since launching zero threads is an error.  Unbound kernels also run
on a CPU, which is how their indexing is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from socsched.compiler.environment import T, s_tir, te, tirx
from socsched.compiler.targets.cuda.activation import Activation, function
from socsched.compiler.targets.cuda.tiles import VECTOR

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


Tensor = tuple[tuple[int, int], str]
"""Shape and dtype."""


def elements(
    name: str,
    sources: Sequence[Tensor],
    result: Tensor,
    value: Callable[..., Any],
    grid: tuple[int, int],
    first: int = 0,
) -> Any:
    """Return kernel(X, O) or, of two sources, kernel(X, Y, O): elements of O's rows from column `first` on.

    Each is value(X, Y, row, column, lane); `grid`: the groups of a row, and the lanes of a group.
    """
    (pixels, total), dtype = result
    (x_shape, x_dtype), (y_shape, y_dtype) = sources[0], sources[-1]
    groups, lanes = grid

    @T.macro
    def body(X, Y, O):
        for x, y, z in T.grid(pixels, groups, lanes):
            with T.sblock(name):
                p, g, v = T.axis.remap("SSS", [x, y, z])
                O[p, first + g * lanes + v] = value(X, Y, p, g * lanes, v)

    if len(sources) > 1:

        @T.prim_func(s_tir=True, private=True)
        def of_two(X: T.Buffer(x_shape, x_dtype), Y: T.Buffer(y_shape, y_dtype), O: T.Buffer((pixels, total), dtype)):
            T.func_attr(_ATTRIBUTES)
            body(X, Y, O)

        return of_two

    @T.prim_func(s_tir=True, private=True)
    def of_one(X: T.Buffer(x_shape, x_dtype), O: T.Buffer((pixels, total), dtype)):
        T.func_attr(_ATTRIBUTES)
        body(X, X, O)

    return of_one


def copy(pixels: int, source: int, start: int, count: int, total: int) -> Any:
    """Return copy(X[pixels, source], O[pixels, total]): `count` channels from `start` of X, then zeros."""
    lanes = next(n for n in (8, 4, 2, 1) if all(size % n == 0 for size in (source, start, count, total)))
    if lanes == 1 and total % VECTOR == 0:
        return _widened(pixels, source, start, count, total)

    def value(X, _, p, c, v):
        return T.if_then_else(c + v < count, X[p, start + c + v], T.float16(0))

    images = ((pixels, source), "float16"), ((pixels, total), "float16")
    return elements("copy", images[:1], images[1], value, (total // lanes, lanes))


def _widened(pixels: int, source: int, start: int, count: int, total: int) -> Any:
    groups = total // VECTOR

    @T.prim_func(s_tir=True, private=True)
    def moved(X: T.Buffer((pixels, source), "float16"), O: T.Buffer((pixels, total), "float16")):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(pixels, groups):
            with T.sblock("copy"):
                p, g = T.axis.remap("SS", [x, y])
                T.reads(X[p, 0:source])
                T.writes(O[p, g * VECTOR : g * VECTOR + VECTOR])
                values = T.sblock_alloc_buffer((VECTOR,), "float16", scope="local")
                for v in T.unroll(VECTOR):
                    values[v] = T.float16(0)
                    if g * VECTOR + v < count:
                        values[v] = X[p, start + g * VECTOR + v]
                for v in T.vectorized(VECTOR):
                    O[p, g * VECTOR + v] = values[v]

    return moved


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "maximum": lambda x, y: tirx.max(x, y),
    "minimum": lambda x, y: tirx.min(x, y),
}
BINARY = tuple(_BINARY)
"""Element-wise operators of two images."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window that slides over an image: kernel, strides, padding at the top and left, dilation and result."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int]
    dilation: tuple[int, int]
    result: tuple[int, int]


def _sliding(window: Window, height: int, width: int) -> tuple[Any, Any]:
    """Return functions (result pixel, tap row, tap column) -> whether the tap is in the image, and its pixel."""
    (down, right), (top, left), (far_h, far_w) = window.strides, window.pads, window.dilation
    wide = window.result[1]

    def row(p, i):
        return p // wide * down + i * far_h

    def column(p, j):
        return p % wide * right + j * far_w

    def inside(p, i, j):
        within = [row(p, i) >= top, row(p, i) < height + top, column(p, j) >= left, column(p, j) < width + left]
        return tirx.all(*within)

    return inside, lambda p, i, j: (row(p, i) - top) * width + column(p, j) - left


def depthwise(  # noqa: C901 (a kernel's loops)
    channels: int, height: int, width: int, window: Window, activation: Activation, strip: int
) -> Any:
    """Return depthwise(X, W[taps, channels], B, O): a convolution of each channel by itself.

    A thread computes `strip` pixels of a row, of which `strip` have to make whole rows, and loads a row of the window
    before it uses it.
    """
    (kh, kw), (oh, ow), groups = window.kernel, window.result, channels // VECTOR
    (down, right), (top, left), (far_h, far_w) = window.strides, window.pads, window.dilation
    across, act = ow // strip, function(activation)
    span = (strip - 1) * right + (kw - 1) * far_w + 1

    def row(p, i):
        return p // across * down + i * far_h - top

    def column(p, place):
        return p % across * (strip * right) + place - left

    def inside(p, i, place):
        within = [row(p, i) >= 0, row(p, i) < height, column(p, place) >= 0, column(p, place) < width]
        return tirx.all(*within)

    @T.prim_func(s_tir=True, private=True)
    def convolved(
        X: T.Buffer((height * width, channels), "float16"),
        W: T.Buffer((kh * kw, channels), "float16"),
        B: T.Buffer((channels,), "float32"),
        O: T.Buffer((oh * ow, channels), "float16"),
    ):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(oh * across, groups):
            with T.sblock("window"):
                p, g = T.axis.remap("SS", [x, y])
                T.reads(
                    X[0 : height * width, g * VECTOR : g * VECTOR + VECTOR],
                    W[0 : kh * kw, g * VECTOR : g * VECTOR + VECTOR],
                    B[g * VECTOR : g * VECTOR + VECTOR],
                )
                T.writes(O[p * strip : p * strip + strip, g * VECTOR : g * VECTOR + VECTOR])
                total = T.sblock_alloc_buffer((strip, VECTOR), "float32", scope="local")
                values = T.sblock_alloc_buffer((span, VECTOR), "float16", scope="local")
                factors = T.sblock_alloc_buffer((kw, VECTOR), "float16", scope="local")
                ended = T.sblock_alloc_buffer((VECTOR,), "float16", scope="local")
                for n in T.unroll(strip):
                    for v in T.unroll(VECTOR):
                        total[n, v] = B[g * VECTOR + v]
                for i in range(kh):
                    for s in T.unroll(span):
                        if inside(p, i, s):
                            for v in T.vectorized(VECTOR):
                                values[s, v] = X[row(p, i) * width + column(p, s), g * VECTOR + v]
                        else:
                            for v in T.vectorized(VECTOR):
                                values[s, v] = T.float16(0)
                    for j in T.unroll(kw):
                        for v in T.vectorized(VECTOR):
                            factors[j, v] = W[i * kw + j, g * VECTOR + v]
                    for n in T.unroll(strip):
                        for j in T.unroll(kw):
                            for v in T.unroll(VECTOR):
                                total[n, v] = total[n, v] + T.Cast(
                                    "float32", values[n * right + j * far_w, v]
                                ) * T.Cast("float32", factors[j, v])
                for n in T.unroll(strip):
                    for v in T.unroll(VECTOR):
                        ended[v] = act(T.Cast("float16", total[n, v]))
                    for v in T.vectorized(VECTOR):
                        O[p * strip + n, g * VECTOR + v] = ended[v]

    return convolved


def max_pool(channels: int, height: int, width: int, window: Window) -> Any:
    """Return pool(X, O): the largest value of a window."""
    (kh, kw), (oh, ow), groups = window.kernel, window.result, channels // VECTOR
    inside, at = _sliding(window, height, width)

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
                    if inside(p, i, j):
                        for v in T.vectorized(VECTOR):
                            best[v] = T.max(best[v], X[at(p, i, j), g * VECTOR + v])
                for v in T.vectorized(VECTOR):
                    O[p, g * VECTOR + v] = best[v]

    return pool


def avg_pool(channels: int, height: int, width: int, window: Window, counted: bool) -> Any:
    """Return pool(X, O): the mean over a window, over all its taps where padding is `counted`."""
    (kh, kw), (oh, ow), groups = window.kernel, window.result, channels // VECTOR
    inside, at = _sliding(window, height, width)

    def share(count):
        return T.float32(kh * kw) if counted else T.max(count, T.float32(1))

    @T.prim_func(s_tir=True, private=True)
    def pool(X: T.Buffer((height * width, channels), "float16"), O: T.Buffer((oh * ow, channels), "float16")):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(oh * ow, groups):
            with T.sblock("window"):
                p, g = T.axis.remap("SS", [x, y])
                T.reads(X[0 : height * width, g * VECTOR : g * VECTOR + VECTOR])
                T.writes(O[p, g * VECTOR : g * VECTOR + VECTOR])
                total = T.sblock_alloc_buffer((VECTOR,), "float32", scope="local")
                count = T.sblock_alloc_buffer((1,), "float32", scope="local")
                count[0] = T.float32(0)
                for v in T.unroll(VECTOR):
                    total[v] = T.float32(0)
                for i, j in T.grid(kh, kw):
                    if inside(p, i, j):
                        values = T.sblock_alloc_buffer((VECTOR,), "float16", scope="local")
                        for v in T.vectorized(VECTOR):
                            values[v] = X[at(p, i, j), g * VECTOR + v]
                        for v in T.unroll(VECTOR):
                            total[v] = total[v] + T.Cast("float32", values[v])
                        count[0] = count[0] + T.float32(1)
                ended = T.sblock_alloc_buffer((VECTOR,), "float16", scope="local")
                for v in T.unroll(VECTOR):
                    ended[v] = T.Cast("float16", total[v] / share(count[0]))
                for v in T.vectorized(VECTOR):
                    O[p, g * VECTOR + v] = ended[v]

    return pool


STRIP, SHARED = 32, "socsched.shared"
"""Threads that share a sum over pixels; the attribute of kernels with such sums."""


def means(pixels: int, channels: int, parts: int, given: str, whole: int) -> Any:
    """Return means(X[pixels, channels], O[parts, channels]): sums over pixels in parts, in fp32; in one part they are
    divided by `whole` and in fp16.  `given`: the type of X.
    """
    rounds = -(-pixels // (parts * STRIP)) * STRIP
    factor, dtype = (1.0 / whole, "float16") if parts == 1 else (1.0, "float32")

    @T.prim_func(s_tir=True, private=True)
    def averages(X: T.Buffer((pixels, channels), given), O: T.Buffer((parts, channels), dtype)):
        T.func_attr(_ATTRIBUTES)
        S = T.sblock_alloc_buffer((parts, channels), "float32")
        for x, y, z in T.grid(parts, channels, rounds):
            with T.sblock("sum"):
                s, c, r = T.axis.remap("SSR", [x, y, z])
                with T.init():
                    S[s, c] = T.float32(0)
                S[s, c] = S[s, c] + T.if_then_else(
                    s * rounds + r < pixels, T.Cast("float32", X[s * rounds + r, c]), T.float32(0)
                )
        for x, y in T.grid(parts, channels):
            with T.sblock("part"):
                s, c = T.axis.remap("SS", [x, y])
                O[s, c] = T.Cast(dtype, S[s, c] * T.float32(factor))

    return averages.with_attr(SHARED, True)


def by_columns(function: Any) -> Any:
    """Return `means` bound: neighbouring threads take neighbouring channels, `STRIP` of them the pixels of one."""
    sch = s_tir.Schedule(function)
    total, out = sch.get_child_blocks(sch.get_sblock("root"))
    part, channel = sch.get_loops(out)
    count = int(sch.get(channel).extent)
    block, lane = sch.split(channel, [None, next(n for n in (32, 16, 8) if count % n == 0)])
    for loop, thread in ((part, "blockIdx.y"), (block, "blockIdx.x"), (lane, "threadIdx.x")):
        sch.bind(loop, thread)
    sch.compute_at(total, lane)
    sch.set_scope(total, 0, "local")
    steps, strip = sch.split(sch.get_loops(total)[-1], [None, STRIP])
    sch.unroll(steps)
    sch.bind(strip, "threadIdx.y")
    return sch.mod["main"].with_attr("tirx.is_scheduled", True)


def combined(left: int, right: int, pixels: int, channels: int, kind: str, activation: Activation) -> Any:
    """Return combined(X[left, channels], Y[right, channels], O): a gate or sum; one pixel counts for all."""
    act, join, groups = function(activation), _BINARY[kind], channels // VECTOR

    def of_left(p):
        return 0 if left == 1 else p

    def of_right(p):
        return 0 if right == 1 else p

    @T.prim_func(s_tir=True, private=True)
    def both(
        X: T.Buffer((left, channels), "float16"),
        Y: T.Buffer((right, channels), "float16"),
        O: T.Buffer((pixels, channels), "float16"),
    ):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(pixels, groups):
            with T.sblock("both"):
                p, g = T.axis.remap("SS", [x, y])
                T.reads(X[0:left, g * VECTOR : g * VECTOR + VECTOR], Y[0:right, g * VECTOR : g * VECTOR + VECTOR])
                T.writes(O[p, g * VECTOR : g * VECTOR + VECTOR])
                one = T.sblock_alloc_buffer((VECTOR,), "float16", scope="local")
                other = T.sblock_alloc_buffer((VECTOR,), "float16", scope="local")
                for v in T.vectorized(VECTOR):
                    one[v] = X[of_left(p), g * VECTOR + v]
                for v in T.vectorized(VECTOR):
                    other[v] = Y[of_right(p), g * VECTOR + v]
                for v in T.unroll(VECTOR):
                    one[v] = act(T.Cast("float16", join(T.Cast("float32", one[v]), T.Cast("float32", other[v]))))
                for v in T.vectorized(VECTOR):
                    O[p, g * VECTOR + v] = one[v]

    return both


def mapped(pixels: int, channels: int, activation: Activation) -> Any:
    """Return mapped(X, O): an element-wise function."""
    act, groups = function(activation), channels // VECTOR

    @T.prim_func(s_tir=True, private=True)
    def each(X: T.Buffer((pixels, channels), "float16"), O: T.Buffer((pixels, channels), "float16")):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(pixels, groups):
            with T.sblock("each"):
                p, g = T.axis.remap("SS", [x, y])
                T.reads(X[p, g * VECTOR : g * VECTOR + VECTOR])
                T.writes(O[p, g * VECTOR : g * VECTOR + VECTOR])
                values = T.sblock_alloc_buffer((VECTOR,), "float16", scope="local")
                for v in T.vectorized(VECTOR):
                    values[v] = X[p, g * VECTOR + v]
                for v in T.unroll(VECTOR):
                    values[v] = act(values[v])
                for v in T.vectorized(VECTOR):
                    O[p, g * VECTOR + v] = values[v]

    return each


def resize(channels: int, height: int, width: int, oh: int, ow: int) -> Any:
    """Return resized(X, H[2, oh], V[oh], W[2, ow], U[ow], O): the pixels at rows H[0] and columns W[0]."""
    groups, pixels, results = channels // VECTOR, height * width, oh * ow

    @T.prim_func(s_tir=True, private=True)
    def nearest(
        X: T.Buffer((pixels, channels), "float16"),
        H: T.Buffer((2, oh), "int32"),
        V: T.Buffer((oh,), "float32"),
        W: T.Buffer((2, ow), "int32"),
        U: T.Buffer((ow,), "float32"),
        O: T.Buffer((results, channels), "float16"),
    ):
        T.func_attr(_ATTRIBUTES)
        for x, y, z in T.grid(results, groups, VECTOR):
            with T.sblock("resize"):
                p, g, v = T.axis.remap("SSS", [x, y, z])
                T.reads(X[0:pixels, g * VECTOR + v], H[0, p // ow], W[0, p % ow])
                T.writes(O[p, g * VECTOR + v])
                O[p, g * VECTOR + v] = X[H[0, p // ow] * width + W[0, p % ow], g * VECTOR + v]

    return nearest


def resize_bilinear(channels: int, height: int, width: int, oh: int, ow: int) -> Any:
    """Return resized(X, H[2, oh], V[oh], W[2, ow], U[ow], O): rows H and columns W blended with the shares V and U."""
    groups, pixels, results = channels // VECTOR, height * width, oh * ow

    def blended(first, second, share):
        return first + (second - first) * share

    @T.prim_func(s_tir=True, private=True)
    def bilinear(
        X: T.Buffer((pixels, channels), "float16"),
        H: T.Buffer((2, oh), "int32"),
        V: T.Buffer((oh,), "float32"),
        W: T.Buffer((2, ow), "int32"),
        U: T.Buffer((ow,), "float32"),
        O: T.Buffer((results, channels), "float16"),
    ):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(results, groups):
            with T.sblock("resize"):
                p, g = T.axis.remap("SS", [x, y])
                T.reads(
                    X[0:pixels, g * VECTOR : g * VECTOR + VECTOR],
                    H[0:2, p // ow],
                    V[p // ow],
                    W[0:2, p % ow],
                    U[p % ow],
                )
                T.writes(O[p, g * VECTOR : g * VECTOR + VECTOR])
                corners = T.sblock_alloc_buffer((4, VECTOR), "float16", scope="local")
                for row in T.unroll(2):
                    for side in T.unroll(2):
                        for v in T.vectorized(VECTOR):
                            corners[row * 2 + side, v] = X[H[row, p // ow] * width + W[side, p % ow], g * VECTOR + v]
                for v in T.unroll(VECTOR):
                    corners[0, v] = T.Cast(
                        "float16",
                        blended(
                            blended(T.Cast("float32", corners[0, v]), T.Cast("float32", corners[1, v]), U[p % ow]),
                            blended(T.Cast("float32", corners[2, v]), T.Cast("float32", corners[3, v]), U[p % ow]),
                            V[p // ow],
                        ),
                    )
                for v in T.vectorized(VECTOR):
                    O[p, g * VECTOR + v] = corners[0, v]

    return bilinear


def padded(channels: int, height: int, width: int, top: int, left: int, tall: int, wide: int) -> Any:
    """Return padded(X, O[tall * wide, channels]): an image with a border of zeros, cut at the right and bottom."""

    def value(X, _, p, c, v):
        y, x = p // wide, p % wide
        return T.if_then_else(
            tirx.all(y >= top, y < height + top, x >= left, x < width + left),
            X[(y - top) * width + x - left, c + v],
            T.float16(0),
        )

    images = ((height * width, channels), "float16"), ((tall * wide, channels), "float16")
    return elements("pad", images[:1], images[1], value, (channels // VECTOR, VECTOR))


def picked(sizes: tuple[int, ...], regular: Any, count: int, width: int, factor: float) -> Any:
    """Return picked(X0[sizes[0]], ..., T[count], O[count, 1, width]): groups of elements of tensors, times a factor.

    With a factor O is [count, width, 1], elements one by one, which are fp32 in between.
    T is the place of each group among those of the tensors in a row, each starting at a multiple of 8 elements, or -1
    for zeros; without T the places of the one tensor are `regular` (`index_maps.strides`).
    """
    sources = [te.placeholder((size,), "float16", f"X{number}") for number, size in enumerate(sizes)]
    table = [] if regular else [te.placeholder((count,), "int32", "T")]
    starts = [sum(-(-size // VECTOR) * VECTOR for size in sizes[:number]) // width for number in range(len(sizes))]

    def value(i: Any, u: Any, v: Any) -> Any:
        v = u + v
        if regular:
            place = _digits(i, *regular)
            found = sources[0][place * width + v]
        else:
            place, found = table[0][i], tirx.const(0, "float16")
            for source, start in zip(sources, starts, strict=True):
                found = tirx.if_then_else(place >= start, source[(place - start) * width + v], found)
        return found if factor == 1.0 else T.Cast("float16", T.Cast("float32", found) * T.float32(factor))

    shape = (count, 1, width) if factor == 1.0 else (count, width, 1)
    made = te.create_prim_func([*sources, *table, te.compute(shape, value, "picked")])
    return made.without_attr("global_symbol").with_attr("tirx.noalias", True)


def grouped(parts: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    """Return the groups of channels that `joined` moves at once, and the channels of each."""
    lanes = next(n for n in (VECTOR, 4, 2, 1) if all(size % n == 0 for part in parts for size in part))
    return sum(count for _, _, count in parts) // lanes, lanes


def joined(pixels: int, parts: tuple[tuple[int, int, int], ...]) -> Any:
    """Return joined(X0[pixels, lying], ..., O[pixels, groups, lanes]): channels of images one after the other.

    parts: an image's channels in memory, the first of those taken, and their number.
    """
    groups, lanes = grouped(parts)
    sources = [te.placeholder((pixels, lying), "float16", f"X{number}") for number, (lying, _, _) in enumerate(parts)]

    def value(p: Any, g: Any, v: Any) -> Any:
        found, first = None, 0
        for source, (_, start, count) in zip(sources, parts, strict=True):
            own = source[p, (g - first) * lanes + start + v]
            found = own if found is None else tirx.if_then_else(g >= first, own, found)
            first += count // lanes
        return found

    made = te.create_prim_func([*sources, te.compute((pixels, groups, lanes), value, "joined")])
    return made.without_attr("global_symbol").with_attr("tirx.noalias", True)


def _digits(i: Any, dimensions: tuple[tuple[int, int], ...], first: int) -> Any:
    place, below = tirx.const(first, "int32"), 1
    for number, (size, stride) in enumerate(reversed(dimensions)):
        digit = i // below if below > 1 else i
        place = place + (digit if number == len(dimensions) - 1 else digit % size) * stride
        below *= size
    return place


def packed(pixels: int, channels: int, lying: int) -> Any:
    """Return packed(X[channels, pixels], O[pixels, lying]): a plain image by pixels, missing channels zero."""

    @T.prim_func(s_tir=True, private=True)
    def moved(X: T.Buffer((channels, pixels), "float16"), O: T.Buffer((pixels, lying), "float16")):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(pixels, lying):
            with T.sblock("pack"):
                p, c = T.axis.remap("SS", [x, y])
                T.reads(X[0:channels, p])
                T.writes(O[p, c])
                O[p, c] = T.if_then_else(c < channels, X[c, p], T.float16(0))

    return moved


def unpacked(pixels: int, lying: int, channels: int) -> Any:
    """Return unpacked(X[pixels, lying], O[channels, pixels]): an image as a plain tensor."""
    return planes("unpack", ((pixels, lying), "float16"), (channels, "float16"), lambda value: value)


def planes(name: str, source: Tensor, result: tuple[int, str], value: Callable[[Any], Any]) -> Any:
    """Return kernel(X[pixels, lying], O[channels, pixels]): a function of each element of an image, by channels."""
    ((pixels, lying), given), (channels, dtype) = source, result

    @T.prim_func(s_tir=True, private=True)
    def turned(X: T.Buffer((pixels, lying), given), O: T.Buffer((channels, pixels), dtype)):
        T.func_attr(_ATTRIBUTES)
        for x, y in T.grid(channels, pixels):
            with T.sblock(name):
                c, p = T.axis.remap("SS", [x, y])
                O[c, p] = value(X[p, c])

    return turned


def pillar_net(slots: int, channels: int, pillar: float, origin_x: float, origin_y: float) -> Any:
    """Return pfn(voxels, counts, coords, weight[9, channels], bias, features): one thread per channel of a pillar.

    Voxels and features are fp16, all intermediate values are fp32.  Empty slots are zero after decoration and
    contribute relu(bias), so only the filled ones are computed.
    """
    half_x, half_y = origin_x + pillar / 2, origin_y + pillar / 2

    @T.prim_func(s_tir=True, private=True)
    def pfn(
        voxels: T.handle,
        counts: T.handle,
        coords: T.handle,
        K: T.Buffer((9, channels), "float32"),
        B: T.Buffer((channels,), "float32"),
        features: T.handle,
    ):
        T.func_attr(_ATTRIBUTES)
        P = T.int64()
        V = T.match_buffer(voxels, (P, slots, 4), "float16")
        N = T.match_buffer(counts, (P,), "int32")
        XY = T.match_buffer(coords, (P, 2), "int32")
        F = T.match_buffer(features, (P, channels), "float16")
        for x, y in T.grid(P + 1, channels):
            with T.sblock("pillar"):
                p, c = T.axis.remap("SS", [x, y])
                T.reads(V[p, 0:slots, 0:4], N[p], XY[p, 0:2], K[0:9, c], B[c])
                T.writes(F[p, c])
                mean = T.sblock_alloc_buffer((3,), "float32", scope="local")
                centre = T.sblock_alloc_buffer((2,), "float32", scope="local")
                point = T.sblock_alloc_buffer((4,), "float32", scope="local")
                best = T.sblock_alloc_buffer((1,), "float32", scope="local")
                acc = T.sblock_alloc_buffer((1,), "float32", scope="local")
                if p < P:
                    for k in T.unroll(3):
                        mean[k] = T.float32(0)
                    for s in range(T.min(N[p], slots)):
                        for k in T.unroll(3):
                            mean[k] = mean[k] + T.Cast("float32", V[p, s, k])
                    for k in T.unroll(3):
                        mean[k] = mean[k] / T.Cast("float32", T.max(N[p], 1))
                    centre[0] = T.Cast("float32", XY[p, 0]) * T.float32(pillar) + T.float32(half_x)
                    centre[1] = T.Cast("float32", XY[p, 1]) * T.float32(pillar) + T.float32(half_y)
                    best[0] = T.if_then_else(N[p] < slots, T.max(B[c], T.float32(0)), T.float32(0))
                    for s in range(T.min(N[p], slots)):
                        for k in T.unroll(4):
                            point[k] = T.Cast("float32", V[p, s, k])
                        acc[0] = B[c]
                        for k in T.unroll(4):
                            acc[0] = acc[0] + point[k] * K[k, c]
                        for k in T.unroll(3):
                            acc[0] = acc[0] + (point[k] - mean[k]) * K[4 + k, c]
                        for k in T.unroll(2):
                            acc[0] = acc[0] + (point[k] - centre[k]) * K[7 + k, c]
                        best[0] = T.max(best[0], acc[0])
                    F[p, c] = T.Cast("float16", best[0])

    return pfn


def scatter(channels: int, ny: int, nx: int) -> Any:
    """Return place(features[P, channels], coords[P, 2], canvas): zero it, then write the pillars inside the grid."""
    groups = channels // VECTOR

    @T.prim_func(s_tir=True, private=True)
    def place(features: T.handle, coords: T.handle, O: T.Buffer((ny * nx, channels), "float16")):
        T.func_attr(_ATTRIBUTES)
        P = T.int64()
        F = T.match_buffer(features, (P, channels), "float16")
        XY = T.match_buffer(coords, (P, 2), "int32")
        for x, y, z in T.grid(ny * nx, groups, VECTOR):
            with T.sblock("zero"):
                i, g, v = T.axis.remap("SSS", [x, y, z])
                O[i, g * VECTOR + v] = T.float16(0)
        for x, y in T.grid(P + 1, groups):
            with T.sblock("place"):
                p, g = T.axis.remap("SS", [x, y])
                T.reads(F[p, g * VECTOR : g * VECTOR + VECTOR], XY[p, 0:2])
                T.writes(O[0 : ny * nx, g * VECTOR : g * VECTOR + VECTOR])
                if p < P:
                    if XY[p, 0] >= 0 and XY[p, 0] < nx and XY[p, 1] >= 0 and XY[p, 1] < ny:
                        for v in T.vectorized(VECTOR):
                            O[XY[p, 1] * nx + XY[p, 0], g * VECTOR + v] = F[p, g * VECTOR + v]

    return place
