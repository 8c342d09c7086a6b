"""Provenance coverage: whether every number of a descriptor has a source or reasoning, its own or its mapping's.

A figure (anything with a `kind`) carries its own provenance, for its error and interval as well.  Any other number
needs a `source` or an `assumed` reason in its mapping or an enclosing one.  A number counts as sourced only if a source
is named for it: a figure that a note derives is derived, and one of kind assumed is assumed whatever it names.  Loading
a file does not require provenance, as a user's own periods need no citation; ``check --strict`` and the shipped files
do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from socsched.descriptor.source import Document
from socsched.descriptor.validation import Tree, is_figure
from socsched.units import NUMBER, UNITS

_UNITS = sorted({unit for units in UNITS.values() for unit in units}, key=len, reverse=True)
_QUANTITY = re.compile(rf"\s*{NUMBER}\s*(?:{'|'.join(map(re.escape, _UNITS))})\s*")
_ASSUMED = "assumed"
_TEXTS = frozenset(("schema_version", "name", "title", "note", "where", "version", "since", "until"))
"""Fields whose text may look like a number but is not one."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Counts of a file's numbers: with a source, derived from others in a note, assumed; and those with neither.

    `kinds`: count by kind of figure, "source" for plain numbers that a mapping's source covers.
    """

    sourced: int
    derived: int
    assumed: int
    uncovered: tuple[Tree, ...]
    kinds: Mapping[str, int]

    @property
    def total(self) -> int:
        """Return the count of numbers in the file."""
        return self.sourced + self.derived + self.assumed + len(self.uncovered)


def coverage(document: Document) -> Coverage:
    """Return the provenance coverage of a document that loads without faults."""
    numbers = list(_numbers(Tree(document, (), document.data), ("", False)))
    uncovered = tuple(number for (kind, _), number in numbers if not kind)
    kinds = Counter(kind for (kind, _), _ in numbers if kind)
    sourced = sum(named and kind != _ASSUMED for (kind, named), _ in numbers)
    derived = len(numbers) - sourced - kinds[_ASSUMED] - len(uncovered)
    return Coverage(sourced, derived, kinds[_ASSUMED], uncovered, dict(kinds))


def require_grounds(document: Document) -> Coverage:
    """Return the coverage of a document; raise DescriptorError naming every number without provenance."""
    result = coverage(document)
    for number in result.uncovered:
        number.report(
            "expected source or assumed (the reasoning) next to this number or in an enclosing mapping, or a figure"
        )
    document.check()
    return result


def _numbers(tree: Tree, by: tuple[str, bool]) -> Iterator[tuple[tuple[str, bool], Tree]]:
    """Yield ((kind, is a source named), number) for every number at and below `tree`; `by`: of the enclosing one."""
    if isinstance(tree.value, dict):
        # The unit count of a known time is covered by the time's own provenance.
        figure = tree.at("time") if "time" in tree.value else tree
        if is_figure(figure) and (figure.at("source").text or figure.at("note").text):
            by = str(figure.value["kind"]), bool(figure.at("source").text)
        elif tree.at("source").text:
            by = "source", True
        elif tree.at("assumed").text.strip():
            by = _ASSUMED, False
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
