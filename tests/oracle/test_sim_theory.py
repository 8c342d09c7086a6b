"""Schedules of published examples: the simulator reproduces the theoretical worst case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import lcm
from typing import Any

import pytest
from datafiles import read

from socsched.cost.cost import Segment
from socsched.descriptor.taskset import taskset_from_mapping
from socsched.planning.plan import ExecutionTimes, Level, PlannedSensor
from socsched.sim.simulate import simulate
from socsched.sim.tasksets import make_taskset_plan, simulate_taskset

MS = 1_000_000


@pytest.fixture(scope="module")
def examples() -> dict[str, Any]:
    return {row["id"]: row for row in read("theory_examples.json")["sourced"]}


def rows(example: dict[str, Any], policy: str, **changes: Any) -> dict[str, Any]:
    """Return an example as the data of a task-set file, listed tasks in order of priority."""
    tasks = [
        {"period": t["T"], "deadline": t["D"], "wcet": t["C"], "prio": index}
        for index, t in enumerate(example["tasks"])
    ]
    return {"policy": policy, "processors": example.get("m", 1), "tasks": tasks, **changes}


def responses(data: dict[str, Any], duration: int, offsets: Sequence[int] = ()) -> tuple[list[int], int]:
    """Return every task's longest response, and how many jobs were late or still there after their deadline."""
    tasks = [{**task, "offset": offset} for task, offset in zip(data["tasks"], offsets, strict=False)]
    outcome = simulate_taskset(taskset_from_mapping({**data, **({"tasks": tasks} if offsets else {})}, "example"),
                               duration).outcome  # fmt: skip
    late = int(outcome.ints("late").sum() + outcome.ints("overdue").sum())
    return [int(value) for value in outcome.ints_of("responses", 2)], late


@pytest.mark.parametrize("name", ["rta_schedcat_basic", "rta_selfsusp_none"])
def test_synchronous_release_reaches_the_response_times(examples: dict[str, Any], name: str) -> None:
    data = rows(examples[name], "FP")
    found, late = responses(data, 10 * lcm(*(task["period"] for task in data["tasks"])))
    assert found == examples[name]["expected"]["R"]
    assert not late


def test_responses_in_the_busy_period_of_an_arbitrary_deadline(examples: dict[str, Any]) -> None:
    """Seven jobs of the second task before it is idle: Lehoczky (RTSS 1990), table in example 3."""
    data = rows(examples["rta_lehoczky_arbitrary_deadline_ok"], "FP")
    trace = simulate_taskset(taskset_from_mapping(data, "lehoczky"), 700, record=True).trace
    assert trace is not None
    found = [job.finish_ns - job.activation_ns for job in trace.jobs if job.task == "1" and job.status == "done"]
    assert found[:7] == [114, 102, 116, 104, 118, 106, 94]
    assert responses(data, 700_000)[1] == 0


def test_utilisation_below_the_bound_meets_every_deadline(examples: dict[str, Any]) -> None:
    """Any offsets, as Liu & Layland (JACM 1973) promise for U = 0.7 of three tasks."""
    data = rows(examples["rta_edn_rma"], "RM")
    for offsets in product((0,), range(0, 40, 5), range(0, 60, 5)):
        assert responses(data, 1200, offsets)[1] == 0


@pytest.mark.parametrize(
    ("name", "late"), [("qpa_zhangburns_ok", False), ("qpa_known_unsched_1", True), ("edf_overutilised", True)]
)
def test_edf_misses_where_the_demand_exceeds_the_time(examples: dict[str, Any], name: str, late: bool) -> None:
    assert examples[name]["expected"]["schedulable"] is not late
    assert (responses(rows(examples[name], "EDF"), 500_000)[1] > 0) is late


@pytest.mark.parametrize("name", ["edf_exact_wcrt_1", "edf_exact_wcrt_3", "edf_exact_wcrt_5"])
@pytest.mark.sampled(3)
def test_edf_response_times_are_reached_at_the_right_offsets(examples: dict[str, Any], name: str) -> None:
    """Spuri (1996): the worst case has every other task released together, and the task itself somewhere."""
    data = rows(examples[name], "EDF")
    periods = [task["period"] for task in data["tasks"]]
    worst = [0] * len(periods)
    for offsets in product(*(range(period) for period in periods)):
        found, late = responses(data, 3 * lcm(*periods), offsets)
        assert not late
        worst = [max(pair) for pair in zip(worst, found, strict=True)]
    expected = examples[name]["expected"]["R_by_deadline"]
    assert {str(task["deadline"]): found for task, found in zip(data["tasks"], worst, strict=True)} == expected


def test_non_preemptive_edf_misses_when_the_long_job_comes_just_before(examples: dict[str, Any]) -> None:
    """Jeffay, Stanat & Martel (RTSS 1991): a sporadic set; times doubled to whole numbers."""
    example = examples["npedf_exercise_fail"]
    doubled = {"tasks": [{key: int(2 * value) for key, value in task.items()} for task in example["tasks"]]}
    data = rows(doubled, "NP-EDF")
    assert responses(data, 120, (1, 1, 0))[1] > 0
    assert responses({**data, "policy": "EDF"}, 1200, (1, 1, 0))[1] == 0


