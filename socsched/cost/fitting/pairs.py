"""Rows of measured times for a fit, and patterns over their columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from socsched.cost.measurements import NEEDED, Row, read_measurements
from socsched.errors import InputError, UsageError

MAX_TEXT = 500
COLUMNS = (
    "id", "platform", "engine", "precision", "mode", "share", "network", "statistic", "flag", "source", "runtime",
)  # fmt: skip
"""Columns that patterns may name."""


def read_pairs(path: Path) -> list[Row]:
    """Return the rows of a file in order; InputError names the first line that is wrong."""
    rows = read_measurements(path, NEEDED).rows
    wrong = next((row for row in rows if row.problem), None)
    if wrong is not None:
        raise InputError(f"{path}:{wrong.line}: {wrong.problem}", "correct or remove the row")
    if not rows:
        raise InputError(f"{path}: no rows", f"expected a header with {', '.join(NEEDED)}, and one row per measurement")
    return list(rows)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Rows by column: `source=Tencent/*,engine=gpu|npu` holds where one glob of every column fits."""

    text: str
    globs: tuple[tuple[str, str], ...]

    def holds(self, row: Row) -> bool:
        """Return whether a row fits."""
        return all(
            any(fnmatchcase(str(getattr(row, name)), one) for one in glob.split("|")) for name, glob in self.globs
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


def fastest(rows: Sequence[Row]) -> dict[str, float]:
    """Return network -> shortest measured time (us), networks in order."""
    times: dict[str, float] = {}
    for row in rows:
        times[row.network] = min(row.measured_us, times.get(row.network, math.inf))
    return dict(sorted(times.items()))
