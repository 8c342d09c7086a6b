"""Validation of plain data into a file model: all faults of a file at once, each with its position.

Pydantic checks the structure; this module turns its errors into findings.  References between parts of a file are
checked by functions over `Tree`, which tolerate any structure, so that both kinds of fault are reported together.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from socsched.descriptor.fields import (
    LAYOUT_PATTERN,
    NAME_PATTERN,
    PROVENANCE,
    VERSION_PATTERN,
    Entry,
    annotated,
    form_of,
)
from socsched.descriptor.limits import PLAN_NAME_PATTERN
from socsched.descriptor.processors import TRIPLE_PATTERN
from socsched.descriptor.source import MAX_FINDINGS, Document, Path, kind_of
from socsched.text import LINE_PATTERN
from socsched.units import NUMBER, UNITS

Model = TypeVar("Model")


@dataclass(frozen=True, slots=True)
class Tree:
    """A value of a document and its path; absent or malformed parts read as empty."""

    document: Document
    path: Path
    value: Any

    def at(self, key: str | int) -> Tree:
        """Return the value under a key or index, one holding None when absent."""
        value: Any = None
        if isinstance(self.value, dict):
            value = self.value.get(key)
        elif isinstance(self.value, list) and isinstance(key, int) and key < len(self.value):
            value = self.value[key]
        return Tree(self.document, (*self.path, key), value)

    def items(self) -> Iterator[Tree]:
        """Return the values of a mapping or list, in file order."""
        keys: Iterable[str | int] = ()
        if isinstance(self.value, dict):
            keys = self.value
        elif isinstance(self.value, list):
            keys = range(len(self.value))
        return (self.at(key) for key in keys)

    @property
    def key(self) -> str:
        """Return the key or index of this value in its parent."""
        return str(self.path[-1]) if self.path else ""

    @property
    def text(self) -> str:
        """Return this value if it is text, else an empty string."""
        return self.value if isinstance(self.value, str) else ""

    def names(self) -> list[str]:
        """Return the keys of a mapping."""
        return [str(key) for key in self.value] if isinstance(self.value, dict) else []

    def branches(self) -> Iterator[Tree]:
        """Return those values that are mappings or lists."""
        return (item for item in self.items() if isinstance(item.value, (dict, list)))

    def texts(self) -> list[Tree]:
        """Return those items that are text."""
        return [item for item in self.items() if item.text]

    def parse(self, read: Callable[[Any], float]) -> float | None:
        """Return the value as parsed by `read`, None if it cannot be parsed (which is reported elsewhere)."""
        try:
            return read(self.value)
        except ValueError:
            return None

    def report(self, expected: str, key: bool = False) -> None:
        """Add a finding about this value, or about its key."""
        if not self.document.full:
            self.document.report(self.path, expected, key)

    def unknown(self, what: str, known: Iterable[str], key: bool = False) -> None:
        """Add a finding about an unknown name (this text, or this key), suggesting the nearest known one."""
        if not self.document.full:
            name = self.key if key else self.text
            self.report(f"unknown {what} {name!r}; {suggest(name, known)}", key)


def validate(
    document: Document, model: type[Model], checks: Iterable[Callable[[Tree], None]], context: Any = None
) -> Model:
    """Return the document as an entry or a model; raise DescriptorError with every finding of it and of `checks`."""
    kind: Any = model
    result: Any = None
    try:
        result = adapter(kind).validate_python(document.data, context=context)
    except ValidationError as error:
        for detail in error.errors(include_url=False)[:MAX_FINDINGS]:
            report_error(document, model, detail)
    root = Tree(document, (), document.data)
    for check in checks:
        check(root)
    document.check()
    assert isinstance(result, model)
    return result


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what validates data as a class."""
    return TypeAdapter(kind)


def plain(value: Any) -> Any:
    """Return data built in Python in the form read from YAML (tuples as lists, text keys)."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a suggestion: the nearest known name, or all known ones when none is near."""
    names = sorted(set(known))
    near = [other for other in names if other.lower() == name.lower()] or difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"expected one of {shown}" if names else "none are declared"


def check_figures(root: Tree) -> None:
    """Report figures without the source or reasoning their kind requires, and sources that are not listed."""
    sources = root.at("sources").names()
    for figure in _figures(root):
        kind = figure.at("kind").text
        if kind in ("measured", "published", "fitted", "vendor model") and not figure.at("source").text:
            figure.report(f"a {kind} figure needs source, a key of sources")
        if kind in ("derived", "assumed") and not figure.at("note").text.strip():
            needed = "its formula" if kind == "derived" else "the reasoning behind it"
            figure.report(f"{'a' if kind == 'derived' else 'an'} {kind} figure needs note, {needed}")
    for source in _sources(root):
        if source.text not in sources:
            source.unknown("source", sources)


def is_figure(tree: Tree) -> bool:
    """Return whether a mapping is a figure, or a table of figures, judged by its kind."""
    kind = tree.value.get("kind") if isinstance(tree.value, dict) else None
    return isinstance(kind, str) and kind in PROVENANCE


def _figures(tree: Tree) -> Iterator[Tree]:
    if is_figure(tree):
        yield tree
    elif tree.key not in ("params", "target"):
        for item in tree.branches():
            yield from _figures(item)


