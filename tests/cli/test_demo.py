"""The demo and the verbs that run on this machine, end to end with the real compiler."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from recorded import Recorded

from socsched.cli.demo import FULL, PIPELINE, fitting
from socsched.cli.root import run
from socsched.models.pointpillars import network
from socsched.models.pointpillars.boxes import footprints, iou
from socsched.models.weights import draw_weights


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a demo of three frames."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    assert run(["demo", "-o", str(folder), "--frames", "3", "-q"]) == 0
    return folder


def test_the_demo_leaves_everything_it_promises(demo: Path) -> None:
    for name in ("report.html", "birdseye.png", "trace.pftrace", "run.pftrace", "scans/000002.bin"):
        assert (demo / name).stat().st_size > 1000
    for part, kind in (("simulated", "simulated"), ("measured", "measured")):
        result = json.loads((demo / part / "result.json").read_text())
        assert result["kind"] == kind
        assert (demo / part / "plan.json").is_file()


def test_every_stage_was_measured(demo: Path) -> None:
    result = json.loads((demo / "measured" / "result.json").read_text())
    plan = json.loads((demo / "measured" / "plan.json").read_text())
    assert {stage["name"] for stage in plan["stages"]} == set(result["stages"])
    done = [figures["jobs"] for figures in result["stages"].values()]
    assert max(done) >= 1
    assert result["chains"]["lidar-detection"]["released"] == 3


def test_the_report_separates_simulated_from_measured_and_explains_the_boxes(demo: Path) -> None:
    page = (demo / "report.html").read_text()
    assert len(page.encode()) < 1_000_000
    assert "no Jetson was involved" in page
    assert "trained on synthetic scans" in page and "seeded random" not in page
    assert "Predicted against measured" in page
    assert "data:image/png;base64," in page


def test_the_perfetto_files_parse(demo: Path) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    for name in ("trace.pftrace", "run.pftrace"):
        parsed = Trace()
        parsed.ParseFromString(gzip.decompress((demo / name).read_bytes()))
        assert any(packet.HasField("track_event") for packet in parsed.packet)


def test_the_plan_of_a_demo_runs_again_on_its_scans(demo: Path, tmp_path: Path) -> None:
    out = tmp_path / "again"
    plan, scans = str(demo / "measured" / "plan.json"), str(demo / "scans")
    assert run(["run", plan, "--input", scans, "--no-pace", "-q", "-o", str(out)]) in (0, 1)
    found = [json.loads(line) for line in (out / "frames.jsonl").read_text().splitlines()]
    assert [frame["input"] for frame in found] == ["000000.bin", "000001.bin", "000002.bin"]


def test_a_damaged_scan_is_skipped_and_the_run_goes_on(demo: Path, tmp_path: Path) -> None:
    scans = tmp_path / "scans"
    scans.mkdir()
    for name in ("000000.bin", "000001.bin", "000002.bin"):
        (scans / name).write_bytes((demo / "scans" / name).read_bytes())
    (scans / "000001.bin").write_bytes(b"\0" * 17)
    plan = str(demo / "measured" / "plan.json")
    assert run(["run", plan, "--input", str(scans), "--no-pace", "-q", "-o", str(tmp_path / "out")]) == 1
    chain = json.loads((tmp_path / "out" / "result.json").read_text())["chains"]["lidar-detection"]
    assert (chain["released"], chain["completed"], chain["dropped"]) == (3, 2, 1)


def test_profile_measures_what_plan_then_uses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "profile.json"
    assert run(["profile", "pointpillars-s", "-p", "host", "--repeat", "2", "-q", "-o", str(file)]) == 0
    # a loaded machine may measure times that meet no deadline, or that are judged by neither analysis nor simulation
    assert run(["plan", "pointpillars-s", "-p", "host", "--profile", str(file), "--json"]) in (0, 1, 4)
    plan = json.loads(capsys.readouterr().out)
    assert {stage["provenance"] for stage in plan["stages"]} == {"measured"}
    times = {(cost["stage"], cost["time_ns"]) for cost in json.loads(file.read_text())["costs"]}
    assert {(stage["name"], stage["cost_ns"]) for stage in plan["stages"]} <= times


def test_compile_writes_a_manifest(tmp_path: Path) -> None:
    assert run(["compile", "pointpillars", "-p", "host", "--stage", "pfn", "-q", "-o", str(tmp_path)]) == 0
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert [entry["stage"] for entry in manifest["artifacts"]] == ["pfn"]
    assert all((tmp_path / name).is_file() for entry in manifest["artifacts"] for name in entry["files"])


def test_weights_choose_the_network_they_fit(recorded: Recorded, tmp_path: Path) -> None:
    import numpy as np

    assert fitting(None) == PIPELINE
    assert fitting(recorded.weights) == recorded.network
    full = (network.pfn_network(), network.backbone_network(), network.head_network())
    weights = {name: array for part in full for name, array in draw_weights(part).items()}
    np.savez(tmp_path / "full.npz", **weights)
    assert fitting(tmp_path / "full.npz") == FULL


@pytest.mark.slow
def test_the_boxes_of_the_demo_are_on_the_cars(demo: Path) -> None:
    import numpy as np

    from tools.train.precision import truths_of
    from tools.train.streets import look_at, make_scene

    frames = [json.loads(line) for line in (demo / "measured" / "frames.jsonl").read_text().splitlines()]
    first = next(frame for frame in frames if frame["input"] == "000000.bin")
    boxes = np.array([found["box"] for found in first["detections"] if found["score"] > 0.3 and found["label"] == 2])
    scene = make_scene(0)
    cars = [t.box for t in truths_of(scene, look_at(scene, 0)) if t.kind == "Car" and t.level <= 1]
    assert cars and len(boxes)
    for car in cars:
        assert iou(np.repeat(footprints(car[None]), len(boxes), 0), footprints(boxes)).max() > 0.6
