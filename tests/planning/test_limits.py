"""Searches whose time is over before they have judged a mapping, and analyses that end where they are."""

from __future__ import annotations

import pytest

from socsched import deadline
from socsched.api.options import PlanOptions
from socsched.api.planning import mean_times, plan_with
from socsched.planning import search
from socsched.planning.candidate import judge
from socsched.planning.clock import Clock
from socsched.planning.mapping.local_search import initial_mapping
from socsched.planning.plan import Plan
from socsched.schedulability.tasks import Names, packed
from tools.bench.scale import MODE, instance, list_plan, workload_of


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3])
def test_a_search_without_time_is_undecided_with_its_reason(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "ENDING", share)
    plan = plan_with(*instance("line", 64), MODE, PlanOptions(time_limit=search.SHORT_S))
    assert plan.verdict == "undecided" or plan.tasks
    assert plan.solver.cut_off
    if not plan.tasks:
        assert "no time" in str(plan.solver.status)


def test_an_analysis_without_time_has_no_bounds() -> None:
    workload = workload_of(*instance("chains", 32), "edf")
    mapping = initial_mapping(workload)
    with deadline.within(0):
        found = judge(workload, mapping)
    assert found.verdict == "undecided"
    assert all(chain.bound_ns is None for chain in found.assessment.chains)
    assert judge(workload, mapping).verdict == "feasible"


def test_a_simulation_that_the_limit_ends_leaves_the_plan_as_it_is() -> None:
    plan = list_plan(*instance("chains", 32), "edf")
    ended = list[bool]()

    def simulate(plan: Plan, length: int) -> search.Means:
        try:
            return mean_times(plan, 1000 * length)
        except deadline.OutOfTime:
            ended.append(True)
            raise

    clock = Clock.of(None, 0.5)
    assert search.refine(plan, simulate, clock=clock) is plan
    assert ended
    assert clock.cut_off
    assert search.refine(plan, mean_times) is not plan


def test_names_are_a_set() -> None:
    number = {name: place for place, name in enumerate("abcdefghijk")}
    some = Names.of(number, "bkc")
    assert sorted(some) == ["b", "c", "k"]
    assert "b" in some
    assert "a" not in some
    assert "z" not in some
    assert len(some) == 3
    assert some == {"b", "c", "k"}
    assert packed([some, frozenset("a")], number) == bytes([6, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0])
