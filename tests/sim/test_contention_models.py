"""Simulation under every contention model: worked examples, repeatable, and never beyond what the analysis charges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import MS, engine, plan, task
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from socsched.cost.contention import contention_model, draw
from socsched.cost.contention.models import MaxMin, Pccs
from socsched.cost.cost import Segment
from socsched.descriptor.platform import ContentionChoice
from socsched.faults.model import Faults
from socsched.planning.execution import with_wcet
from socsched.planning.plan import Plan
from socsched.sim.callbacks import Callbacks
from socsched.sim.kernel.stores import Contention
from socsched.sim.lower import lower
from socsched.sim.simulate import run, simulate
from socsched.trace.trace import Trace

GB = 10**9
CURVE = {
    "normal": 2 * GB, "intensive": 8 * GB, "mrmc": 5.0, "tbwdc": 5 * GB, "cbp": 6 * GB, "rate": 6.0, "peak": 10 * GB,
}  # fmt: skip
COEFFICIENTS = {"l2_me": 0.1, "l2_you": 0.4, "dram_me": 0.3, "dram_you": 0.2, "constant": 1.0, "l2_per_dram": 0.8}
FACTORS = {"cpu": {"cpu": 1.05, "gpu": 1.4}, "gpu": {"cpu": 1.2}}
CHOICES: dict[str, dict[str, Any]] = {
    "max-min": {},
    "pccs": {"model": "pccs", "parameters": {"default": CURVE}},
    "linear": {"model": "linear", "parameters": COEFFICIENTS},
    "pairwise": {"model": "pairwise", "parameters": FACTORS},
}


def made_of(tasks: list[Any], choice: dict[str, Any]) -> Plan:
    engines = [engine("cpu", lanes=3), engine("gpu", kind="gpu", preemption="segment")]
    return plan(tasks, engines, dram_bandwidth=10 * GB, contention=ContentionChoice(**choice))


def finishes(trace: Trace) -> dict[str, int]:
    return {job.task: job.finish_ns for job in trace.jobs if job.frame == 0}


def test_factors_hold_while_both_run_and_no_longer() -> None:
    """The GPU takes 20 % longer while a core runs: 0.9 ms of 1 ms are left when the core ends after its 1.4 ms."""
    tasks = [
        task("long", 3 * MS, bytes=10**6, engine="gpu", period_ns=100 * MS),
        task("short", 1 * MS, bytes=10**6, period_ns=100 * MS),
    ]
    found = finishes(simulate(made_of(tasks, CHOICES["pairwise"]), 50 * MS))
    # The short one co-runs with the long one throughout; the long one gets 1.4 / 1.2 of its 3 ms done meanwhile.
    assert found["short"] == 1_400_000
    assert found["long"] == pytest.approx(1_400_000 + 3_000_000 - 1_400_000 / 1.2, abs=2)


def test_the_curve_of_the_engine_counts() -> None:
    """4 GB/s and 4 GB/s are 3 above the 5 at which contention starts: both lose 18 % of their speed."""
    tasks = [
        task("one", 1 * MS, bytes=4 * 10**6, engine="gpu", period_ns=100 * MS),
        task("other", 1 * MS, bytes=4 * 10**6, period_ns=100 * MS),
    ]
    found = finishes(simulate(made_of(tasks, CHOICES["pccs"]), 50 * MS))
    assert found["one"] == found["other"] == pytest.approx(1e6 / 0.82, abs=1)


@st.composite
def task_lists(drawn: st.DrawFn) -> list[Any]:
    tasks = []
    for index in range(drawn(st.integers(1, 5))):
        cpu = drawn(st.booleans())
        lanes = drawn(st.sampled_from([(0,), (1,), (2,), (0, 1), (0, 1, 2)])) if cpu else (0,)
        segments = tuple(
            Segment(f"s{i}", time + fixed, fixed, size)
            for i, (time, fixed, size) in enumerate(
                drawn(
                    st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 100), st.integers(0, 30_000)), max_size=3)
                )
            )
        )
        tasks.append(
            task(
                f"t{index}",
                segments=segments or (Segment("s", 10, 0, 0),),
                engine="cpu" if cpu else "gpu",
                lanes=lanes,
                period_ns=drawn(st.integers(2_000, 20_000)),
                offset_ns=drawn(st.integers(0, 5_000)),
                queue=1,
            )
        )
    return tasks


@pytest.mark.parametrize("name", CHOICES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(task_lists())
def test_no_job_executes_longer_than_the_analysis_charges(name: str, tasks: list[Any]) -> None:
    made = made_of(tasks, CHOICES[name])
    model = contention_model(made.contention, made.dram_bandwidth, {e.id: e.kind for e in made.engines})
    charged = {t.name: t.wcet_ns for t in with_wcet(made.tasks, model)}
    trace = simulate(made, 60_000)
    least = {t.name: t.cost_ns for t in made.tasks}
    for job in trace.jobs:
        if job.status == "done":
            # What is left is rounded up to a nanosecond whenever the pace changes.
            slack = len(trace.slices) + job.preemptions
            assert least[job.task] <= job.exec_ns <= charged[job.task] + slack
    assert simulate(made, 60_000) == trace


@pytest.mark.parametrize("name", ["max-min", "pccs", "pccs with shares"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(tasks=task_lists(), share=st.floats(0.001, 3), scale=st.floats(0.2, 4))
def test_the_kernel_computes_what_the_model_states(name: str, tasks: list[Any], share: float, scale: float) -> None:
    """The same durations as the model's function gives for every combination, and hence the same simulation."""
    choice = CHOICES[name.split()[0]]
    if name.endswith("shares"):
        parameters = {"default": CURVE, "gpu": {**CURVE, "traffic": 1 + share}, "capacity": 10 * GB * scale}
        choice = {"model": "pccs", "parameters": parameters}
    made = replace(made_of(tasks, choice), dram_bandwidth=int(10 * GB * share))
    computed = simulate(made, 60_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(Pccs, "law")
        patch.delattr(MaxMin, "law")
        asked = simulate(made, 60_000)
    assert computed == asked
    assert run(made, 60_000, implementation="compiled").trace == computed
    callbacks = Callbacks(lowered := lower(made, 0), Faults(), 0)
    rows = [row for row, (_, segment) in enumerate(lowered.segments) if draw(segment)]
    kept = Contention(callbacks.resolve_contention, lowered.tables, len(rows) + 1)
    for count in range(len(rows) + 1):
        for place, row in enumerate(rows[:count]):
            kept.row[place] = row
        assert kept.compute(count)
        assert tuple(kept.pace[:count]) == callbacks.model.paces([lowered.segments[row] for row in rows[:count]])
