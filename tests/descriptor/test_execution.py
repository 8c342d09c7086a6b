"""Execution times, late jobs and releases in pipeline files: accepted values, and errors with their positions."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist, fmean, pstdev

import pytest
from descriptor_samples import PIPELINE, findings

from socsched.descriptor.distribution import FARTHEST, STEPS, lognormal, normal
from socsched.descriptor.pipeline import PER_COST, Degraded, Execution, Stage
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.descriptor.provenance import coverage
from socsched.descriptor.source import parse

MS = 1_000_000


def with_fields(stage: str, text: str) -> str:
    """Return the sample pipeline with more fields of a stage or sensor, on lines of their own."""
    assert PIPELINE.count(f"  {stage}:\n    title") == 1
    return PIPELINE.replace(f"  {stage}:\n    title", f"  {stage}:\n    {text}\n    title")


def stage(text: str, name: str = "track") -> Stage:
    return pipeline_from_mapping(parse(with_fields(name, text).encode(), "f").data, "f").stage(name)


def test_factors_follow_the_planned_cost_and_times_do_not() -> None:
    found = stage("execution: {samples: [1.25, 0.5, 1]}").execution
    assert found == Execution((PER_COST // 2, PER_COST, PER_COST * 5 // 4), relative=True, interpolate=False)
    assert found.times_ns(8 * MS) == (4 * MS, 8 * MS, 10 * MS) and found.times_ns(3) == (2, 3, 4)
    found = stage("execution: {quantiles: [4 ms, 5 ms, 9 ms]}").execution
    assert found == Execution((4 * MS, 5 * MS, 9 * MS), relative=False, interpolate=True)
    assert found.times_ns(1) == (4 * MS, 5 * MS, 9 * MS)
    assert stage("execution: {uniform: [0.5, 2]}").execution == Execution((PER_COST // 2, 2 * PER_COST), True, True)


def test_late_jobs_queues_and_releases() -> None:
    assert stage("overflow: oldest").overflow == "oldest"
    late = stage("on_late: degrade\n    degraded: {precision: int8}")
    assert (late.on_late, late.degraded) == ("degrade", Degraded("int8"))
    assert stage("on_late: degrade\n    degraded: {cost: 0.25}").degraded == Degraded("", PER_COST // 4, True)
    assert stage("on_late: degrade\n    degraded: {cost: 3 ms}").degraded == Degraded("", 3 * MS)
    assert stage("jitter: 2 ms", "control").jitter_ns == 2 * MS
    sporadic = PIPELINE.replace("period: 100 ms}", "period: 100 ms, sporadic: 20 ms}")
    assert pipeline_from_mapping(parse(sporadic.encode(), "f").data, "f").sensors[0].gap_ns == 20 * MS


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("execution: {}", "stages.track.execution", "expected one of samples"),
        ("execution: {samples: [1], uniform: [1, 2]}", "stages.track.execution", "got several"),
        ("execution: {samples: [1, 5 ms]}", "stages.track.execution", "not both"),
        ("execution: {samples: [0]}", "stages.track.execution.samples[0]", "a factor on the planned cost"),
        ("execution: {samples: [5 W]}", "stages.track.execution.samples[0]", "unit"),
        ("execution: {quantiles: [2, 1]}", "stages.track.execution", "ascending"),
        ("execution: {uniform: [1]}", "stages.track.execution.uniform", "length"),
        ("execution: {normal: {mean: 1, sd: 0.1}}", "stages.track.execution.normal.max", "missing"),
        ("execution: {normal: {mean: 1, sd: 0.1, max: 0.9}}", "stages.track.execution", "min below mean below max"),
        ("execution: {normal: {mean: 1, sd: 0.1, max: 2}}", "stages.track.execution", "at most 8 standard deviations"),
        ("execution: {lognormal: {mean: 1, sd: 1 ms, max: 2}}", "stages.track.execution", "not both"),
        ("on_late: degrade", "stages.track.on_late", "expected degraded as well"),
        ("on_late: panic", "stages.track.on_late", "'continue', 'skip', 'abort' or 'degrade'"),
        ("degraded: {cost: 0.5}", "stages.track.degraded", "expected on_late: degrade"),
        ("on_late: degrade\n    degraded: {cost: 1.5}", "stages.track.degraded", "below 1"),
        ("on_late: degrade\n    degraded: {}", "stages.track.degraded", "one of precision and cost"),
        ("overflow: random", "stages.track.overflow", "'newest' or 'oldest'"),
        ("jitter: 1 ms", "stages.track.jitter", "belongs to a timer"),
    ],
)
def test_invalid_values_are_reported_with_their_position(tmp_path: Path, text: str, field: str, expected: str) -> None:
    found = findings("pipeline", with_fields("track", text), tmp_path)
    lines = with_fields("track", text).splitlines()
    line, _, rest = next((f for f in found if f": {field}: " in f), "0: nothing found").partition(":")
    assert expected in rest, found
    assert field.split(".")[2].split("[")[0] in lines[int(line) - 1]


def test_sporadic_frames_are_not_joined(tmp_path: Path) -> None:
    text = PIPELINE.replace("period: 33 ms}", "period: 100 ms, sporadic: 1 ms}").replace("[detect]", "[detect, camera]")
    (found,) = findings("pipeline", text, tmp_path)
    assert "stages.track.after[1]: frames of the sporadic 'camera'" in found


def test_new_numbers_need_grounds_as_others_do() -> None:
    def uncovered(text: str) -> set[str]:
        document = parse(with_fields("track", text).encode(), "f")
        found = {".".join(map(str, number.path)) for number in coverage(document).uncovered}
        return {path for path in found if "execution" in path or "degraded" in path}

    assert uncovered("execution: {samples: [1, 1.2]}") == {
        "stages.track.execution.samples.0",
        "stages.track.execution.samples.1",
    }
    assert uncovered("execution: {samples: [1, 1.2], source: bench}") == set()
    assert uncovered("on_late: degrade\n    degraded: {cost: 0.5}") == {"stages.track.degraded.cost"}
    assert uncovered("on_late: degrade\n    degraded: {cost: 0.5, assumed: a guess}") == set()


def test_quantiles_are_those_of_the_distribution() -> None:
    table = normal(Decimal(10**9), Decimal(10**8), Decimal(1), Decimal(18 * 10**8))
    reference = NormalDist(1e9, 1e8)
    assert len(table) == STEPS + 1 and table == tuple(sorted(table)) and table[-1] == 18 * 10**8
    assert all(abs(table[i] - reference.inv_cdf(i / STEPS)) < 100 for i in range(1, STEPS))
    assert table[0] == 10**9 - FARTHEST * 10**8
    table = lognormal(Decimal(10**9), Decimal(3 * 10**8), Decimal(1), Decimal(4 * 10**9))
    inner = [(a + b) / 2 for a, b in pairwise(table)]
    assert fmean(inner) == pytest.approx(1e9, rel=0.01) and pstdev(inner) == pytest.approx(3e8, rel=0.15)
    cut = normal(Decimal(10**9), Decimal(10**8), Decimal(9 * 10**8), Decimal(11 * 10**8))
    assert (cut[0], cut[STEPS // 2], cut[-1]) == (9 * 10**8, 10**9, 11 * 10**8)


def test_quantiles_are_the_same_everywhere() -> None:
    # written down once; a machine or a version that disagrees has another arithmetic
    table = lognormal(Decimal(PER_COST), Decimal(PER_COST) / 5, Decimal(1), Decimal(2 * PER_COST))
    assert (table[1], table[64], table[128], table[192], table[255]) == (
        *(579015156, 857947238, 980541805, 1120631580, 1656202098),
    )
