"""Trace files: JSON with record fields as columns and names by number, gzipped if the file name ends in ``.gz``.

A column of whole numbers is ``{"count", "start", "type", "data"}``: base64 of the differences from entry to entry,
little-endian in the narrowest type that holds them (``i1`` to ``i8``), after the first entry, `start`.  Without `data`
all differences are 0.  Counter values are base64 of float64.  Reading returns an equal trace, except that tuples and
arrays in `Trace.details` become lists.  Files of version 1, with plain lists, can be read too.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typing_extensions import NotRequired, TypedDict

from socsched.descriptor.limits import MOST_NS, Amount, Count, Json, Lane, Ns, Real, Rows, Text
from socsched.errors import DescriptorError, InputError
from socsched.files import file_digest, gzipped, write_file
from socsched.trace.trace import Instant, Job, Slice, Trace

if TYPE_CHECKING:
    from socsched.trace.columns import Columns, Floats, Ints


# Consistency of a result folder: made.json lists the files written together, each with its sha256.
#
# It is put in place before the files it names, so that an interrupted update can be detected.


MADE, FILES = "made.json", "files"
"""Command line, versions and machine of the simulation or run in a folder, and the digests of its files."""

_HINT = "simulate or run again with -o, into this folder"


def require_one(folder: Path, names: Iterable[str]) -> None:
    """Raise InputError unless the named files of a folder are those last written together."""
    recorded = _told(folder)
    for name in set(names) & set(recorded):
        try:
            same = file_digest(folder / name) == recorded[name]
        except FileNotFoundError:
            same = False
        except OSError as error:
            raise InputError(f"{folder / name}: cannot be read: {error.strerror}", "check permissions") from None
        if not same:
            raise InputError(
                f"{folder / name}: not from the simulation or run recorded in {MADE}: it was changed, or its "
                "update was interrupted",
                _HINT,
            )


def _told(folder: Path) -> dict[str, Any]:
    """Return the digests a folder was written with; empty for a folder older than this feature."""
    from socsched.descriptor.json_file import JsonFile

    if not (folder / MADE).exists():
        return {}
    document = JsonFile.open(folder / MADE, "list of files", _HINT).data
    digests = document.get(FILES, {}) if isinstance(document, dict) else None
    if not isinstance(digests, dict):
        raise InputError(f"{folder / MADE}: expected names of files and their sha256 in {FILES!r}", _HINT)
    return digests


# The fields of result.json, typed, as all figures of a simulation or run are passed on.
#
# `schemas/result.schema.json` is generated from them.


Kind = Literal["simulated", "measured"]
Figure = int | None
"""A statistic in integer nanoseconds; null without any value."""


class ResponseTimes(TypedDict):
    """Response times of completed frames (ns)."""

    mean: Figure
    p50: Figure
    p99: Figure
    p99_9: Figure
    max: Figure


class Ages(TypedDict):
    """Data ages at completions of a chain's last stage (ns)."""

    p50: Figure
    p99: Figure
    max: Figure


class ExecutionTimes(TypedDict):
    """Times of completed jobs on their engine (ns)."""

    mean: Figure
    p50: Figure
    p99: Figure
    max: Figure


class ChainDocument(TypedDict):
    """Frames of a chain by outcome, and their times."""

    released: int
    completed: int
    missed: int
    dropped: int
    stale: int
    response_time_ns: ResponseTimes
    data_age_ns: Ages


class StageDocument(TypedDict):
    """Completed jobs of a task, conversions included."""

    jobs: int
    exec_ns: ExecutionTimes
    blocking_ns: int
    preemptions: int


class EngineDocument(TypedDict):
    """Use of an engine: busy time summed over lanes, utilisation of all lanes, energy without DRAM."""

    utilization: float
    energy_mj: float
    busy_ns: int


class Level(TypedDict):
    """Mean and peak of a counter; null without the counter."""

    mean: float | None
    peak: float | None


class Overhead(TypedDict):
    """Times the executor takes (ns), and how many there were."""

    p50: int
    p99: int
    max: int
    count: int


class Overheads(TypedDict):
    """Dispatch latency of ready jobs, in all and by stage, and lateness of releases by source; null without any."""

    dispatch_ns: Overhead | None
    dispatch_ns_by_stage: dict[str, Overhead | None]
    release_jitter_ns: dict[str, Overhead | None]


class RunDocument(Overheads):
    """The run behind the figures: frames by outcome for each source, overheads, options, and facts about the board.

    `reasons`: why jobs were aborted, and which faults there were, most frequent first, with their counts.
    """

    accounts: dict[str, dict[str, int]]
    reasons: dict[str, int]
    executor: str
    in_flight: int
    realtime: str
    board: dict[str, Json]


