"""Networks on the native executor: launch lists compute what TVM's virtual machine does, and bundles need no Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_pillars

from socsched.api.deployment import compile as compile_plan
from socsched.api.planning import plan as make_plan
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.executor.frames import most_rows, write_inputs
from socsched.executor.outcome import DETECTIONS
from socsched.executor.references import write_references
from socsched.executor.settings import RunSettings, write_settings
from socsched.executor.stages import describe_stages, sensor_ports
from socsched.models.registry import bindings
from socsched.runtime.backends import Setting
from socsched.runtime.boards.local import LocalBoard
from socsched.runtime.inputs import prepare_inputs
from socsched.runtime.options import Inputs, Options
from tests.runtime.run_plans import executed

NETWORKS = ("pfn", "scatter", "backbone", "head")
TOOLS = ("sh", "uname", "dirname", "mktemp", "cp", "rm", "mkdir", "sed")


def setting_in(precision: str, folder: Path, target: dict[str, Any] | None = None) -> Setting:
    """Return the detector on this machine's CPU with its networks in a precision."""
    made = make_plan(tiny_pillars.PIPELINE, "host", runtimes=("tvm",))
    tasks = [replace(task, precision=precision if task.name in NETWORKS else "fp32") for task in made.tasks]
    platform = get_platform("host")
    if target is not None:
        platform = replace(platform, engines=tuple(replace(engine, target=target) for engine in platform.engines))
    pipeline = load_pipeline(tiny_pillars.PIPELINE)
    weights = tiny_pillars.write_weights(folder / "w.npz")
    return Setting(replace(made, tasks=tuple(tasks)), pipeline, platform, bindings(pipeline), weights)


def write_run(setting: Setting, folder: Path) -> tuple[Path, Path]:
    """Write the settings of a run, and references that Python computes with TVM's virtual machine; exact equality."""
    feeds, horizon = prepare_inputs(setting, Inputs(frames=2))
    given = write_inputs(setting.plan, feeds, sensor_ports(setting), horizon, folder)
    rooms = {name: most_rows(written.document) for name, written in given.items()}
    stages = describe_stages(setting, {name: written.types for name, written in given.items()}, rooms)
    references = write_references(setting, {name: feeds[name].frame(0) for name in given}, stages, folder, exact=True)
    needs = {stage: set(ports.values()) for stage, ports in setting.bound.items()}
    inputs = {name: written.document for name, written in given.items()}
    return write_settings(RunSettings(setting.plan, horizon, needs, stages, inputs=inputs), folder), references


def selftest(executor: Path, settings: Path, references: Path) -> subprocess.CompletedProcess[str]:
    command = [str(executor), str(settings), "--selftest", str(references)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    ("precision", "target"),
    [("fp32", None), ("fp16", None), ("int8", None), ("fp16", {"kind": "simulated"})],
)
def test_stages_compute_what_the_virtual_machine_does(
    executor: Path, precision: str, target: dict[str, Any] | None, tmp_path: Path
) -> None:
    settings, references = write_run(setting_in(precision, tmp_path, target), tmp_path)
    done = selftest(executor, settings, references)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == [
        f"{name}: passed" for name in ("voxelise", *NETWORKS, "decode")
    ]


