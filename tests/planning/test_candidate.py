"""Comparison of mappings: those not analysed could not have won; objectives in their order; accuracy."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.errors import UsageError
from socsched.graph.taskgraph import task_graph
from socsched.models.work import stage_work
from socsched.planning.candidate import OBJECTIVES, better, judge, least_score, objectives, score
from socsched.planning.deployment import deploy
from socsched.planning.search import make_plan
from socsched.planning.workload import Limits, Unconnectable, Workload

ORIN = "jetson-agx-orin-64gb"


@pytest.fixture(scope="module")
def workload() -> Workload:
    platform = get_platform(ORIN)
    model = CostModel(platform, platform.mode("30W"), stage_work)
    return Workload.of(task_graph(get_pipeline("camera-detection")), model, "edf")


@pytest.mark.parametrize("goals", [*((name,) for name in OBJECTIVES), ("energy", "latency"), ("slack", "energy")])
def test_what_is_not_analysed_could_not_have_won(workload: Workload, goals: tuple[str, ...]) -> None:
    draw = random.Random(str(goals))
    options = {name: workload.model.candidates(workload.graph.stage(name)) for name in workload.graph.order}
    scores = []
    for _ in range(12):
        mapping = {name: draw.choice(costs) for name, costs in options.items()}
        try:
            found = score(judge(workload, mapping, thorough=False), goals)
        except Unconnectable:
            continue
        least = least_score(deploy(workload, mapping), goals)
        assert found >= least
        scores.append((found, mapping))
    limit = sorted(found for found, _ in scores)[len(scores) // 2]
    for found, mapping in scores:
        winner = better(workload, mapping, goals, limit)
        assert (winner is not None) == (found < limit)
        assert winner is None or score(winner, goals) == found


def test_objectives_are_read_in_order() -> None:
    assert objectives("energy, latency") == ("energy", "latency")
    for wrong in ("speed", "latency,latency", ""):
        with pytest.raises(UsageError):
            objectives(wrong)


def test_a_second_objective_decides_between_equals_only() -> None:
    pipeline, platform = get_pipeline("camera-detection"), get_platform(ORIN)
    plans = {
        goal: make_plan(pipeline, platform, "30W", goal, work=stage_work, cuts=False)
        for goal in ("energy", "energy,latency", "latency")
    }
    power = {goal: plan.power.expected_mw for goal, plan in plans.items()}
    latency = {goal: sum(chain.expected_ns for chain in plan.chains) for goal, plan in plans.items()}
    assert power["energy,latency"] <= power["energy"] <= power["latency"]
    assert latency["latency"] <= latency["energy,latency"] <= latency["energy"]


def accurate(pipeline: Pipeline, budget: int) -> Pipeline:
    """Return the pipeline with losses of its detector and a budget, in thousandths of a point."""
    stages = tuple(
        replace(stage, losses={"int8": 800, "fp16": 50}) if stage.name == "detect" else stage
        for stage in pipeline.stages
    )
    return replace(pipeline, stages=stages, accuracy_budget=budget)


@pytest.mark.parametrize(("budget", "precision"), [(1000, "int8"), (100, "fp16"), (0, "fp32")])
@pytest.mark.sampled(3)
def test_the_accuracy_budget_decides_on_precision(budget: int, precision: str) -> None:
    plan = make_plan(accurate(get_pipeline("camera-detection"), budget), get_platform(ORIN), "MAXN", work=stage_work)
    assert plan.verdict == "feasible"
    assert {task.precision for task in plan.tasks if task.name.startswith("detect") and task.kind == "stage"} == {
        precision
    }


@pytest.mark.slow
def test_a_budget_no_precision_keeps_is_a_verdict_with_levers() -> None:
    pipeline = accurate(get_pipeline("camera-detection"), 10)
    stage = replace(pipeline.stage("detect"), precisions=("fp16", "int8"))
    stages = tuple(stage if each.name == stage.name else each for each in pipeline.stages)
    plan = make_plan(replace(pipeline, stages=stages), get_platform(ORIN), "MAXN", work=stage_work)
    (violation,) = (v for v in plan.violations if v.requirement == "accuracy loss")
    assert (violation.demand, violation.bound, violation.terms) == (50, 10, (("detect", 50),))
    assert violation.levers


def test_caps_in_addition_to_the_modes_are_requirements() -> None:
    pipeline, platform = get_pipeline("camera-detection"), get_platform(ORIN)
    free = make_plan(pipeline, platform, "MAXN", work=stage_work, cuts=False)
    power, traffic = int(free.power.expected_mw), int(free.bandwidth.expected_gbps * 1e9)
    capped = make_plan(pipeline, platform, "MAXN", work=stage_work, cuts=False, limits=Limits(power - 1, None))
    assert capped.power.cap_mw == power - 1
    assert capped.verdict == "infeasible" or capped.power.expected_mw < power
    starved = make_plan(pipeline, platform, "MAXN", work=stage_work, cuts=False, limits=Limits(None, traffic // 100))
    assert [v.requirement for v in starved.violations] == ["DRAM traffic"]
