"""The self-test of bundles: int8 stages of other runtimes pass, and fail where one tensor of weights is lost."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from socsched.api.planning import plan as make_plan
from socsched.compiler.builder import network_of, shipped_scales
from socsched.compiler.toolchains.hand_over import hand_over
from socsched.compiler.toolchains.onnx_runtime import installed_library
from socsched.compiler.toolchains.package import QUANTISED
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.executor.build import find_executor
from socsched.executor.frames import write_inputs
from socsched.executor.references import write_references
from socsched.executor.settings import RunSettings, write_settings
from socsched.executor.stages import describe_stages, sensor_ports
from socsched.executor.vendor_stages import describe_engine
from socsched.models.registry import bindings
from socsched.runtime.backends import Setting
from socsched.runtime.inputs import prepare_inputs
from socsched.runtime.options import Inputs

BOARD, NPU = "qcs8550", "npu"


def up_to(name: str) -> Pipeline:
    """Return the stages of pointpillars-s up to one, which runs in int8."""
    whole = get_pipeline("pointpillars-s")
    last = next(number for number, stage in enumerate(whole.stages) if stage.name == name)
    stages = [
        replace(stage, precisions=("int8",)) if stage.name == name else stage for stage in whole.stages[: last + 1]
    ]
    return replace(whole, stages=tuple(stages), chains=())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["backbone", "head"])
def test_a_lost_tensor_of_weights_fails(name: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    if (executor := find_executor()) is None:
        pytest.skip("no C++ compiler")
    pipeline, platform = up_to(name), get_platform(BOARD)
    stage = pipeline.stage(name)
    made = make_plan(pipeline, BOARD, pins=(f"{name}={NPU}",))
    (task,) = [task for task in made.tasks if task.name == name]
    assert (task.engine, task.precision) == (NPU, "int8")
    document = hand_over(
        stage, platform.engine(NPU), "int8", tmp_path, None, scales=shipped_scales(network_of(stage)[0]), runtime="qnn"
    )
    built = {**describe_engine(document, str(tmp_path)), "artefact": str(tmp_path / QUANTISED)}
    setting = Setting(made, pipeline, platform, bindings(pipeline), None, built={name: built})
    feeds, horizon = prepare_inputs(setting, Inputs(frames=1))
    given = write_inputs(made, feeds, sensor_ports(setting), horizon, tmp_path)
    stages = describe_stages(setting, {sensor: written.types for sensor, written in given.items()})
    frames = {sensor: feeds[sensor].frame(0) for sensor in given}
    references = write_references(setting, frames, stages, tmp_path)
    here = {**stages[name], "library": str(installed_library()), "options": {"threads": "1"}}
    inputs = {sensor: written.document for sensor, written in given.items()}
    settings = write_settings(
        RunSettings(made, horizon, {name: set(setting.bound[name].values())}, {name: here}, inputs=inputs), tmp_path
    )

    def tested() -> subprocess.CompletedProcess[str]:
        command = [str(executor), str(settings), "--selftest", str(references)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    whole = tested()
    assert (whole.returncode, whole.stderr) == (0, "") and f"{name}: passed" in whole.stdout, whole.stdout
    model = onnx.load(str(tmp_path / QUANTISED))
    weights = [tensor for tensor in model.graph.initializer if len(tensor.dims) == 4]
    assert len(weights) >= 3
    for tensor in weights:
        kept = tensor.SerializeToString()
        lost = np.zeros_like(onnx.numpy_helper.to_array(tensor))
        tensor.CopyFrom(onnx.numpy_helper.from_array(lost, tensor.name))
        onnx.save(model, str(tmp_path / QUANTISED))
        tensor.ParseFromString(kept)
        damaged = tested()
        assert damaged.returncode == 3 and f"{name}: FAILED" in damaged.stdout, (tensor.name, damaged.stdout)
        assert "root mean square, allowed are" in damaged.stdout
