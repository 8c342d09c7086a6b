"""Searches end by work: the speed of a machine changes no plan, and a plan that a limit on time cut off says so."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

import socsched as ss
from socsched.planning import clock
from socsched.planning.clock import Clock, count
from socsched.planning.io import to_document
from socsched.planning.plan import Necessity, Plan, Proof
from socsched.reporting import junit, summary
from socsched.reporting.plan_diff import diff
from socsched.reporting.terminal import console, plan_view


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
        values += [found.solver.value or 0] if found.verdict == "feasible" else []
    assert values and values == sorted(values, reverse=True)
