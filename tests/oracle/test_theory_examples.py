"""Every worked example of the reference data, to the digit, by the published test it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from datafiles import read

from socsched.descriptor.taskset import Memory, PeriodicTask, taskset_from_mapping
from socsched.schedulability.published.choose import Analysis, analyse
from socsched.schedulability.published.fixed_priorities import Activated, Stream, local_analysis
from socsched.schedulability.published.memory import with_accesses
from socsched.schedulability.published.model import VERDICTS
from tests.planning.paper_heft import heft

Example = dict[str, Any]


@pytest.fixture(scope="module")
def examples() -> dict[str, Example]:
    found = read("theory_examples.json")["sourced"]
    return {example["id"]: example for example in found}


def analysed(example: Example, policy: str, **more: Any) -> Analysis:
    """The example in us, so that half units are whole."""
    tasks = [{"period": t["T"], "deadline": t["D"], "wcet": t["C"], "prio": i} for i, t in enumerate(example["tasks"])]
    return analyse(taskset_from_mapping({"policy": policy, "time_unit": "us", "tasks": tasks, **more}, example["id"]))


def bounds(analysis: Analysis, test: str) -> list[float]:
    (outcome,) = [o for o in analysis.outcomes if o.test.name == test]
    assert outcome.answer is not None, outcome.reason
    return [outcome.answer.bounds[task.name].value / 1000 for task in analysis.taskset.tasks]


def response_times(example: Example) -> None:
    found = analysed(example, "FP")
    assert bounds(found, "response-time analysis") == example["expected"]["R"]
    assert found.verdict == VERDICTS[example["expected"].get("schedulable", True)]


def lehoczky(example: Example) -> None:
    found = analysed(example, "FP")
    # Lehoczky's example: the longest response is not that of the first job of the busy period
    assert bounds(found, "busy-period analysis")[0] == 26
    assert found.verdict == VERDICTS[example["expected"]["schedulable"]]


def utilisation(example: Example) -> None:
    found = analysed(example, "RM")
    assert (
        sum(Fraction(t["C"], t["T"]) for t in example["tasks"])
        == Fraction(example["expected"]["U"]).limit_denominator()
    )
    assert {"Liu-Layland bound", "hyperbolic bound"} <= {
        o.test.name for o in found.outcomes if o.answer and o.answer.schedulable
    }


def demand(example: Example) -> None:
    found = analysed(example, "EDF")
    said = {o.test.name: o.answer.schedulable for o in found.outcomes if o.answer}
    assert said["EDF demand bound (QPA)"] is example["expected"]["schedulable"]
    assert found.verdict == VERDICTS[example["expected"]["schedulable"]]


def edf_response_times(example: Example) -> None:
    found = analysed(example, "EDF")
    for task, value in zip(found.taskset.tasks, bounds(found, "EDF response times"), strict=True):
        assert value == example["expected"]["R_by_deadline"][str(task.deadline_ns // 1000)]


def overutilised(example: Example) -> None:
    assert analysed(example, "EDF").verdict == "infeasible"


def np_edf(example: Example) -> None:
    found = analysed(example, "NP-EDF")
    said = {o.test.name: o.answer.schedulable for o in found.outcomes if o.answer}
    assert said["non-preemptive EDF"] is None and said["EDF demand bound with blocking"] is None
    assert found.verdict != "feasible"


def global_edf(example: Example) -> None:
    assert analysed(example, "EDF", processors=example["m"]).verdict == VERDICTS[example["expected"]["schedulable"]]


def tardiness(example: Example) -> None:
    found = analysed(example, "EDF", processors=example["m"])
    response = bounds(found, "global EDF tardiness")
    assert response == example["expected"]["response"]
    assert [r - t["D"] for r, t in zip(response, example["tasks"], strict=True)] == example["expected"]["tardiness"]


def list_schedule(example: Example) -> None:
    dag, expected = example["dag"], example["expected"]
    names = sorted(dag["cost"], key=int)
    edges = {(a - 1, b - 1): float(weight) for a, b, weight in dag["comm"]}
    placed = heft([dag["cost"][name] for name in names], edges)
    assert max(place.end for place in placed) == expected["makespan"]
    found = {n: [f"P{p.processor + 1}", p.start, p.end] for n, p in zip(names, placed, strict=True)}
    assert found == expected["schedule"]


def compositional(example: Example) -> None:
    # pyCPA's test_spp: T11 and T12 on one processor, T21 and T22 on another, T1x activates T2x
    t11, t12 = Activated(5, 10, Stream(30, 5)), Activated(1, 3, Stream(15, 6))
    first, second = local_analysis(t11, []), local_analysis(t12, [t11])
    assert first is not None and second is not None
    t21, t22 = Activated(2, 2, first.out), Activated(4, 9, second.out)
    third, fourth = local_analysis(t21, []), local_analysis(t22, [t21])
    assert third is not None and fourth is not None
    found = {"T11": first.worst, "T12": second.worst, "T21": third.worst, "T22": fourth.worst}
    assert {**found, "busy_T22": list(fourth.windows)} == example["expected"]


def let_chains(example: Example) -> None:
    for name, expected in example["expected_ms"].items():
        periods = [example["periods_ms"][task] for task in name.split("-")]
        tasks = [{"period": period, "wcet": 1, "cpu": i} for i, period in enumerate(periods)]
        data = {"time_unit": "ms", "processors": len(tasks), "tasks": tasks, "chain": list(range(len(tasks)))}
        chain = analyse(taskset_from_mapping({**data, "communication": "let", "policy": "P_RM"}, name)).chain
        reaction, reduced = chain["reaction_time"].bound, chain["reduced_reaction_time"].bound
        assert reaction is not None and reduced is not None
        assert (reaction.value, reduced.value) == (expected["MaxRT"] * 10**6, expected["MaxRedRT"] * 10**6)


def memory_cost(example: Example) -> None:
    given = example["input"]
    alone = round(given["ticks_ub"] / given["f_hz"] * 10**9)
    latency = round(given["lat_cycles"] / given["f_hz"] * 10**9)
    task = PeriodicTask(0, "DASM", 5_000_000, 5_000_000, alone, alone, 0, 0, 0, 0, accesses=given["lines"])
    found = with_accesses(task, Memory(latency, given["contention_ns_per_line"]))
    assert round(found / 1000, 2) == example["expected_us"]


CHECKS: dict[str, Callable[[Example], None]] = {
    "rta_schedcat_basic": response_times,
    "rta_selfsusp_none": response_times,
    "rta_lehoczky_arbitrary_deadline_ok": lehoczky,
    "rta_edn_rma": utilisation,
    "qpa_zhangburns_ok": demand,
    "qpa_known_unsched_1": demand,
    "edf_exact_wcrt_1": edf_response_times,
    "edf_exact_wcrt_3": edf_response_times,
    "edf_exact_wcrt_5": edf_response_times,
    "edf_overutilised": overutilised,
    "npedf_exercise_fail": np_edf,
    "gedf_two_thirds_m3_sched": global_edf,
    "gedf_tardiness_two_thirds": tardiness,
    "heft_topcuoglu": list_schedule,
    "pycpa_spp_chain": compositional,
    "let_waters2019_chains": let_chains,
    "waters2019_mem_cost_Denver": memory_cost,
}
ELSEWHERE = {"np_sag": "test_sim_sag.py"}


def test_no_example_is_left_out(examples: dict[str, Example]) -> None:
    assert set(examples) == {*CHECKS, *ELSEWHERE}
    assert all((Path(__file__).parent / file).is_file() for file in ELSEWHERE.values())


@pytest.mark.parametrize("name", list(CHECKS))
def test_example(examples: dict[str, Example], name: str) -> None:
    CHECKS[name](examples[name])
