"""JSON as json-c and workgen take it: comments, commas before brackets, one key several times, keys without a value.

Values keep their positions; an object is a list of keys and values in the order of the file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from socsched.bounded import read_text
from socsched.errors import DescriptorError, Finding

DEEPEST = 64
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+|//[^\n]*|\#[^\n]*|/\*.*?\*/)|(?P<text>\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?)|(?P<word>true|false|null)|(?P<mark>[{}\[\],:])",
    re.DOTALL,
)


@dataclass(slots=True)
class Value:
    """A value and where it starts; `plain` of numbers, texts and words, `items` of objects, `listed` of lists."""

    line: int
    column: int
    kind: str
    plain: Decimal | str | bool | None = None
    items: list[tuple[str, Value]] = field(default_factory=list)
    listed: list[Value] = field(default_factory=list)

    def get(self, key: str) -> Value | None:
        """Return the last value of a key, as JSON readers take it; None if there is none."""
        return next((value for name, value in reversed(self.items) if name == key), None)


def read(path: Path, what: str, hint: str, most: int) -> Value:
    """Return the object in a file; DescriptorError with the position of the first fault."""
    reader = _Reader(read_text(path, what, hint, most), str(path), hint)
    found = reader.value(0)
    if found.kind != "object":
        raise reader.fault(found.line, found.column, f"expected an object, got a {found.kind}")
    reader.expect("")
    return found


class _Reader:
    def __init__(self, text: str, file: str, hint: str) -> None:
        self.text, self.file, self.hint = text, file, hint
        self.at, self.line, self.start = 0, 1, 0
        self.kind = self.token = ""
        self.place = (1, 1)
        self.next()

    def fault(self, line: int, column: int, expected: str) -> DescriptorError:
        return DescriptorError([Finding(self.file, line, column, "file", expected)], self.hint)

    def next(self) -> None:
        self.kind = "space"
        while self.kind == "space":
            self.place = (self.line, self.at - self.start + 1)
            if self.at >= len(self.text):
                self.kind = self.token = ""
                return
            match = _TOKEN.match(self.text, self.at)
            if match is None:
                raise self.fault(*self.place, f"expected valid JSON, got {self.text[self.at : self.at + 20]!r}")
            self.kind, self.token, self.at = match.lastgroup or "", match[0], match.end()
            breaks = self.token.count("\n")
            if breaks:
                self.line, self.start = self.line + breaks, match.start() + self.token.rindex("\n") + 1

    def expect(self, token: str) -> None:
        if self.token != token or (token and self.kind != "mark"):
            got = repr(self.token[:40]) if self.token else "the end of the file"
            raise self.fault(*self.place, f"expected {token or 'the end of the file'}, got {got}")
        if token:
            self.next()

    def takes(self, token: str) -> bool:
        if self.kind == "mark" and self.token == token:
            self.next()
            return True
        return False

    def value(self, depth: int) -> Value:
        line, column = self.place
        if depth > DEEPEST:
            raise self.fault(line, column, f"expected at most {DEEPEST} levels")
        if self.takes("{"):
            found = Value(line, column, "object")
            while not self.takes("}"):
                place, key = self.place, self.text_()
                if self.kind == "mark" and self.token in (",", "}"):  # workgen's events without a value
                    found.items.append((key, Value(*place, "word")))
                else:
                    self.expect(":")
                    found.items.append((key, self.value(depth + 1)))
                if not self.takes(",") and self.token != "}":
                    self.expect(",")
            return found
        if self.takes("["):
            found = Value(line, column, "list")
            while not self.takes("]"):
                found.listed.append(self.value(depth + 1))
                if not self.takes(",") and self.token != "]":
                    self.expect(",")
            return found
        if self.kind == "text":
            return Value(line, column, "text", self.text_())
        if self.kind in ("number", "word"):
            plain = Decimal(self.token) if self.kind == "number" else {"true": True, "false": False}.get(self.token)
            found = Value(line, column, self.kind, plain)
            self.next()
            return found
        raise self.fault(line, column, f"expected a value, got {self.token[:40]!r}")

    def text_(self) -> str:
        if self.kind != "text":
            raise self.fault(*self.place, f"expected text in quotes, got {self.token[:40]!r}")
        try:
            text: str = json.loads(self.token)
        except ValueError:
            raise self.fault(*self.place, "expected a JSON string") from None
        self.next()
        return text