class ScenarioDocument(TypedDict):
    """A chain under a scenario of MLPerf: p99.9 of response times (ns), its bound with 99 % confidence, its validity.

    `frames_needed`: least number of frames, with as many over the deadline.  A percentile on a lost frame is null.
    """

    scenario: str
    valid: bool
    frames: int
    frames_needed: int
    lost: int
    over_deadline: int
    p99_9_ns: Figure
    p99_9_estimate_ns: Figure
    early_stopping_met: bool


class ResultDocument(TypedDict):
    """result.json: the figures of a simulation or a run.

    `scenario`: by chain, of a run under a scenario.  `given_up`: stage -> reason -> number of its jobs that were
    skipped, aborted or lost.  `resolution`: maximum relative error of percentiles that come from histograms.
    """

    schema_version: Literal["1"]
    kind: Kind
    duration_ns: int
    chains: dict[str, ChainDocument]
    stages: dict[str, StageDocument]
    engines: dict[str, EngineDocument]
    power_mw: Level
    energy_mj: float | None
    bandwidth_gbps: Level
    seed: int
    given_up: NotRequired[dict[str, dict[str, int]]]
    resolution: NotRequired[str]
    run: NotRequired[RunDocument]
    scenario: NotRequired[dict[str, ScenarioDocument]]


FORMAT = "socsched-trace"
SCHEMA_VERSION = "2"
_NAMES = ("tasks", "engines", "names", "subjects", "kinds", "texts")
MOST_BYTES = 2**31
_LEVEL = 4
"""Compression level: higher ones take several times as long for a few per cent."""


def save(trace: Trace, path: str | Path) -> None:
    """Write `trace` to `path`; the same trace gives the same bytes."""
    text = json.dumps(_written(trace), separators=(",", ":"), allow_nan=False, default=_plain)
    data = text.encode()
    write_file(path, gzipped(data, _LEVEL) if str(path).endswith(".gz") else data)


