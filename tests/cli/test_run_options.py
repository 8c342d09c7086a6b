"""`socsched run` with all of its options, and runs of nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from socsched.api import execution, loading
from socsched.api.options import EXECUTORS, RunOptions
from socsched.cli import root
from socsched.cli.output import Output
from socsched.cli.root import run
from socsched.cli.verbs import verb
from socsched.executor.settings import AUTO
from socsched.executor.settings import EXECUTORS as KNOWN
from socsched.models.pointpillars.scan import write_bin
from socsched.models.street import scan
from socsched.runtime.boards.local import LocalBoard
from socsched.runtime.options import Options
from socsched.trace.trace import Trace
from tests.journals import write_journal

PIPELINE = """
schema_version: "1"
name: toy
title: two stages known by their times
sensors: {clock: {kind: imu, period: 20 ms, assumed: toy}}
stages:
  first: {title: first, after: [clock], share: 1, assumed: toy, criticality: hard,
          costs: &costs [{platform: any, mode: any, engine: cpu, precision: fp32, units: 1,
                          time: {value: 1 ms, kind: assumed, note: toy}}]}
  second: {title: second, after: [first], share: 1, assumed: toy, costs: *costs}
chains: {through: {path: [clock, first, second], deadline: 200 ms, assumed: toy}}
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    (folder / "toy.yaml").write_text(PIPELINE)
    assert root.run(["plan", str(folder / "toy.yaml"), "-p", "host", "-o", str(folder / "plan.json")]) in (0, 1, 4)
    return folder / "plan.json"


