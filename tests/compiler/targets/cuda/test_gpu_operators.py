"""GPU rules beyond products, unbound on the CPU, against TVM's general form in fp32; compiled code by nvcc."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_sources import build_executable, needs_nvcc, report, source_of
from gpu_networks import Builder

from socsched.compiler.environment import relax, tvm
from socsched.compiler.layouts import convert
from socsched.compiler.loading.aligned import from_tvm, to_tvm
from socsched.compiler.passes.relax_form import bind_weights, import_network
from socsched.compiler.targets.cuda import kernels, rules
from socsched.compiler.targets.cuda.attention import completed
from socsched.compiler.targets.cuda.kernels import Window
from socsched.compiler.targets.cuda.lower import fuse, lower
from socsched.compiler.targets.cuda.schedule import schedule
from socsched.compiler.targets.cuda.sequence_kernels import (
    PADDED,
    Product,
    by_rows,
    layer_norm,
    product,
    softmax,
    tile_of,
)
from socsched.compiler.targets.cuda.toolkits import device_source
from socsched.compiler.targets.llvm.fuse import with_numbers
from socsched.compiler.targets.llvm.processor import native_target
from socsched.graph.expand import fuse_network
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.models.onnx_import import load
from socsched.models.weights import draw_weights
from tests.models.onnx_files import FILES

TARGET = {"kind": "cuda", "arch": "sm_87", "max_threads_per_block": 1024, "thread_warp_size": 32}
ROUNDING = 6e-3
"""Relative to the largest output: fp16 activations between a few layers."""


def windows() -> Network:
    """Convolutions and pooling that slide otherwise: depthwise, dilated, strides and sides that differ."""
    b = Builder(24, 13, 17)
    own = [
        b.layer("d3", "conv2d", "x", shape=(24, 1, 3, 3), stride=1, padding=1, groups=24),
        b.layer("d5", "conv2d", "x", relu=True, shape=(24, 1, 5, 5), stride=2, padding=(1, 2, 2, 1), groups=24),
        b.layer("dd", "conv2d", "x", shape=(24, 1, 3, 3), stride=(1, 2), padding=2, dilation=(2, 1), groups=24),
        b.layer("far", "conv2d", "x", shape=(16, 24, 3, 3), stride=1, padding=2, dilation=2),
        b.layer("uneven", "conv2d", "x", shape=(32, 24, 3, 3), stride=2, padding=(0, 0, 1, 1)),
        b.layer("strides", "conv2d", "x", shape=(20, 24, 3, 3), stride=(1, 2), padding=1),
        b.layer("max", "max_pool", "x", kernel=3, stride=2, padding=(0, 0, 1, 1)),
        b.layer("avg", "avg_pool", "x", kernel=3, stride=2, padding=1),
        b.layer("all", "avg_pool", "x", kernel=2, stride=2, padding=1, count_padding=True),
        b.layer("gap", "global_avg_pool", "x"),
    ]
    return b.network(*own)


def gates() -> Network:
    """Activations inside convolutions and alone, a squeeze-and-excitation gate, and a residual before an activation."""
    b = Builder(12, 9, 10)
    a = b.layer("a", "conv2d", "x", shape=(24, 12, 1, 1), stride=1, padding=0)
    s = b.layer("s", "multiply", a, b.layer("a.g", "sigmoid", a))
    d = b.layer("d", "conv2d", s, shape=(24, 1, 3, 3), stride=1, padding=1, groups=24)
    h = b.layer("h", "hard_swish", d)
    g = b.layer("squeeze", "global_avg_pool", h)
    g = b.layer("g1", "conv2d", g, relu=True, shape=(6, 24, 1, 1), stride=1, padding=0)
    g = b.layer("g2", "conv2d", g, shape=(24, 6, 1, 1), stride=1, padding=0)
    gate = b.layer("gate", "hard_sigmoid", g, alpha=0.2, beta=0.5)
    y = b.layer("gated", "multiply", h, gate)
    y = b.layer("y", "conv2d", y, shape=(12, 24, 1, 1), stride=1, padding=0)
    sum_ = b.layer("sum", "add", y, "x")
    six = b.layer("six", "clip", sum_, low=0.0, high=6.0)
    alone = [b.layer("tanh", "tanh", six), b.layer("leaky", "leaky_relu", "x", alpha=0.1)]
    both = [b.layer(kind, kind, six, "x") for kind in ("subtract", "maximum", "minimum")]
    return b.network(six, gate, *alone, *both)


def sizes() -> Network:
    """Resizing by every coordinate and rounding, slices, a concatenation of odd parts, and a mean that is no image."""
    b = Builder(12, 8, 10)
    ways = [
        ((16, 20), False, "asymmetric", "floor"), ((5, 7), False, "half_pixel", "round_prefer_ceil"),
        ((11, 10), False, "align_corners", "ceil"), ((16, 40), False, "half_pixel", "round_prefer_floor"),
        ((16, 20), True, "half_pixel", "round"), ((5, 7), True, "asymmetric", "round"),
        ((19, 13), True, "align_corners", "round"),
    ]  # fmt: skip
    found = [
        b.layer(f"r{n}", "resize2d", "x", size=size, bilinear=linear, coordinates=mode, rounding=rounding)
        for n, (size, linear, mode, rounding) in enumerate(ways)
    ]
    cut = [
        b.layer(f"c{n}", "slice", "x", axes=(1,), begin=(first,), end=(last,), step=(1,))
        for n, (first, last) in enumerate(((0, 8), (5, 12), (-2, 12)))
    ]
    c3 = b.layer("c3", "slice", "x", axes=(1,), begin=(0,), end=(9,), step=(1,))
    odd = b.layer("odd", "concat", *cut[:2], cut[0], c3, axis=1)
    mean = b.layer("mean", "reduce_mean", "x", axis=(2, 3), keepdims=False)
    return b.network(*found, *cut, odd, mean, b.layer("score", "dense", mean, shape=(16, 12)))


def attention() -> Network:
    """A transformer's block on the pixels of an image, heads of 16 channels, and a grouped convolution."""
    b = Builder(32, 6, 7)
    x = b.layer("stem", "conv2d", "x", relu=True, shape=(32, 32, 3, 3), stride=1, padding=1)
    x = b.layer("grouped", "conv2d", x, shape=(32, 8, 3, 3), stride=1, padding=1, groups=4)
    t = b.layer("flat", "reshape", x)
    b.layers[-1] = Layer("flat", "reshape", (x,), {}, {"shape": (1, 32, 42)})
    t = b.layer("tokens", "transpose", t, order=(0, 2, 1))
    b.params |= {"n.s": (32,), "n.b": (32,)}
    b.layers.append(Layer("norm", "layer_norm", (t,), {"scale": "n.s", "shift": "n.b"}, {"axis": 2, "epsilon": 1e-5}))
    heads = []
    for name in "qkv":
        y = b.layer(name, "dense", "norm", shape=(32, 32))
        b.layers.append(Layer(f"{name}4", "reshape", (y,), {}, {"shape": (1, 42, 2, 16)}))
        order = (0, 2, 3, 1) if name == "k" else (0, 2, 1, 3)
        heads.append(b.layer(f"{name}h", "transpose", f"{name}4", order=order))
    p = b.layer("p", "softmax", b.layer("qk", "matmul", *heads[:2]), axis=3)
    y = b.layer("back", "transpose", b.layer("pv", "matmul", p, heads[2]), order=(0, 2, 1, 3))
    b.layers.append(Layer("joined", "reshape", (y,), {}, {"shape": (1, 42, 32)}))
    y = b.layer("out", "add", b.layer("o", "dense", "joined", shape=(32, 32)), t)
    y = b.layer("channels", "transpose", y, order=(0, 2, 1))
    b.layers.append(Layer("image", "reshape", (y,), {}, {"shape": (1, 32, 6, 7)}))
    return b.network(b.layer("end", "conv2d", "image", shape=(16, 32, 1, 1), stride=1, padding=0), y)


