"""Cells of a fit from measured rows: one for each use of an engine, and why other rows are left out.

Passes come from the networks in a folder: NAME.onnx or NAME.onnx.xz, each read once, without its weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from socsched.cost.fitting.families import Family, Use, families, family_of, nominal, use_of
from socsched.cost.fitting.least import Cell
from socsched.cost.fitting.table import table
from socsched.cost.measurements import NEEDED, Row, read_measurements
from socsched.descriptor.platform import Platform
from socsched.errors import InputError, SocschedError, UsageError, of_machine
from socsched.graph.accelerator_kernels import passes, place
from socsched.graph.expand import fuse_network
from socsched.graph.operators import Pass
from socsched.models.onnx_file import PACKED
from socsched.models.onnx_import import model

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


class Networks:
    """Networks of some folders by name; `passes` raises InputError for one that is missing or cannot be read."""

    def __init__(self, *folders: Path, known: dict[str, tuple[Pass, ...]] | None = None) -> None:
        self.folders = folders
        self.known: dict[str, tuple[Pass, ...] | str] = dict(known or {})

    def passes(self, name: str) -> tuple[Pass, ...]:
        """Return a network's passes in the order of execution."""
        if name not in self.known:
            self.known[name] = self._read(name)
        found = self.known[name]
        if isinstance(found, str):
            raise InputError(found, "see --networks")
        return found

    def _read(self, name: str) -> tuple[Pass, ...] | str:
        """Return the passes, or why there are none."""
        if not self.folders:
            return f"{name}: no folder of networks is given"
        files = [folder / f"{name}.onnx{ending}" for folder in self.folders for ending in ("", PACKED)]
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            where = ", ".join(map(str, self.folders))
            return f"{name}: neither {files[0].name} nor {files[1].name} is in {where}"
        try:
            network = model({"file": str(file)}).network
            assert network is not None
            return passes(fuse_network(network()))
        except SocschedError as error:
            if of_machine(error):
                raise
            return str(error)


