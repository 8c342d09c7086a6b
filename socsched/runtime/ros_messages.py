"""Point clouds and images: ROS 2 messages in CDR (OMG DDS-XTypes 1.3, 7.4: PLAIN_CDR), Foxglove's in JSON or protobuf.

Layouts are those of `sensor_msgs` (PointCloud2, Image, CompressedImage), whose definitions have not changed since the
first release of ROS 2.  Values are checked against the content before anything of their size is allocated.
"""

from __future__ import annotations

import base64
import binascii
import io
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.descriptor.json_file import JsonFile
from socsched.errors import DescriptorError
from socsched.models.host import aligned_zeros

CLOUD, IMAGE, COMPRESSED = "points", "image", "compressed image"
TYPES = {
    ("sensor_msgs/msg/PointCloud2", "cdr"): CLOUD,
    ("sensor_msgs/msg/Image", "cdr"): IMAGE,
    ("sensor_msgs/msg/CompressedImage", "cdr"): COMPRESSED,
    ("foxglove.PointCloud", "json"): CLOUD,
    ("foxglove.CompressedImage", "json"): COMPRESSED,
    ("foxglove.PointCloud", "protobuf"): CLOUD,
    ("foxglove.CompressedImage", "protobuf"): COMPRESSED,
}
"""Type and encoding of a message -> what it holds."""
MOST_PIXELS = 1 << 28
_MOST_FIELDS = 256
_ROS_KINDS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
"""`sensor_msgs/PointField.datatype` -> numpy."""
_FOXGLOVE_KINDS = {1: "u1", 2: "i1", 3: "u2", 4: "i2", 5: "u4", 6: "i4", 7: "f4", 8: "f8"}
_CHANNELS: Mapping[str, tuple[int, Sequence[int]]] = {
    "rgb8": (3, (0, 1, 2)),
    "bgr8": (3, (2, 1, 0)),
    "rgba8": (4, (0, 1, 2)),
    "bgra8": (4, (2, 1, 0)),
    "mono8": (1, (0, 0, 0)),
    "8UC1": (1, (0, 0, 0)),
    "8UC3": (3, (2, 1, 0)),
}
"""Encoding -> bytes per pixel, positions of red, green and blue; OpenCV's 8UC3 is BGR."""
_INTENSITY = ("intensity", "i", "reflectivity")


@dataclass(slots=True)
class _Reader:
    """Reads CDR; offsets are aligned relative to the end of the four bytes of the encapsulation header."""

    data: bytes
    order: str = "<"
    at: int = 4

    def __post_init__(self) -> None:
        if len(self.data) < 4 or self.data[0] != 0 or self.data[1] not in (0, 1):
            raise ValueError("not plain CDR: the encapsulation header is not 00 00 or 00 01")
        self.order = "<" if self.data[1] else ">"

    def number(self, kind: str) -> Any:
        size = struct.calcsize(kind)
        self.at += -(self.at - 4) % size
        found = struct.unpack_from(self.order + kind, self.data, self.at)[0]
        self.at += size
        return found

    def octets(self) -> bytes:
        return self._take(self.number("I"))

    def text(self) -> str:
        return self.octets().rstrip(b"\0").decode("utf-8")

    def _take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise ValueError(f"a sequence of {count} bytes at byte {self.at} of {len(self.data)}")
        self.at += count
        return self.data[self.at - count : self.at]

    def stamp(self) -> int:
        """Read a `std_msgs/Header` and return its time in ns."""
        stamp = int(self.number("i")) * 10**9 + int(self.number("I"))
        self.text()
        return stamp


def header_of(data: bytes) -> tuple[int, int, str]:
    """Return seconds, nanoseconds and coordinate frame of a CDR message that begins with a `std_msgs/Header`.

    Raises ValueError for a message that is too short.
    """
    reader = _Reader(data)
    try:
        return int(reader.number("i")), int(reader.number("I")), reader.text()
    except struct.error:
        raise ValueError("the message is shorter than its header") from None