def rows() -> Network:
    """Products of computed tensors read in every order, softmax and element-wise operators, on rows of odd length."""
    b = Builder(6, 5, 8)
    b.layers.append(Layer("a", "reshape", ("x",), {}, {"shape": (2, 3, 40)}))
    b.layers.append(Layer("c", "reshape", ("x",), {}, {"shape": (2, 40, 3)}))
    wide = b.layer("wide", "matmul", "c", "a")  # [2, 40, 40]
    thin = b.layer("thin", "matmul", "a", "c")  # [2, 3, 3]
    turned = b.layer("turned", "matmul", "a", b.layer("at", "transpose", "a", order=(0, 2, 1)))
    b.params |= {"five": (), "n.s": (40,), "n.b": (40,)}
    b.layers.append(Layer("scaled", "divide", (wide,), {"constant": "five"}))
    shares = b.layer("shares", "softmax", "scaled", axis=2)
    again = b.layer("again", "matmul", "a", shares)
    b.layers.append(
        Layer("norm", "layer_norm", (again,), {"scale": "n.s", "shift": "n.b"}, {"axis": 2, "epsilon": 1e-3})
    )
    b.layers.append(Layer("more", "add", ("norm",), {"constant": "five"}))
    sums = b.layer("sums", "multiply", "more", again)
    last = b.layer("last", "slice", b.layer("back", "reshape", sums), axes=(0,), begin=(-1,), end=(2,), step=(1,))
    b.layers[-2] = Layer("back", "reshape", (sums,), {}, {"shape": (2, 3, 40)})
    return b.network(thin, turned, shares, sums, b.layer("erf", "erf", last))


