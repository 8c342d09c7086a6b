"""The int8 GPU rules' indices and arithmetic, run unbound on the CPU, against the numpy definition bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import gpu_networks
import int8_networks
import int8_reference as reference
import numpy as np
import pytest
from cuda_sources import build_executable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from int8_networks import (
    CHANNELS,
    JOINED,
    WINDOWS,
    conv,
    image,
    joined,
    prepared,
    require_equal,
    residual_block,
    transposed,
    weights_of,
)

from socsched.compiler.environment import relax, tvm
from socsched.compiler.loading.aligned import from_tvm
from socsched.compiler.quantize.calibrate import calibrate, seeded_samples
from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.quantize.network import QuantisedGraph, quantise
from socsched.compiler.quantize.scales import Scales
from socsched.compiler.target import resolve
from socsched.compiler.targets.cuda.int8_lower import lower_int8
from socsched.compiler.targets.llvm.int8_dot import dot_for, int8_options
from socsched.compiler.targets.llvm.int8_lower import lower_int8 as lower_host
from socsched.compiler.targets.llvm.processor import native_target
from socsched.errors import CompileError
from socsched.graph.expand import fuse_network
from socsched.graph.network import Layer, Network
from socsched.models.pointpillars.network import backbone_network, head_network, scatter_network
from socsched.models.weights import draw_weights

Array = np.ndarray[Any, Any]
FEW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def execute(
    q: QuantisedGraph, inputs: Mapping[str, Array], weights: Mapping[str, Array] | None = None
) -> tuple[Array, ...]:
    """The unbound form's outputs, in NCHW."""
    return int8_networks.execute(q, lower_int8(q, weights or {}, "sm_87", bound=False), native_target(), inputs)


def compare(network: Network, signed: Mapping[str, bool] | None = None, floats: bool = True) -> None:
    require_equal(prepared(network, signed, floats), execute)


