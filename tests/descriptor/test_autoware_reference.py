"""The Autoware reference pipeline against the reference system's own graph and timing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
def pipeline() -> Pipeline:
    return get_pipeline("autoware-reference")


def name(label: str) -> str:
    plain = label.lower().replace(" ", "-")
    return RENAMED.get(plain, plain)


def graph(path: Path) -> set[tuple[str, str]]:
    """The edges of the dot file, without those that only arrange the drawing."""
    text = re.sub(r"edge\[style=invis\];.*?\}", "}", path.read_text(), flags=re.S)
    edges = re.findall(r'"([^"]+)" -> "([^"]+)"', text)
    return {SPLIT.get((name(a), name(b)), (name(a), name(b))) for a, b in edges}


def test_edges_are_those_of_the_reference_system(shared_data: Path, pipeline: Pipeline) -> None:
    wanted = graph(shared_data / "rt" / "autoware_reference" / "autoware_reference_system.dot")
    found = {(source, stage.name) for stage in pipeline.stages for source in (*stage.after, *stage.reads)}
    assert found == wanted


def test_timers_are_those_of_the_reference_system(shared_data: Path, pipeline: Pipeline) -> None:
    text = (shared_data / "rt" / "autoware_reference" / "default.hpp").read_text()
    found = {
        key.lower().replace("_", "-"): int(ms) for key, ms in re.findall(r"time_t (\w+) = milliseconds\((\d+)\)", text)
    }
    found["lanelet2-map"] = found.pop("lanelet2map")
    found["behavior-planner"] = found.pop("behavior-planner-cycle")
    own = {sensor.name: sensor.period_ns // 10**6 for sensor in pipeline.sensors}
    own |= {stage.name: stage.period_ns // 10**6 for stage in pipeline.stages if stage.period_ns}
    assert own == found
    assert set(re.findall(r"uint64_t \w+ = (\d+)", text)) == {"4096"}, "the limit whose time the stages carry"


def test_the_hot_path_is_hard(shared_data: Path, pipeline: Pipeline) -> None:
    text = (shared_data / "rt" / "autoware_reference" / "priorities.cpp").read_text()
    listed = set(re.findall(r'"(\w+)"', text.split("hotpath_nodes")[1].split(";")[0]))
    hot = {re.sub(r"(?<!^)(?=[A-Z])", "-", node).lower() for node in listed} - {
        "front-lidar-driver",
        "rear-lidar-driver",
    }
    assert hot <= {stage.name for stage in pipeline.stages if stage.criticality == "hard"}
