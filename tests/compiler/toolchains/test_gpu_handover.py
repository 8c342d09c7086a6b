"""Stages for a GPU that a plan gives to TensorRT: a hand-over, and our kernels with `plan --runtime tvm`."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from socsched.api.planning import plan
from socsched.compiler.builder import network_of
from socsched.compiler.packaging import deploy
from socsched.compiler.packaging.deploy import BundleRequest, compile_bundle, placement, runtimes_by_stage
from socsched.compiler.toolchains.hand_over import hand_over, toolchain_of
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Stage
from socsched.errors import UsageError

ORIN = get_platform("jetson-agx-orin-64gb")
GPU = ORIN.engine("gpu")
HEAD = Stage("head", "head", "pointpillars.head")


def command(folder: Path) -> str:
    assert subprocess.run(["sh", "-n", str(folder / "build.sh")]).returncode == 0
    text = (folder / "build.sh").read_text()
    return text[text.index('exec "') :]


def test_a_bundle_follows_the_runtime_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = get_pipeline("pointpillars")
    made = plan("pointpillars", ORIN, "MAXN", pins=("head=gpu",), explain=False, refine=False, cuts=False)
    head = next(task for task in made.tasks if task.name == "head")
    assert (head.engine, head.runtime) == ("gpu", "tensorrt")
    request = BundleRequest(placement(made.tasks), "head", runtimes=runtimes_by_stage(made.tasks))
    manifest = compile_bundle(pipeline, ORIN, request, tmp_path)
    (document,) = manifest["handovers"]
    assert not manifest["artifacts"] and (document["toolchain"], document["version"]) == ("TensorRT", "8.6.2")
    assert "--skipInference" in command(tmp_path / document["folder"]) and "DLA" not in command(
        tmp_path / document["folder"]
    )
    asked: list[str] = []

    def compile_stage(stage: Stage, engine: object, precision: str, *_: object) -> None:
        asked.append(f"{stage.name} {precision}")
        raise KeyboardInterrupt

    monkeypatch.setattr(deploy, "compile_stage", compile_stage)
    with pytest.raises(KeyboardInterrupt):
        compile_bundle(pipeline, ORIN, replace(request, runtimes={"head": "tvm"}), tmp_path / "other")
    assert asked == [f"head {head.precision}"], "our kernels"


@pytest.mark.parametrize(("precision", "flags"), [("fp32", []), ("fp16", ["--fp16"]), ("int8", ["--int8", "--fp16"])])
def test_build_lines_and_borders_for_each_data_type(tmp_path: Path, precision: str, flags: list[str]) -> None:
    network = network_of(HEAD)[1]
    scales = dict.fromkeys((*network.inputs, *(layer.name for layer in network.layers)), 0.1)
    document = hand_over(HEAD, GPU, precision, tmp_path, scales=scales, runtime="tensorrt")
    line = command(tmp_path)
    assert [f for f in ("--int8", "--fp16") if f in line] == flags
    assert ("--calib=local-calibration.cache" in line) == (precision == "int8")
    layouts = {"fp32": ("NCHW", "NCHW"), "fp16": ("NHWC", "NCHW"), "int8": ("NCHW32c", "NCHW32c")}[precision]
    assert document["inputs"][0]["layout"] == layouts[0], "384 channels are a multiple of 8"
    assert {entry["layout"] for entry in document["outputs"]} == {layouts[1]}, "18 channels are not"
    formats = {"fp32": "fp32:chw", "fp16": "fp16:hwc8", "int8": "int8:chw32"}[precision]
    assert f"--inputIOFormats={formats}" in line
    assert json.loads((tmp_path / "handover.json").read_text()) == document


def test_from_tensorrt_11_on_the_model_carries_the_types(tmp_path: Path) -> None:
    runtimes = tuple(replace(r, version="11.4.1") if r.name == "tensorrt" else r for r in GPU.runtimes)
    hand_over(HEAD, replace(GPU, runtimes=runtimes), "fp16", tmp_path, runtime="tensorrt")
    assert "--fp16" not in command(tmp_path)
    graph = onnx.load(tmp_path / "model.onnx").graph
    assert {value.type.tensor_type.elem_type for value in graph.input} == {onnx.TensorProto.FLOAT16}


def test_the_model_is_the_stage(tmp_path: Path) -> None:
    hand_over(HEAD, GPU, "fp16", tmp_path, runtime="tensorrt")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (wanted,) = session.get_inputs()
    found = session.run(None, {wanted.name: np.zeros(wanted.shape, np.float32)})
    assert [a.shape[1] for a in found] == [18, 42, 12]


def test_a_runtime_of_no_toolchain_is_an_error() -> None:
    assert [toolchain_of(GPU, name) for name in ("", "tvm", "native", "tensorrt")] == ["", "", "", "TensorRT"]
    assert toolchain_of(ORIN.engine("dla0")) == "TensorRT"
    with pytest.raises(UsageError, match="no toolchain for the runtime 'tensorflow'"):
        toolchain_of(GPU, "tensorflow")
