"""Tables of `nsys stats`, as text or CSV: kernels on the GPU, and NVTX ranges projected onto it or on the CPU.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from socsched.errors import InputError
from socsched.interchange.recording import MOST_RANGES, Recording, Section, Spread

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
    found = {kind: [t.rows for t in tables if t.kind == kind and t.rows] for kind in _ORDER}
    kind = next((kind for kind, rows in found.items() if rows), "")
    if not kind:
        raise InputError(f"{path}: the tables of nsys hold no rows with times of the GPU or of ranges", _HINT)
    if len(found[kind]) > 1:
        raise InputError(f"{path}: {len(found[kind])} tables {kind}, of several captures", "give one file for each")
    rows = found[kind][0]
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
    found = {}
    for column in columns:
        unit = _UNIT.search(column)
        plain = _UNIT.sub("", column).replace("(%)", "").strip().lower()
        plain = {"average": "avg", "minimum": "min", "maximum": "max", "median": "med"}.get(plain, plain)
        found[column] = plain, _UNITS[unit[1]] if unit else 1
    return found


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
    found = dict[str, str | float]()
    for column, value in zip(columns, (*values[: len(columns) - 1], ",".join(values[len(columns) - 1 :])), strict=True):
        plain, unit = _named([column])[column]
        if plain in _TEXTS:
            found[plain] = value.strip()
            continue
        try:
            number = float(value.replace(",", "").strip().removesuffix("%") or 0)
        except ValueError:
            number = math.nan
        if not 0 <= number < 1e15:
            raise InputError(f"{place}: {column}: expected a number of at least 0, got {value.strip()[:20]!r}", _HINT)
        found[plain] = number * unit
    return found


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
