"""Comparison of plans: moved stages, worsened figures, and the responsible move."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import refuted
from rich.console import Console

from socsched.planning.plan import ChainResult, Plan, Power
from socsched.reporting.compare import compare, markdown, view
from socsched.reporting.plan_diff import Move, diff, shares

MS = 1_000_000


def changed(plan: Plan, name: str, **changes: Any) -> Plan:
    """Return the plan with a task changed."""
    return replace(plan, tasks=tuple(replace(t, **changes) if t.name == name else t for t in plan.tasks))


def bound(plan: Plan, terms: dict[str, int]) -> Plan:
    """Return the plan with the first chain's bound made of these terms (ms)."""
    items = tuple((name, ms * MS) for name, ms in terms.items())
    total = sum(terms.values()) * MS
    return replace(plan, chains=(replace(plan.chains[0], bound_ns=total, terms=items), *plan.chains[1:]))


def moved(plan: Plan) -> tuple[Plan, Plan]:
    """Return a plan, and one whose backbone went to the gpu, where it also delays pfn."""
    a = bound(plan, {"pfn: wcet": 2, "scatter>backbone: wcet": 1, "backbone: wcet": 20})
    b = changed(plan, "backbone", engine="gpu", precision="fp16", cost_ns=41 * MS)
    terms = {"pfn: wcet": 3, "pfn: interference by backbone": 4, "scatter>backbone: wcet": 2, "backbone: wcet": 41}
    return a, bound(b, terms)


def test_equal_plans_differ_in_nothing(plan: Plan) -> None:
    found = diff(plan, plan, 0.0)
    assert (found.moves, found.changes, found.regressions) == ((), (), ())
    assert "the plans are identical" in text(found)


def test_a_regression_names_the_move_that_is_responsible(plan: Plan) -> None:
    a, b = moved(plan)
    found = diff(a, b, 0.05)
    assert [(m.stage, m.before, m.after) for m in found.moves] == [("backbone", "dla0 int8", "gpu fp16")]
    (reported,) = found.regressions
    # 21 ms of its own, 4 of interference by it, 1 of the conversion into it
    assert reported == (
        "lidar-detection bound 23 ms → 50 ms: backbone moved from dla0 int8 to gpu fp16, 17.5 ms → 41 ms "
        "(+26 ms, all others +1 ms)"
    )
    assert diff(b, a, 0.05).regressions == ()


def test_a_change_that_cost_more_than_the_bound_grew_names_the_compensating_change(plan: Plan) -> None:
    a = bound(plan, {"pfn: interference by head": 18, "backbone: wcet": 20})
    b = bound(changed(plan, "backbone", engine="gpu", cost_ns=59 * MS), {"backbone: wcet": 59})
    (reported,) = diff(a, b, 0.05).regressions
    assert "38 ms → 59 ms" in reported
    assert reported.endswith("(+39 ms, all others −18 ms)")


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"precision": "fp16"}, "backbone runs in fp16 instead of int8 on dla0"),
        ({"engine": "gpu"}, "backbone moved from dla0 int8 to gpu int8"),
        ({"cost_ns": 9 * MS}, "backbone on dla0 int8 costs 17.5 ms → 9 ms"),
    ],
    ids=["precision", "engine", "cost"],
)
def test_kinds_of_change_are_named(plan: Plan, changes: dict[str, Any], reported: str) -> None:
    (move,) = diff(plan, changed(plan, "backbone", **changes), 0.05).moves
    assert move.told().startswith(reported)


