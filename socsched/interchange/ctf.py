"""Reading of CTF 1.8 traces: the event streams of a folder in order of time, bounded by the size of the files.

A reader of our own, since babeltrace is not on package indexes and every file is hostile: sizes, depths and counts are
bounded.

The metadata of CTF 1.8 traces (TSDL): the types that LTTng writes, parsed with limits.

Known: integers, floating-point numbers, strings, enumerations, structures, variants, arrays, sequences, and aliases.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from socsched.bounded import read_bytes
from socsched.errors import DescriptorError, Finding, InputError

_PACKET = "I16sIIIBBBBB"
_METADATA_MAGIC = 0x75D11D57
_TOKEN = re.compile(
    r'\s+|/\*.*?\*/|//[^\n]*|(?P<token>"(?:[^"\\]|\\.)*"|\.\.\.|:=|[{}\[\]();:,=<>]|[^\s{}\[\]();:,=<>"]+)', re.S
)
MOST_TOKENS = 10**6
MOST_DEPTH = 32
MOST_ARRAY = 2**20


@dataclass(frozen=True, slots=True)
class Integer:
    """`mapped`: the clock of which its value is (the low bits), else empty.  `text`: an array of it is a string."""

    size: int
    align: int = 8
    signed: bool = False
    big: bool = False
    mapped: str = ""
    text: bool = False


@dataclass(frozen=True, slots=True)
class Float:
    """An IEEE number of 32 or 64 bits."""

    size: int
    align: int = 8
    big: bool = False


@dataclass(frozen=True, slots=True)
class String:
    """Bytes up to a null."""

    align: int = 8


@dataclass(frozen=True, slots=True)
class Enum:
    """`labels`: name -> lowest and highest value."""

    base: Integer
    labels: tuple[tuple[str, int, int], ...]

    @property
    def align(self) -> int:
        """Return the alignment in bits."""
        return self.base.align


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in order; `least`: stated alignment."""

    fields: tuple[tuple[str, Any], ...]
    least: int = 1

    @property
    def align(self) -> int:
        """Return the alignment in bits: the largest of its fields."""
        return max([self.least, *(int(kind.align) for _, kind in self.fields)])


@dataclass(frozen=True, slots=True)
class Variant:
    """One of several types, by the label of the field `tag`."""

    tag: str
    options: tuple[tuple[str, Any], ...]
    align: int = 1


@dataclass(frozen=True, slots=True)
class Array:
    """`length`: a number, or the name of the field with it."""

    item: Any
    length: int | str

    @property
    def align(self) -> int:
        """Return the alignment of an item in bits."""
        return int(self.item.align)


@dataclass(slots=True)
class Stream:
    """The types of a stream; None where it has none."""

    header: Any = None
    packet: Any = None
    context: Any = None
    events: dict[int, tuple[str, Any, Any]] = field(default_factory=dict)
    """Id of an event -> name, own context and fields."""


@dataclass(slots=True)
class Metadata:
    """A trace's types: packet header, streams by id, clocks by name (ticks a second, offset in ticks), environment."""

    packet_header: Any = None
    streams: dict[int, Stream] = field(default_factory=dict)
    clocks: dict[str, tuple[int, int]] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)

    def time_ns(self, ticks: int, clock: str) -> int:
        """Return the time of a value of a clock; of one that is not described, or of none, of the first one."""
        hz, offset = self.clocks.get(clock) or next(iter(self.clocks.values()), (10**9, 0))
        return (ticks + offset) * 10**9 // hz


