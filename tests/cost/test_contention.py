"""Contention models: worked examples, bounds, faulty parameters, and the way from the platform file to the plan."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.cost import contention
from socsched.cost.contention import Rival, contention_model, draw
from socsched.cost.contention.models import Curve, Linear
from socsched.cost.cost import Segment
from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.platform import ContentionChoice, contention_of
from socsched.descriptor.platform_file import load_platform
from socsched.descriptor.source import read
from socsched.descriptor.validation import coverage
from socsched.errors import UsageError
from socsched.models.work import stage_work
from socsched.planning.io import load, save
from socsched.planning.search import make_plan
from tools.generate.contention_fits import Row, fit_linear, fit_pairwise, fit_pccs, predict

GB = 10**9
CURVE = {
    "normal": 40 * GB, "intensive": 70 * GB, "mrmc": 4.0, "tbwdc": 80 * GB, "cbp": 50 * GB, "rate": 0.5,
    "peak": 130 * GB,
}  # fmt: skip
GPULET = {"l2_me": 0.113, "l2_you": 0.716, "dram_me": 0.355, "dram_you": 0.088, "constant": 0.895, "l2_per_dram": 0.9}
FALLING = {"l2_me": -0.18, "l2_you": 0.038, "dram_me": 0.126, "dram_you": -0.056, "constant": 1.018, "l2_per_dram": 0.5}
FACTORS = {"cpu": {"gpu": 1.1, "cpu": 1.02}, "gpu": {"cpu": 1.05, "dla": 1.3}, "dla": {"gpu": 1.2, "cpu": 1.4}}
ENGINES = {"cpu": "cpu", "gpu0": "gpu", "dla0": "dla"}
LANES = [("cpu", 0), ("cpu", 1), ("cpu", 2), ("gpu0", 0), ("dla0", 0)]
CHOICES: list[dict[str, Any]] = [
    {},
    {"model": "max-min"},
    {"model": "pccs", "parameters": {"default": CURVE, "gpu": {**CURVE, "normal": 0, "error": 0.05}}},
    {"model": "pccs", "parameters": {"default": CURVE, "capacity": 120 * GB, "gpu": {**CURVE, "traffic": 1.7}}},
    {"model": "linear", "parameters": GPULET},
    {"model": "linear", "parameters": {**FALLING, "error": 0.1}},
    {"model": "pairwise", "parameters": FACTORS},
]


def segment(gbps: float, time_ns: int = 1_000_000, fixed_ns: int = 0) -> Segment:
    """Return a segment that demands so many GB/s."""
    return Segment("s", time_ns, fixed_ns, round(gbps * (time_ns - fixed_ns)))


def model(choice: dict[str, Any], capacity: float = 100 * GB) -> contention.ContentionModel:
    return contention_model(ContentionChoice(**choice), capacity, ENGINES)


@st.composite
def neighbourhoods(draw_: st.DrawFn) -> tuple[list[tuple[str, Segment]], list[tuple[tuple[str, int], ...]]]:
    """Return jobs that run at once, none on another's lane, and the lanes of each."""
    order = draw_(st.permutations(LANES))
    jobs, places = [], []
    while order:
        engine = order[0][0]
        count = draw_(st.integers(1, sum(name == engine for name, _ in order)))
        taken = [lane for lane in order if lane[0] == engine][:count]
        order = [lane for lane in order if lane not in taken]
        if draw_(st.booleans()) or not jobs:
            time, fixed = draw_(st.integers(0, 10**7)), draw_(st.integers(0, 10**4))
            jobs.append((engine, Segment("s", time + fixed, fixed, draw_(st.integers(0, 10**9)))))
            places.append(tuple(taken))
    return jobs, places


