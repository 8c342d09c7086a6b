"""The metadata of CTF 1.8 traces (TSDL): the types that LTTng writes, parsed with limits.

Known: integers, floating-point numbers, strings, enumerations, structures, variants, arrays, sequences, and aliases.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from socsched.errors import DescriptorError, Finding

_PACKET = "I16sIIIBBBBB"
_MAGIC = 0x75D11D57
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
    order = next((o for o in "<>" if len(raw) >= 4 and struct.unpack_from(f"{o}I", raw)[0] == _MAGIC), "")
    if not order:
        return raw.decode("utf-8")
    packet_head = struct.Struct(order + _PACKET)
    parts, at = list[bytes](), 0
    while at < len(raw):
        if at + packet_head.size > len(raw):
            raise ValueError("a packet is cut off")
        magic, _, _, content, packet, compressed, encrypted, *_ = packet_head.unpack_from(raw, at)
        if (
            magic != _MAGIC
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
        found = Metadata()
        while self.at < len(self.tokens):
            word = self._next()
            if word == "typealias":
                kind = self._type()
                self._expect(":=")
                self.aliases[" ".join(self._until(";"))] = kind
                continue
            if word in ("struct", "variant", "enum"):
                self.at -= 1
                self._type()
            elif word in ("trace", "env", "clock", "stream", "event", "callsite"):
                self._expect("{")
                self._section(word, self._entries(), found)
            else:
                self.refuse(f"expected a declaration, got {word!r}")
            self._expect(";")
        return found

    def _section(self, word: str, entries: Mapping[str, Any], found: Metadata) -> None:
        if word == "trace":
            found.packet_header = entries.get("packet.header")
        elif word == "env":
            found.env = {key: str(value) for key, value in entries.items()}
        elif word == "clock":
            hz = self._number(entries.get("freq", "1000000000")) or 10**9
            seconds, rest = (self._number(entries.get(key, "0")) for key in ("offset_s", "offset"))
            found.clocks[str(entries.get("name", ""))] = hz, seconds * hz + rest
        elif word == "stream":
            stream = found.streams.setdefault(self._number(entries.get("id", "0")), Stream())
            stream.header, stream.packet = entries.get("event.header"), entries.get("packet.context")
            stream.context = entries.get("event.context")
        elif word == "event":
            stream = found.streams.setdefault(self._number(entries.get("stream_id", "0")), Stream())
            name = str(entries.get("name", ""))
            stream.events[self._number(entries.get("id", "0"))] = (name, entries.get("context"), entries.get("fields"))

    def _entries(self) -> dict[str, Any]:
        """Return the entries of a block: texts of `a = b`, types of `a := b`."""
        found: dict[str, Any] = {}
        while self._peek() != "}":
            key = self._next()
            if key == "typealias":
                kind = self._type()
                self._expect(":=")
                self.aliases[" ".join(self._until(";"))] = kind
                continue
            sign = self._next()
            if sign == ":=":
                found[key] = self._type()
                self._expect(";")
            elif sign == "=":
                found[key] = " ".join(self._until(";")).strip('"')
            else:
                self.refuse(f"expected = or := after {key!r}")
        self._next()
        return found

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
            given = self._attributes()
            size = self._number(given.get("exp_dig", "8")) + self._number(given.get("mant_dig", "24"))
            if size not in (32, 64):
                self.refuse("expected floating-point numbers of 32 or 64 bits")
            return Float(size, self._align(given), self._is_big(given))
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
        base = Integer(32)
        if self._peek() == ":":
            self._next()
            base = self._type()
        if self._peek() != "{" and f"enum {name}" in self.aliases:
            return self.aliases[f"enum {name}"]  # type: ignore[no-any-return]
        if not isinstance(base, Integer):
            self.refuse("expected an integer under an enumeration")
        self._expect("{")
        labels, following = list[tuple[str, int, int]](), 0
        while self._peek() != "}":
            label = self._next().strip('"')
            low = high = following
            if self._peek() == "=":
                self._next()
                low = high = self._number(self._next())
                if self._peek() == "...":
                    self._next()
                    high = self._number(self._next())
            labels.append((label, low, high))
            following = high + 1
            if self._peek() == ",":
                self._next()
        self._next()
        kind = Enum(base, tuple(labels))
        return self._named("enum", name, kind)  # type: ignore[no-any-return]

    def _struct(self) -> Struct:
        name = self._name()
        if self._peek() != "{":
            return self._known("struct", name)  # type: ignore[no-any-return]
        fields = self._fields()
        least = 1
        if self._peek() == "align":
            self._next()
            self._expect("(")
            least = self._align({"align": self._next()})
            self._expect(")")
        return self._named("struct", name, Struct(fields, least))  # type: ignore[no-any-return]

    def _variant(self) -> Variant:
        name, tag = self._name(), ""
        if self._peek() == "<":
            self._next()
            tag = self._next()
            self._expect(">")
        if self._peek() != "{":
            known = self._known("variant", name)
            return Variant(tag or known.tag, known.options)
        return self._named("variant", name, Variant(tag, self._fields()))  # type: ignore[no-any-return]

    def _fields(self) -> tuple[tuple[str, Any], ...]:
        self._expect("{")
        fields = []
        while self._peek() != "}":
            kind = self._type()
            name = self._next()
            while self._peek() == "[":
                self._next()
                length = self._next()
                self._expect("]")
                kind = Array(kind, self._number(length) if length[0].isdigit() else length)
                if isinstance(kind.length, int) and kind.length > MOST_ARRAY:
                    self.refuse(f"expected arrays of at most {MOST_ARRAY} items")
            self._expect(";")
            fields.append((name, kind))
        self._next()
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

    def _next(self) -> str:
        if self.at >= len(self.tokens):
            self.refuse("the file ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def _expect(self, word: str) -> None:
        if (found := self._next()) != word:
            self.refuse(f"expected {word!r}, got {found!r}")

    def refuse(self, expected: str) -> NoReturn:
        """Raise DescriptorError at the last word read."""
        self._refuse_at(self.starts[min(self.at, len(self.starts)) - 1] if self.starts else 0, expected)

    def _refuse_at(self, place: int, expected: str) -> NoReturn:
        line = self.text.count("\n", 0, place) + 1
        column = place - self.text.rfind("\n", 0, place)
        found = Finding(self.file, line, column, "metadata", expected)
        raise DescriptorError([found], "give the folder of a CTF 1.8 trace, as LTTng writes it")
