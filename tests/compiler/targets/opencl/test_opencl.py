"""The opencl target: consistent launch plans, and kernels run on an OpenCL device (PoCL) against the host."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import references
import small_stages
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from socsched import plugins
from socsched.compiler.artifact import Artifact
from socsched.compiler.builder import compile_stage
from socsched.compiler.launch_list import OPENCL, evaluate
from socsched.compiler.loading.stages import load
from socsched.compiler.targets.opencl.passes import SOURCE
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.errors import CompileError, InputError, MachineError
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.models.model import Model, Port
from tools.verify import opencl_device
from tools.verify.opencl_device import Device
from tools.verify.opencl_stage import OpenClStage

MALI = {"kind": "opencl", "max_threads_per_block": 64, "host": {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}}
TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2}
"""Largest difference from the host's fp32 result, relative to the largest output."""
ONNX = ("resnet", "trunk", "mobilenet", "yolo", "odd")

Array = np.ndarray[Any, Any]
Make = Callable[..., Engine]


@pytest.fixture(scope="module")
def device() -> Device:
    return Device()


@pytest.fixture
def gpu(make_engine: Make) -> Engine:
    return make_engine(MALI, ("fp16", "fp32"), id="gpu")


def case(name: str, folder: Path) -> tuple[Stage, list[Array]]:
    if name in ONNX:
        pytest.importorskip("onnx")
        return small_stages.onnx_stage(name, folder)
    return small_stages.stage(name), small_stages.inputs(name)


@pytest.mark.needs("OpenCL")
@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize(
    ("name", "limit"),
    [
        *((name, 64) for name in small_stages.STAGES),
        *(pytest.param(name, 256, marks=() if name == "odd" else pytest.mark.slow) for name in ONNX),
        pytest.param("resnet", 64, marks=pytest.mark.slow),
    ],
)
def test_kernels_compute_what_the_host_does(
    name: str, limit: int, precision: str, tmp_path: Path, device: Device, make_engine: Make
) -> None:
    stage, arrays = case(name, tmp_path)
    gpu = make_engine({**MALI, "max_threads_per_block": limit}, ("fp16", "fp32"), id="gpu")
    compiled = OpenClStage(compile_stage(stage, gpu, precision), device)
    found = list(compiled(*(small_stages.halved(arrays) if precision == "fp16" else arrays)))
    assert {array.dtype.name for array in found} == {"float16" if precision == "fp16" else "float32"}
    assert small_stages.error(found, small_stages.reference(stage, arrays)) <= TOLERANCE[precision]


@pytest.mark.needs("OpenCL")
@pytest.mark.parametrize("count", [0, 1, 63, 300])
def test_any_number_of_pillars(count: int, device: Device, gpu: Engine) -> None:
    rng = np.random.default_rng(count)
    counts = rng.integers(1, small_stages.SLOTS + 1, count).astype(np.int32)
    voxels = rng.normal(size=(count, small_stages.SLOTS, 4)).astype(np.float32)
    voxels *= (np.arange(small_stages.SLOTS) < counts[:, None])[:, :, None]
    arrays = [voxels, counts, rng.integers(0, 40, (count, 2)).astype(np.int32)]
    stage = small_stages.stage("pfn")
    (found,) = OpenClStage(compile_stage(stage, gpu, "fp32"), device)(*arrays)
    (expected,) = small_stages.reference(stage, arrays)
    assert found.shape == (count, 64)
    assert np.abs(found - expected).max(initial=0) <= 1e-4 * max(1.0, np.abs(expected).max(initial=0))


@pytest.mark.needs("OpenCL")
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    channels=st.tuples(st.sampled_from([1, 3, 8, 14, 24]), st.sampled_from([1, 3, 6, 13, 16, 18, 42])),
    size=st.tuples(st.integers(7, 20), st.integers(7, 33)),
    window=st.sampled_from([(1, 1, 0), (1, 2, 0), (3, 1, 1), (3, 2, 1), (3, 1, 0), (5, 1, 2), (7, 2, 3)]),
    relu=st.booleans(),
)
def test_convolutions(
    device: Device, gpu: Engine, channels: tuple[int, int], size: tuple[int, int], window: Any, relu: bool
) -> None:
    (ci, co), (kernel, stride, pad) = channels, window
    layers = [
        Layer("c", "conv2d", ("x",), {"weight": "w", "bias": "b"}, {"stride": stride, "padding": pad}),
        *([Layer("r", "relu", ("c",))] if relu else []),
    ]
    check(Network("net", {"x": image(ci, *size)}, tuple(layers), (layers[-1].name,), conv_params(ci, co, kernel)), gpu)


