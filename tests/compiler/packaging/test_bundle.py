"""Bundles: the output of `socsched compile` starts without Python and computes the same results as a run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from socsched.api.folders import load as load_folder
from socsched.cli.root import run
from socsched.compiler.builder import compile_stage
from socsched.compiler.layouts import convert
from socsched.compiler.loading.stages import load
from socsched.compiler.packaging.deploy import BundleRequest, compile_bundle
from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.quantize.scales import FILE, Scales, read_scales
from socsched.cost.profile import load_profile
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Pipeline, Sensor, Stage
from socsched.descriptor.platform import Engine, Platform
from socsched.errors import EXIT_MACHINE, EXIT_USAGE, MachineError, UsageError
from socsched.graph.operators import TensorType
from socsched.graph.partition import Part
from tests.onnx_sessions import exact_session

Make = Callable[..., Engine]


@pytest.fixture
def pipeline() -> Pipeline:
    """Return PointPillars' stages up to the canvas, and one that is known by its time only."""
    stages = (
        Stage("voxelise", "voxelise", "pointpillars.voxelise", after=("lidar",)),
        Stage("pfn", "pfn", "pointpillars.pfn", after=("voxelise",)),
        Stage("scatter", "scatter", "pointpillars.scatter", after=("pfn",)),
        Stage("plan", "plan", None, after=("scatter",)),
    )
    return Pipeline("demo", "demo", (Sensor("lidar", "lidar", 10**8),), stages, ())


@pytest.fixture
def board(make_engine: Make) -> Platform:
    """Return a platform of this machine's processor."""
    host = get_platform("host")
    return Platform("here", "here", "", (make_engine(),), host.dram, (), {})


