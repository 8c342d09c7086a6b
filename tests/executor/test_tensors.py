"""Stages that compute, on the native executor and stage by stage in Python: the same detections, bit for bit."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from socsched.api.execution import run, scans_or_street
from socsched.api.loading import pipeline_of
from socsched.api.planning import plan as make_plan
from socsched.compiler.layouts import NUMPY_DTYPES, convert, physical_shape
from socsched.compiler.native.host_stages import host_call
from socsched.descriptor.host import detect
from socsched.descriptor.pipeline import Pipeline, Sensor, Stage
from socsched.errors import MachineError
from socsched.executor import frames
from socsched.executor.build import SOURCES, cxx_compiler
from socsched.executor.settings import AUTO, NATIVE, RunSettings, write_settings
from socsched.faults.model import Failure, Faults
from socsched.graph.operators import TensorType
from socsched.models.registry import bindings, get_model
from socsched.planning.plan import Plan, Transition
from socsched.runtime.backends import Setting
from socsched.runtime.boards.local import LocalBoard
from socsched.runtime.functional import details_of
from socsched.runtime.inputs import prepare_inputs
from socsched.runtime.options import Inputs, Options
from socsched.trace.trace import Trace
from tests.runtime.run_plans import HERE, MS, executed, pipeline, plan, task

pytestmark = pytest.mark.usefixtures("executor")
SMALL: Mapping[str, Any] = {"input_height": 64, "input_width": 96}
NARROW = {"range": [0.0, -10.24, -3.0, 20.48, 10.24, 1.0]}


def with_models(made: Plan, sensor: str, **models: tuple[str, Mapping[str, Any]]) -> Pipeline:
    """Return the pipeline of a plan with models for its stages; its first sensor is of the given kind."""
    plain = pipeline(made)
    stages = [
        Stage(s.name, s.name, models[s.name][0], s.after, s.period_ns, params=dict(models[s.name][1]), reads=s.reads)
        for s in plain.stages
        if s.name in models
    ]
    return replace(plain, sensors=(Sensor("s", sensor, made.sensors[0].period_ns),), stages=tuple(stages))


def natively(made: Plan, pipe: Pipeline, **changes: Any) -> Trace:
    """Run on the native executor."""
    return executed(made, pipe, **changes)


def computed(made: Plan, pipe: Pipeline, **changes: Any) -> dict[int, Any]:
    """Return the results of frames as this process computes them, stage after stage."""
    setting = Setting(made, pipe, HERE, bindings(pipe), None)
    feeds, horizon = prepare_inputs(setting, Inputs(changes.get("scans"), frames=changes.get("frames")))
    return details_of(setting, feeds, horizon)


def both(made: Plan, pipe: Pipeline, **changes: Any) -> tuple[dict[int, Any], dict[int, Any]]:
    """Return the results of frames on both executors."""
    return natively(made, pipe, **changes).details, computed(made, pipe, **changes)


DECODERS: Mapping[str, Mapping[str, Any]] = {
    "pointpillars.decode": NARROW,
    "centerpoint.decode": {"range": [-10.24, -10.24, -4.0, 10.24, 10.24, 6.0]},
    "camera.decode": SMALL,
}


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_find_what_they_find_in_python(name: str, tmp_path: Path) -> None:
    model = get_model(name, DECODERS[name])
    made = plan(task("decode", "s"), sensors={"s": 50 * MS})
    generator = np.random.default_rng(1)
    maps = {p.name: generator.normal(-1, 2, (3, *p.type.shape[1:])).astype(np.float32) for p in model.inputs}
    np.savez(tmp_path / "maps.npz", **maps)
    pipe = with_models(made, "camera", decode=(name, DECODERS[name]))
    mine, theirs = both(made, pipe, scans=[tmp_path / "maps.npz"])
    (port,) = {name for part in theirs.values() for name in part if name.endswith("detections")}
    assert [len(theirs[frame][port]) > 3 for frame in range(3)] == [True] * 3
    assert mine == theirs


def camera(conversion: bool = False) -> tuple[Plan, Pipeline]:
    """Return preprocessing, a network and a decoder on two lanes; optionally with a planned conversion."""
    slow = {"period_ns": 100 * MS, "deadline_ns": 100 * MS, "wcet_ns": 100 * MS}
    convert = "convert" if conversion else "preprocess"
    tasks = [
        task("preprocess", "s", **slow),
        task("detect", convert, lanes=(1,), **slow),
        task("decode", "detect", **slow),
    ]
    if conversion:
        tasks.insert(1, task(convert, "preprocess", kind="conversion", **slow))
    made = plan(*tasks, sensors={"s": 100 * MS})
    if conversion:
        move = Transition("preprocess", "detect", 0, "NCHW", "NCHW16c+1", "fp32", "fp32", "cpu", convert, MS)
        made = replace(made, transitions=(move,))
    models = {
        "preprocess": ("camera.preprocess", {**SMALL, "height": 90, "width": 160, "format": "nv12"}),
        "detect": ("camera.detector", SMALL),
        "decode": ("camera.decode", {**SMALL, "score": 0.01}),
    }
    pipe = with_models(made, "camera", **models)
    if conversion:
        stages = tuple(replace(s, after=("preprocess",)) if s.name == "detect" else s for s in pipe.stages)
        pipe = replace(pipe, stages=stages)
    return made, pipe


@pytest.mark.parametrize("conversion", [False, True])
def test_a_camera_chain_finds_what_it_finds_in_python(conversion: bool) -> None:
    made, pipe = camera(conversion)
    mine, theirs = both(made, pipe, frames=3)
    assert theirs[0]["image_detections"] and mine == theirs


def test_a_stage_reads_the_latest_complete_frame(tmp_path: Path) -> None:
    """All frames are alike, so that a sampled decoder finds the same in each."""
    model = get_model("camera.decode", SMALL)
    maps = {p.name: np.random.default_rng(2).normal(0, 2, p.type.shape).astype(np.float32) for p in model.inputs}
    np.savez(tmp_path / "maps.npz", **maps)
    made = plan(task("decode", reads=("s",), period_ns=20 * MS), sensors={"s": 20 * MS})
    pipe = with_models(made, "camera", decode=("camera.decode", SMALL))
    trace = natively(made, pipe, scans=[tmp_path / "maps.npz"], frames=10)
    found = {json.dumps(part["image_detections"]) for part in trace.details.values() if "image_detections" in part}
    assert len(found) == 1 and len([job for job in trace.jobs if job.status == "done"]) >= 9


def test_a_limp_home_plan_computes_with_stages_of_its_own(tmp_path: Path) -> None:
    made, pipe = camera()
    spare = replace(made, tasks=tuple(replace(t, lanes=(t.lanes[0] + 2,)) for t in made.tasks))
    faults = Faults(failures=(Failure("cpu", 150 * MS, "fail", (1,)),))
    trace = natively(made, pipe, frames=6, options=Options(faults=faults, limp_home=(spare,)))
    theirs = computed(made, pipe, frames=6)
    done = {frame for frame, part in trace.details.items() if "image_detections" in part}
    assert len(done) >= 4 and all(trace.details[frame] == theirs[frame] for frame in done if frame in theirs)
    assert {2, 3} <= {lane for piece in trace.slices for lane in piece.lanes}


def test_a_broken_file_is_a_lost_frame_and_results_go_to_a_file(tmp_path: Path) -> None:
    model = get_model("camera.decode", SMALL)
    shape = (3, *model.inputs[0].type.shape[1:])
    maps = np.random.default_rng(3).normal(0, 2, shape).astype(np.float32)
    maps[1, 0, 0, 0] = np.nan
    np.savez(tmp_path / "maps.npz", camera_output=maps)
    made = plan(task("decode", "s"), sensors={"s": 50 * MS})
    pipe = with_models(made, "camera", decode=("camera.decode", SMALL))
    file, journal = tmp_path / "out" / "frames.jsonl", tmp_path / "out" / "journal.jsonl"
    given = {"scans": [tmp_path / "maps.npz"], "frames": 3}
    trace = natively(made, pipe, options=Options(frames=file, journal=journal), **given)
    theirs = computed(made, pipe, **given)
    assert [json.loads(line) for line in file.read_text().splitlines()] == [theirs[n] for n in range(3)]
    lost = [(note.kind, note.subject) for note in trace.instants if note.frame == 1]
    assert lost == [("input", "s"), ("drop", "s")] and "NaN" in theirs[1]["problem"]
    assert sorted(p.name for p in file.parent.iterdir()) == ["frames.jsonl", "journal.jsonl", "plan.json"]


@pytest.mark.parametrize("pace", ["rate", "asap"])
def test_more_frames_than_memory_allows_are_read_during_the_run(pace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, pipe = camera()
    whole = natively(made, pipe, frames=20, pace=pace, in_flight=3)
    monkeypatch.setattr(frames, "MOST_BYTES", 1000)
    fed = natively(made, pipe, frames=20, pace=pace, in_flight=3)
    assert fed.details == whole.details and len(fed.details) == 20
    assert len(fed.releases["s"]) == 20


@pytest.mark.parametrize("pace", ["rate", "asap"])
def test_a_broken_file_among_those_that_are_fed_is_a_lost_frame(
    pace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = get_model("camera.decode", SMALL)
    maps = np.random.default_rng(3).normal(0, 2, (5, *model.inputs[0].type.shape[1:])).astype(np.float32)
    maps[1, 0, 0, 0] = np.nan
    np.savez(tmp_path / "maps.npz", camera_output=maps)
    monkeypatch.setattr(frames, "MOST_BYTES", 1000)
    made = plan(task("decode", "s"), sensors={"s": 50 * MS})
    pipe = with_models(made, "camera", decode=("camera.decode", SMALL))
    trace = natively(made, pipe, scans=[tmp_path / "maps.npz"], pace=pace)
    assert trace.details == computed(made, pipe, scans=[tmp_path / "maps.npz"])
    assert [(note.kind, note.frame) for note in trace.instants] == [("input", 1), ("drop", 1)]


HOSTILE: Mapping[str, tuple[str, Any, int, str]] = {
    "params": ("params", "00", 2, "decode_image_boxes: expected params of"),
    "digits": ("params", "zz", 2, "params: expected hexadecimal digits"),
    "function": ("function", "nothing", 2, "no host stage is called nothing"),
    "inputs": ("inputs", [], 2, "expected all of its inputs and outputs"),
    "outputs": ("outputs", [{"dtype": "fp32", "layout": "", "shape": [1, 1]}] * 3, 2, "outputs of its params' size"),
    "dtype": ("outputs", [{"dtype": "fp99", "layout": "", "shape": [1]}], 2, "dtype: expected one of fp32"),
    "layout": ("outputs", [{"dtype": "fp32", "layout": "N16c", "shape": [1]}], 2, "layout: expected NCHW"),
    "huge": ("outputs", [{"dtype": "fp32", "layout": "", "shape": [1 << 30, 1 << 30]}], 2, "at most 2^31 elements"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_stages_are_refused(executor: Path, case: str, tmp_path: Path) -> None:
    name, value, code, message = HOSTILE[case]
    model = get_model("camera.decode", SMALL)
    call = host_call(model, [port.type for port in model.inputs])
    assert call is not None

    def tensor(kind: TensorType) -> dict[str, Any]:
        return {"dtype": kind.dtype, "layout": kind.layout, "shape": list(kind.shape)}

    stage = {
        "kind": "host",
        "function": call.function,
        "params": bytes(call.params).hex(),
        "inputs": [{"from": "s", "port": 0, **tensor(port.type)} for port in model.inputs],
        "outputs": [tensor(port.type) for port in model.outputs],
    }
    settings = RunSettings(
        plan(task("decode", "s"), sensors={"s": 10 * MS}),
        20 * MS,
        {"decode": {"s"}},
        {"decode": {**stage, name: value}},
    )
    file = write_settings(settings, tmp_path)
    done = subprocess.run([executor, file, "-o", tmp_path], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == code and message in done.stderr


def test_the_automatic_choice_is_this_executor_and_it_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(task("only", "s"), sensors={"s": 10 * MS})
    given: dict[str, Any] = {"pipeline": pipeline(made), "frames": 2, "board": LocalBoard(HERE)}
    for pace in (True, False):
        done = run(made, pace=pace, executor=AUTO, **given)
        assert done.trace is not None
        assert done.figures["run"]["executor"] == NATIVE and len(done.trace.jobs) == 2
    monkeypatch.setattr("socsched.executor.build.find_executor", lambda: None)
    with pytest.raises(MachineError, match=r"needs a C\+\+ compiler") as caught:
        run(made, **given)
    assert "build-essential" in caught.value.hint and caught.value.exit_code == 3


def test_a_network_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made, pipe = camera()
    program = {"format": "socsched-calls", "version": 1, "code": "missing.so", "weights": "missing.bin"}
    program |= dict.fromkeys(("memory", "constants", "results"), 0)
    program |= {name: [] for name in ("symbols", "inputs", "outputs", "tensors", "launches")}
    (tmp_path / "program.json").write_text(json.dumps(program))
    monkeypatch.setattr("socsched.executor.stages.stored_cpu_program", lambda *_: tmp_path / "program.json")
    with pytest.raises(MachineError, match=r"missing\.so: cannot be loaded"):
        natively(made, pipe, frames=1)


LAYOUTS = ("NCHW", "NHWC", "NCHW4c", "NCHW16c+1", "NHWC+2", "NCHW+1")


def test_conversions_equal_those_in_python(tmp_path: Path) -> None:
    compiler, program = cxx_compiler(), tmp_path / "check"
    assert compiler is not None
    code = [str(Path(__file__).with_name("tensor_check.cpp")), str(SOURCES / "tensor.cpp")]
    subprocess.run([compiler, "-std=c++17", "-O1", f"-I{SOURCES}", *code, "-o", program], check=True)
    generator = np.random.default_rng(4)
    with np.errstate(over="ignore"):
        values = (generator.normal(size=2 * 7 * 5 * 3) * 10.0 ** generator.integers(-9, 6, 210)).astype(np.float32)
    values[:4] = (np.inf, -np.inf, 65519.996, 65520.0)
    pairs = [("fp32", "fp16"), ("fp16", "fp32"), ("fp32", "fp32"), ("int8", "int8"), ("int64", "int64")]
    for number, (left, right) in enumerate((a, b) for a in LAYOUTS for b in LAYOUTS):
        source, target = pairs[number % len(pairs)]
        shape = (2, 7, 5, 3)
        plain = TensorType(shape, source, "NCHW")
        with np.errstate(over="ignore", invalid="ignore"):
            given = values.reshape(shape).astype(NUMPY_DTYPES[source])
            kind, wanted = TensorType(shape, source, left), TensorType(shape, target, right)
            array = np.ascontiguousarray(convert(given, plain, kind))
            expected = np.ascontiguousarray(convert(array, kind, wanted))
        command = [program, source, left, target, right, *map(str, shape)]
        done = subprocess.run(command, input=array.tobytes(), capture_output=True, check=True)
        assert expected.shape == physical_shape(wanted) and done.stdout == expected.tobytes(), (kind, wanted)


@pytest.mark.slow
def test_pointpillars_finds_in_stored_scans_what_it_finds_in_python(tmp_path: Path) -> None:
    scans = scans_or_street(None, tmp_path, 4, 5)
    scans[2].write_bytes(b"no scan")
    made = make_plan("pointpillars-s", "host")
    tasks = tuple(replace(t, period_ns=t.period_ns * 10, deadline_ns=t.deadline_ns * 10) for t in made.tasks)
    sensors = tuple(replace(s, period_ns=s.period_ns * 10) for s in made.sensors)
    made = replace(made, tasks=tasks, sensors=sensors)  # no frame is dropped, however busy the machine is
    done = run(made, inputs=scans)
    assert done.trace is not None
    pipeline = pipeline_of(made, None, print)
    setting = Setting(made, pipeline, detect(), bindings(pipeline), None)
    mine, theirs = done.trace.details, details_of(setting, *prepare_inputs(setting, Inputs(scans)))
    assert mine == theirs and [len(theirs[n].get("detections", ())) > 3 for n in range(4)] == [True, True, False, True]