def _sources(tree: Tree) -> Iterator[Tree]:
    """Yield every reference to a source: the text under the key ``source`` of any mapping."""
    if isinstance(tree.value, dict) and isinstance(tree.value.get("source"), str) and tree.value["source"]:
        yield tree.at("source")
    for item in tree.branches():
        if (tree.path or item.key != "sources") and item.key not in ("params", "target"):
            yield from _sources(item)


def report_error(document: Document, model: Any, detail: Any) -> None:
    """Add a fault that pydantic found; `model` tells what a missing or an unknown field should be."""
    # Parts in angle brackets name the form of a value that may be written in several.
    path: Path = tuple(part for part in detail["loc"] if part != "[key]" and str(part)[:1] + str(part)[-1:] != "<>")
    kind = detail["type"]
    if kind == "extra_forbidden" and path[-1:] != detail["loc"][-1:]:
        path = (*path, detail["loc"][-1])  # a field that is called so
    if kind == "missing":
        document.report(path, f"required field is missing{_description(model, path)}")
    elif kind == "extra_forbidden":
        known = _fields_at(model, path[:-1])
        # In {note: one, two} the comma ends the text: the rest becomes a separate field.
        split = detail["input"] is None and " " in str(path[-1])
        hint = "text with a comma needs quotes" if split else suggest(str(path[-1]), known)
        document.report(path, f"unknown field; {hint}", key=True)
    else:
        document.report(path, _expected(kind, detail), key="[key]" in detail["loc"])


_TYPES = {
    "string_type": "text (in quotes if it looks like a number)",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "dataclass_type": "a mapping",
    "tuple_type": "a list",
    "finite_number": "a finite number",
}
_PATTERNS = {
    NAME_PATTERN: "a name of letters, digits, '_', '-', '.', starting with a letter or digit",
    VERSION_PATTERN: "a version of numbers and dots, such as 8.6.2",
    LAYOUT_PATTERN: "a layout: NCHW, NHWC or NCHW with a block of channels, such as NCHW16c",
    PLAN_NAME_PATTERN: "a name of letters, digits and _ . + : # > @ -, starting with a letter, a digit or _",
    f"{PLAN_NAME_PATTERN}|^$": "a name of letters, digits and _ . + : # > @ -, or nothing",
    TRIPLE_PATTERN: "a target triple, such as aarch64-linux-gnu",
    LINE_PATTERN: "one line of text without control characters",
}
_BOUNDS = {
    "greater_than": ("a number above", "gt"),
    "greater_than_equal": ("a number not below", "ge"),
    "less_than": ("a number below", "lt"),
    "less_than_equal": ("a number not above", "le"),
    "string_too_short": ("text, length at least", "min_length"),
    "string_too_long": ("text, length at most", "max_length"),
    "too_short": ("a list or mapping, length at least", "min_length"),
    "too_long": ("a list or mapping, length at most", "max_length"),
}


def _expected(kind: str, detail: Any) -> str:
    got = f", got {kind_of(detail['input'])}"
    context = detail.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"expected one of {context['expected']}{got}"
    if kind == "string_pattern_mismatch":
        pattern = context["pattern"]
        choice = re.fullmatch(r"\^\(([\w|]+)\)\$", pattern)
        words = f"one of {choice[1].replace('|', ', ')}" if choice else _PATTERNS.get(pattern, f"text like {pattern}")
        return f"expected {words}{got}"
    if kind in _TYPES:
        return f"expected {_TYPES[kind]}{got}"
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"expected {words} {context[bound]:g}{got}"
    return f"{detail['msg'][:1].lower()}{detail['msg'][1:]}{got}"


def _description(model: Any, path: Path) -> str:
    info = _fields_at(model, path[:-1]).get(str(path[-1]))
    return f"; expected {info.description}" if info and info.description else ""


def _fields_at(kind: Any, path: Path) -> dict[str, FieldInfo]:
    """Return the fields, by their name in a file, of the mapping at `path` of a class or type; none for other types."""
    for part in path:
        fields = _fields(kind)
        if fields:
            info = fields.get(str(part))
            kind = annotated(info.annotation, info.metadata) if info else None
        else:
            kind = _bare(kind)
            kind = get_args(kind)[-1 if get_origin(kind) in (dict, Mapping) else 0] if get_args(kind) else None
    return _fields(kind)


def _fields(kind: Any) -> dict[str, FieldInfo]:
    kind = _bare(kind)
    if isinstance(kind, type) and issubclass(kind, Entry):
        kind = form_of(kind)
    known = kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else {}
    return {info.alias or name: info for name, info in known.items()}


def _bare(kind: Any) -> Any:
    """Return a type without its None alternative and its annotations, of a figure the form that it is read from."""
    while True:
        options = [option for option in get_args(kind) if option is not type(None)]
        if type(None) in get_args(kind) and options:
            kind = options[0]
        elif get_origin(kind) is Annotated:
            base, *notes = get_args(kind)
            kind = next((note.form() for note in notes if hasattr(note, "form")), base)
        else:
            return kind


# Provenance coverage: whether every number of a descriptor has a source or reasoning, its own or its mapping's.
#
# A figure (anything with a `kind`) carries its own provenance, for its error and interval as well.  Any other number
# needs a `source` or an `assumed` reason in its mapping or an enclosing one.  A number counts as sourced only if a
# source is named for it: a figure that a note derives is derived, and one of kind assumed is assumed whatever it
# names. Loading a file does not require provenance, as a user's own periods need no citation; ``check --strict`` and
# the shipped files do.

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
