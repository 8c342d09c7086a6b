"""The published tests as a set: registry, metadata, textbook figures, order among competitors."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.descriptor.taskset import TaskSet, taskset_from_mapping
from socsched.schedulability.published import earliest_deadline_first, several_processors
from socsched.schedulability.published.choose import Analysis, analyse, problems
from socsched.schedulability.published.choose import tests as all_tests
from socsched.schedulability.published.several_processors import settle


def of(rows: list[tuple[int, ...]], policy: str, **more: Any) -> TaskSet:
    """Tasks (wcet, period, deadline) of a policy, priorities in order."""
    tasks = [
        {"wcet": row[0], "period": row[1], "deadline": row[2] if len(row) > 2 else row[1], "prio": i}
        for i, row in enumerate(rows)
    ]
    return taskset_from_mapping({"policy": policy, "tasks": tasks, **more}, "test")


def says(analysis: Analysis) -> dict[str, bool | None]:
    return {o.test.name: o.answer.schedulable for o in analysis.outcomes if o.answer}


def test_names_are_unique_and_sources_say_where() -> None:
    every = all_tests()
    assert len({test.name for test in every}) == len(every) >= 36
    assert all(test.source and test.kind in ("task", "chain") for test in every)


@pytest.mark.parametrize(
    ("rows", "bound", "hyperbolic", "exact"),
    [
        ([(1, 4), (1, 5), (1, 10)], True, True, True),  # U = 0.55
        ([(2, 5), (4, 10), (1, 50)], None, True, True),  # U = 0.82, product 1.9992
        ([(2, 4), (2, 8), (2, 16)], None, None, True),  # harmonic, U = 0.875
        ([(2, 4), (4, 8)], None, None, True),  # harmonic, U = 1
        ([(2, 4), (3, 6)], None, None, False),  # U = 1, not harmonic
    ],
)
def test_rate_monotonic_tests_rank(rows: list[tuple[int, ...]], bound: Any, hyperbolic: Any, exact: bool) -> None:
    said = says(analyse(of(rows, "RM")))
    found = (said["Liu-Layland bound"], said["hyperbolic bound"], said["response-time analysis"])
    assert found == (bound, hyperbolic, exact)


def test_a_full_processor_is_decided_under_edf() -> None:
    assert says(analyse(of([(2, 4), (3, 6)], "EDF")))["EDF demand bound (QPA)"] is True
    assert says(analyse(of([(2, 4), (3, 6, 4)], "EDF")))["EDF demand bound (QPA)"] is False


def test_limited_carry_in_is_never_worse_than_carry_in_of_all() -> None:
    draw = Random(5)
    better = 0
    for _ in range(150):
        rows = [(draw.randint(1, 6), draw.randint(8, 20)) for _ in range(draw.randint(3, 6))]
        answers = {o.test.name: o.answer for o in analyse(of(rows, "FP", processors=2)).outcomes if o.answer}
        limited, all_of = answers["global response times, limited carry-in"], answers["global response times"]
        for name, bound in all_of.bounds.items():
            assert limited.bounds[name].value <= bound.value
            better += limited.bounds[name].value < bound.value
    assert better


def test_reasons_name_what_is_missing() -> None:
    found = analyse(of([(1, 4), (1, 5, 9)], "EDF"))
    reasons = {o.test.name: o.reason for o in found.outcomes if o.answer is None}
    assert reasons["non-preemptive EDF"] == "it applies to no preemption, here it is full"
    assert reasons["global EDF density (GFB)"] == "it applies to tasks that share several processors"
    assert reasons["graph alone (Graham)"] == "the task set has no parallel graphs"


def test_verdicts_of_a_set_follow_from_its_processors() -> None:
    tasks = [{"period": 4, "wcet": 3, "cpu": 0}, {"period": 4, "wcet": 3, "cpu": 1}, {"period": 8, "wcet": 3, "cpu": 1}]
    made = taskset_from_mapping({"policy": "P_RM", "processors": 2, "tasks": tasks}, "test")
    assert [cpu for cpu, _ in problems(made)] == [0, 1]
    assert analyse(made).verdict == "infeasible"  # the second processor is overloaded


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 400), st.integers(1, 60), st.integers(1, 5), st.integers(1, 40), st.integers(1, 3))
def test_settle_finds_a_window_that_holds_its_demand(base: int, period: int, cost: int, limit: int, m: int) -> None:
    def need(window: int) -> int:
        return base + (-(-window // period) * cost) // m

    found = settle(need, base, 50 * limit)
    least = next((x for x in range(base, 50 * limit + 1) if need(x) <= x), None)
    if found is None:
        assert least is None
    else:
        assert least is not None and least <= found and need(found) <= found


def test_settle_takes_few_steps_where_the_way_is_long() -> None:
    calls = 0

    def need(window: int) -> int:
        nonlocal calls
        calls += 1
        return min(window + 1, 10**9)

    assert settle(need, 0, 2 * 10**9) == 10**9
    assert calls < 3000


def test_waters_2019_is_refused_for_the_reasons_published() -> None:
    # all kernels on the GPU: 7.9 / 33 + 27.333 / 66 + 116 / 200 + 124 / 400; the planner's WCET against its deadline
    rows = [(7900, 33000), (27333, 66000), (116000, 200000), (124000, 400000)]
    found = analyse(of(rows, "NP-FP", time_unit="us"))
    assert (found.verdict, found.decided_by) == ("infeasible", "utilisation")
    assert next(o.answer.note for o in found.outcomes if o.answer) == "utilisation 1.5435 over 1 processors"
    planner = analyse(of([(13242, 15000, 12000)], "FP", time_unit="us"))
    assert (planner.verdict, planner.decided_by) == ("infeasible", "utilisation")
    assert "needs 13242000 ns alone" in next(o.answer.note for o in planner.outcomes if o.answer)


def test_giving_up_is_not_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earliest_deadline_first, "WORK", 1)
    analysis = analyse(of([(2, 4), (1, 5), (2, 10)], "EDF"))
    found = {o.test.name: o.answer for o in analysis.outcomes if o.answer}
    assert found["EDF response times"].schedulable is None and not found["EDF response times"].bounds
    assert analysis.verdict == "feasible"


@pytest.mark.parametrize("policy", ["FP", "EDF", "NP_FP"])
def test_waits_for_shared_processors_in_c_are_those_of_the_python_functions(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = Random(policy)
    bounds = 0
    for _ in range(40):
        processors = drawn.choice((2, 3, 8))
        rows = [
            (drawn.randint(1, 40), drawn.randint(40, 200)) for _ in range(drawn.randint(processors, 5 * processors))
        ]
        made = of(rows, policy, processors=processors)
        mine = analyse(made)
        with monkeypatch.context() as patch:
            patch.setattr(several_processors, "library", lambda: None)
            assert analyse(made) == mine
        bounds += sum(len(outcome.answer.bounds) for outcome in mine.outcomes if outcome.answer)
    assert bounds
