"""--prefer: the layers an engine takes run there, the rest elsewhere; --pin keeps a stage whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from socsched.cli import root
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.errors import UsageError
from socsched.models.work import stage_work
from socsched.planning.cost_cache import CostCache
from socsched.planning.cutting.pipelines import PARTS, with_preferences
from socsched.planning.search import make_plan
from tests.models.onnx_files import Builder

ORIN = "jetson-agx-orin-64gb"


def test_an_engine_that_takes_every_layer_gets_the_whole_stage() -> None:
    board, pipeline = get_platform(ORIN), get_pipeline("pointpillars-s")
    known = CostCache(board, stage_work)
    made = with_preferences(pipeline, known.model(board.mode("MAXN")), {"backbone": ("dla0",)})
    plan = make_plan(made, board, "MAXN", work=stage_work, costs=known, budget=20, explain=False, cuts=False)
    assert {task.name: task.engine for task in plan.tasks}["backbone"] == "dla0"


def test_layers_an_engine_does_not_take_run_elsewhere(tmp_path: Path) -> None:
    board = get_platform(ORIN)
    net = Builder()
    pooled = net.op("GlobalAveragePool", net.conv(net.conv("image", 3, 16), 16, 32))
    file = net.save(tmp_path / "net.onnx", [1, 3, 32, 32], [net.conv(pooled, 32, 8, 1, norm=False)])
    pipeline = get_pipeline(str(file))
    known = CostCache(board, stage_work)
    model = known.model(board.mode("MAXN"))
    refused = {r.engine for r in model.refused(pipeline.stage("network"))}
    assert "dla0" in refused, "else there is nothing to show here"
    made = with_preferences(pipeline, model, {"network": ("dla0",)})
    assert 1 < len(made.stages) <= PARTS and {"dla0"} == {e for s in made.stages for e in s.engines}
    plan = make_plan(made, board, "MAXN", work=stage_work, costs=known, budget=40, explain=False)
    assert plan.verdict == "feasible" and {"dla0"} < {task.engine for task in plan.tasks}


def test_an_engine_that_takes_no_layer_is_refused_with_its_reasons() -> None:
    board, pipeline = get_platform(ORIN), get_pipeline("pointpillars-s")
    model = CostCache(board, stage_work).model(board.mode("MAXN"))
    with pytest.raises(UsageError, match="no layer of 'voxelise' can run on dla0") as caught:
        with_preferences(pipeline, model, {"voxelise": ("dla0",)})
    assert "dla0" in caught.value.hint


@pytest.mark.parametrize(
    ("option", "meant"), [("backbon=gpu", "backbone"), ("backbone=dla7", "dla"), ("backbone", "expected STAGE=ENGINE")]
)
def test_names_there_are_not_get_the_nearest_ones(option: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("--pin", "--prefer"):
        assert root.run(["plan", "pointpillars", "-p", ORIN, name, option]) == 2
        assert meant in capsys.readouterr().err


def test_a_platform_is_suggested_by_a_part_of_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(["plan", "pointpillars", "-p", "orin"]) == 2
    assert ORIN in capsys.readouterr().err
