"""The longest chain as an objective, and the best of all planners' plans by it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import pytest

from socsched.api.comparison import OURS, Outcome, best, compare_planners
from socsched.api.planning import mean_times
from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.errors import UsageError
from socsched.graph.taskgraph import task_graph
from socsched.models.work import stage_work
from socsched.planning import search as ours
from socsched.planning.candidate import judge, least_score, objective_value
from socsched.planning.mapping.local_search import solve
from socsched.planning.plan import Plan
from socsched.planning.planners import planner
from socsched.planning.planners.propose import make_plan
from socsched.planning.workload import Observed, Workload

XAVIER = "jetson-agx-xavier"


def detectors(count: int) -> Pipeline:
    """Return so many detectors behind one camera, each a chain."""
    whole = get_pipeline("camera-detection")
    camera = replace(whole.sensors[0], period_ns=100_000_000)
    one = replace(whole.stage("detect"), after=(camera.name,), precisions=("fp16",), queue=2, engines=("gpu", "dla"))
    stages = tuple(replace(one, name=f"net{n}") for n in range(count))
    chains = tuple(
        replace(whole.chains[0], name=s.name, path=(camera.name, s.name), deadline_ns=100_000_000) for s in stages
    )
    return replace(whole, sensors=(camera,), stages=stages, chains=chains)


def mine(pipeline: Pipeline, objective: str, board: str = XAVIER) -> Plan:
    return ours.make_plan(
        pipeline,
        get_platform(board),
        "MAXN",
        objective,
        work=stage_work,
        explain=False,
        cuts=False,
        simulate=mean_times,
    )


@pytest.mark.parametrize("waiting_ms", [0, 15, 25])
def test_the_longest_chain_is_as_short_as_any_mapping_makes_it(waiting_ms: int) -> None:
    """Two networks, the second of which was seen to wait on the GPU: all mappings by force."""
    platform, pipeline = get_platform(XAVIER), detectors(2)
    model = CostModel(platform, platform.mode("MAXN"), stage_work)
    seen = Observed({("net1", "gpu"): waiting_ms * 1_000_000})
    workload = Workload.of(task_graph(pipeline), model, "edf", seen)
    values = []
    for pair in itertools.product(*workload.options().values()):
        candidate = judge(workload, {cost.stage: cost for cost in pair}, False)
        value = objective_value(candidate, "longest")
        assert value == max(chain.expected_ns for chain in candidate.assessment.chains)
        assert value == least_score(candidate.deployment, ("longest",))[1]
        values.append((candidate.verdict != "feasible", value))
    found = solve(workload, ("longest",))
    assert (found.candidate.verdict != "feasible", found.score[1]) == min(values)


def test_the_plan_says_the_longest_chain_as_simulated() -> None:
    plan = mine(detectors(3), "longest")
    assert plan.solver.value == max(chain.expected_ns for chain in plan.chains) and plan.solver.rounds >= 1


@pytest.mark.slow
def test_the_longest_chain_is_made_shorter_at_the_cost_of_the_sum() -> None:
    board = "jetson-agx-orin-64gb"
    by = {goal: [c.expected_ns for c in mine(detectors(5), goal, board).chains] for goal in ("latency", "longest")}
    assert max(by["longest"]) < max(by["latency"])
    assert sum(by["latency"]) <= sum(by["longest"])


@pytest.mark.slow
def test_the_best_plan_is_no_worse_than_any() -> None:
    pipeline = detectors(3)

    def make(name: str, options: Mapping[str, str]) -> Plan:
        if name == OURS:
            return mine(pipeline, "longest")
        return make_plan(planner(name), pipeline, get_platform(XAVIER), "MAXN", work=stage_work)

    outcomes = compare_planners([(OURS, {}), ("h2h", {}), ("herald", {}), ("axonn", {})], make)
    found = best(outcomes, "longest")
    plans = [o for o in outcomes if o.plan is not None and o.plan.verdict == "feasible"]
    assert len(plans) >= 2 and outcomes[-1].refusal
    assert found.last_ns == min(o.last_ns for o in plans) and found.plan and found.plan.verdict == "feasible"
    assert best(outcomes, "latency,energy").latency_ns == min(o.latency_ns for o in plans)
    assert best(outcomes, "energy").power_mw == min(o.power_mw for o in plans)
    with pytest.raises(UsageError, match="cannot be compared by slack"):
        best(outcomes, "slack")
    with pytest.raises(UsageError, match="no planner supports"):
        best([Outcome("axonn", {}, 0.0, refusal="too many")], "latency")
