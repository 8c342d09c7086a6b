"""Bounds on the probability of misses, against sums by hand and simulation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.api.simulation import simulate_plan
from socsched.planning.plan import ExecutionTimes, Plan
from socsched.schedulability.miss_probability import miss_probabilities

OPTIONS = PlanOptions(solver="heft", policy="fp", cuts=False, refine=False, explain=False)


def drawn(deadline: float, share: int = 10) -> Plan:
    """Return a plan whose tasks take their time in one of `share` jobs and half of it otherwise.

    Deadlines are in parts of bounds.
    """
    plan = plan_with("perception-stack", "jetson-agx-orin-64gb", "MAXN", OPTIONS)
    tasks = tuple(
        replace(t, times=ExecutionTimes((*[max(t.cost_ns // 2, 1)] * (share - 1), t.cost_ns))) for t in plan.tasks
    )
    chains = tuple(replace(c, deadline_ns=round((c.bound_ns or 0) * deadline)) for c in plan.chains)
    return replace(plan, tasks=tasks, chains=chains)


def test_a_deadline_that_holds_in_the_worst_case_is_never_missed() -> None:
    assert set(miss_probabilities(drawn(1.0)).values()) == {0.0}


def test_without_distributions_there_is_no_figure() -> None:
    plan = drawn(1.0)
    plain = replace(plan, tasks=tuple(replace(task, times=None) for task in plan.tasks))
    assert set(miss_probabilities(plain).values()) == {None}


@pytest.mark.parametrize("deadline", [0.7, 0.8, 0.9])
def test_simulated_misses_are_no_more_frequent_than_the_bound(deadline: float) -> None:
    plan = drawn(deadline)
    bound = miss_probabilities(plan)
    found = simulate_plan(plan, 200 * 10**9, record=False).figures["chains"]
    assert any(value and value < 1 for value in bound.values())
    for name, value in bound.items():
        frames = found[name]["completed"]
        assert value is not None and found[name]["missed"] <= value * frames + 4 * (value * frames) ** 0.5 + 1e-9


def test_a_longer_deadline_is_missed_less_often() -> None:
    short, long = miss_probabilities(drawn(0.75)), miss_probabilities(drawn(0.85))
    assert all((long[name] or 0) <= (value or 0) for name, value in short.items())
