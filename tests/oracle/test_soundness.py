"""A sample of tools/verify/soundness.py: no observed response above a bound, over every family and random plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.descriptor.taskset import taskset_from_mapping
from socsched.schedulability import response_times
from socsched.schedulability.chains import Sources
from socsched.schedulability.published.choose import analyse, tests
from socsched.schedulability.tasks import RtTask
from tools.verify import plan_runs, soundness
from tools.verify import reference_simulator as simulator
from tools.verify.cases import Tally
from tools.verify.random_plans import Case, make_plan

FAMILIES = soundness.FAMILIES


@pytest.mark.parametrize("family", list(FAMILIES))
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
@pytest.mark.sampled(9)
def test_no_response_is_above_a_bound(family: str, seed: int) -> None:
    tally = soundness.check(FAMILIES[family](Random(seed)), 6, seed)
    assert tally.faults == []


@pytest.mark.parametrize("first", range(0, 400, 20))
@pytest.mark.sampled(7)
def test_no_run_contradicts_a_plan(first: int) -> None:
    assert [fault for number in range(first, first + 20) for fault in plan_runs.check_case(number, 6).faults] == []


def test_the_search_sees_a_period_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampling that costs nothing, as it once did: reactions and ages above their bounds, and the smallest case."""
    honest = Sources._stretch
    monkeypatch.setattr(Sources, "_stretch", lambda self, root, last: replace(honest(self, root, last), period=0))
    tally = Tally()
    for number in range(12):
        tally.add(plan_runs.check_case(number, 4))
    assert {"reaction", "age"} <= set(tally.counts["kinds"])
    label, text = plan_runs.minimal(next(iter(tally.counts["cases"])), 4)
    assert "sampled" in label
    small = Case.of(text)
    assert len(small.pipeline["stages"]) <= 3
    assert any(fault.kind in ("reaction", "age") for fault in plan_runs.search(make_plan(small), 4, 1))


@pytest.mark.slow
def test_every_built_in_test_is_checked() -> None:
    """A test no family draws systems for would be sound by silence."""
    checked: set[str] = set()
    for family, make in FAMILIES.items():
        for number in range(40):
            analysis = soundness.analyse(make(Random(f"{family}/{number}")))
            for outcome in analysis.outcomes:
                if outcome.answer and (outcome.answer.bounds or outcome.answer.chain):
                    checked.add(outcome.test.name)
    # The utilisation test only says no; one simply adds to the WCET.
    left = {test.name for test in tests()} - checked
    assert left == {"utilisation", "memory accesses in the WCET"}


def test_suspension_as_jitter_of_its_length_is_refuted_and_jitter_of_r_minus_c_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The counterexample of Chen et al., RTS 55 2019, in tenths: a job that suspends whenever it has run a little."""
    rows = [{"period": 20, "wcet": 10}, {"period": 200, "wcet": 50, "suspension": 50}, {"period": 600, "wcet": 10}]
    data = {"policy": "FP", "tasks": [{**row, "prio": i} for i, row in enumerate(rows)]}
    taskset = taskset_from_mapping(data, "counterexample")
    unsound = 0
    for _ in range(50):  # R = C + sum of ceil((R + S_j) / T_j) C_j
        unsound = 10 + -(-unsound // 20) * 10 + -(-(unsound + 50) // 200) * 50

    def little_by_little(self: Any, job: Any, task: Any, cost: int) -> None:
        if job.arrival == 0:
            job.marks += [(done, "suspend", 9, 0) for done in range(1, 6)]

    monkeypatch.setattr(simulator.Simulation, "_suspensions", little_by_little)
    runs = [simulator.simulate(taskset, [0, 0, late], 600, 0, True).responses["t2"] for late in range(60, 200, 5)]
    assert max(runs) > unsound
    bounds = {o.test.name: o.answer.bounds for o in analyse(taskset).outcomes if o.answer}
    assert max(runs) <= bounds["suspension as jitter R - C"]["t2"].value


@pytest.mark.slow
def test_the_search_sees_an_unsound_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suspension of higher priorities left out: the search has to notice."""

    class Early(response_times.Classic):
        def __init__(self, higher: Sequence[RtTask], late: Mapping[str, int]) -> None:
            super().__init__(higher, dict.fromkeys(late, 0))

    monkeypatch.setattr(response_times, "Classic", Early)
    found: list[str] = []
    for seed in range(60):
        found += soundness.check(FAMILIES["self-suspension"](Random(seed)), 8, seed).faults
    assert any(line.startswith("suspension as jitter") for line in found)
