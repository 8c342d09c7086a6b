"""Branches of a network run at the same time on different engines where that is faster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import socsched as ss
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.graph.partition import units
from socsched.models.registry import get_model
from socsched.models.work import stage_work
from socsched.planning.cost_cache import CostCache
from socsched.planning.cutting.divisible import divisible
from socsched.planning.cutting.segmentation import Branch, branches
from tests.models.onnx_files import Builder

ORIN = "jetson-agx-orin-64gb"
DEPTH = 4


def forked(file: Path, in_turn: bool) -> Pipeline:
    """Return a stem and two equal branches that a concatenation joins; `in_turn`: the file lists layers in turn."""
    net = Builder()
    a = b = net.conv("image", 3, 32)
    if in_turn:
        for _ in range(DEPTH):
            a, b = net.conv(a, 32, 32), net.conv(b, 32, 32)
    else:
        for _ in range(DEPTH):
            a = net.conv(a, 32, 32)
        for _ in range(DEPTH):
            b = net.conv(b, 32, 32)
    pipeline = get_pipeline(str(net.save(file, [1, 3, 256, 256], [net.op("Concat", a, b, axis=1)])))
    stages = (replace(stage, engines=("dla",), precisions=("fp16",)) for stage in pipeline.stages)
    return replace(pipeline, stages=tuple(stages))


@pytest.mark.parametrize("in_turn", [False, True])
def test_two_accelerators_take_a_branch_each(tmp_path: Path, in_turn: bool) -> None:
    pipeline = forked(tmp_path / "net.onnx", in_turn)
    whole, cut = (ss.plan(pipeline, ORIN, "MAXN", cuts=cuts, explain=False) for cuts in (False, True))
    times = [plan.chains[0].expected_ns for plan in (whole, cut)]
    assert cut.verdict == "feasible" and times[1] < 0.75 * times[0]
    by_name = {task.name: task for task in cut.tasks}
    join = by_name["network.4"]
    left, right = (by_name[name] for name in join.after)
    assert {left.engine, right.engine} == {"dla0", "dla1"} and left.after == right.after == ("network.1",)
    found = ss.simulate(cut, "2s").chains["frame"]
    assert found.missed == 0 and found.max is not None and found.max < times[0]
    assert found.max <= (cut.chains[0].bound_ns or 0) < 1.5 * times[0]


def test_units_are_listed_branch_by_branch(tmp_path: Path) -> None:
    def listed(in_turn: bool) -> list[int]:
        stage = forked(tmp_path / f"{in_turn}.onnx", in_turn).stages[0]
        build = get_model(stage.model or "", stage.params).network
        assert build is not None
        network = build()
        layers = {layer.name: layer for layer in network.layers}
        groups = units(network)
        home = {name: number for number, group in enumerate(groups) for name in group}
        read = [{home[n] for m in group for n in layers[m].inputs if n in home} - {i} for i, group in enumerate(groups)]
        assert all(need < i for i, needs in enumerate(read) for need in needs), "topological"
        return [i for i, needs in enumerate(read) if i and i - 1 not in needs]

    assert listed(True) == listed(False) == [DEPTH + 1]


def test_a_branch_has_units_beside_it(tmp_path: Path) -> None:
    pipeline, board = forked(tmp_path / "net.onnx", False), get_platform(ORIN)
    stage = divisible(pipeline, pipeline.stages[0], CostCache(board, stage_work).model(board.mode("MAXN")))
    assert stage is not None
    assert branches(stage) == [Branch(1, DEPTH + 1, 2 * DEPTH + 1, tuple(range(1, DEPTH + 1)))]