def text_of(raw: bytes) -> str:
    """Return the text of a metadata file, plain or in packets; ValueError if it is damaged."""
    order = next((o for o in "<>" if len(raw) >= 4 and struct.unpack_from(f"{o}I", raw)[0] == _METADATA_MAGIC), "")
    if not order:
        return raw.decode("utf-8")
    packet_head = struct.Struct(order + _PACKET)
    parts, at = list[bytes](), 0
    while at < len(raw):
        if at + packet_head.size > len(raw):
            raise ValueError("a packet is cut off")
        magic, _, _, content, packet, compressed, encrypted, *_ = packet_head.unpack_from(raw, at)
        if (
            magic != _METADATA_MAGIC
            or compressed
            or encrypted
            or content % 8
            or content > packet
            or packet // 8 < packet_head.size
        ):
            raise ValueError("a packet has another form than LTTng's")
        parts.append(raw[at + packet_head.size : at + content // 8])
        at += packet // 8
    return b"".join(parts).decode("utf-8")


class Parser:
    """A parser of one metadata text; `file` names it in errors."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file, self.at, self.depth = text, file, 0, 0
        self.tokens, self.starts = list[str](), list[int]()
        if text.startswith(("\x1e", "{")):
            self._refuse_at(0, "expected metadata of CTF 1.8, got that of CTF 2: record with --trace-format=ctf-1.8")
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None or len(self.tokens) >= MOST_TOKENS:
                self._refuse_at(place, "expected CTF metadata of at most a million words")
            if match["token"]:
                self.tokens.append(match["token"])
                self.starts.append(place)
            place = match.end()
        self.aliases: dict[str, Any] = {}
        trace = re.search(r"\btrace\s*\{", text)
        order = re.compile(r"\bbyte_order\s*=\s*(\w+)").search(text, trace.end()) if trace else None
        self.big = order is not None and order[1] in ("be", "network")
        """Whether integers without an order of their own are big-endian, as the trace's block states."""

    def parse(self) -> Metadata:
        """Return the types; DescriptorError with the position of what is not understood."""
        metadata = Metadata()
        while self.at < len(self.tokens):
            word = self._next()
            if word == "typealias":
                self._alias()
                continue
            if word in ("struct", "variant", "enum"):
                self.at -= 1
                self._type()
            elif word in ("trace", "env", "clock", "stream", "event", "callsite"):
                self._expect("{")
                self._section(word, self._entries(), metadata)
            else:
                self.refuse(f"expected a declaration, got {word!r}")
            self._expect(";")
        return metadata

    def _section(self, word: str, entries: Mapping[str, Any], metadata: Metadata) -> None:
        if word == "trace":
            metadata.packet_header = entries.get("packet.header")
        elif word == "env":
            metadata.env = {key: str(value) for key, value in entries.items()}
        elif word == "clock":
            hz = self._number(entries.get("freq", "1000000000")) or 10**9
            seconds, rest = (self._number(entries.get(key, "0")) for key in ("offset_s", "offset"))
            metadata.clocks[str(entries.get("name", ""))] = hz, seconds * hz + rest
        elif word == "stream":
            stream = metadata.streams.setdefault(self._number(entries.get("id", "0")), Stream())
            stream.header, stream.packet = entries.get("event.header"), entries.get("packet.context")
            stream.context = entries.get("event.context")
        elif word == "event":
            stream = metadata.streams.setdefault(self._number(entries.get("stream_id", "0")), Stream())
            name = str(entries.get("name", ""))
            stream.events[self._number(entries.get("id", "0"))] = (name, entries.get("context"), entries.get("fields"))

    def _entries(self) -> dict[str, Any]:
        """Return the entries of a block: texts of `a = b`, types of `a := b`."""
        entries: dict[str, Any] = {}
        while not self._takes("}"):
            key = self._next()
            if key == "typealias":
                self._alias()
                continue
            sign = self._next()
            if sign == ":=":
                entries[key] = self._type()
                self._expect(";")
            elif sign == "=":
                entries[key] = " ".join(self._until(";")).strip('"')
            else:
                self.refuse(f"expected = or := after {key!r}")
        return entries

    def _alias(self) -> None:
        kind = self._type()
        self._expect(":=")
        self.aliases[" ".join(self._until(";"))] = kind

    def _type(self) -> Any:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            self.refuse(f"expected types nested at most {MOST_DEPTH} deep")
        kind = self._plain_type()
        self.depth -= 1
        return kind

    def _plain_type(self) -> Any:
        word = self._next()
        if word == "integer":
            return self._integer(self._attributes())
        if word == "floating_point":
            attributes = self._attributes()
            size = self._number(attributes.get("exp_dig", "8")) + self._number(attributes.get("mant_dig", "24"))
            if size not in (32, 64):
                self.refuse("expected floating-point numbers of 32 or 64 bits")
            return Float(size, self._align(attributes), self._is_big(attributes))
        if word == "string":
            if self._peek() == "{":
                self._attributes()
            return String()
        if word == "enum":
            return self._enum()
        if word == "struct":
            return self._struct()
        if word == "variant":
            return self._variant()
        words = [word]
        while " ".join(words) not in self.aliases and re.fullmatch(r"\w+", self._peek()) and len(words) < 4:
            words.append(self._next())
        if (name := " ".join(words)) not in self.aliases:
            self.refuse(f"expected a type, got {name!r}")
        return self.aliases[name]

    def _attributes(self) -> dict[str, str]:
        self._expect("{")
        return {key: str(value) for key, value in self._entries().items()}

    def _integer(self, given: Mapping[str, str]) -> Integer:
        size = self._number(given.get("size", "0"))
        if not 1 <= size <= 64:
            self.refuse("expected integers of 1 to 64 bits")
        text = given.get("encoding", "none").lower() in ("utf8", "ascii")
        signed = given.get("signed", "false").lower() in ("1", "true")
        align = self._align(given, 8 if size % 8 == 0 else 1)
        clock = given["map"].replace(" ", "").removeprefix("clock.").removesuffix(".value") if "map" in given else ""
        return Integer(size, align, signed, self._is_big(given), clock, text)

    def _align(self, given: Mapping[str, str], default: int = 8) -> int:
        align = self._number(given.get("align", str(default)))
        if not 1 <= align <= 4096 or align & (align - 1):
            self.refuse("expected an alignment that is a power of two, at most 4096")
        return align

    def _is_big(self, given: Mapping[str, str]) -> bool:
        order = given.get("byte_order", "native")
        return self.big if order == "native" else order in ("be", "network")

    def _enum(self) -> Enum:
        name = self._name()
        base = self._type() if self._takes(":") else Integer(32)
        if self._peek() != "{" and f"enum {name}" in self.aliases:
            return self.aliases[f"enum {name}"]  # type: ignore[no-any-return]
        if not isinstance(base, Integer):
            self.refuse("expected an integer under an enumeration")
        self._expect("{")
        labels, following = list[tuple[str, int, int]](), 0
        while not self._takes("}"):
            label = self._next().strip('"')
            low = high = following
            if self._takes("="):
                low = high = self._number(self._next())
                if self._takes("..."):
                    high = self._number(self._next())
            labels.append((label, low, high))
            following = high + 1
            self._takes(",")
        return self._named("enum", name, Enum(base, tuple(labels)))  # type: ignore[no-any-return]

    def _struct(self) -> Struct:
        name, least = self._name(), 1
        if self._peek() != "{":
            return self._known("struct", name)  # type: ignore[no-any-return]
        fields = self._fields()
        if self._takes("align"):
            self._expect("(")
            least = self._align({"align": self._next()})
            self._expect(")")
        return self._named("struct", name, Struct(fields, least))  # type: ignore[no-any-return]

    def _variant(self) -> Variant:
        name, tag = self._name(), ""
        if self._takes("<"):
            tag = self._next()
            self._expect(">")
        if self._peek() != "{":
            template = self._known("variant", name)
            return Variant(tag or template.tag, template.options)
        return self._named("variant", name, Variant(tag, self._fields()))  # type: ignore[no-any-return]

    def _fields(self) -> tuple[tuple[str, Any], ...]:
        self._expect("{")
        fields = []
        while not self._takes("}"):
            kind = self._type()
            name = self._next()
            while self._takes("["):
                length = self._next()
                self._expect("]")
                kind = Array(kind, self._number(length) if length[0].isdigit() else length)
                if isinstance(kind.length, int) and kind.length > MOST_ARRAY:
                    self.refuse(f"expected arrays of at most {MOST_ARRAY} items")
            self._expect(";")
            fields.append((name, kind))
        return tuple(fields)

    def _name(self) -> str:
        return self._next() if re.fullmatch(r"\w+", self._peek()) else ""

    def _named(self, sort: str, name: str, kind: Any) -> Any:
        if name:
            self.aliases[f"{sort} {name}"] = kind
        return kind

    def _known(self, sort: str, name: str) -> Any:
        if f"{sort} {name}" not in self.aliases:
            self.refuse(f"expected a declared {sort}, got {name!r}")
        return self.aliases[f"{sort} {name}"]

    def _number(self, text: str) -> int:
        try:
            value = int(text.replace(" ", ""), 0)
        except ValueError:
            self.refuse(f"expected a whole number, got {text!r}")
        return value

    def _until(self, end: str) -> list[str]:
        words = []
        while (word := self._next()) != end:
            words.append(word)
        return words

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _takes(self, word: str) -> bool:
        there = self._peek() == word
        self.at += there
        return there

    def _next(self) -> str:
        if self.at >= len(self.tokens):
            self.refuse("the file ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def _expect(self, word: str) -> None:
        if (word_read := self._next()) != word:
            self.refuse(f"expected {word!r}, got {word_read!r}")

    def refuse(self, expected: str) -> NoReturn:
        """Raise DescriptorError at the last word read."""
        self._refuse_at(self.starts[min(self.at, len(self.starts)) - 1] if self.starts else 0, expected)

    def _refuse_at(self, place: int, expected: str) -> NoReturn:
        line = self.text.count("\n", 0, place) + 1
        column = place - self.text.rfind("\n", 0, place)
        finding = Finding(self.file, line, column, "metadata", expected)
        raise DescriptorError([finding], "give the folder of a CTF 1.8 trace, as LTTng writes it")


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
    packet: dict[str, Any],
) -> None:
    """Append the events of a packet, whose context is `packet`."""
    while reader.at < reader.end:
        before = reader.at
        header = reader.read(stream.header, packet) if stream.header else {}
        number = header.get("#id", header.get("id", 0))
        inner = header.get("v")
        if isinstance(inner, dict):
            number = inner.get("id", number)
        event = stream.events.get(number)
        if event is None:
            raise _Damaged(f"byte {before // 8}: no event {number} in the metadata")
        name, own, kind = event
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
        process, thread = ((place << 32) + int(context.get(f"v{n}", context.get(n, 0))) for n in ("pid", "tid"))
        events.append(Event(time, name, plain, process, thread, int(context.get("cpu_id", cpu))))


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
            fields: dict[str, Any] = {}
            for name, inner in kind.fields:
                fields[name] = self.read(inner, {**outer, **fields})
                if isinstance(inner, Enum):
                    fields[f"#{name}"] = self.number
            return fields
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
