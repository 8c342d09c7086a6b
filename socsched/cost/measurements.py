"""Measured execution times of networks, from a CSV file: bounded, with every unusable row kept and given a reason."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from socsched.bounded import gunzip, read_bytes
from socsched.errors import InputError
from socsched.limits import LONGEST_NS, MOST_LANES

COLUMNS = (
    "id", "platform", "engine", "precision", "mode", "share", "network", "measured_ms", "statistic", "flag", "source",
)  # fmt: skip
"""Columns of a table that is validated, in any order; others are kept as they are."""
NEEDED = ("platform", "engine", "precision", "network", "measured_ms")
"""Columns that a table for a fit cannot lack."""
MOST_BYTES = 2**26
MOST_ROWS = 200_000
MOST_COLUMNS = 100
TIME_COLUMN, POWER_COLUMN = "measured_ms", "measured_w"
"""A table with the second of these columns and without the first is one of measured power (`validation.power_rows`)."""
RATE_COLUMN, RATE_FLAG = "fps", "throughput"
"""Column of jobs a second, whose distance stands for the time where a row has none, and the flag of such rows."""
_TEXT = ("platform", "engine", "precision", "mode", "network", "flag", "source", "statistic", "id", "runtime")
UNIT_COLUMN, LAYER_COLUMNS = "unit", ("layers_npu", "layers_gpu", "layers_cpu")
"""Columns of the unit that ran most of a network's layers, and of their numbers by unit, as a profiler saw them."""
STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")
"""Names of networks and of sources."""
RUNTIME = "runtime"
"""Column that names the program that ran the network, where a table has it."""


def _hint(columns: Sequence[str]) -> str:
    return f"expected a header with {', '.join(columns)}, and one row per measurement"


class Identified(Protocol):
    """A row of measurements, with an id by which others know it."""

    @property
    def id(self) -> str:
        """Return the id, "" if it has none."""


R = TypeVar("R", bound=Identified)


