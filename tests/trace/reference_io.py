"""Trace files of version 2, as they were written: one JSON document with base64 of differences."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np

from socsched.trace.trace import Trace

NAMES = ("tasks", "engines", "names", "subjects", "kinds", "texts")


def save(trace: Trace, path: str | Path) -> None:
    data = json.dumps(document(trace)).encode()
    Path(path).write_bytes(gzip.compress(data, 6, mtime=0) if str(path).endswith(".gz") else data)


def document(trace: Trace) -> dict[str, Any]:
    columns = trace.columns
    table: dict[str, Any] = {"format": "socsched-trace", "schema_version": "2"}
    table |= {"kind": trace.kind, "duration_ns": trace.duration_ns, "seed": trace.seed}
    table |= {name: list(getattr(columns, name)) for name in NAMES}
    table |= {"reads": [list(names) for names in columns.reads], "lane_sets": [list(s) for s in columns.lane_sets]}
    for name in ("jobs", "slices", "instants"):
        record = getattr(columns, name)
        table[name] = {field: packed(getattr(record, field)) for field in type(record).__slots__}
    counters = {
        name: [packed(times), b64encode(values.astype("<f8").tobytes()).decode()]
        for name, (times, values) in columns.counters.items()
    }
    releases = {name: packed(times) for name, times in columns.releases.items()}
    details = {str(frame): found for frame, found in trace.details.items()}
    return table | {"counters": counters, "releases": releases, "details": details}


def packed(column: Any) -> dict[str, Any]:
    if not len(column):
        return {"count": 0, "start": 0}
    steps = np.diff(column)
    found: dict[str, Any] = {"count": len(column), "start": int(column[0])}
    if steps.any():
        size = next(n for n in (1, 2, 4, 8) if -(1 << 8 * n - 1) <= steps.min() and steps.max() < 1 << 8 * n - 1)
        found |= {"type": f"i{size}", "data": b64encode(steps.astype(f"<i{size}").tobytes()).decode()}
    return found