def windowed() -> Network:
    """Attention in windows of rolled pixels with a bias by head and a mask by window, as Swin's; a scaled residual."""
    b = Builder(16, 8, 6)

    def shaped(name: str, source: str, *shape: int) -> str:
        b.layers.append(Layer(name, "reshape", (source,), {}, {"shape": shape}))
        return name

    t = b.layer("pixels", "transpose", "x", order=(0, 2, 3, 1))
    b.params |= {"n.s": (16,), "n.b": (16,), "bias": (1, 2, 12, 12), "mask": (1, 4, 1, 12, 12), "eighth": ()}
    b.layers.append(Layer("norm", "layer_norm", (t,), {"scale": "n.s", "shift": "n.b"}, {"axis": 3, "epsilon": 1e-5}))
    one = {"axes": (1,), "step": (1,)}
    parts = [
        b.layer(f"r{n}", "slice", "norm", begin=(s,), end=(e,), **one) for n, (s, e) in enumerate(((2, 8), (0, 2)))
    ]
    t = shaped("cut", b.layer("rolled", "concat", *parts, axis=1), 1, 2, 4, 2, 3, 16)
    t = shaped("windows", b.layer("turn", "transpose", t, order=(0, 1, 3, 2, 4, 5)), 4, 12, 16)
    t = shaped("five", b.layer("qkv", "dense", t, shape=(48, 16)), 4, 12, 3, 2, 8)
    t = b.layer("first", "transpose", t, order=(2, 0, 3, 1, 4))
    q, k, v = (
        shaped(f"{name}h", b.layer(name, "slice", t, axes=(0,), begin=(n,), end=(n + 1,), step=(1,)), 4, 2, 12, 8)
        for n, name in enumerate("qkv")
    )
    b.layers.append(Layer("qs", "multiply", (q,), {"constant": "eighth"}))
    s = b.layer("scores", "matmul", "qs", b.layer("kt", "transpose", k, order=(0, 1, 3, 2)))
    b.layers.append(Layer("biased", "add", (s,), {"constant": "bias"}))
    shaped("wide", "biased", 1, 4, 2, 12, 12)
    b.layers.append(Layer("masked", "add", ("wide",), {"constant": "mask"}))
    y = b.layer("mixed", "matmul", b.layer("p", "softmax", shaped("flat", "masked", 4, 2, 12, 12), axis=3), v)
    y = shaped("heads", b.layer("behind", "transpose", y, order=(0, 2, 1, 3)), 4, 12, 16)
    y = shaped("grid", b.layer("proj", "dense", y, shape=(16, 16)), 1, 2, 2, 4, 3, 16)
    y = shaped("whole", b.layer("undone", "transpose", y, order=(0, 1, 3, 2, 4, 5)), 1, 8, 6, 16)
    parts = [b.layer(f"b{n}", "slice", y, begin=(s,), end=(e,), **one) for n, (s, e) in enumerate(((6, 8), (0, 6)))]
    y = b.layer("sum", "add", b.layer("unrolled", "concat", *parts, axis=1), "pixels")
    z = b.layer("image", "transpose", b.layer("wide2", "dense", y, shape=(32, 16)), order=(0, 3, 1, 2))
    b.params["gamma"] = (32, 1, 1)
    b.layers.append(Layer("scaled", "multiply", (z,), {"constant": "gamma"}))
    skip = b.layer("skip", "conv2d", "x", shape=(32, 16, 1, 1), stride=1, padding=0)
    return b.network(
        b.layer("end", "add", skip, "scaled"), b.layer("padded", "pad", y, pads=(0, 0, 1, 0, 0, 1, 0, 0), value=0.0)
    )


