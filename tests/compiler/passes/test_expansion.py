"""Networks expanded and fused without a compiler, against the types that Relax infers."""

from __future__ import annotations

from typing import Any

import pytest

from socsched import plugins
from socsched.compiler.passes.relax_form import DTYPES, import_network
from socsched.errors import CompileError
from socsched.graph.expand import fuse_network, layer_types
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.graph.partition import parse_part, prefixes, take
from socsched.models.registry import get_model

NETWORKS = sorted(
    name
    for name in plugins.names("socsched.models", own=True)
    if name != "onnx" and get_model(name, {}).network is not None
)


def tensor_type(found: Any) -> TensorType:
    """Return the logical type of a Relax tensor type; a symbolic dimension becomes -1."""
    shape = tuple(int(size) if hasattr(size, "value") else -1 for size in found.shape)
    dtype = next(name for name, spelt in DTYPES.items() if spelt == str(found.dtype))
    return TensorType(shape, dtype, "NCHW" if len(shape) == 4 else "")


def assert_equal(network: Network) -> None:
    """AssertionError unless every operation has the type that Relax infers for its expression, and all are there."""
    graph, main = fuse_network(network), import_network(network)["main"]
    *bindings, result = [binding for block in main.body.blocks for binding in block.bindings]
    inferred = {str(binding.var.name): tensor_type(binding.var.ty) for binding in bindings}
    assert {name: op.type for name, op in graph.operations.items()}.items() <= inferred.items()
    helpers = {name for name in inferred if name not in graph.operations}
    assert all(name.endswith(("_bias4d", "_weight_io", "_sums")) for name in helpers)
    assert tuple(str(item.name) for item in result.value.fields) == graph.outputs
    types = {layer.name: layer_types(network)[layer.name] for layer in network.layers}
    assert set(types.values()) <= set(inferred.values())


@pytest.mark.parametrize("name", NETWORKS)
def test_a_shipped_network_is_what_relax_reads(name: str) -> None:
    factory = get_model(name, {}).network
    assert factory is not None
    assert_equal(factory())


