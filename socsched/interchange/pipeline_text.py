"""Writing of imported pipelines as YAML, with what the source left open as comments."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import pipeline_from_mapping

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*|[0-9]+(?:\.[0-9]+)? (?:ns|us|ms|s|B)")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


@dataclass(frozen=True, slots=True)
class ImportedPipeline:
    """A pipeline in the form of its file, with notes on what the source did not state or what was left out."""

    mapping: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def pipeline(self, file: str) -> Pipeline:
        """Return the pipeline, checked as its file would be."""
        return pipeline_from_mapping(self.mapping, file)

    def text(self) -> str:
        """Return the file."""
        lines = ["# yaml-language-server: $schema=../schemas/pipeline.schema.json", "#"]
        for note in self.notes:
            lines += textwrap.wrap(note, 116, initial_indent="# - ", subsequent_indent="#   ")
        return "\n".join(lines + _block(self.mapping, 0)) + "\n"


def unstated_cost(place: str, units: int) -> dict[str, Any]:
    """Return a cost that marks an unknown time: a pipeline's file needs one, so it is a nanosecond, to be replaced."""
    time = {
        "value": "1 ns",
        "kind": "assumed",
        "note": "a placeholder: the source states no execution time; replace it",
    }
    where = {"platform": f"{place} host", "mode": f"as {place}", "engine": "cpu", "precision": "fp32"}
    return {**where, "units": units, "time": time}


def stage_name(text: str) -> str:
    """Return a text as the name of a stage: lower case, other characters than letters, digits and dots as "-"."""
    name = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
    return name[:60].rstrip("-.") or "stage"


class Names:
    """Names of stages and chains for texts of a source: distinct, however alike the texts are once simplified."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}

    def take(self, text: str) -> str:
        """Return the name for a text, with a number if the name is taken."""
        base = stage_name(text)
        number = self._last.get(base, 0)
        name = ""
        while not name or name in self._taken:
            number += 1
            name = base if number == 1 else f"{base[:56]}-{number}"
        self._last[base] = number
        self._taken.add(name)
        return name


def duration(ns: float) -> str:
    """Return a time in text with its unit, to the nanosecond."""
    return f"{round(ns)} ns" if ns < 1e5 else f"{round(ns) / 1e6:.6f}".rstrip("0").rstrip(".") + " ms"


def _block(value: Mapping[str, Any], depth: int) -> list[str]:
    pad, lines = "  " * depth, list[str]()
    for key, entry in value.items():
        if isinstance(entry, Mapping) and entry and not _short(entry):
            lines += [f"{pad}{_scalar(key)}:", *_block(entry, depth + 1)]
        elif isinstance(entry, list) and any(isinstance(item, Mapping) for item in entry):
            lines.append(f"{pad}{_scalar(key)}:")
            for item in entry:
                first, *rest = _block(item, depth + 2)
                lines += [f"{pad}  - {first.lstrip()}", *rest]
        else:
            lines.append(f"{pad}{_scalar(key)}: {_flow(entry)}")
    return lines


def _short(entry: Mapping[str, Any]) -> bool:
    return len(entry) <= 5 and all(not isinstance(v, Mapping | list) for v in entry.values()) and len(_flow(entry)) < 90


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(_flow(entry) for entry in value) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)
