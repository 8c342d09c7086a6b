"""Trace files: tables in blocks (`blocks`), behind them names and where the blocks are, as gzipped JSON.

The file ends with the length of that JSON (8 bytes, little-endian) and the eight bytes it begins with.  Reading returns
an equal trace, except that tuples and arrays in `Trace.details` become lists.  Files of version 2 are read too: JSON
(gzipped or not) with a column as ``{"count", "start", "type", "data"}``: base64 of the differences from entry to entry,
little-endian in the narrowest type that holds them (``i1`` to ``i8``), after the first entry, `start`; without `data`
all differences are 0.  Their counter values are base64 of float64.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

from typing_extensions import NotRequired, TypedDict

from socsched.descriptor.limits import MOST_NS, Amount, Bits, Count, Json, Lane, Ns, Real, Rows, Text
from socsched.errors import DescriptorError, InputError
from socsched.files import file_digest, gzipped, replacing
from socsched.trace.columns import MAGIC
from socsched.trace.trace import Trace

if TYPE_CHECKING:
    from socsched.trace.columns import Columns, Ints
    from socsched.trace.stored import Stored


# Consistency of a result folder: made.json lists the files written together, each with its sha256.
#
# It is put in place before the files it names, so that an interrupted update can be detected.


MADE, FILES = "made.json", "files"
"""Command line, versions and machine of the simulation or run in a folder, and the digests of its files."""

_HINT = "simulate or run again with -o, into this folder"


def require_one(folder: Path, names: Iterable[str]) -> None:
    """Raise InputError unless the named files of a folder are those last written together."""
    recorded = _told(folder)
    for name in sorted(set(names) & set(recorded)):
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
SCHEMA_VERSION = "3"
_COPIED = 1 << 20
_LEAST = 10
_NAMES = ("tasks", "engines", "names", "subjects", "kinds", "texts")
MOST_BYTES = 2**31
_LEVEL = 6


def save(trace: Trace, path: str | Path) -> None:
    """Write `trace` to `path`; the same trace gives the same bytes."""
    from socsched.trace.stored import Stored

    columns = trace.columns
    with replacing(path) as file:
        stored = columns.stored
        if stored is None:
            stored = Stored.of(columns, file)
        else:
            for at in range(0, stored.file.end, _COPIED):
                file.write(stored.file.read(at, min(_COPIED, stored.file.end - at)))
        index = json.dumps(_index(trace, columns, stored), separators=(",", ":"), allow_nan=False, default=_plain)
        data = gzipped(index.encode(), _LEVEL)
        file.write(data + len(data).to_bytes(8, "little") + MAGIC)


def _index(trace: Trace, columns: Columns, stored: Stored) -> dict[str, Any]:
    index: dict[str, Any] = {"format": FORMAT, "schema_version": SCHEMA_VERSION}
    index |= {"kind": trace.kind, "duration_ns": trace.duration_ns, "seed": trace.seed}
    index |= {name: list(getattr(columns, name)) for name in _NAMES}
    index |= {"reads": [list(names) for names in columns.reads], "lane_sets": [list(s) for s in columns.lane_sets]}
    index |= {"sources": list(stored.sources), "origins": list(stored.origins), "meter": stored.meter}
    index["counters"] = {name: list(counter) for name, counter in stored.counters.items()}
    index["tables"] = {
        name: {
            "blocks": [(b.offset, b.size, b.rows, b.begin, b.end) for b in table.blocks],
            "bounds": {column: table.bounds[column] for column in table.layout.columns} if table.blocks else {},
            "late": [
                (number, row, *(late[column] for column in table.layout.columns))
                for number, rows in table.late.items()
                for row, late in rows.items()
            ],
        }
        for name, table in stored.tables.items()
    }
    return index | {"details": {str(frame): found for frame, found in trace.details.items()}}


def load(path: str | Path) -> Trace:
    """Read a trace written by `save`; raise InputError if it is missing, damaged, or of another kind or version.

    The columns of a long one stay in the file, which must not be changed in place while they are in use.
    """
    from socsched.bounded import allowance, open_file, read_bytes

    hint = "give a trace written by `socsched simulate` or `socsched run`"
    file = open_file(path, "trace", hint)
    if file.read(len(MAGIC)) != MAGIC:
        file.close()
        raw = read_bytes(path, "trace", hint, MOST_BYTES)
        return _parsed(raw, str(path), hint, allowance(len(raw)), {"2": (_File, _read)})
    size = file.seek(-8 - len(MAGIC), 2)
    length = int.from_bytes(file.read(8), "little")
    if file.read() != MAGIC or not 0 < length <= size - len(MAGIC):
        raise InputError(f"{path}: damaged trace: its end is missing", "record it again")
    file.seek(size - length)
    raw, end = file.read(length), size - length
    return _parsed(
        raw, str(path), hint, allowance(length), {"3": (_Index, lambda data, _: _open(data, file, path, end))}
    )


_Reader = Callable[[Mapping[str, Any], "_Room"], Trace]


def _parsed(raw: bytes, path: str, hint: str, most: int, readers: Mapping[str, tuple[Any, _Reader]]) -> Trace:
    from socsched.bounded import gunzip
    from socsched.descriptor.json_file import JsonFile

    try:
        text = gunzip(raw, most) if raw[:2] == b"\x1f\x8b" else raw
        source = JsonFile(text, path, hint, most // 16)
    except (ValueError, DescriptorError) as error:
        raise InputError(f"{path}: is not a trace: {error}", hint) from None
    data = source.data
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"{path}: is not a trace: expected an object with format {FORMAT!r}", hint)
    version = data.get("schema_version")
    if not isinstance(version, str) or version not in readers:
        expected = f"is not the expected {', '.join(map(repr, readers))}"
        again = "record it again: `socsched simulate PLAN.json -o DIR`, or `run` with the same options"
        raise InputError(f"{path}: trace version {version!r:.40} {expected}", again)
    kind, reader = readers[version]
    try:
        source.load(kind)
        return reader(data, _Room(most // 8))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, DescriptorError) as error:
        raise InputError(f"{path}: damaged trace: {type(error).__name__}: {error}", "record it again") from None


def _open(data: Mapping[str, Any], file: BinaryIO, path: str | Path, end: int) -> Trace:
    """Return the trace of an index; ValueError unless its blocks lie one behind another in the file."""
    from socsched.trace.blocks import BLOCK, Block
    from socsched.trace.stored import Counter, Meter, Stored

    stored = Stored(file, str(path), end)
    for name, table in stored.tables.items():
        found, fields = data["tables"][name], table.layout.columns
        table.blocks = [Block(*block) for block in found["blocks"]]
        table.bounds = {field: tuple(found["bounds"][field]) for field in fields} if table.blocks else {}
        for number, row, *values in found["late"]:
            if not 0 <= row < table.blocks[number].rows:
                raise ValueError(f"{name}: a late row beyond its block")
            table.late.setdefault(number, {})[row] = dict(zip(fields, values, strict=True))
    blocks = sorted((b for table in stored.tables.values() for b in table.blocks), key=lambda b: b.offset)
    after = len(MAGIC)
    for block in blocks:
        # a block has at least its sizes, so that a small file cannot claim many rows
        if block.offset < after or block.size < _LEAST or not 0 < block.rows <= BLOCK:
            raise ValueError("blocks that overlap, are empty or too long")
        after = block.offset + block.size
    if after > end:
        raise ValueError("blocks beyond the end of the file")
    stored.sources, stored.origins = tuple(data["sources"]), tuple(data["origins"])
    stored.meter = Meter(*data["meter"]) if data["meter"] else None
    stored.counters = {name: Counter(*counter) for name, counter in data["counters"].items()}
    if any(counter.table not in ("meters", "queues", "counters") for counter in stored.counters.values()):
        raise ValueError("a counter in no table")
    if stored.meter is None and any(counter.table == "meters" for counter in stored.counters.values()):
        raise ValueError("power without its meter")
    names = {name: tuple(map(str, data[name])) for name in _NAMES}
    columns = stored.columns(names | {name: tuple(map(tuple, data[name])) for name in ("reads", "lane_sets")})
    _check(columns)
    details = {int(frame): found for frame, found in data["details"].items()}
    return Trace.from_columns(data["kind"], data["duration_ns"], data["seed"], columns, details)


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
class _Named(_Head):
    tasks: Annotated[tuple[Text, ...], Rows]
    engines: Annotated[tuple[Text, ...], Rows]
    names: Annotated[tuple[Text, ...], Rows]
    subjects: Annotated[tuple[Text, ...], Rows]
    kinds: Annotated[tuple[Text, ...], Rows]
    texts: Annotated[tuple[Text, ...], Rows]
    reads: Annotated[tuple[tuple[Text, ...], ...], Rows]
    lane_sets: Annotated[tuple[tuple[Lane, ...], ...], Rows]


@dataclass(frozen=True, slots=True)
class _File(_Named):
    """A file of version 2, as a schema for pydantic."""

    jobs: _Table
    slices: _Table
    instants: _Table
    counters: Mapping[Text, tuple[_Packed, str]]
    releases: Mapping[Text, _Packed]


@dataclass(frozen=True, slots=True)
class _Blocks:
    blocks: Annotated[tuple[tuple[Count, Count, Count, Amount, Amount], ...], Rows]
    bounds: Mapping[Text, tuple[Bits, Bits]]
    late: Annotated[tuple[tuple[Bits, ...], ...], Rows]


@dataclass(frozen=True, slots=True)
class _Index(_Named):
    """What is behind the blocks of a file of version 3."""

    sources: Annotated[tuple[Text, ...], Rows]
    origins: Annotated[tuple[Amount, ...], Rows]
    meter: tuple[Real, Real, Real] | None
    counters: Mapping[Text, tuple[Text, Count, Real | None, Real, Real]]
    tables: Mapping[Text, _Blocks]


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
    """Raise ValueError unless columns have equal lengths and every index is valid.

    Of columns in a file this is what the file states: their blocks are checked against that when they are read.
    """
    import numpy as np

    from socsched.trace.blocks import spans
    from socsched.trace.columns import MARKS, STATUS

    jobs, slices, notes = columns.jobs, columns.slices, columns.instants
    for record in (jobs, slices, notes):
        for field in type(record).__slots__:
            # lanes are a mask of 63 bits; differences that do not fit 64 bits wrap around
            most = 2**63 - 1 if field == "lanes" else MOST_NS
            _within(getattr(record, field), field, -most, most + 1)
    for times in columns.releases.values():
        _within(times, "times", 0, MOST_NS + 1)
    for name in columns.counters if columns.stored is None else ():
        times, values = columns.counters[name]
        _within(times, "times", 0, MOST_NS + 1)
        if not np.isfinite(values).all() or len(times) != len(values):
            raise ValueError(f"counter {name}: as many times as finite values expected")
    for record, besides in ((jobs, {"frames"}), (slices, set()), (notes, set())):
        lengths = {len(getattr(record, field)) for field in type(record).__slots__ if field not in besides}
        if len(lengths) > 1:
            raise ValueError(f"columns of different lengths: {sorted(lengths)}")
    if len(columns.reads) != len(columns.tasks):
        raise ValueError(f"{len(columns.tasks)} tasks, but reads of {len(columns.reads)}")
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
    ):
        _within(numbers, f"an index of no {name}", low, end)
    if columns.kinds:
        for part in spans(len(notes)):
            _within(notes.value[part][notes.kind[part] < 0], "an index of no text", 0, len(columns.texts))
    if len(jobs) and jobs.sampled.max() >= 0:
        counts = np.array([len(names) for names in columns.reads])
        for part in spans(len(jobs)):
            begins = jobs.sampled[part]
            if (begins + counts[jobs.task[part]])[begins >= 0].max(initial=0) > len(jobs.frames):
                raise ValueError("a job with missing sampled frames")


def _within(numbers: Ints, what: str, low: int, end: int) -> None:
    if len(numbers) and not low <= int(numbers.min()) <= int(numbers.max()) < end:
        raise ValueError(f"{what}: numbers from {low} to {end - 1} expected")


def _plain(value: Any) -> Any:
    """Convert arrays and numpy scalars to lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a trace cannot hold a {type(value).__name__}")
