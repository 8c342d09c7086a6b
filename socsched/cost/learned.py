"""Times that runs of plans on this machine have measured, kept in the cache on request (`run --learn`).

They are this machine's alone and no part of its description: a stage is known by its model, parameters and files, so
that it keeps its time in any pipeline.  A profile given to a plan precedes them, and they precede everything else.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from socsched.cache import keep, recall
from socsched.descriptor import host
from socsched.descriptor.catalog import HOST
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import NATIVE, OWN
from socsched.files import file_digest

KIND, FORMAT = "host-learned", 1
LEAST_ERROR = 0.05
MOST = 2_000
"""Stages that are kept; the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Median time of a stage on an engine, its relative error (up to the 99th percentile), and where it is from."""

    time_ns: int
    error: float
    jobs: int
    date: str


def place(stage: Stage, engine: str, precision: str, share: int, runtime: str) -> str:
    """Return what a time belongs to: what the stage computes, where and by which runtime."""
    files = {name: _digest(value) for name, value in stage.params.items() if name in ("file", "weights")}
    what = [stage.model, {**stage.params, **files}, engine, precision, share]
    foreign = [runtime] if runtime not in ("", OWN, NATIVE) else []
    return hashlib.sha256(json.dumps([*what, *foreign], sort_keys=True, default=repr).encode()).hexdigest()[:24]


def learn(times: Iterable[tuple[str, list[int]]]) -> int:
    """Keep the times (ns) of jobs by place; return the number of places."""
    known, count = _known(), 0
    for where, values in times:
        ordered = sorted(values)
        median, high = ordered[len(ordered) // 2], ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)]
        error = max(high / max(median, 1) - 1, LEAST_ERROR)
        known.pop(where, None)
        known[where] = asdict(Learned(max(median, 1), round(error, 3), len(ordered), time.strftime("%Y-%m-%d")))
        count += 1
    keep(KIND, host.probe_key(), {"format": FORMAT, "times": dict(list(known.items())[-MOST:])})
    return count


def forget() -> None:
    """Forget what was learned."""
    keep(KIND, host.probe_key(), {"format": FORMAT, "times": {}})


def _known() -> dict[str, dict[str, Any]]:
    stored = recall(KIND, host.probe_key())
    valid = isinstance(stored, dict) and stored.get("format") == FORMAT and isinstance(stored.get("times"), dict)
    return dict(stored["times"]) if valid else {}


def known(
    platform: str, stage: Stage, engine: str, precision: str, share: int, runtime: str
) -> tuple[int, float, str] | None:
    """Return time (ns), relative error and source of a stage as a run here has shown it, None if none has."""
    if platform != HOST or stage.model is None or not host.probed():
        return None
    found = _known().get(place(stage, engine, precision, share, runtime))
    try:
        one = Learned(**found) if found else None
    except TypeError:
        return None
    return (one.time_ns, one.error, f"learned from {one.jobs} jobs of a run here, {one.date}") if one else None


def _digest(value: Any) -> str:
    path = Path(str(value))
    return _file(path, path.stat().st_mtime_ns) if path.is_file() else str(value)


@lru_cache(maxsize=64)
def _file(path: Path, stamp: int) -> str:
    return file_digest(path)
