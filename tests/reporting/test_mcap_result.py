"""Results as MCAP files: every message read back, points and boxes exactly, schemas as in Foxglove's SDK."""

from __future__ import annotations

import base64
import io
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from socsched.models.pointpillars.boxes import corners, footprints
from socsched.planning.plan import Plan
from socsched.reporting import foxglove
from socsched.reporting.foxglove import write_mcap
from socsched.runtime.frames import Frame
from socsched.runtime.ros_messages import CLOUD, decode
from socsched.trace import blocks, stored
from socsched.trace import io as trace_io
from socsched.trace.metrics import result
from socsched.trace.trace import Trace

MS = 10**6
RNG = np.random.default_rng(0)
POINTS = [RNG.normal(0, 30, (200 + number, 4)).astype(np.float32) for number in range(3)]
PIXELS = RNG.integers(0, 256, (1, 3, 5, 7), dtype=np.uint8)
BOX = [12.5, -3.25, -1.5, 1.6, 3.9, 1.5, 0.7]
FOUND = {"class": "Car", "label": 2, "score": 0.875, "box": BOX}
IN_IMAGE = {"class": "Bus", "label": 7, "score": 0.5, "box": [1.0, 2.0, 30.0, 40.0]}


class Feed:
    count = 3

    def frame(self, number: int) -> Frame:
        if number == 1:
            return Frame({}, "b.bin", "damaged")
        return Frame({"points": POINTS[number % 3], "image": PIXELS}, f"{number}.bin")

    def warm(self) -> Frame:
        return self.frame(0)

    def preload(self, frames: int) -> None:
        pass


def test_a_long_trace_is_written_in_parts(
    plan: Plan, trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mcap.writer")
    figures = result(trace, plan)
    write_mcap(plan, trace, figures, tmp_path / "whole", {}, {})
    for module, name, value in ((blocks, "BLOCK", 7), (stored, "SMALL", 0), (foxglove, "_AT_ONCE", 3)):
        monkeypatch.setattr(module, name, value)
    trace_io.save(trace, tmp_path / "trace.bin")
    long = trace_io.load(tmp_path / "trace.bin")
    assert long.columns.stored is not None
    write_mcap(plan, long, figures, tmp_path / "long", {}, {})
    assert (tmp_path / "long").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.fixture
def read(plan: Plan, trace: Trace, tmp_path: Path) -> dict[str, list[tuple[int, str, dict[str, Any]]]]:
    """Write the sample trace with two frames of detections, and return all messages by topic."""
    reader = pytest.importorskip("mcap.reader")
    trace.details = {
        0: {"frame": 0, "input": "0.bin", "points": 200, "detections": [FOUND]},
        2: {"frame": 2, "image_detections": [IN_IMAGE]},
        3: {"frame": 3, "input": "another file", "points": 5},
    }
    file = tmp_path / "a.mcap"
    ends = {"detections": "decode", "image_detections": "decode"}
    write_mcap(plan, trace, result(trace, plan), file, {"lidar": Feed()}, ends)
    found: dict[str, list[tuple[int, str, dict[str, Any]]]] = defaultdict(list)
    last = 0
    with file.open("rb") as stream:
        reading = reader.make_reader(stream, validate_crcs=True)
        for schema, channel, message in reading.iter_messages(log_time_order=False):
            assert last <= message.log_time == message.publish_time
            last = message.log_time
            content = json.loads(message.data)
            fits(content, json.loads(schema.data))
            if "timestamp" in content:
                assert content["timestamp"]["sec"] * 10**9 + content["timestamp"]["nsec"] == message.log_time
            found[channel.topic].append((message.log_time, schema.name, content))
        (attached,) = reading.iter_attachments()
        assert json.loads(attached.data) == json.loads(json.dumps(result(trace, plan)))
    return found


def fits(value: Any, schema: Mapping[str, Any]) -> None:
    """Check a value against the keywords of JSON Schema that the schemas use."""
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}
    assert isinstance(value, kinds[schema["type"]])
    if schema["type"] == "object" and "properties" in schema:
        assert set(value) == set(schema["properties"]) == set(schema["required"])
        for name, part in value.items():
            fits(part, schema["properties"][name])
    elif schema["type"] == "array":
        for part in value:
            fits(part, schema["items"])
    elif schema["type"] == "integer":
        assert schema.get("minimum", value) <= value <= schema.get("maximum", value)


