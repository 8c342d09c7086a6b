"""The WATERS 2019 challenge planned: infeasible cases with their terms, feasible ones, and an hour of simulation.

The same as commands:
    socsched plan waters2019 -p jetson-tx2 -m MAXN --pin sfm=gpu --pin localization=gpu --pin lane-detection=gpu
    socsched plan waters2019 -p jetson-tx2 -m MAXN --policy fp
and, in a copy of the pipeline with a deadline of 15 ms for planner-deadline:
    socsched plan COPY.yaml -p jetson-tx2 -m MAXN --policy fp --solver cpsat --evaluations 3000 -o plan.json
    socsched simulate plan.json --duration 1h
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from datafiles import read

from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.models.work import stage_work
from socsched.planning.clock import Clock
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan
from socsched.sim.results import totals
from socsched.sim.simulate import run
from socsched.trace.summary import result

MS = 1_000_000
KERNELS = {"SFM": "sfm", "Localization": "localization", "Lane_detection": "lane-detection", "Detection": "detection"}


@pytest.fixture(scope="module")
def model() -> dict[str, dict[str, Any]]:
    document = read("waters2019.json")
    return {task["task"]: task for task in document["tasks"]}


def planned(pipeline: Pipeline, solver: str = "heft", evaluations: int | None = None) -> Plan:
    board = get_platform("jetson-tx2")
    return make_plan(
        pipeline, board, "MAXN", policy="fp", work=stage_work, budget=60, clock=Clock.of(evaluations), solver=solver
    )


@pytest.mark.slow
def test_all_kernels_on_the_gpu_are_refused_for_utilisation(model: dict[str, dict[str, Any]]) -> None:
    pipeline = get_pipeline("waters2019")
    pinned = tuple(replace(s, engines=("gpu",)) if s.name in KERNELS.values() else s for s in pipeline.stages)
    plan = planned(replace(pipeline, stages=pinned))
    assert plan.verdict == "infeasible"
    proofs = {v.requirement: v for c in plan.conflicts if c.proved for v in c.requirements}
    full = proofs["utilisation of gpu"]
    assert set(dict(full.terms)) == set(KERNELS.values()) and sum(dict(full.terms).values()) == full.demand
    kernels = copies = 0.0
    for name, stage in KERNELS.items():
        task = model[name]
        alone, copied = task["kernel_us"]["GPU_def"], sum(task["copy_us_at_20GBps"].values())
        assert dict(full.terms)[stage] == pytest.approx((alone + copied) / task["period_us"] * 1e9, rel=1e-4)
        kernels, copies = kernels + alone / task["period_us"], copies + copied / task["period_us"]
    assert kernels == pytest.approx(1.544, abs=5e-4)
    assert full.demand / 1e9 == pytest.approx(1.544 + copies, abs=1e-3) and full.bound == 10**9


@pytest.mark.slow
def test_the_planner_is_refused_with_its_execution_times(model: dict[str, dict[str, Any]]) -> None:
    plan = planned(get_pipeline("waters2019"))
    assert plan.verdict == "infeasible"
    found = next(v for v in plan.violations if v.requirement == "deadline of chain planner-deadline")
    task = next(t for t in plan.tasks if t.name == "planner")
    assert dict(found.terms)["planner: wcet"] == task.wcet_ns > found.bound == 12 * MS
    (proof,) = [c for c in plan.conflicts if c.proved]
    (late,) = proof.requirements
    ((name, fastest),) = late.terms
    assert late.requirement == found.requirement and late.bound == model["Planner"]["deadline_us"] * 1000
    assert name == "planner: least on any engine"
    assert fastest > min(model["Planner"]["wcet_us"].values()) * 1000 > late.bound


@pytest.mark.slow
def test_with_15_ms_for_the_planner_a_mapping_is_found_and_holds_for_an_hour() -> None:
    pytest.importorskip("ortools")
    pipeline = get_pipeline("waters2019")
    chains = tuple(replace(c, deadline_ns=15 * MS) if c.name == "planner-deadline" else c for c in pipeline.chains)
    plan = planned(replace(pipeline, chains=chains), "cpsat", 3000)
    assert plan.verdict == "feasible" and not plan.violations and not plan.conflicts
    assert all((chain.bound_ns or 0) <= chain.deadline_ns for chain in plan.chains)
    done = run(plan, 3600 * 10**9, record=False)
    figures = result(totals(done), plan)["chains"]
    bounds = {chain.name: chain.bound_ns or 0 for chain in plan.chains}
    for name, chain in figures.items():
        assert chain["missed"] == chain["dropped"] == 0 and chain["completed"] > 0, name
        assert chain["response_time_ns"]["max"] <= bounds[name], name
    assert figures["dasm-deadline"]["completed"] == 720_000
