"""The admission test for a second pipeline: with stages kept in place, with stages moved, or rejected."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from socsched.cli import root
from socsched.descriptor.pipeline import Anchor, Chain, Pipeline, Sensor, Stage
from socsched.planning.admission import add, join_pipelines
from socsched.planning.search import make_plan
from tests.sim.toy_platform import MS, figure, platform


def one(name: str, costs: dict[str, int], period: int, sensor: str = "camera") -> Pipeline:
    """Return a pipeline of one stage with its execution times (ms) by engine."""
    anchors = tuple(Anchor("toy", "only", e, "fp32", figure(t * MS), 1 if e == "cpu" else 0) for e, t in costs.items())
    stage = Stage("work", name, None, (sensor,), costs=anchors, share=1, queue=1)
    sensors = (Sensor(sensor, "camera", period * MS),)
    return Pipeline(name, name, sensors, (stage,), (Chain("out", (sensor, "work"), period * MS),))


@pytest.mark.parametrize(
    ("first", "second", "answer", "moved"),
    [
        ({"acc": 4}, {"acc": 5}, "yes", ()),
        ({"acc": 12, "cpu": 15}, {"acc": 16}, "moving", ("work",)),
        ({"acc": 12}, {"acc": 16}, "no", ()),
    ],
)
def test_answers(first: dict[str, int], second: dict[str, int], answer: str, moved: tuple[str, ...]) -> None:
    board, own, new = platform("full", "segment"), one("own", first, 20), one("new", second, 20)
    plan = make_plan(own, board, work=lambda *_: None)
    assert plan.tasks[0].engine == "acc"
    found = add(plan, own, new, board, lambda *_: None)
    assert (found.answer, found.added, found.moved) == (answer, ("new-work",), moved)
    assert {task.name for task in found.plan.tasks} >= {"work", "new-work"}
    assert {chain.name for chain in found.plan.chains} == {"out", "new-out"}


def test_equal_sensors_are_shared_and_others_are_renamed() -> None:
    own, new = one("own", {"acc": 4}, 20), one("new", {"acc": 4}, 20)
    both, names = join_pipelines(own, new)
    assert len(both.sensors) == 1 and names == ("new-work",) and both.stages[1].after == ("camera",)
    faster = replace(new, sensors=(replace(new.sensors[0], period_ns=10 * MS),))
    both, _ = join_pipelines(own, faster)
    assert [s.name for s in both.sensors] == ["camera", "new-camera"] and both.stages[1].after == ("new-camera",)
    assert both.chains[1].path == ("new-camera", "new-work")


def test_the_command_answers_with_the_plan_of_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "plan.json")
    board = ("-p", "jetson-agx-orin-64gb", "-m", "MAXN")
    assert root.run(["plan", "camera-detection", *board, "-o", file, "-q"]) == 0
    capsys.readouterr()
    assert root.run(["analyze", file, "--add", "pointpillars", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["answer"] == "yes" and "backbone" in document["added"] and document["moved"] == []
    assert document["plan"]["verdict"] == "feasible"
