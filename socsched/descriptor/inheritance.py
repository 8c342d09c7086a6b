"""Files that `extends` another of their kind: they state what differs, and the rest holds as there.

Boards of one chip differ in a clock, a unit and their modes; without this a sibling is a copy that goes stale.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from socsched.descriptor.fields import NAME_PATTERN
from socsched.descriptor.source import Document, read
from socsched.descriptor.source import Path as Place
from socsched.files import file_digest

MOST = 4
FIGURE = frozenset(("value", "range", "points"))
"""Keys of a mapping that is one statement with its provenance, and is therefore replaced whole."""
FITTED = "fitted"
"""Is not inherited: measurements of one board say nothing of another."""
Elsewhere = Callable[[str], Path | None]
"""Returns the file of a name that does not lie beside the one that extends it, None for an unknown name."""


def read_extended(path: str | Path, elsewhere: Elsewhere) -> Document:
    """Return the data of a file with those of the files that it extends.

    Mappings are merged key by key, `null` takes a value away.  A fault of an inherited value is reported where the file
    names its base, since a line of another file would be no help; DescriptorError for a base that does not exist.
    """
    document = read(path)
    *heirs, complete = document, *_bases(document, elsewhere)
    for heir in reversed(heirs):
        complete = _merged(complete, heir)
    return complete


def base_files(path: str | Path, elsewhere: Elsewhere) -> list[Path]:
    """Return the files that a file extends, directly and in turn."""
    return [Path(base.file) for base in _bases(_known(path), elsewhere, _known)]


def _known(path: str | Path) -> Document:
    """Return the data of a file that was read without a fault before; a search asks a hundred times."""
    return _as_of(str(path), file_digest(Path(path)))


@lru_cache(maxsize=32)
def _as_of(path: str, _: str) -> Document:
    return read(path)


def _bases(
    document: Document, elsewhere: Elsewhere, reader: Callable[[str | Path], Document] = read
) -> Iterator[Document]:
    """Yield what a document extends, the nearest first."""
    names, current = [Path(document.file).stem], document
    while (name := current.data.get("extends")) is not None:
        beside, base = Path(current.file).parent / f"{name}.yaml", None
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
    replaced: set[Place] = set()

    def merge(below: Any, own: Any, path: Place) -> Any:
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
