"""The searches after the list search: restarts, priorities by Audsley's algorithm, deadlines given as options."""

from __future__ import annotations

from dataclasses import replace

import pytest

import socsched as ss
from socsched.api.planning import set_deadlines
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import PER_COST, High
from socsched.errors import UsageError
from socsched.models.work import stage_work
from socsched.planning.search import Attempt, SearchRequest, make_plan
from socsched.schedulability.holistic import assign_priorities, holistic
from socsched.schedulability.tasks import RtTask


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
    from socsched.reporting.view_model import undecided

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
