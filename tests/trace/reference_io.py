"""Trace files of version 1, as they were written: plain lists, made and read record by record."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from socsched.errors import InputError
from socsched.trace.trace import Instant, Job, Slice, Trace

FORMAT = "socsched-trace"
SCHEMA_VERSION = "1"

_JOB = ("frame", "activation_ns", "deadline_ns", "start_ns", "finish_ns", "exec_ns", "blocking_ns", "preemptions")
_SLICE = ("job", "start_ns", "end_ns")


def save(trace: Trace, path: str | Path) -> None:
    """Write `trace` to `path`; the same trace gives the same bytes."""
    text = json.dumps(_to_columns(trace), separators=(",", ":"), allow_nan=False, default=_plain)
    data = text.encode()
    Path(path).write_bytes(gzip.compress(data, 6, mtime=0) if str(path).endswith(".gz") else data)


def load(path: str | Path) -> Trace:
    """Read a trace that `save` wrote; InputError when the file is missing, damaged, or of another kind or version."""
    hint = "give a trace.json written by `socsched simulate` or `socsched run`"
    try:
        raw = Path(path).read_bytes()
        data = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}", hint) from error
    except (ValueError, EOFError, RecursionError) as error:
        raise InputError(f"{path}: is not a trace: {error}", hint) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"{path}: is not a trace: expected an object with format {FORMAT!r}", hint)
    if data.get("schema_version") != SCHEMA_VERSION:
        found = data.get("schema_version")
        raise InputError(f"{path}: trace version {found!r} is not the expected {SCHEMA_VERSION!r}", "record it again")
    try:
        return _from_columns(data)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: damaged trace: {type(error).__name__}: {error}", "record it again") from error


class _Names:
    """Numbers things in the order they are first seen."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def __call__(self, thing: Any) -> int:
        return self.numbers.setdefault(thing, len(self.numbers))

    def listed(self) -> list[Any]:
        return list(self.numbers)


def _to_columns(trace: Trace) -> dict[str, Any]:
    names, origins, samples, lanes = _Names(), _Names(), _Names(), _Names()
    jobs: dict[str, Any] = {name: [getattr(job, name) for job in trace.jobs] for name in _JOB}
    jobs["task"] = [names(job.task) for job in trace.jobs]
    jobs["status"] = [names(job.status) for job in trace.jobs]
    jobs["origin"] = [
        origins(tuple((names(k), *v) for k, v in getattr(job, "origin", {}).items())) for job in trace.jobs
    ]
    jobs["sampled"] = [samples(tuple((names(k), v) for k, v in job.sampled.items())) for job in trace.jobs]
    slices: dict[str, Any] = {name: [getattr(piece, name) for piece in trace.slices] for name in _SLICE}
    slices["engine"] = [names(piece.engine) for piece in trace.slices]
    slices["lanes"] = [lanes(piece.lanes) for piece in trace.slices]
    slices["name"] = [names(piece.name) for piece in trace.slices]
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "kind": trace.kind,
        "duration_ns": trace.duration_ns,
        "seed": trace.seed,
        "jobs": jobs,
        "slices": slices,
        "instants": [[i.time_ns, names(i.kind), names(i.subject), i.frame, i.text] for i in trace.instants],
        "releases": trace.releases,
        "counters": {name: [[t for t, _ in steps], [v for _, v in steps]] for name, steps in trace.counters.items()},
        "details": {str(frame): found for frame, found in trace.details.items()},
        "names": names.listed(),
        "origins": origins.listed(),
        "samples": samples.listed(),
        "lanes": lanes.listed(),
    }


def _from_columns(data: Mapping[str, Any]) -> Trace:
    names: list[str] = data["names"]
    lanes = [tuple(entry) for entry in data["lanes"]]
    samples = [{names[name]: frame for name, frame in entry} for entry in data["samples"]]
    return Trace(
        kind=data["kind"],
        duration_ns=data["duration_ns"],
        seed=data["seed"],
        jobs=[
            Job(names[task], status=names[status], sampled=samples[sample], **row)
            for task, status, sample, row in _rows(data["jobs"], ("task", "status", "sampled"), _JOB)
        ],
        slices=[
            Slice(names[engine], lanes[lane], name=names[name], **row)
            for engine, lane, name, row in _rows(data["slices"], ("engine", "lanes", "name"), _SLICE)
        ],
        instants=[Instant(t, names[kind], names[of], frame, text) for t, kind, of, frame, text in data["instants"]],
        releases={name: list(times) for name, times in data["releases"].items()},
        counters={name: list(zip(*columns, strict=True)) for name, columns in data["counters"].items()},
        details={int(frame): found for frame, found in data["details"].items()},
    )


def _rows(table: Mapping[str, Any], numbered: tuple[str, ...], plain: tuple[str, ...]) -> Iterable[Any]:
    """Yield the numbered columns of each row, and the plain ones as a mapping."""
    rows = zip(*(table[name] for name in plain), strict=True)
    named = (dict(zip(plain, row, strict=True)) for row in rows)
    return zip(*(table[name] for name in numbered), named, strict=True)


def _plain(value: Any) -> Any:
    """Turn arrays and their scalars into lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a trace cannot hold a {type(value).__name__}")