def test_global_edf_of_two_thirds_tasks(examples: dict[str, Any]) -> None:
    """Three processors suffice; on two a job may be late, by no more than Devi & Anderson's bound (RTSS 2005)."""
    assert responses(rows(examples["gedf_two_thirds_m3_sched"], "G_EDF"), 3000) == ([2, 2, 2], 0)
    tardy = examples["gedf_tardiness_two_thirds"]
    found, late = responses(rows(tardy, "G_EDF"), 3000)
    assert late and all(value <= bound for value, bound in zip(found, tardy["expected"]["response"], strict=True))
    assert max(found) == 4  # the third waits for two units, and is late by one, again and again


def test_frequencies_of_cycle_conserving_edf() -> None:
    """Pillai & Shin (SOSP 2001), tables 2 and 3 and figure 3: clocks 0.5, 0.75 and 1, actual times 2, 1; 1, 1; 1, 1."""
    data = {"time_unit": "ms", "policy": "EDF", "tasks": [
        {"period": 8, "wcet": 3}, {"period": 10, "wcet": 3}, {"period": 14, "wcet": 1},
    ]}  # fmt: skip
    made = make_taskset_plan(taskset_from_mapping(data, "pillai"))
    levels = (Level(500, 125), Level(750, 422), Level(1000, 1000))
    actual = (ExecutionTimes((MS, 2 * MS)), ExecutionTimes((MS,)), None)
    tasks = tuple(replace(task, times=times) for task, times in zip(made.tasks, actual, strict=True))
    engines = (replace(made.engines[0], levels=levels, governor="ccedf"),)
    made = replace(made, engines=engines, tasks=tasks)
    for seed in range(20):
        # the seed that draws 2 ms, then 1 ms for the first task
        trace = simulate(made, 16 * MS, seed)
        times = [(job.task, job.start_ns, job.finish_ns) for job in trace.jobs]
        if times[0][2] > 2 * MS and times[3][2] - times[3][1] < 2 * MS:
            break
    third = MS // 3 + 1
    assert times == [
        ("0", 0, 3 * MS - third + 1),  # 2 ms at 0.75
        ("1", 3 * MS - third + 1, 4 * MS + 1),  # 1 ms at 0.75
        ("2", 4 * MS + 1, 6 * MS + 1),  # 1 ms at 0.5
        ("0", 8 * MS, 9 * MS + third),  # 1 ms at 0.75
        ("1", 10 * MS, 12 * MS),  # 1 ms at 0.5
        ("2", 14 * MS, 16 * MS),  # 1 ms at 0.5
    ]
    power = [(time, value) for time, value in trace.counters["power_mw"] if value]
    assert [value for _, value in power] == [422, 125, 422, 125, 125]
    assert [time for time, _ in power] == [0, 4 * MS + 1, 8 * MS, 10 * MS, 14 * MS]


def test_jitter_travels_down_a_chain_as_compositional_analysis_says(examples: dict[str, Any]) -> None:
    """Two resources under SPP: sources with P 30 J 5 and P 15 J 6; times 5..10, 2, 1..3, 4..9 (Henia et al. 2005).

    The bounds hold for every draw; what needs no rare coincidence is reached.
    """
    expected = examples["pycpa_spp_chain"]["expected"]
    data = {"policy": "FP", "processors": 2, "tasks": [
        {"period": 30, "wcet": 10, "cpu": 0, "prio": 1}, {"period": 15, "wcet": 3, "cpu": 0, "prio": 2},
        {"period": 30, "wcet": 2, "cpu": 1, "prio": 1}, {"period": 15, "wcet": 9, "cpu": 1, "prio": 2},
    ]}  # fmt: skip
    made = make_taskset_plan(taskset_from_mapping(data, "pycpa"))
    shortest = (5, 1, 2, 4)
    names = ("T11", "T12", "T21", "T22")
    tasks = tuple(
        replace(task, name=name, timer=False, after=(after,), segments=(Segment(name, task.cost_ns, 0, 0),),
                times=ExecutionTimes(tuple(range(least, task.cost_ns + 1))))
        for task, name, after, least in zip(made.tasks, names, ("S1", "S2", "T11", "T12"), shortest, strict=True)
    )  # fmt: skip
    longest = dict.fromkeys(names, 0)
    for offset in range(15):
        sensors = (PlannedSensor("S1", 30, offset, 5, 0), PlannedSensor("S2", 15, 0, 6, 0))
        for job in simulate(replace(made, tasks=tasks, sensors=sensors), 30_000, offset).jobs:
            if job.status == "done":
                longest[job.task] = max(longest[job.task], job.finish_ns - job.activation_ns)
    assert all(longest[name] <= expected[name] for name in names)
    assert {name: longest[name] for name in names[:3]} == {name: expected[name] for name in names[:3]}
    assert longest["T22"] >= 15


@pytest.mark.parametrize(("jitter", "bound"), [(0, 7), (8, 9), (15, 11)])
def test_bursts_of_a_jittery_task_delay_as_its_arrival_curve_allows(jitter: int, bound: int) -> None:
    """R = 5 + ceil((R + J) / 10) * 2 for a job of 5 below one of 2 every 10 with jitter J, SPP: 7, 9, 11."""
    found = []
    for offset in range(0, 20):
        data = {"policy": "FP", "tasks": [
            {"period": 10, "deadline": 100, "wcet": 2, "jitter": jitter, "prio": 1},
            {"period": 200, "wcet": 5, "prio": 2, "offset": offset},
        ]}  # fmt: skip
        found.append(responses(data, 20_000)[0])
    assert max(low for _, low in found) == bound
    assert max(high for high, _ in found) >= 2 + jitter
