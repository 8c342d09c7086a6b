"""Provenance coverage: whether every number of a descriptor has a source or reasoning, its own or its mapping's.

A figure (anything with a `kind`) carries its own provenance.  Any other number needs a `source` or an `assumed` reason
in its mapping or an enclosing one.  Loading a file does not require this, as a user's own periods need no citation;
``check --strict`` and the shipped files do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from socsched.descriptor.source import Document
from socsched.descriptor.validation import Tree, is_figure
from socsched.units import NUMBER, UNITS

_UNITS = sorted({unit for units in UNITS.values() for unit in units}, key=len, reverse=True)
_QUANTITY = re.compile(rf"\s*{NUMBER}\s*(?:{'|'.join(map(re.escape, _UNITS))})\s*")
_TEXTS = frozenset(("schema_version", "name", "title", "note", "where", "version", "since", "until"))
"""Fields whose text may look like a number but is not one."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Counts of a file's numbers, and of those that are figures or covered by a source or an assumption."""

    figures: int
    sourced: int
    assumed: int
    uncovered: tuple[Tree, ...]

    @property
    def total(self) -> int:
        """Return the count of numbers in the file."""
        return self.figures + self.sourced + self.assumed + len(self.uncovered)


def coverage(document: Document) -> Coverage:
    """Return the provenance coverage of a document that loads without faults."""
    numbers = list(_numbers(Tree(document, (), document.data), ""))
    count = {by: sum(other == by for other, _ in numbers) for by in ("figure", "source", "assumed")}
    uncovered = tuple(number for by, number in numbers if not by)
    return Coverage(count["figure"], count["source"], count["assumed"], uncovered)


def require_grounds(document: Document) -> Coverage:
    """Return the coverage of a document; raise DescriptorError naming every number without provenance."""
    result = coverage(document)
    for number in result.uncovered:
        number.report(
            "expected source or assumed (the reasoning) next to this number or in an enclosing mapping, or a figure"
        )
    document.check()
    return result


def _numbers(tree: Tree, by: str) -> Iterator[tuple[str, Tree]]:
    """Yield (provenance, number) for every number at and below `tree`; `by` is the enclosing provenance."""
    if isinstance(tree.value, dict):
        # The unit count of a known time is covered by the time's own provenance.
        figure = tree.at("time") if "time" in tree.value else tree
        if is_figure(figure) and (figure.at("source").text or figure.at("note").text):
            by = "figure"
        elif tree.at("source").text:
            by = "source"
        elif tree.at("assumed").text.strip():
            by = "assumed"
    if isinstance(tree.value, (dict, list)):
        for item in tree.items():
            if item.path != ("sources",):
                yield from _numbers(item, by)
    elif _is_number(tree):
        yield by, tree


def _is_number(tree: Tree) -> bool:
    if isinstance(tree.value, bool) or tree.key in _TEXTS:
        return False
    return isinstance(tree.value, (int, float)) or bool(tree.text and _QUANTITY.fullmatch(tree.text))
