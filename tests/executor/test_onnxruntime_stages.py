"""ONNX Runtime as the program of CPU stages: plans, runs and bundles agree, and compute what its sessions do."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from socsched.api.deployment import compile as compile_plan
from socsched.api.planning import plan as make_plan
from socsched.compiler.builder import network_of, weights_for
from socsched.compiler.packaging.deploy import BundleRequest, compile_bundle
from socsched.compiler.quantize.calibrate import calibrate, seeded_samples
from socsched.compiler.toolchains.onnx_model import without_operator
from socsched.compiler.toolchains.onnx_runtime import LIBRARY, model_folder
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.host import build, probe
from socsched.descriptor.pipeline_file import onnx_pipeline
from socsched.descriptor.platform import ONNXRUNTIME, OWN
from socsched.errors import UsageError
from socsched.executor.frames import write_inputs
from socsched.executor.references import write_references
from socsched.executor.settings import RunSettings, write_settings
from socsched.executor.stages import describe_stages, sensor_ports
from socsched.models.precision import settled
from socsched.models.registry import bindings, get_model
from socsched.planning.plan import Plan
from socsched.runtime import backends
from socsched.runtime.backends import Setting, plain
from socsched.runtime.backends.built_in import OnnxRuntimeBackend, TvmCpuBackend
from socsched.runtime.inputs import prepare_inputs
from socsched.runtime.options import Inputs
from tests.models.quantised_files import Style, quantised

SEEDS = range(6)


def write_network(seed: int, folder: Path) -> Path:
    """Write a random network of one or two inputs and outputs: convolutions, products of rows, sums and activations."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(seed)
    image = bool(random.integers(2))
    shape = [1, int(random.integers(3, 20)), 9, 11] if image else [1, int(random.integers(3, 40)), 24]
    inputs = [f"x{n}" for n in range(1)]
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(*sizes: int) -> str:
        name = f"w{len(constants)}"
        constants.append(numpy_helper.from_array(random.normal(size=sizes).astype(np.float32) / 4, name))
        return name

    value = inputs[0]
    for name in inputs[1:]:
        nodes.append(helper.make_node("Add", [value, name], [f"sum {name}"]))
        value = f"sum {name}"
    width = shape[1] if image else shape[2]
    kept, before = value, width
    for number in range(int(random.integers(1, 8))):
        made = f"v{number}"
        kind = random.integers(4)
        if kind == 0:
            nodes.append(helper.make_node(str(random.choice(["Relu", "Sigmoid", "Tanh"])), [value], [made]))
        elif kind == 1:
            side = (width, 1, 1) if image else (width,)
            operands = [value, constant(*side)]
            nodes.append(helper.make_node("Add", operands[:: 1 if random.integers(2) else -1], [made]))
        elif image:
            wider = int(random.integers(3, 24))
            weight = constant(wider, width, 3, 3)
            nodes.append(helper.make_node("Conv", [value, weight], [made], kernel_shape=[3, 3], pads=[1] * 4))
            width = wider
        else:
            wider = int(random.integers(3, 24))
            nodes.append(helper.make_node("MatMul", [value, constant(width, wider)], [made]))
            width = wider
        value = made
        if width == before and random.integers(2):  # a branch around what was added
            nodes.append(helper.make_node("Add", [value, kept], [f"{made} and {kept}"]))
            kept = value = f"{made} and {kept}"
    last = [1, width, 9, 11] if image else [shape[0], shape[1], width]
    results = ["y"] + ["z"] * int(random.integers(2))
    nodes.append(helper.make_node("Relu", [value], ["y"]))
    nodes += [helper.make_node("Neg", [value], ["z"])] * (len(results) - 1)
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, last) for name in results],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    path = folder / f"net{seed}.onnx"
    onnx.save(model, str(path))
    return path


def planned(network: Path, *runtimes: str) -> tuple[Plan, Setting]:
    made = make_plan(network, "host", runtimes=runtimes)
    pipeline = get_pipeline(str(network))
    return made, Setting(made, pipeline, get_platform("host"), bindings(pipeline), None)


