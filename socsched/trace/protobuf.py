"""Protocol Buffers wire format, encoding many messages of one shape at a time.

A shape is a list of parts: bytes common to all messages, and slots that differ.  Slots have a fixed width, so that
messages of a shape are rows of one array: a varint is padded with empty groups of seven bits, which every parser reads
as the same number (Protocol Buffers Documentation, "Encoding").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_VARINT, _FIXED64, _LENGTH = 0, 1, 2
LONGEST = 10
"""Bytes of a varint that can hold any int64; 8 bytes hold non-negative values below 2**56."""


@dataclass(frozen=True, slots=True)
class Slot:
    """`width` bytes that differ from message to message: a padded varint, or a raw number."""

    name: str
    width: int


Part: TypeAlias = "bytes | Slot"


def varint(value: int) -> bytes:
    """Return a number as the shortest varint; a negative one takes ten bytes."""
    value &= (1 << 64) - 1
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def number(field: int, value: int | Slot) -> list[Part]:
    """Return an integer field."""
    return [varint(field << 3 | _VARINT), value if isinstance(value, Slot) else varint(value)]


def fixed64(field: int, slot: Slot) -> list[Part]:
    """Return a field of eight bytes: fixed64 or double."""
    return [varint(field << 3 | _FIXED64), slot]


def text(field: int, value: str) -> list[Part]:
    """Return a string field."""
    data = value.encode()
    return [varint(field << 3 | _LENGTH) + varint(len(data)) + data]


def message(field: int, parts: Sequence[Part]) -> list[Part]:
    """Return a field that holds a message of `parts`."""
    return [varint(field << 3 | _LENGTH) + varint(_size(parts)), *parts]


def plain(parts: Sequence[Part]) -> bytes:
    """Return a message without slots."""
    return b"".join(part for part in parts if isinstance(part, bytes))


def _size(parts: Sequence[Part]) -> int:
    return sum(part.width if isinstance(part, Slot) else len(part) for part in parts)


def width(values: NDArray[Any]) -> int:
    """Return the number of bytes a varint needs to hold any of `values`."""
    if not len(values):
        return 1
    low, high = int(values.min()), int(values.max())
    return LONGEST if low < 0 or high >= 1 << 56 else max(1, -(-high.bit_length() // 7))


def varints(values: NDArray[np.int64], width: int) -> NDArray[Any]:
    """Return numbers as padded varints, each one item of `width` bytes (at most 8, or 10)."""
    bits = values.astype("<i8", copy=False).view("<u8")
    # spread 56 bits over 8 bytes by halves: 28 + 28, then 14s, then 7s
    spread = bits & np.uint64(0x00FF_FFFF_FFFF_FFFF)
    for low, high, shift in (
        (0x0000_0000_0FFF_FFFF, 0x00FF_FFFF_F000_0000, 4),
        (0x0000_3FFF_0000_3FFF, 0x0FFF_C000_0FFF_C000, 2),
        (0x007F_007F_007F_007F, 0x3F80_3F80_3F80_3F80, 1),
    ):
        spread = (spread & np.uint64(low)) | ((spread & np.uint64(high)) << np.uint64(shift))
    more = min(width - 1, 8)
    spread |= np.uint64(int.from_bytes(b"\x80" * more, "little"))
    if width <= 8:
        bytewise = np.ascontiguousarray(spread, "<u8")
        items: NDArray[Any] = np.ndarray((len(values),), f"V{width}", bytewise, strides=(8,))
        return items
    whole = np.empty((len(values), LONGEST), np.uint8)
    whole[:, :8] = spread.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
    whole[:, 8] = (bits >> np.uint64(56)) & np.uint64(0x7F) | np.uint64(0x80)
    whole[:, 9] = bits >> np.uint64(63)
    items = whole.view(f"V{LONGEST}").reshape(-1)
    return items


def items(values: NDArray[np.int64]) -> NDArray[Any]:
    """Return numbers as varints of the least width that holds them all, one item each."""
    return varints(values, width(values))


def raw(values: NDArray[Any]) -> NDArray[Any]:
    """Return 64-bit numbers unencoded, one item each."""
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<")).view("V8")


class Shape:
    """Messages with the same parts: rows of bytes with a field for every slot."""

    def __init__(self, parts: Sequence[Part]) -> None:
        names, formats, offsets, image = [], [], [], b""
        for part in parts:
            if isinstance(part, Slot):
                names.append(part.name)
                formats.append(f"V{part.width}")
                offsets.append(len(image))
                image += bytes(part.width)
            else:
                image += part
        self.size = len(image)
        layout: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": self.size}
        self._dtype = np.dtype(layout)
        self._image = np.frombuffer(image, f"V{self.size}")
        self.at = dict(zip(names, offsets, strict=True))

    def blank(self, count: int) -> NDArray[Any]:
        """Return `count` messages with their slots empty."""
        return np.repeat(self._image, count)

    def fill(self, rows: NDArray[Any], values: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Write `values`, one item per row, into the slots of `rows`, and return `rows`."""
        fields = rows.view(self._dtype)
        for name, column in values.items():
            fields[name] = column
        return rows


class Rows:
    """Messages of several shapes, each with the time since the one before in its slot "time", `gap` bytes wide.

    `gaps` are these times in the order in which messages follow each other, `order` their places in it.
    """

    def __init__(self, gaps: NDArray[np.int64], order: NDArray[np.int64] | None = None) -> None:
        self.gaps, self.order, self.gap = gaps, order, width(gaps)
        self._sizes, self._times = np.zeros(len(gaps), np.int64), np.zeros(len(gaps), np.int64)
        self._parts: list[tuple[NDArray[np.int64], NDArray[Any]]] = []

    def put(self, places: NDArray[np.int64], parts: Sequence[Part], values: Mapping[str, NDArray[Any]]) -> None:
        """Put a message of `parts` at each of `places`, with one of `values`, items, in each slot."""
        if len(places):
            shape = Shape(parts)
            self._sizes[places], self._times[places] = shape.size, shape.at["time"]
            self._parts.append((places, shape.fill(shape.blank(len(places)), values)))

    def joined(self) -> bytes:
        """Return the messages in their order."""
        order = slice(None) if self.order is None else self.order
        ends, begins = np.cumsum(self._sizes[order]), np.empty(len(self.gaps), np.int64)
        begins[order] = ends - self._sizes[order]
        data = np.empty(int(ends[-1]), np.uint8)
        for places, rows in self._parts:
            _put(data, begins[places], rows)
        _put(data, (begins + self._times)[order], varints(self.gaps, self.gap))
        return data.tobytes()


def _put(data: NDArray[np.uint8], at: NDArray[np.int64], rows: NDArray[Any]) -> None:
    # overlapping items, one starting at each byte: assigning an item copies it to its position
    size = rows.dtype.itemsize
    np.ndarray((len(data) - size + 1,), rows.dtype, data, strides=(1,))[at] = rows
