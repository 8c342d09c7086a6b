"""Limp-home plans of a described board: stated times and contention parameters keep their meaning without an engine."""

from __future__ import annotations

import pytest

import socsched as ss
from socsched.models.work import stage_work
from socsched.runtime.limp_home import without


@pytest.mark.parametrize("lost", [frozenset({("gpu", 0)}), frozenset({("cpu1", 1)})])
def test_a_plan_in_another_mode_than_the_stated_times_survives_a_loss(lost: frozenset[tuple[str, int]]) -> None:
    pipeline, board = ss.load_pipeline("perception-stack"), ss.load_platform("jetson-agx-orin-64gb")
    plan = ss.plan(pipeline, board, "50W", explain=False, refine=False, solver="heft", policy="edf")
    spare = without(plan, lost, pipeline, board, stage_work)
    assert spare is not None and spare.verdict == "feasible"
    assert not lost & {(task.engine, lane) for task in spare.tasks for lane in task.lanes}
    assert {engine.id for engine in spare.engines} == {engine.id for engine in plan.engines}