@pytest.mark.needs("OpenCL")
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from([1, 8, 24]), st.sampled_from([3, 8, 18]), st.integers(3, 9), st.integers(3, 17), st.integers(1, 4)
)
def test_transposed_convolutions(device: Device, gpu: Engine, ci: int, co: int, h: int, w: int, stride: int) -> None:
    layer = Layer("d", "conv2d_transpose", ("x",), {"weight": "w", "bias": "b"}, {"stride": stride})
    params = {"w": (ci, co, stride, stride), "b": (co,)}
    check(Network("net", {"x": image(ci, h, w)}, (layer, Layer("r", "relu", ("d",))), ("r",), params), gpu)


def image(*shape: int) -> TensorType:
    return TensorType((1, *shape), "fp32", "NCHW")


def test_a_value_may_be_multiplied_with_itself(gpu: Engine) -> None:
    square = Layer("y", "multiply", ("x", "x"))
    artifact = compile_network(Network("net", {"x": image(8, 6, 10)}, (square,), ("y",)), gpu, {})
    assert "stage.cl" in {path.name for path in artifact.folder.iterdir()}


def conv_params(ci: int, co: int, kernel: int) -> dict[str, tuple[int, ...]]:
    return {"w": (co, ci, kernel, kernel), "b": (co,)}


def check(network: Network, engine: Engine) -> None:
    """Compare a network with the float64 reference."""
    rng = np.random.default_rng(4)
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in network.params.items()}
    inputs = {name: rng.normal(size=t.shape).astype(np.float32) for name, t in network.inputs.items()}
    found = OpenClStage(compile_network(network, engine, weights))(*inputs.values())
    assert small_stages.error(list(found), list(references.run(network, weights, inputs))) <= 1e-5


def compile_network(network: Network, engine: Engine, weights: dict[str, Array]) -> Artifact:
    ports = tuple(Port(name, tensor) for name, tensor in network.inputs.items())
    outputs = tuple(Port(name, image(1, 1, 1)) for name in network.outputs)
    model = Model("net", ports, outputs, network=lambda: network)
    small_stages.made = lambda params: model  # type: ignore[attr-defined]
    plugins.provide("socsched.models", "small.made", "small_stages:made")
    return compile_stage(Stage("net", "net", "small.made"), engine, "fp32", weights)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("name", small_stages.STAGES)
def test_the_plan_holds_together(name: str, precision: str, gpu: Engine) -> None:
    artifact = compile_stage(small_stages.stage(name), gpu, precision)
    assert (
        artifact.files == (OPENCL.file, SOURCE, OPENCL.constants)
        and artifact.target == "opencl"
        and not artifact.loadable
    )
    plan, source = json.loads(artifact.path.read_text()), (artifact.folder / SOURCE).read_text()
    parameters = {
        kernel: text.count(",") + 1
        for kernel, text in re.findall(r"^__kernel void (\w+)\((.*)\) \{$", source, re.MULTILINE)
    }
    symbols = dict.fromkeys(plan["symbols"], 90)
    written: set[int] = set(plan["inputs"])
    for launch in plan["launches"]:
        assert len(launch["arguments"]) == parameters[launch["kernel"]]
        assert np.prod([evaluate(size, symbols) for size in launch["items"]]) <= 64
        touched = {a["buffer"] for a in launch["arguments"] if "buffer" in a}
        fresh = touched - written
        assert sum(plan["buffers"][index]["role"] != "constant" for index in fresh) <= 1, "one output a launch"
        written |= fresh
    written |= {buffer["within"] for buffer in plan["buffers"] if buffer["role"] == "part"}
    assert written == set(range(len(plan["buffers"]))), "every buffer is used"
    ends = [b["offset"] + b["bytes"] for b in plan["buffers"] if b["role"] == "constant"]
    assert max(ends, default=0) == len((artifact.folder / OPENCL.constants).read_bytes())
    assert all(re.search(rf"\b{kernel}\b", source) for kernel in parameters)


