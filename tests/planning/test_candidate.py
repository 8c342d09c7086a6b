"""Candidates: scores, bounds on them without analysis, and the memory that a deployment needs."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

import socsched as ss
from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Figure, Platform
from socsched.errors import UsageError
from socsched.graph.taskgraph import task_graph
from socsched.models.work import stage_work
from socsched.planning.candidate import better, judge, least_score, score
from socsched.planning.deployment import CAPACITY, capacity, deploy
from socsched.planning.io import from_document, to_document
from socsched.planning.plan import Plan
from socsched.planning.search import OBJECTIVES, make_plan, objectives
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
    chosen = {task.precision for task in plan.tasks if task.name.startswith("detect") and task.kind == "stage"}
    # a part of a network may have a finer one than the budget asks for
    assert max(chosen, key=("fp32", "fp16", "int8").index) == precision


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


QUICK: dict[str, Any] = {"mode": "MAXN", "refine": False, "explain": False, "solver": "heft", "policy": "edf"}


def with_memory(size: int, reserved: int | None = None) -> Platform:
    board = ss.load_platform(ORIN)
    left = Figure(reserved, "assumed", note="a test") if reserved is not None else None
    return replace(board, dram=replace(board.dram, size=Figure(size, "assumed", note="a test"), reserved=left))


@pytest.fixture(scope="module")
def roomy() -> Plan:
    return ss.plan("pointpillars", ORIN, **QUICK)


def test_terms_add_up_and_the_capacity_is_what_the_system_leaves(roomy: Plan) -> None:
    memory = roomy.memory
    assert memory.needed_bytes == sum(size for _, size in memory.terms)
    assert memory.capacity_bytes == 64 * 2**30 - 4976 * 2**20 == capacity(ss.load_platform(ORIN))
    assert from_document(to_document(roomy)).memory == memory


def test_weights_are_those_of_the_networks_and_buffers_those_of_the_queues(roomy: Plan) -> None:
    terms, pipeline = dict(roomy.memory.terms), ss.load_pipeline("pointpillars")
    for task in roomy.tasks:
        if task.kind == "stage" and task.name in {stage.name for stage in pipeline.stages}:
            work = stage_work(pipeline.stage(task.name), task.precision)
            weights = sum(operator.weight_bytes for operator in work.operators)
            assert terms.get(f"weights of {task.name}", 0) == weights
            if work.passes:
                live = max(one.live for one in work.passes)
                assert terms[f"activations of {task.name}"] == live * {"fp32": 4, "fp16": 2, "int8": 1}[task.precision]
    lidar = next(sensor for sensor in roomy.sensors)
    queue = max(task.queue for task in roomy.tasks if lidar.name in task.after)
    assert terms[f"frames of {lidar.name}"] == lidar.bytes_per_frame * (queue + 2)


def test_a_board_without_room_violates_the_capacity() -> None:
    plan = ss.plan("pointpillars", with_memory(60 * 2**20, 10 * 2**20), **QUICK)
    violation = next(one for one in plan.violations if one.requirement == CAPACITY)
    assert plan.verdict != "feasible" and violation.unit == "B"
    assert violation.bound == 50 * 2**20 == plan.memory.capacity_bytes
    assert violation.demand == plan.memory.needed_bytes == sum(size for _, size in violation.terms)
    assert violation.gap == violation.demand - violation.bound > 0


def test_weights_that_fit_in_no_data_type_prove_that_no_plan_exists() -> None:
    plan = ss.plan("pointpillars", with_memory(2**20), **QUICK)
    assert plan.verdict == "infeasible" and plan.solver.proof is not None
    assert plan.solver.proof.text.startswith("DRAM capacity: at least")


def test_a_smaller_data_type_may_be_what_fits(roomy: Plan) -> None:
    needed = int(roomy.memory.needed_bytes or 0)
    assert {task.precision for task in roomy.tasks if task.name == "backbone"} == {"fp16"}

    def verdict(precision: str) -> tuple[str, bool]:
        pipeline = ss.load_pipeline("pointpillars")
        stages = tuple(
            replace(s, precisions=(precision,) if s.name in ("backbone", "head") else s.precisions)
            for s in pipeline.stages
        )
        plan = ss.plan(replace(pipeline, stages=stages), with_memory(needed), **QUICK)
        return plan.verdict, CAPACITY in {one.requirement for one in plan.violations}

    assert verdict("fp16") == ("feasible", False)
    assert verdict("fp32") == ("undecided", True)
