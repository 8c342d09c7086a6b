"""Stages on a DLA through the executor, on a Jetson made of recorded files and a TensorRT that replays a profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_board import Nvpmodel, orin, tegrastats
from fake_device import FakeDevice
from fake_dla import replaying
from run_plans import workers

from socsched.compiler.builder import compile_stage
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.errors import MachineError, UsageError
from socsched.models.work import stage_work
from socsched.planning.plan import Plan, Transition
from socsched.planning.search import make_plan
from socsched.runtime.backends import tensorrt_dla
from socsched.runtime.backends.dla import TensorrtDlaBackend
from socsched.runtime.backends.tvm_cuda import TvmCudaBackend
from socsched.runtime.boards.jetson import JetsonBoard
from socsched.runtime.executor import execute
from socsched.runtime.functional import as_simulated
from socsched.runtime.options import Options

FRAMES, TOOK_MS = 4, 3.0
_PLANNED: list[Plan] = []
NAMES = ("camera_input", "camera_output")


@pytest.fixture(scope="module")
def pipe(checkout: Path) -> Pipeline:
    """Return the camera detector at a size a test can compute."""
    found = load_pipeline(checkout / "pipelines" / "camera-detection.yaml")
    small: dict[str, Any] = {"input_height": 64, "input_width": 96}
    stages = []
    for stage in found.stages:
        precisions = ("fp32", "fp16") if stage.name == "detect" else ("fp32",)
        stages.append(replace(stage, params={**stage.params, **small}, precisions=precisions))
    return replace(found, stages=tuple(stages))


def on_dla(pipe: Pipeline, converter: str = "cpu0", core: int = 1, precision: str = "fp16") -> Plan:
    """Return a plan for an Orin with the network on a DLA core and conversions before and behind it."""
    if not _PLANNED:
        _PLANNED.append(make_plan(pipe, get_platform("jetson-agx-orin-64gb"), work=stage_work))
    made = _PLANNED[0]
    tasks = {t.name: t for t in made.tasks if t.kind == "stage"}
    detect = replace(
        tasks["detect"], engine=f"dla{core}", lanes=(0,), precision=precision, after=("preprocess>detect",)
    )
    front = replace(tasks["preprocess"], engine="cpu0", lanes=(0,))
    into = replace(front, name="preprocess>detect", kind="conversion", model=None, engine=converter, lanes=(0,),
                   after=("preprocess",))  # fmt: skip
    out = replace(into, name="detect>decode", after=("detect",))
    decode = replace(tasks["decode"], engine="cpu0", lanes=(1,), after=("detect>decode",))
    moves = (
        Transition("preprocess", "detect", 0, "NCHW", "NCHW16c", "fp32", "fp16", converter, into.name, 0),
        Transition("detect", "decode", 0, "NCHW16c", "NCHW", "fp16", "fp32", converter, out.name, 0),
    )
    return replace(made, tasks=(front, into, detect, out, decode), transitions=moves)


def jetson(root: Path) -> JetsonBoard:
    from fake_board import JETPACK7

    return JetsonBoard(root=orin(root), command=Nvpmodel("MAXN"), tegrastats=tegrastats(JETPACK7))


@pytest.fixture(scope="module")
def reference(pipe: Pipeline) -> dict[int, Any]:
    """Return the detections frame by frame, with every engine simulated on this machine."""
    made = on_dla(pipe)
    platform = as_simulated(get_platform("jetson-agx-orin-64gb"))
    trace = execute(made, pipe, platform=platform, frames=FRAMES, pace="asap", alone=True)
    return {frame: found["image_detections"] for frame, found in trace.details.items()}


@pytest.mark.parametrize(("converter", "in_flight"), [("cpu0", 1), ("gpu", 1), ("gpu", 3)])
@pytest.mark.slow
def test_a_board_finds_with_its_dla_what_is_found_here(
    pipe: Pipeline,
    reference: dict[int, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    converter: str,
    in_flight: int,
) -> None:
    device = FakeDevice(seed=in_flight)
    engine = replace(get_platform("jetson-agx-orin-64gb").engine("dla1"), target={"kind": "simulated"})
    artifact = compile_stage(pipe.stage("detect"), engine, "fp16", threads=1)
    monkeypatch.setattr(tensorrt_dla, "cache_dir", lambda: tmp_path / "engines")
    module = replaying(device, artifact, NAMES, TOOK_MS)
    backends: Any = {"dla": TensorrtDlaBackend(device, module), "cuda": TvmCudaBackend(device)}
    trace = execute(on_dla(pipe, converter), pipe, board=jetson(tmp_path), frames=FRAMES, pace="asap",
                    options=Options(in_flight=in_flight), backends=backends)  # fmt: skip
    assert {frame: found["image_detections"] for frame, found in trace.details.items()} == reference
    assert any(reference.values()), "something is found"
    jobs = [job for job in trace.jobs if job.task == "detect"]
    assert len(jobs) == FRAMES and all(job.status == "done" and job.exec_ns >= TOOK_MS * 1e6 for job in jobs)
    assert {piece.engine for piece in trace.slices if piece.name == "detect"} == {"dla1"}
    built = dict(module.log)
    assert built["built"] == ("DLA", 1) and ("loaded", 1) in module.log and ("flag", "DIRECT_IO") in module.log
    assert {(b.dtype, b.allowed_formats) for b in module.borders} == {("float16", 1 << 4)}
    assert device.done.count("dla") == FRAMES + max(2, in_flight)
    assert not workers()


def test_what_a_dla_is_not_given_is_named(pipe: Pipeline, tmp_path: Path) -> None:
    device = FakeDevice()
    engine = replace(get_platform("jetson-agx-orin-64gb").engine("dla1"), target={"kind": "simulated"})
    artifact = compile_stage(pipe.stage("detect"), engine, "fp16", threads=1)

    def run(made: Plan, module: Any) -> None:
        execute(made, pipe, board=jetson(tmp_path), frames=1, backends={"dla": TensorrtDlaBackend(device, module)})

    with pytest.raises(UsageError, match="'detect' is planned in int8 on dla1"):
        run(on_dla(pipe, precision="int8"), replaying(device, artifact, NAMES, 0))
    with pytest.raises(MachineError, match="layers that a DLA cannot run: resize"):
        run(on_dla(pipe), replaying(device, artifact, NAMES, 0, strays=("resize",), version="8.5.2"))
    with pytest.raises(MachineError, match="tensors differ from the stage's: wrong"):
        run(on_dla(pipe), replaying(device, artifact, (*NAMES, "wrong"), 0))


def test_without_tensorrt_a_dla_stage_says_what_is_missing(pipe: Pipeline, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="TensorRT is not installed"):
        execute(on_dla(pipe), pipe, board=jetson(tmp_path), frames=1)