def test_a_board_with_a_dla(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The head for Orin: code for the CPU, a hand-over for the DLA, and a program that names stages it cannot run."""
    folder = tmp_path / "orin"
    command = ["compile", "pointpillars", "-p", "jetson-agx-orin-64gb", "--stage", "head", "-o", str(folder)]
    assert run([*command, "--engine", "dla1", "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    (handover,) = manifest["handovers"]
    assert (handover["engine"], handover["precision"], handover["folder"]) == ("dla1", "fp16", "head/dla1-fp16")
    assert "DLA_CORE:-1" in (folder / "head" / "dla1-fp16" / "build.sh").read_text()
    assert run([*command, "--engine", "cpu0", "-q"]) == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [(a["engine"], a["machine"]) for a in manifest["artifacts"]] == [("cpu0", "aarch64")]
    assert [s["name"] for s in manifest["stages"]][:2] == ["voxelise", "pfn"]


def test_scales_let_int8_through(board: Platform, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A stage that accepts int8 best is built in fp16 for a DLA as long as its scales are unknown."""
    stages = (Stage("head", "head", "pointpillars.head", after=("lidar",), precisions=("int8", "fp16")),)
    demo = Pipeline("demo", "demo", (Sensor("lidar", "lidar", 10**8),), stages, ())
    orin = get_platform("jetson-agx-orin-64gb")
    scales = {"head": Scales(dict.fromkeys(("neck", "cls", "reg", "dir"), Scale(0.1, True)))}
    with_scales = compile_bundle(demo, orin, BundleRequest(engine="dla0", scales=scales), tmp_path / "int8")
    without = compile_bundle(demo, orin, BundleRequest(engine="dla0"), tmp_path / "fp16")
    assert [m["handovers"][0]["precision"] for m in (with_scales, without)] == ["int8", "fp16"]
    assert (tmp_path / "int8" / "head" / "dla0-int8" / "calibration.cache").is_file()
    (tmp_path / "scales.json").write_text("[]")
    command = ["compile", "pointpillars", "-p", "host", "--scales", str(tmp_path / "scales.json")]
    assert run(command) == EXIT_USAGE
    assert "not a file of scales" in capsys.readouterr().err


def test_int8_stages_as_onnx_files(tmp_path: Path) -> None:
    """ONNX Runtime computes from the bundle's file what the bundle's code computes."""
    pytest.importorskip("onnxruntime")
    stages = (Stage("head", "head", "pointpillars-s.head", after=("lidar",), precisions=("int8",)),)
    demo = Pipeline("demo", "demo", (Sensor("lidar", "lidar", 10**8),), stages, ())
    board = get_platform("host")
    engine = board.engines[0]
    manifest = compile_bundle(demo, board, BundleRequest({"head": (engine.id, "int8")}, qdq=True), tmp_path / "out")
    (entry,) = manifest["artifacts"]
    assert entry["qdq"] == f"head/{engine.id}-int8/quantised.onnx" and entry["qdq"] in manifest["files"]
    session = exact_session(tmp_path / "out" / entry["qdq"])
    (given,) = session.get_inputs()
    artifact = compile_stage(stages[0], engine, "int8")
    step = np.float32(read_scales(artifact.folder / FILE).values[given.name].step)
    array = np.random.default_rng(0).integers(0, 100, given.shape).astype(np.float32) * step  # no halves to round
    compiled = load(artifact)
    plain = TensorType(array.shape, "fp32", "NCHW")
    ours = compiled(convert(array, plain, compiled.inputs[0]))
    for wanted, made, layout in zip(session.run(None, {given.name: array}), ours, compiled.outputs, strict=True):
        found = convert(made, layout, TensorType(wanted.shape, "fp32", "NCHW"))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(UsageError, match="--qdq: no stage is compiled in int8"):
        compile_bundle(
            demo, get_platform("jetson-agx-orin-64gb"), BundleRequest(engine="dla0", qdq=True), tmp_path / "dla"
        )


def test_a_part_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compile", "pointpillars", "-p", "jetson-agx-orin-64gb", "--engine", "dla0", "-o", str(tmp_path)]
    part = ":blocks.0.3.relu"
    assert run([*command, "--stage", "backbone", "--part", part, "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    assert manifest["handovers"][0]["part"] == part
    assert manifest["handovers"][0]["folder"] == "backbone/dla0-fp16-_blocks.0.3.relu"
    assert run([*command, "--part", part]) == EXIT_USAGE
    assert "--part needs the name of its stage" in capsys.readouterr().err
    assert run([*command, "--stage", "backbone", "--part", "nose:"]) == EXIT_USAGE
    assert "has no layer 'nose'" in capsys.readouterr().err


def test_fallbacks_are_reported_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    command = ["compile", "pointpillars", "-p", "jetson-agx-orin-64gb", "--engine", "dla0", "-o", str(folder)]
    assert run(command) == EXIT_USAGE
    reported = capsys.readouterr().err
    assert "stage pfn would not run entirely on dla0" in reported.replace("'", "")
    assert (
        "stage scatter would not run entirely" in reported.replace("'", "")
        and "ONNX operators by DLA release" in reported
    )
    assert not folder.exists()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bundle of a plan for this machine."""
    home = tmp_path_factory.mktemp("plan")
    assert run(["plan", "pointpillars-s", "-p", "host", "--runtime", "tvm", "-o", str(home / "plan.json"), "-q"]) in (
        0,
        1,
    )
    assert run(["compile", str(home / "plan.json"), "-o", str(home / "bundle"), "-q"]) == 0
    return home / "bundle"


def test_a_plan_s_bundle_starts_without_python(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Engines, shares and runtimes are the plan's; what it computes is what Python computes."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    tasks = {t["name"]: t for t in json.loads((bundle / "plan.json").read_text())["tasks"]}
    for artifact in (*manifest["artifacts"], *manifest["handovers"]):
        task = tasks[artifact["stage"]]
        assert [artifact[key] for key in ("engine", "precision", "runtime")] == [
            task[key] for key in ("engine", "precision", "runtime")
        ]
    assert not list(bundle.rglob("*.py"))
    clean = {"PATH": "/usr/bin:/bin"}
    moved = tmp_path / "on the board"
    shutil.copytree(bundle, moved)

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", str(moved / "start.sh"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=clean, cwd=tmp_path)

    tested = start("--selftest")
    assert tested.returncode == 0 and tested.stdout.endswith("selftest passed\n"), tested.stderr
    done = start("--frames", "5", "-o", "results")
    assert done.returncode == 0, done.stderr
    executed = json.loads((tmp_path / "results" / "executed.json").read_text())
    assert sum(account["released"] for account in executed["accounts"].values()) >= 5
    count = "{}: {released} frames released, {completed} completed, {dropped} dropped, {aborted} aborted"
    told = [count.format(name, **account) for name, account in executed["accounts"].items()]
    assert done.stdout.splitlines() == [*told, "results are in results: socsched report results"]
    assert all(f"note: {notice}" in done.stderr for notice in executed["notices"])
    explained = (moved / "README.txt").read_text()
    assert "@" not in explained and all(f"  {name} " in explained for name in tasks)
    assert start("--profile", "costs.json", "--repeat", "3").returncode == 0
    costs = load_profile(tmp_path / "costs.json").costs
    assert {cost.stage for cost in costs} == {t["name"] for t in tasks.values() if t["kind"] == "stage"}
    assert all(len(cost.times_ns) == 3 and cost.time_ns >= cost.median_ns for cost in costs)
    assert run(["compile", str(moved / "plan.json"), "-p", "jetson-tx2", "-o", str(tmp_path / "x")]) == EXIT_USAGE
    assert "is a plan for host" in capsys.readouterr().err


def test_a_bundle_is_checked_where_it_is_made(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", str(bundle), "--check", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert {point["state"] for point in points} == {"ok"}
    assert {"digests", "voxelise", "backbone", "decode"} <= {point["what"] for point in points}
    moved = tmp_path / "moved"
    shutil.copytree(bundle, moved)
    program = next((moved / "native").glob("*/socsched-executor"))
    whole = program.read_bytes()
    for wrong, told in (
        (whole[:-1], "missing or changed: native/"),
        (whole[:18] + b"\xf3\0" + whole[20:], "is for machine 243, expected"),
        (b"", "is for no machine, expected"),
    ):
        program.write_bytes(wrong)
        assert run(["compile", "--check", str(moved)]) == EXIT_USAGE
        assert told in capsys.readouterr().err
    program.write_bytes(whole)
    code = next(moved.glob("backbone/*/stage.so"))
    code.write_bytes(code.read_bytes().replace(b"__tvm_ffi_", b"__tvm_ffi-"))
    assert run(["compile", "--check", str(moved)]) == EXIT_USAGE
    assert "has no function __tvm_ffi_" in capsys.readouterr().err
    text = (moved / "run.json").read_text()
    (moved / "run.json").write_text(text.replace("native/programs/backbone", "../../../../etc"))
    assert run(["compile", "--check", str(moved)]) == EXIT_USAGE
    assert "is no file of the bundle" in capsys.readouterr().err


def started(bundle: Path, results: Path, before: str = "", seconds: int = 10) -> subprocess.Popen[str]:
    """Start a bundle for some time, in a session of its own; `before`: what its shell does first."""
    line = f"{before} exec sh {shlex.quote(str(bundle))}/start.sh --duration {seconds} -o {shlex.quote(str(results))}"
    pipe = subprocess.PIPE
    return subprocess.Popen(["sh", "-c", line], stdout=pipe, stderr=pipe, text=True, start_new_session=True)


SMALL = """schema_version: "1"
name: small
title: one host function
sensors:
  lidar: {kind: lidar, period: 20 ms, bytes_per_frame: 32 kB}
stages:
  voxelise: {title: pillars, model: pointpillars.voxelise, after: [lidar], params: {points: 2000, pillars: 500}}
"""
KILLS, FLUSHED, AT_ONCE = 3, 1024, 4


@pytest.mark.parametrize("kills", [KILLS, pytest.param(200, marks=pytest.mark.slow)])
def test_the_accounting_survives_a_kill(kills: int, tmp_path: Path) -> None:
    """After SIGKILL at any time the journal can be read, and each of its frames is there once."""
    (tmp_path / "small.yaml").write_text(SMALL)
    bundle, file = tmp_path / "bundle", str(tmp_path / "plan.json")
    assert run(["plan", str(tmp_path / "small.yaml"), "-p", "host", "--quick", "-o", file, "-q"]) in (0, 1)
    assert run(["compile", file, "--pipeline", str(tmp_path / "small.yaml"), "-o", str(bundle), "-q"]) == 0

    def killed(number: int) -> int:
        results = tmp_path / f"results-{number}"
        process = started(bundle, results, seconds=300)
        journal = results / "journal.jsonl"
        while process.poll() is None and (not journal.exists() or journal.stat().st_size < FLUSHED):
            time.sleep(0.02)
        time.sleep(number % 10 / 20)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        _, trace, _ = load_folder(results)
        released = [job.frame for job in trace.jobs]
        assert len(set(released)) == len(released)
        assert {job.status for job in trace.jobs} <= {"done", "dropped", "aborted", "unfinished"}
        return len(released)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        seen = list(pool.map(killed, range(kills)))
    print(f"{kills} kills, {sum(seen)} jobs read back, {min(seen)} to {max(seen)} each")
    assert sum(seen)


@pytest.mark.parametrize(
    ("fault", "code", "told"),
    [
        ("full", 3, "cannot be written: File too large"),
        ("damaged", 2, "stage.so: differs from what was built"),
        ("program", 3, "the executor does not start here"),
        ("absent", 3, "no executor for"),
        ("folder", 3, "cannot be written"),
    ],
)
def test_faults_on_a_board_are_told(bundle: Path, fault: str, code: int, told: str, tmp_path: Path) -> None:
    moved, results, before = tmp_path / "moved", tmp_path / "results", ""
    shutil.copytree(bundle, moved)
    program = next((moved / "native").glob("*/socsched-executor"))
    if fault == "full":  # a limit on files, in blocks of 512 bytes, stands for a full disk
        room = (moved / "plan.json").stat().st_size // 512 + 10
        before = f"trap '' XFSZ; ulimit -f {room};"
    elif fault == "damaged":
        code_file = next(moved.glob("backbone/*/stage.so"))
        code_file.write_bytes(code_file.read_bytes()[:-1] + b"?")
    elif fault == "program":
        program.write_bytes(program.read_bytes()[:200])
    elif fault == "absent":
        program.unlink()
    else:
        results.write_text("")
    process = started(moved, results, before)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, told in error) == (code, True), error


STANDINS = {
    "nvpmodel": 'echo "nvpmodel $*" >>"$LOG"; [ "$1" = -q ] || { echo "$2" >"$BOARD/mode"; exit; }\n'
    'echo "NV Power Mode: MODE_$(cat "$BOARD/mode")"; cat "$BOARD/mode"',
    "jetson_clocks": 'echo "jetson_clocks ${1:-}" >>"$LOG"\n'
    'case "${1:-}" in --store) cp "$BOARD/clocks" "$2" ;; --restore) cp "$2" "$BOARD/clocks" ;; '
    '*) echo highest >"$BOARD/clocks" ;; esac',
    "tegrastats": 'exec sh -c "while :; do echo RAM >>$4; sleep 0.1; done"',
}


@pytest.mark.parametrize("ending", ["complete", "signal", "error"])
@pytest.mark.parametrize("tools", [tuple(STANDINS), ()])
def test_a_board_is_set_and_set_back(bundle: Path, tools: tuple[str, ...], ending: str, tmp_path: Path) -> None:
    """Mode and clocks are those of before however a run ends; with cpufreq where there is no jetson_clocks."""
    moved, state, results = tmp_path / "moved", tmp_path / "board", tmp_path / "results"
    shutil.copytree(bundle, moved)
    start = moved / "start.sh"
    governor = state / "devices" / "system" / "cpu" / "cpufreq" / "policy0" / "scaling_governor"
    governor.parent.mkdir(parents=True)
    before = {state / "mode": "7\n", state / "clocks": "lowest\n", governor: "schedutil\n"}
    for file, text in before.items():
        file.write_text(text)
    (tmp_path / "bin").mkdir()
    for name in tools:
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{STANDINS[name]}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        "LOG": str(tmp_path / "log"),
        "BOARD": str(state),
        "SYSFS": str(state),
    }
    if ending == "error":
        results.write_text("")
    command = ["sh", str(start), "--max-clocks", "--record", "--duration", "60" if ending == "signal" else "1"]
    process = subprocess.Popen(
        [*command, *(["--apply-mode"] if tools else []), "-o", str(results)],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    if ending == "signal":
        while not (results / "journal.jsonl").exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == {"complete": 0, "signal": 143, "error": 3}[ending], error
    assert {file: file.read_text() for file in before} == before
    if tools:
        calls = (tmp_path / "log").read_text().splitlines()
        assert calls == [
            *("nvpmodel -q", "nvpmodel -m 0", "nvpmodel -q", "jetson_clocks --store", "jetson_clocks "),
            *("jetson_clocks --restore", "nvpmodel -m 7"),
        ]
    if ending == "complete":
        rows = (results / "board.csv").read_text().splitlines()
        assert rows[0] == "seconds,what,value" and (results / "tegrastats.log").exists() == bool(tools)


def test_what_a_board_lacks_is_told(bundle: Path, tmp_path: Path) -> None:
    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", str(bundle / "start.sh"), *arguments, "-o", str(tmp_path / "results")]
        environment = {"PATH": "/usr/bin:/bin", "SYSFS": str(tmp_path)}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    told = start("--help")
    assert told.returncode == 0 and "--max-clocks" in told.stdout and not told.stderr
    for arguments, code, message in (
        (["--max-clocks"], 3, "neither jetson_clocks nor cpufreq"),
        (["--apply-mode"], 3, "there is no nvpmodel here"),
        (["--pace", "later"], 2, "--pace: expected rate or asap"),
        (["--frames", "many"], 2, "--frames: expected a whole number"),
        (["--nothing"], 2, "start.sh [RUN OPTIONS]"),
        (["--realtime", "soon"], 2, "expected auto, fifo or off"),
    ):
        found = start(*arguments)
        assert (found.returncode, message in found.stderr) == (code, True), found.stderr
    assert not (tmp_path / "results").exists()


def test_frames_one_after_the_other(bundle: Path, tmp_path: Path) -> None:
    """Where frames take longer than their period, as in an emulator, all of them complete."""
    options = ("--frames", "7", "--pace", "asap", "--realtime", "off")
    command = ["sh", str(bundle / "start.sh"), *options, "-o", str(tmp_path)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    document = json.loads((tmp_path / "executed.json").read_text())
    assert all(account["completed"] == account["released"] == 7 for account in document["accounts"].values())
    assert any("--pace asap" in notice for notice in document["notices"])
    assert not any("real-time" in notice for notice in document["notices"])


REMOTE = {
    "scp": 'for last; do :; done; [ "$1" != -r ] || shift\n'
    'case "$1" in board:*) cp -r "$BOARD/${1#board:}" "$2" ;; *) cp -r "$1" "$BOARD/${2#board:}" ;; esac',
    "ssh": 'shift; cd "$BOARD"; exec "$@"',
    "sudo": 'exec "$@"',
    "tee": 'mkdir -p "$BOARD${1%/*}"; exec cat >"$BOARD$1"',
    "systemctl": 'echo "systemctl $*" >>"$LOG"',
    "socsched": f'exec {sys.executable} -m socsched "$@"',
}


@pytest.mark.slow
def test_the_page_of_the_first_day(bundle: Path, tmp_path: Path) -> None:
    """Every command of the page but `build.sh`, which `tools.verify.board_root` runs, with this machine as the board.

    Exit code 1 of what judges says that something is infeasible, late or different, which it may be on a busy machine.
    """
    page = (Path(__file__).parents[3] / "docs" / "first-day-on-a-jetson.md").read_text()
    blocks = re.findall(r"```sh no-run\n(.*?)```", page, re.DOTALL)
    board, desk, tools = tmp_path / "board", tmp_path / "desk", tmp_path / "bin"
    for folder in (board, desk, tools):
        folder.mkdir()
    for name, text in {**STANDINS, **REMOTE}.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    (board / "mode").write_text("7\n")
    (board / "clocks").write_text("lowest\n")
    known = {"PATH": f"{tools}:{os.environ['PATH']}", "BOARD": str(board), "LOG": str(tmp_path / "log")}
    shorter = {"jetson-agx-orin-64gb": "host", "--duration 60": "--duration 1", "--repeat 500": "--repeat 3"}
    ran = []
    for place, block in zip((desk, board, board / "bundle", desk), blocks, strict=True):
        for text in block.splitlines():
            command = text.partition(" # ")[0].strip()
            for long, short in shorter.items():
                command = command.replace(long, short)
            if command.startswith("cd "):
                place = place / command[3:]
            elif command != "sh build.sh":
                done = subprocess.run(
                    command, shell=True, cwd=place, env={**os.environ, **known}, capture_output=True, text=True
                )
                judges = command.startswith(("socsched plan", "socsched compare", "socsched why"))
                assert done.returncode in ((0, 1) if judges else (0,)), (command, done.stdout, done.stderr)
                ran.append(command)
    assert len(ran) >= 12 and (board / "mode").read_text() == "7\n" and (board / "clocks").read_text() == "lowest\n"
    assert "[Service]" in (board / "etc" / "systemd" / "system" / "socsched.service").read_text()
    assert (desk / "results" / "board.csv").exists() and load_profile(desk / "costs.json").costs
    assert "systemctl enable --now socsched" in (tmp_path / "log").read_text()


@pytest.mark.needs("systemd")
def test_the_service_is_a_unit_of_systemd(bundle: Path, tmp_path: Path) -> None:
    moved = tmp_path / "on the board"
    shutil.copytree(bundle, moved)
    unit = subprocess.run(["sh", str(moved / "start.sh"), "--install-service"], capture_output=True, text=True)
    assert unit.returncode == 0
    (tmp_path / "socsched.service").write_text(unit.stdout)
    command = ["systemd-analyze", "verify", str(tmp_path / "socsched.service")]
    verified = subprocess.run(command, capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")


def test_a_full_disk(pipeline: Pipeline, board: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    compile_stage(Stage("pfn", "pfn", "pointpillars.pfn"), board.engines[0])
    monkeypatch.setattr("socsched.compiler.packaging.deploy.shutil.copyfile", full)
    with pytest.raises(MachineError, match="No space left on device") as caught:
        compile_bundle(pipeline, board, BundleRequest(), tmp_path / "out")
    assert caught.value.exit_code == EXIT_MACHINE


def test_a_part_needs_a_stage(pipeline: Pipeline, board: Platform, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--part needs the name of its stage"):
        compile_bundle(pipeline, board, BundleRequest(part=Part((), ("x",))), tmp_path)
