"""The WATERS 2019 pipeline against the challenge's own model, figure by figure."""

from __future__ import annotations

import math
from typing import Any

import pytest
from datafiles import read

from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.models.work import stage_work
from socsched.planning.search import make_plan

LINE_NS = {"denver": 8.0, "a57": 20.0}
CORE = {"denver": "Denver", "a57": "A57"}
NAMES = {"CANbus_polling": "can-bus-polling"}


@pytest.fixture(scope="module")
def model() -> dict[str, Any]:
    found: dict[str, Any] = read("waters2019.json")
    return found


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return get_pipeline("waters2019")


def name(task: str) -> str:
    return NAMES.get(task, task.lower().replace("_", "-"))


def times(pipeline: Pipeline, stage: str) -> dict[str, float]:
    """Engine -> time in microseconds."""
    return {anchor.engine: anchor.time_ns.value / 1000 for anchor in pipeline.stage(stage).costs}


def expected(wcet: dict[str, float], size: int, extra: float = 0.0) -> dict[str, float]:
    lines = math.ceil(size / 64)
    return {engine: wcet[CORE[engine]] + extra + lines * cost / 1000 for engine, cost in LINE_NS.items()}


def test_deadlines_and_chains_are_the_models(model: dict[str, Any], pipeline: Pipeline) -> None:
    chains = {chain.name: chain for chain in pipeline.chains}
    tasks = {task["task"]: task for task in model["tasks"]}
    for task in model["tasks"]:
        if task["deadline_us"] is not None:
            assert chains.pop(f"{name(task['task'])}-deadline").deadline_ns == round(task["deadline_us"] * 1000)
    parts = {
        task: (name(task),) if tasks[task]["kind"] == "cpu" else (f"{name(task)}-pre", name(task), f"{name(task)}-post")
        for task in tasks
    }
    wanted = {tuple(part for task in chain for part in parts[task]): chain for chain in model["chains"]}
    assert {chain.path for chain in chains.values()} == set(wanted)
    for chain in chains.values():  # Davare et al., DAC 2007, with every response at its deadline
        davare = sum(tasks[task]["period_us"] + tasks[task]["deadline_us"] for task in wanted[chain.path])
        assert chain.deadline_ns == round(davare * 1000) and "Davare" in chain.assumed


def test_four_kernels_overload_the_gpu(model: dict[str, Any], pipeline: Pipeline) -> None:
    kernels = [task for task in model["tasks"] if task["kind"] != "cpu"]
    assert sum(t["kernel_us"]["GPU_def"] / t["period_us"] for t in kernels) == pytest.approx(1.544, abs=5e-4)
    used = {name(t["task"]): times(pipeline, name(t["task"]))["gpu"] / t["period_us"] for t in kernels}
    assert sum(used.values()) > 1.544, "with the copies"
    assert set(times(pipeline, "detection")) == {"gpu"}


@pytest.mark.slow
def test_the_planner_cannot_meet_its_deadline(model: dict[str, Any], pipeline: Pipeline) -> None:
    planner = next(task for task in model["tasks"] if task["task"] == "Planner")
    assert min(planner["wcet_us"].values()) > planner["deadline_us"]
    plan = make_plan(pipeline, get_platform("jetson-tx2"), "MAXN", work=stage_work, budget=60)
    assert plan.verdict == "infeasible"
    assert any(v.requirement == "deadline of chain planner-deadline" for v in plan.violations)
