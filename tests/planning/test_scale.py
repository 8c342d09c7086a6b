"""Pipelines of many stages: what is kept from mapping to mapping changes no result; the shipped one is analysed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.graph.taskgraph import task_graph
from socsched.models.work import stage_work
from socsched.planning import scores
from socsched.planning.candidate import judge, quick_score, score, utilisations
from socsched.planning.clock import NO_CLOCK
from socsched.planning.deployment import deploy
from socsched.planning.feasibility.lower_bounds import beyond_proof
from socsched.planning.mapping import neighbourhoods
from socsched.planning.mapping.local_search import given, initial_mapping
from socsched.planning.recheck import recheck
from socsched.planning.workload import Unconnectable, Workload
from tools.bench import planner_finds, scale
from tools.verify.random_plans import case_workload, draw_case

ORIN, MODE = scale.ORIN, scale.MODE


@pytest.mark.parametrize("policy", ["edf", "fp"])
@pytest.mark.parametrize(("family", "count"), [("chains", 48), ("random", 24), ("fan", 32), ("eight", 32)])
def test_a_move_is_judged_as_if_nothing_had_been_before(family: str, count: int, policy: str) -> None:
    pipeline, platform = scale.instance(family, count)
    draw, kept = Random(0), scale.workload_of(pipeline, platform, policy)
    mapping, options = initial_mapping(kept), kept.options()
    for turn in range(6):
        name = draw.choice([name for name, costs in options.items() if len(costs) > 1] or list(options))
        mapping = {**mapping, name: draw.choice(options[name])}
        mine, fresh = (
            judge(load, mapping, turn == 5) for load in (kept, scale.workload_of(pipeline, platform, policy))
        )
        assert mine.assessment == fresh.assessment
        assert mine.violations == fresh.violations


@pytest.mark.parametrize("policy", ["edf", "fp"])
@pytest.mark.parametrize(("family", "count"), [("chains", 48), ("random", 24), ("fan", 40), ("one", 24), ("eight", 48)])
def test_scores_of_moves_are_those_of_the_whole_analysis(family: str, count: int, policy: str) -> None:
    pipeline, platform = scale.instance(family, count)
    draw, workload = Random(1), scale.workload_of(pipeline, platform, policy)
    mapping, options, flat = initial_mapping(workload), workload.options(), 0
    for _ in range(8):
        name = draw.choice(list(options))
        mapping = {**mapping, name: draw.choice(options[name])}
        deployment = deploy(workload, mapping)
        for goals in (("latency",), ("energy", "slack"), ("throughput", "longest")):
            quick = quick_score(deployment, goals)
            flat += quick is not None
            assert quick is None or quick == score(judge(workload, mapping, False), goals)
    assert flat or (family, policy) == ("random", "fp")


def test_nothing_is_known_by_the_identity_of_a_task_that_is_no_longer_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = planner_finds.instance(0, 64, 0.7)
    assert planted
    workload = scale.workload_of(planted[0], get_platform(ORIN), "edf")
    mapping = initial_mapping(workload)
    quick_score(deploy(workload, mapping), ("latency",))
    flat = workload.flat
    assert flat and flat._rt
    flat._rows |= {-1 - n: row for n, row in enumerate(flat._rows.values())}  # as those of many mappings
    monkeypatch.setattr(scores, "_MOST", len(flat._rows) - 1)
    name = next(name for name, costs in workload.options().items() if len(costs) > 1)
    other = next(cost for cost in workload.options()[name] if cost is not mapping[name])
    quick_score(deploy(workload, {**mapping, name: other}), ("latency",))
    assert {identity for identity, _ in flat._rt} <= flat._rows.keys()


def test_scores_with_windows_of_paths_are_those_of_the_whole_analysis() -> None:
    planted = planner_finds.instance(0, 64, 0.7)
    assert planted
    workload = scale.workload_of(planted[0], get_platform(ORIN), "edf")
    draw, options, mapping, shortened = Random(0), workload.options(), initial_mapping(workload), 0
    for _ in range(4):
        deployment = deploy(workload, mapping)
        quick = quick_score(deployment, ("latency", "slack"))
        shortened += quick is not None
        assert quick is None or quick == score(judge(workload, mapping, False), ("latency", "slack"))
        name = draw.choice(list(options))
        mapping = {**mapping, name: draw.choice(options[name])}
    assert shortened


@pytest.mark.parametrize("policy", ["edf", "fp"])
def test_many_stages_are_searched_alike_each_time_and_never_worse_with_more_work(policy: str) -> None:
    planted = planner_finds.instance(0, 64, 0.5)
    assert planted
    values = []
    for budget in (60, 60, 300):
        workload = scale.workload_of(planted[0], get_platform(ORIN), policy)
        start = given(workload, initial_mapping(workload), ("latency",))
        found = neighbourhoods.search(start, workload, ("latency",), budget, NO_CLOCK)
        values.append((found.score, found.candidate.deployment.mapping))
        assert found.score <= start.score
    assert values[0] == values[1]
    assert values[2][0] <= values[1][0]
    assert values[2][0] < start.score


@pytest.mark.parametrize("seed", range(60))
def test_scores_of_drawn_plans_are_those_of_the_whole_analysis(seed: int) -> None:
    case = draw_case(seed)
    workload = case_workload(case)
    draw, options = Random(seed), workload.options()
    for _ in range(4):
        mapping = {name: draw.choice(costs) for name, costs in options.items()}
        try:
            deployment = deploy(workload, mapping)
        except Unconnectable:
            continue
        for goals in (("latency",), ("energy", "slack"), ("throughput", "longest")):
            quick = quick_score(deployment, goals)
            assert quick is None or quick == score(judge(workload, mapping, False), goals)


@pytest.mark.parametrize("policy", ["edf", "fp"])
def test_the_recorded_autoware_is_analysed_whole(policy: str) -> None:
    pipeline, platform = get_pipeline("autoware-universe"), get_platform(ORIN)
    assert len(pipeline.stages) >= 250
    plan = scale.list_plan(pipeline, platform, policy)
    checked = recheck(plan)
    assert checked.plan.verdict == plan.verdict == "undecided"
    assert checked.whole is not None
    assert all(response.bounded for response in checked.whole.tight.values())
    for mine, chain in zip(checked.plan.chains, plan.chains, strict=True):  # of a far worse plan, a search asks less
        assert mine.bound_ns is not None
        assert mine.bound_ns <= (chain.bound_ns or 0)


def test_a_chain_longer_than_the_stack_has_a_verdict() -> None:
    workload = Workload.of(
        task_graph(scale.line(1200)),
        CostModel(get_platform(ORIN), get_platform(ORIN).mode(MODE), stage_work, None),
        "fp",
    )
    assert judge(workload, initial_mapping(workload), False).verdict in ("feasible", "undecided")


def test_no_bound_is_below_the_least_of_all_mappings() -> None:
    compared = 0
    for seed in range(150):
        workload = case_workload(draw_case(seed))
        pipeline = workload.graph.pipeline
        asked = (replace(c, deadline_ns=0, max_age_ns=None if c.max_age_ns is None else 0) for c in pipeline.chains)
        eager = workload.asking(task_graph(replace(pipeline, chains=tuple(asked))))
        least = {one.requirement: one.demand for one in beyond_proof(eager, {})}
        draw = Random(seed)
        try:
            found = judge(workload, {name: draw.choice(costs) for name, costs in workload.options().items()})
        except Unconnectable:
            continue
        for chain in found.assessment.chains:
            if chain.bound_ns is not None:
                compared += 1
                assert chain.bound_ns >= least[f"deadline of chain {chain.name}"]
                age = found.assessment.ages[chain.name]
                assert chain.max_age_ns is None or age.value >= least[f"data age of chain {chain.name}"]
    assert compared > 100


def test_a_search_that_no_bound_can_end_says_so_and_does_not_go_on() -> None:
    plan = plan_with(
        get_pipeline("autoware-universe"), get_platform(ORIN), MODE, PlanOptions(policy="edf", evaluations=12)
    )
    assert plan.verdict == "undecided"
    (line,) = plan.solver.decide or ()
    assert "deadline of chain e2e-sensing-to-control: at least 750.8 ms" in line
    assert not plan.conflicts


def test_levelled_engines_lead_to_a_plan_where_a_list_schedule_fills_one() -> None:
    planted = planner_finds.instance(8, 128, 0.85)
    assert planted
    workload = scale.workload_of(planted[0], get_platform(ORIN), planted[1])
    listed = given(workload, initial_mapping(workload), ("latency",))
    found = neighbourhoods.levelled(listed, workload, ("latency",), NO_CLOCK)
    assert found.score[0] < listed.score[0]
    assert max(utilisations(found.candidate.assessment.tasks).values()) <= 1
