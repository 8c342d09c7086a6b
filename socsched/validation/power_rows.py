"""Measured power of boards that run a network in a loop, from a CSV file: bounded, unusable rows kept with a reason."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from socsched.cost.measurements import POWER_COLUMN, STEM, number, read_table, share_of, shown

COLUMNS = (
    "id", "platform", "engine", "precision", "mode", "share", "network", "meter", POWER_COLUMN, "statistic", "flag",
    "source",
)  # fmt: skip
"""Columns that a file must have, in any order."""
OPTIONAL = ("time_ms", "clocks")
"""Columns that a file may have: the time of one inference in the measured run, and clocks other than the mode's."""
ADDED = ("predicted_w", "lo_w", "hi_w", "inside", "refused")
"""Columns that `validate` adds."""
LEAST_W, MOST_W = 1e-3, 1e5
METERS = ("wall", "module")
_RAIL = re.compile(r"rail ([A-Za-z0-9][A-Za-z0-9_.-]{0,63})")


@dataclass(frozen=True, slots=True)
class PowerRow:
    """One measurement of power (W): its cells as in the file, and the `problem` that makes it unusable, "" if none.

    `engines`: all that run the network at the same time.  `share`: units of a single engine, 0 where not stated.
    `time_ms`: NaN where not stated.
    """

    line: int
    cells: tuple[str, ...]
    id: str
    platform: str
    engines: tuple[str, ...]
    precision: str
    mode: str
    share: int
    clocks: str
    network: str
    meter: str
    measured_w: float
    time_ms: float
    flag: str
    problem: str = ""

    @property
    def engine(self) -> str:
        """Return the engines as the file writes them."""
        return "+".join(self.engines)

    @property
    def rail(self) -> str:
        """Return the name of the rail measured, "" for module and wall."""
        found = _RAIL.fullmatch(self.meter)
        return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class PowerTable:
    """The rows of a file under its column names, and the SHA-256 of the file."""

    file: str
    sha256: str
    columns: tuple[str, ...]
    rows: tuple[PowerRow, ...]


def read_power(path: Path) -> PowerTable:
    """Return the measurements of a .csv or .csv.gz file; InputError with file and line if it is no such table."""
    table = read_table(path, COLUMNS, ADDED, OPTIONAL)
    rows: list[PowerRow] = []
    first: dict[str, int] = {}
    for line, cells, named in table.rows:
        row = _row(line, cells, named, first.get(named["id"], 0))
        first.setdefault(row.id, line)
        rows.append(row)
    return PowerTable(table.file, table.sha256, table.columns, tuple(rows))


def _row(line: int, cells: tuple[str, ...], named: dict[str, str], earlier: int) -> PowerRow:
    engines = tuple(named["engine"].split("+"))
    watts, share = number(named[POWER_COLUMN]), share_of(named["share"])
    time = number(named.get("time_ms", "")) or math.nan
    problems = (
        ("it has no id", not named["id"]),
        (f"the id is that of line {earlier}", earlier > 0),
        (
            f"{POWER_COLUMN}: expected {LEAST_W:g} to {MOST_W:g} W, got {shown(named[POWER_COLUMN])}",
            watts is None or not LEAST_W <= watts <= MOST_W,
        ),
        (f"meter: expected wall, module or rail NAME, got {shown(named['meter'])}", not _is_meter(named["meter"])),
        (f"share: expected a number of units or nothing, got {shown(named['share'])}", share is None),
        ("share: expected nothing where several engines run", len(engines) > 1 and bool(share)),
        (f"engine: an engine twice in {shown(named['engine'])}", len(set(engines)) < len(engines)),
        (
            f"network: expected the name of a file without its ending, got {shown(named['network'])}",
            not STEM.fullmatch(named["network"]) or ".." in named["network"],
        ),
        (
            f"time_ms: expected a time in ms or nothing, got {shown(named.get('time_ms', ''))}",
            bool(named.get("time_ms")) and math.isnan(time),
        ),
    )
    problem = next((text for text, wrong in problems if wrong), "")
    return PowerRow(
        line, cells, named["id"], named["platform"], engines, named["precision"], named["mode"], share or 0,
        named.get("clocks", ""), named["network"], named["meter"], watts or math.nan, time, named["flag"], problem,
    )  # fmt: skip


def _is_meter(text: str) -> bool:
    return text in METERS or bool(_RAIL.fullmatch(text))
