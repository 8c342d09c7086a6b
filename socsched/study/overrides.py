"""Fields of descriptor files by path: ``engines.gpu.clock.value``, ``modes[15W].cap.value``, ``stages.head.queue``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

_PART = re.compile(r"([^.\[\]]+)|\[([^\[\]]+)\]|\.")


def replace_fields(data: Any, changes: Sequence[tuple[str, Any]]) -> Any:
    """Return a copy of plain data with the fields at some paths replaced; ValueError names a path that does not exist.

    List items are addressed by index or by their ``name``.  The last part may be a new field.
    """
    data = deepcopy(data)
    for path, value in changes:
        holder, key = resolve(data, path)
        holder[key] = value
    return data


def resolve(data: Any, path: str) -> tuple[Any, Any]:
    """Return the mapping or list that contains the field at a path, and its key; ValueError if it does not exist."""
    rest, holder = path, data
    while True:
        key, rest = _next(holder, rest, path)
        if not rest:
            return holder, key
        if isinstance(holder, dict) and key not in holder:
            raise ValueError(f"{path}: unknown field {key!r}; expected one of {', '.join(map(str, holder)) or 'none'}")
        holder = holder[key]


def value_at(data: Any, path: str) -> Any:
    """Return the value at a path; ValueError if it does not exist."""
    holder, key = resolve(data, path)
    if isinstance(holder, dict) and key not in holder:
        raise ValueError(f"{path}: unknown field {key!r}; expected one of {', '.join(map(str, holder)) or 'none'}")
    return holder[key]


def _next(holder: Any, rest: str, path: str) -> tuple[Any, str]:
    """Return the next key and the rest of the path; names may contain dots, so the longest match is used."""
    if isinstance(holder, dict):
        fits = [key for key in holder if rest == key or rest.startswith((f"{key}.", f"{key}["))]
        if fits:
            key = max(fits, key=len)
            return key, rest[len(key) :].removeprefix(".")
        match = _PART.match(rest)
        if match is None or not match.group(1):
            raise ValueError(f"{path}: expected a field, got {rest!r}")
        return match.group(1), rest[match.end() :].removeprefix(".")
    if isinstance(holder, list):
        match = re.match(r"\[([^\[\]]+)\]\.?", rest)
        if match is None:
            raise ValueError(f"{path}: expected [index] or [name] before {rest!r}")
        return _index(holder, match.group(1), path), rest[match.end() :]
    raise ValueError(f"{path}: no fields below {holder!r}")


def _index(items: Sequence[Any], text: str, path: str) -> int:
    names = [item.get("name") if isinstance(item, dict) else None for item in items]
    if text in names:
        return names.index(text)
    if text.isdigit() and int(text) < len(items):
        return int(text)
    listed = ", ".join(str(name) for name in names if name) or f"0 to {len(items) - 1}"
    raise ValueError(f"{path}: no item [{text}]; expected {listed}")
