"""Writing of imported pipelines as YAML, with what the source left open as comments.

Rates of recorded topics: a period only where number and spacing of messages agree with the recording's length.

A latched topic, or a burst at start-up, has messages a microsecond apart and no rate.  Time stamps are taken per clock:
a recorder that stamps 0 before its clock is set, a second clock, or a simulation that starts again gives stretches of
its own, and the one with the most messages counts.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.limits import LONGEST_NS

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


def document(name: str, title: str, key: str, what: str, where: str, **parts: Any) -> dict[str, Any]:
    """Return an imported pipeline's file: its head, with the source that `key` names, and the parts that there are."""
    head = {"schema_version": "1", "name": stage_name(name), "title": title[:300]}
    there = {part: held for part, held in parts.items() if held}
    return {**head, "sources": {key: {"title": what, "where": where}}, **there}


def unstated_cost(place: str, units: int) -> dict[str, Any]:
    """Return a cost that marks an unknown time: a pipeline's file needs one, so it is a nanosecond, to be replaced."""
    note = "a placeholder: the source states no execution time; replace it"
    where = {"platform": f"{place} host", "mode": f"as {place}", "engine": "cpu", "precision": "fp32"}
    return {**where, "units": units, "time": {"value": "1 ns", "kind": "assumed", "note": note}}


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


BACK_NS = 10**9
"""Furthest that a message may lie before the one above it; more is a clock that starts again."""
_FEW = 6
_WINDOWS = 10
_OCCUPIED = 0.7
"""Share of equal windows that must hold messages of a topic with a rate; up to `_WINDOWS`, two messages for each."""
_SHORT, _LONG = 0.25, 2.0
"""Shortest and longest distance of fewer than `_FEW` messages with a rate, as shares of the mean."""
_LEAST = 0.5
"""Share of the recording over which a topic with a rate must be seen."""
_BURST = 2
"""Messages in a window, as a multiple of the median, from which they are a burst."""


_ALIKE, _MOST = (0.5, 1.5), 0.8
"""Distances that are alike, as multiples of their median, and the share of them from which longer ones are gaps."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Mean period, largest lateness after its grid, shortest and longest distance of messages, in ns.

    `note`: messages and times that the rate does not cover.
    """

    period_ns: int
    jitter_ns: int
    shortest_ns: int
    longest_ns: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class NoRate:
    """Why a topic has no rate."""

    reason: str


def clocks(topics: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
    """Return the first and last time of each clock: times of all topics, split where they are over an hour apart."""
    import numpy as np

    times = [np.array(each, np.int64) for each in topics if len(each)]
    ordered = np.unique(np.concatenate(times)) if times else np.array([], np.int64)
    stretches = np.split(ordered, np.flatnonzero(np.diff(ordered.astype(np.float64)) > LONGEST_NS) + 1)
    return [(int(one[0]), int(one[-1])) for one in stretches if len(one)]


def rate_of(times: Sequence[int], recorded: Sequence[tuple[int, int]]) -> Rate | NoRate:
    """Return the rate of a topic: `times` of its messages in the order of the file, `recorded` as from `clocks`."""
    import numpy as np

    stretch, (begin, end) = _stretch(np.array(times, np.int64), recorded)
    count = len(stretch)
    shown = f"{count} message{'s' * (count != 1)}"
    aside = f"{len(times) - count} messages of another clock left out" if count < len(times) else ""
    if count < 3:
        return NoRate(", ".join(filter(None, [f"{shown}, of which no rate follows", aside])))
    span, length = int(stretch[-1] - stretch[0]), end - begin
    mean = span / (count - 1)
    if mean > LONGEST_NS:
        return NoRate(f"{shown}, more than an hour apart")
    among = f"{shown} within {duration(span)} of the recording's {duration(length)}"
    if span + mean < _LEAST * length:
        return NoRate(f"{among}: not over its length, so that no rate follows")
    if not _spread(stretch):
        return NoRate(f"{among}, in bursts: events, of which no rate follows")
    steady = _steady(stretch)
    notes = [aside, f"{count - len(steady)} messages of a burst left out" if len(steady) < count else ""]
    steady = steady - stretch[0]
    place = _places(np.diff(steady))
    period = max(1, round(int(steady[-1] - steady[0]) / int(place[-1])))
    if missing := int(place[-1]) - len(steady) + 1:
        notes.append(f"{missing} messages are missing")
    if span + mean < 0.9 * length:
        first = int(stretch[0]) - begin
        notes.append(f"seen from {duration(first)} to {duration(first + span)} of {duration(length)}")
    late = steady - steady[0] - period * place
    gaps = np.diff(steady)
    jitter = int(late.max() - late.min())
    return Rate(period, jitter, int(gaps.min()), int(gaps.max()), ", ".join(filter(None, notes)))


def _stretch(times: Any, recorded: Sequence[tuple[int, int]]) -> tuple[Any, tuple[int, int]]:
    """Return the ordered times of the longest run of one clock, and first and last time of that clock."""
    import numpy as np

    best, where = times[:0], (0, 0)
    for begin, end in recorded:
        mine = times[(times >= begin) & (times <= end)]
        for run in np.split(mine, np.flatnonzero(np.diff(mine) < -BACK_NS) + 1):
            if len(run) > len(best):
                best, where = np.sort(run), (begin, end)
    return best, where


def _spread(times: Any) -> bool:
    """Return whether messages are spread over the time between the first and the last."""
    import numpy as np

    if len(times) < _FEW:
        gaps = np.diff(times)
        mean = float(gaps.mean())
        return bool(gaps.min() >= _SHORT * mean and gaps.max() < _LONG * mean)
    counts = _counts(times, min(len(times) // 2, _WINDOWS))
    return float((counts > 0).mean()) >= _OCCUPIED


def _places(gaps: Any) -> Any:
    """Return the place of every message in its period's grid, with room for missing ones if most gaps are alike."""
    import numpy as np

    usual = max(float(np.median(gaps)), 1.0)
    alike = (gaps > _ALIKE[0] * usual) & (gaps < _ALIKE[1] * usual)
    steps = np.ones(len(gaps), np.int64)
    if alike.mean() >= _MOST:
        steps = np.maximum(np.round(gaps / usual), 1).astype(np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(steps)])


def _steady(times: Any) -> Any:
    """Return the messages after a burst at the start: windows that hold far more than those after them."""
    import numpy as np

    if len(times) < 3 * _WINDOWS:
        return times
    counts = _counts(times, _WINDOWS)
    calm = counts <= _BURST * max(float(np.median(counts)), 1.0) + 1
    first = int(calm.argmax())
    if not calm[first:].all():
        return times
    begin = times[0] + (int(times[-1] - times[0]) * first + _WINDOWS - 1) // _WINDOWS
    kept = times[times >= begin]
    return kept if len(kept) >= 3 else times


def _counts(times: Any, windows: int) -> Any:
    """Return the number of messages in each of some equal windows from the first to the last."""
    import numpy as np

    span = max(int(times[-1] - times[0]), 1)
    place = np.minimum(((times - times[0]).astype(np.float64) * windows / span).astype(np.int64), windows - 1)
    return np.bincount(place, minlength=windows)
