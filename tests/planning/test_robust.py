"""Plans for the upper ends of costs' intervals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.api.simulation import simulate_plan
from socsched.errors import UsageError

BOARD, MODE = "jetson-agx-orin-64gb", "MAXN"
OPTIONS = PlanOptions(solver="heft", policy="fp", cuts=False, refine=False, explain=False, robust=True)


@pytest.mark.parametrize("pipeline", ["perception-stack", "camera-detection"])
def test_a_feasible_robust_plan_has_no_miss_with_all_costs_at_their_upper_ends(pipeline: str) -> None:
    plan = plan_with(pipeline, BOARD, MODE, OPTIONS)
    assert plan.verdict == "feasible"
    found = simulate_plan(plan, 6 * 10**9).figures["chains"]
    for chain in plan.chains:
        assert chain.bound_ns is not None
        assert found[chain.name]["missed"] == found[chain.name]["dropped"] == 0
        assert found[chain.name]["response_time_ns"]["max"] <= chain.bound_ns <= chain.deadline_ns


def test_its_costs_are_the_upper_ends_of_those_of_a_plain_plan() -> None:
    plain = plan_with("camera-detection", BOARD, MODE, replace(OPTIONS, robust=False))
    robust = plan_with("camera-detection", BOARD, MODE, replace(OPTIONS))
    before = {(task.name, task.engine, task.precision): task for task in plain.tasks}
    same = [(before[key], task) for task in robust.tasks if (key := (task.name, task.engine, task.precision)) in before]
    assert any(task.error for task, _ in same)
    for stated, upper in same:
        assert upper.error == 0
        # What a hand-over to another engine takes is stated without an interval.
        assert upper.cost_ns == pytest.approx(stated.cost_ns * (1 + stated.error), rel=1e-2, abs=len(upper.segments))


def test_planners_of_the_literature_take_stated_costs_only() -> None:
    with pytest.raises(UsageError, match="built-in search"):
        plan_with("camera-detection", BOARD, MODE, replace(OPTIONS, planner="heft"))
