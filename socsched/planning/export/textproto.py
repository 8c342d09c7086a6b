"""Text-format protocol buffers, the subset that configuration files use: fields, messages, lists, comments.

Grammar: protobuf.dev/reference/protobuf/textformat-spec.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from socsched.bounded import read_text
from socsched.errors import DescriptorError, Finding

MOST_BYTES = 4 * 2**20
DEEPEST = 32
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n\f\v]+|\#[^\n]*)|(?P<text>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<number>-?(?:0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?))"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_.]*)|(?P<mark>[{}<>\[\],;:])"
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_PLAIN = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


@dataclass(slots=True)
class Message:
    """The fields of a message in file order; `file`, `line` and `column` say where it starts."""

    file: str
    line: int
    column: int
    fields: list[tuple[str, int, int, object]] = field(default_factory=list)

    def fault(self, name: str, expected: str) -> DescriptorError:
        """Return the error for a field, at its position or at that of the message if it is absent."""
        line, column = next(((ln, col) for key, ln, col, _ in self.fields if key == name), (self.line, self.column))
        return DescriptorError([Finding(self.file, line, column, name, expected)])

    def messages(self, name: str) -> list[Message]:
        """Return the messages of a repeated field."""
        found = [value for key, _, _, value in self.fields if key == name]
        if not all(isinstance(value, Message) for value in found):
            raise self.fault(name, "expected a message in braces")
        return [value for value in found if isinstance(value, Message)]

    def message(self, name: str) -> Message:
        """Return the only message of a field."""
        found = self.messages(name)
        if len(found) != 1:
            raise self.fault(name, f"expected one message, got {len(found)}")
        return found[0]

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text field; required without a default."""
        value = self._last(name, default)
        if not isinstance(value, str):
            raise self.fault(name, "expected text in quotes")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """Return a field with a whole number of at most 32 bits; required without a default."""
        value = self._last(name, default)
        if not isinstance(value, int) or abs(value) >= 2**32:
            raise self.fault(name, "expected a whole number")
        return value

    def _last(self, name: str, default: object) -> object:
        return next((value for key, _, _, value in reversed(self.fields) if key == name), default)


def quoted(text: str) -> str:
    """Return text as a string literal; everything but printable ASCII is escaped."""
    raw = text.encode("utf-8", "surrogatepass")
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in raw)
    return "".join(plain).join('""')


def read(path: str | Path, what: str) -> Message:
    """Return a file as a message; DescriptorError with the position of the first fault."""
    text = read_text(path, what, "give a text-format protobuf file", MOST_BYTES, "replace")
    reader = _Reader(text, str(path))
    root = Message(str(path), 1, 1)
    reader.message(root, "", 0)
    return root


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self.text, self.file, self.at, self.line, self.start = text, file, 0, 1, 0
        self.kind = self.token = ""
        self.place = (1, 1)
        self.next()

    def fail(self, expected: str) -> DescriptorError:
        got = repr(self.token[:40]) if self.token else "the end of the file"
        return DescriptorError([Finding(self.file, *self.place, "file", f"expected {expected}, got {got}")])

    def next(self) -> None:
        while True:
            self.place = (self.line, self.at - self.start + 1)
            if self.at >= len(self.text):
                self.kind = self.token = ""
                return
            match = _TOKEN.match(self.text, self.at)
            if match is None:
                self.token = self.text[self.at]
                raise self.fail("a field, a value or a bracket")
            self.kind, self.token, self.at = match.lastgroup or "", match[0], match.end()
            breaks = self.token.count("\n")
            if breaks:
                self.line, self.start = self.line + breaks, match.start() + self.token.rindex("\n") + 1
            if self.kind != "space":
                return

    def take(self, token: str) -> bool:
        if self.kind == "mark" and self.token == token:
            self.next()
            return True
        return False

    def message(self, found: Message, end: str, depth: int) -> None:
        if depth > DEEPEST:
            raise self.fail("less nesting")
        while not (self.take(end) if end else self.kind == ""):
            if self.kind != "name":
                raise self.fail("the name of a field" + (f" or {end}" if end else ""))
            name, (line, column) = self.token, self.place
            self.next()
            colon = self.take(":")
            if self.take("["):
                while not self.take("]"):
                    found.fields.append((name, line, column, self.value(depth)))
                    if not self.take(",") and self.token != "]":
                        raise self.fail(", or ]")
            else:
                if not colon and self.token not in ("{", "<"):
                    raise self.fail(": or {")
                found.fields.append((name, line, column, self.value(depth)))
            _ = self.take(",") or self.take(";")

    def value(self, depth: int) -> object:
        if self.kind == "mark" and self.token in ("{", "<"):
            message = Message(self.file, *self.place)
            end = {"{": "}", "<": ">"}[self.token]
            self.next()
            self.message(message, end, depth + 1)
            return message
        kind, token = self.kind, self.token
        if kind == "text":
            parts = b""
            while self.kind == "text":  # adjacent literals are one text
                parts += _ESCAPE.sub(_unescaped, self.token[1:-1].encode("utf-8"))
                self.next()
            return parts.decode("utf-8", "replace")
        if kind not in ("number", "name") or len(token) > 200:
            raise self.fail("a value")
        self.next()
        if kind == "name":
            return {"true": True, "false": False}.get(token, token)
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", token):
            return int(token, 8) if re.fullmatch("-?0[0-7]+", token) else int(token, 0)
        return float(token) if not re.fullmatch("-?[0-9]+", token) else float("nan")


def _unescaped(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, plain = match.groups()
    if octal:
        return bytes([int(octal, 8) & 255])
    return bytes([int(hexadecimal, 16)]) if hexadecimal else _PLAIN.get(plain, plain)
