"""int8 kernels against the integers of the numpy definition, bit by bit, for every byte product this machine runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import int8_networks
import int8_reference as reference
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from int8_networks import (
    CHANNELS,
    JOINED,
    WINDOWS,
    conv,
    full_range,
    image,
    joined,
    prepared,
    require_equal,
    residual_block,
    scales_of,
    transposed,
    weights_of,
)

from socsched.compiler.builder import compile_stage
from socsched.compiler.quantize.calibrate import Observer, calibrate, seeded_samples
from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.quantize.network import QuantisedGraph, quantise
from socsched.compiler.quantize.scales import Scales
from socsched.compiler.target import resolve
from socsched.compiler.targets.llvm.int8_dot import Dot, int8_options
from socsched.compiler.targets.llvm.int8_lower import _Lowering, lower_int8
from socsched.compiler.targets.llvm.processor import cpu_flags
from socsched.compiler.targets.llvm.vector import AVX2, AVX512, NEON, SSE
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Stage
from socsched.errors import CompileError
from socsched.graph.counting import operators
from socsched.graph.expand import fuse_network
from socsched.graph.integers import in_kernels, integers_of
from socsched.graph.network import Layer, Network
from socsched.models.camera import detector_network
from socsched.models.onnx_import import load as load_onnx
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


ANY = st.sampled_from(RUNNABLE)


def execute(
    q: QuantisedGraph, inputs: Mapping[str, Array], path: str, weights: Mapping[str, Array] | None = None
) -> tuple[Array, ...]:
    return int8_networks.execute(q, lower_int8(q, weights or {}, *PATHS[path]), int8_options(HOST), inputs)


def compare(network: Network, path: str, signed: Mapping[str, bool] | None = None, floats: bool = True) -> None:
    require_equal(prepared(network, signed, floats), lambda q, inputs: execute(q, inputs, path))


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


@st.composite
def canvases(draw: st.DrawFn) -> Network:
    """Draw a convolution of an image of few channels, in steps or transposed, to which another image may be added."""
    channels, made, width = draw(st.integers(1, 4)), draw(st.sampled_from([1, 16, 24, 64])), draw(st.integers(7, 70))
    kernel, stride, height = draw(st.integers(1, 7)), draw(st.integers(1, 3)), draw(st.integers(7, 150))
    if draw(st.booleans()):
        network = conv(channels, made, height, width, kernel, stride, draw(st.integers(0, kernel // 2)), False)
    else:
        network = transposed(channels, made, height // 3 + 2, width // 3 + 2, draw(WINDOWS))
    if draw(st.booleans()) and made % 16 == 0:
        result = fuse_network(network).values[network.outputs[0]]
        layers = *network.layers, Layer("sum", "add", (network.outputs[0], "z")), Layer("r", "relu", ("sum",))
        network = replace(network, inputs={**network.inputs, "z": result}, layers=layers, outputs=("r",))
    return network


@settings(FEW, max_examples=20)
@given(canvases(), st.booleans(), st.booleans(), ANY)
def test_an_image_that_its_convolution_rounds(network: Network, signed: bool, floats: bool, path: str) -> None:
    q = prepared(network, {"x": signed}, floats)
    inputs = full_range(network, q)
    inputs["x"].flat[:3] = np.inf, -np.inf, 1e20
    found = lower_int8(q, {}, *PATHS[path])
    assert "conv_canvas" in {variable.name_hint for variable in found.module.get_global_vars()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Lowering, "is_canvas", lambda *_: False)
        apart = lower_int8(q, {}, *PATHS[path])
    assert "conv_canvas" not in {variable.name_hint for variable in apart.module.get_global_vars()}
    for one, other in zip(
        *(int8_networks.execute(q, some, int8_options(HOST), inputs) for some in (found, apart)), strict=True
    ):
        assert np.array_equal(one, other)


@FEW
@given(CHANNELS, CHANNELS, st.integers(1, 9), st.integers(1, 13), WINDOWS, st.booleans(), ANY)
@pytest.mark.slow
def test_conv2d_transpose(
    ci: int, co: int, h: int, w: int, window: tuple[int, int, int], signed: bool, path: str
) -> None:
    compare(transposed(ci, co, h, w, window), path, {"x": signed}, floats=False)


@FEW
@given(
    CHANNELS,
    st.integers(4, 15),
    st.integers(4, 15),
    st.sampled_from([(2, 2, 0), (3, 2, 1), (3, 1, 1), ((1, 3), 1, 0), ((4, 2), 3, 1)]),
    st.booleans(),
    st.booleans(),
    ANY,
)
@pytest.mark.slow
def test_max_pool(
    channels: int, h: int, w: int, window: tuple[Any, int, int], up: bool, signed: bool, path: str
) -> None:
    kernel, stride, pad = window
    layer = Layer("p", "max_pool", ("x",), attrs={"kernel": kernel, "stride": stride, "padding": pad, "ceil": up})
    compare(Network("net", {"x": image(channels, h, w)}, (layer,), ("p",)), path, {"x": signed})


@pytest.mark.parametrize("path", RUNNABLE)
@pytest.mark.slow
def test_residual_block(path: str) -> None:
    """An addition on a convolution's sums, one of two stored values, a lone ReLU, readers that pad differently."""
    assert [step.residual for step in prepared(residual_block()).steps if step.residual] == ["x"]
    compare(residual_block(), path)


