"""Measured times of networks in a CSV file (`PAIRS.csv`, optionally .gz), and patterns over its columns."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from socsched.bounded import gunzip, read_bytes
from socsched.errors import InputError, UsageError

MAX_BYTES = 64 * 2**20
MAX_ROWS = 100_000
MAX_TEXT = 500
NEEDED = ("platform", "engine", "precision", "network", "measured_ms")
COLUMNS = ("id", "platform", "engine", "precision", "mode", "share", "network", "statistic", "flag", "source")
"""Columns that patterns may name."""
_HINT = f"expected a CSV file with the columns {', '.join(NEEDED)} and optionally mode, share, flag, source"
NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True, slots=True)
class Pair:
    """A measured time: `share` engine units used (0: all), `flag` why it is not to be used, empty where it is."""

    platform: str
    engine: str
    precision: str
    mode: str
    share: int
    network: str
    measured_us: float
    flag: str = ""
    source: str = ""
    statistic: str = ""
    id: str = ""


def read_pairs(path: Path) -> list[Pair]:
    """Return the rows of a file in order; InputError names the first line that is wrong."""
    raw = read_bytes(path, "file of measurements", _HINT, MAX_BYTES)
    try:
        text = (gunzip(raw, MAX_BYTES) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text), strict=True)
        header = list(reader.fieldnames or ())
        missing = [name for name in NEEDED if name not in header]
        if missing:
            raise InputError(f"{path}: the column {missing[0]} is missing", _HINT)
        if len(set(header)) < len(header):
            raise InputError(f"{path}: a column stands twice", _HINT)
        rows: list[Pair] = []
        for row in reader:
            if len(rows) == MAX_ROWS:
                raise InputError(f"{path}: more than {MAX_ROWS} rows", "split the file")
            rows.append(_pair(row, f"{path}:{reader.line_num}"))
    except (ValueError, csv.Error) as error:  # UnicodeDecodeError, damaged gzip
        raise InputError(f"{path}: not a CSV file: {error}", _HINT) from None
    if not rows:
        raise InputError(f"{path}: no rows", _HINT)
    return rows


def _pair(row: Mapping[str | None, str | list[str] | None], where: str) -> Pair:
    if None in row or None in row.values():
        raise InputError(f"{where}: the number of fields is not that of the first line", _HINT)
    text = {str(name): str(value).strip() for name, value in row.items()}
    long = [name for name, value in text.items() if len(value) > MAX_TEXT]
    if long:
        raise InputError(f"{where}: {long[0][:50]}: longer than {MAX_TEXT} characters", _HINT)
    for name in ("platform", "engine", "precision", "network"):
        if not NAME.fullmatch(text[name]):
            raise InputError(f"{where}: {name}: expected a name, got {text[name][:50]!r}", _HINT)
    share = text.get("share", "")
    if share and not re.fullmatch(r"[0-9]{1,4}", share):
        raise InputError(f"{where}: share: expected the number of units or nothing, got {share[:50]!r}", _HINT)
    return Pair(
        text["platform"],
        text["engine"],
        text["precision"],
        text.get("mode", ""),
        int(share or 0),
        text["network"],
        _milliseconds(text["measured_ms"], where) * 1e3,
        text.get("flag", ""),
        text.get("source", ""),
        text.get("statistic", ""),
        text.get("id", ""),
    )


def _milliseconds(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1e-6 <= value <= 1e9:
        raise InputError(f"{where}: measured_ms: expected milliseconds above 0, got {text[:50]!r}", _HINT)
    return value


@dataclass(frozen=True, slots=True)
class Pattern:
    """Rows by column: `source=Tencent/*,engine=gpu|npu` holds where one glob of every column fits."""

    text: str
    globs: tuple[tuple[str, str], ...]

    def holds(self, pair: Pair) -> bool:
        """Return whether a row fits."""
        return all(
            any(fnmatchcase(str(getattr(pair, name)), one) for one in glob.split("|")) for name, glob in self.globs
        )


def pattern(text: str) -> Pattern:
    """Return the pattern of a text; without a column it is one of networks; UsageError for an unknown column."""
    globs = []
    if len(text) > MAX_TEXT:
        raise UsageError(f"pattern {text[:50]!r}...: longer than {MAX_TEXT} characters")
    for part in text.split(","):
        name, equals, glob = part.partition("=")
        if not equals:
            name, glob = "network", part
        if name not in COLUMNS or not glob:
            raise UsageError(f"pattern {text!r}: no column {name!r}", f"COLUMN=GLOB,..., columns: {', '.join(COLUMNS)}")
        globs.append((name, glob))
    return Pattern(text, tuple(globs))


def fastest(pairs: Sequence[Pair]) -> dict[str, float]:
    """Return network -> shortest measured time (us), networks in order."""
    times: dict[str, float] = {}
    for pair in pairs:
        times[pair.network] = min(pair.measured_us, times.get(pair.network, math.inf))
    return dict(sorted(times.items()))
