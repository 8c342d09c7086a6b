"""int8 kernels against the integers of the numpy definition, bit by bit, for every byte product this machine runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import int8_reference as reference
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from socsched.compiler.builder import compile_stage
from socsched.compiler.environment import relax, tvm
from socsched.compiler.layouts import convert
from socsched.compiler.loading.aligned import from_tvm, to_tvm
from socsched.compiler.quantize.calibrate import Observer, calibrate, seeded_samples
from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.quantize.network import QuantisedGraph, quantise
from socsched.compiler.quantize.scales import Scales
from socsched.compiler.target import resolve
from socsched.compiler.targets.llvm.int8_dot import Dot, int8_options
from socsched.compiler.targets.llvm.int8_lower import lower_int8
from socsched.compiler.targets.llvm.processor import cpu_flags
from socsched.compiler.targets.llvm.vector import AVX2, AVX512, NEON, SSE
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Stage
from socsched.errors import CompileError
from socsched.graph.expand import fuse_network
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.models.camera import detector_network
from socsched.models.pointpillars.network import backbone_network, head_network

Array = np.ndarray[Any, Any]
FEW = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
HOST = resolve({"kind": "llvm", "host": True})
NEEDS = {"vnni16": "avx512_vnni", "vnni8": "avx512_vnni", "madd16": "avx512bw", "madd8": "avx2", "madd4": "sse2"}
PATHS = {
    "vnni16": (AVX512, Dot("vnni", 16)),
    "vnni8": (AVX2, Dot("vnni", 8)),
    "madd16": (AVX512, Dot("madd", 16)),
    "madd8": (AVX2, Dot("madd", 8)),
    "madd4": (SSE, Dot("madd", 4)),
    "lanes16": (AVX512, Dot("lanes", 16)),
    "lanes4": (NEON, Dot("lanes", 4)),
}
RUNNABLE = [name for name in PATHS if NEEDS.get(name, "") in {*cpu_flags(), ""}]


def image(*shape: int) -> TensorType:
    return TensorType((1, *shape), "fp32", "NCHW")


def weights_of(network: Network) -> dict[str, Array]:
    """Weights over the whole range of a byte, and biases of the size of the sums."""
    generator = np.random.default_rng(1)
    return {
        name: generator.uniform(-1, 1, shape).astype(np.float32) * (1 if len(shape) > 1 else 20)
        for name, shape in network.params.items()
    }


def scales_of(graph: Any, signed: Mapping[str, bool]) -> dict[str, Scale]:
    """Scales that use all of the range and saturate some."""
    rectified = {group.output for group in graph.groups if group.relu}
    found = {}
    for name in (*graph.inputs, *(group.output for group in graph.groups)):
        deep = max((np.prod(graph.network.params[g.weights["weight"]]) for g in graph.groups if g.weights), default=1)
        step = 1 / 100 if name in graph.inputs else 0.02 + 1e-5 * float(deep) ** 0.5
        found[name] = Scale(step, signed.get(name, name not in rectified))
    return found


def prepared(network: Network, signed: Mapping[str, bool] | None = None, floats: bool = True) -> QuantisedGraph:
    graph = fuse_network(network)
    return quantise(graph, weights_of(network), Scales(scales_of(graph, signed or {})), floats)


def full_range(network: Network, q: QuantisedGraph) -> dict[str, Array]:
    """Inputs that hold every byte, and values beyond them."""
    generator = np.random.default_rng(0)
    return {
        name: (generator.integers(-140 if q.scales[name].signed else -20, 270, t.shape) * q.scales[name].step).astype(
            np.float32
        )
        for name, t in network.inputs.items()
    }


def execute(
    q: QuantisedGraph, inputs: Mapping[str, Array], path: str, weights: Mapping[str, Array] | None = None
) -> tuple[Array, ...]:
    lowered = lower_int8(q, weights or {}, *PATHS[path])
    target = tvm.target.Target(int8_options(HOST))
    function = relax.VirtualMachine(relax.build(lowered.module, target), tvm.cpu())["main"]
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


def compare(network: Network, path: str, signed: Mapping[str, bool] | None = None, floats: bool = True) -> None:
    q = prepared(network, signed, floats)
    inputs = full_range(network, q)
    for found, expected in zip(execute(q, inputs, path), reference.outputs(q, inputs), strict=True):
        many = expected.size >= 500 and expected.shape[1] >= 8  # a channel or two may well saturate everywhere
        assert not many or np.unique(expected).size > 3, "the test shows nothing"
        assert np.array_equal(found, expected)


def conv(ci: int, co: int, h: int, w: int, kernel: int, stride: int, pad: int, relu: bool) -> Network:
    attrs = {"stride": stride, "padding": pad}
    layers = [Layer("c", "conv2d", ("x",), {"weight": "c.weight", "bias": "c.bias"}, attrs)]
    layers += [Layer("r", "relu", ("c",))] if relu else []
    params = {"c.weight": (co, ci, kernel, kernel), "c.bias": (co,)}
    return Network("net", {"x": image(ci, h, w)}, tuple(layers), (layers[-1].name,), params)


CHANNELS = st.sampled_from([1, 3, 8, 16, 18, 24, 40, 64, 80, 112])
ANY = st.sampled_from(RUNNABLE)


@FEW
@given(
    CHANNELS,
    CHANNELS,
    st.integers(7, 23),
    st.integers(7, 29),
    st.sampled_from([1, 3, 5]),
    st.integers(1, 2),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    ANY,
)
@pytest.mark.slow
def test_conv2d(
    ci: int, co: int, h: int, w: int, kernel: int, stride: int, relu: bool, signed: bool, floats: bool, path: str
) -> None:
    compare(conv(ci, co, h, w, kernel, stride, kernel // 2, relu), path, {"x": signed}, floats)


@pytest.mark.parametrize("path", RUNNABLE)
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.sampled(8)
def test_conv2d_on_every_path(path: str, signed: bool) -> None:
    compare(conv(64, 64, 13, 21, 3, 1, 1, True), path, {"x": signed}, floats=False)


@FEW
@given(
    CHANNELS,
    CHANNELS,
    st.integers(1, 9),
    st.integers(1, 13),
    st.sampled_from([(1, 1, 0), (2, 2, 0), (4, 4, 0), (4, 2, 1), (5, 3, 1)]),
    st.booleans(),
    ANY,
)
@pytest.mark.slow
def test_conv2d_transpose(
    ci: int, co: int, h: int, w: int, window: tuple[int, int, int], signed: bool, path: str
) -> None:
    kernel, stride, pad = window
    attrs = {"stride": stride, "padding": pad}
    layer = Layer("d", "conv2d_transpose", ("x",), {"weight": "d.weight", "bias": "d.bias"}, attrs)
    params = {"d.weight": (ci, co, kernel, kernel), "d.bias": (co,)}
    compare(Network("net", {"x": image(ci, h, w)}, (layer,), ("d",), params), path, {"x": signed}, floats=False)


@FEW
@given(
    CHANNELS,
    st.integers(4, 15),
    st.integers(4, 15),
    st.sampled_from([(2, 2, 0), (3, 2, 1), (3, 1, 1)]),
    st.booleans(),
    ANY,
)
@pytest.mark.slow
def test_max_pool(channels: int, h: int, w: int, window: tuple[int, int, int], signed: bool, path: str) -> None:
    kernel, stride, pad = window
    layer = Layer("p", "max_pool", ("x",), attrs={"kernel": kernel, "stride": stride, "padding": pad})
    compare(Network("net", {"x": image(channels, h, w)}, (layer,), ("p",)), path, {"x": signed})


@pytest.mark.parametrize("path", RUNNABLE)
@pytest.mark.slow
def test_residual_block(path: str) -> None:
    """An addition on a convolution's sums, one of two stored values, a lone ReLU, readers that pad differently."""
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
    network = Network("net", {"x": image(32, 9, 11)}, layers, ("twice", "sum.relu", "a.relu"), params)
    q = prepared(network)
    assert [step.residual for step in q.steps if step.residual] == ["x"]
    compare(network, path)


