"""Every operator of the CPU lowering against float64, on odd sizes, for every vector unit the machine can execute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import references
from cpu_networks import Array, execute, image, inputs_of, weights_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from socsched.compiler.environment import relax, tvm
from socsched.compiler.loading.aligned import from_tvm
from socsched.compiler.passes.relax_form import bind_weights, import_network
from socsched.compiler.targets.llvm.lower import lower
from socsched.compiler.targets.llvm.vector import AVX2, AVX512, NEON, SSE, Vector, tile
from socsched.errors import CompileError
from socsched.graph.expand import fuse_network
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.models.camera import detector_network
from socsched.models.pointpillars.network import backbone_network, head_network, pfn_network, scatter_network

VECTORS = st.sampled_from([AVX512, AVX2, NEON, SSE])
FEW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def compare(network: Network, vector: Vector, tolerance: float = 2e-5, **inputs: Array) -> None:
    given = inputs or inputs_of(network)
    for found, expected in zip(
        execute(network, given, vector), references.run(network, weights_of(network), given), strict=True
    ):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max(initial=0) <= tolerance * max(1.0, np.abs(expected).max(initial=0))


def conv_network(ci: int, co: int, h: int, w: int, kernel: int, stride: int, pad: int, relu: bool) -> Network:
    layers = [
        Layer("c", "conv2d", ("x",), {"weight": "c.weight", "bias": "c.bias"}, {"stride": stride, "padding": pad})
    ]
    layers += [Layer("r", "relu", ("c",))] if relu else []
    params = {"c.weight": (co, ci, kernel, kernel), "c.bias": (co,)}
    return Network("net", {"x": image(ci, h, w)}, tuple(layers), (layers[-1].name,), params)


CHANNELS = st.sampled_from([1, 3, 8, 16, 18, 24, 40, 64, 80, 112])


@FEW
@given(
    CHANNELS,
    CHANNELS,
    st.integers(7, 23),
    st.integers(7, 29),
    st.sampled_from([1, 3, 5, 7]),
    st.integers(1, 2),
    st.booleans(),
    VECTORS,
)
def test_conv2d(ci: int, co: int, h: int, w: int, kernel: int, stride: int, relu: bool, vector: Vector) -> None:
    compare(conv_network(ci, co, h, w, kernel, stride, kernel // 2, relu), vector)


@FEW
@given(st.integers(1, 3), st.integers(0, 1), st.integers(5, 9), VECTORS)
@pytest.mark.slow
def test_conv2d_with_less_padding_than_the_stored_border(stride: int, pad: int, size: int, vector: Vector) -> None:
    compare(conv_network(16, 16, size, size + 4, 3, stride, pad, True), vector)


@FEW
@given(CHANNELS, CHANNELS, st.integers(1, 9), st.integers(1, 13), st.sampled_from([1, 2, 3, 4]), VECTORS)
def test_conv2d_transpose(ci: int, co: int, h: int, w: int, stride: int, vector: Vector) -> None:
    layer = Layer("d", "conv2d_transpose", ("x",), {"weight": "d.weight", "bias": "d.bias"}, {"stride": stride})
    params = {"d.weight": (ci, co, stride, stride), "d.bias": (co,)}
    compare(Network("net", {"x": image(ci, h, w)}, (layer,), ("d",), params), vector)


@FEW
@given(CHANNELS, st.integers(4, 15), st.integers(4, 15), st.sampled_from([(2, 2, 0), (3, 2, 1), (3, 1, 1)]), VECTORS)
def test_max_pool(channels: int, h: int, w: int, window: tuple[int, int, int], vector: Vector) -> None:
    kernel, stride, pad = window
    layer = Layer("p", "max_pool", ("x",), attrs={"kernel": kernel, "stride": stride, "padding": pad})
    network = Network("net", {"x": image(channels, h, w)}, (layer,), ("p",))
    # All negative: a zero border taken into the maximum would show.
    compare(network, vector, x=-1 - np.abs(inputs_of(network)["x"]))


@pytest.mark.parametrize("vector", [AVX512, AVX2], ids=lambda v: v.name)
def test_residual_block_pads_differ_between_readers(vector: Vector) -> None:
    """One value is read with padding 1, with padding 0 and by an addition, and leaves the network too."""
    weights = {"weight": "a.weight", "bias": "a.bias"}, {"weight": "b.weight", "bias": "b.bias"}
    layers = (
        Layer("x.relu", "relu", ("x",)),
        Layer("a", "conv2d", ("x.relu",), weights[0], {"stride": 1, "padding": 2}),
        Layer("b", "conv2d", ("x.relu",), weights[1], {"stride": 1, "padding": 0}),
        Layer("sum", "add", ("a", "b")),
        Layer("out", "relu", ("sum",)),
    )
    params = {"a.weight": (16, 16, 5, 5), "a.bias": (16,), "b.weight": (16, 16, 1, 1), "b.bias": (16,)}
    compare(Network("net", {"x": image(16, 9, 11)}, layers, ("out", "x.relu", "b"), params), vector)


@pytest.mark.parametrize("shared", [False, True], ids=["in place", "copied"])
def test_concat(shared: bool) -> None:
    """Inputs used once are written in place; one that also leaves the network has to be copied."""
    names = ("a", "b", "c")
    layers = tuple(
        Layer(n, "conv2d_transpose", ("x",), {"weight": f"{n}.weight", "bias": f"{n}.bias"}, {"stride": 2})
        for n in names
    )
    join = Layer("join", "concat", names, attrs={"axis": 1})
    params = {f"{n}.weight": (16, 16 * i, 2, 2) for i, n in enumerate(names, 1)} | {
        f"{n}.bias": (16 * i,) for i, n in enumerate(names, 1)
    }
    network = Network("net", {"x": image(16, 5, 7)}, (*layers, join), ("join", "b") if shared else ("join",), params)
    graph = fuse_network(network)
    assert graph.in_place(graph.groups[-1]) is not shared
    compare(network, AVX512)


def test_heads_are_one_kernel_with_separate_outputs() -> None:
    network = head_network(5, 7)
    lowered = lower(fuse_network(network), weights_of(network), AVX512)
    names = [variable.name_hint for variable in lowered.module.get_global_vars()]
    assert sum(name.startswith("conv2d") for name in names) == 1
    compare(network, AVX512)


@pytest.mark.parametrize("vector", [AVX512, AVX2, NEON], ids=lambda v: v.name)
@pytest.mark.slow
def test_backbone_on_a_small_canvas(vector: Vector) -> None:
    compare(backbone_network(taps=True, ny=24, nx=40), vector, tolerance=1e-4)


@pytest.mark.slow
def test_camera_detector_on_a_small_image() -> None:
    compare(detector_network(64, 96), AVX512, tolerance=1e-4)


def pillars(count: int, slots: int, seed: int) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    counts = generator.integers(1, slots + 1, count).astype(np.int32)
    counts[::3] = slots
    voxels = generator.normal(scale=20, size=(count, slots, 4)).astype(np.float32)
    voxels *= (np.arange(slots) < counts[:, None])[:, :, None]
    cells = generator.permutation(30 * 20)[:count]
    return {"voxels": voxels, "counts": counts, "coords": np.stack([cells % 30, cells // 30], 1).astype(np.int32)}


@FEW
@given(st.integers(0, 40), st.integers(1, 33), VECTORS)
def test_pillar_net(count: int, slots: int, vector: Vector) -> None:
    """Also without any pillar, and with padded slots, which take part in the maximum as relu(bias)."""
    compare(pfn_network(slots), vector, 1e-4, **pillars(count, slots, count))


def test_pillar_net_ignores_what_lies_in_empty_slots() -> None:
    clean = pillars(9, 8, 0)
    dirty = {**clean, "voxels": np.where(clean["voxels"] == 0, np.float32(7e5), clean["voxels"])}
    network = pfn_network(8)
    assert np.array_equal(execute(network, clean, AVX512)[0], execute(network, dirty, AVX512)[0])


@FEW
@given(st.integers(0, 60), VECTORS)
def test_scatter_zeroes_and_leaves_out_padding(count: int, vector: Vector) -> None:
    generator = np.random.default_rng(count)
    coords = pillars(count, 1, count)["coords"]
    coords[::4] = generator.choice([-1, 30, 1 << 20], size=coords[::4].shape)
    features = generator.normal(size=(count, 32)).astype(np.float32)
    compare(scatter_network(20, 30, 32), vector, 0.0, features=features, coords=coords)


@pytest.mark.parametrize("network", [pfn_network(6), scatter_network(8, 9, 4)], ids=lambda n: n.name)
def test_plain_kernels_that_other_targets_lower(network: Network) -> None:
    """The TIR that GPUs get, built without any rule of ours."""
    given = pillars(11, 6, 2)
    if "features" in network.inputs:
        given = {
            "features": np.random.default_rng(0).normal(size=(11, 4)).astype(np.float32),
            "coords": given["coords"],
        }
        given["coords"][0] = -1
    module = bind_weights(import_network(network), network, weights_of(network))
    function = relax.VirtualMachine(relax.build(module, tvm.target.Target("llvm")), tvm.cpu())["main"]
    found = from_tvm(function(*(tvm.runtime.tensor(given[name]) for name in network.inputs))[0])
    expected = references.run(network, weights_of(network), given)[0]
    assert np.abs(found - expected).max() <= 1e-4 * max(1.0, np.abs(expected).max())


def test_what_has_no_kernel_is_named() -> None:
    with pytest.raises(CompileError, match="unknown op 'gelu'"):
        import_network(Network("net", {"x": image(16, 4, 4)}, (Layer("g", "gelu", ("x",)),), ("g",)))


def test_large_batches_go_through_general_schedules() -> None:
    network = replace(
        conv_network(16, 16, 6, 7, 3, 1, 1, True), inputs={"x": TensorType((17, 16, 6, 7), "fp32", "NCHW")}
    )
    lowered = lower(fuse_network(network), weights_of(network), AVX512)
    assert lowered.general == ("conv2d",)
    compare(network, AVX512)


@given(VECTORS, st.integers(1, 40), st.integers(1, 500))
def test_tiles_fit_the_registers(vector: Vector, blocks: int, width: int) -> None:
    """Sums, weights and a pixel are held at once."""
    chosen = tile(vector, blocks, width)
    assert blocks % chosen.blocks == 0 and 1 <= chosen.pixels <= width
    assert chosen.blocks * (chosen.pixels + 1) * vector.per_block + 1 <= vector.registers
