"""The Autoware reference pipeline against the reference system's own graph and timing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from datafiles import read

from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.pipeline import Pipeline

RENAMED = {"front-points-transformer": "points-transformer-front", "rear-points-transformer": "points-transformer-rear"}
SPLIT = {
    ("euclidean-cluster-settings", "euclidean-cluster-detector"): (
        "euclidean-cluster-settings",
        "euclidean-intersection",
    ),
    ("euclidean-cluster-detector", "intersection-output"): ("euclidean-intersection", "intersection-output"),
}
"""The cluster detector has two independent callbacks; the one for settings is a stage of its own."""


@pytest.fixture(scope="module")
def system() -> dict[str, Any]:
    return dict(read("autoware_reference.json"))


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return get_pipeline("autoware-reference")


def name(label: str) -> str:
    plain = label.lower().replace(" ", "-")
    return RENAMED.get(plain, plain)


def test_edges_are_those_of_the_reference_system(system: dict[str, Any], pipeline: Pipeline) -> None:
    edges = [(name(a), name(b)) for a, b in system["edges"]]
    wanted = {SPLIT.get(edge, edge) for edge in edges}
    found = {(source, stage.name) for stage in pipeline.stages for source in (*stage.after, *stage.reads)}
    assert found == wanted


def test_timers_are_those_of_the_reference_system(system: dict[str, Any], pipeline: Pipeline) -> None:
    found = {key.lower().replace("_", "-"): ms for key, ms in system["timers_ms"].items()}
    found["lanelet2-map"] = found.pop("lanelet2map")
    found["behavior-planner"] = found.pop("behavior-planner-cycle")
    own = {sensor.name: sensor.period_ns // 10**6 for sensor in pipeline.sensors}
    own |= {stage.name: stage.period_ns // 10**6 for stage in pipeline.stages if stage.period_ns}
    assert own == found
    assert set(system["number_cruncher_limits"].values()) == {4096}, "the limit whose time the stages carry"


def test_the_hot_path_is_hard(system: dict[str, Any], pipeline: Pipeline) -> None:
    hot = {re.sub(r"(?<!^)(?=[A-Z])", "-", node).lower() for node in system["hot_path"]} - {
        "front-lidar-driver",
        "rear-lidar-driver",
    }
    assert hot <= {stage.name for stage in pipeline.stages if stage.criticality == "hard"}
