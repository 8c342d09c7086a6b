"""Reading of CTF 1.8 traces: the event streams of a folder in order of time, bounded by the size of the files."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from socsched.bounded import read_bytes
from socsched.errors import InputError
from socsched.interchange.ctf_metadata import (
    MOST_ARRAY,
    Array,
    Enum,
    Float,
    Integer,
    Metadata,
    Parser,
    Stream,
    String,
    Struct,
    Variant,
    text_of,
)

MOST_BYTES = 2**30
"""All stream files of a trace together."""
MOST_EVENTS = 5_000_000
MOST_FILES = 4096
_HINT = "give the folder of a CTF trace (it, or one below it, holds a file named metadata)"
_MAGIC = 0xC1FC1FC1


@dataclass(frozen=True, slots=True)
class Event:
    """An event: time in ns, name, fields without leading underscores; process, thread and processor where known.

    Numbers of processes and threads are those of the trace, apart from further traces in the folder: two containers or
    hosts may have equal ones, so theirs have the trace's place above the lowest 32 bits.
    """

    time_ns: int
    name: str
    fields: Mapping[str, Any]
    process: int = 0
    thread: int = 0
    cpu: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """A time (ns) within which a processor's events, or some of them, were discarded."""

    begin_ns: int
    end_ns: int
    cpu: int


@dataclass(frozen=True, slots=True)
class CtfTrace:
    """All events in order of time; `lost`: events that the tracer discarded, in `gaps`; `env`: its own description."""

    events: tuple[Event, ...]
    env: Mapping[str, str]
    lost: int = 0
    gaps: tuple[Gap, ...] = ()


