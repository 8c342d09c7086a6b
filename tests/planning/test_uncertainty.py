"""Ties and the measurement to make first, on systems small enough for worked examples.

Plans for the upper ends of costs' intervals.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.api.simulation import simulate_plan
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Figure
from socsched.errors import UsageError
from socsched.planning.clock import Clock
from socsched.planning.feasibility.remedies import verify_levers
from socsched.planning.plan import Plan
from socsched.planning.search import Found, SearchRequest, run_pass
from socsched.planning.uncertainty import _expected
from socsched.reporting.terminal import open_questions
from tests.sim.toy_platform import MS, lines, platform, takes


def draft_of(*stages: tuple[dict[str, tuple[float, float]], int]) -> Found:
    """Return what is found for stages, each with a sensor: times (ms) and errors by engine, and a deadline (ms)."""
    made = []
    for number, (costs, deadline) in enumerate(stages):
        times = tuple(
            takes(e, Figure(time * MS, "derived", f"bench of {e}", error=error), int(e == "cpu"))
            for e, (time, error) in costs.items()
        )
        made.append((40 * MS, deadline * MS, (Stage(f"t{number}", "", None, costs=times, share=1),)))
    return run_pass(SearchRequest.of(lines(*made), platform("full", "segment"), work=lambda *_: None))


def planned(*stages: tuple[dict[str, tuple[float, float]], int]) -> Plan:
    """Return the plan of `draft_of`."""
    return draft_of(*stages).finished()


def test_a_plan_closer_than_its_error_is_a_tie_and_the_weak_figure_is_to_be_measured() -> None:
    plan = planned(({"acc": (4.0, 0.05), "cpu": (4.4, 0.5)}, 40))
    assert plan.tasks[0].engine == "acc"
    (tie,) = plan.uncertainty.ties
    assert (tie.stage, tie.instead) == ("t0", "cpu fp32")
    widths = 4.2 - 4 / 1.05, 6.6 - 4.4 / 1.5
    assert tie.difference == pytest.approx(0.4 * MS) and tie.error == pytest.approx(sum(widths) / 2 * MS)
    wish = plan.uncertainty.measure
    assert (wish.stage, wish.engine) == ("t0", "cpu")
    # cpu in 2.93 to 6.6 ms: better by (4 - t) where t < 4, that is on 1.07 of 3.67 ms, by half of that on average
    better = 4 - 4.4 / 1.5
    assert wish.gain == pytest.approx(better / (6.6 - 4.4 / 1.5) * better / 2 * MS, rel=1e-3)
    assert wish.verdict_flips == 0


def test_what_differs_by_more_than_the_error_is_no_tie() -> None:
    plan = planned(({"acc": (4.0, 0.05), "cpu": (8.0, 0.1)}, 40))
    assert plan.uncertainty.ties == () and plan.uncertainty.measure is None


def test_what_may_overturn_the_verdict_comes_first() -> None:
    plan = planned(({"acc": (4.0, 0.05), "cpu": (4.4, 0.5)}, 40), ({"acc": (16.0, 0.5)}, 22))
    assert plan.verdict == "feasible"
    wish = plan.uncertainty.measure
    assert (wish.stage, wish.engine) == ("t1", "acc") and 0 < wish.verdict_flips <= 0.5
    assert (wish.low_ns, wish.high_ns) == (round(16 * MS / 1.5), 24 * MS)


def test_a_refused_plan_names_the_figure_that_would_save_it() -> None:
    plan = planned(({"acc": (16.0, 0.5)}, 14), ({"cpu": (3.0, 0.1)}, 40))
    assert plan.verdict == "infeasible"
    assert plan.uncertainty.measure.stage == "t0" and plan.uncertainty.ties == ()


def test_the_mean_of_the_positive_part() -> None:
    assert _expected(3.0, -1.0) == pytest.approx(9 / 8)
    assert _expected(-1.0, -2.0) == 0 and _expected(1.0, 3.0) == 2


def test_a_condition_is_the_break_even_of_the_most_uncertain_stage() -> None:
    """The factor holds when the cost is scaled by it, and the accuracy's width beyond it does not."""
    plan = plan_with("camera-detection", "jetson-agx-orin-64gb", "15W", PlanOptions(refine=False))
    assert plan.verdict == "feasible" and plan.uncertainty.upper in ("feasible", "not proved")
    (condition,) = plan.uncertainty.conditions
    task = next(t for t in plan.tasks if t.name == condition.stage)
    assert condition.interval == round(1 + task.error, 4)
    assert condition.factor >= 1


Costs = dict[str, tuple[float, float]]


def _random_costs(seed: int) -> list[tuple[Costs, int]]:
    """Return one to three stages: times (ms) and errors by engine, deadlines near the time of one of them."""
    draw = Random(seed)
    found: list[tuple[Costs, int]] = []
    for _ in range(draw.randint(1, 3)):
        engines = draw.choice((["acc"], ["cpu"], ["acc", "cpu"]))
        costs = {e: (draw.uniform(2, 18), draw.choice((0.0, 0.1, 0.3, 0.6))) for e in engines}
        near = costs[draw.choice(engines)][0]
        found.append((costs, max(round(near * draw.uniform(0.7, 1.8)), 2)))
    return found


