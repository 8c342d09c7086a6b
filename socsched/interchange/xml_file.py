"""Bounded reading of XML: no document type, no entities, limits on size, depth, elements and attributes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from socsched.bounded import read_plain
from socsched.errors import DescriptorError, Finding

MOST_BYTES = 2**26
MOST_ELEMENTS = 10**6
MOST_ATTRIBUTES = 1_500_000
MOST_DEPTH = 64
PLAIN_TYPE = "type without prefix"
"""Key of an attribute `type` beside one of XML Schema instances, such as xsi:type."""


@dataclass(slots=True)
class Element:
    """An element: its tag and attributes without namespace prefixes, its children and its position."""

    tag: str
    attributes: dict[str, str]
    line: int
    column: int
    children: list[Element] = field(default_factory=list)

    def get(self, name: str) -> str:
        """Return an attribute, empty if it is missing."""
        return self.attributes.get(name, "")

    def all(self, tag: str) -> list[Element]:
        """Return the children with a tag."""
        return [child for child in self.children if child.tag == tag]

    def first(self, tag: str) -> Element | None:
        """Return the first child with a tag, None if there is none."""
        return next((child for child in self.children if child.tag == tag), None)

    def walk(self) -> Iterator[Element]:
        """Yield the element and all below it, in document order."""
        open_ = [self]
        while open_:
            element = open_.pop()
            yield element
            open_ += reversed(element.children)


class XmlFile:
    """A parsed file: `root`, and `refuse` for errors with a position."""

    def __init__(self, path: Path, what: str, hint: str) -> None:
        self.path, self.hint = path, hint
        self.root = self._parse(read_plain(path, what, hint, MOST_BYTES))

    def refuse(self, element: Element | None, expected: str) -> NoReturn:
        """Raise DescriptorError with the position of an element."""
        at = (element.line, element.column, element.tag) if element else (1, 1, "file")
        raise DescriptorError([Finding(str(self.path), *at, expected)], self.hint)

    def _parse(self, raw: bytes) -> Element:
        # counted beforehand, since a tag's attributes are in memory before its handler is called
        if raw.count(b"=") > MOST_ATTRIBUTES:
            self.refuse(None, f"expected at most {MOST_ATTRIBUTES} attributes")
        parser = expat.ParserCreate()
        root = Element("", {}, 1, 1)
        stack, count = [root], 0

        def here(tag: str, attributes: dict[str, str]) -> Element:
            line, column = parser.CurrentLineNumber, parser.CurrentColumnNumber + 1
            return Element(tag, attributes, line, column)

        def start(tag: str, attributes: dict[str, str]) -> None:
            nonlocal count
            count += 1
            named = sorted(attributes.items(), key=lambda item: ":" in item[0])  # xsi:type before a plain type
            element = here(tag.rpartition(":")[2], {k.rpartition(":")[2]: v for k, v in named})
            if "type" in attributes and element.get("type") != attributes["type"]:
                element.attributes[PLAIN_TYPE] = attributes["type"]
            if count > MOST_ELEMENTS or len(stack) > MOST_DEPTH:
                self.refuse(element, f"expected at most {MOST_ELEMENTS} elements, nested at most {MOST_DEPTH} deep")
            stack[-1].children.append(element)
            stack.append(element)

        def end(tag: str) -> None:
            stack.pop()

        def refused(*_: object) -> None:
            self.refuse(here("DOCTYPE", {}), "expected no document type and no entities")

        parser.StartElementHandler, parser.EndElementHandler = start, end
        parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refused
        try:
            parser.Parse(raw, True)
        except expat.ExpatError as error:
            words = expat.ErrorString(error.code)
            found = Finding(str(self.path), error.lineno, error.offset + 1, "file", f"expected valid XML: {words}")
            raise DescriptorError([found], self.hint) from None
        except (ValueError, LookupError) as error:  # an unknown or unusable encoding
            self.refuse(None, f"expected valid XML: {error}")
        return root.children[0]
