"""A simulation or run as an MCAP file for Foxglove: inputs, detections, timeline and response times."""

from __future__ import annotations

import base64
import heapq
import io
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from socsched.errors import MachineError, extra
from socsched.files import replacing
from socsched.planning.plan import ChainResult, Plan
from socsched.runtime.frames import FrameSource
from socsched.runtime.input_files import POINTS
from socsched.trace.blocks import narrow
from socsched.trace.chains import Fates
from socsched.trace.columns import Columns, unit
from socsched.trace.convert import instants_of
from socsched.trace.io import ResultDocument
from socsched.trace.metrics import record_of
from socsched.trace.trace import Trace

if TYPE_CHECKING:
    from socsched.trace.columns import Floats, Ints

Json = dict[str, Any]

_NUMBER, _TEXT, _FLAG = {"type": "number"}, {"type": "string"}, {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}
_BYTES = {"type": "string", "contentEncoding": "base64"}


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _titled(title: str, schema: Json) -> Json:
    return {"title": title, **schema}


_TIME = _titled("time", _object(sec=_COUNT, nsec={**_COUNT, "maximum": 999_999_999}))
_DURATION = _titled("duration", _object(sec={"type": "integer"}, nsec={**_COUNT, "maximum": 999_999_999}))
_VECTOR = _object(x=_NUMBER, y=_NUMBER, z=_NUMBER)
_POINT = _object(x=_NUMBER, y=_NUMBER)
_COLOUR = _object(r=_NUMBER, g=_NUMBER, b=_NUMBER, a=_NUMBER)
_POSE = _object(position=_VECTOR, orientation=_object(x=_NUMBER, y=_NUMBER, z=_NUMBER, w=_NUMBER))
_PAIR = _object(key=_TEXT, value=_TEXT)
_FIELD = _object(name=_TEXT, offset=_COUNT, type=_COUNT)
_CUBE = _object(pose=_POSE, size=_VECTOR, color=_COLOUR)
_LABEL = _object(pose=_POSE, billboard=_FLAG, font_size=_NUMBER, scale_invariant=_FLAG, color=_COLOUR, text=_TEXT)
_NONE = _list({"type": "object"})
_ENTITY = _object(
    timestamp=_TIME, frame_id=_TEXT, id=_TEXT, lifetime=_DURATION, frame_locked=_FLAG, metadata=_list(_PAIR),
    arrows=_NONE, cubes=_list(_CUBE), spheres=_NONE, cylinders=_NONE, lines=_NONE, triangles=_NONE, texts=_list(_LABEL),
    models=_NONE,
)  # fmt: skip
_OUTLINE = _object(
    timestamp=_TIME, type=_COUNT, points=_list(_POINT), outline_color=_COLOUR, outline_colors=_list(_COLOUR),
    fill_color=_COLOUR, thickness=_NUMBER, metadata=_list(_PAIR),
)  # fmt: skip
_CAPTION = _object(
    timestamp=_TIME, position=_POINT, text=_TEXT, font_size=_NUMBER, text_color=_COLOUR, background_color=_COLOUR,
    metadata=_list(_PAIR),
)  # fmt: skip

CLOUD, IMAGE, SCENE = "foxglove.PointCloud", "foxglove.CompressedImage", "foxglove.SceneUpdate"
ANNOTATIONS, LOG = "foxglove.ImageAnnotations", "foxglove.Log"
ACTIVITY, RESPONSE, LEVEL = "socsched.Activity", "socsched.Response", "socsched.Level"
_SCHEMAS: Mapping[str, Json] = {
    CLOUD: _object(timestamp=_TIME, frame_id=_TEXT, pose=_POSE, point_stride=_COUNT, fields=_list(_FIELD), data=_BYTES),
    IMAGE: _object(timestamp=_TIME, frame_id=_TEXT, data=_BYTES, format=_TEXT),
    SCENE: _object(deletions=_list(_object(timestamp=_TIME, type=_COUNT, id=_TEXT)), entities=_list(_ENTITY)),
    ANNOTATIONS: _object(circles=_NONE, points=_list(_OUTLINE), texts=_list(_CAPTION)),
    LOG: _object(timestamp=_TIME, level=_COUNT, message=_TEXT, name=_TEXT, file=_TEXT, line=_COUNT),
    ACTIVITY: _object(timestamp=_TIME, stage=_TEXT, frame={"type": "integer"}),
    RESPONSE: _object(timestamp=_TIME, frame=_COUNT, response_ms=_NUMBER, deadline_ms=_NUMBER, late=_FLAG),
    LEVEL: _object(timestamp=_TIME, value=_NUMBER, unit=_TEXT),
}
SCHEMAS: Mapping[str, Json] = {name: _titled(name, schema) for name, schema in _SCHEMAS.items()}
"""JSON Schema of every message that is written, by name."""