@pytest.mark.parametrize("choice", CHOICES, ids=lambda c: c.get("model", "default") + str(len(str(c))))
@given(neighbourhoods(), st.floats(0, 1))
def test_the_worst_case_bounds_every_combination(
    choice: dict[str, Any], around: tuple[list[tuple[str, Segment]], list[tuple[tuple[str, int], ...]]], share: float
) -> None:
    """Also when rivals draw less than their most, and with a second rival on each lane that does not run now."""
    (engine, own), *others = around[0]
    rivals = {
        lane: [Rival(name, draw(s), len(places)), Rival(name, draw(s) * share, 1)]
        for (name, s), places in zip(others, around[1][1:], strict=True)
        for lane in places
    }
    quieter = [(name, replace(s, bytes=int(s.bytes * share))) for name, s in others]
    chosen = model(choice)
    worst = chosen.worst_pace(engine, (own, own), list(rivals.values()))
    for rivals in (others, quieter, others[:1], []):
        pace = chosen.paces([(engine, own), *rivals])[0]
        assert own.time_ns <= pace <= worst // 2


@pytest.mark.parametrize("choice", CHOICES, ids=lambda c: c.get("model", "default") + str(len(str(c))))
@given(neighbourhoods())
def test_a_segment_alone_or_without_traffic_is_not_slowed(choice: dict[str, Any], around: Any) -> None:
    jobs, _ = around
    chosen = model(choice, 10**19)
    assert chosen.paces(jobs[:1]) == (jobs[0][1].time_ns,)
    silent = [(name, replace(s, bytes=0)) for name, s in jobs]
    assert chosen.paces(silent) == tuple(s.time_ns for _, s in silent)
    assert chosen.worst_pace(*_alone(jobs[0]), []) == jobs[0][1].time_ns


def _alone(job: tuple[str, Segment]) -> tuple[str, tuple[Segment, ...]]:
    return job[0], (job[1],)


def test_pccs_by_hand() -> None:
    curve = Curve(**{name: float(value) for name, value in CURVE.items()})
    # Minor region: 4 % at 130 GB/s.
    assert curve.speed(30 * GB, 65 * GB) == pytest.approx(98.0)
    assert curve.speed(30 * GB, 0) == 100.0
    # Normal: 60 + 40 are 20 above 80, half a percent each; from 50 on nothing more is lost but the minor line.
    assert curve.speed(60 * GB, 40 * GB) == pytest.approx(90.0)
    assert curve.speed(60 * GB, 50 * GB) == curve.speed(60 * GB, 120 * GB) == pytest.approx(85.0)
    # Below the onset the minor line holds.
    assert curve.speed(60 * GB, 13 * GB) == pytest.approx(99.6)
    # Intensive: 0.5 (90 + 50 - 80) / 50 = 0.6 % a GB/s.
    assert curve.speed(90 * GB, 10 * GB) == pytest.approx(94.0)
    assert curve.speed(90 * GB, 100 * GB) == pytest.approx(70.0)
    chosen = model({"model": "pccs", "parameters": {"default": CURVE}})
    one, other = segment(60, 1_100_000, 100_000), segment(40)
    assert chosen.paces([("gpu0", one), ("dla0", other)])[0] == 100_000 + math.ceil(1_000_000 / 0.9)


def test_pccs_counts_the_traffic_an_engine_causes() -> None:
    """Twice the demand: 30 GB/s count as 60, next to 40 as in the example above."""
    own = {**CURVE, "traffic": 2.0}
    chosen = model({"model": "pccs", "parameters": {"default": CURVE, "gpu": own}})
    assert chosen.paces([("gpu0", segment(30)), ("dla0", segment(40))])[0] == math.ceil(1_000_000 / 0.9)
    # The other engine meets 60 GB/s, of which 50 count: 10 above 80.
    assert chosen.paces([("gpu0", segment(30)), ("dla0", segment(41))])[1] == math.ceil(1_000_000 / 0.945)


def test_pccs_follows_the_memory_of_the_mode() -> None:
    """At half the bandwidth half of the demands slow each other down as much."""
    chosen = {"model": "pccs", "parameters": {"default": CURVE, "capacity": 200 * GB}}
    full = model(chosen, 200 * GB).paces([("gpu0", segment(60)), ("dla0", segment(40))])
    half = model(chosen, 100 * GB).paces([("gpu0", segment(30)), ("dla0", segment(20))])
    assert full == half
    assert full[0] == math.ceil(1_000_000 / 0.9)