@dataclass(frozen=True, slots=True)
class Table(Generic[R]):
    """The rows of a file under its column names, and the SHA-256 of the file."""

    file: str
    sha256: str
    columns: tuple[str, ...]
    rows: tuple[R, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: what was timed, the time (ms), and the `problem` that makes the row unusable, "" if none.

    `share`: units of the engine used, 0 where the file does not state it.  `flag`: why the row is not to be used, empty
    where it is.  `runtime`: the program that ran the network.  `line`, `cells`: the row as it stands in the file.
    `rate`: jobs a second were measured, not the time of one; `measured_ms` is their distance.  `unit`: the one that ran
    most layers ("npu"), `strays`: layers on other units than the engine's, None where no profiler saw them.
    """

    platform: str
    engine: str
    precision: str
    mode: str
    share: int
    network: str
    measured_ms: float
    flag: str = ""
    source: str = ""
    statistic: str = ""
    id: str = ""
    runtime: str = ""
    line: int = 0
    cells: tuple[str, ...] = ()
    problem: str = ""
    rate: bool = False
    unit: str = ""
    strays: int | None = None

    @property
    def measured_us(self) -> float:
        """Return the measured time in microseconds."""
        return self.measured_ms * 1e3


def read_measurements(path: Path, needed: Sequence[str] = COLUMNS, reserved: Sequence[str] = ()) -> Table[Row]:
    """Return the measurements of a .csv or .csv.gz file; InputError with file and line if it is no such table.

    `needed` columns must be there, `reserved` ones must not, the others of `COLUMNS` and `RUNTIME` may.  A row whose
    values cannot be used (a time that is no time, a network that is no file stem, an id given twice) is kept with its
    problem.
    """
    optional = (*COLUMNS, RUNTIME, RATE_COLUMN, UNIT_COLUMN, *LAYER_COLUMNS)
    return read_table(path, _row, needed, reserved, optional)


def is_power_table(path: Path) -> bool:
    """Return whether the header of a table names measured power and no measured time; InputError if it is no table."""
    header = _reader(path, COLUMNS)[2]
    return POWER_COLUMN in header and TIME_COLUMN not in header


def read_table(
    path: Path,
    row: Callable[[int, tuple[str, ...], dict[str, str], int], R],
    needed: Sequence[str],
    added: Sequence[str],
    optional: Sequence[str] = (),
) -> Table[R]:
    """Return the rows of a .csv or .csv.gz file; InputError with file and line if it is no table with these columns.

    `needed` and `optional` columns are read by name, and `added` ones must not be there.  `row` makes a row from its
    line, all cells, the cells read, by column, and the earlier line with its id (0: none).
    """
    digest, reader, header = _reader(path, needed)
    hint = _hint(needed)
    rows: list[R] = []
    first: dict[str, int] = {}
    try:
        columns = _columns(path, header, needed, added, hint)
        read = [name for name in dict.fromkeys((*needed, *optional)) if name in columns]
        for line, cells, named in _rows(path, reader, columns, read, hint):
            rows.append(row(line, cells, named, first.get(named.get("id", ""), 0)))
            if rows[-1].id:
                first.setdefault(rows[-1].id, line)
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: not a CSV table: {error}", hint) from None
    return Table(path.name, digest, columns, tuple(rows))


def _reader(path: Path, needed: Sequence[str]) -> tuple[str, Any, list[str]]:
    """Return the SHA-256 of a file, a reader of its rows, and its header."""
    hint = _hint(needed)
    raw = read_bytes(path, "table of measurements", hint, MOST_BYTES)
    digest = hashlib.sha256(raw).hexdigest()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gunzip(raw, MOST_BYTES)
        except ValueError as error:
            raise InputError(f"{path}: {error}", hint) from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: not UTF-8 text", hint) from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        return digest, reader, next(reader, [])
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: not a CSV table: {error}", hint) from None


def _columns(path: Path, header: list[str], needed: Sequence[str], added: Sequence[str], hint: str) -> tuple[str, ...]:
    missing = [name for name in needed if name not in header]
    if missing:
        raise InputError(f"{path}:1: columns are missing: {', '.join(missing)}", hint)
    twice = next((name for name in header if header.count(name) > 1), None) if len(header) <= MOST_COLUMNS else ""
    if twice is not None:
        problem = f"column {twice!r} is given twice" if twice else f"more than {MOST_COLUMNS} columns"
        raise InputError(f"{path}:1: {problem}", hint)
    taken = [name for name in added if name in header]
    if taken:
        raise InputError(f"{path}:1: column {taken[0]!r} is one that validation adds", "remove or rename it")
    return tuple(header)


def _rows(
    path: Path, reader: Any, columns: tuple[str, ...], read: Sequence[str], hint: str
) -> Iterator[tuple[int, tuple[str, ...], dict[str, str]]]:
    index = {name: columns.index(name) for name in read}
    for number, cells in enumerate(filter(None, reader)):
        line = reader.line_num
        if len(cells) != len(columns):
            raise InputError(f"{path}:{line}: {len(cells)} cells, the header has {len(columns)} columns", hint)
        if number == MOST_ROWS:
            raise InputError(f"{path}:{line}: more than {MOST_ROWS} rows", "divide the file")
        yield line, tuple(cells), {name: cells[place].strip() for name, place in index.items()}


def _row(line: int, cells: tuple[str, ...], named: dict[str, str], earlier: int) -> Row:
    problem = f"the id is that of line {earlier}" if earlier else ""
    if named.get("id") == "":
        problem = "it has no id"
    measured, persecond = _time_ms(named["measured_ms"]), number(named.get(RATE_COLUMN, ""))
    rate = not named["measured_ms"] and bool(persecond)
    if rate and persecond:
        measured = _time_ms(f"{1e3 / persecond:.9g}")
    if measured is None:
        least, most = 1e-6, LONGEST_NS / 1e6
        problem = problem or f"measured_ms: expected {least:g} to {most:g} ms, got {shown(named['measured_ms'])}"
    share = share_of(named.get("share", ""))
    if share is None:
        problem = problem or f"share: expected 1 to {MOST_LANES} units or nothing, got {shown(named['share'])}"
    if not STEM.fullmatch(named["network"]) or ".." in named["network"]:
        problem = problem or f"network: expected the name of a file without its ending, got {shown(named['network'])}"
    text = {name: named.get(name, "") for name in _TEXT}
    if rate and text["flag"] == RATE_FLAG:
        text["flag"] = ""
    time = measured or math.nan
    fields: dict[str, Any] = {**text, "unit": named.get(UNIT_COLUMN, "").lower()}
    fields |= {"share": share or 0, "strays": _strays(text["engine"], named), "rate": rate}
    return Row(measured_ms=time, line=line, cells=cells, problem=problem, **fields)


def _strays(engine: str, named: dict[str, str]) -> int | None:
    """Return the layers of a row that other units than its engine ran, None where they are not stated."""
    counts = {name.removeprefix("layers_"): number(named.get(name, "")) for name in LAYER_COLUMNS}
    if all(count is None for count in counts.values()):
        return None
    return round(sum(count or 0 for unit, count in counts.items() if not engine.startswith(unit)))


def _time_ms(text: str) -> float | None:
    value = number(text)
    return value if value is not None and 1e-6 <= value <= LONGEST_NS / 1e6 else None


def number(text: str) -> float | None:
    """Return a plain number that is not negative, None for anything else."""
    if not re.fullmatch(r"\+?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", text, re.ASCII) or len(text) > 40:
        return None
    return float(text)


def share_of(text: str) -> int | None:
    """Return a number of units, 0 for an empty cell, None for anything else."""
    if not text:
        return 0
    found = re.fullmatch(r"\d{1,4}", text, re.ASCII)
    return int(text) if found and 1 <= int(text) <= MOST_LANES else None


def shown(text: str) -> str:
    """Return a cell as a message quotes it."""
    return repr(text if len(text) <= 40 else f"{text[:40]}…")