@pytest.mark.slow
def test_concatenation_copies_nothing(gpu: Engine) -> None:
    plan = json.loads(compile_stage(small_stages.stage("backbone"), gpu, "fp16").path.read_text())
    (neck,) = plan["outputs"]
    parts = [buffer for buffer in plan["buffers"] if buffer["role"] == "part"]
    size = plan["buffers"][neck]["bytes"] // 3
    assert [(part["within"], part["offset"], part["bytes"]) for part in parts] == [
        (neck, i * size, size) for i in range(3)
    ]
    assert not [launch for launch in plan["launches"] if "concatenate" in launch["kernel"]]


def test_scratch_memory_is_shared_but_never_while_in_use(gpu: Engine) -> None:
    artifact = compile_stage(small_stages.stage("backbone"), gpu, "fp32")
    plan = json.loads(artifact.path.read_text())
    uses: dict[int, list[int]] = {}
    for step, launch in enumerate(plan["launches"]):
        for argument in launch["arguments"]:
            index = argument["buffer"]
            uses.setdefault(plan["buffers"][index].get("within", index), []).append(step)
    scratch = [index for index, buffer in enumerate(plan["buffers"]) if buffer["role"] == "scratch"]
    storages = {plan["buffers"][index]["storage"] for index in scratch}
    assert len(storages) < len(scratch) / 2
    for first in scratch:
        for second in scratch:
            if first < second and plan["buffers"][first]["storage"] == plan["buffers"][second]["storage"]:
                assert max(uses[first]) < min(uses[second]) or max(uses[second]) < min(uses[first])


def test_groups_larger_than_the_device_takes_are_refused(make_engine: Make) -> None:
    layer = Layer("d", "dense", ("x",), {"weight": "w", "bias": "b"})
    shapes = {"w": (256, 128), "b": (256,)}
    network = Network("net", {"x": TensorType((64, 128), "fp32")}, (layer,), ("d",), shapes)
    weights = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    with pytest.raises(CompileError, match=r"needs \d+ work-items a group, the target allows 32"):
        compile_network(network, make_engine({**MALI, "max_threads_per_block": 32}, id="gpu"), weights)


def test_the_pillar_net_is_one_kernel(gpu: Engine) -> None:
    """No [P, slots, channels] intermediate: what a launch touches grows with the pillars, not with their capacity."""
    plan = json.loads(compile_stage(small_stages.stage("pfn"), gpu, "fp16").path.read_text())
    assert len(plan["launches"]) == 1 and not [b for b in plan["buffers"] if b["role"] == "scratch"]


def test_sizes_are_arithmetic_and_nothing_else() -> None:
    assert evaluate("((P * 3) + 255) // 256", {"P": 100}) == 2
    assert evaluate("max(min(P, 7), 2) % 4", {"P": 100}) == 3
    for text in ("Q", "P ** 2", "__import__('os')", "P.real"):
        with pytest.raises(InputError, match="is not a size"):
            evaluate(text, {"P": 1})


def test_not_loaded_like_a_library(gpu: Engine, make_engine: Make) -> None:
    artifact = compile_stage(small_stages.stage("head"), gpu, "fp32")
    with pytest.raises(MachineError, match="code for opencl, which this machine cannot run"):
        load(artifact)
    other = compile_stage(small_stages.stage("head"), make_engine({"kind": "opencl"}, id="gpu1"), "fp32")
    assert other.key != artifact.key, "the limits are part of what was compiled"
    again = compile_stage(small_stages.stage("head"), make_engine({**MALI, "note": "x"}, id="gpu2"), "fp32")
    assert again.key == artifact.key


def test_without_opencl_it_is_named(gpu: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: object) -> None:
        raise OSError

    monkeypatch.setattr(opencl_device.ctypes, "CDLL", absent)
    with pytest.raises(MachineError, match="libOpenCL is not installed") as caught:
        OpenClStage(compile_stage(small_stages.stage("head"), gpu, "fp32"))
    assert "pocl-opencl-icd" in caught.value.hint
