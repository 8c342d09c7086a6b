"""The search: attempts in order, an end by work, and expected times that are those of the simulated schedule."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

import socsched as ss
from socsched.api.planning import mean_times, set_deadlines
from socsched.api.planning import plan as plan_of
from socsched.cost.profile import MeasuredCost, Profile
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import PER_COST, High
from socsched.errors import UsageError
from socsched.models.work import stage_work
from socsched.planning import clock, search
from socsched.planning.clock import Clock, count
from socsched.planning.io import to_document
from socsched.planning.plan import Necessity, Plan, Proof, Uncertainty
from socsched.planning.search import Attempt, SearchRequest, make_plan, modes_of, refine, steady_ns
from socsched.reporting import junit, summary
from socsched.reporting.plan_diff import diff
from socsched.reporting.terminal import console, plan_view
from socsched.reporting.view_model import undecided
from socsched.schedulability.holistic import assign_priorities, holistic
from socsched.schedulability.tasks import RtTask
from socsched.sim.simulate import run
from socsched.trace.metrics import result


def attempts(*words: str) -> tuple[Attempt, ...]:
    board = get_platform("juno")
    return SearchRequest.of(get_pipeline("waters2019"), board, None, *words, work=stage_work, evaluations=768).attempts


def task(name: str, wcet: int, period: int, deadline: int, segment: int = 0) -> RtTask:
    kind = "segment" if segment else "full"
    return RtTask(name, frozenset([("cpu", 0)]), wcet, period, deadline, segment=segment, preemption=kind)


def test_audsley_finds_priorities_that_deadline_order_misses() -> None:
    """With deadlines beyond the period, deadline-monotonic priorities are not optimal."""
    tasks = {t.name: t for t in (task("a", 52, 100, 110), task("b", 52, 140, 154))}  # Lehoczky 1990
    rank = assign_priorities(tasks, {"a": 110, "b": 154})
    ranked = {n: RtTask(**{**_fields(t), "priority": rank[n]}) for n, t in tasks.items()}
    answers = holistic(ranked)
    best = [answers[n].value <= tasks[n].deadline for n in tasks]
    swapped = {n: RtTask(**{**_fields(t), "priority": 1 - rank[n]}) for n, t in tasks.items()}
    other = [holistic(swapped)[n].value <= tasks[n].deadline for n in tasks]
    assert all(best) and not all(other)
    assert rank["b"] < rank["a"]  # deadline order is the other one


def _fields(task: RtTask) -> dict[str, object]:
    return {name: getattr(task, name) for name in RtTask.__dataclass_fields__}


def test_the_portfolio_starts_with_the_list_search_and_keeps_the_policy_asked_for() -> None:
    names = [(attempt.policy, attempt.solver) for attempt in attempts("latency", "auto", "portfolio")]
    assert names[:3] == [("edf", "heft"), ("edf", "restarts"), ("fp", "restarts")]
    assert {attempt.policy for attempt in attempts("latency", "fp", "portfolio")} == {"fp"}
    assert [(a.policy, a.solver) for a in attempts("latency", "edf", "heft")] == [("edf", "heft")]
    assert not any(attempt.solver == "cpsat" for attempt in attempts("energy", "auto", "portfolio"))


def test_deadlines_replace_those_of_the_pipeline() -> None:
    pipeline = get_pipeline("waters2019")
    changed = set_deadlines(pipeline, ["planner-deadline=15ms"])
    assert {c.name: c.deadline_ns for c in changed.chains}["planner-deadline"] == 15_000_000
    for text, expected in (("planner=15ms", "no chain 'planner'"), ("planner-deadline=soon", "--deadline")):
        with pytest.raises(UsageError, match=expected):
            set_deadlines(pipeline, [text])


def test_a_plan_not_proved_at_the_high_level_leads_to_the_next_search() -> None:
    """EDF's local deadlines leave no room for the longer times; fixed priorities do."""
    pipeline = get_pipeline("perception-stack")
    longer = High(18 * PER_COST // 10, relative=True)
    stages = tuple(replace(s, high=longer) if s.name == "control" else s for s in pipeline.stages)
    mixed = replace(pipeline, stages=stages)
    board = "jetson-agx-orin-64gb"
    found = ss.plan(mixed, board, explain=False, refine=False)
    assert (found.verdict, found.policy, found.solver.found_by) == ("feasible", "fp", "restarts under fp")
    kept = ss.plan(mixed, board, policy="edf", solver="heft", evaluations=None, explain=False, refine=False)
    assert kept.verdict == "undecided" and any("--policy fp" in line for line in kept.solver.decide or ())


@pytest.mark.slow
def test_waters_with_15_ms_for_the_planner_is_found_without_an_exact_solver() -> None:
    pipeline = set_deadlines(get_pipeline("waters2019"), ["planner-deadline=15ms"])
    plan = make_plan(
        pipeline, get_platform("jetson-tx2"), "MAXN", policy="fp", work=stage_work, solver="restarts", explain=False
    )
    assert plan.verdict == "feasible" and not plan.violations


@pytest.mark.slow
def test_an_undecided_plan_states_its_gap_and_what_would_decide_it() -> None:
    options = {"solver": "heft", "policy": "edf", "deadlines": "planner-deadline=15ms", "evaluations": None}
    plan = ss.plan("waters2019", "jetson-tx2", "MAXN", refine=False, explain=False, **options)
    assert plan.verdict == "undecided" and plan.solver.portfolio == ("list search under edf",)
    gaps = {one.requirement: one for one in plan.solver.open or ()}
    assert set(gaps) == {violation.requirement for violation in plan.violations}
    for gap in gaps.values():
        assert gap.least is not None and gap.least <= gap.bound < gap.demand
    assert any("exact search" in line for line in plan.solver.decide or ())
    assert len(undecided(plan)) == len(gaps) + len(plan.solver.decide or ())


def test_a_decided_plan_leaves_nothing_open() -> None:
    plan = ss.plan("waters2019", "jetson-tx2", "MAXN", solver="heft", policy="edf", refine=False, explain=False)
    assert plan.verdict == "infeasible" and plan.solver.open is None and plan.solver.decide is None


def slowed(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let every look at the clock of planning take so long."""
    ticks = itertools.count()
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: next(ticks) * seconds))


def text(plan: Plan) -> str:
    return json.dumps(to_document(plan))


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("pointpillars", "jetson-agx-orin-64gb", {"evaluations": 96}),
    ("camera-detection", "rk3588", {"evaluations": 96, "mode": None}),
    ("autoware-reference", "jetson-orin-nano-8gb", {"evaluations": 96, "refine": False}),
]


@pytest.mark.parametrize(("pipeline", "platform", "options"), CASES)
def test_a_slower_machine_makes_the_same_plan(
    pipeline: str, platform: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = set()
    for seconds in (0.001, 0.05):
        slowed(monkeypatch, seconds)
        plan = ss.plan(pipeline, platform, time_limit=10.0**6, **options)
        assert plan.solver.cut_off is None
        texts.add(text(plan))
    slowed(monkeypatch, 50.0)
    plan = ss.plan(pipeline, platform, time_limit=100.0, **options)
    assert plan.solver.cut_off or text(plan) in texts
    assert len(texts) == 1


def cut_off(monkeypatch: pytest.MonkeyPatch) -> tuple[Plan, Plan]:
    """Return a plan, and the one that a limit on time cut off."""
    whole = ss.plan("pointpillars", "jetson-agx-orin-64gb", "MAXN", refine=False)
    slowed(monkeypatch, 1.0)
    part = ss.plan("pointpillars", "jetson-agx-orin-64gb", "MAXN", refine=False, time_limit=5.0)
    assert whole.solver.cut_off is None and part.solver.cut_off
    return whole, part


def test_a_plan_that_was_cut_off_says_so_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    _, plan = cut_off(monkeypatch)
    said = "a limit on time cut the search off"
    assert said in summary.render(plan, None, {})
    root = ElementTree.fromstring(junit.render(plan, {}).split("\n", 1)[1])
    assert [case.find("skipped") is not None for case in root.iter("testcase") if case.get("name") == "search"] == [
        True
    ]
    screen = console(200)
    with screen.capture() as shown:
        screen.print(plan_view(plan))
    assert said in shown.get()


def test_a_plan_that_was_cut_off_is_no_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, part = cut_off(monkeypatch)
    slower = tuple(replace(chain, bound_ns=2 * (chain.bound_ns or 1)) for chain in whole.chains)
    worse = replace(whole, chains=slower, verdict="undecided")
    assert len(diff(whole, worse, 0.05).regressions) > 1
    for report in (part.solver, replace(whole.solver, status="time limit")):  # as earlier versions say it
        late = replace(worse, solver=report)
        found = diff(whole, late, 0.05)
        assert found.regressions == () and any("the search for B was cut off" in line for line in found.changes)
        assert diff(late, worse, 0.05).regressions == ()
    proof = Proof("bounds", "x", (Necessity("path", "drive", 9, 8, "ns", (("decode", 9),)),))
    proved = replace(worse, solver=replace(part.solver, proof=proof), verdict="infeasible")
    assert diff(whole, proved, 0.05).regressions == ("verdict feasible → infeasible",)


def test_a_clock_counts_the_work_of_its_own_thread_and_its_parts() -> None:
    whole = Clock.of(100)
    half = whole.part(0.5)
    count(49)
    assert not half.over() and half.left() == 1
    count(1)
    assert half.over() and not whole.over() and not whole.cut_off
    late = Clock.of(100, seconds=0.0).part(0.5)
    assert late.over() and late.left() == 0 and late.cut_off


@pytest.mark.parametrize("seed", range(3))
def test_a_larger_budget_is_never_worse(seed: int) -> None:
    """Values are simulated ones; the search alone is worse with more evaluations on some of these."""
    pipeline = ("pointpillars", "camera-detection", "perception-stack")[seed]
    values: list[float] = []
    for evaluations in (12, 96, 768):
        found = ss.plan(pipeline, "jetson-agx-orin-64gb", "MAXN", evaluations=evaluations, explain=False)
        assert values == [] or found.verdict == "feasible"
        # an estimate that nothing simulated would win over what a larger budget found and simulated
        assert found.verdict != "feasible" or found.solver.rounds
        values += [found.solver.value or 0] if found.verdict == "feasible" else []
    assert values and values == sorted(values, reverse=True)


SECOND = 10**9


def both(pipeline: str, platform: str, mode: str) -> tuple[Plan, Plan]:
    """Return a plan as first made, and refined."""
    workload, board = get_pipeline(pipeline), get_platform(platform)
    first = make_plan(workload, board, mode, work=stage_work, cuts=False)
    return first, make_plan(workload, board, mode, work=stage_work, cuts=False, simulate=mean_times)


def means(plan: Plan, duration_ns: int, seed: int) -> dict[str, float]:
    """Return the mean response of every chain as simulated."""
    trace = run(plan, duration_ns, seed).trace
    assert trace is not None
    return {name: chain["response_time_ns"]["mean"] for name, chain in result(trace, plan)["chains"].items()}


@pytest.mark.parametrize(
    ("pipeline", "platform", "mode"),
    [
        ("pointpillars", "jetson-agx-orin-64gb", "30W"),
        ("camera-detection", "jetson-agx-orin-64gb", "MAXN"),
        ("autoware-reference", "jetson-agx-orin-64gb", "MAXN"),
        pytest.param("perception-stack", "jetson-agx-orin-64gb", "MAXN", marks=pytest.mark.slow),
        pytest.param("perception-stack", "jetson-agx-orin-64gb", "50W", marks=pytest.mark.slow),
        pytest.param("perception-stack", "jetson-agx-xavier", "MAXN", marks=pytest.mark.slow),
        pytest.param("waters2019", "jetson-agx-orin-64gb", "MAXN", marks=pytest.mark.slow),
    ],
)
@pytest.mark.sampled(3)
def test_expected_times_are_the_simulators_within_one_percent(pipeline: str, platform: str, mode: str) -> None:
    first, plan = both(pipeline, platform, mode)
    if first.verdict != "feasible":
        assert plan == first
        return
    seen = means(plan, 3 * steady_ns(plan) + SECOND, seed=5)
    for chain in plan.chains:
        assert chain.expected_ns == pytest.approx(seen[chain.name], rel=0.01), chain.name
    assert plan.solver.rounds >= 1 and plan.solver.value == sum(chain.expected_ns for chain in plan.chains)
    # Refining compares simulations, so what it ends with is no slower than what it began with.
    assert sum(seen.values()) <= sum(means(first, 3 * steady_ns(first) + SECOND, seed=5).values()) * 1.01


@pytest.mark.slow
def test_an_overloaded_plan_is_left_unchanged() -> None:
    plan = make_plan(get_pipeline("centerpoint-pillar"), get_platform("jetson-agx-orin-64gb"), "15W", work=stage_work)
    assert plan.verdict == "infeasible"
    assert refine(plan, mean_times) is plan


def test_a_network_cut_between_engines_takes_what_the_plan_expects() -> None:
    """Frames in flight on two engines slow each other down; the estimate without interference does not see it."""
    from tests.planning.cut_detector import MS, by_rooflines, detector

    plan = make_plan(detector(7 * MS // 2), by_rooflines(), "15W", work=stage_work)
    assert plan.verdict == "feasible" and len(plan.tasks) > 1
    (chain,) = refine(plan, mean_times).chains
    assert chain.expected_ns == pytest.approx(means(plan, SECOND, seed=3)[chain.name], rel=2e-4)
    assert chain.expected_ns > plan.chains[0].expected_ns


def test_only_the_plan_that_is_kept_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    explained = []

    def record(plan: Plan, *_: object) -> Uncertainty:
        explained.append(plan)
        return Uncertainty("latency")

    monkeypatch.setattr(search, "uncertainty", record)
    plan = plan_of("autoware-reference", "rk3588", "performance", evaluations=None)
    assert plan.solver.rounds > 1
    assert [each.tasks for each in explained] == [plan.tasks]
    assert plan.uncertainty.objective == "latency"


@pytest.mark.parametrize(("measured", "asked", "tried"), [
    (("MAXN",), None, {"MAXN"}),
    (("maxn", "MODE_30W"), None, {"MAXN", "MODE_30W"}),
    (("MAXN",), "auto", None),
    ((), None, None),
    (("MAXN",), "MODE_30W", {"MODE_30W"}),
])  # fmt: skip
def test_modes_that_a_profile_did_not_measure_are_not_compared_with_those_it_did(
    measured: tuple[str, ...], asked: str | None, tried: set[str] | None
) -> None:
    board = get_platform("jetson-agx-orin-64gb")
    costs = tuple(MeasuredCost("voxelise", "cpu0", mode, "fp32", 1, 10**6) for mode in measured)
    modes = modes_of(board, asked, Profile(board.name, costs))
    assert {mode.name for mode in modes} == (tried or {mode.name for mode in board.modes})
    assert modes_of(board, None, Profile("another board", costs)) == board.modes
