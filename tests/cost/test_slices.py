"""Stages known by their time only: their preemption points, and the engines they are restricted to."""

from __future__ import annotations

import pytest

from socsched.cli import root
from socsched.cost.model import CostModel
from socsched.descriptor.pipeline import Anchor, Stage
from tests.sim.toy_platform import MS, figure, platform


@pytest.mark.parametrize(("accelerator", "count"), [("segment", 4), ("full", 1), ("none", 1)])
def test_slices_are_segments_where_an_engine_gives_way_between_them(accelerator: str, count: int) -> None:
    board = platform("full", accelerator)
    anchor = Anchor("toy", "only", "acc", "fp32", figure(3.5 * MS), slice_ns=MS)
    stage = Stage("s", "s", None, ("x",), costs=(anchor,), output_bytes=1_000_003)
    (cost,) = CostModel(board, board.modes[0], lambda *_: None).candidates(stage)
    assert len(cost.segments) == count
    assert sum(part.time_ns for part in cost.segments) == cost.time_ns == round(3.5 * MS)
    assert sum(part.bytes for part in cost.segments) == 1_000_003
    assert count == 1 or max(part.time_ns for part in cost.segments) <= MS
    assert [part.fixed_ns > 0 for part in cost.segments] == [True] + [False] * (count - 1), "launched once"


def test_a_stage_is_kept_to_its_engines_by_name_or_kind() -> None:
    board = platform("full", "segment")
    costs = tuple(Anchor("toy", "only", e, "fp32", figure(MS), 1 if e == "cpu" else 0) for e in ("cpu", "acc"))
    model = CostModel(board, board.modes[0], lambda *_: None)
    kept = Stage("kept", "s", None, ("x",), costs=costs, share=1, engines=("acc",))
    assert {cost.engine for cost in model.candidates(kept)} == {"acc"}
    assert [str(refusal) for refusal in model.refused(kept)] == ["cpu fp32: the stage may run on acc only"]


@pytest.mark.parametrize(
    ("pin", "said"), [("missing=gpu", "has no stage 'missing'"), ("backbone=tpu", "has no engine 'tpu'")]
)
def test_pins_name_existing_stages_and_engines(pin: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(["plan", "pointpillars", "-p", "jetson-agx-orin-64gb", "--pin", pin]) == 2
    assert said in capsys.readouterr().err