@FEW
@given(
    *(CHANNELS, CHANNELS, st.integers(7, 15), st.integers(7, 17), st.sampled_from([1, 3, 5]), st.integers(1, 2)),
    *(st.booleans(), st.booleans(), st.booleans()),
)
@pytest.mark.slow
def test_conv2d(
    ci: int, co: int, h: int, w: int, kernel: int, stride: int, relu: bool, signed: bool, floats: bool
) -> None:
    compare(conv(ci, co, h, w, kernel, stride, kernel // 2, relu), {"x": signed}, floats)


@FEW
@given(CHANNELS, CHANNELS, st.integers(1, 7), st.integers(1, 9), WINDOWS, st.booleans(), st.booleans())
@pytest.mark.slow
def test_conv2d_transpose(
    ci: int, co: int, h: int, w: int, window: tuple[int, int, int], signed: bool, floats: bool
) -> None:
    compare(transposed(ci, co, h, w, window), {"x": signed}, floats)


@pytest.mark.parametrize("signed", [False, True])
def test_split_sums(signed: bool) -> None:
    """Deep and small products are added up by a second kernel."""
    network = conv(256, 64, 7, 7, 3, 1, 1, True)
    q = prepared(network, {"x": signed}, floats=False)
    assert lower_int8(q, {}, "sm_87", bound=False).products[0][1].splits > 1
    compare(network, {"x": signed}, floats=False)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("window", [(2, 2, 0), (3, 2, 1), (3, 1, 1)])
@pytest.mark.parametrize("signed", [False, True])
def test_max_pool(window: tuple[int, int, int], signed: bool) -> None:
    kernel, stride, pad = window
    layer = Layer("p", "max_pool", ("x",), attrs={"kernel": kernel, "stride": stride, "padding": pad})
    compare(Network("net", {"x": image(24, 9, 13)}, (layer,), ("p",)), {"x": signed})


def test_residual_block() -> None:
    q = prepared(residual_block())
    assert [step.residual for step in q.steps if step.residual] == ["x"]
    compare(residual_block())


@JOINED[0]
@JOINED[1]
@JOINED[2]
def test_concat(case: str, floats: bool) -> None:
    require_equal(joined(case, floats), execute)


@pytest.mark.parametrize(("ny", "nx"), [(5, 7), (8, 8)])
def test_heads_are_one_product(ny: int, nx: int) -> None:
    """Written as they leave where their images start at aligned addresses, copied out where not."""
    network = head_network(ny, nx)
    products = lower_int8(prepared(network), {}, "sm_87", bound=False).products
    assert len(products) == 1
    assert products[0][0].planes == ((18, 42, 12, 8) if ny == 8 else ())
    compare(network)


@pytest.mark.slow
def test_backbone_on_a_small_canvas() -> None:
    network = backbone_network(taps=True, ny=24, nx=40)
    lowered = lower_int8(prepared(network, {"canvas": False}), {}, "sm_87", bound=False)
    names = [variable.name_hint for variable in lowered.module.get_global_vars()]
    assert not any(name.startswith(("rescale", "add", "narrow")) for name in names), "the concatenation is free"
    compare(network, {"canvas": False})


def on_host(q: QuantisedGraph, inputs: Mapping[str, Array], weights: Mapping[str, Array]) -> tuple[Array, ...]:
    """This machine's int8 code, which has rules for other operators than the GPU."""
    host = resolve({"kind": "llvm", "host": True})
    return int8_networks.execute(q, lower_host(q, weights, *dot_for(host)), int8_options(host), inputs)


def gated() -> Network:
    """A sigmoid of bytes that bytes are made of again, one that leaves, and one of the input."""
    layers = (
        Layer("a", "conv2d", ("x",), {"weight": "a.weight", "bias": "a.bias"}, {"stride": 1, "padding": 1}),
        Layer("s", "sigmoid", ("a",)),
        Layer("b", "conv2d", ("s",), {"weight": "b.weight", "bias": "b.bias"}, {"stride": 2, "padding": 1}),
        Layer("t", "sigmoid", ("x",)),
    )
    params = {"a.weight": (24, 6, 3, 3), "a.bias": (24,), "b.weight": (18, 24, 3, 3), "b.bias": (18,)}
    return Network("net", {"x": image(6, 9, 11)}, layers, ("b", "s", "t"), params)


@pytest.mark.parametrize("make", [gated, gpu_networks.residual])
@pytest.mark.slow
def test_operators_without_int8_form_are_computed_in_fp32(make: Callable[[], Network]) -> None:
    network = make()
    weights = draw_weights(network, 3)
    samples = seeded_samples(network)
    q = quantise(fuse_network(network), weights, calibrate(network, weights, samples))
    assert any(step.exact for step in q.steps) and any(step.layer for step in q.steps)
    wanted = on_host(q, samples[0], weights)
    for found, expected in zip(execute(q, samples[0], weights), wanted, strict=True):
        assert expected.std() > 0
        assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


def test_what_has_no_int8_form_is_named() -> None:
    network = Network("net", {"x": image(16, 4, 4)}, (Layer("s", "sigmoid", ("x",)),), ("s",))
    with pytest.raises(CompileError, match="s: no int8 rule for sigmoid"):
        build_executable(network, {}, {"kind": "cuda", "arch": "sm_87"}, "int8")


def test_pillars_are_placed_in_bytes() -> None:
    """The network from its pillars on gives the results of the network on a canvas that numpy filled."""
    scattered, body = scatter_network(8, 8, 64), head_conv()
    (canvas,), (name,) = scattered.outputs, body.inputs
    layers = (*scattered.layers, replace(body.layers[0], inputs=(canvas,)))
    network = Network("net", scattered.inputs, layers, (body.layers[0].name,), body.params)
    weights, generator = weights_of(body), np.random.default_rng(2)
    for signed in (True, False):
        scales = {value: Scale(0.1, signed) for value in (canvas, body.outputs[0])}
        q = quantise(fuse_network(network), weights, Scales(scales))
        features = generator.normal(0, 9, (11, 64)).astype(np.float32)
        cells = generator.permutation(64)[:11]
        coords = np.stack([cells % 8, cells // 8], 1).astype(np.int32)
        coords[3], coords[7] = (-1, 2), (2, 8)  # outside the grid
        found = run_unbound(q, weights, [features, coords])
        inside = np.delete(np.arange(11), [3, 7])
        grid = np.zeros((8, 8, 64), np.float32)
        grid[coords[inside, 1], coords[inside, 0]] = features[inside]
        plain = quantise(fuse_network(body), weights, Scales({**scales, name: scales[canvas]}))
        wanted = reference.outputs(plain, {name: grid.transpose(2, 0, 1)[None]})[0]
        assert np.array_equal(found[0], wanted.transpose(0, 2, 3, 1)) and np.unique(wanted).size > 3


def run_unbound(q: QuantisedGraph, weights: Mapping[str, Array], inputs: list[Array]) -> list[Array]:
    """Return the unbound form's outputs as they lie in memory."""
    lowered = lower_int8(q, weights, "sm_87", bound=False)
    executable = relax.build(lowered.module, target=tvm.target.Target(dict(native_target())))
    function = relax.VirtualMachine(executable, tvm.cpu())["main"]
    return [from_tvm(result) for result in function(*(tvm.runtime.tensor(array) for array in inputs))]


@pytest.mark.parametrize("kept", [True, False])
def test_a_canvas_in_floats_is_refused(kept: bool) -> None:
    """Sizes that vary have an int8 form only where a scatter reads them, and its result stays inside."""
    scattered, body = scatter_network(8, 8, 64), head_conv()
    layers = (*scattered.layers, replace(body.layers[0], inputs=(scattered.outputs[0],)))
    outputs = (body.layers[0].name, *(scattered.outputs if kept else ()))
    inputs = dict(scattered.inputs)
    if not kept:
        layers = (*layers, Layer("more", "relu", ("features",)))
        outputs = (*outputs, "more")
    network = Network("net", inputs, layers, outputs, body.params)
    graph = fuse_network(network)
    q = quantise(graph, weights_of(body), Scales({value: Scale(0.1, True) for value in graph.values}))
    with pytest.raises(CompileError, match="sizes that vary" if not kept else "no int8 rule for scatter"):
        lower_int8(q, weights_of(body), "sm_87")


def head_conv() -> Network:
    return conv(64, 16, 8, 8, 1, 1, 0, False)