def _with(stages: list[tuple[Costs, int]], number: int, engine: str, factor: float) -> list[tuple[Costs, int]]:
    costs, deadline = stages[number]
    time, error = costs[engine]
    changed = {**costs, engine: (time * factor, error)}
    return [(changed, deadline) if place == number else row for place, row in enumerate(stages)]


@pytest.mark.parametrize("seed", range(24))
def test_what_is_said_about_intervals_holds_when_costs_move_within_them(seed: int) -> None:
    """Planned again with one cost at an end of its interval, a verdict that is said to stay does, one to flip can."""
    stages = _random_costs(seed)
    plan = planned(*stages)
    found, feasible = plan.uncertainty, plan.verdict == "feasible"
    placed = {task.name: task.engine for task in plan.tasks if task.kind == "stage"}
    for number, (costs, _) in enumerate(stages):
        for engine, (_, error) in costs.items():
            if feasible and engine != placed[f"t{number}"]:
                continue
            for factor in (1 / (1 + error), 1 + error) if "verdict" in found.unchanged else ():
                again = planned(*_with(stages, number, engine, factor))
                # other stages might move too where the plan is not feasible, which is not said to be examined
                moved = any(t.engine != placed[t.name] for t in again.tasks if t.kind == "stage" and t.name in placed)
                assert (again.verdict == "feasible") == feasible or (not feasible and moved), (stages, number, factor)
    wish = found.measure
    assert not (wish is not None and wish.verdict_flips and "verdict" in found.unchanged)
    if wish is not None and wish.verdict_flips and not feasible:
        again = planned(*_with(stages, int(wish.stage[1:]), wish.engine, wish.low_ns / wish.estimate_ns))
        assert again.verdict == "feasible", (stages, wish)


@pytest.mark.parametrize("seed", range(8))
def test_a_search_that_took_all_the_time_changes_nothing_in_what_is_said_about_the_verdict(seed: int) -> None:
    plan = planned(*_random_costs(seed))
    draft = draft_of(*_random_costs(seed))
    late = draft.finished(Clock.of(0)).uncertainty
    assert ("verdict" in late.unchanged) == ("verdict" in plan.uncertainty.unchanged)
    if plan.uncertainty.measure is not None and plan.uncertainty.measure.verdict_flips:
        assert late.measure == plan.uncertainty.measure
    assert "choice" not in late.unchanged or plan.verdict != "feasible"


def test_costs_that_were_not_examined_are_not_said_to_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socsched.planning.uncertainty.RESERVED", 0)
    late = draft_of(({"acc": (16.0, 0.5)}, 14)).finished(Clock.of(0))
    assert late.uncertainty.unchanged == () and late.uncertainty.measure is None
    assert open_questions(late) == ["Not every cost was examined: a measurement may change the plan or its verdict."]


def test_levers_that_no_time_was_left_for_are_not_said_to_be_missing() -> None:
    draft = draft_of(({"acc": (16.0, 0.5), "cpu": (15.0, 0.1)}, 14))
    assert draft.best is not None
    candidate = draft.best.candidate
    workload, mapping = candidate.deployment.workload, candidate.deployment.mapping
    ((late, *_),) = verify_levers(workload, mapping, candidate.violations, {}, Clock.of(0))
    assert late == "no time was left to try changes"
    ((early, *_),) = verify_levers(workload, mapping, candidate.violations, {})
    assert early != late


BOARD, MODE = "jetson-agx-orin-64gb", "MAXN"
OPTIONS = PlanOptions(solver="heft", policy="fp", cuts=False, refine=False, explain=False, robust=True)


@pytest.mark.parametrize("pipeline", ["perception-stack", "camera-detection"])
def test_a_feasible_robust_plan_has_no_miss_with_all_costs_at_their_upper_ends(pipeline: str) -> None:
    plan = plan_with(pipeline, BOARD, MODE, OPTIONS)
    assert plan.verdict == "feasible"
    found = simulate_plan(plan, 6 * 10**9).figures["chains"]
    for chain in plan.chains:
        assert chain.bound_ns is not None
        assert found[chain.name]["missed"] == found[chain.name]["dropped"] == 0
        assert found[chain.name]["response_time_ns"]["max"] <= chain.bound_ns <= chain.deadline_ns


def test_its_costs_are_the_upper_ends_of_those_of_a_plain_plan() -> None:
    plain = plan_with("camera-detection", BOARD, MODE, replace(OPTIONS, robust=False))
    robust = plan_with("camera-detection", BOARD, MODE, replace(OPTIONS))
    before = {(task.name, task.engine, task.precision): task for task in plain.tasks}
    same = [(before[key], task) for task in robust.tasks if (key := (task.name, task.engine, task.precision)) in before]
    assert any(task.error for task, _ in same)
    for stated, upper in same:
        assert upper.error == 0
        # What a hand-over to another engine takes is stated without an interval, and the plans may place it apart.
        own, longer = (sum(s.time_ns for s in t.segments if s.name != "hand-over") for t in (stated, upper))
        assert longer == pytest.approx(own * (1 + stated.error), rel=1e-2, abs=len(upper.segments))


def test_planners_of_the_literature_take_stated_costs_only() -> None:
    with pytest.raises(UsageError, match="built-in search"):
        plan_with("camera-detection", BOARD, MODE, replace(OPTIONS, planner="heft"))
