"""Pipeline files: accepted values, and every kind of error with the exact position and text of its finding.

Periods written as rates: whole nanoseconds that repeat together as the rates do.

Execution times, late jobs and releases in pipeline files: accepted values, and errors with their positions.

Operating conditions of pipelines and thermal states of platforms.
"""

from __future__ import annotations

import dataclasses
import math
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist, fmean, pstdev
from typing import Any

import pytest
from descriptor_samples import PIPELINE, findings, replaced
from hypothesis import given
from hypothesis import strategies as st

import socsched as ss
from socsched.descriptor.distribution import FARTHEST, STEPS, lognormal, normal
from socsched.descriptor.fields import Cycle, seldom_repeats, whole_periods
from socsched.descriptor.pipeline import PER_COST, Anchor, Chain, Degraded, Execution, Sensor, Stage, under_condition
from socsched.descriptor.pipeline_file import load_pipeline, pipeline_from_mapping
from socsched.descriptor.platform import Figure, mode_in_state
from socsched.descriptor.source import parse
from socsched.descriptor.validation import coverage
from socsched.errors import EXIT_USAGE, DescriptorError, UsageError


def test_sample_is_read(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(PIPELINE)
    pipeline = load_pipeline(tmp_path / "small.yaml")
    assert pipeline.name == "small" and pipeline.file == str(tmp_path / "small.yaml")
    assert pipeline.sensors == (Sensor("lidar", "lidar", 100_000_000), Sensor("camera", "camera", 33_000_000))
    assert [stage.name for stage in pipeline.stages] == ["detect", "track", "control"]
    assert pipeline.stage("detect").precisions == ("fp32", "fp16")
    assert pipeline.stage("track").reads == ("camera",)
    assert pipeline.stage("track").costs == (Anchor("p", "m", "cpu", "fp32", Figure(5e6, "measured", "bench")),)
    assert pipeline.stage("control").period_ns == 20_000_000
    assert pipeline.chains == (Chain("command", ("lidar", "detect", "track", "control"), 200_000_000),)
    assert pipeline.sources["bench"].title == "a bench"


@pytest.mark.parametrize(
    ("units", "change", "share"),
    [((1,), {}, 1), ((1, 1), {}, 1), ((0,), {}, 0), ((1, 2), {}, 0), ((1,), {"share": 0}, 0), ((1,), {"share": 2}, 2),
     ((1,), {"model": "camera.preprocess"}, 0)],
)  # fmt: skip
def test_a_time_for_one_unit_alone_is_that_of_serial_code(
    units: tuple[int, ...], change: dict[str, object], share: int
) -> None:
    data = parse(PIPELINE.encode(), "f").data
    stage = data["stages"]["track"]
    (cost,) = stage["costs"]
    stage |= {"costs": [{**cost, "platform": f"p{n}", "units": count} for n, count in enumerate(units)], **change}
    assert pipeline_from_mapping(data, "built").stage("track").share == share


def test_mapping_is_read_and_checked_like_a_file(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(PIPELINE)
    data = parse(PIPELINE.encode(), "f").data
    data["stages"]["track"]["after"] = ("detect",)
    read = pipeline_from_mapping(data, "built")
    assert dataclasses.replace(read, file="") == dataclasses.replace(load_pipeline(tmp_path / "small.yaml"), file="")
    del data["title"]
    with pytest.raises(DescriptorError, match=r"^built:1:1: title: required field is missing") as caught:
        pipeline_from_mapping(data, "built")
    assert caught.value.exit_code == EXIT_USAGE


CASES = [
    # structure
    ("name: small\n", "", [
        "1:1: name: required field is missing; expected name of the pipeline, as in the file's name",
    ]),
    ("name: small", "nmae: small", [
        "1:1: name: required field is missing; expected name of the pipeline, as in the file's name",
        "2:1: nmae: unknown field; did you mean 'name'?",
    ]),
    ('"1"', "1", ["1:17: schema_version: expected one of '1', got 1"]),
    ('"1"', '"2"', ["1:17: schema_version: expected one of '1', got '2'"]),
    ("name: small", "name: a b", [
        "2:7: name: expected a name of letters, digits, '_', '-', '.', starting with a letter or digit, got 'a b'",
    ]),
    ("lidar: {kind", "li dar: {kind", [
        "7:3: sensors.li dar: expected a name of letters, digits, '_', '-', '.', starting with a letter or digit,"
        " got 'li dar'",
        "13:13: stages.detect.after[0]: unknown sensor or stage 'lidar'; did you mean 'li dar'?",
        "29:12: chains.command.path[0]: unknown sensor or stage 'lidar'; did you mean 'li dar'?",
    ]),
    ("    title: steer\n", "    title: steer\n    queue: yes\n", [
        "23:12: stages.control.queue: expected a whole number, got 'yes'",
    ]),
    ("    title: steer\n", "    title: steer\n    params: 3\n", [
        "23:13: stages.control.params: expected a mapping, got 3",
    ]),
    ("  track:\n", "  track: 5\n  other:\n", ["15:10: stages.track: expected a mapping, got 5"]),
    # quantities
    ("period: 100 ms}", "period: 100 ms, jitter: -1 ms}", [
        "7:48: sensors.lidar.jitter: expected a non-negative duration, got '-1 ms'",
    ]),
    ("period: 100 ms}", "period: 100 ms, bytes_per_frame: 3 MB/s}", [
        "7:57: sensors.lidar.bytes_per_frame: expected a size such as '64 KiB':"
        " unit 'MB/s' is not one of B, kB, MB, GB, TB, KiB, MiB, GiB in '3 MB/s'",
    ]),
    # figures
    (", source: bench}", "}", [
        "20:68: stages.track.costs[0].time: a measured figure needs source, a key of sources",
    ]),
    (", note: a guess", "", [
        "26:68: stages.control.costs[0].time: an assumed figure needs note, the reasoning behind it",
    ]),
    ("kind: assumed, note: a guess", "kind: derived", [
        "26:68: stages.control.costs[0].time: a derived figure needs note, its formula",
    ]),
    ("note: a guess}", "note: one, two}", [
        "26:108: stages.control.costs[0].time.two: unknown field; expected one of error, kind, note, range, source, value",  # noqa: E501
    ]),
    ("note: a guess}", "note: one, two three}", [
        "26:108: stages.control.costs[0].time.two three: unknown field; text with a comma needs quotes",
    ]),
    # triggers and references
    ("after: [detect]", "after: [detcet]", [
        "17:13: stages.track.after[0]: unknown sensor or stage 'detcet'; did you mean 'detect'?",
        "29:27: chains.command.path[2]: 'track' neither waits for nor reads 'detect'; its inputs are detcet, camera",
    ]),
    ("reads: [camera]", "reads: [zzz]", [
        "18:13: stages.track.reads[0]: unknown sensor or stage 'zzz'; expected one of camera, control, detect,"
        " lidar, track",
    ]),
    ("after: [lidar]", "after: [lidar, detect]", [
        "13:12: stages.detect.after: cycle: detect waits for detect; read the latest output with reads instead",
    ]),
    ("  camera: {kind: camera", "  track: {kind: camera", [
        "15:3: stages.track: expected a name that no sensor has",
        "18:13: stages.track.reads[0]: unknown sensor or stage 'camera'; expected one of control, detect, lidar, track",
        "29:27: chains.command.path[2]: expected a stage, got the sensor 'track'; a sensor can only start a chain",
    ]),
    # chains
    ("    deadline: 200 ms\n", "    deadline: 200 ms\n    source: missing\n", [
        "31:13: chains.command.source: unknown source 'missing'; expected one of bench",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "expected"), CASES, ids=[f"{n}-{new[:24]!r}" for n, (_, new, _) in enumerate(CASES)]
)
def test_malformed(old: str, new: str, expected: list[str], tmp_path: Path) -> None:
    assert findings("pipeline", replaced(PIPELINE, old, new), tmp_path) == expected


def test_all_faults_are_reported_at_once_in_file_order(tmp_path: Path) -> None:
    text = replaced(PIPELINE, "period: 100 ms}", "period: 100}")
    text = replaced(text, "reads: [camera]", "reads: [camara]")
    text = replaced(text, "source: bench", "source: bank")
    text = replaced(text, "deadline: 200 ms", "deadlin: 200 ms")
    text = replaced(text, "title: steer", "title: 7")
    lines = [int(line.split(":")[0]) for line in findings("pipeline", text, tmp_path)]
    assert lines == sorted(lines) and set(lines) == {7, 18, 20, 22, 28, 30}


def test_two_separate_cycles_are_both_found(tmp_path: Path) -> None:
    text = replaced(PIPELINE, "after: [lidar]", "after: [detect]")
    text = replaced(text, "after: [detect]\n    reads", "after: [track]\n    reads")
    cycles = [line for line in findings("pipeline", text, tmp_path) if "cycle" in line]
    assert [line.split(":")[0] for line in cycles] == ["13", "17"]


CYCLE = Cycle("duration", positive=True)


def pipeline(camera: str, lidar: str) -> dict[str, object]:
    time = {"value": "1 ms", "kind": "assumed", "note": "a"}
    cost = {"platform": "x", "mode": "y", "engine": "cpu", "precision": "fp32", "time": time}
    stage = {"title": "t", "after": ["camera"], "reads": ["lidar"], "assumed": "a", "costs": [cost]}
    sensors = {"camera": {"kind": "camera", "period": camera}, "lidar": {"kind": "lidar", "period": lidar}}
    return {"schema_version": "1", "name": "p", "title": "t", "sensors": sensors, "stages": {"work": stage}}


def test_a_rate_is_a_period() -> None:
    assert CYCLE.read("50 Hz") == CYCLE.read("20 ms") == 20_000_000
    assert CYCLE.read("30 Hz") == Fraction(10**9, 30)
    assert whole_periods([CYCLE.read("30 Hz")]) == [33_333_333]


@pytest.mark.parametrize("text", ["0 Hz", "-5 Hz", "2 GHz", "30", "30 fps", "", "1e-999 Hz"])
def test_what_is_no_rate_and_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        CYCLE.read(text)


def test_rates_that_fit_into_each_other_still_do_in_nanoseconds() -> None:
    made = pipeline_from_mapping(pipeline("30 Hz", "10 Hz"), "p.yaml")
    camera, lidar = (sensor.period_ns for sensor in made.sensors)
    assert lidar == 3 * camera and abs(lidar - 10**8) < 100
    assert math.lcm(camera, lidar) == lidar


def test_periods_that_are_whole_stay_as_they_are_written() -> None:
    made = pipeline_from_mapping(pipeline("33.333 ms", "100 ms"), "p.yaml")
    assert [sensor.period_ns for sensor in made.sensors] == [33_333_000, 10**8]
    assert "3333 s" in seldom_repeats([33_333_000, 10**8])
    assert not seldom_repeats([33_333_333, 99_999_999]) and not seldom_repeats([])


def test_a_period_that_is_no_quantity_is_named_with_its_place() -> None:
    with pytest.raises(DescriptorError, match=r"sensors\.camera\.period.*expected"):
        pipeline_from_mapping(pipeline("30 fps", "10 Hz"), "p.yaml")


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=6))
def test_periods_stay_within_a_millionth_or_a_nanosecond_of_the_rates(rates: list[int]) -> None:
    exact = [Fraction(10**9, rate) for rate in rates]
    for stated, found in zip(exact, whole_periods(exact), strict=True):
        assert abs(found - stated) <= max(Fraction(1, 2), stated / 10**6)


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


COST = {
    "platform": "board", "mode": "fast", "engine": "cpu", "precision": "fp32",
    "time": {"value": "3 ms", "kind": "assumed", "note": "a test"},
}  # fmt: skip


def document(**conditions: Any) -> dict[str, Any]:
    return {
        "schema_version": "1", "name": "p", "title": "t",
        "sensors": {"left": {"kind": "camera", "period": "40 ms"}, "right": {"kind": "camera", "period": "40 ms"}},
        "stages": {
            "join": {"title": "t", "after": ["left", "right"], "costs": [COST]},
            "net": {"title": "t", "after": ["left"], "model": "camera.detector"},
        },
        "chains": {"c": {"path": ["left", "join"], "deadline": "40 ms"}},
        "conditions": {name: {"title": "t", **one} for name, one in conditions.items()},
    }  # fmt: skip


def test_a_condition_replaces_what_it_states() -> None:
    both = {"left": {"period": "80 ms"}, "right": {"period": "80 ms"}}
    changed = {"sensors": both, "stages": {"join": {"load": 2}}, "chains": {"c": {"deadline": "70 ms"}}}
    pipeline = pipeline_from_mapping(document(night=changed), "p.yaml")
    night = under_condition(pipeline, "night")
    assert [sensor.period_ns for sensor in night.sensors] == [80_000_000] * 2
    assert night.stage("join").costs[0].scale == 2 * pipeline.stage("join").costs[0].scale
    assert night.chains[0].deadline_ns == 70_000_000
    assert under_condition(pipeline, "base") is pipeline
    with pytest.raises(UsageError, match="no operating condition 'fog'"):
        under_condition(pipeline, "fog")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({"stages": {"jion": {"load": 2}}}, "did you mean 'join'?"),
        ({"sensors": {"radar": {"period": "1 s"}}}, "unknown sensor 'radar'"),
        ({"stages": {"net": {"load": 2}}}, "expected params instead"),
        ({"stages": {"join": {"params": {"points": 3}}}}, "expected load instead"),
        ({"stages": {"join": {"period": "1 s"}}}, "the stage has no timer"),
        ({"stages": {"join": {"load": 0}}}, "expected a number above 0"),
        ({"sensors": {"left": {"period": "80 ms"}}}, "expected equal periods of 'left' and 'right'"),
        ({"chains": {"d": {"deadline": "1 s"}}}, "unknown chain 'd'"),
    ],
)
def test_faults_are_found(condition: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptorError) as caught:
        pipeline_from_mapping(document(night=condition), "p.yaml")
    assert message in str(caught.value)


def test_base_is_not_a_name_for_a_condition() -> None:
    with pytest.raises(DescriptorError, match="base is the file without changes"):
        pipeline_from_mapping(document(base={}), "p.yaml")


def test_a_thermal_state_lowers_clocks_to_operating_points() -> None:
    board = ss.load_platform("jetson-agx-orin-64gb")
    mode = board.mode("MAXN")
    hot = mode_in_state(board, mode, "hot")
    assert hot.name == "MAXN@hot"
    for engine in board.engines:
        before, after = mode.engines[engine.id], hot.engines[engine.id]
        assert after.units == before.units
        assert 0 < after.clock_hz <= before.clock_hz / 2
        assert after.dynamic_mw.value <= before.dynamic_mw.value * after.clock_hz / before.clock_hz + 1
        if engine.points:
            assert after.clock_hz in {point.clock_hz for point in engine.points.points}
    assert mode_in_state(board, mode, "cool") is mode
    with pytest.raises(UsageError, match="no thermal state 'boiling'"):
        mode_in_state(board, mode, "boiling")
    other = ss.load_platform("rk3588")
    assert mode_in_state(other, other.mode(None), "nominal") is other.mode(None)