def test_pccs_with_a_capacity_never_exceeds_it() -> None:
    """Five engines of 40 GB/s share 100 GB/s, though each alone is in the minor region."""
    chosen = model({"model": "pccs", "parameters": {"default": CURVE, "capacity": 100 * GB}})
    names = ["cpu", "cpu", "cpu", "gpu0", "dla0"]
    paces = chosen.paces([(name, segment(40)) for name in names])
    assert all(pace == pytest.approx(2_000_000, rel=1e-6) for pace in paces)
    assert chosen.paces([("gpu0", segment(150))]) == (1_000_000,)


@given(st.floats(0, 2e11), st.floats(0, 2e11), st.floats(0, 1e11))
def test_pccs_never_speeds_up_with_load(own: float, external: float, more: float) -> None:
    curve = Curve(**{name: float(value) for name, value in CURVE.items()})
    assert 5.0 <= curve.speed(own, external + more) <= curve.speed(own, external) <= 100.0


def test_linear_by_hand() -> None:
    chosen = Linear(100 * GB, 0.1129, 0.7160, 0.3549, 0.0882, 0.8954)
    # bert 4 co-running with bert 12 on the 2080 Ti: L2 14.0 and 17.9 %, DRAM 30.3 and 34.5 %.
    expected = 0.8954 + 0.1129 * 0.140 + 0.7160 * 0.179 + 0.3549 * 0.303 + 0.0882 * 0.345
    assert chosen.slowdown(0.140, 0.179, 0.303, 0.345) == pytest.approx(expected)
    assert chosen.slowdown(0, 0, 0, 0) == 1.0, "no task gets faster"
    derived = replace(chosen, l2_per_dram=0.5)
    pace = derived.paces([("gpu0", segment(40)), ("dla0", segment(20))])[0]
    assert pace == math.ceil(1_000_000 * chosen.slowdown(0.2, 0.1, 0.4, 0.2))


def test_pairwise_by_hand() -> None:
    chosen = model({"model": "pairwise", "parameters": {**FACTORS, "dla0": {"gpu0": 1.5}}})
    paces = chosen.paces([("cpu", segment(1)), ("gpu0", segment(1)), ("dla0", segment(1)), ("cpu", segment(0))])
    # The second core draws nothing; ids count before kinds.
    # Rounded up, and 1.05 x 1.3 is a hair more in floating point.
    assert paces == (1_100_000, pytest.approx(1_365_000, abs=1), pytest.approx(2_100_000, abs=1), 1_000_000)


