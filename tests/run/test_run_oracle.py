"""The whole line against a plain fp32 reference: plan for this machine, compile, run, compare every tensor between."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from socsched.compile.analyze import stage_work
from socsched.descriptor import host
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.plan.planner import make_plan
from socsched.run.collect import write_frames
from socsched.run.executor import execute
from socsched.trace.trace import Trace

SCANS = ("000000", "000001", "000002", "000003", "000004")
TENSORS = ("pfn", "bev", "block1", "block2", "block3", "neck", "cls", "reg", "dir")
STATISTICS = ("mean", "std", "min", "max", "l2")


@pytest.fixture(scope="module")
def tapped(checkout: Path) -> Pipeline:
    """Return PointPillars with the backbone's block outputs as additional outputs."""
    pipeline = load_pipeline(checkout / "pipelines" / "pointpillars.yaml")
    stages = tuple(
        replace(stage, params={**stage.params, "taps": True}) if stage.name == "backbone" else stage
        for stage in pipeline.stages
    )
    return replace(pipeline, stages=stages)


@pytest.fixture(scope="module")
def trace(cache: Path, tapped: Pipeline, shared_data: Path) -> Trace:
    """Return the run of the five scans with the weights they were computed with."""
    return execute(
        make_plan(tapped, host.detect(), work=stage_work),
        tapped,
        scans=[shared_data / "kitti" / f"{name}.bin" for name in SCANS],
        weights=shared_data / "pointpillars" / "pointpillars_kitti3c_ft_fp16.npz",
        pace="asap",
        stats=True,
    )


@pytest.fixture(scope="module")
def oracle(shared_data: Path) -> dict[str, Any]:
    """Return what the reference found in each scan."""
    frames: dict[str, Any] = json.loads((shared_data / "pointpillars" / "oracle.json").read_text())["frames"]
    return frames


@pytest.mark.parametrize(("frame", "name"), list(enumerate(SCANS)))
def test_voxels_are_the_same_bytes(trace: Trace, oracle: dict[str, Any], frame: int, name: str) -> None:
    found, expected = trace.details[frame], oracle[name]["stats"]
    assert found["input"] == f"{name}.bin"
    for key in ("points", "pillars", "points_in_pillars", "voxels_sha256"):
        assert found[key] == expected[key], key
    assert found["coords_sha256"] == expected["coors_sha256"]


@pytest.mark.parametrize(("frame", "name"), list(enumerate(SCANS)))
def test_every_tensor_has_the_statistics_of_the_reference(
    trace: Trace, oracle: dict[str, Any], frame: int, name: str
) -> None:
    for tensor in TENSORS:
        found, expected = trace.details[frame]["tensors"][tensor], oracle[name]["stats"][tensor]
        assert [size for size in found["shape"] if size != 1] == [size for size in expected["shape"] if size != 1]
        for statistic in STATISTICS:
            # sums over tens of millions of fp32 values in another order: 2.8e-6 seen at most
            assert found[statistic] == pytest.approx(expected[statistic], rel=1e-4, abs=1e-6), (tensor, statistic)


@pytest.mark.parametrize(("frame", "name"), list(enumerate(SCANS)))
def test_detections_are_those_of_the_reference(trace: Trace, oracle: dict[str, Any], frame: int, name: str) -> None:
    found, expected = trace.details[frame]["detections"], oracle[name]["detections"]
    assert [box["class"] for box in found] == [box["cls"] for box in expected]
    for one, other in zip(found, expected, strict=True):
        assert one["score"] == pytest.approx(other["score"], abs=1e-3)
        assert one["box"] == pytest.approx(other["box"], abs=1e-3)


def test_frames_are_written_one_a_line(trace: Trace, tmp_path: Path) -> None:
    lines = write_frames(trace, tmp_path).read_text().splitlines()
    assert [json.loads(line)["input"] for line in lines] == [f"{name}.bin" for name in SCANS]
    assert json.loads(lines[0])["tensors"].keys() == set(TENSORS)


def test_all_frames_go_through_all_stages(trace: Trace, tapped: Pipeline) -> None:
    assert {(job.task, job.frame) for job in trace.jobs if job.status == "done"} == {
        (stage.name, frame) for stage in tapped.stages for frame in range(len(SCANS))
    }
    assert not [note for note in trace.instants if note.kind in ("drop", "fault", "input")]


def test_without_weights_every_run_finds_the_same_and_says_that_it_means_nothing(
    cache: Path, checkout: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = load_pipeline(checkout / "pipelines" / "pointpillars.yaml")
    plan = make_plan(pipeline, host.detect(), work=stage_work)
    scan = [shared_data / "kitti" / "000002.bin"]
    first, second = (execute(plan, pipeline, scans=scan, pace="asap").details[0] for _ in range(2))
    assert first == second
    assert "random" in capsys.readouterr().err
