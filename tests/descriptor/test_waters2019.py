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


def test_every_figure_follows_from_the_model(model: dict[str, Any], pipeline: Pipeline) -> None:
    names = set()
    for task in model["tasks"]:
        own = name(task["task"])
        period = round(task["period_us"] * 1000)
        if task["kind"] == "cpu":
            names.add(own)
            wanted = expected(task["wcet_us"], task["read_bytes"] + task["write_bytes"])
            assert times(pipeline, own) == pytest.approx(wanted, abs=1.0), own
            assert pipeline.stage(own).period_ns == period
            continue
        names |= {f"{own}-pre", own, f"{own}-post"}
        offload = task["async_offload_overhead_us"]["A57"]
        pre = expected(task["pre_us"], task["pre_read_bytes"] + task["pre_write_bytes"], offload)
        post = expected(task["post_us"], task["post_read_bytes"] + task["post_write_bytes"])
        kernel = {CORE_ID: task["kernel_us"][core] for CORE_ID, core in CORE.items() if core in task["kernel_us"]}
        kernel["gpu"] = task["kernel_us"]["GPU_def"] + sum(task["copy_us_at_20GBps"].values())
        assert times(pipeline, f"{own}-pre") == pytest.approx(pre, abs=1.0)
        assert times(pipeline, own) == pytest.approx(kernel, abs=1.0)
        assert times(pipeline, f"{own}-post") == pytest.approx(post, abs=1.0)
        assert pipeline.stage(f"{own}-pre").period_ns == period
        assert pipeline.stage(own).after == (f"{own}-pre",) and pipeline.stage(f"{own}-post").after == (own,)
    assert {stage.name for stage in pipeline.stages} == names


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
