"""SQLite exports of Nsight Systems (`nsys export --type sqlite`): kernels, launches, NVTX ranges, whole graphs; ns.

A job is an instance of an outermost NVTX range, its time the span of the kernels, copies and graphs it launched.
Without ranges, every launch of a CUDA graph is a job (`nsys` records graphs as a whole unless --cuda-graph-trace=node).

Tables of `nsys stats`, as text or CSV: kernels on the GPU, and NVTX ranges projected onto it or on the CPU.

nvtx_gpu_proj_sum   GPU time of every range: a range is a job (2023.1 on)
nvtx_kern_sum       kernels by range (nvtxkernsum): their sum over the instances of the range
cuda_gpu_kern_sum   kernels over the whole capture (gpukernsum; with copies: cuda_gpu_sum); how many jobs ran is not
                    in it.  A network launches every kernel once per layer, so the jobs are the largest number that
                    all counts are multiples of, which is marked as assumed
nvtx_sum            wall-clock time of ranges on the CPU (nvtxsum, nvtxppsum): waiting for the GPU included

Where a text holds several tables, the first of this list counts.  Other reports (API calls, memory, system calls)
hold no times of jobs.  Column names are those of 2021.3 to 2025.5; older ones are "Time(%)", "Average".
"""

from __future__ import annotations

import csv
import math
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from socsched.errors import InputError
from socsched.interchange.profile_model import (
    HINT,
    MOST_RANGES,
    Board,
    Interval,
    Recording,
    Section,
    Spread,
    device_times,
    range_sections,
)
from socsched.interchange.sqlite_file import Database, open_sqlite

MAGIC = b"SQLite format 3\x00"
MOST_ROWS = 5_000_000
_DEVICE = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
_OWN = ("CUPTI_", "NVTX_", "TARGET_INFO", "StringIds", "ANALYSIS_", "META_DATA")
_EXPORT_HINT = "export it with `nsys export --type sqlite`, recorded with --trace=cuda,nvtx"
_CLOSED = (59, 60)
"""NVTX event types with an end: push/pop and start/end ranges."""


def read_export(path: Path) -> Recording:
    """Return the read_export of an export; InputError if it is damaged or has neither ranges nor graphs."""
    try:
        with open_sqlite(path) as base:
            return _read(path, base)
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a readable SQLite export: {error}", _EXPORT_HINT) from None


def _read(path: Path, base: Database) -> Recording:
    tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    if not any(name.startswith(_OWN) for name in tables):
        listed = ", ".join(sorted(tables)[:5]) or "no table"
        bag = (
            "socsched pipelines import rosbag2 reads recordings of topics; " if {"topics", "messages"} <= tables else ""
        )
        raise InputError(f"{path}: the format is not known: it looks like a SQLite database with {listed}", bag + HINT)
    device = [name for part in _DEVICE if (name := f"CUPTI_ACTIVITY_KIND_{part}") in tables]
    if not device:
        raise InputError(f"{path}: no GPU activity: expected a table CUPTI_ACTIVITY_KIND_KERNEL", _EXPORT_HINT)
    kernels = [
        Interval(table, 0, start, end, key)
        for table in device
        for start, end, key in _rows(path, base, table, ("start", "end", "correlationId"))
    ]
    ranges, launches = list[Interval](), list[Interval]()
    strings = dict(_texts(base)) if "StringIds" in tables else {}
    if "NVTX_EVENTS" in tables:
        columns = {row[1] for row in base.execute("PRAGMA table_info(NVTX_EVENTS)")}
        texts = [name for name in ("text", "textId") if name in columns]
        fields = ("start", "end", "globalTid", "eventType", *texts)
        for start, end, thread, kind, *labels in _rows(path, base, "NVTX_EVENTS", fields, texts):
            name = next((t if isinstance(t, str) else strings.get(t, "") for t in labels if t is not None), "")
            if kind in _CLOSED and name:
                ranges.append(Interval(name, thread, start, end))
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
        fields = ("start", "end", "globalTid", "correlationId")
        for start, end, thread, key in _rows(path, base, "CUPTI_ACTIVITY_KIND_RUNTIME", fields):
            launches.append(Interval("", thread, start, end, key))
    if len(ranges) > MOST_RANGES:
        raise InputError(f"{path}: {len(ranges)} NVTX ranges, expected at most {MOST_RANGES}", _EXPORT_HINT)
    sections = range_sections(device_times(ranges, launches, kernels), "gpu") if ranges else ()
    if not sections and "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in tables:
        sections = _graphs(path, base)
    if not sections:
        raise InputError(
            f"{path}: no NVTX range launched a kernel and no CUDA graph ran, so the jobs cannot be told apart",
            "mark jobs with nvtxRangePush/Pop around their launches and record with --trace=cuda,nvtx",
        )
    board = _board(base) if "TARGET_INFO_GPU" in tables else Board()
    return Recording(str(path), "Nsight Systems", sections, max(len(s.times_ns) for s in sections), board=board)