def shuffled() -> Network:
    """Channels that are shuffled between branches, groups of convolutions that are merged, and halves of a tensor."""
    b = Builder(24, 7, 9)
    one = b.layer("one", "conv2d", "x", relu=True, shape=(20, 24, 1, 1), stride=1, padding=0)
    two = b.layer("two", "conv2d", "x", shape=(20, 24, 3, 3), stride=1, padding=1)
    y = b.layer("both", "concat", one, two, axis=1)
    b.layers.append(Layer("pairs", "reshape", (y,), {}, {"shape": (1, 2, 20, 7, 9)}))
    b.layer("turned", "transpose", "pairs", order=(0, 2, 1, 3, 4))
    b.layers.append(Layer("mixed", "reshape", ("turned",), {}, {"shape": (1, 40, 7, 9)}))
    halves = [
        b.layer(f"h{n}", "slice", "mixed", axes=(1,), begin=(first,), end=(last,), step=(1,))
        for n, (first, last) in enumerate(((0, 20), (20, 40)))
    ]
    z = b.layer("three", "conv2d", halves[1], shape=(32, 20, 1, 1), stride=1, padding=0)
    g = b.layer("grouped", "conv2d", z, relu=True, shape=(32, 4, 3, 3), stride=2, padding=1, groups=8)
    h = b.layer("wider", "conv2d", z, shape=(64, 8, 3, 3), stride=1, padding=1, groups=4)
    odd = b.layer("odd", "conv2d", "x", shape=(104, 24, 1, 1), stride=1, padding=0)
    odd = b.layer("eights", "conv2d", odd, shape=(104, 8, 3, 3), stride=1, padding=1, groups=13)
    other = b.layer(
        "last", "add", b.layer("residual", "conv2d", z, shape=(32, 4, 1, 1), stride=1, padding=0, groups=8), z
    )
    return b.network(halves[0], g, h, odd, other)


def sampled() -> Network:
    """Deformable attention over two images, of one tensor and of another, and samples that are not summed."""
    b = Builder(16, 8, 12)

    def shaped(name: str, source: str, *shape: int) -> str:
        b.layers.append(Layer(name, "reshape", (source,), {}, {"shape": shape}))
        return name

    value = b.layer("value", "conv2d", "x", shape=(16, 16, 1, 1), stride=1, padding=0)
    small = b.layer("small", "avg_pool", value, kernel=2, stride=2, padding=0)
    images = [shaped("v0", value, 2, 8, 8, 12), shaped("v1", small, 2, 8, 4, 6)]
    grids = shaped("g", b.layer("offsets", "conv2d", "x", shape=(24, 16, 1, 1), stride=1, padding=0), 2, 2, 96, 3, 2)
    found = []
    for n, image in enumerate(images):
        cut = b.layer(f"g{n}", "slice", grids, axes=(1,), begin=(n,), end=(n + 1,), step=(1,))
        grid = shaped(f"grid{n}", cut, 2, 96, 3, 2)
        sample = b.layer(f"s{n}", "grid_sample", image, grid, mode="bilinear", padding="zeros", align=False)
        found.append(shaped(f"p{n}", sample, 2, 8, 96, 1, 3))
    points = shaped("points", b.layer("stack", "concat", *found, axis=3), 2, 8, 96, 6)
    weights = shaped("w", b.layer("shares", "conv2d", "x", shape=(12, 16, 1, 1), stride=1, padding=0), 2, 1, 96, 6)
    total = b.layer("sum", "reduce_sum", b.layer("weighed", "multiply", points, weights), axis=3, keepdims=False)
    alone = b.layer("alone", "grid_sample", images[0], "grid1", mode="bilinear", padding="border", align=True)
    return b.network(shaped("end", total, 1, 16, 96), alone)


