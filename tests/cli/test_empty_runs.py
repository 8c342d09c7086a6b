"""Runs in which no frame came through are no success: exit codes and reasons."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from socsched.cli.root import run
from socsched.models.pointpillars.scan import write_bin

PIPELINE = """schema_version: "1"
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
    pipeline.write_text(PIPELINE)
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
    from socsched.models.street import scan

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
