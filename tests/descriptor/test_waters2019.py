"""The WATERS 2019 pipeline against the challenge's own model, figure by figure."""

from __future__ import annotations

from typing import Any

import pytest
from datafiles import read

from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.models.work import stage_work
from socsched.planning.search import make_plan

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


@pytest.mark.slow
def test_the_planner_cannot_meet_its_deadline(model: dict[str, Any], pipeline: Pipeline) -> None:
    planner = next(task for task in model["tasks"] if task["task"] == "Planner")
    assert min(planner["wcet_us"].values()) > planner["deadline_us"]
    plan = make_plan(pipeline, get_platform("jetson-tx2"), "MAXN", work=stage_work, budget=60)
    assert plan.verdict == "infeasible"
    assert any(v.requirement == "deadline of chain planner-deadline" for v in plan.violations)