@pytest.mark.parametrize("name", ["camera.detector", "pointpillars.backbone"])
def test_so_are_its_parts(name: str) -> None:
    factory = get_model(name, {}).network
    assert factory is not None
    network = factory()
    types = layer_types(network)
    cuts = list(prefixes(network, types))
    middle = "+".join(cuts[len(cuts) // 2].after)
    for text in (f":{middle}", f"{middle}:"):
        assert_equal(take(network, parse_part(text), types))


WINDOWS: tuple[dict[str, Any], ...] = (
    {},
    {"stride": 2, "padding": 1},
    {"stride": (2, 1), "padding": (1, 0, 2, 1), "dilation": (1, 2)},
)


def image(*layers: Layer, **params: tuple[int, ...]) -> Network:
    """Return a network over one image of 8 channels, 12 high and 17 wide."""
    return Network("net", {"image": TensorType((1, 8, 12, 17), "fp32", "NCHW")}, layers, (layers[-1].name,), params)


@pytest.mark.parametrize("attrs", WINDOWS)
@pytest.mark.parametrize("op", ["conv2d", "conv2d_transpose"])
@pytest.mark.parametrize("groups", [1, 4])
def test_convolutions(op: str, groups: int, attrs: dict[str, Any]) -> None:
    weight = (16, 8 // groups, 3, 2) if op == "conv2d" else (8, 16 // groups, 3, 2)
    layer = Layer("a.conv", op, ("image",), {"weight": "w", "bias": "b"}, {**attrs, "groups": groups})
    assert_equal(image(layer, Layer("a.relu", "relu", ("a.conv",)), w=weight, b=(16,)))
    assert_equal(image(Layer("a", op, ("image",), {"weight": "w"}, {**attrs, "groups": groups}), w=weight))


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(
    "attrs", [{"stride": 2}, {"stride": (2, 3), "padding": 1}, {"stride": 1, "padding": (0, 1, 1, 0)}]
)
@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
def test_pooling(op: str, attrs: dict[str, Any], ceil: bool) -> None:
    assert_equal(image(Layer("p", op, ("image",), {}, {**attrs, "kernel": (3, 2), "ceil": ceil})))


SINGLE: dict[str, dict[str, Any]] = {
    "sigmoid": {}, "tanh": {}, "exp": {}, "sqrt": {}, "erf": {}, "relu": {}, "global_avg_pool": {}, "hard_swish": {},
    "leaky_relu": {"alpha": 0.1}, "clip": {"low": 0.0, "high": 6.0}, "hard_sigmoid": {"alpha": 0.2, "beta": 0.5},
    "reduce_mean": {"axis": [2, 3], "keepdims": True}, "reduce_sum": {"axis": 1, "keepdims": False},
    "reduce_max": {"axis": 1}, "softmax": {"axis": -1}, "transpose": {"order": (0, 2, 3, 1)},
    "reshape": {"shape": (1, 8, -1)}, "pad": {"pads": (0, 0, 1, 2, 0, 0, 0, 3), "value": 0.0},
    "slice": {"axes": (2, 3), "begin": (1, -5), "end": (9, 10**9), "step": (2, 1)},
    "resize2d": {"size": (24, 51), "bilinear": True, "coordinates": "half_pixel", "rounding": ""},
    "elu": {"alpha": 0.7}, "softplus": {}, "log": {}, "abs": {}, "argmax": {"axis": 1, "keepdims": True},
    "topk": {"axis": 3, "k": 5, "largest": True, "result": "indices"},
    "concat": {"axis": 1}, "gather": {"axis": 3, "indices": (4, 0, 0)},
}  # fmt: skip


@pytest.mark.parametrize("op", SINGLE)
def test_a_layer_alone(op: str) -> None:
    inputs = ("image", "image") if op == "concat" else ("image",)
    assert_equal(image(Layer("x", op, inputs, {}, SINGLE[op])))


def test_group_norm() -> None:
    norm = Layer("n", "group_norm", ("image",), {"scale": "s", "shift": "t"}, {"groups": 4, "epsilon": 1e-5})
    assert_equal(image(norm, s=(8,), t=(8,)))


def test_sampling_at_a_grid() -> None:
    attrs = {"mode": "bilinear", "padding": "zeros", "align": False}
    inputs = {"x": TensorType((1, 8, 12, 17), "fp32", "NCHW"), "g": TensorType((1, 5, 6, 2), "fp32", "NCHW")}
    assert_equal(Network("net", inputs, (Layer("s", "grid_sample", ("x", "g"), {}, attrs),), ("s",)))


def test_sums_of_whole_numbers_are_whole_numbers() -> None:
    layer = Layer("s", "reduce_sum", ("x",), {}, {"axis": (1,), "keepdims": False})
    assert_equal(Network("net", {"x": TensorType((5, 7), "int64")}, (layer,), ("s",)))


def test_scattering_at_computed_places() -> None:
    inputs = {"x": TensorType((5, 7), "fp32"), "i": TensorType((2, 1), "int64"), "u": TensorType((2, 7), "fp32")}
    assert_equal(Network("net", inputs, (Layer("s", "scatter_nd", ("x", "i", "u")),), ("s",)))


def test_layers_that_runtimes_take_whole_are_named_in_their_parts() -> None:
    layers = (Layer("a", "hard_swish", ("image",)), Layer("b", "sigmoid", ("a",)))
    assert {group.whole for group in fuse_network(image(*layers)).groups} == {"hard_swish", ""}


@pytest.mark.parametrize("axis", [1, -1])
def test_norms(axis: int) -> None:
    attrs = {"axis": axis, "epsilon": 1e-5}
    norm = Layer("n", "layer_norm", ("image",), {"scale": "s", "shift": "t"}, attrs)
    shape = (1, 8, 12, 17)[axis:]
    assert_equal(image(norm, s=shape, t=shape))


def test_tables() -> None:
    lookup = Layer("x", "gather", ("rows",), {"table": "t"}, {"axis": 0})
    assert_equal(Network("net", {"rows": TensorType((2, 5), "int64")}, (lookup,), ("x",), {"t": (9, 4)}))


def test_computed_places() -> None:
    inputs = {"x": TensorType((3, 5, 7), "fp32"), "i": TensorType((2, 1), "int64")}
    assert_equal(Network("net", inputs, (Layer("c", "gather", ("x", "i"), {}, {"axis": 1}),), ("c",)))


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "maximum", "minimum"])
def test_two_operands(op: str, swapped: bool) -> None:
    attrs = {"swapped": True} if swapped else {}
    constant = Layer("c", op, ("image",), {"constant": "k"}, attrs)
    assert_equal(image(constant, Layer("d", op, ("c", "image"), {}, attrs), k=(8, 1, 1)))


def test_what_looks_like_a_bias_and_is_none() -> None:
    conv = Layer("conv", "conv2d", ("image",), {"weight": "w", "bias": "b"}, {"padding": 1})
    shifted = Layer("shifted", "add", ("conv",), {"constant": "k"})
    norm = Layer("norm", "batch_norm", ("shifted",), {"scale": "s", "shift": "t"})
    params = {"w": (8, 8, 3, 3), "b": (8,), "k": (8, 1, 1), "s": (8, 1, 1), "t": (8, 1, 1)}
    assert_equal(image(conv, shifted, norm, **params))
    assert_equal(image(conv, Layer("sum", "add", ("conv", "image")), Layer("r", "relu", ("sum",)), **params))


def test_products() -> None:
    inputs = {"a": TensorType((2, 5, 7), "fp32"), "b": TensorType((7, 3), "fp32")}
    assert_equal(Network("net", inputs, (Layer("x", "matmul", ("a", "b")),), ("x",)))
    dense = Layer("y", "dense", ("a",), {"weight": "w", "bias": "c"})
    assert_equal(Network("net", inputs, (dense,), ("y",), {"w": (4, 7), "c": (4,)}))


def test_names_that_become_equal_stay_apart() -> None:
    network = image(Layer("a.b", "sigmoid", ("image",)), Layer("a_b", "tanh", ("a.b",)), Layer("c", "exp", ("a_b",)))
    found = fuse_network(network)
    assert len({group.output for group in found.groups}) == 3
    assert [group.kind for group in found.groups] == ["sigmoid", "tanh", "exp"]


def test_an_unknown_layer_is_refused_as_by_the_compiler() -> None:
    for build in (fuse_network, import_network):
        with pytest.raises(CompileError, match="layer 'x': unknown op 'fft'"):
            build(image(Layer("x", "fft", ("image",))))
