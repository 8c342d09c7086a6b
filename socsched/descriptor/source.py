"""YAML with positions: a file becomes plain data plus the line and column of every key and value.

Only the subset of YAML that a descriptor needs is accepted: mappings with text keys, sequences, scalars, aliases.
Scalars are read as in YAML 1.2 (`on`, `off`, `yes`, `no` and dates are text).  Tags, several documents, duplicate keys,
nesting deeper than `MAX_DEPTH` and files that expand to more than `MAX_NODES` values are findings, never parser
exceptions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any, cast

from socsched import bounded
from socsched.descriptor.fields import NAME_PATTERN
from socsched.errors import DescriptorError, Finding, InputError
from socsched.files import file_digest

MAX_BYTES = 10 * 2**20
MAX_DEPTH = 32
MAX_NODES = 20_000
MAX_FINDINGS = 200

Path = tuple[str | int, ...]
"""Location of a value in the data: mapping keys and sequence indices from the root."""

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]{1,2})?")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Mark:
    """A 1-based position in a file."""

    line: int = 1
    column: int = 1


@dataclass(slots=True)
class Document:
    """Plain data of a file, with the position of every value (`values`) and of every mapping key (`keys`) by path.

    `decimals` holds the text of every fractional number, since a float may not represent it exactly.
    """

    file: str
    data: Any = None
    values: dict[Path, Mark] = field(default_factory=dict)
    keys: dict[Path, Mark] = field(default_factory=dict)
    decimals: dict[Path, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def mark(self, path: Path, key: bool = False) -> Mark:
        """Return the position of the value (or its key) at `path`, of its nearest known ancestor when absent."""
        if key and path in self.keys:
            return self.keys[path]
        while path and path not in self.values:
            path = path[:-1]
        value, name = self.values.get(path, Mark()), self.keys.get(path)
        # A block starts on the line after its key; the key is the more useful position.
        return name if name and name.line < value.line else value

    def report(self, path: Path, expected: str, key: bool = False) -> None:
        """Add a finding about the value (or the key) at `path`."""
        mark = self.mark(path, key)
        self.add(mark, field_name(path), expected)

    def add(self, mark: Mark, name: str, expected: str) -> None:
        """Add a finding at a position, unless the limit is reached."""
        if not self.full:
            self.findings.append(Finding(self.file, mark.line, mark.column, name, expected))

    @property
    def full(self) -> bool:
        """Return whether the limit on findings is reached, so that further ones are dropped."""
        return len(self.findings) >= MAX_FINDINGS

    def check(self) -> None:
        """Raise DescriptorError with all findings in file order when there are any."""
        if self.findings:
            ordered = sorted(set(self.findings), key=lambda f: (f.line, f.column, f.field, f.expected))
            hint = f"the first {MAX_FINDINGS} findings are shown; there may be more" if self.full else ""
            raise DescriptorError(ordered, hint)


def field_name(path: Path) -> str:
    """Return a path in display form, such as ``modes[0].engines.cpu0``; ``file`` for the root."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.lstrip(".") or "file"


def read(path: str | FilePath) -> Document:
    """Return the data of a YAML file with positions; faults of the file itself are in its `findings`.

    Raises DescriptorError when there is no usable data: unreadable file, invalid UTF-8, a syntax error.
    """
    return parse(read_bytes(path), str(path))


def read_bytes(path: str | FilePath) -> bytes:
    """Return the content of a descriptor file; raise DescriptorError if it cannot be read or is too large."""
    document = Document(str(path))
    try:
        return bounded.read_bytes(path, "file", "", MAX_BYTES)
    except bounded.Unreadable as error:
        document.add(Mark(), "file", f"expected a readable file: {error.reason}")
    except InputError:
        document.add(Mark(), "file", f"expected at most {MAX_BYTES // 2**20} MiB")
    document.check()
    raise AssertionError("a finding without an error")


def parse(raw: bytes, file: str) -> Document:
    """Return the data of YAML bytes with positions, as `read` does."""
    import yaml  # by who reads YAML; a simulation of a plan does not

    document = Document(file)
    text = _decode(raw, document)
    root = None
    try:
        root = _compose(text)
    except _Refused as refusal:
        document.add(refusal.mark, "file", refusal.expected)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(str(error.problem or error.context or "malformed").split())
        if _line(text, mark).lstrip(" ").startswith("\t"):
            what = "the line is indented with a tab; YAML allows spaces only"
        document.add(_mark(mark), "file", f"expected valid YAML: {what}")
    except yaml.reader.ReaderError as error:
        document.add(_position(text, error.position), "file", f"expected printable text: {error.reason}")
    except yaml.YAMLError as error:
        document.add(Mark(), "file", f"expected valid YAML: {error}")
    document.check()
    _Builder(document).run(root)
    if not isinstance(document.data, dict):
        document.report((), f"expected a mapping of fields, got {kind_of(document.data)}")
        document.check()
    return document


