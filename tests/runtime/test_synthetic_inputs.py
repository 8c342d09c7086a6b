"""Synthetic frames for pipelines run without recordings, and the detections in them, by class name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.models.registry import bindings, get_model
from socsched.runtime.collect import class_names, described, detections
from socsched.runtime.inputs import sources


def shipped(checkout: Path, name: str) -> Pipeline:
    return load_pipeline(checkout / "pipelines" / f"{name}.yaml")


@pytest.mark.parametrize(("name", "behind"), [("centerpoint-pillar", True), ("pointpillars", False)])
def test_the_lidar_turns_as_far_as_the_detector_looks(checkout: Path, name: str, behind: bool) -> None:
    pipeline = shipped(checkout, name)
    feeds = sources(pipeline, bindings(pipeline), None, 3)
    points = feeds["lidar"].frame(1).outputs["points"]
    assert bool((points[:, 0] < -20).any()) is behind
    stage = pipeline.stage("voxelise")
    voxelise = get_model(stage.model or "", stage.params)
    assert voxelise.function is not None
    _, counts, _ = voxelise.function(points)
    # the nominal sizes are those of full scans: a street is near, and not beyond
    assert 0.3 < len(counts) / stage.params["pillars"] <= 1
    assert 0.5 < len(points) / stage.params["points"] <= 1.2


def test_every_stage_of_the_camera_finds_its_input(checkout: Path) -> None:
    pipeline = shipped(checkout, "camera-detection")
    bound = bindings(pipeline)
    assert bound["decode"] == {"camera_output": "detect"}
    image = sources(pipeline, bound, None, 0)["camera"].frame(0).outputs["image"]
    assert image.shape == (1, 3, 1080, 1920) and image.dtype == np.uint8


def test_labels_are_named_by_the_stage_that_gave_them(checkout: Path) -> None:
    names = class_names(shipped(checkout, "centerpoint-pillar"))
    assert names["decode"][4] == "Pedestrian" and names["voxelise"] == ()
    box = np.arange(7, dtype=np.float32)[None]
    outputs = {"boxes": box, "scores": np.array([0.5]), "labels": np.array([4]), "velocities": np.zeros((1, 2))}
    image = {"image_boxes": box[:, :4], "image_scores": np.array([0.25]), "image_labels": np.array([2])}
    expected = {"class": "Pedestrian", "label": 4, "score": 0.5, "box": [0, 1, 2, 3, 4, 5, 6]}
    seen = {"class": "c", "label": 2, "score": 0.25, "box": [0, 1, 2, 3]}
    assert described(outputs, names["decode"], False) == {"detections": [expected]}
    assert described(image, ("a", "b", "c"), False) == {"image_detections": [seen]}
    assert described({"boxes": box}, (), False) == {}
    assert detections(outputs, names["decode"]) == [expected]
