"""The task graph: inherited rates, order, chains cut where a stage samples, and pipelines that make no sense."""

from __future__ import annotations

import pytest

from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.pipeline import Chain, Pipeline, Sensor, Stage
from socsched.errors import UsageError
from socsched.graph.taskgraph import task_graph

MS = 1_000_000
LIDAR = Sensor("lidar", "lidar", 100 * MS, 3 * MS, 2 * MS)
CAMERA = Sensor("camera", "camera", 40 * MS)


def stage(name: str, *after: str, reads: tuple[str, ...] = (), period: int | None = None) -> Stage:
    return Stage(name, name, None, after, period, offset_ns=5 * MS if period else 0, reads=reads)


def pipeline(*stages: Stage, sensors: tuple[Sensor, ...] = (LIDAR, CAMERA)) -> Pipeline:
    return Pipeline("p", "p", sensors, stages, ())


def test_rates_and_releases_are_inherited_along_triggers() -> None:
    graph = task_graph(
        pipeline(
            stage("fuse", "detect", reads=("see",)),
            stage("detect", "lidar"),
            stage("see", "camera"),
            stage("act", reads=("fuse",), period=20 * MS),
        )
    )
    assert graph.order.index("detect") < graph.order.index("fuse")
    assert graph.period_ns == {"fuse": 100 * MS, "detect": 100 * MS, "see": 40 * MS, "act": 20 * MS}
    assert (graph.offset_ns["fuse"], graph.jitter_ns["fuse"]) == (3 * MS, 2 * MS)
    assert (graph.offset_ns["act"], graph.jitter_ns["act"]) == (5 * MS, 0)
    assert graph.hyperperiod_ns() == 200 * MS
    assert graph.sources["fuse"] == ("lidar",), "what is only read releases nothing"
    assert graph.predecessors("fuse") == ("detect",) and graph.successors("detect") == ("fuse",)


def test_a_chain_is_cut_where_a_stage_samples() -> None:
    graph = task_graph(
        pipeline(stage("detect", "lidar"), stage("track", "detect"), stage("act", reads=("track",), period=20 * MS))
    )
    cut = graph.segments(Chain("c", ("lidar", "detect", "track", "act"), 200 * MS))
    assert [(s.root, s.nodes, s.period_ns, s.sampled) for s in cut] == [
        ("lidar", ("detect", "track"), 100 * MS, False),
        ("act", ("act",), 20 * MS, True),
    ]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([stage("a", "b"), stage("b", "a")], "cycle"),
        ([stage("a", "radar")], "radar"),
        ([stage("a")], "no trigger"),
        ([stage("a", "lidar", "camera")], "different rates"),
    ],
)
def test_pipelines_that_make_no_sense(stages: list[Stage], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        task_graph(pipeline(*stages))


@pytest.mark.parametrize("name", ["pointpillars", "perception-stack"])
def test_shipped_pipelines_are_in_order(name: str) -> None:
    graph = task_graph(get_pipeline(name))
    for position, node in enumerate(graph.order):
        assert all(graph.order.index(other) < position for other in graph.predecessors(node))
    assert graph.hyperperiod_ns() <= 3_300 * MS
