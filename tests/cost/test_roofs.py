"""Worked examples of rooflines: peaks, ridges, attainable rates, and the positions of stages."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from socsched.cli import root
from socsched.cost.model import CostModel
from socsched.cost.roofs import Point, Roof, points, roofs
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.models.work import stage_work
from socsched.reporting.roofline import standalone

ORIN = get_platform("jetson-agx-orin-64gb")
SVG = "{http://www.w3.org/2000/svg}"
MAXN, LOW = ORIN.mode("MAXN"), ORIN.mode("15W")


def test_roofs_by_hand() -> None:
    found = {(roof.engines, roof.precision): roof for roof in roofs(ORIN, MAXN)}
    gpu = found[("gpu",), "fp16"]
    assert gpu.peak == 16 * 1300.5e6 * 2048 and gpu.bandwidth == 168e9
    assert gpu.reached == pytest.approx(0.33 * gpu.peak)
    assert gpu.ridge == pytest.approx(16 * 1300.5e6 * 2048 / 168e9)
    assert gpu.attainable(1) == 168e9 and gpu.attainable(1e6) == gpu.peak
    assert found[("dla0", "dla1"), "int8"].peak == 16384 * 1.6e9, "one of two equal cores"
    cores = ("cpu0", "cpu1", "cpu2")
    assert found[cores, "int8"].peak == 4 * found[cores, "fp32"].peak, "dot products of four bytes"


def test_a_mode_changes_peaks_and_memory() -> None:
    found = {(roof.engines, roof.precision): roof for roof in roofs(ORIN, LOW)}
    assert {group for group, _ in found} == {("cpu0",), ("gpu",), ("dla0", "dla1")}
    assert found[("gpu",), "fp16"].bandwidth == pytest.approx(136.5e9 * 174 / 204.8, rel=1e-3), "the memory's, not 168"
    assert roofs(ORIN, LOW, ("int8",), "gpu")[0].engines == ("gpu",)


def test_stages_lie_where_work_and_cost_put_them() -> None:
    pipeline = get_pipeline("pointpillars")
    placed = {(p.stage, p.engine, p.precision): p for p in points(pipeline, ORIN, MAXN, roofs(ORIN, MAXN), stage_work)}
    model, stage = CostModel(ORIN, MAXN, stage_work), pipeline.stage("backbone")
    cost = next(c for c in model.candidates(stage) if (c.engine, c.precision) == ("gpu", "fp16"))
    work = stage_work(stage, "fp16")
    point = placed["backbone", "gpu", "fp16"]
    assert point.intensity == pytest.approx(work.flops / cost.bytes)
    assert point.intensity >= work.flops / work.bytes, "what stays on chip is no traffic"
    assert point.predicted == pytest.approx(work.flops / (cost.time_ns * 1e-9))
    assert point.predicted < point.attainable == 16 * 1300.5e6 * 2048
    assert ("pfn", "dla0", "fp16") not in placed, "what an engine cannot run is not on its roof"
    assert ("decode", "cpu0", "fp32") in placed, "host code states its operations too"
    counted = [p for p in placed.values() if p.engine[:3] != "cpu"]  # Winograd saves products
    assert not any(p.predicted > p.attainable * 1.0001 for p in counted)


def test_the_figure(tmp_path: Path) -> None:
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    for path in (first, second):
        assert root.run(["platforms", "show", "jetson-agx-orin-64gb", "--mode", "MAXN", "--plot", str(path), "-q"]) == 0
    assert first.read_bytes() == second.read_bytes()
    drawn = ElementTree.parse(first).getroot()
    texts = {"".join(node.itertext()) for node in drawn.iter(f"{SVG}text")}
    assert {"gpu fp16", "cpu0–cpu2 each fp32", "dla0–dla1 each int8"} <= texts
    assert any(text.startswith("1 voxelise, 2 voxelise, 3 pfn") for text in texts)
    reported = {"".join(node.itertext()) for node in drawn.iter(f"{SVG}title")}
    assert any(text.startswith("backbone on gpu fp16: 21") and text.endswith("of 42.6 Top/s") for text in reported)


def test_roofs_and_stages_are_drawn_to_scale() -> None:
    """A stage on its roof lies on the line; a hundredth of the rate is twice as far below it as a tenth."""
    roof = Roof(("gpu",), "fp16", 1e12, 5e11, 1e11)
    placed = [Point(f"<{share}>", "gpu", "fp16", 100.0, 1e12, 1e12 * share) for share in (1.0, 0.1, 0.01)]
    drawn = ElementTree.fromstring(standalone([roof], placed, "a < b", ["note & note"]))
    drops = [line for line in drawn.iter(f"{SVG}line") if line.get("class") == "drop"]
    heights = [float(line.get("y1", "")) for line in drops[::2]]  # to the roof; the others lead to the number
    path = next(line for line in drawn.iter(f"{SVG}path") if "roof" in line.get("class", ""))
    peak = float(path.get("d", "").rpartition("H")[0].split()[-1])
    assert heights[0] == pytest.approx(peak, abs=0.1)
    assert heights[2] - heights[0] == pytest.approx(2 * (heights[1] - heights[0]), abs=0.1)
    assert heights[1] > heights[0]
    texts = {"".join(node.itertext()) for node in drawn.iter(f"{SVG}text")}
    assert {"a < b", "note & note", "1 <1.0>, 2 <0.1>, 3 <0.01>"} <= texts


def test_stages_that_cannot_be_drawn_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show = ["platforms", "show", "jetson-agx-orin-64gb", "-q", "--plot"]
    assert root.run([*show, str(tmp_path / "a.png")]) == 2
    assert "use FILE.svg" in capsys.readouterr().err
    assert root.run([*show, str(tmp_path / "no" / "a.svg")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert root.run([*show, str(tmp_path / "a.svg"), "--engine", "npu"]) == 2
    assert "its engines: cpu0" in capsys.readouterr().err