def test_a_plan_of_a_file_elsewhere_says_how_it_is_found(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, made = plan.parent / "toy.yaml", tmp_path / "plan.json"
    assert root.run(["plan", str(source), "-p", "host", "-o", str(made)]) in (0, 1, 4)
    assert f"--pipeline {source}" in capsys.readouterr().err
    assert root.run(["run", str(made), "--duration", "40ms"]) == 2, "it lies elsewhere"
    monkeypatch.chdir(source.parent)
    assert root.run(["plan", source.name, "-p", "host", "-o", str(made)]) in (0, 1, 4)
    assert "--pipeline" not in capsys.readouterr().err.split("wrote")[-1]


def test_the_choices_are_the_executors_there_are() -> None:
    assert set(EXECUTORS) == set(KNOWN)


def test_a_run_accounts_for_every_frame_and_the_executor_overhead(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "faults.yaml").write_text("dropouts: [{sensor: clock, from: 100 ms, until: 200 ms}]\n")
    (tmp_path / "over.yaml").write_text("stages: {second: {policy: skip}}\n")
    command = ["run", str(plan), "--pipeline", str(plan.parent / "toy.yaml"), "--duration", "400ms", "--json"]
    command += ["--faults", str(tmp_path / "faults.yaml"), "--overload", str(tmp_path / "over.yaml")]
    command += ["--limp-home", "auto", "--realtime", "auto", "-o", str(tmp_path / "out")]
    assert root.run(command) == 1, "frames were lost"
    found = json.loads(capsys.readouterr().out)["run"]
    account = found["accounts"]["clock"]
    assert account["released"] == 20 and account["dropped"] >= 5
    assert account["released"] == account["completed"] + account["dropped"] + account["aborted"]
    assert found["dispatch_ns"]["count"] >= account["completed"] > 0
    assert found["release_jitter_ns"]["clock"]["count"] == 20
    assert not (tmp_path / "out" / "journal.jsonl").exists(), "the trace is whole, the journal no longer needed"
    assert root.run(["report", str(tmp_path / "out")]) == 0


def test_a_folder_with_a_journal_only_is_reported(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(plan.read_bytes())
    write_journal(tmp_path / "journal.jsonl", Trace("measured", 0, 0, releases={"clock": [0, 20_000_000]}))
    assert root.run(["report", str(tmp_path), "-o", str(tmp_path / "r.html")]) == 0
    assert root.run(["report", str(tmp_path), "-o", str(tmp_path / "r.json")]) == 0
    assert json.loads((tmp_path / "r.json").read_text())["chains"]["through"]["released"] == 2


def test_power_modes_are_for_boards_that_have_them(plan: Path) -> None:
    command = ["run", str(plan), "--pipeline", str(plan.parent / "toy.yaml"), "--apply-mode"]
    assert root.run(command) == 2


def test_options_of_the_command_line_reach_the_run(plan: Path, tmp_path: Path) -> None:
    made = loading.load_plan(str(plan))
    pipe = loading.pipeline_of(made, str(plan.parent / "toy.yaml"), print)
    given: list[Options] = []

    @verb("run", RunOptions)
    def command(_: Output, how: RunOptions) -> None:
        given.append(execution._settings(how, made, pipe, LocalBoard(), tmp_path))

    words = ["--executor", "sequential", "--in-flight", "3", "--steal", "--shield", "--awake", "200us"]
    words += ["--realtime", "fifo", "--hang-after", "2s"]
    command(words, standalone_mode=False)
    command([], standalone_mode=False)
    files = {"journal": tmp_path / "journal.jsonl", "frames": tmp_path / "frames.jsonl"}
    assert given == [
        Options(
            "sequential", 3, steal=True, shield=True, awake_ns=200_000, realtime="fifo", hang_ns=2 * 10**9, **files
        ),
        Options(AUTO, **files),
    ]


EMPTY = """schema_version: "1"
name: slow
title: slow
sensors:
  clock: {kind: clock, period: 100 ms, assumed: x}
stages:
  work:
    title: w
    after: [clock]
    costs: [{platform: any, mode: any, engine: cpu, precision: fp32, time: {value: 60 ms, kind: assumed, note: x}}]
    precisions: [fp32]
chains:
  c: {path: [clock, work], deadline: 100 ms, assumed: x}
"""


def test_a_run_whose_every_frame_was_aborted_fails_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline, plan = tmp_path / "slow.yaml", tmp_path / "plan.json"
    pipeline.write_text(EMPTY)
    assert run(["plan", str(pipeline), "-p", "host", "-q", "-o", str(plan)]) == 0
    assert (
        run(["run", str(plan), "--pipeline", str(pipeline), "--no-pace", "--frames", "2", "--hang-after", "1ms"]) == 1
    )
    text = capsys.readouterr().out
    assert "2 aborted" in text and "work has run for" in text and "hung after 1 ms: --hang-after" in text


@pytest.mark.parametrize("content", [b"", np.full((50, 4), np.nan, np.float32).tobytes(), bytes(121)])
def test_a_simulation_whose_every_frame_was_skipped_fails(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scan = tmp_path / "scan.bin"
    scan.write_bytes(content)
    how = ["simulate", "pointpillars-s", "-p", "jetson-agx-orin-64gb", "-m", "MAXN", "--duration", "200ms"]
    assert run([*how, "--functional", "--frames", "1", "--input", str(scan)]) == 2
    assert "no frame was computed, 1 of 1 were skipped" in capsys.readouterr().err


def test_a_scan_of_other_columns_gives_the_same_boxes_or_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], checkout: Path
) -> None:
    points = scan(7)
    ring = np.random.default_rng(1).integers(0, 64, (len(points), 1)).astype(np.float32)
    write_bin(tmp_path / "four.bin", points)
    write_bin(tmp_path / "five.bin", np.hstack([points, ring]))
    found = []
    for name in ("four", "five"):
        how = ["simulate", "pointpillars-s", "-p", "jetson-agx-orin-64gb", "-m", "MAXN", "--duration", "200ms"]
        assert run([*how, "--functional", "--frames", "1", "--input", str(tmp_path / f"{name}.bin")]) == 0
        found.append(capsys.readouterr().out.splitlines()[-1])
    assert found[0] == found[1] and "detections" in found[0]
