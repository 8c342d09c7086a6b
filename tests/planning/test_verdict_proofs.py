"""Evidence for "infeasible": a named proof, and no change of a pin, a share, an engine or a cut that helps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from random_pipelines import PLATFORMS, feasible_neighbour, load

from socsched.api.analysis import analyze
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.taskset import taskset_from_mapping
from socsched.models.work import stage_work
from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.plan import Plan
from socsched.planning.search import CostCache, make_plan
from socsched.planning.workload import NO_LIMITS, Limits
from socsched.reporting.analysis import taskset_document, taskset_view
from socsched.reporting.terminal import console
from socsched.schedulability.edf import HOLISTIC
from socsched.schedulability.explain_bounds import COMMON, SECTIONS, sections
from socsched.schedulability.plan_analysis import DEMAND, FIXED
from socsched.schedulability.published import choose

ORIN = "jetson-agx-orin-64gb"


def judged(seed: int, platform: str, mode: str, networks: bool, solver: str = "heft") -> Plan:
    """Return the plan of a drawn pipeline; AssertionError for an "infeasible" that some change makes feasible."""
    pipeline, board = load(Random(seed), networks), get_platform(platform)
    known = CostCache(board, stage_work)
    clock = Clock.of(2000) if solver == "cpsat" else NO_CLOCK
    plan = make_plan(
        pipeline, board, mode, work=stage_work, costs=known, solver=solver, clock=clock, explain=False, budget=120
    )
    assert (plan.verdict == "infeasible") == (plan.solver.proof is not None)
    if plan.verdict == "infeasible":
        found = feasible_neighbour(plan, pipeline, known.model(board.mode(mode)))
        assert not found, f"seed {seed} on {platform}: {plan.solver.proof.text}, and yet feasible: {found}"
    return plan


@pytest.mark.parametrize(("platform", "mode"), PLATFORMS)
@pytest.mark.slow
def test_no_infeasible_pipeline_has_a_feasible_neighbour(platform: str, mode: str) -> None:
    found = Counter(judged(seed, platform, mode, networks=seed % 5 == 0).verdict for seed in range(12))
    assert found["feasible"] and found["infeasible"], found


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "mode"), PLATFORMS)
@pytest.mark.parametrize("block", range(10))
def test_none_of_many_infeasible_pipelines_has_a_feasible_neighbour(platform: str, mode: str, block: int) -> None:
    for seed in range(100 + 50 * block, 150 + 50 * block):
        judged(seed, platform, mode, networks=seed % 3 == 0)


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "mode"), PLATFORMS)
def test_what_the_exact_solver_calls_infeasible_has_no_feasible_neighbour(platform: str, mode: str) -> None:
    pytest.importorskip("ortools")
    for seed in range(40):
        judged(seed, platform, mode, networks=False, solver="cpsat")


@pytest.mark.slow
def test_a_proof_by_bounds_names_the_requirement_and_the_least_it_asks_for() -> None:
    plan = make_plan(get_pipeline("waters2019"), get_platform("jetson-tx2"), "MAXN", work=stage_work, budget=40)
    assert plan.verdict == "infeasible"
    assert plan.solver.proof.method == "lower bound"
    assert plan.solver.proof.text.startswith("deadline of chain planner-deadline: at least 12.6 ms")
    assert plan.conflicts[0].proved


@pytest.mark.parametrize(
    ("limits", "requirement"), [(Limits(power_mw=8075), "mean power"), (Limits(bytes_per_s=10**8), "DRAM traffic")]
)
@pytest.mark.sampled(2)
def test_a_cap_below_what_stages_need_at_least_is_refused_with_a_proof(limits: Limits, requirement: str) -> None:
    pipeline = replace(get_pipeline("perception-stack"), name="capped")
    plan = make_plan(pipeline, get_platform(ORIN), "50W", work=stage_work, budget=20, limits=limits, explain=False)
    assert plan.verdict == "infeasible" and plan.solver.proof.text.startswith(requirement)
    (found,) = [v for v in plan.violations if v.requirement == requirement]
    assert found.demand > found.bound


def assert_own_figures_are_possible(pipeline: Pipeline, platform: str, mode: str | None) -> None:
    """AssertionError where a plan of the least power, or of the least traffic, is ruled out by a cap it keeps."""
    board = get_platform(platform)
    known = CostCache(board, stage_work)

    def planned(objective: str, limits: Limits) -> Plan:
        given: dict[str, Any] = {"costs": known, "limits": limits, "explain": False, "budget": 120}
        return make_plan(pipeline, board, mode, objective, work=stage_work, **given)

    for objective in ("energy", "latency"):
        free = planned(objective, NO_LIMITS)
        traffic = round(free.bandwidth.expected_gbps * 1e9) + 1000  # a plan rounds to kB/s
        capped = planned(objective, Limits(free.power.expected_mw, traffic))
        ruled = capped.solver.proof.text if capped.solver.proof else ""
        assert not ruled.startswith(("mean power", "DRAM")), f"{pipeline.name} on {platform}: {ruled}"


@pytest.mark.parametrize(("platform", "mode"), PLATFORMS)
def test_no_plan_needs_less_than_the_least_there_is(platform: str, mode: str) -> None:
    for seed in range(3):
        assert_own_figures_are_possible(load(Random(seed), True), platform, mode)


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "mode"), PLATFORMS)
def test_no_plan_of_many_needs_less_than_the_least_there_is(platform: str, mode: str) -> None:
    for seed in range(100, 160):
        assert_own_figures_are_possible(load(Random(seed), True), platform, mode)


def test_the_least_power_of_pointpillars_is_near_that_of_its_plan() -> None:
    board, pipeline = get_platform(ORIN), get_pipeline("pointpillars")
    plan = make_plan(pipeline, board, "MAXN", work=stage_work, limits=Limits(9_500))
    (bound,) = [v for v in plan.conflicts[0].requirements if v.requirement == "mean power"]
    assert 0.98 * plan.power.expected_mw < bound.demand <= plan.power.expected_mw


# The page of assumptions: every analysis has a section, and `analyze` names those that a verdict rests on.

ROOT = Path(__file__).parents[2]


def test_every_built_in_analysis_has_a_section_of_the_page() -> None:
    built_in = {test.name for test in choose.tests() if test.run.__module__.startswith("socsched.")} | {
        DEMAND,
        FIXED,
        HOLISTIC,
    }
    listed = [name for names in SECTIONS.values() for name in names]
    assert built_in <= set(listed)
    assert len(listed) == len(set(listed))
    page = (ROOT / "docs/proofs.md").read_text().splitlines()
    assert [line[3:] for line in page if line.startswith("## ")] == [COMMON, *SECTIONS]


def test_an_analysis_from_elsewhere_is_cited_by_its_name() -> None:
    assert sections(["FIFO response times", "theirs"]) == [COMMON, "FIFO response times", "theirs"]
    assert sections([]) == []


def test_the_verdict_of_a_task_set_names_its_sections() -> None:
    rows = [{"period": 10, "wcet": 2, "prio": 0}, {"period": 20, "wcet": 3, "prio": 1}]
    data = {"policy": "NP-FP", "tasks": [row | {"arrivals": "sporadic"} for row in rows]}
    found = analyze(taskset_from_mapping(data, "two"))
    document = taskset_document(found)
    assert document["proofs"]["sections"] == [COMMON, "Fixed priorities, no preemption"]
    shown = console(200)
    with shown.capture() as text:
        shown.print(taskset_view(found, document))
    assert "It rests on docs/proofs.md: Common model; Fixed priorities, no preemption." in text.get()


def test_the_verdict_of_a_plan_names_its_sections() -> None:
    document = analyze(ROOT / "tests/golden/perception_stack_orin.plan.json").document
    found = document["proofs"]["sections"]
    assert {COMMON, "Execution times under shared bandwidth", "Sampled chains"} <= set(found)
    assert all(set(chain["proofs"]) <= set(found) for chain in document["chains"])