@pytest.mark.parametrize("floats", [True, False], ids=["sums leave", "bytes leave"])
@pytest.mark.parametrize("case", ["in place", "read elsewhere", "other step"])
@pytest.mark.sampled(9)
def test_concat(case: str, floats: bool) -> None:
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
    q = quantise(graph, weights_of(network), Scales(scales), floats)
    inputs = full_range(network, q)
    for found, expected in zip(execute(q, inputs, "lanes16"), reference.outputs(q, inputs), strict=True):
        assert np.array_equal(found, expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("path", RUNNABLE)
def test_heads_are_one_kernel(path: str) -> None:
    network = head_network(5, 7)
    lowered = lower_int8(prepared(network), {}, *PATHS[path])
    names = [variable.name_hint for variable in lowered.module.get_global_vars()]
    assert sum(name.startswith("conv2d") for name in names) == 1
    compare(network, path)


@pytest.mark.parametrize("path", RUNNABLE)
@pytest.mark.slow
def test_backbone_on_a_small_canvas(path: str) -> None:
    compare(backbone_network(taps=True, ny=24, nx=40), path, {"canvas": False})


def test_what_has_no_int8_form_is_named() -> None:
    network = Network("net", {"x": image(16, 4, 4)}, (Layer("s", "sigmoid", ("x",)),), ("s",))
    with pytest.raises(CompileError, match="s: no int8 rule for sigmoid"):
        quantise(fuse_network(network), {}, Scales({}))
    network = conv(16, 16, 4, 4, 3, 1, 1, True)
    with pytest.raises(CompileError, match="no scale for r"):
        quantise(fuse_network(network), weights_of(network), Scales({"x": Scale(1.0, True)}))


@pytest.mark.slow
def test_camera_detector_has_an_int8_form() -> None:
    compare(detector_network(64, 96), RUNNABLE[0], {"image": False})


SLOW = pytest.mark.slow


@pytest.mark.parametrize("name", ["resnet", pytest.param("mobilenet", marks=SLOW), pytest.param("yolo", marks=SLOW)])
@pytest.mark.slow
def test_operators_without_an_int8_form_are_computed_in_fp32(name: str, tmp_path: Path) -> None:
    """Networks from files, with depthwise convolutions, gates, means and dense layers among the rest."""
    pytest.importorskip("onnx")
    from socsched.models.onnx_import import load as load_onnx
    from tests.models.onnx_files import FILES

    network, weights = load_onnx(FILES[name](tmp_path / f"{name}.onnx"))
    samples = seeded_samples(network)
    integers = quantise(fuse_network(network), weights, calibrate(network, weights, samples))
    assert any(step.exact for step in integers.steps) and any(step.layer for step in integers.steps)
    exact, found = Observer(network, weights)(samples[0]), execute(integers, samples[0], RUNNABLE[0], weights)
    for expected, array in zip(exact, found, strict=True):
        assert np.sqrt(((array - expected) ** 2).mean()) < 0.1 * expected.std()


def test_a_sum_of_much_smaller_range_than_what_is_added() -> None:
    """The added value's step is too coarse for the convolution's fixed point: the addition is not fused."""
    layers = (
        Layer("a", "conv2d", ("x",), {"weight": "a.weight", "bias": "a.bias"}, {"stride": 1, "padding": 1}),
        Layer("sum", "add", ("a", "x")),
    )
    params = {"a.weight": (16, 16, 3, 3), "a.bias": (16,)}
    network = Network("net", {"x": image(16, 9, 11)}, layers, ("sum",), params)
    graph = fuse_network(network)
    scales = {**scales_of(graph, {}), "x": Scale(0.1, True), "sum": Scale(0.03, True)}
    q = quantise(graph, weights_of(network), Scales(scales))
    assert [step.group.kind for step in q.steps] == ["conv2d", "add"]
    inputs = full_range(network, q)
    (found,), (expected,) = execute(q, inputs, RUNNABLE[0]), reference.outputs(q, inputs)
    assert np.unique(expected).size > 50 and np.array_equal(found, expected)
    with pytest.raises(CompileError, match="its step is 100 times finer than that of x"):
        quantise(graph, weights_of(network), Scales({**scales, "sum": Scale(0.001, True)}))


def test_a_convolution_of_a_constant_is_computed_on_the_processor_that_it_is_compiled_for(tmp_path: Path) -> None:
    """TVM folds constants on a processor without byte products, where LLVM ends the process at one."""
    from onnx import TensorProto, helper, numpy_helper, save

    generator = np.random.default_rng(0)
    sizes = {"p": (1, 16, 8, 8), "w": (16, 16, 1, 1), "k": (16, 16, 3, 3)}
    constants = [
        numpy_helper.from_array(generator.normal(size=size).astype(np.float32), name) for name, size in sizes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["p", "w"], ["q"]),
        helper.make_node("Conv", ["x", "k"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["y", "q"], ["z"]),
    ]
    x, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 8, 8]) for name in "xz")
    graph = helper.make_graph(nodes, "n", [x], [z], constants)
    path = tmp_path / "n.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    stage = Stage("n", "n", "onnx", params={"file": str(path)})
    artifact = compile_stage(stage, get_platform("host").engines[0], "int8")
    assert artifact.precision == "int8" and artifact.loadable