def load(path: str | Path) -> Trace:
    """Read a trace written by `save`; raise InputError if it is missing, damaged, or of another kind or version."""
    from socsched.bounded import allowance, gunzip, read_bytes
    from socsched.descriptor.json_file import JsonFile

    hint = "give a trace.json written by `socsched simulate` or `socsched run`"
    raw = read_bytes(path, "trace", hint, MOST_BYTES)
    most = allowance(len(raw))
    try:
        text = gunzip(raw, most) if raw[:2] == b"\x1f\x8b" else raw
        source = JsonFile(text, str(path), hint, most // 16)
    except (ValueError, DescriptorError) as error:
        raise InputError(f"{path}: is not a trace: {error}", hint) from None
    data = source.data
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"{path}: is not a trace: expected an object with format {FORMAT!r}", hint)
    readers = {SCHEMA_VERSION: (_read, _File), "1": (_read_1, _File1)}
    version = data.get("schema_version")
    if not isinstance(version, str) or version not in readers:
        expected = f"is not the expected {SCHEMA_VERSION!r}"
        raise InputError(f"{path}: trace version {version!r:.40} {expected}", "record it again")
    reader, kind = readers[version]
    try:
        source.load(kind)
        return reader(data, _Room(most // 8))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, DescriptorError) as error:
        raise InputError(f"{path}: damaged trace: {type(error).__name__}: {error}", "record it again") from None


class _Room:
    """A budget for the numbers in a file's columns, since a column of equal numbers is stored as just a count."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise ValueError("more numbers than a file of this size can contain")


@dataclass(frozen=True, slots=True)
class _Packed:
    count: Count
    start: Amount
    type: Text = ""
    data: str = ""


_Table = Mapping[Text, _Packed]


@dataclass(frozen=True, slots=True)
class _Head:
    kind: Text
    duration_ns: Ns
    seed: Amount
    details: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _File(_Head):
    """A file of version 2, as a schema for pydantic."""

    tasks: Annotated[tuple[Text, ...], Rows]
    engines: Annotated[tuple[Text, ...], Rows]
    names: Annotated[tuple[Text, ...], Rows]
    subjects: Annotated[tuple[Text, ...], Rows]
    kinds: Annotated[tuple[Text, ...], Rows]
    texts: Annotated[tuple[Text, ...], Rows]
    reads: Annotated[tuple[tuple[Text, ...], ...], Rows]
    lane_sets: Annotated[tuple[tuple[Lane, ...], ...], Rows]
    jobs: _Table
    slices: _Table
    instants: _Table
    counters: Mapping[Text, tuple[_Packed, str]]
    releases: Mapping[Text, _Packed]


@dataclass(frozen=True, slots=True)
class _File1(_Head):
    """A file of version 1."""

    names: Annotated[tuple[Text, ...], Rows]
    lanes: Annotated[tuple[tuple[Lane, ...], ...], Rows]
    samples: Annotated[tuple[tuple[tuple[Count, Amount], ...], ...], Rows]
    jobs: Mapping[Text, Annotated[tuple[Amount, ...], Rows]]
    slices: Mapping[Text, Annotated[tuple[Amount, ...], Rows]]
    instants: Annotated[tuple[tuple[Amount, Count, Count, Amount, Text], ...], Rows]
    releases: Mapping[Text, Annotated[tuple[Ns, ...], Rows]]
    counters: Mapping[Text, tuple[Annotated[tuple[Ns, ...], Rows], Annotated[tuple[Real, ...], Rows]]]


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


def _read(data: Mapping[str, Any], room: _Room) -> Trace:
    import numpy as np

    from socsched.trace.columns import Columns, InstantColumns, JobColumns, SliceColumns

    parts: dict[str, Any] = {name: tuple(map(str, data[name])) for name in _NAMES}
    parts |= {name: tuple(map(tuple, data[name])) for name in ("reads", "lane_sets")}
    for name, record in (("jobs", JobColumns), ("slices", SliceColumns), ("instants", InstantColumns)):
        parts[name] = record(**{field: _column(data[name][field], room) for field in record.__slots__})
    counters = {}
    for name, (times, values) in data["counters"].items():
        counters[name] = (
            _column(times, room),
            np.frombuffer(b64decode(values, validate=True), "<f8").astype(np.float64),
        )
        if not np.isfinite(counters[name][1]).all():
            raise ValueError(f"counter {name}: finite values expected")
        if len(counters[name][0]) != len(counters[name][1]):
            raise ValueError(f"counter {name}: as many times as values expected")
    releases = {name: _column(times, room) for name, times in data["releases"].items()}
    columns = Columns(**parts, counters=counters, releases=releases)
    _check(columns)
    details = {int(frame): found for frame, found in data["details"].items()}
    return Trace.from_columns(data["kind"], data["duration_ns"], data["seed"], columns, details)


def _column(packed: Mapping[str, Any], room: _Room) -> Ints:
    import numpy as np

    room.take(packed["count"])
    column = np.full(packed["count"], packed["start"], np.int64)
    if "data" in packed:
        if packed["type"] not in ("i1", "i2", "i4", "i8"):
            raise ValueError(f"a column of type {packed['type']!r}")
        steps = np.frombuffer(b64decode(packed["data"], validate=True), "<" + packed["type"])
        if len(steps) != len(column) - 1:
            raise ValueError(f"a column of {len(column)} entries with {len(steps)} differences")
        column[1:] += np.cumsum(steps, dtype=np.int64)
    return column


def _check(columns: Columns) -> None:
    """Raise ValueError unless columns have equal lengths and every index is valid."""
    import numpy as np

    from socsched.trace.columns import MARKS, STATUS

    jobs, slices, notes = columns.jobs, columns.slices, columns.instants
    for record in (jobs, slices, notes):
        for field in type(record).__slots__:
            column = getattr(record, field)
            # lanes are a mask of 63 bits; differences that do not fit 64 bits wrap around
            most = 2**63 - 1 if field == "lanes" else MOST_NS
            if len(column) and not -most <= int(column.min()) <= int(column.max()) <= most:
                raise ValueError(f"{field}: numbers from {-most} to {most} expected")
    for times in (*columns.releases.values(), *(steps for steps, _ in columns.counters.values())):
        if len(times) and not 0 <= int(times.min()) <= int(times.max()) <= MOST_NS:
            raise ValueError(f"times from 0 to {MOST_NS} expected")
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
            raise ValueError(f"an index of no {name}")
    counts = np.array([len(names) for names in columns.reads] or [0])[jobs.task] if len(jobs) else jobs.task
    if (jobs.sampled + counts)[jobs.sampled >= 0].max(initial=0) > len(jobs.frames):
        raise ValueError("a job with missing sampled frames")


_JOB_1 = ("frame", "activation_ns", "deadline_ns", "start_ns", "finish_ns", "exec_ns", "blocking_ns", "preemptions")
_SLICE_1 = ("job", "start_ns", "end_ns")


def _read_1(data: Mapping[str, Any], room: _Room) -> Trace:
    names: list[str] = data["names"]
    lanes = [tuple(entry) for entry in data["lanes"]]
    samples = [{names[name]: frame for name, frame in entry} for entry in data["samples"]]
    trace = Trace(
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
    _check(trace.columns)
    return trace


def _rows(table: Mapping[str, Any], numbered: tuple[str, ...], plain: tuple[str, ...]) -> Iterable[Any]:
    """Return, for each row, the values of the numbered columns, and the plain ones as a mapping."""
    rows = zip(*(table[name] for name in plain), strict=True)
    named = (dict(zip(plain, row, strict=True)) for row in rows)
    return zip(*(table[name] for name in numbered), named, strict=True)


def _plain(value: Any) -> Any:
    """Convert arrays and numpy scalars to lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a trace cannot hold a {type(value).__name__}")
