"""A trace as a file: JSON with a record's fields as columns and names by number, gzip when the name ends in ``.gz``.

A column of whole numbers is ``{"count", "start", "type", "data"}``: base64 of the differences from entry to entry,
little-endian in the narrowest type that holds them (``i1`` to ``i8``), after the first entry, `start`.  Without `data`
all differences are 0.  Counter values are base64 of float64.  Reading gives back an equal trace; within
`Trace.details`, tuples and arrays come back as lists.  Files of version 1, with plain lists, are read too.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.errors import InputError
from socsched.trace.trace import Instant, Job, Slice, Trace

if TYPE_CHECKING:
    from socsched.trace.columns import Columns, Floats, Ints

FORMAT = "socsched-trace"
SCHEMA_VERSION = "2"
_NAMES = ("tasks", "engines", "names", "subjects", "kinds", "texts")
_LEVEL = 4
"""Of compression: higher ones take several times as long for a few per cent."""


def save(trace: Trace, path: str | Path) -> None:
    """Write `trace` to `path`; the same trace gives the same bytes."""
    text = json.dumps(_written(trace), separators=(",", ":"), allow_nan=False, default=_plain)
    data = text.encode()
    Path(path).write_bytes(gzip.compress(data, _LEVEL, mtime=0) if str(path).endswith(".gz") else data)


def load(path: str | Path) -> Trace:
    """Read a trace that `save` wrote; InputError when the file is missing, damaged, or of another kind or version."""
    hint = "give a trace.json written by `socsched simulate` or `socsched run`"
    try:
        raw = Path(path).read_bytes()
        data = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}", hint) from error
    except (ValueError, EOFError, RecursionError) as error:
        raise InputError(f"{path}: is no trace: {error}", hint) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"{path}: is no trace: expected an object with format {FORMAT!r}", hint)
    readers = {SCHEMA_VERSION: _read, "1": _read_1}
    version = data.get("schema_version")
    if not isinstance(version, str) or version not in readers:
        raise InputError(f"{path}: trace version {version!r} is not the expected {SCHEMA_VERSION!r}", "record it again")
    try:
        return readers[version](data)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
        raise InputError(f"{path}: damaged trace: {type(error).__name__}: {error}", "record it again") from error


def _written(trace: Trace) -> dict[str, Any]:
    columns = trace.columns
    table: dict[str, Any] = {"format": FORMAT, "schema_version": SCHEMA_VERSION}
    table |= {"kind": trace.kind, "duration_ns": trace.duration_ns, "seed": trace.seed}
    table |= {name: list(getattr(columns, name)) for name in _NAMES}
    table |= {"reads": [list(names) for names in columns.reads], "lane_sets": [list(s) for s in columns.lane_sets]}
    for name in ("jobs", "slices", "instants"):
        record = getattr(columns, name)
        table[name] = {field: _packed(getattr(record, field)) for field in type(record).__slots__}
    steps = {name: [_packed(times), _packed_floats(values)] for name, (times, values) in columns.counters.items()}
    releases = {name: _packed(times) for name, times in columns.releases.items()}
    details = {str(frame): found for frame, found in trace.details.items()}
    return table | {"counters": steps, "releases": releases, "details": details}


def _packed(column: Ints) -> dict[str, Any]:
    import numpy as np

    if not len(column):
        return {"count": 0, "start": 0}
    packed: dict[str, Any] = {"count": len(column), "start": int(column[0])}
    steps = np.diff(column)
    low, high = (int(steps.min()), int(steps.max())) if len(steps) else (0, 0)
    if low or high:
        size = next(size for size in (1, 2, 4, 8) if -(1 << 8 * size - 1) <= low and high < 1 << 8 * size - 1)
        packed |= {"type": f"i{size}", "data": b64encode(steps.astype(f"<i{size}").tobytes()).decode()}
    return packed


def _packed_floats(values: Floats) -> str:
    return b64encode(values.astype("<f8", copy=False).tobytes()).decode()


def _read(data: Mapping[str, Any]) -> Trace:
    import numpy as np

    from socsched.trace.columns import Columns, InstantColumns, JobColumns, SliceColumns

    parts: dict[str, Any] = {name: tuple(map(str, data[name])) for name in _NAMES}
    parts |= {name: tuple(map(tuple, data[name])) for name in ("reads", "lane_sets")}
    for name, record in (("jobs", JobColumns), ("slices", SliceColumns), ("instants", InstantColumns)):
        written = max((len(column["data"]) for column in data[name].values() if "data" in column), default=0)
        parts[name] = record(**{field: _column(data[name][field], written) for field in record.__slots__})
    counters = {}
    for name, (times, values) in data["counters"].items():
        steps = np.frombuffer(b64decode(values, validate=True), "<f8").astype(np.float64)
        counters[name] = (_column(times, len(steps)), steps)
        if len(counters[name][0]) != len(steps):
            raise ValueError(f"counter {name}: as many times as values expected")
    releases = {name: _column(times) for name, times in data["releases"].items()}
    columns = Columns(**parts, counters=counters, releases=releases)
    _check(columns)
    details = {int(frame): found for frame, found in data["details"].items()}
    return Trace.from_columns(data["kind"], data["duration_ns"], data["seed"], columns, details)


_CONSTANT = 1 << 20
"""Entries that a column may have without as many being written in any column beside it."""


def _column(packed: Mapping[str, Any], beside: int = 0) -> Ints:
    """Return a column; what is written `beside` it vouches for as many entries of one without differences."""
    import numpy as np

    count = packed["count"]
    if "data" not in packed:
        if count > max(_CONSTANT, beside):
            raise ValueError(f"a column of {count} equal entries")
        return np.full(count, packed["start"], np.int64)
    if packed["type"] not in ("i1", "i2", "i4", "i8"):
        raise ValueError(f"a column of type {packed['type']!r}")
    steps = np.frombuffer(b64decode(packed["data"], validate=True), "<" + packed["type"])
    if len(steps) != count - 1:
        raise ValueError(f"a column of {count} entries with {len(steps)} differences")
    column = np.full(count, packed["start"], np.int64)
    column[1:] += np.cumsum(steps, dtype=np.int64)
    return column


def _check(columns: Columns) -> None:
    """Raise ValueError unless columns are of one length and every number refers to something."""
    import numpy as np

    from socsched.trace.columns import MARKS, STATUS

    jobs, slices, notes = columns.jobs, columns.slices, columns.instants
    for record, besides in ((jobs, {"frames"}), (slices, set()), (notes, set())):
        lengths = {len(getattr(record, field)) for field in type(record).__slots__ if field not in besides}
        if len(lengths) > 1:
            raise ValueError(f"columns of different lengths: {sorted(lengths)}")
    if len(columns.reads) != len(columns.tasks):
        raise ValueError(f"{len(columns.tasks)} tasks, but reads of {len(columns.reads)}")
    worded = notes.kind < 0
    for name, numbers, low, end in (
        ("task", jobs.task, 0, len(columns.tasks)),
        ("status", jobs.status, 0, len(STATUS)),
        ("sampled frames", jobs.sampled, -1, len(jobs.frames) + 1),
        ("job", slices.job, 0, len(jobs)),
        ("engine", slices.engine, 0, len(columns.engines)),
        ("name", slices.name, 0, len(columns.names)),
        ("lanes", slices.lanes, -len(columns.lane_sets), 1 << 63),
        ("subject", notes.subject, 0, len(columns.subjects)),
        ("kind", notes.kind, -len(columns.kinds), len(MARKS)),
        ("text", notes.value[worded], 0, len(columns.texts)),
    ):
        if len(numbers) and not low <= int(numbers.min()) <= int(numbers.max()) < end:
            raise ValueError(f"a number that refers to no {name}")
    counts = np.array([len(names) for names in columns.reads] or [0])[jobs.task] if len(jobs) else jobs.task
    if (jobs.sampled + counts)[jobs.sampled >= 0].max(initial=0) > len(jobs.frames):
        raise ValueError("a job whose sampled frames are not all there")


_JOB_1 = ("frame", "activation_ns", "deadline_ns", "start_ns", "finish_ns", "exec_ns", "blocking_ns", "preemptions")
_SLICE_1 = ("job", "start_ns", "end_ns")


def _read_1(data: Mapping[str, Any]) -> Trace:
    names: list[str] = data["names"]
    lanes = [tuple(entry) for entry in data["lanes"]]
    samples = [{names[name]: frame for name, frame in entry} for entry in data["samples"]]
    return Trace(
        kind=data["kind"],
        duration_ns=data["duration_ns"],
        seed=data["seed"],
        jobs=[
            Job(names[task], status=names[status], sampled=samples[sample], **row)
            for task, status, sample, row in _rows(data["jobs"], ("task", "status", "sampled"), _JOB_1)
        ],
        slices=[
            Slice(names[engine], lanes[lane], name=names[name], **row)
            for engine, lane, name, row in _rows(data["slices"], ("engine", "lanes", "name"), _SLICE_1)
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