@pytest.mark.parametrize(
    ("choice", "fault"),
    [
        ({"model": "pcs"}, "unknown contention model 'pcs'"),
        ({"model": "max-min", "parameters": {"x": 1}}, "unknown parameter 'x'"),
        ({"model": "pccs", "parameters": {"gpu": CURVE}}, "expected a curve for engine 'cpu'"),
        ({"model": "pccs", "parameters": {"default": {**CURVE, "cbp": "50"}}}, "expected a number for cbp"),
        ({"model": "pccs", "parameters": {"default": {**CURVE, "normal": 38.1}}}, "a bandwidth with its unit"),
        (
            {"model": "pccs", "parameters": {"default": CURVE, "capacity": 100}},
            "a bandwidth with its unit for capacity",
        ),
        ({"model": "pccs", "parameters": {"default": {**CURVE, "rate": -1}}}, "no negative"),
        ({"model": "pccs", "parameters": {"default": {**CURVE, "intensive": 0}}}, "at or above normal"),
        ({"model": "linear", "parameters": {"l2_me": 1}}, "expected a number for l2_you"),
        ({"model": "pairwise", "parameters": {"npu": {"cpu": 1.1}}}, "unknown parameter 'npu'"),
        ({"model": "pairwise", "parameters": {"gpu": {"cpu": 0.9}}}, "at least 1"),
        ({"model": "pairwise", "parameters": {"gpu": 1.1}}, "expected factors by engine"),
    ],
)
def test_unusable_parameters_are_refused(choice: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        model(choice)


@given(st.lists(st.floats(1.0, 2.0), min_size=3, max_size=3))
def test_calibration_finds_the_factors_rows_were_made_with(factors: list[float]) -> None:
    gpu_dla, gpu_cpu, cpu_dla = factors
    times = 10**9
    rows = [
        Row("b", "1", "gpu", ("dla",), times, round(times * gpu_dla)),
        Row("b", "2", "gpu", ("dla", "cpu"), times, round(times * gpu_dla * gpu_cpu)),
        Row("b", "3", "cpu", ("gpu", "dla"), times, round(times * gpu_cpu * cpu_dla)),
    ]
    found = fit_pairwise(rows)
    assert all(predict(found, row) == pytest.approx(row.slowdown, rel=1e-6) for row in rows)
    assert found["cpu"]["dla"] == found["dla"]["cpu"] == pytest.approx(cpu_dla, rel=1e-6)
    # What is fitted is what the model takes.
    assert contention_model(ContentionChoice("pairwise", found), 0, {"cpu": "cpu", "gpu": "gpu", "dla": "dla"})


def test_calibration_without_evidence_is_refused() -> None:
    with pytest.raises(UsageError, match="no co-run rows"):
        fit_pairwise([])
    with pytest.raises(UsageError, match="5 coefficients"):
        fit_linear([(0.1, 0.1, 0.1, 0.1, 1.1)])
    with pytest.raises(UsageError, match="expected one achieved"):
        fit_pccs([1e9], [1e9, 2e9], [[1e9]])
    with pytest.raises(UsageError, match="no minor region"):
        fit_pccs([1e9, 2e9], [1e9, 2e9], [[1e9, 0.5e9], [1e9, 0.5e9]])


def test_linear_calibration_finds_the_coefficients_rows_were_made_with() -> None:
    made = {"l2_me": 0.1, "l2_you": 0.7, "dram_me": 0.35, "dram_you": 0.09, "constant": 1.0}
    points = [(i % 3 / 3, i % 5 / 5, i % 7 / 7, i % 4 / 4) for i in range(40)]
    rows = [(*p, 0.1 * p[0] + 0.7 * p[1] + 0.35 * p[2] + 0.09 * p[3] + 1.0) for p in points]
    found = fit_linear(rows)
    assert found.pop("error") < 1e-9
    assert found == pytest.approx(made)


@pytest.mark.slow
def test_the_platform_file_chooses_and_the_plan_carries(checkout: Path, tmp_path: Path) -> None:
    text = (checkout / "platforms" / "jetson-orin-nano-8gb.yaml").read_text(encoding="utf-8")
    rows = "{cpu: {gpu: 1.25, cpu: 1.02}, gpu: {cpu: 1.2}}"
    choice = f"  contention: {{model: pairwise, assumed: a test, parameters: {rows}}}\n"
    file = tmp_path / "board.yaml"
    changed = text.replace("dram:\n", "dram:\n" + choice, 1).replace("name: jetson-orin-nano-8gb", "name: board", 1)
    file.write_text(changed, encoding="utf-8")
    # Operator rules are in the folder of the shipped file.
    (tmp_path / "rules").symlink_to(checkout / "platforms" / "rules")
    platform = load_platform(file)
    assert platform.dram.contention.parameters["cpu"] == {"gpu": 1.25, "cpu": 1.02}
    assert not coverage(read(file)).uncovered
    made = make_plan(get_pipeline("pointpillars"), platform, None, work=stage_work, budget=20)
    assert made.contention == contention_of(platform)
    assert made.contention.parameters["cpu"] == {"gpu": 1.25, "cpu": 1.02}
    save(made, tmp_path / "plan.json")
    assert load(tmp_path / "plan.json") == made
    slowest = max(task.wcet_ns / task.cost_ns for task in made.tasks if task.bytes)
    assert slowest > 1, "planned tasks are charged the factors"
    # Where a mode switches engines off, the factors still name them.
    off = [mode for mode in platform.modes if any(state.units == 0 for state in mode.engines.values())]
    again = make_plan(get_pipeline("pointpillars"), platform, off[0].name, work=stage_work, budget=5)
    engines = {engine.id: engine.kind for engine in again.engines}
    assert len(engines) < len(platform.engines)
    assert contention_model(again.contention, again.dram_bandwidth, engines)