def read_trace(folder: Path) -> CtfTrace:
    """Return the events of all traces in and below a folder.

    Raises InputError for a folder without a trace or a damaged stream, DescriptorError for faulty metadata.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: not a folder", _HINT)
    files = sorted(folder.rglob("metadata"))[:MOST_FILES]
    if not files:
        raise InputError(f"{folder}: no CTF trace: no file named metadata", _HINT)
    events, env, lost, left = list[Event](), dict[str, str](), 0, MOST_BYTES
    gaps = list[Gap]()
    for place, file in enumerate(files):
        try:
            text = text_of(read_bytes(file, "metadata", _HINT, 2**24))
        except (ValueError, struct.error) as error:
            raise InputError(f"{file}: damaged metadata: {error}", _HINT) from None
        metadata = Parser(text, str(file)).parse()
        env |= metadata.env
        for path in sorted(p for p in file.parent.iterdir() if p.is_file() and p != file)[:MOST_FILES]:
            raw = read_bytes(path, "stream", _HINT, left)
            left -= len(raw)
            try:
                lost += _read_stream(raw, metadata, events, gaps, place)
            except (_Damaged, KeyError, IndexError, TypeError, struct.error, UnicodeDecodeError) as error:
                raise InputError(f"{path}: damaged stream: {error}", "record it again, or remove that file") from None
    events.sort(key=lambda event: event.time_ns)
    return CtfTrace(tuple(events), env, lost, tuple(gaps))


class _Damaged(ValueError):
    """A stream that does not fit its metadata."""


def _read_stream(raw: bytes, metadata: Metadata, events: list[Event], gaps: list[Gap], place: int) -> int:
    """Append the events of a stream file and its gaps; return how many events the tracer discarded.

    A packet's counter states those discarded up to its end.  Ring buffers discard what finds no next packet, so the
    gaps are those before and after the packet.  Packets that are missing by their numbers leave a gap, too.
    """
    at, lost, sequence, last = 0, 0, -1, -1
    open_gap = False
    while at < len(raw):
        reader = _Reader(raw, at * 8, len(raw) * 8)
        header = reader.read(metadata.packet_header, {}) if metadata.packet_header else {}
        if header.get("magic", _MAGIC) != _MAGIC:
            raise _Damaged(f"byte {at}: expected a packet")
        number = header.get("stream_id", 0)
        stream = metadata.streams.get(number)
        if stream is None:
            raise _Damaged(f"byte {at}: no stream {number} in the metadata")
        context = reader.read(stream.packet, {}) if stream.packet else {}
        size = context.get("packet_size", (len(raw) - at) * 8)
        content = context.get("content_size", size)
        if not 0 < size <= (len(raw) - at) * 8 or content > size or size % 8 or at * 8 + content < reader.at:
            raise _Damaged(f"byte {at}: a packet of {size} bits with {content} in use")
        discarded, number = int(context.get("events_discarded", 0)), int(context.get("packet_seq_num", -1))
        cpu, before = int(context.get("cpu_id", 0)), len(events)
        reader.end = at * 8 + content
        reader.clock = begin = int(context.get("timestamp_begin", 0))
        _read_events(reader, stream, metadata, cpu, events, place, context)
        times = [event.time_ns for event in events[before:]] or [metadata.time_ns(begin, reader.clock_name)]
        first = min(times)
        missing = number > sequence + 1 and sequence >= 0
        if open_gap or missing or discarded > lost:
            gaps.append(Gap(first if last < 0 else last, first, cpu))
        open_gap, lost, sequence, last = discarded > lost, max(lost, discarded), number, max(times)
        at += size // 8
    if open_gap:
        gaps.append(Gap(last, 2**63, cpu))
    return lost


def _read_events(
    reader: _Reader,
    stream: Stream,
    metadata: Metadata,
    cpu: int,
    events: list[Event],
    place: int,
    packet: Mapping[str, Any],
) -> None:
    """Append the events of a packet, whose context is `packet`."""
    while reader.at < reader.end:
        before = reader.at
        header = reader.read(stream.header, packet) if stream.header else {}
        number = header.get("#id", header.get("id", 0))
        inner = header.get("v")
        if isinstance(inner, dict):
            number = inner.get("id", number)
        known = stream.events.get(number)
        if known is None:
            raise _Damaged(f"byte {before // 8}: no event {number} in the metadata")
        name, own, kind = known
        scope = {**packet, **header}  # lengths and tags may be in any part before
        context = reader.read(stream.context, scope) if stream.context else {}
        if own:
            context |= reader.read(own, {**scope, **context})
        fields = reader.read(kind, {**scope, **context}) if kind else {}
        if reader.at == before or len(events) >= MOST_EVENTS:
            raise _Damaged(f"expected at most {MOST_EVENTS} events that have a size")
        time = metadata.time_ns(reader.clock, reader.clock_name)
        plain = {key.removeprefix("_"): value for key, value in fields.items() if key[0] != "#"}
        context = {key.removeprefix("_"): value for key, value in context.items()}
        process, thread = (
            int(context.get("vpid", context.get("pid", 0))),
            int(context.get("vtid", context.get("tid", 0))),
        )
        apart = place << 32
        events.append(Event(time, name, plain, process + apart, thread + apart, int(context.get("cpu_id", cpu))))


class _Reader:
    """A cursor over the bits of a stream.

    `clock` follows the fields that are mapped to the clock `clock_name`.  `number` is the value of the last enumeration
    read; its label is returned.
    """

    def __init__(self, raw: bytes, at: int, end: int) -> None:
        self.raw, self.at, self.end, self.clock, self.number = raw, at, end, 0, 0
        self.clock_name = ""

    def read(self, kind: Any, outer: Mapping[str, Any]) -> Any:
        """Return the next value of a type; `outer`: fields that lengths and tags may refer to."""
        if isinstance(kind, Integer):
            return self._integer(kind)
        self._skip_to(kind.align)
        if isinstance(kind, Struct):
            found: dict[str, Any] = {}
            for name, inner in kind.fields:
                found[name] = self.read(inner, {**outer, **found})
                if isinstance(inner, Enum):
                    found[f"#{name}"] = self.number
            return found
        if isinstance(kind, String):
            start = self.at // 8
            end = self.raw.index(b"\0", start, self.end // 8) if b"\0" in self.raw[start : self.end // 8] else -1
            if end < 0:
                raise _Damaged(f"byte {start}: a string without an end")
            self.at = (end + 1) * 8
            return self.raw[start:end].decode("utf-8", "replace")
        if isinstance(kind, Enum):
            value = self.number = self._integer(kind.base)
            return next((label for label, low, high in kind.labels if low <= value <= high), value)
        if isinstance(kind, Variant):
            label = _field(outer, kind.tag)
            for name, inner in kind.options:
                if name == label:
                    return self.read(inner, outer)
            raise _Damaged(f"byte {self.at // 8}: no variant for {label!r}")
        if isinstance(kind, Array):
            return self._array(kind, outer)
        if isinstance(kind, Float):
            raw = self._bits(kind.size, False, False).to_bytes(kind.size // 8, "little")
            raw = raw[::-1] if kind.big else raw
            return struct.unpack("<f" if kind.size == 32 else "<d", raw)[0]
        raise _Damaged("a type that is not known")

    def _array(self, kind: Array, outer: Mapping[str, Any]) -> Any:
        length = kind.length if isinstance(kind.length, int) else int(_field(outer, kind.length))
        if not 0 <= length <= MOST_ARRAY:
            raise _Damaged(f"byte {self.at // 8}: an array of {length} items")
        items = [self.read(kind.item, outer) for _ in range(length)]
        if isinstance(kind.item, Integer) and kind.item.text and kind.item.size == 8:
            return bytes(item & 255 for item in items).split(b"\0")[0].decode("utf-8", "replace")
        return items

    def _integer(self, kind: Integer) -> int:
        self._skip_to(kind.align)
        value = self._bits(kind.size, kind.signed, kind.big)
        if kind.mapped:
            self.clock_name = kind.mapped
            if kind.size >= 64:
                self.clock = value
            else:
                low = self.clock & ((1 << kind.size) - 1)
                self.clock += value - low + (1 << kind.size if value < low else 0)
        return value

    def _bits(self, size: int, signed: bool, big: bool) -> int:
        first, last = self.at // 8, -(-(self.at + size) // 8)
        if self.at + size > self.end:
            raise _Damaged(f"byte {first}: a field beyond the end of its packet")
        value = int.from_bytes(self.raw[first:last], "big" if big else "little")
        value >>= last * 8 - self.at - size if big else self.at % 8
        value &= (1 << size) - 1
        self.at += size
        return value - (1 << size) if signed and value >> (size - 1) else value

    def _skip_to(self, align: int) -> None:
        self.at = -(-self.at // align) * align


def _field(outer: Mapping[str, Any], name: str) -> Any:
    """Return the field that a length or tag names, by its last part."""
    short = name.rpartition(".")[2]
    if short in outer:
        return outer[short]
    raise _Damaged(f"no field {name!r}")
