"""Integer networks for tests of int8 code: weights and scales that use the whole range of bytes, inputs beyond it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import int8_reference as reference
import numpy as np
import pytest
from hypothesis import strategies as st

from socsched.compiler.environment import relax, tvm
from socsched.compiler.layouts import convert
from socsched.compiler.loading.aligned import from_tvm, to_tvm
from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.quantize.network import QuantisedGraph, quantise
from socsched.compiler.quantize.scales import Scales
from socsched.graph.expand import fuse_network
from socsched.graph.fusion import Graph
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType

Array = np.ndarray[Any, Any]


def image(*shape: int) -> TensorType:
    """Return the type of a single image of [channels, height, width]."""
    return TensorType((1, *shape), "fp32", "NCHW")


def weights_of(network: Network) -> dict[str, Array]:
    """Return weights over the whole range of a byte, and biases of the size of the sums."""
    generator = np.random.default_rng(1)
    return {
        name: generator.uniform(-1, 1, shape).astype(np.float32) * (1 if len(shape) > 1 else 20)
        for name, shape in network.params.items()
    }


def scales_of(graph: Graph, signed: Mapping[str, bool]) -> dict[str, Scale]:
    """Return scales that use all of the range and saturate some."""
    rectified = {group.output for group in graph.groups if group.relu}
    found = {}
    for name in (*graph.inputs, *(group.output for group in graph.groups)):
        deep = max((np.prod(graph.network.params[g.weights["weight"]]) for g in graph.groups if g.weights), default=1)
        step = 1 / 100 if name in graph.inputs else 0.02 + 1e-5 * float(deep) ** 0.5
        found[name] = Scale(step, signed.get(name, name not in rectified))
    return found


def prepared(network: Network, signed: Mapping[str, bool] | None = None, floats: bool = True) -> QuantisedGraph:
    """Return a network in integers."""
    graph = fuse_network(network)
    return quantise(graph, weights_of(network), Scales(scales_of(graph, signed or {})), floats)


def full_range(network: Network, q: QuantisedGraph) -> dict[str, Array]:
    """Return inputs that hold every byte, and values beyond them."""
    generator = np.random.default_rng(0)
    return {
        name: (generator.integers(-140 if q.scales[name].signed else -20, 270, t.shape) * q.scales[name].step).astype(
            np.float32
        )
        for name, t in network.inputs.items()
    }


def conv(ci: int, co: int, h: int, w: int, kernel: int, stride: int, pad: int, relu: bool) -> Network:
    """Return one convolution, rectified or not."""
    attrs = {"stride": stride, "padding": pad}
    layers = [Layer("c", "conv2d", ("x",), {"weight": "c.weight", "bias": "c.bias"}, attrs)]
    layers += [Layer("r", "relu", ("c",))] if relu else []
    params = {"c.weight": (co, ci, kernel, kernel), "c.bias": (co,)}
    return Network("net", {"x": image(ci, h, w)}, tuple(layers), (layers[-1].name,), params)


def transposed(ci: int, co: int, h: int, w: int, window: tuple[int, int, int]) -> Network:
    """Return one transposed convolution of (kernel, stride, padding)."""
    kernel, stride, pad = window
    attrs = {"stride": stride, "padding": pad}
    layer = Layer("d", "conv2d_transpose", ("x",), {"weight": "d.weight", "bias": "d.bias"}, attrs)
    params = {"d.weight": (ci, co, kernel, kernel), "d.bias": (co,)}
    return Network("net", {"x": image(ci, h, w)}, (layer,), ("d",), params)


def residual_block() -> Network:
    """Return an addition on a convolution's sums, one of two stored values, a lone ReLU, and outputs in bytes."""
    one = {"stride": 1, "padding": 1}
    layers = (
        Layer("x.relu", "relu", ("x",)),
        Layer("a", "conv2d", ("x.relu",), {"weight": "a.weight", "bias": "a.bias"}, one),
        Layer("a.relu", "relu", ("a",)),
        Layer("b", "conv2d", ("a.relu",), {"weight": "b.weight", "bias": "b.bias"}, {"stride": 1, "padding": 0}),
        Layer("sum", "add", ("b", "x")),
        Layer("sum.relu", "relu", ("sum",)),
        Layer("twice", "add", ("sum.relu", "a.relu")),
    )
    params = {"a.weight": (32, 32, 3, 3), "a.bias": (32,), "b.weight": (32, 32, 1, 1), "b.bias": (32,)}
    return Network("net", {"x": image(32, 9, 11)}, layers, ("twice", "sum.relu", "a.relu"), params)