@pytest.mark.parametrize("realtime", ["off", "fifo"])
@pytest.mark.parametrize("lanes", [1, 2])
def test_preempted_networks_compute_what_others_do(realtime: str, lanes: int, executor: Path, tmp_path: Path) -> None:
    made = make_plan(tiny_pillars.PIPELINE, "host", runtimes=("tvm",))
    wide = tuple(range(min(lanes, made.engines[0].lanes)))
    tasks = [
        # stages of a new frame are more urgent than those of the frame before it that follow them
        replace(task, lanes=wide if task.name == "backbone" else (0,), priority=number, queue=1000)
        for number, task in enumerate(made.tasks)
    ]
    one_lane = replace(made, tasks=tuple(tasks))
    pipe = load_pipeline(tiny_pillars.PIPELINE)
    how: dict[str, Any] = {
        "board": LocalBoard(),
        "weights": tiny_pillars.write_weights(tmp_path / "w.npz"),
        "frames": 40,
    }
    alone = executed(one_lane, pipe, pace="asap", alone=True, **how)
    frame_ns = sum(sorted(job.exec_ns for job in alone.jobs if job.task == task.name)[20] for task in made.tasks)
    engine = replace(made.engines[0], preemption="full", policy="fp")
    sensors = tuple(replace(sensor, period_ns=frame_ns * 2 // 3) for sensor in made.sensors)
    preemptive = replace(one_lane, engines=(engine,), sensors=sensors)
    trace = executed(preemptive, pipe, options=Options(realtime=realtime), **how)
    assert {job.status for job in trace.jobs} == {"done"}
    assert sum(job.preemptions for job in trace.jobs) > 0
    for frame in range(40):
        assert trace.details[frame]["detections"] == alone.details[frame]["detections"]


def test_a_network_that_counts_as_hanging_may_still_end(executor: Path, tmp_path: Path) -> None:
    """As after the whole process was stopped for a while: its results go where nobody reads them."""
    options = Options(hang_ns=1000)  # of any job that the monitor meets
    how: dict[str, Any] = {"board": LocalBoard(), "weights": tiny_pillars.write_weights(tmp_path / "w.npz")}
    made, pipe = make_plan(tiny_pillars.PIPELINE, "host", runtimes=("tvm",)), load_pipeline(tiny_pillars.PIPELINE)
    trace = executed(made, pipe, options=options, frames=400, pace="asap", **how)
    assert "aborted" in {job.status for job in trace.jobs}


def test_other_results_and_too_many_rows_are_found(executor: Path, tmp_path: Path) -> None:
    settings, references = write_run(setting_in("fp32", tmp_path), tmp_path)
    stored = json.loads(references.read_text())
    file = tmp_path / stored["data"]["backbone"]["file"]
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    document = json.loads(settings.read_text())
    program = json.loads(Path(document["stages"]["pfn"]["program"]).read_text())
    program["symbols"][0]["most"] = 3
    (tmp_path / "pfn.json").write_text(json.dumps(program))
    document["stages"]["pfn"]["program"] = "pfn.json"
    settings.write_text(json.dumps(document))
    done = selftest(executor, settings, references)
    assert done.returncode == 3
    failed = [line for line in done.stdout.splitlines() if "FAILED" in line]
    assert failed[0].startswith("pfn: FAILED: pfn: an input has ") and failed[0].endswith("there is room for 3")
    assert failed[1].startswith("backbone: FAILED: output 0 differs by up to ")


HOSTILE = {
    ("tensors", 0, "input"): (9, "tensors[0].input: expected a whole number from 0 to"),
    ("tensors", -1, "offset"): (1 << 35, "offset: expected a place in the results"),
    ("outputs", 0, "in"): ("memory", "expected"),
    ("launches", 0, "kernel"): ("absent", "has no kernel absent"),
    ("launches", 0, "arguments"): ([999], "launches[0].arguments[0]: expected a whole number from 0 to"),
    ("symbols", 0, "axis"): (5, "symbols: expected axes of inputs"),
}


@pytest.mark.parametrize("place", HOSTILE)
def test_hostile_programs_are_refused(executor: Path, place: Any, tmp_path: Path) -> None:
    settings, references = write_run(setting_in("fp32", tmp_path), tmp_path)
    document = json.loads(settings.read_text())
    program = json.loads(Path(document["stages"]["pfn"]["program"]).read_text())
    entry = program
    for key in place[:-1]:
        entry = entry[key]
    entry[place[-1]], expected = HOSTILE[place]
    (tmp_path / "pfn.json").write_text(json.dumps(program))
    document["stages"]["pfn"]["program"] = "pfn.json"
    settings.write_text(json.dumps(document))
    done = selftest(executor, settings, references)
    assert done.returncode in (2, 3) and expected in done.stderr


def bare_path(folder: Path) -> dict[str, str]:
    """Return an environment with the tools that start.sh needs, and no Python."""
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
    return {"PATH": str(folder)}


def test_a_bundle_with_networks_is_an_application(executor: Path, tmp_path: Path) -> None:
    made = make_plan(tiny_pillars.PIPELINE, "host", runtimes=("tvm",))
    weights = tiny_pillars.write_weights(tmp_path / "w.npz")
    bundle, results = tmp_path / "bundle", tmp_path / "results"
    compile_plan(made, bundle, pipeline=tiny_pillars.PIPELINE, weights=weights)
    bare = bare_path(tmp_path / "bin")

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", str(bundle / "start.sh"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=bare, timeout=120)

    tested = start("--selftest")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert tested.stdout.count(": passed") == 6 and tested.stdout.endswith("selftest passed\n")
    done = start("--duration", "1", "-o", str(results))
    assert done.returncode == 0, done.stderr
    first = json.loads((results / DETECTIONS).read_text().splitlines()[0])
    assert first["frame"] == 0
    assert np.array_equal(np.array(first["boxes"], np.float32), expected_boxes(bundle))


def expected_boxes(bundle: Path) -> np.ndarray[Any, Any]:
    """Return the boxes that Python found in the first frame."""
    stored = json.loads((bundle / "native" / "references.json").read_text())["data"]["decode"]
    rows = stored["frames"][0]["shapes"][0]
    return np.fromfile(bundle / "native" / stored["file"], np.float32, rows[0] * rows[1]).reshape(rows)


@pytest.mark.slow
def test_an_aarch64_bundle_passes_its_selftest(tmp_path: Path) -> None:
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None or shutil.which("aarch64-linux-gnu-g++") is None:
        pytest.skip("no aarch64 compiler or emulator")
    board = "jetson-agx-orin-64gb"
    made = make_plan(tiny_pillars.PIPELINE, board, pins=[f"{name}=cpu" for name in ("voxelise", *NETWORKS, "decode")])
    bundle = tmp_path / "bundle"
    weights = tiny_pillars.write_weights(tmp_path / "w.npz")
    compile_plan(made, bundle, pipeline=tiny_pillars.PIPELINE, weights=weights)
    command = [emulator, "-L", "/usr/aarch64-linux-gnu", str(bundle / "native" / "aarch64" / "socsched-executor")]
    command.append(str(bundle / "run.json"))
    references = str(bundle / "native" / "references.json")
    tested = subprocess.run([*command, "--selftest", references], capture_output=True, text=True, check=False)
    assert tested.returncode == 0 and tested.stdout.count(": passed") == 6, tested.stdout + tested.stderr
    subprocess.run([*command, "-o", str(tmp_path), "--horizon-ns", "1000000"], check=True, env=os.environ)
    first = json.loads((tmp_path / DETECTIONS).read_text().splitlines()[0])
    expected = expected_boxes(bundle)
    assert np.array(first["boxes"]).shape == expected.shape
    assert np.allclose(first["boxes"], expected, rtol=1e-3, atol=1e-3)
