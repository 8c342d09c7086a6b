"""Pipeline files: accepted values, and every kind of error with the exact position and text of its finding."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from descriptor_samples import PIPELINE, findings, replaced

from socsched.descriptor.pipeline import Anchor, Chain, Sensor
from socsched.descriptor.pipeline_file import load_pipeline, pipeline_from_mapping
from socsched.descriptor.platform import Figure
from socsched.descriptor.source import parse
from socsched.errors import EXIT_USAGE, DescriptorError


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
    ("name: small", "name: 5", ["2:7: name: expected text (in quotes if it looks like a number), got 5"]),
    ("name: small", "name: a b", [
        "2:7: name: expected a name of letters, digits, '_', '-', '.', starting with a letter or digit, got 'a b'",
    ]),
    ("lidar: {kind", "li dar: {kind", [
        "7:3: sensors.li dar: expected a name of letters, digits, '_', '-', '.', starting with a letter or digit,"
        " got 'li dar'",
        "13:13: stages.detect.after[0]: unknown sensor or stage 'lidar'; did you mean 'li dar'?",
        "29:12: chains.command.path[0]: unknown sensor or stage 'lidar'; did you mean 'li dar'?",
    ]),
    ("    reads: [camera]", "    reads: camera", ["18:12: stages.track.reads: expected a list, got 'camera'"]),
    ("[fp32, fp16]", "[fp32, fp61]", [
        "14:24: stages.detect.precisions[1]: expected one of 'fp32', 'fp16' or 'int8', got 'fp61'",
    ]),
    ("[fp32, fp16]", "[]", [
        "14:17: stages.detect.precisions: expected a list or mapping, length at least 1, got a list",
    ]),
    ("[fp32, fp16]", "[fp32, fp32]", ["14:24: stages.detect.precisions[1]: 'fp32' is listed twice"]),
    ("    title: steer\n", "    title: steer\n    queue: 0\n", [
        "23:12: stages.control.queue: expected a number not below 1, got 0",
    ]),
    ("    title: steer\n", "    title: steer\n    queue: yes\n", [
        "23:12: stages.control.queue: expected a whole number, got 'yes'",
    ]),
    ("    title: steer\n", "    title: steer\n    share: 1.5\n", [
        "23:12: stages.control.share: expected a whole number, got 1.5",
    ]),
    ("    title: steer\n", "    title:\n", [
        "22:11: stages.control.title: expected text (in quotes if it looks like a number), got nothing",
    ]),
    ("    title: steer\n", "    title: steer\n    criticality: very\n", [
        "23:18: stages.control.criticality: expected one of 'hard', 'firm' or 'soft', got 'very'",
    ]),
    ("    title: steer\n", "    title: steer\n    params: 3\n", [
        "23:13: stages.control.params: expected a mapping, got 3",
    ]),
    ("  track:\n", "  track: 5\n  other:\n", ["15:10: stages.track: expected a mapping, got 5"]),
    # quantities
    ("period: 100 ms}", "period: 100}", [
        "7:32: sensors.lidar.period: expected a duration such as '10 ms': the unit is missing in '100'",
    ]),
    ("period: 100 ms}", "period: 100 W}", [
        "7:32: sensors.lidar.period: expected a duration such as '10 ms':"
        " unit 'W' is not one of ns, us, µs, ms, s, min, h in '100 W'",
    ]),
    ("period: 100 ms}", "period: ten ms}", [
        "7:32: sensors.lidar.period: expected a duration such as '10 ms', got 'ten ms'",
    ]),
    ("period: 100 ms}", "period: 0 ms}", ["7:32: sensors.lidar.period: expected a positive duration, got '0 ms'"]),
    ("period: 100 ms}", "period: 0.1 ns}", ["7:32: sensors.lidar.period: expected at least 1 ns, got '0.1 ns'"]),
    ("period: 100 ms}", "period: -5 ms}", ["7:32: sensors.lidar.period: expected a positive duration, got '-5 ms'"]),
    ("period: 100 ms}", "period: 1e99 s}", [
        "7:32: sensors.lidar.period: expected a duration such as '10 ms', got '1e99 s', which is too large",
    ]),
    ("period: 100 ms}", "period: [100 ms]}", ["7:32: sensors.lidar.period: expected a duration such as '10 ms'"]),
    ("period: 100 ms}", "period: 100 ms, jitter: -1 ms}", [
        "7:48: sensors.lidar.jitter: expected a non-negative duration, got '-1 ms'",
    ]),
    ("period: 100 ms}", "period: 100 ms, bytes_per_frame: 3 MB/s}", [
        "7:57: sensors.lidar.bytes_per_frame: expected a size such as '64 KiB':"
        " unit 'MB/s' is not one of B, kB, MB, GB, TB, KiB, MiB, GiB in '3 MB/s'",
    ]),
    # figures
    ("source: bench", "source: bnech", [
        "20:106: stages.track.costs[0].time.source: unknown source 'bnech'; did you mean 'bench'?",
    ]),
    (", source: bench}", "}", [
        "20:68: stages.track.costs[0].time: a measured figure needs source, a key of sources",
    ]),
    (", note: a guess", "", [
        "26:68: stages.control.costs[0].time: an assumed figure needs note, the reasoning behind it",
    ]),
    ("kind: assumed, note: a guess", "kind: derived", [
        "26:68: stages.control.costs[0].time: a derived figure needs note, its formula",
    ]),
    ("kind: assumed", "kind: guessed", [
        "26:88: stages.control.costs[0].time.kind: expected one of 'measured', 'published', 'fitted', 'vendor model',"
        " 'derived' or 'assumed', got 'guessed'",
    ]),
    ("note: a guess}", "note: a guess, error: -1}", [
        "26:119: stages.control.costs[0].time.error: expected a number not below 0, got -1",
    ]),
    ("note: a guess}", "note: one, two}", [
        "26:108: stages.control.costs[0].time.two: unknown field; expected one of error, kind, note, range, source, value",  # noqa: E501
    ]),
    ("note: a guess}", "note: one, two three}", [
        "26:108: stages.control.costs[0].time.two three: unknown field; text with a comma needs quotes",
    ]),
    ("source: bench}}", "source: bench}, scale: 0}", [
        "20:121: stages.track.costs[0].scale: expected a number above 0, got 0",
    ]),
    # triggers and references
    ("    after: [detect]\n", "", [
        "15:3: stages.track: expected a trigger: after (sensors or stages) or period (a timer)",
        "28:27: chains.command.path[2]: 'track' neither waits for nor reads 'detect'; its inputs are camera",
    ]),
    ("    period: 20 ms\n", "    period: 20 ms\n    after: [track]\n", [
        "23:5: stages.control.period: expected one trigger, after or period; got both",
    ]),
    ("    after: [detect]\n", "    after: []\n", [
        "15:3: stages.track: expected a trigger: after (sensors or stages) or period (a timer)",
        "29:27: chains.command.path[2]: 'track' neither waits for nor reads 'detect'; its inputs are camera",
    ]),
    ("after: [detect]", "after: [detcet]", [
        "17:13: stages.track.after[0]: unknown sensor or stage 'detcet'; did you mean 'detect'?",
        "29:27: chains.command.path[2]: 'track' neither waits for nor reads 'detect'; its inputs are detcet, camera",
    ]),
    ("reads: [camera]", "reads: [zzz]", [
        "18:13: stages.track.reads[0]: unknown sensor or stage 'zzz'; expected one of camera, control, detect,"
        " lidar, track",
    ]),
    ("reads: [camera]", "reads: [camera, camera]", ["18:21: stages.track.reads[1]: 'camera' is listed twice"]),
    ("after: [detect]", "after: [detect, camera]", [
        "17:21: stages.track.after[1]: expected the period of 'detect' (100 ms), got 33 ms; sample the other rate"
        " with reads",
    ]),
    ("after: [lidar]", "after: [track]", [
        "13:12: stages.detect.after: cycle: detect waits for track waits for detect; read the latest output with reads"
        " instead",
        "29:19: chains.command.path[1]: 'detect' neither waits for nor reads 'lidar'; its inputs are track",
    ]),
    ("after: [lidar]", "after: [lidar, detect]", [
        "13:12: stages.detect.after: cycle: detect waits for detect; read the latest output with reads instead",
    ]),
    ("  camera: {kind: camera", "  track: {kind: camera", [
        "15:3: stages.track: expected a name that no sensor has",
        "18:13: stages.track.reads[0]: unknown sensor or stage 'camera'; expected one of control, detect, lidar, track",
        "29:27: chains.command.path[2]: expected a stage, got the sensor 'track'; a sensor can only start a chain",
    ]),
    ("    model: pointpillars.backbone\n", "", [
        "10:3: stages.detect: expected model, onnx or costs: a stage without network needs known execution times",
    ]),
    ("    title: find objects\n", "    title: find objects\n    offset: 1 ms\n", [
        "12:5: stages.detect.offset: offset belongs to a timer; expected it only together with period",
    ]),
    # chains
    ("path: [lidar, detect, track, control]", "path: [detect, track, control]", [
        "29:12: chains.command.path[0]: expected a sensor or a stage with a period, got 'detect', which is triggered",
    ]),
    ("path: [lidar, detect, track, control]", "path: [lidar, track, control]", [
        "29:19: chains.command.path[1]: 'track' neither waits for nor reads 'lidar'; its inputs are detect, camera",
    ]),
    ("path: [lidar, detect, track, control]", "path: [lidar]", [
        "29:12: chains.command.path[0]: expected a stage at the end, got the sensor 'lidar'",
    ]),
    ("path: [lidar, detect, track, control]", "path: []", [
        "29:11: chains.command.path: expected a list or mapping, length at least 1, got a list",
    ]),
    ("path: [lidar, detect, track, control]", "path: [lidar, detect, trakc]", [
        "29:27: chains.command.path[2]: unknown sensor or stage 'trakc'; did you mean 'track'?",
    ]),
    ("    deadline: 200 ms\n", "", [
        "28:3: chains.command.deadline: required field is missing; expected longest time from the release at the start"
        " of the path to its end",
    ]),
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
