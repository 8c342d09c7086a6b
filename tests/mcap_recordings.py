"""MCAP files for tests, with messages encoded here, independently of the code under test."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CLOUD, IMAGE, COMPRESSED = ("sensor_msgs/msg/" + name for name in ("PointCloud2", "Image", "CompressedImage"))
KINDS = {"f4": 7, "u2": 4, "u1": 2, "f8": 8}


class Cdr:
    def __init__(self, order: str = "<") -> None:
        self.order, self.data = order, bytearray()

    def put(self, kind: str, *values: Any) -> Cdr:
        size = struct.calcsize(kind)
        for value in values:
            self.data += bytes(-len(self.data) % size) + struct.pack(self.order + kind, value)
        return self

    def octets(self, data: bytes) -> Cdr:
        self.put("I", len(data)).data.extend(data)
        return self

    def text(self, text: str) -> Cdr:
        return self.octets(text.encode() + b"\0")

    def message(self) -> bytes:
        return bytes((0, self.order == "<", 0, 0)) + bytes(self.data)


def header(order: str = "<") -> Cdr:
    return Cdr(order).put("i", 17).put("I", 5).text("lidar")


def cloud(points: Any, fields: str = "f4", order: str = "<", gap: int = 0) -> bytes:
    """Return rows x, y, z, intensity as a PointCloud2; `gap`: unused bytes after each point."""
    kinds = np.dtype([(name, order + fields) for name in ("x", "y", "z", "intensity")])
    table = np.zeros(len(points), np.dtype({
        "names": kinds.names, "formats": [order + fields] * 4, "offsets": [kinds.fields[n][1] for n in kinds.names],
        "itemsize": kinds.itemsize + gap,
    }))  # fmt: skip
    for column, name in enumerate(kinds.names):
        table[name] = points[:, column]
    message = header(order).put("I", 1, len(points), 4)
    for name in kinds.names:
        message.text(name).put("I", kinds.fields[name][1]).put("B", KINDS[fields]).put("I", 1)
    message.put("B", order == ">").put("I", table.itemsize, table.nbytes)
    return message.octets(table.tobytes()).put("B", 1).message()


def image(pixels: Any, encoding: str, padding: int = 0) -> bytes:
    """Return pixels [H, W, C] as an Image with `padding` bytes at the end of each row."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, width * channels + padding), np.uint8)
    rows[:, : width * channels] = pixels.reshape(height, -1)
    message = header().put("I", height, width).text(encoding).put("B", 0).put("I", rows.shape[1])
    return message.octets(rows.tobytes()).message()


def compressed(pixels: Any) -> bytes:
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, "PNG")
    return header().text("rgb8; png compressed").octets(target.getvalue()).message()


def write(path: Path, topics: dict[str, tuple[str, Iterable[bytes]]], compression: str = "ZSTD", **how: Any) -> Path:
    """Write messages 100 ms apart, topic after topic within an instant; returns `path`."""
    from mcap.writer import CompressionType, Writer

    with path.open("wb") as file:
        writer = Writer(file, chunk_size=20_000, compression=CompressionType[compression], **how)
        writer.start("ros2", "test")
        rows = []
        for topic, (kind, messages) in topics.items():
            schema = writer.register_schema(kind, "ros2msg", b"")
            channel = writer.register_channel(topic, "cdr", schema)
            rows += [(number, channel, data) for number, data in enumerate(messages)]
        for number, channel, data in sorted(rows, key=lambda row: row[:2]):
            writer.add_message(channel, number * 100_000_000, data, number * 100_000_000, number)
        writer.finish()
    return path
