"""Validation of plain data into a file model: all faults of a file at once, each with its position.

Pydantic checks the structure; this module turns its errors into findings.  References between parts of a file are
checked by functions over `Tree`, which tolerate any structure, so that both kinds of fault are reported together.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from socsched.descriptor.fields import LAYOUT_PATTERN, NAME_PATTERN, VERSION_PATTERN
from socsched.descriptor.limits import PLAN_NAME_PATTERN
from socsched.descriptor.platform import PROVENANCE
from socsched.descriptor.processors import TRIPLE_PATTERN
from socsched.descriptor.source import MAX_FINDINGS, Document, Path, kind_of
from socsched.text import LINE_PATTERN

Model = TypeVar("Model", bound=BaseModel)


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


def validate(document: Document, model: type[Model], checks: Iterable[Callable[[Tree], None]]) -> Model:
    """Return the document as `model`; raise DescriptorError with every finding if it or a cross-check fails."""
    result = None
    try:
        result = model.model_validate(document.data)
    except ValidationError as error:
        for detail in error.errors(include_url=False)[:MAX_FINDINGS]:
            report_error(document, model, detail)
    root = Tree(document, (), document.data)
    for check in checks:
        check(root)
    document.check()
    assert result is not None
    return result


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


def report_error(document: Document, model: type[BaseModel], detail: Any) -> None:
    # Parts in angle brackets name the form of a value that may be written in several.
    path: Path = tuple(part for part in detail["loc"] if part != "[key]" and str(part)[:1] + str(part)[-1:] != "<>")
    kind = detail["type"]
    if kind == "extra_forbidden" and path[-1:] != detail["loc"][-1:]:
        path = (*path, detail["loc"][-1])  # a field that is called so
    if kind == "missing":
        document.report(path, f"required field is missing{_description(model, path)}")
    elif kind == "extra_forbidden":
        holder = _model_at(model, path[:-1])
        known = list(holder.model_fields) if holder else []
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


def _description(model: type[BaseModel], path: Path) -> str:
    holder = _model_at(model, path[:-1])
    info = holder.model_fields.get(str(path[-1])) if holder else None
    return f"; expected {info.description}" if info and info.description else ""


def _model_at(model: Any, path: Path) -> type[BaseModel] | None:
    """Return the model that describes the mapping at `path`."""
    current: Any = model
    for part in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            info = current.model_fields.get(str(part))
            current = _required(info.annotation) if info else None
        elif get_origin(current) in (list, dict):
            current = _required(get_args(current)[-1])
        else:
            return None
    return current if isinstance(current, type) and issubclass(current, BaseModel) else None


def _required(annotation: Any) -> Any:
    """Return an annotation without its None alternative."""
    options = [option for option in get_args(annotation) if option is not type(None)]
    return options[0] if type(None) in get_args(annotation) and options else annotation
