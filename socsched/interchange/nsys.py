"""SQLite exports of Nsight Systems (`nsys export --type sqlite`): kernels, launches, NVTX ranges, whole graphs; ns.

A job is an instance of an outermost NVTX range, its time the span of the kernels, copies and graphs it launched.
Without ranges, every launch of a CUDA graph is a job (`nsys` records graphs as a whole unless --cuda-graph-trace=node).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from socsched.errors import InputError
from socsched.interchange.recording import (
    HINT,
    MOST_RANGES,
    Board,
    Interval,
    Recording,
    Section,
    device_times,
    range_sections,
)
from socsched.interchange.sqlite_file import Database, open_sqlite

MAGIC = b"SQLite format 3\x00"
MOST_ROWS = 5_000_000
_DEVICE = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
_OWN = ("CUPTI_", "NVTX_", "TARGET_INFO", "StringIds", "ANALYSIS_", "META_DATA")
_HINT = "export it with `nsys export --type sqlite`, recorded with --trace=cuda,nvtx"
_CLOSED = (59, 60)
"""NVTX event types with an end: push/pop and start/end ranges."""


def recording(path: Path) -> Recording:
    """Return the recording of an export; InputError if it is damaged or has neither ranges nor graphs."""
    try:
        with open_sqlite(path) as base:
            return _read(path, base)
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a readable SQLite export: {error}", _HINT) from None


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
        raise InputError(f"{path}: no GPU activity: expected a table CUPTI_ACTIVITY_KIND_KERNEL", _HINT)
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
        wanted = ("start", "end", "globalTid", "eventType", *texts)
        for start, end, thread, kind, *given in _rows(path, base, "NVTX_EVENTS", wanted, texts):
            name = next((t if isinstance(t, str) else strings.get(t, "") for t in given if t is not None), "")
            if kind in _CLOSED and name:
                ranges.append(Interval(name, thread, start, end))
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
        wanted = ("start", "end", "globalTid", "correlationId")
        for start, end, thread, key in _rows(path, base, "CUPTI_ACTIVITY_KIND_RUNTIME", wanted):
            launches.append(Interval("", thread, start, end, key))
    if len(ranges) > MOST_RANGES:
        raise InputError(f"{path}: {len(ranges)} NVTX ranges, expected at most {MOST_RANGES}", _HINT)
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
    wanted = [name for name in ("name", "smCount") if name in columns]
    listed = list(base.execute(f"SELECT {', '.join(wanted)} FROM TARGET_INFO_GPU LIMIT 2")) if "name" in wanted else []
    if len(listed) != 1:
        return Board()
    name, *units = listed[0]
    return Board(device=str(name)[:80], units=units[0] if units and isinstance(units[0], int) else 0)


def _graphs(path: Path, base: Database) -> tuple[Section, ...]:
    spans: dict[int, list[tuple[int, int, int]]] = {}
    for start, end, graph in _rows(path, base, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", ("start", "end", "graphId")):
        spans.setdefault(graph, []).append((start, start, end))
    found = []
    for graph, jobs in spans.items():
        times = tuple(end - start for _, start, end in jobs)
        mean = sum(times) / len(times)
        found.append(Section(f"graph-{graph}", 0, "gpu", (), mean, times, note="whole graphs", spans_ns=tuple(jobs)))
    return tuple(found)


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