def lifted() -> Network:
    """Lift, splat: features at depths, gathered by cell and summed, in an image that is convolved."""
    b = Builder(8, 6, 10)

    def shaped(name: str, source: str, *shape: int) -> str:
        b.layers.append(Layer(name, "reshape", (source,), {}, {"shape": shape}))
        return name

    y = b.layer("lift", "conv2d", "x", shape=(20, 8, 1, 1), stride=1, padding=0)
    parts = [
        b.layer(f"part{n}", "slice", y, axes=(1,), begin=(first,), end=(last,), step=(1,))
        for n, (first, last) in enumerate(((0, 4), (4, 20)))
    ]
    depth = shaped("depth", b.layer("shares", "softmax", parts[0], axis=1), 1, 4, 1, 6, 10)
    y = b.layer("lifted", "multiply", depth, shaped("features", parts[1], 1, 1, 16, 6, 10))
    y = shaped("rows", b.layer("last", "transpose", y, order=(0, 1, 3, 4, 2)), 240, 16)
    table = np.random.default_rng(1).integers(0, 240, 96)
    y = shaped("cells", b.layer("found", "gather", y, axis=0, indices=tuple(int(n) for n in table)), 32, 3, 16)
    y = b.layer("turned", "transpose", b.layer("sum", "reduce_sum", y, axis=1, keepdims=False), order=(1, 0))
    return b.network(
        b.layer("head", "conv2d", shaped("map", y, 1, 16, 4, 8), shape=(16, 16, 3, 3), stride=1, padding=1)
    )


