"""CPU kernels on plain tensors of any shape, against numpy: products, softmax, layer norm, and scheduled operators."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from cpu_networks import execute, inputs_of, weights_of

from socsched.compiler.environment import tvm
from socsched.compiler.quantize.epilogue import Stored
from socsched.compiler.targets.llvm.int8_kernels import quantise
from socsched.compiler.targets.llvm.kernels import pack
from socsched.compiler.targets.llvm.lower import lower
from socsched.compiler.targets.llvm.processor import native_target
from socsched.compiler.targets.llvm.vector import AVX2, AVX512, NEON, Lying
from socsched.graph.expand import fuse_network
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType

Array = np.ndarray[Any, Any]
VECTORS = {vector.name: vector for vector in (AVX512, AVX2, NEON)}


def network(shapes: dict[str, tuple[int, ...]], params: dict[str, tuple[int, ...]], *layers: Layer) -> Network:
    inputs = {name: TensorType(shape, "fp32", "NCHW" * (len(shape) == 4)) for name, shape in shapes.items()}
    return Network("net", inputs, layers, (layers[-1].name,), params)


def check(net: Network, vector: str, expected: Callable[[dict[str, Array], dict[str, Array]], Array]) -> None:
    """Compare a network's result with that of a function of its inputs and weights."""
    given = inputs_of(net)
    (found,) = execute(net, given, VECTORS[vector])
    wanted = expected(given, weights_of(net))
    assert found.size == wanted.size
    assert np.abs(found.reshape(wanted.shape) - wanted).max() <= 2e-5 * max(np.abs(wanted).max(), 1.0)


