"""A simulation or run as an MCAP file for Foxglove: inputs, detections, timeline and response times.

Times are those of the trace, ns from the start.  Messages are generated and written in order of time, one frame's
point cloud in memory at once.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from socsched.errors import MachineError, extra
from socsched.files import replacing
from socsched.planning.plan import Plan
from socsched.reporting import foxglove
from socsched.runtime.frames import FrameSource
from socsched.runtime.input_files import POINTS
from socsched.trace.derived import unit
from socsched.trace.document import ResultDocument
from socsched.trace.metrics import frame_fates
from socsched.trace.trace import Trace

Message = tuple[int, int, str, str, Mapping[str, Any]]
"""Time in ns, a number that makes the order of equal times definite, topic, schema, content."""
_ERRORS = ("abort", "fault")
LIDAR, CAMERA = "lidar", "camera"
"""Coordinate frames of points and images."""


def write_mcap(
    plan: Plan,
    trace: Trace,
    result: ResultDocument,
    file: Path,
    feeds: Mapping[str, FrameSource],
    ends: Mapping[str, str],
) -> None:
    """Write a result; `feeds` gives the inputs to include, by sensor.

    `ends`: the stage behind "detections" and "image_detections".  Raises MachineError without the package mcap.
    """
    try:
        from mcap.writer import CompressionType, Writer
    except ImportError:
        raise MachineError(f"{file}: MCAP files need the package mcap", extra("mcap")) from None
    streams = (
        *_timeline(trace),
        *_counters(trace),
        _responses(plan, trace),
        _events(trace),
        _detections(plan, trace, ends),
    )
    inputs = (_inputs(name, feed, trace) for name, feed in feeds.items())
    with replacing(file) as target:
        writer = Writer(target, compression=CompressionType.ZSTD)
        writer.start("", library="socsched")
        facts = {"pipeline": plan.pipeline, "platform": plan.platform, "mode": plan.mode, "kind": trace.kind}
        writer.add_metadata("socsched", facts)
        channels: dict[str, int] = {}
        schemas: dict[str, int] = {}
        for time_ns, number, topic, schema, content in heapq.merge(*streams, *inputs, key=lambda row: row[0]):
            if schema not in schemas:
                text = json.dumps(foxglove.SCHEMAS[schema]).encode()
                schemas[schema] = writer.register_schema(schema, "jsonschema", text)
            if topic not in channels:
                channels[topic] = writer.register_channel(topic, "json", schemas[schema])
            data = json.dumps(content, separators=(",", ":")).encode()
            writer.add_message(channels[topic], time_ns, data, time_ns, number)
        figures = json.dumps(result, indent=1, sort_keys=True).encode()
        writer.add_attachment(0, 0, "result.json", "application/json", figures)
        writer.finish()


def _inputs(name: str, feed: FrameSource, trace: Trace) -> Iterator[Message]:
    """Yield the frames of a sensor at their releases, except those that could not be used."""
    for number, time_ns in enumerate(map(int, trace.columns.releases.get(name, ()))):
        frame = feed.frame(number)
        if frame.problem or not _same(frame.title, trace.details.get(number, {})):
            continue
        for port, array in frame.outputs.items():
            if port == POINTS:
                yield time_ns, number, f"/{name}/points", foxglove.CLOUD, foxglove.cloud(time_ns, LIDAR, array)
            elif array.ndim == 4 and array.dtype == "uint8" and array.shape[:2] == (1, 3):
                yield time_ns, number, f"/{name}/image", foxglove.IMAGE, foxglove.image(time_ns, CAMERA, array)


def _same(title: str, details: Mapping[str, Any]) -> bool:
    """Return whether a frame is the one that the run used, as far as the run recorded it."""
    return "input" not in details or "points" not in details or details["input"] == title


def _detections(plan: Plan, trace: Trace, ends: Mapping[str, str]) -> Iterator[Message]:
    """Yield the detections of every frame at the end of the stage that found them."""
    periods = [sensor.period_ns for sensor in plan.sensors]
    lifetime = 2 * max(periods, default=0)
    columns = trace.columns
    jobs = columns.jobs
    finished: dict[tuple[str, int], int] = {}
    for task, frame, finish in zip(jobs.task.tolist(), jobs.frame.tolist(), jobs.finish_ns.tolist(), strict=True):
        if finish >= 0 and columns.tasks[task] in ends.values():
            finished[columns.tasks[task], frame] = finish
    rows: list[Message] = []
    for frame, details in trace.details.items():
        for key, stage in ends.items():
            time_ns = finished.get((stage, frame))
            if key not in details or time_ns is None:
                continue
            if key == "detections":
                content, schema = foxglove.boxes(time_ns, LIDAR, details[key], lifetime), foxglove.SCENE
            else:
                content, schema = foxglove.outlines(time_ns, details[key]), foxglove.ANNOTATIONS
            rows.append((time_ns, frame, f"/{stage}/{key}", schema, content))
    yield from sorted(rows, key=lambda row: row[:3])


def _timeline(trace: Trace) -> Iterator[Iterator[Message]]:
    """Yield, for every lane, its changes: the stage that starts, or no stage."""
    columns = trace.columns
    pieces = columns.slices
    lanes: dict[tuple[int, int], list[int]] = {}
    for row, (engine, code) in enumerate(zip(pieces.engine.tolist(), pieces.lanes.tolist(), strict=True)):
        for lane in columns.lanes(code):
            lanes.setdefault((engine, lane), []).append(row)
    for (engine, lane), rows in sorted(lanes.items()):
        yield _lane(trace, f"/engines/{columns.engines[engine]}/{lane}", rows)


def _lane(trace: Trace, topic: str, rows: Sequence[int]) -> Iterator[Message]:
    columns = trace.columns
    pieces, jobs = columns.slices, columns.jobs
    ordered = sorted(rows, key=lambda row: int(pieces.start_ns[row]))
    for row, after in zip(ordered, [*ordered[1:], None], strict=True):
        job, start, end = int(pieces.job[row]), int(pieces.start_ns[row]), int(pieces.end_ns[row])
        stage = columns.tasks[int(jobs.task[job])]
        yield start, row, topic, foxglove.ACTIVITY, _activity(start, stage, int(jobs.frame[job]))
        if after is None or int(pieces.start_ns[after]) > end:
            yield end, row, topic, foxglove.ACTIVITY, _activity(end, "", -1)


def _activity(time_ns: int, stage: str, frame: int) -> Mapping[str, Any]:
    return {"timestamp": foxglove.stamp(time_ns), "stage": stage, "frame": frame}


def _counters(trace: Trace) -> Iterator[Iterator[Message]]:
    for name, (times, values) in sorted(trace.columns.counters.items()):
        yield _steps(f"/counters/{name}", unit(name), times.tolist(), values.tolist())


def _steps(topic: str, measure: str, times: Sequence[int], values: Sequence[float]) -> Iterator[Message]:
    for number, (time_ns, value) in enumerate(zip(times, values, strict=True)):
        content = {"timestamp": foxglove.stamp(time_ns), "value": value, "unit": measure}
        yield time_ns, number, topic, foxglove.LEVEL, content


def _responses(plan: Plan, trace: Trace) -> Iterator[Message]:
    """Yield the response time of every completed frame of every chain at its end."""
    rows: list[Message] = []
    for chain in plan.chains:
        fates = frame_fates(trace, plan, chain)
        for frame in fates.completed.nonzero()[0].tolist():
            finish = int(fates.finish_ns[frame])
            response = finish - int(fates.release_ns[frame])
            content = {
                "timestamp": foxglove.stamp(finish),
                "frame": frame,
                "response_ms": response / 1e6,
                "deadline_ms": chain.deadline_ns / 1e6,
                "late": response > chain.deadline_ns,
            }
            rows.append((finish, frame, f"/chains/{chain.name}", foxglove.RESPONSE, content))
    yield from sorted(rows, key=lambda row: row[:3])


def _events(trace: Trace) -> Iterator[Message]:
    """Yield misses, drops, faults and other events."""
    for number, event in enumerate(sorted(trace.instants, key=lambda event: event.time_ns)):
        level = foxglove.ERROR if event.kind in _ERRORS else foxglove.WARNING
        frame = f", frame {event.frame}" if event.frame >= 0 else ""
        text = f"{event.kind}: {event.text}{frame}"
        yield event.time_ns, number, "/log", foxglove.LOG, foxglove.log(event.time_ns, level, event.subject, text)