def joined(case: str, floats: bool) -> QuantisedGraph:
    """Return a concatenation in integers: made in place, or copied since it is read elsewhere or has another step."""
    names = ("a", "b", "c")
    layers = tuple(
        Layer(n, "conv2d_transpose", ("x",), {"weight": f"{n}.weight", "bias": f"{n}.bias"}, {"stride": 2})
        for n in names
    )
    join = Layer("join", "concat", names, attrs={"axis": 1})
    params = {f"{n}.weight": (16, 16 * i, 2, 2) for i, n in enumerate(names, 1)} | {
        f"{n}.bias": (16 * i,) for i, n in enumerate(names, 1)
    }
    outputs = ("join", "b") if case == "read elsewhere" else ("join",)
    network = Network("net", {"x": image(16, 5, 7)}, (*layers, join), outputs, params)
    graph = fuse_network(network)
    scales = scales_of(graph, {})
    if case == "other step":
        scales["b"] = Scale(scales["join"].step * 0.4375, False)
    return quantise(graph, weights_of(network), Scales(scales), floats)


JOINED = [
    pytest.mark.parametrize("floats", [True, False], ids=["sums leave", "bytes leave"]),
    pytest.mark.parametrize("case", ["in place", "read elsewhere", "other step"]),
    pytest.mark.sampled(8),
]
CHANNELS = st.sampled_from([1, 3, 8, 16, 18, 24, 40, 64, 80, 112])
WINDOWS = st.sampled_from([(1, 1, 0), (2, 2, 0), (4, 4, 0), (4, 2, 1), (5, 3, 1), (8, 2, 3)])

Execute = Callable[[QuantisedGraph, Mapping[str, Array]], tuple[Array, ...]]


def execute(
    q: QuantisedGraph, lowered: Any, options: Mapping[str, Any], inputs: Mapping[str, Array]
) -> tuple[Array, ...]:
    """Return the outputs of lowered code on this machine, in NCHW."""
    executable = relax.build(lowered.module, tvm.target.Target(dict(options)))
    function = relax.VirtualMachine(executable, tvm.cpu())["main"]
    for scale in (-1e9, 1.0):  # stale memory of the first run would show
        operands = []
        for name, kind in zip(q.graph.inputs, lowered.inputs, strict=True):
            given = inputs[name] * np.float32(scale)
            operands.append(to_tvm(convert(given, TensorType(given.shape, "fp32", "NCHW"), kind), kind, name))
        results = function(*operands)
    arrays = []
    for result, kind in zip(results, lowered.outputs, strict=True):
        array = from_tvm(result)
        if kind.layout.endswith("+1"):
            inner = array[:, :, 1:-1, 1:-1]
            assert np.count_nonzero(array) == np.count_nonzero(inner), "the border is not zero"
        arrays.append(convert(array, kind, TensorType(kind.shape, "fp32", "NCHW" * (len(kind.shape) == 4))))
    return tuple(arrays)


def require_equal(q: QuantisedGraph, run: Execute) -> None:
    """Require of a run what the numpy definition gives, bit by bit, on inputs that hold every byte."""
    inputs = full_range(q.graph.network, q)
    for found, expected in zip(run(q, inputs), reference.outputs(q, inputs), strict=True):
        many = expected.size >= 500 and expected.shape[1] >= 8  # a channel or two may well saturate everywhere
        assert not many or np.unique(expected).size > 3, "the test shows nothing"
        assert np.array_equal(found, expected)