def sides(random: np.random.Generator, count: int, most: int = 40) -> tuple[int, ...]:
    return tuple(int(size) for size in random.integers(1, most, count))


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("seed", range(8))
def test_dense_layers_of_rows_of_any_rank(seed: int, vector: str) -> None:
    random = np.random.default_rng(seed)
    rank, (inputs, outputs) = int(random.integers(2, 5)), sides(random, 2, 70)
    shape = (1, *sides(random, rank - 2, 9), inputs) if rank > 2 else (*sides(random, 1), inputs)
    net = network(
        {"x": shape},
        {"w": (outputs, inputs), "b": (outputs,)},
        Layer("fc", "dense", ("x",), {"weight": "w"}),
        Layer("sum", "add", ("fc",), {"constant": "b"}, {"swapped": True} if seed % 2 else {}),
        Layer("y", "relu", ("sum",)),
    )
    assert lower(fuse_network(net), weights_of(net), VECTORS[vector]).general == ()
    check(net, vector, lambda x, w: np.maximum(x["x"] @ w["w"].T + w["b"], 0))


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("seed", range(8))
def test_products_of_computed_tensors(seed: int, vector: str) -> None:
    random = np.random.default_rng(seed)
    batch, (rows, inputs, columns) = sides(random, int(random.integers(0, 3)), 5), sides(random, 3)
    shared = tuple(size if place < seed % 3 else 1 for place, size in enumerate(batch))
    net = network({"x": (*batch, rows, inputs), "z": (*shared, inputs, columns)}, {}, Layer("y", "matmul", ("x", "z")))
    assert lower(fuse_network(net), {}, VECTORS[vector]).general == ()
    check(net, vector, lambda x, w: x["x"] @ x["z"])


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("seed", range(6))
def test_rows_are_normalised(seed: int, vector: str) -> None:
    random = np.random.default_rng(seed)
    shape = sides(random, int(random.integers(2, 5)))
    shape = (1, *shape[1:]) if len(shape) == 4 else shape
    softmax = network({"x": shape}, {}, Layer("y", "softmax", ("x",), attrs={"axis": -1}))

    def exponentials(x: dict[str, Array], _: dict[str, Array]) -> Array:
        powers = np.exp(x["x"] - x["x"].max(-1, keepdims=True))
        return np.asarray(powers / powers.sum(-1, keepdims=True))

    check(softmax, vector, exponentials)
    axis = int(random.integers(1, len(shape)))
    params = {"s": shape[axis:], "b": shape[axis:]}
    layer = Layer("y", "layer_norm", ("x",), {"scale": "s", "shift": "b"}, {"axis": axis, "epsilon": 1e-5})
    axes = tuple(range(axis, len(shape)))
    check(
        network({"x": shape}, params, layer),
        vector,
        lambda x, w: (
            (x["x"] - x["x"].mean(axes, keepdims=True)) / np.sqrt(x["x"].var(axes, keepdims=True) + 1e-5) * w["s"]
            + w["b"]
        ),
    )


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("seed", range(12))
def test_convolutions_in_groups_read_their_own_blocks(seed: int, vector: str) -> None:
    """Groups of whole blocks, of parts of a block, and of neither, against one convolution a group."""
    random = np.random.default_rng(seed)
    groups, inputs, outputs = (int(random.choice([2, 3, 4, 8, 16])) for _ in range(3))
    if seed >= 8:  # groups that fill blocks of both sides only several together
        groups, inputs, outputs = 64, int(random.integers(1, 4)), int(random.integers(2, 7))
    shape, kernel, stride = (1, groups * inputs, 7, 9), int(random.choice([1, 3])), int(random.integers(1, 3))
    layer = Layer(
        "y",
        "conv2d",
        ("x",),
        {"weight": "w", "bias": "b"},
        {"stride": stride, "padding": kernel // 2, "groups": groups},
    )
    net = network({"x": shape}, {"w": (groups * outputs, inputs, kernel, kernel), "b": (groups * outputs,)}, layer)

    def expected(x: dict[str, Array], w: dict[str, Array]) -> Array:
        pad = kernel // 2
        padded = np.pad(x["x"], ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
        parts = zip(np.split(windows, groups, 1), np.split(w["w"], groups, 0), strict=True)
        joined = np.concatenate([np.einsum("nihwkl,oikl->nohw", part, weight) for part, weight in parts], 1)
        return np.asarray(joined + w["b"][:, None, None])

    check(net, vector, expected)


ERF = np.vectorize(math.erf, otypes=[np.float32])
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "erf": ERF,
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "abs": np.abs,
}


def _apply(function: Callable[[Array], Array], x: Array, weights: dict[str, Array]) -> Array:
    return function(x)


def _subtract(key: str, x: Array, weights: dict[str, Array]) -> Array:
    return weights[key] - x


def _mean(axis: int, x: Array, weights: dict[str, Array]) -> Array:
    return np.asarray(x.mean(axis, keepdims=True))


def _cut(end: int, x: Array, weights: dict[str, Array]) -> Array:
    return x[:, :end]


@pytest.mark.parametrize("seed", range(10))
def test_operators_without_a_rule_are_scheduled(seed: int) -> None:
    """Chains of functions, sums with constants of any broadcast shape, transposes, slices and reductions."""
    random = np.random.default_rng(seed)
    shape = sides(random, 3, 50)
    layers: list[Layer] = []
    params: dict[str, tuple[int, ...]] = {}
    steps: list[Callable[[Array, dict[str, Array]], Array]] = []
    now, value = shape, "x"
    for number in range(int(random.integers(2, 6))):
        name, kind = f"v{number}", int(random.integers(5))
        if kind == 0:
            function = str(random.choice(list(FUNCTIONS)))
            layers.append(Layer(name, function, (value,)))
            steps.append(partial(_apply, FUNCTIONS[function]))
        elif kind == 1:
            key, side = f"p{number}", tuple(size if random.integers(2) else 1 for size in now)
            params[key] = side
            layers.append(Layer(name, "subtract", (value,), {"constant": key}, {"swapped": True}))
            steps.append(partial(_subtract, key))
        elif kind == 2:
            order = tuple(int(axis) for axis in random.permutation(3))
            layers.append(Layer(name, "transpose", (value,), attrs={"order": order}))
            steps.append(partial(_apply, partial(np.transpose, axes=order)))
            now = tuple(now[axis] for axis in order)
        elif kind == 3:
            end = int(random.integers(1, now[1] + 1))
            attrs = {"axes": (1,), "begin": (0,), "end": (end,), "step": (1,)}
            layers.append(Layer(name, "slice", (value,), attrs=attrs))
            steps.append(partial(_cut, end))
            now = (now[0], end, now[2])
        else:
            axis = int(random.integers(3))
            layers.append(Layer(name, "reduce_mean", (value,), attrs={"axis": axis, "keepdims": True}))
            steps.append(partial(_mean, axis))
            now = tuple(1 if place == axis else size for place, size in enumerate(now))
        value = name

    def expected(x: dict[str, Array], w: dict[str, Array]) -> Array:
        result = x["x"]
        for step in steps:
            result = step(result, w)
        return result

    check(network({"x": shape}, params, *layers), "avx512", expected)


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("seed", range(8))
def test_images_are_sampled_between_their_pixels(seed: int, vector: str) -> None:
    random = np.random.default_rng(seed)
    batch, channels, height, width, rows, columns = sides(random, 6, 20)
    attrs = {"mode": "bilinear", "padding": ("zeros", "border")[seed % 2], "align": bool(seed // 2 % 2)}
    net = network(
        {"x": (batch, channels, height, width), "g": (batch, rows, columns, 2)},
        {},
        Layer("y", "grid_sample", ("x", "g"), {}, attrs),
    )

    check(net, vector, lambda x, _: _sampled(x["x"], x["g"], attrs))


def _sampled(image: Array, grid: Array, attrs: dict[str, Any]) -> Array:
    """Return an image [N, C, H, W] at the places of a grid [N, rows, columns, 2]."""
    (batch, channels, height, width), (rows, columns) = image.shape, grid.shape[1:3]
    found = np.zeros((batch, channels, rows, columns))
    size = np.array([width, height])
    scaled = (grid.astype(np.float64) + 1) / 2
    places = scaled * (size - 1) if attrs["align"] else scaled * size - 0.5
    places = np.clip(places, 0, size - 1) if attrs["padding"] == "border" else places
    for n, r, c in np.ndindex(batch, rows, columns):
        left, top = np.floor(places[n, r, c]).astype(int)
        for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
            if 0 <= row < height and 0 <= column < width:
                share = (1 - abs(places[n, r, c] - (column, row))).prod()
                found[n, :, r, c] += share * image[n, :, row, column]
    return found


def require_kernel(net: Network, vector: str, name: str) -> None:
    """Fail unless a network's code has a kernel of this name, and nothing is left to general schedules."""
    made = lower(fuse_network(net), weights_of(net), VECTORS[vector])
    assert any(variable.name_hint.startswith(name) for variable in made.module.get_global_vars())
    assert not {"multiply", "reduce_sum", "grid_sample"} & set(made.general)


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("seed", range(4))
def test_gathered_products_are_summed_as_rows_of_channels(seed: int, vector: str) -> None:
    """Features times shares of depths, of which every cell takes the sum of some: as lift and splat."""
    random = np.random.default_rng(seed)
    cameras, depths, pixels, cells, each = sides(random, 5, 9)
    channels, count = 16 * int(random.integers(1, 10)), cameras * depths * pixels
    table = random.integers(0, count, cells * each)
    layers = (
        Layer("m", "multiply", ("d", "f") if seed % 2 else ("f", "d")),
        Layer("t", "transpose", ("m",), {}, {"order": (0, 1, 3, 2)}),
        Layer("r", "reshape", ("t",), {}, {"shape": (count, channels)}),
        Layer("g", "gather", ("r",), {}, {"axis": 0, "indices": tuple(int(n) for n in table)}),
        Layer("c", "reshape", ("g",), {}, {"shape": (cells, each, channels)}),
        Layer("y", "reduce_sum", ("c",), {}, {"axis": 1, "keepdims": False}),
    )
    net = network({"d": (cameras, depths, 1, pixels), "f": (cameras, 1, channels, pixels)}, {}, *layers)
    require_kernel(net, vector, "weighted_rows")

    def expected(x: dict[str, Array], _: dict[str, Array]) -> Array:
        rows = (x["d"].astype(np.float64) * x["f"]).transpose(0, 1, 3, 2).reshape(count, channels)
        return rows[table].reshape(cells, each, channels).sum(1)

    check(net, vector, expected)


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("seed", range(4))
def test_samples_of_several_images_are_summed_as_rows_of_channels(seed: int, vector: str) -> None:
    """Images of several sizes out of one tensor, sampled at a grid each, and weighed: deformable attention."""
    random = np.random.default_rng(seed)
    heads, queries, points = sides(random, 3, 7)
    sizes, channels = [sides(random, 2, 9) for _ in range(1 + seed)], 16 * int(random.integers(1, 4))
    attrs = {"mode": "bilinear", "padding": ("zeros", "border")[seed % 2], "align": bool(seed // 2 % 2)}
    layers, parts, first = [], [], 0
    for n, (height, width) in enumerate(sizes):
        last = first + height * width
        layers += [
            Layer(f"v{n}", "slice", ("v",), {}, {"axes": (1,), "begin": (first,), "end": (last,), "step": (1,)}),
            Layer(f"t{n}", "transpose", (f"v{n}",), {}, {"order": (0, 2, 3, 1)}),
            Layer(f"x{n}", "reshape", (f"t{n}",), {}, {"shape": (heads, channels, height, width)}),
            Layer(f"c{n}", "slice", ("g",), {}, {"axes": (1,), "begin": (n,), "end": (n + 1,), "step": (1,)}),
            Layer(f"g{n}", "reshape", (f"c{n}",), {}, {"shape": (heads, queries, points, 2)}),
            Layer(f"s{n}", "grid_sample", (f"x{n}", f"g{n}"), {}, attrs),
            Layer(f"p{n}", "reshape", (f"s{n}",), {}, {"shape": (heads, channels, queries, 1, points)}),
        ]
        parts.append(f"p{n}")
        first = last
    whole = {"shape": (heads, channels, queries, len(sizes) * points)}
    stack = [Layer("k", "concat", tuple(parts), {}, {"axis": 3})] if seed else []
    layers += [
        *(*stack, Layer("a", "reshape", ("k" if seed else "p0",), {}, whole), Layer("m", "multiply", ("a", "w"))),
        Layer("y", "reduce_sum", ("m",), {}, {"axis": 3, "keepdims": False}),
    ]
    shapes = {
        "v": (1, first, heads, channels),
        "g": (heads, len(sizes), queries, points, 2),
        "w": (heads, 1, queries, len(sizes) * points),
    }
    net = network(shapes, {}, *layers)
    require_kernel(net, vector, "weighted_samples")

    def expected(x: dict[str, Array], w: dict[str, Array]) -> Array:
        found, first = [], 0
        for n, (height, width) in enumerate(sizes):
            image = x["v"][0, first : first + height * width].transpose(1, 2, 0).reshape(heads, channels, height, width)
            found.append(_sampled(image, x["g"][:, n], attrs))
            first += height * width
        return (np.concatenate(found, 3) * x["w"]).sum(3)

    check(net, vector, expected)


def small(batch: int, channels: int, kind: str) -> Network:
    """A network of images, each of which it computes for itself; one layer outside of the rules reads all of them."""
    conv = {"stride": 1, "padding": 1, "groups": 1}
    return Network(
        "net",
        {"x": TensorType((batch, 5, 10, 12), "fp32", "NCHW")},
        (
            Layer("a", "conv2d", ("x",), {"weight": "v", "bias": "b"}, conv),
            Layer("r", "relu", ("a",)),
            Layer("c", "conv2d", ("r",), {"weight": "w", "bias": "b"}, conv),
            Layer("s", "add" if kind == "sum" else "concat", ("c", "r"), {}, {} if kind == "sum" else {"axis": 1}),
            Layer("p", "max_pool", ("s",), {}, {"kernel": 2, "stride": 2, "padding": 0, "ceil": False}),
            Layer("t", "transpose", ("p",), {}, {"order": (1, 0, 2, 3)}),
        ),
        ("t", "p"),
        {"v": (channels, 5, 3, 3), "w": (channels, channels, 3, 3), "b": (channels,)},
    )


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("kind", ["sum", "join"])
@pytest.mark.parametrize("batch", [2, 5])
def test_images_of_a_batch_are_computed_one_by_one(batch: int, kind: str, vector: str) -> None:
    net, one = small(batch, 32, kind), small(1, 32, kind)
    given = inputs_of(net)
    turned, whole = execute(net, given, VECTORS[vector])
    assert "conv2d" not in lower(fuse_network(net), weights_of(net), VECTORS[vector]).general
    for number in range(batch):
        _, image = execute(one, {"x": given["x"][number : number + 1]}, VECTORS[vector])
        np.testing.assert_array_equal(whole[number : number + 1], image)
        np.testing.assert_array_equal(turned[:, number], image[0])


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("count", [3, 4])
def test_sums_of_several_convolutions_and_their_input(count: int, vector: str) -> None:
    """A kernel adds one other image: the rest are sums of their own (HRNet's exchange between resolutions)."""
    conv = {"stride": 1, "padding": 0, "groups": 1}
    names = [f"c{number}" for number in range(count - 1)]
    convs = [Layer(name, "conv2d", ("x",), {"weight": f"{name}.w", "bias": f"{name}.b"}, conv) for name in names]
    values, sums = [*names, "x"], list[Layer]()
    for number, value in enumerate(values[1:]):
        sums.append(Layer(f"s{number}", "add", (sums[-1].name if sums else values[0], value)))
    params = {f"{name}.{role}": shape for name in names for role, shape in (("w", (32, 32, 1, 1)), ("b", (32,)))}
    net = network({"x": (1, 32, 6, 7)}, params, *convs, *sums, Layer("y", "relu", (sums[-1].name,)))

    def summed(x: dict[str, Array], w: dict[str, Array]) -> Array:
        total = x["x"].copy()
        for name in names:
            total += np.einsum("oi,nihw->nohw", w[f"{name}.w"][:, :, 0, 0], x["x"]) + w[f"{name}.b"][:, None, None]
        return np.maximum(total, 0)

    check(net, vector, summed)


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("seed", range(6))
def test_images_keep_their_blocks_between_convolutions(seed: int, vector: str) -> None:
    """Means over an image, and constants a channel, as squeezes, scales of layers and lone batch norms have them."""
    random = np.random.default_rng(seed)
    channels, height, width = (int(size) for size in random.integers(1, 40, 3))
    kind = ("add", "multiply", "maximum", "minimum")[seed % 4]
    shape = ((channels, 1, 1), (1, channels, 1, 1), (1, 1, 1))[seed % 3]
    net = network(
        {"x": (1, 3, height, width)},
        {"w": (channels, 3, 1, 1), "k": shape, "v": (channels, channels, 1, 1)},
        Layer("c", "conv2d", ("x",), {"weight": "w"}),
        Layer("r", "sigmoid", ("c",)),
        Layer("m", kind, ("r",), {"constant": "k"}),
        Layer("s", "reduce_mean", ("m",), attrs={"axis": (2, 3), "keepdims": True}),
        Layer("t", "conv2d", ("s",), {"weight": "v"}),
        Layer("y", "multiply", ("m", "t")),
    )
    assert lower(fuse_network(net), weights_of(net), VECTORS[vector]).general == ()
    combine = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}[kind]

    def expected(x: dict[str, Array], w: dict[str, Array]) -> Array:
        gates = 1 / (1 + np.exp(-np.einsum("oi,nihw->nohw", w["w"][:, :, 0, 0], x["x"])))
        scaled = combine(gates, w["k"])
        return np.asarray(
            scaled * np.einsum("oi,nihw->nohw", w["v"][:, :, 0, 0], scaled.mean((2, 3), keepdims=True)), np.float32
        )

    check(net, vector, expected)


@pytest.mark.parametrize("seed", range(6))
def test_tensors_are_joined_along_the_axis_of_vectors(seed: int) -> None:
    random = np.random.default_rng(seed)
    step = (16, 8, 4, 1)[seed % 4]
    sizes = [step * int(count) for count in random.integers(1, 9, 2 + seed % 3)]
    names = [f"x{number}" for number in range(len(sizes))]
    net = network(
        {name: (1, 12, size) for name, size in zip(names, sizes, strict=True)},
        {},
        Layer("c", "concat", tuple(names), attrs={"axis": 2}),
        Layer("a", "slice", ("c",), attrs={"axes": (1,), "begin": (0,), "end": (5,), "step": (1,)}),
        Layer("b", "slice", ("c",), attrs={"axes": (1,), "begin": (5,), "end": (12,), "step": (1,)}),
        Layer("g", "sigmoid", ("b",)),
        Layer("y", "concat", ("a", "g"), attrs={"axis": 1}),
    )

    def expected(x: dict[str, Array], _: dict[str, Array]) -> Array:
        whole = np.concatenate([x[name] for name in names], 2)
        return np.concatenate((whole[:, :5], 1 / (1 + np.exp(-whole[:, 5:]))), 1)

    check(net, "avx512", expected)


def at_the_end_of_memory(array: Array) -> Array:
    """Return a copy, aligned as tensors are, behind which no memory is mapped but for less than 64 bytes."""
    room = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, room + mmap.PAGESIZE)
    base = np.frombuffer(pages, np.uint8)
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(base.ctypes.data + room), mmap.PAGESIZE, 0) == 0
    start = (room - array.nbytes) // 64 * 64
    copy = base[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize("channels", [1, 3, 16, 24, 31, 40, 50])
@pytest.mark.parametrize("kernel", ["pack", "quantise"])
def test_plain_images_are_packed_without_a_look_behind_them(kernel: str, channels: int) -> None:
    """Lanes of the last block that are no channel are computed along; what they read may not be there."""
    c, height, width = 16, 9, 31
    lying = Lying(-(-channels // c), c, height, width, 1, dtype="float32" if kernel == "pack" else "int8")
    function = pack(channels, lying) if kernel == "pack" else quantise(channels, -1, lying, 20.0, Stored("int8", 3))
    target = tvm.target.Target(dict(native_target()))
    built = tvm.compile(tvm.IRModule({kernel: function.with_attr("global_symbol", kernel)}), target)
    image = np.random.default_rng(channels).normal(size=(1, channels, height, width)).astype(np.float32)
    result = tvm.runtime.tensor(np.full(lying.shape, 77, lying.dtype))
    built[kernel](tvm_ffi.from_dlpack(at_the_end_of_memory(image)), result)
    plain = result.numpy()[:, 1:-1, 1:-1].transpose(0, 3, 1, 2).reshape(-1, height, width)
    wanted = image[0] if kernel == "pack" else np.clip(np.rint(image[0] * np.float32(20.0)) + 3, -128, 127)
    assert (plain[:channels] == wanted).all() and (plain[channels:] == (0 if kernel == "pack" else 3)).all()
