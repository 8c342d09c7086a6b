"""The whole toolchain against a plain fp32 reference: plan for this machine, compile, run, compare every tensor."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import reference_pointpillars
from recorded import Recorded
from run_plans import executed

from socsched.descriptor import host
from socsched.descriptor.pipeline import Pipeline
from socsched.models.work import stage_work
from socsched.planning.search import make_plan
from socsched.runtime.collect import write_frames
from socsched.trace.trace import Trace

TENSORS = ("pfn", "bev", "block1", "block2", "block3", "neck", "cls", "reg", "dir")
STATISTICS = ("mean", "std", "min", "max", "l2")


@pytest.fixture(scope="module")
def tapped(recorded: Recorded) -> Pipeline:
    """Return PointPillars with the backbone's block outputs as additional outputs."""
    return recorded.pipeline(taps=True)


@pytest.fixture(scope="module")
def trace(tapped: Pipeline, recorded: Recorded) -> Trace:
    """Return the run of the scans with the weights they were computed with."""
    return executed(
        make_plan(tapped, host.detect(), work=stage_work),
        tapped,
        scans=recorded.scans,
        weights=recorded.weights,
        pace="asap",
        stats=True,
        platform=None,
    )


def test_voxels_are_the_same_bytes(trace: Trace, recorded: Recorded) -> None:
    for frame, (name, expected) in enumerate(recorded.frames.items()):
        found, stats = trace.details[frame], expected["stats"]
        assert found["input"] == f"{name}.bin"
        for key in ("points", "pillars", "points_in_pillars"):
            assert found[key] == stats[key], (name, key)
        points = np.fromfile(recorded.scans[frame], np.float32).reshape(-1, 4)
        voxels, _, coords = reference_pointpillars.voxelise(points)
        assert found["voxels_sha256"] == hashlib.sha256(voxels.tobytes()).hexdigest(), name
        assert found["coords_sha256"] == hashlib.sha256(coords.tobytes()).hexdigest(), name


def test_every_tensor_has_the_statistics_of_the_reference(trace: Trace, recorded: Recorded) -> None:
    for frame, (name, expected) in enumerate(recorded.frames.items()):
        for tensor in TENSORS:
            found, stats = trace.details[frame]["tensors"][tensor], expected["stats"][tensor]
            assert [size for size in found["shape"] if size != 1] == [size for size in stats["shape"] if size != 1]
            for statistic in STATISTICS:
                # sums over tens of millions of fp32 values in another order: 2.8e-6 seen at most
                wanted = pytest.approx(stats[statistic], rel=1e-4, abs=1e-6)
                assert found[statistic] == wanted, (name, tensor, statistic)


def test_detections_are_those_of_the_reference(trace: Trace, recorded: Recorded) -> None:
    for frame, (name, expected) in enumerate(recorded.frames.items()):
        found, wanted = trace.details[frame]["detections"], expected["detections"]
        assert [box["class"] for box in found] == [box["cls"] for box in wanted], name
        for one, other in zip(found, wanted, strict=True):
            assert one["score"] == pytest.approx(other["score"], abs=1e-3), name
            assert one["box"] == pytest.approx(other["box"], abs=1e-3), name


def test_frames_are_written_one_a_line(trace: Trace, recorded: Recorded, tmp_path: Path) -> None:
    lines = write_frames(trace, tmp_path).read_text().splitlines()
    assert [json.loads(line)["input"] for line in lines] == [scan.name for scan in recorded.scans]
    assert json.loads(lines[0])["tensors"].keys() == set(TENSORS)


def test_all_frames_go_through_all_stages(trace: Trace, tapped: Pipeline, recorded: Recorded) -> None:
    assert {(job.task, job.frame) for job in trace.jobs if job.status == "done"} == {
        (stage.name, frame) for stage in tapped.stages for frame in range(len(recorded.scans))
    }
    assert not [note for note in trace.instants if note.kind in ("drop", "fault", "input")]


@pytest.mark.slow
def test_without_weights_every_run_finds_the_same_and_says_that_it_means_nothing(
    detector: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = detector.pipeline()
    plan = make_plan(pipeline, host.detect(), work=stage_work)
    first, second = (
        executed(plan, pipeline, scans=detector.scans[:1], pace="asap", platform=None).details[0] for _ in range(2)
    )
    assert first == second
    assert "random" in capsys.readouterr().err