@pytest.mark.parametrize("runtime", [ONNXRUNTIME, OWN])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_stage_computes_what_a_session_does(seed: int, runtime: str, executor: Path, tmp_path: Path) -> None:
    import onnxruntime

    network = write_network(seed, tmp_path)
    made, setting = planned(network, runtime)
    (task,) = [task for task in made.tasks if task.kind == "stage"]
    assert task.runtime == runtime
    feeds, horizon = prepare_inputs(setting, Inputs(frames=2))
    given = write_inputs(made, feeds, sensor_ports(setting), horizon, tmp_path)
    stages = describe_stages(setting, {name: written.types for name, written in given.items()})
    assert stages[task.name]["kind"] == ("engine" if runtime == ONNXRUNTIME else "network")
    frames = {name: feeds[name].frame(0) for name in given}
    references = write_references(setting, frames, stages, tmp_path, 0)
    inputs = {name: written.document for name, written in given.items()}
    needs = {stage: set(ports.values()) for stage, ports in setting.bound.items()}
    settings = write_settings(RunSettings(made, horizon, needs, stages, inputs=inputs), tmp_path)
    done = subprocess.run(
        [str(executor), str(settings), "--selftest", str(references)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{task.name}: passed" in done.stdout

    values = {name: frame.outputs for name, frame in frames.items()}
    backend = OnnxRuntimeBackend() if runtime == ONNXRUNTIME else TvmCpuBackend()
    found = backend.prepare(task, setting.pipeline.stage(task.name), setting)(values)
    session = onnxruntime.InferenceSession(str(network), providers=["CPUExecutionProvider"])
    own = {
        item.name: values[setting.bound[task.name][item.name]][item.name].astype(np.float32)
        for item in session.get_inputs()
    }
    expected = session.run(None, own)
    for result, item in zip(expected, session.get_outputs(), strict=True):
        computed = plain(found[item.name])
        near = np.abs(computed - result).max() <= 1e-4 * max(np.abs(result).max(), 1.0)
        assert np.array_equal(computed, result) if runtime == ONNXRUNTIME else near


def test_a_bundle_carries_the_model_and_the_library(executor: Path, tmp_path: Path) -> None:
    network = write_network(1, tmp_path)
    made, _ = planned(network, ONNXRUNTIME)
    manifest = compile_plan(made, tmp_path / "bundle", pipeline=network)
    (entry,) = manifest["handovers"]
    assert entry["toolchain"] == ONNXRUNTIME
    assert entry["needs"]["library"] == LIBRARY
    document = json.loads((tmp_path / "bundle" / "run.json").read_text())
    (stage,) = [stage for stage in document["stages"].values() if stage["kind"] == "engine"]
    for name in ("artefact", "library"):
        assert (tmp_path / "bundle" / stage[name]).is_file()
    done = subprocess.run(
        ["sh", str(tmp_path / "bundle" / "start.sh"), "--selftest"], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_without_the_package_plans_have_our_kernels_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = write_network(0, tmp_path)
    made, setting = planned(network, ONNXRUNTIME)
    monkeypatch.setattr(backends, "is_installed", lambda runtime: False)
    (sentence,) = backends.replaced_runtimes(setting)
    assert "planned for onnxruntime, which is not installed: our kernels run instead" in sentence
    assert backends.sort_of(made.tasks[0], setting) == "network"
    facts = probe()
    bare = build(replace(facts, versions={k: v for k, v in facts.versions.items() if k != ONNXRUNTIME}))
    assert [runtime.name for runtime in bare.engines[0].runtimes] == ["tvm"]
    with pytest.raises(UsageError, match="has no such runtime"):
        make_plan(network, bare, runtimes=(ONNXRUNTIME,))


def test_the_library_alone_does_not_take_what_has_no_onnx_operator() -> None:
    (_, *programs) = get_platform("host").engines[0].runtimes
    missing: set[Any] = set()
    for name in ("pointpillars.pfn", "pointpillars.scatter", "pointpillars.backbone"):
        network = get_model(name).network
        assert network is not None
        missing |= set(without_operator(network()))
    assert all(missing <= set(runtime.without) for runtime in programs)


@pytest.mark.parametrize("seed", (0, 3, 4, 5))  # images: networks with convolutions have a form in int8
def test_a_float_network_asked_for_in_int8_has_its_values_rounded(seed: int, tmp_path: Path) -> None:
    import onnxruntime

    network = write_network(seed, tmp_path)
    (stage,) = settled(get_pipeline(str(network)), ("int8",)).stages
    model, graph = network_of(stage)
    weights, _ = weights_for(model, graph, None)
    scales = calibrate(graph, weights, seeded_samples(graph))
    document, folder = model_folder(stage, get_platform("host").engines[0], "int8", None, scales)
    (entry,) = document["inputs"]
    given = np.random.default_rng(seed).normal(size=entry["shape"]).astype(np.float32)
    kinds = {node.op_type for node in onnx_nodes(folder / "model.onnx")}
    assert {"QuantizeLinear", "DequantizeLinear"} <= kinds
    rounded, exact = (
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        for path in (folder / "model.onnx", network)
    )
    pairs = zip(
        rounded.run(None, {entry["name"]: given}), exact.run(None, {exact.get_inputs()[0].name: given}), strict=True
    )
    assert all(0 < np.abs(a - b).max() < 0.15 * np.abs(b).max() for a, b in pairs)


def test_a_file_that_states_int8_is_handed_over_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "stated.onnx"
    quantised(path, 2, Style("qdq", signed=False, asymmetric=True, by_channel=True, odd_weights=False))
    (stage,) = settled(get_pipeline(str(path))).stages
    _, folder = model_folder(stage, get_platform("host").engines[0], "int8", None, None)
    assert {n.op_type for n in onnx_nodes(folder / "model.onnx")} == {n.op_type for n in onnx_nodes(path)}


def onnx_nodes(path: Path) -> Any:
    import onnx

    return onnx.load(str(path)).graph.node


def test_arm_boards_compute_what_our_compiler_lacks(tmp_path: Path) -> None:
    """By plan and without one, while what both compute stays ours."""
    from onnx import TensorProto, helper, numpy_helper, save

    sizes = {"w": (1, 24, 4), "r": (1, 24, 8)}
    weights = [numpy_helper.from_array(np.ones(size, np.float32), name) for name, size in sizes.items()]
    node = helper.make_node("GRU", ["x", *sizes], ["y"], hidden_size=8)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [5, 1, 4]), ("y", [5, 1, 1, 8]))]
    path = tmp_path / "gru.onnx"
    graph = helper.make_graph([node], "net", ends[:1], ends[1:], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    for board in ("rk3588", "qcs8550", "hikey960"):
        plan = make_plan(onnx_pipeline(path, 1000), board, cuts=False)
        assert plan.verdict == "feasible"
        assert {task.runtime for task in plan.tasks if task.model} == {ONNXRUNTIME}
    manifest = compile_bundle(onnx_pipeline(path, 1000), get_platform("rk3588"), BundleRequest(), tmp_path / "out")
    assert {(one["engine"], one["runtime"]) for one in manifest["handovers"]} == {
        (engine, ONNXRUNTIME) for engine in ("a55", "a760", "a761")
    }
    common = make_plan(onnx_pipeline(write_network(0, tmp_path), 1000), "rk3588", cuts=False, pins=("network=a760",))
    assert {task.runtime for task in common.tasks if task.model} == {OWN}