def decode(kind: str, encoding: str, data: bytes) -> npt.NDArray[Any]:
    """Return points float32 [N, 4] (x, y, z, intensity) or an image uint8 [1, 3, H, W], RGB.

    `kind`: a value of `TYPES`.  Rows whose coordinates are not finite are left out: clouds that are not dense mark
    missing returns so.  A cloud without intensity gets zeros.  Raises ValueError for content that is not as stated.
    """
    read = _READERS[kind, encoding]
    try:
        return read(data)
    except struct.error:
        raise ValueError("the message is shorter than its type requires") from None
    except (KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        raise ValueError(f"not a valid message: {type(error).__name__}: {error}") from None


def _cloud(data: bytes) -> npt.NDArray[np.float32]:
    reader = _Reader(data)
    reader.stamp()
    height, width, count = (int(reader.number("I")) for _ in range(3))
    if count > _MOST_FIELDS:
        raise ValueError(f"{count} fields in a point, expected at most {_MOST_FIELDS}")
    fields: dict[str, tuple[int, str]] = {}
    for _ in range(count):
        name, offset, kind, _ = reader.text(), reader.number("I"), reader.number("B"), reader.number("I")
        fields[name] = offset, _ROS_KINDS.get(kind, "")
    big, step, row = reader.number("B"), int(reader.number("I")), int(reader.number("I"))
    content = reader.octets()
    if row and row != step * width and height > 1:
        raise ValueError(f"rows of {row} bytes, expected {width} points of {step} bytes")
    return _points(content, height * width, step, fields, ">" if big else "<")


def _points(
    content: bytes, count: int, step: int, fields: Mapping[str, tuple[int, str]], order: str
) -> npt.NDArray[np.float32]:
    if not step or count * step > len(content):
        raise ValueError(f"{count} points of {step} bytes in {len(content)} bytes of data")
    intensity = next((name for name in _INTENSITY if name in fields), "")
    points: Any = aligned_zeros((count, 4), np.float32)
    with np.errstate(over="ignore"):
        for column, name in enumerate(("x", "y", "z", intensity)):
            if not name and column == 3:
                continue
            if name not in fields:
                raise ValueError(f"no field {name!r}, expected x, y and z")
            offset, kind = fields[name]
            if not kind or offset + np.dtype(kind).itemsize > step:
                raise ValueError(f"field {name!r} at byte {offset} does not fit a point of {step} bytes")
            points[:, column] = np.ndarray((count,), order + kind, content, offset, (step,)) if count else ()
    finite = np.isfinite(points).all(axis=1)
    if not finite.all():
        kept: Any = aligned_zeros((int(finite.sum()), 4), np.float32)
        kept[:] = points[finite]
        points = kept
    if not len(points):
        raise ValueError("no point with finite coordinates")
    return points  # type: ignore[no-any-return]


def _image(data: bytes) -> npt.NDArray[np.uint8]:
    reader = _Reader(data)
    reader.stamp()
    height, width = int(reader.number("I")), int(reader.number("I"))
    encoding = reader.text()
    reader.number("B")
    step, content = int(reader.number("I")), reader.octets()
    if encoding not in _CHANNELS:
        raise ValueError(f"image encoding {encoding!r}, expected one of {', '.join(_CHANNELS)}")
    size, order = _CHANNELS[encoding]
    if not 0 < height * width <= MOST_PIXELS or step < width * size or height * step > len(content):
        raise ValueError(f"{width} x {height} pixels, rows of {step} bytes, in {len(content)} bytes of data")
    pixels = np.ndarray((height, width, size), np.uint8, content, 0, (step, size, 1))
    return np.ascontiguousarray(pixels[:, :, list(order)].transpose(2, 0, 1)[None])


def _compressed(data: bytes) -> npt.NDArray[np.uint8]:
    reader = _Reader(data)
    reader.stamp()
    reader.text()
    return _opened(reader.octets())


def _opened(content: bytes) -> npt.NDArray[np.uint8]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content), formats=("JPEG", "PNG", "WEBP")) as image:
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(f"{image.width} x {image.height} pixels, expected at most {MOST_PIXELS}")
            pixels = np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise ValueError(f"not a JPEG, PNG or WebP image: {error}") from None
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


def _json(data: bytes) -> Any:
    try:
        return JsonFile(data, "message").data
    except DescriptorError as error:
        raise ValueError(error.findings[0].expected) from None


def _foxglove_cloud(data: bytes) -> npt.NDArray[np.float32]:
    message = _json(data)
    fields = {
        entry["name"]: (int(entry["offset"]), _FOXGLOVE_KINDS.get(entry["type"], "")) for entry in message["fields"]
    }
    content, step = base64.b64decode(message["data"], validate=True), int(message["point_stride"])
    return _points(content, len(content) // max(step, 1), step, fields, "<")


def _protobuf(data: bytes) -> dict[int, list[Any]]:
    """Return the fields of a protobuf message by number: integers, or bytes (also of fields of fixed size)."""
    found: dict[int, list[Any]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                raise ValueError("not a valid protobuf message")
            value |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if not data[at - 1] & 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            found.setdefault(key >> 3, []).append(varint())
            continue
        size = {1: 8, 5: 4}.get(key & 7, -1) if key & 7 != 2 else varint()
        if not 0 <= size <= len(data) - at:
            raise ValueError("not a valid protobuf message")
        found.setdefault(key >> 3, []).append(data[at : at + size])
        at += size
    return found


def _proto_cloud(data: bytes) -> npt.NDArray[np.float32]:
    message = _protobuf(data)
    entries = [_protobuf(entry) for entry in message.get(5, ())]
    fields = {
        entry.get(1, [b""])[0].decode("utf-8"): (
            int.from_bytes(entry.get(2, [b""])[0], "little"),
            _FOXGLOVE_KINDS.get(entry.get(3, [0])[0], ""),
        )
        for entry in entries
    }
    content, step = message.get(6, [b""])[0], int.from_bytes(message.get(4, [b""])[0], "little")
    return _points(content, len(content) // max(step, 1), step, fields, "<")


_READERS: Mapping[tuple[str, str], Callable[[bytes], npt.NDArray[Any]]] = {
    (CLOUD, "cdr"): _cloud,
    (IMAGE, "cdr"): _image,
    (COMPRESSED, "cdr"): _compressed,
    (CLOUD, "json"): _foxglove_cloud,
    (COMPRESSED, "json"): lambda data: _opened(base64.b64decode(_json(data)["data"], validate=True)),
    (CLOUD, "protobuf"): _proto_cloud,
    (COMPRESSED, "protobuf"): lambda data: _opened(_protobuf(data).get(2, [b""])[0]),
}