_FLOAT32, _LINE_LOOP, _DELETE_ALL = 7, 2, 1
"""Values of foxglove.NumericType, foxglove.PointsAnnotationType and foxglove.SceneEntityDeletionType."""
WARNING, ERROR = 3, 4
"""Values of foxglove.LogLevel."""
_ORIGIN = {"position": {"x": 0, "y": 0, "z": 0}, "orientation": {"x": 0, "y": 0, "z": 0, "w": 1}}
_COLOURS = ((0.94, 0.89, 0.26), (0.88, 0.51, 0.75), (0.9, 0.55, 0.0), (0.34, 0.71, 0.91), (0.0, 0.62, 0.45))
_CLEAR = {"r": 0, "g": 0, "b": 0, "a": 0}


def stamp(time_ns: int) -> Json:
    """Return a time or duration as Foxglove writes it."""
    return {"sec": time_ns // 10**9, "nsec": time_ns % 10**9}


def cloud(time_ns: int, frame: str, points: Any) -> Json:
    """Return points float32 [N, 4] (x, y, z, intensity) as foxglove.PointCloud, exactly."""
    names = ("x", "y", "z", "intensity")
    return {
        "timestamp": stamp(time_ns),
        "frame_id": frame,
        "pose": _ORIGIN,
        "point_stride": 16,
        "fields": [{"name": name, "offset": 4 * i, "type": _FLOAT32} for i, name in enumerate(names)],
        "data": base64.b64encode(np.ascontiguousarray(points, "<f4").tobytes()).decode("ascii"),
    }


def image(time_ns: int, frame: str, pixels: Any) -> Json:
    """Return an image uint8 [1, 3, H, W] as foxglove.CompressedImage (PNG, so exactly)."""
    from PIL import Image

    target = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels[0].transpose(1, 2, 0))).save(target, "PNG", compress_level=1)
    data = base64.b64encode(target.getvalue()).decode("ascii")
    return {"timestamp": stamp(time_ns), "frame_id": frame, "data": data, "format": "png"}


def boxes(time_ns: int, frame: str, found: Sequence[Mapping[str, Any]], lifetime_ns: int) -> Json:
    """Return detections (x, y, z_bottom, w, l, h, ry; m, rad) as foxglove.SceneUpdate: a cube and a label each."""
    entity = {
        "timestamp": stamp(time_ns),
        "frame_id": frame,
        "id": "detections",
        "lifetime": stamp(lifetime_ns),
        "frame_locked": False,
        "metadata": [],
        "cubes": [_cube(one) for one in found],
        "texts": [_label(one) for one in found],
        **{key: [] for key in ("arrows", "spheres", "cylinders", "lines", "triangles", "models")},
    }
    return {"deletions": [{"timestamp": stamp(time_ns), "type": _DELETE_ALL, "id": ""}], "entities": [entity]}