@JOINED[0]
@JOINED[1]
@JOINED[2]
def test_concat(case: str, floats: bool) -> None:
    require_equal(joined(case, floats), lambda q, inputs: execute(q, inputs, "lanes16"))


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
    from tests.models.onnx_files import FILES

    network, weights = load_onnx(FILES[name](tmp_path / f"{name}.onnx"))
    samples = seeded_samples(network)
    integers = quantise(fuse_network(network), weights, calibrate(network, weights, samples))
    assert any(step.exact for step in integers.steps) and any(step.layer for step in integers.steps)
    exact, found = Observer(network, weights)(samples[0]), execute(integers, samples[0], RUNNABLE[0], weights)
    for expected, array in zip(exact, found, strict=True):
        assert np.sqrt(((array - expected) ** 2).mean()) < 0.1 * expected.std()


@pytest.mark.parametrize("channels", [32, 40])
def test_what_has_no_int8_form_stays_in_blocks_between_kernels_that_take_them(channels: int) -> None:
    one, deep = {"stride": 1, "padding": 0}, {"stride": 1, "padding": 1, "groups": channels}
    layers = (
        Layer("a", "conv2d", ("x",), {"weight": "a.weight", "bias": "a.bias"}, one),
        Layer("d", "conv2d", ("a",), {"weight": "d.weight", "bias": "d.bias"}, deep),
        Layer("s", "sigmoid", ("d",)),
        Layer("b", "conv2d", ("s",), {"weight": "b.weight", "bias": "b.bias"}, one),
        Layer("r", "relu", ("b",)),
    )
    params = {f"{name}.bias": (channels,) for name in "adb"} | {"d.weight": (channels, 1, 3, 3)}
    params |= {f"{name}.weight": (channels, channels, 1, 1) for name in "ab"}
    network = Network("net", {"x": image(channels, 9, 11)}, layers, ("r",), params)
    integers = prepared(network)
    lowered = lower_int8(integers, weights_of(network), *PATHS["lanes16"])
    kernels = {one.name_hint.rstrip("0123456789") for one in lowered.module.get_global_vars()}
    assert {"dequantise", "depthwise", "quantise"} <= kernels and "pack" not in kernels
    graph = fuse_network(network)
    counted = operators(graph, "int8"), operators(graph, "fp32")
    moves = [name for one in in_kernels(graph, integers_of(graph, None, ()), *counted) for name, _ in one.moves]
    assert moves == ["dequantise", "quantise"]


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