def halves() -> Network:
    """An image cut in halves, one of them through residual blocks whose last convolution has an activation of its own,
    and all of them joined; groups of channels and sums of few pixels too.
    """
    b = Builder(16, 6, 10)

    def gated(name: str, source: str, *shape: int, **attrs: Any) -> str:
        y = b.layer(name, "conv2d", source, shape=shape, stride=1, padding=shape[2] // 2, **attrs)
        return b.layer(f"{name}.silu", "multiply", y, b.layer(f"{name}.gate", "sigmoid", y))

    y = gated("stem", "x", 32, 16, 1, 1)
    parts = [
        b.layer(f"part{n}", "slice", y, axes=(1,), begin=(n * 16,), end=(n * 16 + 16,), step=(1,)) for n in range(2)
    ]
    for n, groups in enumerate((1, 1, 2)):
        y = b.layer(f"in{n}", "conv2d", parts[-1], relu=True, shape=(96, 16, 3, 3), stride=1, padding=1)
        y = gated(f"out{n}", y, 16, 96 // groups, 3, 3, groups=groups)
        parts.append(b.layer(f"sum{n}", "add", parts[-1], y, relu=n == 1))
    y = b.layer("joined", "concat", *parts, axis=1)
    return b.network(b.layer("head", "conv2d", y, shape=(32, 80, 1, 1), stride=1, padding=0))


def squeezed() -> Network:
    """Means over more pixels than one kernel sums, over few, and of one."""
    b = Builder(24, 40, 45)
    gate = b.layer("gate", "conv2d", b.layer("all", "global_avg_pool", "x"), shape=(24, 24, 1, 1), stride=1, padding=0)
    y = b.layer("pool", "max_pool", b.layer("gated", "multiply", "x", gate), kernel=9, stride=9, padding=0)
    few = b.layer("few", "global_avg_pool", y)
    return b.network(gate, few, b.layer("one", "global_avg_pool", few))


NETWORKS = {
    f.__name__: f
    for f in (windows, gates, sizes, attention, rows, windowed, shuffled, sampled, lifted, halves, squeezed)
}


def drawn(net: Network) -> dict[str, Any]:
    found = draw_weights(net, 3)
    return {n: a.astype(np.float16).astype(np.float32) for n, a in found.items()}


def run(module: Any, *given: Any) -> Any:
    executable = relax.build(module, target=tvm.target.Target(dict(native_target())))
    return relax.VirtualMachine(executable, tvm.cpu())["main"](*given)


def require_equal(net: Network, weights: dict[str, Any]) -> tuple[str, ...]:
    """Compare a network's GPU form with its general form and return the reasons for operators left alone."""
    ((name, kind),) = net.inputs.items()
    x = np.random.default_rng(2).normal(size=kind.shape).astype(np.float16).astype(np.float32)
    wanted = run(bind_weights(import_network(net), net, weights), to_tvm(x, kind, name))
    form = lower(fuse_network(net), weights, "sm_87", bound=False)
    border = form.inputs[0]
    results = run(form.module, to_tvm(convert(x, kind, border), border, name))
    for found, expected, t, output in zip(results, wanted, form.outputs, net.outputs, strict=True):
        plain = TensorType(t.shape, "fp32", "NCHW" if len(t.shape) == 4 else "")
        found, expected = convert(from_tvm(found), t, plain), expected.numpy()
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= ROUNDING * np.abs(expected).max(), output
    return form.general


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_equals_its_general_form(name: str) -> None:
    net = NETWORKS[name]()
    assert not require_equal(net, drawn(net))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet", "yolo", "odd", "transformer", "padded", "odd_activations"])
def test_networks_from_files_equal_their_general_form(name: str, tmp_path: Path) -> None:
    net, weights = load(FILES[name](tmp_path / f"{name}.onnx"))
    general = require_equal(net, {key: np.asarray(array, np.float32) for key, array in weights.items()})
    assert bool(general) == (name not in ("padded", "yolo"))


def test_only_what_has_no_rule_is_left_out() -> None:
    net = attention()
    graph = fuse(fuse_network(net))
    made = rules.judged(graph)
    assert not made.unruled and set(made.attentions) == {"pv"} and made.inside == {"qk", "p"}
    assert set(made.moves.found) >= {"flat", "tokens", "q4", "qh", "kh", "vh", "back", "joined", "image"}
    assert made.moves.found["image"].roots == ("out",) and "image" in made.images and "tokens" not in made.images
    assert rules.dense_sums(graph, made)["o"].output == "out"
    net = replace(net, layers=(*net.layers, Layer("log", "log", ("end",))), outputs=("log",))
    graph = fuse(fuse_network(net))
    assert list(rules.unruled(graph)) == ["log"] and not rules.unsupported_reason(graph)


def test_residual_blocks_of_halves_are_products_and_one_joint() -> None:
    net = halves()
    form = lower(fuse_network(net), drawn(net), "sm_87", bound=False)
    names = [variable.name_hint.rstrip("0123456789") for variable, _ in form.module.functions_items()]
    assert "joined" in names and not {"copy", "combined"} & set(names) and names.count("picked") == 1
    assert any(tile.splits > 1 and shape.inner for shape, tile in form.products), "both ways to finish a product"


def test_what_one_pixel_is_made_of() -> None:
    net = squeezed()
    form = lower(fuse_network(net), drawn(net), "sm_87", bound=False)
    names = [variable.name_hint.rstrip("0123456789") for variable, _ in form.module.functions_items()]
    assert names.count("means") == 4 and names.count("row") == 1 and not form.products


def test_weighted_sums_are_one_kernel_each() -> None:
    for net, sums in ((sampled(), {"sum", "alone"}), (lifted(), {"sum"})):
        made = rules.judged(fuse(fuse_network(net)))
        assert set(made.pools) == sums and not made.unruled
        assert made.inside >= {"weighed", "s0", "s1"} if "alone" in sums else made.inside >= {"lifted", "last"}


def test_activations_are_inside_the_operators_before_them() -> None:
    net = gates()
    graph = fuse(fuse_network(net))
    inside = {group.output: group.options["activation"][0] for group in graph.groups if "activation" in group.options}
    assert inside["s"] == "silu" and inside["h"] == "hard_swish" and inside["six"] == "clip"
    assert inside["gate"] == "hard_sigmoid"
    kinds = [group.kind for group in graph.groups if group.output in inside]
    assert kinds.count("conv2d") == 3 and not {"silu", "hard_swish", "hard_sigmoid"} & set(kinds)


def test_gelu_and_bias_are_inside_a_dense_layer(tmp_path: Path) -> None:
    net, weights = load(FILES["transformer"](tmp_path / "t.onnx"))
    graph = with_numbers(fuse(fuse_network(net)), weights)
    inside = [
        group.options["activation"] for group in graph.groups if group.options.get("activation", ("",))[0] == "gelu"
    ]
    assert inside == [("gelu", pytest.approx(0.5**0.5), 1.0, 0.5)]
    dense = [group for group in graph.groups if group.kind == "dense"]
    assert len(dense) == 3 and all("bias" in group.weights for group in dense)
    assert not any(group.kind == "erf" for group in graph.groups)


@needs_nvcc
@pytest.mark.parametrize(
    "shape",
    [Product(12, 197, 197, 64, 64, 224), Product(12, 197, 64, 224, 224, 64)],
)
def test_products_of_computed_tensors_use_tensor_cores(shape: Product, tmp_path: Path) -> None:
    source = source_of({"p": schedule(product(shape, tile_of(shape, "sm_87")), tile_of(shape, "sm_87"), padded=PADDED)})
    assert "mma.sync.aligned.m16n8k16" in source and "cp_async" in source and "blockIdx.z" in source
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in report(source, tmp_path)


@needs_nvcc
def test_rows_are_summed_in_registers(tmp_path: Path) -> None:
    functions = {
        "softmax": by_rows(softmax(96, 197, 224, 224, 0.125), 96),
        "layer_norm": by_rows(layer_norm(197, 768, 1e-6, 197, False), 197),
        "windows": by_rows(layer_norm(196, 96, 1e-6, 169, True), 196),
    }
    source = source_of(functions)
    assert source.count("__shfl_sync(") >= 4 and "__shared__" not in source
    assert report(source, tmp_path).count("0 bytes stack frame, 0 bytes spill stores") == 3


def test_a_constant_on_either_side_of_a_product_is_an_operand_like_any() -> None:
    layers = (
        Layer("m", "matmul", ("x",), {"constant": "w"}, {"swapped": True}),
        Layer("r", "matmul", ("m",), {"constant": "v"}),
    )
    net = Network("net", {"x": TensorType((2, 16, 24), "fp32")}, layers, ("m", "r"), {"w": (12, 16), "v": (24, 16)})
    assert not require_equal(net, drawn(net))


def test_cameras_and_points_of_several_levels_equal_their_general_form() -> None:
    """Images of a batch, softmax and sums across leading axes, operands that repeat in any of six dimensions."""
    b = Builder(24, 6, 8)
    views = b.layer("cut", "reshape", "x")
    b.layers[-1] = Layer("cut", "reshape", ("x",), {}, {"shape": (3, 8, 6, 8)})
    y = b.layer("lift", "conv2d", views, shape=(12, 8, 3, 3), stride=1, padding=1)
    one = {"axes": (1,), "step": (1,)}
    depth = b.layer("depth", "softmax", b.layer("d", "slice", y, begin=(0,), end=(4,), **one), axis=1)
    b.layers.append(Layer("many", "reshape", (depth,), {}, {"shape": (3, 4, 1, 6, 8)}))
    b.layers.append(Layer("few", "reshape", (b.layer("f", "slice", y, begin=(4,), end=(12,), **one),), {},
                          {"shape": (3, 1, 8, 6, 8)}))  # fmt: skip
    outer = b.layer("outer", "multiply", "many", "few")
    total = b.layer("total", "reduce_sum", outer, axis=(0, 1), keepdims=False)
    last = b.layer("last", "reduce_sum", depth, axis=3, keepdims=True)
    net = b.network(outer, total, last)
    assert not require_equal(net, drawn(net))


def test_a_batch_is_one_image_for_convolutions_of_single_pixels() -> None:
    layers = (
        Layer("one", "conv2d", ("x",), {"weight": "w"}, {"stride": 1, "padding": 0}),
        Layer("end", "conv2d", ("one",), {"weight": "v"}, {"stride": 1, "padding": 1}),
    )
    sides = {"w": (16, 8, 1, 1), "v": (8, 16, 3, 3)}
    net = Network("net", {"x": TensorType((2, 8, 5, 7), "fp32")}, layers, ("one", "end"), sides)
    kinds = [group.kind for group in fuse(fuse_network(net)).groups]
    assert kinds.count("conv2d") == 1 + 2
    assert not require_equal(net, drawn(net))


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_compiled_code_needs_no_stack(name: str, tmp_path: Path) -> None:
    net = NETWORKS[name]()
    built = build_executable(net, drawn(net), TARGET, "fp16")
    assert not built.notes
    found = report(completed(device_source(built.executable.mod)), tmp_path)
    assert all(line.strip().startswith("0 bytes") for line in found.splitlines() if "stack frame" in line)


@needs_nvcc
def test_kernels_read_and_write_sixteen_bytes(tmp_path: Path) -> None:
    window = Window((3, 3), (1, 1), (1, 1), (1, 1), (28, 28))
    functions = {
        "depthwise": kernels.depthwise(64, 28, 28, window, ("clip", 0.0, 6.0), 2),
        "gate": kernels.combined(784, 1, 784, 64, "multiply", ()),
        "max": kernels.max_pool(64, 28, 28, window),
        "resize": kernels.resize_bilinear(64, 14, 14, 28, 28),
        "silu": kernels.mapped(784, 64, ("silu",)),
    }
    source = source_of({name: kernels.spread(function) for name, function in functions.items()})
    assert source.count("uint4") >= 2 * len(functions)
    assert report(source, tmp_path).count("0 bytes stack frame, 0 bytes spill stores") == len(functions)