@pytest.mark.needs("MCAP")
def test_points_and_images_are_those_of_the_run(read: Any) -> None:
    clouds = {time: content for time, _, content in read["/lidar/points"]}
    assert set(clouds) == {k * 100 * MS for k in range(20)} - {100 * MS, 300 * MS}
    for time, content in clouds.items():
        expected = POINTS[time // (100 * MS) % 3].tobytes()
        assert base64.b64decode(content["data"]) == expected
        assert decode(CLOUD, "json", json.dumps(content).encode()).tobytes() == expected
    _, kind, content = read["/lidar/image"][0]
    assert kind == "foxglove.CompressedImage"
    with Image.open(io.BytesIO(base64.b64decode(content["data"]))) as image:
        assert np.array_equal(np.asarray(image).transpose(2, 0, 1)[None], PIXELS)


@pytest.mark.needs("MCAP")
def test_boxes_lie_where_they_were_found(read: Any, trace: Trace) -> None:
    ((time, kind, content),) = read["/decode/detections"]
    assert kind == "foxglove.SceneUpdate"
    assert time == next(job.finish_ns for job in trace.jobs if (job.task, job.frame) == ("decode", 0))
    (cube,) = content["entities"][0]["cubes"]
    turn = cube["pose"]["orientation"]
    angle = 2 * math.atan2(turn["z"], turn["w"])
    rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    half = np.array([cube["size"]["x"], cube["size"]["y"]]) / 2
    centre = np.array([cube["pose"]["position"][axis] for axis in "xy"])
    outline = centre + (np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * half) @ rotation.T
    assert np.allclose(outline, corners(footprints(np.array([BOX])))[0], atol=1e-9)
    assert (cube["pose"]["position"]["z"], cube["size"]["z"]) == (BOX[2] + BOX[5] / 2, BOX[5])
    assert content["entities"][0]["texts"][0]["text"] == "Car 0.88"
    ((_, kind, content),) = read["/decode/image_detections"]
    assert kind == "foxglove.ImageAnnotations"
    assert [(p["x"], p["y"]) for p in content["points"][0]["points"]] == [(1, 2), (30, 2), (30, 40), (1, 40)]


@pytest.mark.needs("MCAP")
def test_timeline_gives_the_busy_time_of_every_lane(read: Any, plan: Plan, trace: Trace) -> None:
    for engine, lane in (("cpu", 0), ("cpu", 1), ("cpu", 2), ("gpu", 0), ("dla0", 0)):
        busy: dict[str, int] = defaultdict(int)
        rows = read[f"/engines/{engine}/{lane}"]
        for (start, _, content), (end, _, _) in itertools.pairwise(rows):
            busy[content["stage"]] += end - start
        busy.pop("", None)
        expected: dict[str, int] = defaultdict(int)
        for piece in trace.slices:
            if piece.engine == engine and lane in piece.lanes:
                expected[trace.jobs[piece.job].task] += piece.end_ns - piece.start_ns
        assert busy == expected
        assert rows[-1][2]["stage"] == ""


@pytest.mark.needs("MCAP")
def test_metrics_are_those_of_the_result(read: Any, plan: Plan, trace: Trace) -> None:
    figures = result(trace, plan)
    for chain in plan.chains:
        rows = [content for _, _, content in read[f"/chains/{chain.name}"]]
        assert sum(row["late"] for row in rows) == figures["chains"][chain.name]["missed"]
        assert max(row["response_ms"] for row in rows) * 1e6 == pytest.approx(
            figures["chains"][chain.name]["response_time_ns"]["max"]
        )
    assert [content["message"] for _, _, content in read["/log"]] == ["miss: deadline of <lidar-detection>, frame 7"]
    assert read["/counters/power_mw"][0][2] | {"timestamp": 0} == {"timestamp": 0, "value": 21_000.0, "unit": "mW"}


@pytest.mark.needs("Foxglove SDK")
@pytest.mark.parametrize("name", [name for name in foxglove.SCHEMAS if name.startswith("foxglove.")])
def test_schemas_are_those_of_foxgloves_sdk(name: str) -> None:
    from foxglove import messages
    from google.protobuf import descriptor_pb2, descriptor_pool

    schema = getattr(messages, name.removeprefix("foxglove.")).get_schema()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(schema.data).file:
        pool.Add(file)  # type: ignore[no-untyped-call]
    published(foxglove.SCHEMAS[name], pool.FindMessageTypeByName(name))


def published(schema: Mapping[str, Any], message: Any) -> None:
    """Check that a schema's properties are fields of a published message, of the same type."""
    if message.full_name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        assert set(schema["properties"]) == {"sec", "nsec"}
        return
    numbers = {"number": {1, 2}, "integer": {3, 4, 5, 7, 13, 14}, "string": {9, 12}, "boolean": {8}, "object": {11}}
    for name, part in schema.get("properties", {}).items():
        field = message.fields_by_name[name]
        assert field.is_repeated == (part["type"] == "array"), name
        inner = part.get("items", part)
        assert field.type in numbers[inner["type"]], name
        assert (field.type == 12) == (inner.get("contentEncoding") == "base64")
        if inner["type"] == "object":
            published(inner, field.message_type)
