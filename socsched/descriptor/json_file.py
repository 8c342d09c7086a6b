"""JSON files that socsched writes and reads back: bounded, checked against a class, faults with line and column.

The class (a frozen dataclass whose fields are annotated with the types of `limits`) is the schema: pydantic validates
the text against it.  Positions are computed only when there is a fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path as FilePath
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic_core import from_json

from socsched.bounded import read_plain, utf8
from socsched.descriptor.source import MAX_FINDINGS, Document, Mark, Path
from socsched.descriptor.validation import adapter, report_error
from socsched.errors import DescriptorError

MAX_BYTES = 16 * 2**20
MAX_VALUES = 500_000
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')
_SYNTAX = re.compile(r"(.*) at line (\d+) column (\d+)")


class JsonFile:
    """The bytes of a JSON file: `load` returns its content as a class, `check` reports semantic faults."""

    def __init__(self, raw: bytes, file: str, hint: str = "", most: int = MAX_VALUES) -> None:
        self.raw, self.file, self.hint = raw, file, hint
        if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > most:
            self._refuse_text(f"expected at most {most} values")
        try:
            self.data: Any = from_json(raw, allow_inf_nan=False)
        except ValueError as error:
            match = _SYNTAX.fullmatch(str(error))
            words, line, column = match.groups() if match else (str(error), "1", "1")
            self._refuse_text(f"expected valid JSON: {words}", Mark(int(line), max(int(column), 1)))
        except RecursionError:
            self._refuse_text("expected less nesting")

    @classmethod
    def open(
        cls, path: str | FilePath, what: str, hint: str = "", most: int = MAX_BYTES, values: int = MAX_VALUES
    ) -> JsonFile:
        """Read a file of at most `most` bytes and `values` values: plain or gzipped, in UTF-8 or UTF-16.

        Raises InputError if it cannot be read, DescriptorError if it is not JSON.
        """
        return cls(utf8(read_plain(path, what, hint, most)), str(path), hint, values)

    def load(self, kind: Any) -> Any:
        """Return the content as `kind`; raise DescriptorError with every fault (in a long list, those of one entry)."""
        try:
            return adapter(kind).validate_json(self.raw, strict=True)
        except ValidationError as error:
            details = error.errors(include_url=False)[:MAX_FINDINGS]
        document = self._document([tuple(detail["loc"]) for detail in details])
        for detail in details:
            report_error(document, None, detail)
        raise self._error(document)

    def check(self, faults: Iterable[tuple[Path, str]]) -> None:
        """Raise DescriptorError if there are faults, each given as the path of a value and what was expected there."""
        listed = list(faults)[:MAX_FINDINGS]
        if listed:
            document = self._document([path for path, _ in listed])
            for path, expected in listed:
                document.report(path, expected)
            raise self._error(document)

    def _document(self, paths: Iterable[Path]) -> Document:
        document = Document(self.file)
        document.values = positions(self.raw.decode("utf-8"), paths)
        return document

    def _refuse_text(self, expected: str, mark: Mark | None = None) -> NoReturn:
        document = Document(self.file)
        document.add(mark or Mark(), "file", expected)
        raise self._error(document)

    def _error(self, document: Document) -> DescriptorError:
        try:
            document.check()
        except DescriptorError as error:
            return DescriptorError(error.findings, self.hint or error.hint)
        raise AssertionError("an error without a finding")


def whole_entries(raw: bytes) -> list[Any] | None:
    """Return the whole entries of a JSON list that ends before its "]", None for other text."""
    try:
        whole = raw.rstrip(b", \t\r\n")
        if whole.endswith(b"}"):
            try:
                data = from_json(whole + b"]", allow_inf_nan=False)
                return data if isinstance(data, list) else None
            except ValueError:
                pass
        data = from_json(raw, allow_inf_nan=False, allow_partial=True)
        return data[:-1] if isinstance(data, list) else None
    except (ValueError, RecursionError):
        return None


def positions(text: str, wanted: Iterable[Path]) -> dict[Path, Mark]:
    """Return the start positions of the values at `wanted` paths of a valid JSON text, and of their containers."""
    left = {path[:end] for path in wanted for end in range(len(path) + 1)}
    marks: dict[Path, Mark] = {}
    path: list[str | int] = []
    key, opened, line, start = "", False, 1, 0
    for token in _TOKEN.finditer(text):
        if len(marks) == len(left):
            break
        sort = token[0][0]
        if sort in "}]":
            if path:
                path.pop()
            opened = False
        elif sort == ",":
            if isinstance(path[-1], int):
                path[-1] += 1
            opened = isinstance(path[-1], str)
        elif sort == ":":
            path[-1], opened = key, False
        elif opened and sort == '"':
            key = from_json(token[0])
        else:
            at = tuple(path)
            if at in left and at not in marks:
                line += text.count("\n", start, token.start())
                start = token.start()
                marks[at] = Mark(line, start - text.rfind("\n", 0, start))
            if sort in "{[":
                path.append("" if sort == "{" else 0)
                opened = sort == "{"
    return marks