def kind_of(value: object) -> str:
    """Return the kind of a value in YAML terms."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class _Refused(Exception):
    """YAML that is well-formed but not accepted."""

    def __init__(self, mark: Mark, expected: str) -> None:
        super().__init__(expected)
        self.mark = mark
        self.expected = expected


@dataclass(slots=True)
class _Node:
    mark: Mark
    kind: str
    text: str = ""
    plain: bool = False
    tag: str | None = None
    items: list[_Node] = field(default_factory=list)


def _decode(raw: bytes, document: Document) -> str:
    try:
        return bounded.decode(raw)
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode(error.encoding, "replace")
        document.add(_position(before, len(before)), "file", f"expected {error.encoding.upper()} text, got other bytes")
    document.check()
    raise AssertionError("a finding without an error")


def _line(text: str, mark: Any) -> str:
    """Return the line of an error, empty when it has no position."""
    lines = text.split("\n") if mark else []
    return lines[mark.line] if mark and mark.line < len(lines) else ""


def _position(text: str, offset: int) -> Mark:
    before = text[:offset]
    return Mark(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1) if mark else Mark()


def _compose(text: str) -> _Node | None:
    """Return the node tree of the only document in `text`.

    Built from events with an explicit stack: the library's composer recurses without limit.
    """
    import yaml

    root: _Node | None = None
    count = 0
    stack: list[_Node] = []
    anchors: dict[str, _Node] = {}
    for event in _events(text):
        if isinstance(event, yaml.DocumentStartEvent) and root is not None:
            raise _Refused(_mark(event.start_mark), "expected one YAML document, a second one starts here")
        if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            stack.pop()
        if not isinstance(event, yaml.NodeEvent):
            continue
        count += 1
        node = _node(event, anchors)
        if count > 2 * MAX_NODES:  # keys are nodes too
            raise _Refused(node.mark, f"expected at most {MAX_NODES} values")
        if stack:
            stack[-1].items.append(node)
        else:
            root = node
        if isinstance(event, yaml.CollectionStartEvent):
            stack.append(node)
            if len(stack) > MAX_DEPTH:
                raise _Refused(node.mark, f"expected at most {MAX_DEPTH} levels of nesting")
    return root


def _events(text: str) -> Iterator[Any]:
    import yaml

    return cast(Iterator[Any], yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def _node(event: Any, anchors: dict[str, _Node]) -> _Node:
    import yaml

    mark = _mark(event.start_mark)
    if isinstance(event, yaml.AliasEvent):
        if event.anchor not in anchors:
            raise _Refused(mark, f"expected an anchor defined above, got *{event.anchor}")
        return anchors[event.anchor]
    if isinstance(event, yaml.ScalarEvent):
        node = _Node(mark, "scalar", event.value, event.style in (None, ""), event.tag)
    else:
        kind = "mapping" if isinstance(event, yaml.MappingStartEvent) else "sequence"
        node = _Node(mark, kind, tag=event.tag)
    if event.anchor:
        anchors[event.anchor] = node
    return node


class _Builder:
    """Converts nodes to data and positions; aliases are expanded, within the limit on values."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0

    def run(self, root: _Node | None) -> None:
        try:
            self.document.data = self.value(root, ()) if root else None
        except _Refused as refusal:
            self.document.add(refusal.mark, "file", refusal.expected)
            self.document.check()

    def value(self, node: _Node, path: Path) -> Any:
        self.count += 1
        if self.count > MAX_NODES:
            raise _Refused(node.mark, f"expected at most {MAX_NODES} values after aliases are written out")
        if len(path) > MAX_DEPTH:
            raise _Refused(node.mark, f"expected at most {MAX_DEPTH} levels of nesting")
        self.document.values[path] = node.mark
        if node.tag is not None and node.tag != "!":
            self.document.report(path, f"expected a value without a tag, got {node.tag}")
        if node.kind == "scalar":
            value = resolve(node.text) if node.plain else node.text
            if isinstance(value, float):
                self.document.decimals[path] = node.text
            return value
        if node.kind == "sequence":
            return [self.value(item, (*path, index)) for index, item in enumerate(node.items)]
        return self.mapping(node, path)

    def mapping(self, node: _Node, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, item in zip(node.items[::2], node.items[1::2], strict=True):
            if key.kind != "scalar":
                self.document.add(key.mark, field_name(path), "expected text as a key, got a collection")
                continue
            at = (*path, key.text)
            if key.text in data:
                first = self.document.keys[at].line
                self.document.add(key.mark, field_name(at), f"duplicate field, first given on line {first}")
                continue
            self.document.keys[at] = key.mark
            data[key.text] = self.value(item, at)
        return data


def resolve(text: str) -> Any:
    """Return the value of a plain scalar: null, true, false, integers and decimal numbers; anything else is text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and not re.fullmatch(r"[-+]?[0-9]+", text):
        return float(text)
    return text


# Files that `extends` another of their kind: they state what differs, and the rest holds as there.
#
# Boards of one chip differ in a clock, a unit and their modes; without this a sibling is a copy that goes stale.

MOST = 4
FIGURE = frozenset(("value", "range", "points"))
"""Keys of a mapping that is one statement with its provenance, and is therefore replaced whole."""
FITTED = "fitted"
"""Is not inherited: measurements of one board say nothing of another."""
Elsewhere = Callable[[str], FilePath | None]
"""Returns the file of a name that does not lie beside the one that extends it, None for an unknown name."""


def read_extended(path: str | FilePath, elsewhere: Elsewhere) -> Document:
    """Return the data of a file with those of the files that it extends.

    Mappings are merged key by key, `null` takes a value away.  A fault of an inherited value is reported where the file
    names its base, since a line of another file would be no help; DescriptorError for a base that does not exist.
    """
    document = read(path)
    *heirs, complete = document, *_bases(document, elsewhere)
    for heir in reversed(heirs):
        complete = _merged(complete, heir)
    return complete


def base_files(path: str | FilePath, elsewhere: Elsewhere) -> list[FilePath]:
    """Return the files that a file extends, directly and in turn."""
    return [FilePath(base.file) for base in _bases(_known(path), elsewhere, _known)]


def _known(path: str | FilePath) -> Document:
    """Return the data of a file that was read without a fault before; a search asks a hundred times."""
    return _as_of(str(path), file_digest(FilePath(path)))


@lru_cache(maxsize=32)
def _as_of(path: str, _: str) -> Document:
    return read(path)


def _bases(
    document: Document, elsewhere: Elsewhere, reader: Callable[[str | FilePath], Document] = read
) -> Iterator[Document]:
    """Yield what a document extends, the nearest first."""
    names, current = [FilePath(document.file).stem], document
    while (name := current.data.get("extends")) is not None:
        beside, base = FilePath(current.file).parent / f"{name}.yaml", None
        if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
            current.report(("extends",), "expected the name of a file of this kind")
        elif name in names or len(names) > MOST:
            current.report(("extends",), f"expected at most {MOST} files in a row, none twice")
        else:
            base = beside if beside.is_file() else elsewhere(name)
            if base is None:
                current.report(("extends",), f"no file of this kind is called {name!r}")
        current.check()
        assert base is not None
        names.append(base.stem)
        current = reader(base)
        yield current


def _merged(base: Document, heir: Document) -> Document:
    replaced: set[Path] = set()

    def merge(below: Any, own: Any, path: Path) -> Any:
        if not (isinstance(below, dict) and isinstance(own, dict)) or not FIGURE.isdisjoint(own):
            replaced.add(path)
            return own
        kept = {key: _unfitted(value) for key, value in below.items() if key not in own and key != FITTED}
        stated = {key: merge(below.get(key, {}), value, (*path, key)) for key, value in own.items()}
        return {key: value for key, value in {**kept, **stated}.items() if value is not None or key not in below}

    data, own = merge(base.data, heir.data, ()), heir.data.get("sources") or {}
    data.pop("extends", None)
    if isinstance(data.get("sources"), dict):
        cited = set(_cited({**data, "sources": {}}))
        data["sources"] = {key: item for key, item in data["sources"].items() if key in cited or key in own}
    texts = {
        path: text
        for path, text in base.decimals.items()
        if not any(path[:n] in replaced for n in range(len(path) + 1))
    }
    return replace(heir, data=data, decimals={**texts, **heir.decimals})


def _unfitted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unfitted(item) for key, item in value.items() if key != FITTED}
    return value


def _cited(value: Any) -> Iterator[str]:
    """Yield the sources that figures name."""
    if isinstance(value, dict) and isinstance(value.get("source"), str):
        yield value["source"]
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _cited(item)
