"""The simulation must not exceed the bounds of the analysis: random workloads, every preemption kind, both policies."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from toy_platform import MS, platform, shaken, workloads

from socsched.descriptor.pipeline import Pipeline
from socsched.planning.search import make_plan
from socsched.sim.simulate import simulate
from socsched.trace.metrics import result


@pytest.mark.parametrize("policy", ["edf", "fp"])
@pytest.mark.parametrize(("cores", "accelerator"), [("full", "segment"), ("full", "none"), ("none", "segment")])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(pipeline=workloads())
def test_no_simulated_response_exceeds_its_bound(policy: str, cores: str, accelerator: str, pipeline: Pipeline) -> None:
    plan = make_plan(
        pipeline, platform(cores, accelerator), policy=policy, work=lambda *_: None, budget=12, explain=False
    )
    bounds = {chain.name: chain.bound_ns for chain in plan.chains if chain.bound_ns is not None}
    for seed in range(3):
        made = shaken(plan, seed) if seed else plan
        figures = result(simulate(made, 800 * MS, seed), made)
        if plan.verdict != "feasible":
            continue
        for name, bound in bounds.items():
            worst = figures["chains"][name]["response_time_ns"]["max"]
            assert worst is None or worst <= bound, f"{name}: simulated {worst}, bound {bound}"
            assert figures["chains"][name]["dropped"] == figures["chains"][name]["missed"] == 0