@dataclass(frozen=True, slots=True)
class HostProgram:
    """Rows measured under a host program with known costs (us) of a launch and a job."""

    rows: Pattern
    launch: float
    submit: float


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs (us) of a launch and a job under the programs that `text` names."""

    text: str
    launch: float
    submit: float


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rows count, and how: `excluded` ones, those under another `hosts`, those of `joined` clusters."""

    excluded: tuple[Pattern, ...] = ()
    hosts: tuple[HostProgram, ...] = ()
    joined: tuple[Pattern, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """Rows that were left out, by what they measure, and the reason."""

    what: str
    reason: str


@dataclass(slots=True)
class Data:
    """Cells by family name, the runtimes (globs) measured on each board, and the rows that make no cell."""

    cells: dict[str, list[Cell]] = field(default_factory=dict)
    runtimes: dict[str, set[str]] = field(default_factory=dict)
    refused: list[RefusedRow] = field(default_factory=list)


def board_name(use: Use) -> str:
    """Return the name under which an engine and precision are fitted."""
    several = use.engine.kind == "cpu" and use.threads != "one"
    return f"{use.platform.name}.{use.engine.id}.{use.precision}{'.' + use.threads if several else ''}"


def core_name(use: Use) -> str:
    """Return the name of the term that precisions of one core have in common."""
    return f"core {use.platform.name}.{use.engine.id}"


def terms_of(use: Use, family: Family) -> tuple[str, ...]:
    """Return the names of the terms that a use has in common with others of its family."""
    terms = {"core": core_name(use), "precision": f"precision {use.precision}", "threads": f"threads {use.threads}"}
    return tuple(terms[name] for name in family.shares if (name, use.threads) != ("threads", "one"))


def make_cells(
    pairs: Iterable[Row],
    networks: Networks,
    choice: Choice,
    platform: Callable[[str], Platform | None],
    wanted: Sequence[Family] | None = None,
    forced: Callable[[Row], Family | None] = lambda _: None,
) -> Data:
    """Return the cells of `wanted` families (None: all) with the fastest row of each network.

    `forced` names the family of a row whose engine is not to be recognised by its descriptor.
    """
    data = Data()
    groups: dict[tuple[str, str, str, int, str], tuple[Use, Family, Costs | None, list[Row]]] = {}
    for pair in pairs:
        what = f"{pair.platform} {pair.engine} {pair.precision} {pair.network}"
        try:
            use, family = _use(pair, choice, platform, forced)
        except UsageError as error:
            data.refused.append(RefusedRow(what, str(error)))
            continue
        if wanted is not None and family not in wanted:
            continue
        reason = _reason(pair, choice, family)
        if reason:
            data.refused.append(RefusedRow(what, reason))
            continue
        host = _host(pair, choice, family)
        key = (family.name, board_name(use), use.mode.name, use.running(), host.text if host else "")
        measured = data.runtimes.setdefault(board_name(use), set())
        measured.update(glob for glob in family.runtimes if fnmatchcase(pair.runtime, glob))
        groups.setdefault(key, (use, family, host, []))[3].append(pair)
    for _, group in sorted(groups.items()):
        _add(data, networks, *group)
    return data


def _use(
    pair: Row,
    choice: Choice,
    platform: Callable[[str], Platform | None],
    forced: Callable[[Row], Family | None],
) -> tuple[Use, Family]:
    described = platform(pair.platform)
    if described is None:
        raise UsageError(f"no descriptor of {pair.platform}")
    joined = any(one.holds(pair) for one in choice.joined) or runs_joined(described, pair)
    use = use_of(described, pair.engine, pair.mode, pair.precision, pair.share, joined)
    family = forced(pair)
    if family is None or not family.suits(use.threads):
        family = family_of(use)
    return use, family


def runs_joined(platform: Platform, pair: Row) -> bool:
    """Return whether the row's program uses all clusters of a core, as families of joined clusters declare."""
    engine = next((one for one in platform.engines if one.id == pair.engine), None)
    wide = [family for family in families().values() if family.match.get("threads") == "joined" and family.runtimes]
    if engine is None or not pair.runtime:
        return False
    return any(family.holds(engine, "joined") and family.stands_for(pair.runtime) for family in wide)


def _host(pair: Row, choice: Choice, family: Family) -> Costs | None:
    """Return the costs of the program around a row's network, None where they are the family's."""
    given = next((one for one in choice.hosts if one.rows.holds(pair)), None)
    if given is not None:
        return Costs(given.rows.text, given.launch, given.submit)
    found = family.host(pair.runtime)
    return Costs("|".join(found.runtimes), found.launch, found.submit) if found else None


def _reason(pair: Row, choice: Choice, family: Family) -> str:
    if pair.flag:
        return f"flagged: {pair.flag}"
    excluded = next((one for one in choice.excluded if one.holds(pair)), None)
    if excluded is not None:
        return f"excluded by {excluded.text}"
    if not family.stands_for(pair.runtime):
        return f"measured with {pair.runtime}, which the family {family.name} does not stand for"
    return ""


def _add(data: Data, networks: Networks, use: Use, family: Family, host: Costs | None, rows: Sequence[Row]) -> None:
    """Add a cell of the fastest rows whose network can be read."""
    board = board_name(use)
    try:
        engine = nominal(use, family, *((host.launch, host.submit) if host else ()))
    except UsageError as error:
        data.refused.append(RefusedRow(f"{board} {use.mode.name} ({len(rows)} rows)", str(error)))
        return
    works, times = {}, fastest(rows)
    for network in times:
        try:
            works[network] = networks.passes(network)
        except InputError as error:
            data.refused.append(RefusedRow(f"{board} {use.mode.name} {network}", str(error)))
    if not works:
        return
    tail = [
        use.mode.name,
        *([str(use.running())] if use.engine.shares == "unit" else []),
        *([host.text] if host else []),
    ]
    cell = Cell(
        " ".join([board, *tail]),
        board,
        engine,
        table(list(works.values()), engine),
        np.array([times[network] for network in works]),
        tuple(works),
        terms_of(use, family),
        tuple(place(one) for one in works.values()),
    )
    data.cells.setdefault(family.name, []).append(cell)
