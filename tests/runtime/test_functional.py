"""Functional simulation of plans for absent boards: results are those of the engines, times those of the model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import Recorded

from socsched.cli import root
from socsched.compiler.builder import compile_stage
from socsched.compiler.layouts import convert
from socsched.compiler.loading.stages import load
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Stage
from socsched.graph.operators import TensorType

CAMERA = Stage("detect", "Camera detector", "camera.detector", params={"input_height": 64, "input_width": 96})


def frames(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "frames.jsonl").read_text().splitlines()]


def boxes(frame: dict[str, Any], least: float) -> list[tuple[int, np.ndarray[Any, Any]]]:
    return [(d["label"], np.array(d["box"])) for d in frame["detections"] if d["score"] > least]


@pytest.mark.slow
def test_a_plan_for_a_board_finds_what_this_machine_finds(
    recorded: Recorded, checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PointPillars on Orin, fp16 on its GPU, against fp32 here: every confident box is found again within 5 cm."""
    lines = (checkout / "pipelines" / f"{recorded.network}.yaml").read_text().splitlines()
    file = tmp_path / "detector.yaml"
    file.write_text("\n".join(x.replace(", int8]", "]") for x in lines if "accuracy_loss" not in x))
    given = ["--input", str(next(scan for scan in recorded.scans if scan.name == "000002.bin"))]
    given += ["--weights", str(recorded.weights)]
    assert root.run(["plan", str(file), "-p", "host", "-o", str(tmp_path / "host.json")]) in (0, 1)
    here = ["--pipeline", str(file), "--no-pace", "-o", str(tmp_path / "host")]
    root.run(["run", str(tmp_path / "host.json"), *given, *here])
    board = ["simulate", str(file), "-p", "jetson-agx-orin-64gb", "--duration", "1s", "--functional", *given]
    assert root.run([*board, "-o", str(tmp_path / "board")]) == 0
    assert "Computed on this machine as by the board's engines" in capsys.readouterr().out
    wanted, found = boxes(frames(tmp_path / "host")[0], 0.3), boxes(frames(tmp_path / "board")[0], 0.2)
    assert wanted
    for label, box in wanted:
        near = [np.abs(other[:3] - box[:3]).max() for same, other in found if same == label]
        assert min(near, default=9.0) < 0.05
    result = json.loads((tmp_path / "board" / "result.json").read_text())
    assert result["kind"] == "simulated", "times stay the model's"


@pytest.mark.slow
def test_tensors_lie_as_the_simulated_engine_has_them() -> None:
    """A DLA's border is in its own channel blocks, and the numbers are those of this machine, in half precision."""
    orin, host = get_platform("jetson-agx-orin-64gb"), get_platform("host").engines[0]
    dla = replace(orin.engine("dla0"), target={"kind": "simulated"})
    there, here = (load(compile_stage(CAMERA, e, p, threads=1)) for e, p in ((dla, "fp16"), (host, "fp32")))
    assert {t.layout for t in (*there.inputs, *there.outputs) if len(t.shape) == 4} == {"NCHW16c"}
    image = np.random.default_rng(0).normal(size=there.inputs[0].shape).astype(np.float32)
    plain = TensorType(image.shape, "fp32", "NCHW")
    results = [stage(convert(image, plain, stage.inputs[0])) for stage in (there, here)]
    for (left, kind), (right, other) in zip(
        zip(results[0], there.outputs, strict=True), zip(results[1], here.outputs, strict=True), strict=True
    ):
        same = replace(other, layout="NCHW", dtype="fp32")
        expected = convert(right, other, same)
        found = convert(left, kind, same)
        assert np.abs(found - expected).max() <= 2e-2 * np.abs(expected).max()


@pytest.mark.slow
def test_computing_needs_something_to_compute_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulate", "pointpillars", "-p", "jetson-agx-orin-64gb", "--duration", "100ms", "--functional"]
    assert root.run([*command, "--input", str(tmp_path / "none.bin")]) == 2
    assert "none.bin" in capsys.readouterr().err
