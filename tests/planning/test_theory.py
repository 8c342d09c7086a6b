"""The schedulability tests against textbook examples, exact tools and brute force.

The plan's own tests; those of task-set files, and the rest of the examples, are in tests/oracle.
"""

from __future__ import annotations

from math import lcm
from typing import Any

import pytest
from datafiles import read
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from socsched.schedulability import edf, response_times
from socsched.schedulability.holistic import holistic
from socsched.schedulability.published.earliest_deadline_first import DemandTask, demand, overload
from socsched.schedulability.tasks import RtTask

LANE = frozenset({("cpu", 0)})
SCALE = 2  # some examples have half units


def task(name: str, c: float, t: float, d: float, priority: int = 0, preemption: str = "full") -> RtTask:
    wcet = round(c * SCALE)
    segment = 0 if preemption == "full" else wcet
    return RtTask(
        name, LANE, wcet, round(t * SCALE), round(d * SCALE), priority, segment=segment, preemption=preemption
    )


@pytest.fixture(scope="module")
def examples() -> dict[str, Any]:
    found = read("theory_examples.json")["sourced"]
    return {example["id"]: example for example in found}


def ranked(example: dict[str, Any]) -> dict[str, RtTask]:
    return {f"t{i}": task(f"t{i}", t["C"], t["T"], t["D"], i) for i, t in enumerate(example["tasks"])}


def windows(example: dict[str, Any], preemptive: bool = True) -> list[DemandTask]:
    return [
        DemandTask(
            str(i), round(t["C"] * SCALE), round(t["T"] * SCALE), round(t["D"] * SCALE), round(t["D"] * SCALE),
            segment=0 if preemptive else round(t["C"] * SCALE) - 1,
        )
        for i, t in enumerate(example["tasks"])
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["rta_schedcat_basic", "rta_selfsusp_none"])
def test_fixed_priority_response_times(examples: dict[str, Any], name: str) -> None:
    answers = holistic(ranked(examples[name])).values()
    assert [a.value / SCALE for a in answers] == examples[name]["expected"]["R"]
    assert all(a.bounded and sum(value for _, value in a.terms) == a.value for a in answers)


def test_several_jobs_of_a_busy_period_with_deadlines_beyond_periods(examples: dict[str, Any]) -> None:
    tasks = ranked(examples["rta_lehoczky_arbitrary_deadline_ok"])
    answers = holistic(tasks)
    # Lehoczky 1990, example 3: the worst response, 118, is that of the fifth job, not of the first
    assert answers["t1"].bounded and answers["t1"].value / SCALE == 118


@pytest.mark.parametrize(
    "name", ["qpa_zhangburns_ok", "qpa_known_unsched_1", "edf_overutilised", "rta_edn_rma", "rta_schedcat_basic"]
)
def test_processor_demand(examples: dict[str, Any], name: str) -> None:
    expected = examples[name]["expected"].get("schedulable", True)
    assert (overload(windows(examples[name])) is None) == expected


def test_demand_with_blocking_finds_the_non_preemptive_miss(examples: dict[str, Any]) -> None:
    example = examples["npedf_exercise_fail"]
    assert overload(windows(example)) is None, "preemptively it is schedulable"
    assert overload(windows(example, preemptive=False)) is not None


@pytest.mark.parametrize("name", ["edf_exact_wcrt_1", "edf_exact_wcrt_3", "edf_exact_wcrt_5"])
def test_no_edf_bound_below_the_exact_response(examples: dict[str, Any], name: str) -> None:
    example = examples[name]
    tasks = ranked(example)
    system, deadlines = edf.System.of(tasks), {n: t.deadline for n, t in tasks.items()}
    assert edf.test(system, deadlines) is None
    for found in tasks.values():
        shrunk = edf.smallest_factor(system, deadlines, frozenset({found.name}), 30)
        assert shrunk is not None
        bound = edf.scale_deadlines(system, deadlines, {found.name: shrunk})[found.name]
        exact = SCALE * example["expected"]["R_by_deadline"][str(found.deadline // SCALE)]
        # with a deadline shorter than its exact response under the given ones the set may still be schedulable
        assert bound >= found.wcet and found.deadline >= exact


def test_non_preemptive_bounds_cover_exact_response_times() -> None:
    cases = read("sag/np_oracle.json.xz")["cases"]
    checked = tight = 0
    for case in cases:
        if case["processors"] != 1 or not case.get("per_task"):
            continue
        tasks = {
            str(t["id"]): RtTask(
                str(t["id"]), LANE, t["wcet"], t["period"], t["deadline"], t["prio"],
                release_jitter=t["jitter"], segment=t["wcet"], preemption="none",
            )
            for t in case["tasks"]
        }  # fmt: skip
        for name, answer in holistic(tasks).items():
            if answer.bounded:
                exact = case["per_task"][name]["wcrt"]
                assert answer.value >= exact, (case["id"], name)
                checked, tight = checked + 1, tight + (answer.value == exact)
    assert checked > 100 and tight > checked / 10


sets = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([4, 5, 6, 8, 10, 12, 20]), st.integers(0, 4)), min_size=1, max_size=4
)