def outlines(time_ns: int, found: Sequence[Mapping[str, Any]]) -> Json:
    """Return detections in an image (left, top, right, bottom; pixels) as foxglove.ImageAnnotations."""
    points, texts = [], []
    for one in found:
        left, top, right, bottom = one["box"]
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        colour = _colour(one, 1.0)
        points.append({
            "timestamp": stamp(time_ns), "type": _LINE_LOOP, "points": [{"x": x, "y": y} for x, y in corners],
            "outline_color": colour, "outline_colors": [], "fill_color": _CLEAR, "thickness": 2, "metadata": [],
        })  # fmt: skip
        texts.append({
            "timestamp": stamp(time_ns), "position": {"x": left, "y": top}, "text": _title(one), "font_size": 12,
            "text_color": colour, "background_color": _CLEAR, "metadata": [],
        })  # fmt: skip
    return {"circles": [], "points": points, "texts": texts}


def log(time_ns: int, level: int, name: str, text: str) -> Json:
    """Return a foxglove.Log."""
    return {"timestamp": stamp(time_ns), "level": level, "message": text, "name": name, "file": "", "line": 0}


def heading(ry: float) -> float:
    """Return the angle (rad) of a box's length about z, counter-clockwise from x, of its angle `ry`."""
    return -ry - math.pi / 2


def _cube(one: Mapping[str, Any]) -> Json:
    _, _, _, width, length, height, ry = one["box"]
    half = heading(ry) / 2
    turned = {"x": 0, "y": 0, "z": math.sin(half), "w": math.cos(half)}
    return {
        "pose": {"position": _centre(one), "orientation": turned},
        "size": {"x": length, "y": width, "z": height},
        "color": _colour(one, 0.4),
    }


def _label(one: Mapping[str, Any]) -> Json:
    centre = _centre(one)
    above = {**centre, "z": centre["z"] + one["box"][5] / 2 + 0.5}
    return {
        "pose": {"position": above, "orientation": _ORIGIN["orientation"]},
        "billboard": True,
        "font_size": 12,
        "scale_invariant": True,
        "color": _colour(one, 1.0),
        "text": _title(one),
    }


def _centre(one: Mapping[str, Any]) -> dict[str, float]:
    x, y, bottom, _, _, height, _ = one["box"]
    return {"x": x, "y": y, "z": bottom + height / 2}


def _title(one: Mapping[str, Any]) -> str:
    return f"{one['class']} {one['score']:.2f}"


def _colour(one: Mapping[str, Any], alpha: float) -> dict[str, float]:
    red, green, blue = _COLOURS[one["label"] % len(_COLOURS)]
    return {"r": red, "g": green, "b": blue, "a": alpha}


