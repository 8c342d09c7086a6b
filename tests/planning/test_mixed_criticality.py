"""EDF-VD and AMC: published conditions by hand, and no simulated response above a bound."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import pytest

from socsched.descriptor.taskset import PeriodicTask, TaskSet, taskset_from_mapping
from socsched.errors import DescriptorError, UsageError
from socsched.schedulability.published import mixed_criticality as published
from socsched.schedulability.published.choose import analyse, problems
from socsched.schedulability.published.model import Problem
from socsched.sim.tasksets import make_taskset_plan
from tools.verify.cases import Tally
from tools.verify.random_systems import FAMILIES
from tools.verify.soundness import check

LEVELS = {
    policy: FAMILIES[f"levels of criticality, {name}"] for policy, name in (("FP", "fixed priorities"), ("EDF", "EDF"))
}


def made(policy: str, *rows: dict[str, Any]) -> TaskSet:
    return taskset_from_mapping({"policy": policy, "tasks": list(rows)}, "levels")


def problem(taskset: TaskSet) -> Problem:
    return problems(taskset)[0][1]


def test_amc_by_hand() -> None:
    """R_LO = 2 + 2 + 2 = 6; over an overrun R = 5 + ceil(6 / 10) 2 + ceil(R / 8) 4 = 15, by AMC-max too."""
    taskset = made(
        "FP",
        {"period": 8, "wcet": 4, "wcets": [2, 4], "prio": 0},
        {"period": 10, "wcet": 2, "prio": 1},
        {"period": 40, "wcet": 5, "wcets": [2, 5], "prio": 2},
    )
    found = published.amc_rtb.run(problem(taskset))
    assert (found.schedulable, [bound.value for bound in found.bounds.values()]) == (True, [4, 4, 15])
    assert published.amc_max.run(problem(taskset)).bounds["t2"].value == 15


def test_edf_vd_scales_deadlines_by_the_smallest_factor() -> None:
    """U_LO = 1/2, U_HI = 1/5 and 3/5: x = 1/5 / (1 - 1/2) = 2/5, and 2/5 * 1/2 + 3/5 = 4/5."""
    taskset = made("EDF", {"period": 10, "wcet": 5}, {"period": 10, "wcet": 6, "wcets": [2, 6]})
    assert published.scaling(problem(taskset)) == Fraction(2, 5)
    assert published.edf_vd.run(problem(taskset)).schedulable is True
    heavy = made("EDF", {"period": 10, "wcet": 5}, {"period": 10, "wcet": 9, "wcets": [2, 9]})
    assert published.edf_vd.run(problem(heavy)).schedulable is None


def test_what_the_tests_do_not_cover_is_undecided() -> None:
    three = made("FP", {"period": 20, "wcet": 4, "wcets": [1, 2, 4], "prio": 0}, {"period": 30, "wcet": 2, "prio": 1})
    assert analyse(three).verdict == "undecided"
    served = made(
        "EDF",
        {"period": 10, "wcet": 5, "degraded": {"wcet": 1, "period": 20}},
        {"period": 10, "wcet": 6, "wcets": [2, 6]},
    )
    assert published.edf_vd.unmet(problem(served)) == "it drops low criticality, with no degraded service"


def test_no_other_test_takes_a_set_with_levels() -> None:
    taskset = made("FP", {"period": 8, "wcet": 4, "wcets": [2, 4], "prio": 0}, {"period": 10, "wcet": 5, "prio": 1})
    new = {"AMC-rtb", "AMC-max", "EDF-VD"}
    assert [o.test.name for o in analyse(taskset).outcomes if o.answer and o.test.name not in new] == []


def test_levels_are_checked() -> None:
    with pytest.raises(DescriptorError, match=r"ascending times, the last being the wcet of 4"):
        made("EDF", {"period": 10, "wcet": 4, "wcets": [4, 2]})
    with pytest.raises(DescriptorError, match=r"at least the period of 10"):
        made("EDF", {"period": 10, "wcet": 4, "degraded": {"wcet": 1, "period": 5}})


def test_sets_with_levels_are_analysed_not_simulated() -> None:
    with pytest.raises(UsageError, match="criticality levels, which is analysed but not simulated"):
        make_taskset_plan(made("EDF", {"period": 10, "wcet": 4, "wcets": [2, 4]}))


@pytest.mark.parametrize("policy", LEVELS)
def test_no_simulated_response_is_above_a_bound(policy: str) -> None:
    tally = Tally()
    for seed in range(40):
        tally.add(check(LEVELS[policy](Random(seed)), 6, seed))
    assert (
        tally.faults == [] and set(tally.counts["bounds"]) >= {"FP": {"AMC-rtb", "AMC-max"}, "EDF": {"EDF-VD"}}[policy]
    )


def test_audsley_finds_an_order_that_deadline_monotonic_misses() -> None:
    """The only order that fits is by name, not by deadline."""
    orders = {("b", ("a",)), ("a", ())}
    assert published.audsley_order(["b", "a"], lambda task, above: (task, tuple(sorted(above))) in orders) == ["a", "b"]
    assert published.audsley_order(["b", "a"], lambda task, above: False) is None


def test_amc_max_accepts_whatever_amc_rtb_accepts() -> None:
    random = Random(3)
    for _ in range(200):
        tasks: tuple[PeriodicTask, ...] = LEVELS["FP"](random).tasks
        for index, task in enumerate(tasks):
            loose = published.adaptive_response(task, tasks[:index])
            tight = published.adaptive_response(task, tasks[:index], published.over_each_overrun)
            assert loose is None or (tight is not None and tight <= loose)
