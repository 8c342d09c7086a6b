"""Predicted against measured power: boards that run one network in a loop on one or several engines."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from socsched import __version__
from socsched.cost.measurements import POWER_COLUMN, STEM, Table, number, read_table, share_of, shown
from socsched.cost.model import CostModel
from socsched.cost.power import PowerTerm, at_wall, dram_capacity, on_rail, parts, total
from socsched.cost.sources import CostSource, cost_sources
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Platform, PowerMode
from socsched.descriptor.small_files import load_bar
from socsched.progress import tell
from socsched.text import one_line
from socsched.validation.document import PowerDocument, PowerGroupDocument
from socsched.validation.predict import Platforms, Predicted, Works, configuration, costed, find_stage, with_clocks
from socsched.validation.scores import Cell, failures, parted, scores
from socsched.validation.validate import KnownPlatforms

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
        match = _RAIL.fullmatch(self.meter)
        return match[1] if match else ""


def read_power(path: Path) -> Table[PowerRow]:
    """Return the measurements of a .csv or .csv.gz file; InputError with file and line if it is no such table."""
    return read_table(path, _read_row, COLUMNS, ADDED, OPTIONAL)


def _read_row(line: int, cells: tuple[str, ...], named: dict[str, str], earlier: int) -> PowerRow:
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


@dataclass(frozen=True, slots=True)
class PowerPrediction(Predicted):
    """The predicted power of a row (W); `parts`: what the module's power consists of."""

    parts: tuple[PowerTerm, ...] = ()


PowerCell = Cell[PowerRow, PowerPrediction]


@dataclass(frozen=True, slots=True)
class PowerValidation:
    """Measured power with its predictions in the same order, the scored cells, and the summary."""

    table: Table[PowerRow]
    predictions: tuple[PowerPrediction, ...]
    cells: tuple[PowerCell, ...]
    document: PowerDocument


def validate_power(
    pairs: Path, networks: Path, bar: Path | None = None, own_platforms: tuple[str, ...] = ()
) -> PowerValidation:
    """Return the predictions for a table of measured power, scored, and held against a bar if one is given.

    Parameters and errors are those of `validate`.
    """
    limits = load_bar(bar) if bar else None
    platforms = KnownPlatforms(networks, own_platforms)
    table = read_power(pairs)
    predictions = _predict(table.rows, networks, platforms)
    scored, refused = _cells(table.rows, predictions)
    overall, groups = scores(scored, len(refused)), _groups(scored, refused)
    unflagged = [p.refused for row, p in zip(table.rows, predictions, strict=True) if not row.flag and p.refused]
    failed = failures(limits, overall, groups) if limits else []
    document: PowerDocument = {
        "schema_version": "1",
        "measurements": table.file,
        "sha256": table.sha256,
        "socsched": __version__,
        "rows": len(table.rows),
        "flagged": sum(bool(row.flag) for row in table.rows),
        "refused_rows": sum(bool(prediction.refused) for prediction in predictions),
        "overall": overall,
        "groups": groups,
        "refusals": [{"reason": reason, "rows": count} for reason, count in Counter(unflagged).most_common()],
        "bar": {"file": bar.name, "held": not failed, "failures": failed} if bar else None,
    }
    return PowerValidation(table, tuple(predictions), tuple(scored), document)


def _predict(rows: Sequence[PowerRow], folder: Path, platform_of: Platforms) -> list[PowerPrediction]:
    networks = sorted({row.network for row in rows if not row.problem})
    predictions: dict[int, PowerPrediction] = {}
    sources = cost_sources()
    for at, network in enumerate(networks):
        tell("networks", at, len(networks), "", network)
        stage, loads = find_stage(folder, network), _Loads(sources)
        for place, row in enumerate(rows):
            if row.network == network and not row.problem:
                predictions[place] = _row(row, stage, platform_of(row.platform), loads)
    return [predictions.get(place) or PowerPrediction(refused=row.problem) for place, row in enumerate(rows)]