def test_changed_requirements_are_named_and_a_worse_verdict_is_reported_once(plan: Plan) -> None:
    chain, sensor = plan.chains[0], plan.sensors[0]
    b = replace(
        refuted(plan),
        chains=(replace(chain, deadline_ns=50 * MS, max_age_ns=7 * MS), *plan.chains[1:]),
        sensors=(replace(sensor, period_ns=sensor.period_ns // 2), *plan.sensors[1:]),
    )
    found = diff(plan, b, 0.05)
    told = [change.told() for change in found.requirements]
    assert f"deadline of chain {chain.name}: 100 ms → 50 ms" in told
    assert any(line.startswith(f"max age of chain {chain.name}: ") for line in told)
    assert any(line.startswith(f"period of sensor {sensor.name}: ") for line in told)
    assert {change.sense for change in found.requirements} == {"stronger"} and not found.weaker
    assert text(found, 200).count("feasible → infeasible") == 1
    assert markdown(found, "a", "b", 0.05).count("feasible → infeasible") == 1
    better = diff(b, plan, 0.05, [chain.name, sensor.name])
    assert "verdict: infeasible → feasible" in better.changes


names = st.sampled_from(["a: wcet", "a: blocking by b", "b: wcet", "b: interference by c", "a>b: wcet", "c: wcet"])


@given(st.lists(st.tuples(names, st.integers(-99, 99))), st.lists(st.tuples(names, st.integers(-99, 99))))
def test_the_shares_add_up_to_the_change_of_the_bound(a: list[tuple[str, int]], b: list[tuple[str, int]]) -> None:
    chains = [ChainResult("c", (), 0, 0, sum(ns for _, ns in terms), None, tuple(terms)) for terms in (a, b)]
    assert sum(shares(*chains).values()) == sum(ns for _, ns in b) - sum(ns for _, ns in a)


@given(factor=st.floats(0.5, 2.0), allowed=st.floats(0.0, 0.9))
def test_a_bound_regresses_exactly_above_the_allowance(factor: float, allowed: float) -> None:
    import report_samples

    a = bound(report_samples.make_plan(), {"pfn: wcet": 100})
    b = replace(a, chains=(replace(a.chains[0], bound_ns=round(100 * MS * factor)), *a.chains[1:]))
    assert bool(diff(a, b, allowed).regressions) == (round(100 * MS * factor) > 100 * MS * (1 + allowed))


def test_what_cannot_be_weighed_is_a_regression(plan: Plan) -> None:
    lost = replace(plan, verdict="undecided", chains=(replace(plan.chains[0], bound_ns=None),))
    reported = " ".join(diff(plan, lost, 9.0).regressions)
    assert "verdict feasible → undecided" in reported
    assert "chain planning is removed" in reported
    assert "→ none" in reported
    assert diff(lost, plan, 9.0).regressions == ()


def test_power_and_traffic_count_and_name_their_largest_term(plan: Plan) -> None:
    a = replace(plan, power=Power(1000, terms=(("gpu dynamic", 400), ("base", 600))))
    b = replace(plan, power=Power(2000, terms=(("gpu dynamic", 1400), ("base", 600))))
    assert diff(a, b, 0.05).regressions == ("power expected 1 W → 2 W: mostly gpu dynamic",)


def test_changed_inputs_modes_and_added_or_removed_stages_are_reported(plan: Plan) -> None:
    other = replace(plan, mode="15W", tasks=plan.tasks[1:], inputs={**plan.inputs, "pipelines/new.yaml": "0"})
    found = diff(plan, other, 0.05)
    assert {"mode: MAXN → 15W", "input pipelines/new.yaml is new"} <= set(found.changes)
    assert found.moves[0].told().startswith("voxelise is removed from cpu")
    assert diff(other, plan, 0.05).moves[0].told().startswith("voxelise is new, on cpu")


def text(found: Any, width: int = 80) -> str:
    """Render to plain text."""
    screen = Console(file=io.StringIO(), width=width)
    screen.print(view(found, "a", "b", 0.05))
    return screen.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("width", [60, 80])
def test_the_view_fits_and_says_all(plan: Plan, width: int) -> None:
    shown = text(diff(*moved(plan), 0.05), width)
    assert max(map(len, shown.splitlines())) <= width
    for part in ("dla0 int8", "gpu fp16", "23 ms", "50 ms", "1 regression"):
        assert part in shown


def test_markdown_says_the_same(plan: Plan) -> None:
    reported = markdown(diff(*moved(plan), 0.05), "main|x", "new", 0.05)
    assert reported.startswith("## ❌ 1 regression\n")
    assert "| backbone | dla0 int8 | gpu fp16 | 17.5 ms | 41 ms |" in reported
    assert "main\\|x" in reported
    assert "## ✅ no regression" in markdown(diff(plan, plan, 0.05), "a", "b", 0.05)


def test_results_name_the_move_too(plan: Plan, result: dict[str, Any]) -> None:
    slower = copy.deepcopy(result)
    stage, name = "backbone", "lidar-detection"
    slower["stages"][stage]["exec_ns"]["p50"] += 20 * MS
    slower["chains"][name]["response_time_ns"]["p99"] *= 2
    slower["chains"][name]["missed"] = slower["chains"][name]["released"]
    b = changed(plan, stage, engine="gpu")
    found = compare(result, slower, 0.05, (plan, b))
    reported = {row.name: row.because for row in found.rows if row.regressed}
    assert reported[stage].startswith("backbone moved from dla0 int8 to gpu int8")
    assert reported[name].startswith("backbone moved from dla0") and reported[name].endswith("(its median +20 ms)")
    assert any("frames late (" in line and "backbone moved" in line for line in found.regressions)
    unmoved = compare(result, slower, 0.05, (plan, plan))
    assert {row.name: row.because for row in unmoved.rows if row.regressed}[name] == (
        "backbone takes longer (its median +20 ms)"
    )
    assert "backbone moved" in text(found)


@pytest.mark.parametrize(
    ("before", "after", "cost", "reported"),
    [
        ("cpu fp32 lanes #1 of 4", "cpu fp32 lanes #0 of 4", 4, "a on cpu fp32 costs 2 ms → 4 ms"),
        ("cpu fp32 lanes #0-1 of 4", "cpu fp32 lanes #1, 3 of 4", 4, "a on cpu fp32 costs 2 ms → 4 ms"),
        ("cpu fp32 lanes #0-1 of 4", "cpu fp32 lanes #1 of 4", 4, "a has lanes #1 of 4 of cpu instead of lanes #0-1"),
        ("cpu fp32 lanes #1 of 4", "cpu fp32 lanes #0 of 4", 2, "a has lanes #0 of 4 of cpu instead of lanes #1 of 4"),
    ],
)
def test_a_cost_that_grew_on_as_many_lanes_is_not_blamed_on_their_numbers(
    before: str, after: str, cost: int, reported: str
) -> None:
    assert Move("a", before, after, 2 * MS, cost * MS).told().startswith(reported)
