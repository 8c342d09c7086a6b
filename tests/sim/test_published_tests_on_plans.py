"""Published tests applied to plans: no simulated response exceeds the bounds listed in addition to the plan's own."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from toy_platform import MS, platform, shaken, workloads

from socsched.descriptor.pipeline import Pipeline
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan
from socsched.schedulability import edf, path_windows
from socsched.schedulability.explain_bounds import OWN, chain_bound, task_bounds
from socsched.schedulability.plan_analysis import DEMAND, stretches
from socsched.schedulability.tasks import rt_tasks
from socsched.sim.simulate import simulate
from socsched.trace.metrics import result


def exceeded(made: Plan, plan: Plan, seed: int) -> list[str]:
    """What a simulation of `made` shows beyond the feasible `plan`, of which it is a copy with other offsets."""
    bounds = task_bounds(plan)
    limit = {row.task: row.bound for row in bounds}
    trace, tasks, found = simulate(made, 800 * MS, seed), rt_tasks(made), []
    for job in trace.jobs:
        task, bound = tasks[job.task], limit[job.task]
        if job.status == "done" and bound is not None:
            seen = job.finish_ns - task.offset - job.frame * task.period
            if seen > bound:
                found.append(f"{job.task} frame {job.frame}: {seen} above {bound}")
    figures = result(trace, made)["chains"]
    for chain in plan.chains:
        tight = chain_bound(plan, chain, bounds)
        worst = figures[chain.name]["response_time_ns"]["max"]
        if tight is not None and worst is not None and worst > tight[0]:
            found.append(f"{chain.name}: {worst} above {tight[0]}")
        if figures[chain.name]["dropped"] or figures[chain.name]["missed"]:
            found.append(f"{chain.name}: frames lost or late")
    return found


@pytest.mark.parametrize("policy", ["edf", "fp"])
@pytest.mark.parametrize(("cores", "accelerator"), [("full", "segment"), ("full", "none"), ("none", "segment")])
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(pipeline=workloads())
@pytest.mark.sampled(3)
def test_no_response_is_above_the_tightest_bound(policy: str, cores: str, accelerator: str, pipeline: Pipeline) -> None:
    plan = make_plan(
        pipeline, platform(cores, accelerator), policy=policy, work=lambda *_: None, budget=12, explain=False
    )
    assume(plan.verdict == "feasible")
    for row in task_bounds(plan):
        assert row.own is None or (row.bound is not None and row.bound <= row.own)
    for seed in range(3):
        # Bounds hold for the phases of sensors and timers a plan has, whichever these are.
        made = shaken(plan, seed) if seed else plan
        assert exceeded(made, made, seed) == []


def test_published_tests_tighten_shipped_plans() -> None:
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.models.work import stage_work

    board = get_platform("jetson-agx-orin-64gb")
    plan = make_plan(get_pipeline("perception-stack"), board, "MAXN", policy="edf", work=stage_work, budget=20)
    bounds = task_bounds(plan)
    holistic = {edf.HOLISTIC, path_windows.NAME}
    assert any(row.test in holistic and (row.bound or 0) < (row.own or 0) for row in bounds)
    own = {row.task: row.own or 0 for row in bounds}
    assert any(chain.test in holistic for chain in plan.chains)
    for chain in plan.chains:
        parts = stretches(plan, chain)
        local = sum(own[part.last] for part in parts) + sum(part.period for part in parts[1:])
        tightened = chain.bound_ns is not None and chain.bound_ns < local
        assert tightened == (chain.test != DEMAND), "the plan's verdict rests on the shorter bound and says whose"
        tight = chain_bound(plan, chain, bounds)
        assert tight is not None and chain.bound_ns is not None
        assert tight[0] <= chain.bound_ns and (tight[1] == (OWN,)) == (tight[0] == chain.bound_ns)
    assert exceeded(plan, plan, 1) == []