@settings(deadline=None)
@given(sets)
def test_qpa_agrees_with_every_deadline_of_two_hyperperiods(drawn: list[tuple[int, int, int]]) -> None:
    tasks = [DemandTask(str(i), c, t, max(t - cut, 1), max(t - cut, 1)) for i, (c, t, cut) in enumerate(drawn)]
    horizon = 2 * lcm(*(t.period for t in tasks)) + max(t.deadline for t in tasks)
    fits = sum(t.wcet / t.period for t in tasks) <= 1 and all(demand(tasks, x) <= x for x in range(1, horizon))
    answer = overload(tasks)
    assume(sum(t.wcet / t.period for t in tasks) <= 1 - 1e-9)  # a full processor is given up on
    assert (answer is None) == fits
    if answer is not None:
        assert sum(value for _, value in answer.terms) == answer.demand > answer.interval


def schedule(tasks: list[tuple[int, int]], offsets: list[int], preemptive: bool, horizon: int) -> list[int]:
    """Return the longest response of every task, lower index first, on a clock of unit steps."""
    left: list[tuple[int, int, int]] = []  # (task, release, remaining), in release order
    worst, running = [0] * len(tasks), None
    for now in range(horizon):
        for i, (c, t) in enumerate(tasks):
            if now >= offsets[i] and (now - offsets[i]) % t == 0:
                left.append((i, now, c))
        if not left:
            continue
        if preemptive or running is None:
            running = min(range(len(left)), key=lambda k: left[k][:2])
        i, release, rest = left[running]
        left[running] = (i, release, rest - 1)
        if rest == 1:
            worst[i] = max(worst[i], now + 1 - release)
            del left[running]
            running = None
    return worst


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([5, 6, 8, 10, 15])), min_size=1, max_size=3),
    st.lists(st.integers(0, 14), min_size=3, max_size=3),
    st.booleans(),
)
def test_no_schedule_exceeds_the_response_bound(
    drawn: list[tuple[int, int]], offsets: list[int], preemptive: bool
) -> None:
    kind = "full" if preemptive else "none"
    tasks = {
        str(i): RtTask(str(i), LANE, c, t, t, i, segment=0 if preemptive else c, preemption=kind)
        for i, (c, t) in enumerate(drawn)
    }
    answers = holistic(tasks)
    horizon = 2 * lcm(*(t for _, t in drawn)) + 15
    for moved in ([0, 0, 0], offsets):
        for i, seen in enumerate(schedule(drawn, moved[: len(drawn)], preemptive, horizon)):
            if answers[str(i)].bounded:
                assert seen <= answers[str(i)].value
    if preemptive and all(a.bounded and a.value <= tasks[n].period for n, a in answers.items()):
        # synchronous release is the critical instant: the bound is met exactly
        assert schedule(drawn, [0, 0, 0], True, horizon) == [a.value for a in answers.values()]


def test_jitter_and_blocking_enter_as_the_equations_say() -> None:
    high, low = task("high", 2, 10, 10, 0), task("low", 3, 20, 20, 1)
    inside = response_times.Classic([high], {"high": 6 * SCALE})
    value, bounded, terms = response_times.preemptive(low, inside, ("lump", SCALE), 0, 10**6)
    # w = 1 + 3 + ceil((w + 6) / 10) 2: 8 with two jobs of the jittery task
    assert bounded and value == 8 * SCALE and sum(v for _, v in terms) == value
    value, bounded, _ = response_times.until_start(low, [high], {"low": 0, "high": 0}, ("lump", SCALE), 10**6, low.wcet)
    # starts after blocking 1 and one job of 2, then runs its 3 undisturbed
    assert bounded and value == 6 * SCALE