Message = tuple[int, int, str, str, Mapping[str, Any]]
"""Time in ns, a number that makes the order of equal times definite, topic, schema, content."""
_ERRORS = ("abort", "fault")
_AT_ONCE = 4096
"""Records that are read at once."""
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
    columns = trace.columns
    streams = (
        *_timeline(columns),
        *_counters(columns),
        _responses(plan, trace),
        _events(columns),
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
                text = json.dumps(SCHEMAS[schema]).encode()
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
                yield time_ns, number, f"/{name}/points", CLOUD, cloud(time_ns, LIDAR, array)
            elif array.ndim == 4 and array.dtype == "uint8" and array.shape[:2] == (1, 3):
                yield time_ns, number, f"/{name}/image", IMAGE, image(time_ns, CAMERA, array)


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
    for stage in ends.values() if trace.details else ():
        number = columns.tasks.index(stage) if stage in columns.tasks else -1
        done = np.flatnonzero((jobs.task == number) & (jobs.finish_ns >= 0))
        finished |= {
            (stage, frame): finish
            for frame, finish in zip(jobs.frame[done].tolist(), jobs.finish_ns[done].tolist(), strict=True)
        }
    rows: list[Message] = []
    for frame, details in trace.details.items():
        for key, stage in ends.items():
            time_ns = finished.get((stage, frame))
            if key not in details or time_ns is None:
                continue
            if key == "detections":
                content, schema = boxes(time_ns, LIDAR, details[key], lifetime), SCENE
            else:
                content, schema = outlines(time_ns, details[key]), ANNOTATIONS
            rows.append((time_ns, frame, f"/{stage}/{key}", schema, content))
    yield from sorted(rows, key=lambda row: row[:3])


def _timeline(columns: Columns) -> Iterator[Iterator[Message]]:
    """Yield, for every lane, its changes: the stage that starts, or no stage."""
    pieces = columns.slices
    engines, codes = narrow(pieces.engine), narrow(pieces.lanes)
    held = np.unique(np.stack((engines, codes), 1), axis=0).tolist()
    for engine, lane in sorted({(engine, lane) for engine, code in held for lane in columns.lanes(code)}):
        those = [code for of, code in held if of == engine and lane in columns.lanes(code)]
        rows = np.flatnonzero((engines == engine) & np.isin(codes, those))
        rows = rows[np.argsort(pieces.start_ns[rows], kind="stable")]
        yield _lane(columns, f"/engines/{columns.engines[engine]}/{lane}", rows)


def _lane(columns: Columns, topic: str, rows: Ints) -> Iterator[Message]:
    pieces, jobs = columns.slices, columns.jobs
    for at in range(0, len(rows), _AT_ONCE):
        here = rows[at : at + _AT_ONCE]
        job, end = pieces.job[here], pieces.end_ns[here].tolist()
        starts = pieces.start_ns[rows[at : at + _AT_ONCE + 1]].tolist()
        after = [*starts[1:], None][: len(here)]
        spans = zip(here.tolist(), jobs.task[job].tolist(), jobs.frame[job].tolist(), starts, end, after, strict=False)
        for row, task, frame, start, stop, following in spans:
            stage = columns.tasks[task]
            yield start, row, topic, ACTIVITY, {"timestamp": stamp(start), "stage": stage, "frame": frame}
            if following is None or following > stop:
                yield stop, row, topic, ACTIVITY, {"timestamp": stamp(stop), "stage": "", "frame": -1}


def _counters(columns: Columns) -> Iterator[Iterator[Message]]:
    for name, parts in sorted(columns.steps_of(tuple(columns.counters)).items()):
        yield _steps(f"/counters/{name}", unit(name), parts)


def _steps(topic: str, measure: str, parts: Iterable[tuple[Ints, Floats]]) -> Iterator[Message]:
    number = itertools.count()
    for times, values in parts:
        for at in range(0, len(times), _AT_ONCE):
            here = slice(at, at + _AT_ONCE)
            for time_ns, value in zip(times[here].tolist(), values[here].tolist(), strict=True):
                content = {"timestamp": stamp(time_ns), "value": value, "unit": measure}
                yield time_ns, next(number), topic, LEVEL, content


def _responses(plan: Plan, trace: Trace) -> Iterator[Message]:
    """Yield the response time of every completed frame of every chain at its end."""
    record = record_of(trace, plan)
    chains = (_responses_of(chain, record.fates(chain)) for chain in plan.chains)
    yield from heapq.merge(*chains, key=lambda row: row[:3])


def _responses_of(chain: ChainResult, fates: Fates) -> Iterator[Message]:
    frames = np.flatnonzero(fates.completed)
    for frame in frames[np.argsort(fates.finish_ns[frames], kind="stable")].tolist():
        finish = int(fates.finish_ns[frame])
        response = finish - int(fates.release_ns[frame])
        content = {
            "timestamp": stamp(finish),
            "frame": frame,
            "response_ms": response / 1e6,
            "deadline_ms": chain.deadline_ns / 1e6,
            "late": response > chain.deadline_ns,
        }
        yield finish, frame, f"/chains/{chain.name}", RESPONSE, content


def _events(columns: Columns) -> Iterator[Message]:
    """Yield misses, drops, faults and other events."""
    order = np.argsort(np.asarray(columns.instants.time_ns), kind="stable")
    parts = (instants_of(columns, order[at : at + _AT_ONCE]) for at in range(0, len(order), _AT_ONCE))
    for number, event in enumerate(itertools.chain.from_iterable(parts)):
        level = ERROR if event.kind in _ERRORS else WARNING
        frame = f", frame {event.frame}" if event.frame >= 0 else ""
        text = f"{event.kind}: {event.text}{frame}"
        yield event.time_ns, number, "/log", LOG, log(event.time_ns, level, event.subject, text)