def _board(base: Database) -> Board:
    """Return the GPU that was recorded; nothing where several were."""
    columns = {row[1] for row in base.execute("PRAGMA table_info(TARGET_INFO_GPU)")}
    fields = [name for name in ("name", "smCount") if name in columns]
    listed = list(base.execute(f"SELECT {', '.join(fields)} FROM TARGET_INFO_GPU LIMIT 2")) if "name" in fields else []
    if len(listed) != 1:
        return Board()
    name, *units = listed[0]
    return Board(device=str(name)[:80], units=units[0] if units and isinstance(units[0], int) else 0)


def _graphs(path: Path, base: Database) -> tuple[Section, ...]:
    spans: dict[int, list[tuple[int, int, int]]] = {}
    for start, end, graph in _rows(path, base, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", ("start", "end", "graphId")):
        spans.setdefault(graph, []).append((start, start, end))
    sections = []
    for graph, jobs in spans.items():
        times = tuple(end - start for _, start, end in jobs)
        mean = sum(times) / len(times)
        sections.append(Section(f"graph-{graph}", 0, "gpu", (), mean, times, note="whole graphs", spans_ns=tuple(jobs)))
    return tuple(sections)


def _texts(base: Database) -> Iterator[tuple[int, str]]:
    for key, value in base.execute(f"SELECT id, value FROM StringIds LIMIT {MOST_ROWS}"):
        yield key, str(value)


def _rows(
    path: Path, base: Database, table: str, columns: tuple[str, ...], texts: list[str] | None = None
) -> Iterator[tuple[int, ...]]:
    """Yield rows of a table whose numbers are whole and whose end is not before the start; others are left out."""
    listed = ", ".join(f'"{name}"' for name in columns)
    plain = len(columns) - len(texts or ())
    for count, row in enumerate(base.execute(f'SELECT {listed} FROM "{table}" ORDER BY "start"')):
        if count >= MOST_ROWS:
            raise InputError(f"{path}: {table} has more than {MOST_ROWS} rows", "record a shorter time")
        if all(isinstance(value, int) for value in row[:plain]) and 0 <= row[0] <= row[1] < 2**62:
            yield row


_QUOTED = re.compile(r"^[\s>#|]{0,20}")
_UNITS = {"ns": 1, "us": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}
_UNIT = re.compile(r"\((ns|us|μs|ms|s)\)")
_REPORT = re.compile(r"\(([a-z_]{3,40})(?::[^)]{0,40})?\):|Executing '([a-z_]{3,40})' stats report")
_PROJECTED, _BY_RANGE, _KERNELS, _RANGES = "nvtx_gpu_proj_sum", "nvtx_kern_sum", "cuda_gpu_kern_sum", "nvtx_sum"
_ORDER = (_PROJECTED, _BY_RANGE, _KERNELS, _RANGES)
_NAMES = ("range", "nvtx range", "name", "operation", "kernel name")
_TEXTS = (*_NAMES, "style", "category", "pid", "tid", "gridxyz", "blockxyz")
_HINT = "give the text or CSV of `nsys stats --report nvtx_gpu_proj_sum,cuda_gpu_kern_sum`"


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of one report: its kind, and rows by column (names in lower case without units, times in ns)."""

    kind: str
    rows: tuple[Mapping[str, str | float], ...]


def accepts(text: str) -> bool:
    """Return whether a text holds the head of a table of nsys."""
    return any(_kind(_columns(line)) for line in text.splitlines()[:200_000] if "Time" in line)


def recording(path: Path, text: str) -> Recording:
    """Return the recording of the best table of a text; InputError if it has no rows, or does not tell jobs apart."""
    tables = list(_tables(path, text))
    tables_of = {kind: [t.rows for t in tables if t.kind == kind and t.rows] for kind in _ORDER}
    kind = next((kind for kind, rows in tables_of.items() if rows), "")
    if not kind:
        raise InputError(f"{path}: the tables of nsys hold no rows with times of the GPU or of ranges", _HINT)
    if len(tables_of[kind]) > 1:
        raise InputError(f"{path}: {len(tables_of[kind])} tables {kind}, of several captures", "give one file for each")
    rows = tables_of[kind][0]
    if kind == _KERNELS:
        return _kernels(path, rows)
    projected = kind == _PROJECTED
    if kind == _BY_RANGE:
        return _by_range(path, rows)
    sections = tuple(_range(row, projected) for row in rows if _name(row))
    counts = [section.spread.samples for section in sections if section.spread]
    if not counts:
        raise InputError(f"{path}: the ranges have no names", _HINT)
    notes = () if projected else (f"{path.name}: ranges on the CPU: wall-clock time, waiting for the GPU included",)
    return Recording(str(path), f"nsys stats {kind}", sections, max(counts), notes=notes)


def _columns(line: str) -> list[str]:
    """Return the names of columns in a line, in either form of a table."""
    plain = line[_QUOTED.match(line).end() :].strip()  # type: ignore[union-attr]
    return plain.split(",") if plain.count(",") >= 3 else re.split(r"\s{2,}", plain)


def _named(columns: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return, for every column, its plain name and the length of its unit in ns."""
    names = {}
    for column in columns:
        unit = _UNIT.search(column)
        plain = _UNIT.sub("", column).replace("(%)", "").strip().lower()
        plain = {"average": "avg", "minimum": "min", "maximum": "max", "median": "med"}.get(plain, plain)
        names[column] = plain, _UNITS[unit[1]] if unit else 1
    return names


def _kind(columns: Sequence[str]) -> str:
    names = {plain for plain, _ in _named(columns).values()}
    if {"total proj time", "range instances", "range"} <= names:
        return _PROJECTED
    if {"total time", "nvtx range", "nvtx inst"} <= names:
        return _BY_RANGE
    if {"total time", "instances"} <= names and {"style", "range"} & names:
        return _RANGES
    if {"total time", "instances"} <= names and {"name", "operation"} & names:
        return _KERNELS
    return ""


def _tables(path: Path, text: str) -> Iterator[_Table]:
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if "Time" not in line or not (kind := _kind(columns := _columns(line))):
            continue
        title = next((m for at in range(number, max(number - 5, -1), -1) if (m := _REPORT.search(lines[at]))), None)
        if title and ("gpu" if kind == _KERNELS else "nvtx") not in (title[1] or title[2]):
            continue  # other reports have columns of the same names
        separated, dashes = line.count(",") >= 3, lines[number + 1] if number + 1 < len(lines) else ""
        rows = list[Mapping[str, str | float]]()
        for at, row in enumerate(lines[number + 1 : number + 1 + MOST_RANGES], number + 2):
            if set(row.strip(" #>|")) <= {"-", " "} and "-" in row:
                continue
            if not row.strip(" #>|"):
                break
            values = _csv(row) if separated else _cells(row, dashes, len(columns))
            if len(values) < len(columns):
                break
            rows.append(_row(f"{path}:{at}", columns, values))
        yield _Table(kind, tuple(rows))


def _csv(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _cells(line: str, dashes: str, columns: int) -> list[str]:
    """Return the cells of a line, between two blanks or more, else below the dashes: "--------  ---------------"."""
    plain = re.split(r"\s{2,}", line[_QUOTED.match(line).end() :].strip())  # type: ignore[union-attr]
    if len(plain) == columns:
        return plain
    ends = [match.end() for match in re.finditer(r"-+", dashes)][:-1]
    if len(ends) + 1 != columns:
        return []
    begins = [0, *ends]
    return [line[begin:end].strip(" #>|") for begin, end in zip(begins, [*ends, len(line)], strict=True)]


def _row(place: str, columns: Sequence[str], values: Sequence[str]) -> dict[str, str | float]:
    cells = dict[str, str | float]()
    for column, value in zip(columns, (*values[: len(columns) - 1], ",".join(values[len(columns) - 1 :])), strict=True):
        plain, unit = _named([column])[column]
        if plain in _TEXTS:
            cells[plain] = value.strip()
            continue
        try:
            number = float(value.replace(",", "").strip().removesuffix("%") or 0)
        except ValueError:
            number = math.nan
        if not 0 <= number < 1e15:
            raise InputError(f"{place}: {column}: expected a number of at least 0, got {value.strip()[:20]!r}", _HINT)
        cells[plain] = number * unit
    return cells


def _number(row: Mapping[str, str | float], *names: str) -> float:
    return next((value for name in names if isinstance(value := row.get(name), float)), 0.0)


def _name(row: Mapping[str, str | float]) -> str:
    return next((value.lstrip(": ") for name in _NAMES if isinstance(value := row.get(name), str)), "")


def _by_range(path: Path, rows: Sequence[Mapping[str, str | float]]) -> Recording:
    """Return a section for every range: the sum of its kernels over its instances."""
    ranges = dict[str, list[Mapping[str, str | float]]]()
    for row in rows:
        ranges.setdefault(_name(row), []).append(row)
    sections = []
    for name, kernels in ranges.items():
        jobs = max(1, round(max(_number(row, "nvtx inst") for row in kernels)))
        total = sum(_number(row, "total time") for row in kernels)
        layers = tuple(str(row.get("kernel name", "")) for row in kernels)
        note = f"sum of {len(kernels)} kernels, gaps between them left out, of {jobs} instances"
        sections.append(Section(name, 0, "gpu", layers, total / jobs, note=note))
    return Recording(str(path), f"nsys stats {_BY_RANGE}", tuple(sections))


def _range(row: Mapping[str, str | float], projected: bool) -> Section:
    jobs = max(1, round(_number(row, "range instances", "instances")))
    mean = _number(row, "total proj time" if projected else "total time") / jobs
    median = _number(row, "proj med", "med") or mean
    longest = max(_number(row, "proj max", "max"), median)
    spread = Spread(mean, median, longest, 100, jobs)
    note = "GPU time of a range" if projected else "range on the CPU"
    return Section(_name(row), 0, "gpu" if projected else "cpu", (), mean, note=note, spread=spread)


def _kernels(path: Path, rows: Sequence[Mapping[str, str | float]]) -> Recording:
    counts = [max(1, round(_number(row, "instances"))) for row in rows]
    jobs = math.gcd(*counts)
    if jobs == 1 and max(counts) > 1:
        raise InputError(
            f"{path}: the table sums kernels over the whole capture, and their counts "
            f"({', '.join(map(str, counts[:5]))}) do not show how many jobs ran",
            "mark jobs with NVTX ranges and give nvtx_gpu_proj_sum, or export the capture: nsys export --type sqlite",
        )
    total = sum(_number(row, "total time") for row in rows)
    if not total:
        raise InputError(f"{path}: the table states no time", _HINT)
    names = tuple(_name(row) for row in rows)
    note = f"sum of {len(rows)} kernels, gaps between them left out"
    section = Section("", 0, "gpu", names, total / jobs, note=note)
    said = f"{path.name}: {jobs} jobs assumed: every kernel ran a multiple of {jobs} times"
    return Recording(str(path), f"nsys stats {_KERNELS}", (section,), jobs, notes=(said,))
