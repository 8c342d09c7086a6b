"""Messages in Foxglove's schemas (https://docs.foxglove.dev/docs/sdk/schemas), as JSON with JSON Schemas.

A schema holds the properties and types of the published one (github.com/foxglove/foxglove-sdk, schemas/jsonschema),
without the optional ones that are not written.  Timeline and response times have schemas of their own, since the
published ones have none: Foxglove's "State Transitions" and "Plot" panels read the fields of any schema.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

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
    import numpy as np

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
    import numpy as np
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