class _Loads:
    """The utilisation and the traffic of one network on engines, each computed once."""

    def __init__(self, sources: tuple[CostSource, ...]) -> None:
        self._sources, self._works = sources, Works()
        self._models: dict[tuple[str, str], CostModel] = {}
        self._known: dict[tuple[str, str, str, str, int], float | str] = {}

    def bytes_per_s(
        self, stage: Stage, platform: Platform, mode: PowerMode, engine: str, precision: str, share: int
    ) -> float | str:
        """Return the DRAM traffic of an engine that runs a stage in a loop, or why it cannot."""
        key = (platform.name, mode.name, engine, precision, share)
        if key not in self._known:
            model = self._models.setdefault(key[:2], CostModel(platform, mode, self._works, sources=self._sources))
            cost = costed(model, replace(stage, share=share, engines=(engine,)), engine, precision)
            self._known[key] = cost if isinstance(cost, str) else cost.bytes * 1e9 / cost.time_ns
        return self._known[key]


def _row(row: PowerRow, stage: Stage | str, platform: Platform | None, loads: _Loads) -> PowerPrediction:
    if isinstance(stage, str):
        return PowerPrediction(refused=stage)
    used: dict[str, float] = {}
    traffic = 0.0
    state: PowerMode | None = None
    for engine in row.engines:
        setup = configuration(platform, row.platform, engine, row.precision, row.mode, 0 if row.clocks else row.share)
        if isinstance(setup, str):
            return PowerPrediction(refused=setup)
        platform, mode, share = setup
        if row.clocks:
            try:
                mode = with_clocks(platform, mode, row.clocks)
            except ValueError as error:
                return PowerPrediction(refused=one_line(str(error)))
            share = row.share or mode.engines[engine].units
        state = mode
        units = mode.engines[engine].units
        if not 0 < share <= units:
            return PowerPrediction(refused=f"{engine} has {units} units, not {share or 'any'}")
        load = loads.bytes_per_s(stage, platform, mode, engine, row.precision, share)
        if isinstance(load, str):
            return PowerPrediction(refused=load)
        used[engine] = share / units
        traffic += load
    assert platform is not None and state is not None
    return _reading(row, platform, state, used, min(traffic, dram_capacity(platform, state)))


def _reading(
    row: PowerRow, platform: Platform, mode: PowerMode, used: dict[str, float], traffic: float
) -> PowerPrediction:
    """Return the power that the row's meter shows."""
    shares = parts(platform, mode, used, traffic)
    power = total(shares)
    if row.meter == "wall":
        if platform.supply is None:
            return PowerPrediction(refused=f"{platform.name} states no carrier board and adaptor")
        power = at_wall(platform.supply, power)
    elif row.rail:
        rail = platform.rails.get(row.rail)
        if rail is None:
            return PowerPrediction(refused=f"{platform.name} has no rail {row.rail}")
        shown_there = on_rail(platform, rail, shares)
        if shown_there is None:
            return PowerPrediction(refused=f"rail {row.rail} feeds more than engines and states no idle power")
        power = shown_there
    low, high = max(power.mw - power.error_mw, 0.0), power.mw + power.error_mw
    return PowerPrediction(shares, predicted=power.mw / 1e3, low=low / 1e3, high=high / 1e3)


def _cells(rows: Sequence[PowerRow], predictions: Sequence[PowerPrediction]) -> tuple[list[PowerCell], list[PowerCell]]:
    """Return the cells of the unflagged rows: those with a prediction, and those refused."""
    runs: dict[tuple[object, ...], list[PowerCell]] = {}
    for row, prediction in zip(rows, predictions, strict=True):
        if not row.flag and not row.problem:
            key = (row.platform, row.engines, row.precision, row.mode, row.clocks, row.share, row.network, row.meter)
            group = (row.platform, row.meter, row.engine)
            runs.setdefault(key, []).append(Cell(row, prediction, row.measured_w, group))
    return parted([_counted(cells) for cells in runs.values()])


def _counted(cells: list[PowerCell]) -> PowerCell:
    """Return the fastest run, or the one of median power where a time is missing."""
    if any(math.isnan(cell.row.time_ms) for cell in cells):
        return sorted(cells, key=lambda cell: (cell.measured, cell.row.line))[(len(cells) - 1) // 2]
    return min(cells, key=lambda cell: (cell.row.time_ms, cell.row.line))


def _groups(scored: Sequence[PowerCell], refused: Sequence[PowerCell]) -> list[PowerGroupDocument]:
    return [
        {
            "platform": name[0],
            "meter": name[1],
            "engine": name[2],
            **scores([c for c in scored if c.group == name], sum(c.group == name for c in refused)),
        }
        for name in sorted({c.group for c in scored})
    ]
