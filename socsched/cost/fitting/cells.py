"""Cells of a fit from measured rows: one for each use of an engine, and why other rows are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from socsched.cost.fitting.families import Family
from socsched.cost.fitting.least import Cell
from socsched.cost.fitting.networks import Networks
from socsched.cost.fitting.nominal import Use, family_of, nominal, use_of
from socsched.cost.fitting.pairs import Pair, Pattern, fastest
from socsched.cost.timing import table
from socsched.descriptor.platform import Platform
from socsched.errors import InputError, UsageError


@dataclass(frozen=True, slots=True)
class Host:
    """Rows measured under a host program with known costs (us) of a launch and a job."""

    rows: Pattern
    launch: float
    submit: float


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rows count, and how: `excluded` ones, those under another `hosts`, those of `joined` clusters."""

    excluded: tuple[Pattern, ...] = ()
    hosts: tuple[Host, ...] = ()
    joined: tuple[Pattern, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """Rows that were left out, by what they measure, and the reason."""

    what: str
    reason: str


@dataclass(slots=True)
class Data:
    """Cells by family name, and the rows that make none."""

    cells: dict[str, list[Cell]] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)


def board_name(use: Use) -> str:
    """Return the name under which an engine and precision are fitted."""
    joined = ".joined" if use.threads == "many" and use.engine.shares == "unit" and use.engine.kind == "cpu" else ""
    return f"{use.platform.name}.{use.engine.id}.{use.precision}{joined}"


def core_name(use: Use) -> str:
    """Return the name of the term that precisions of one core have in common."""
    return f"core {use.platform.name}.{use.engine.id}"


def make_cells(
    pairs: Iterable[Pair],
    networks: Networks,
    choice: Choice,
    platform: Callable[[str], Platform | None],
    wanted: Sequence[Family] | None = None,
    forced: Callable[[Pair], Family | None] = lambda _: None,
) -> Data:
    """Return the cells of `wanted` families (None: all) with the fastest row of each network.

    `forced` names the family of a row whose engine is not to be recognised by its descriptor.
    """
    data = Data()
    groups: dict[tuple[str, str, str, int, int], tuple[Use, Family, Host | None, list[Pair]]] = {}
    for pair in pairs:
        what = f"{pair.platform} {pair.engine} {pair.precision} {pair.network}"
        try:
            use, family = _use(pair, choice, platform, forced)
        except UsageError as error:
            data.refused.append(Refused(what, str(error)))
            continue
        if wanted is not None and family not in wanted:
            continue
        reason = _reason(pair, choice)
        if reason:
            data.refused.append(Refused(what, reason))
            continue
        number = next((n for n, host in enumerate(choice.hosts) if host.rows.holds(pair)), -1)
        host = choice.hosts[number] if number >= 0 else None
        key = (family.name, board_name(use), use.mode.name, use.running(), number)
        groups.setdefault(key, (use, family, host, []))[3].append(pair)
    for _, group in sorted(groups.items()):
        _add(data, networks, *group)
    return data


def _use(
    pair: Pair,
    choice: Choice,
    platform: Callable[[str], Platform | None],
    forced: Callable[[Pair], Family | None],
) -> tuple[Use, Family]:
    described = platform(pair.platform)
    if described is None:
        raise UsageError(f"no descriptor of {pair.platform}")
    joined = any(one.holds(pair) for one in choice.joined)
    use = use_of(described, pair.engine, pair.mode, pair.precision, pair.share, joined)
    family = forced(pair)
    if family is None or family.match.get("threads", use.threads) != use.threads:
        family = family_of(use)
    return use, family


def _reason(pair: Pair, choice: Choice) -> str:
    if pair.flag:
        return f"flagged: {pair.flag}"
    excluded = next((one for one in choice.excluded if one.holds(pair)), None)
    return f"excluded by {excluded.text}" if excluded else ""


def _add(data: Data, networks: Networks, use: Use, family: Family, host: Host | None, rows: Sequence[Pair]) -> None:
    """Add a cell of the fastest rows whose network can be read."""
    board = board_name(use)
    try:
        engine = nominal(use, family, *((host.launch, host.submit) if host else ()))
    except UsageError as error:
        data.refused.append(Refused(f"{board} {use.mode.name} ({len(rows)} rows)", str(error)))
        return
    works, times = {}, fastest(rows)
    for network in times:
        try:
            works[network] = networks.passes(network)
        except InputError as error:
            data.refused.append(Refused(f"{board} {use.mode.name} {network}", str(error)))
    if not works:
        return
    tail = [
        use.mode.name,
        *([str(use.running())] if use.engine.shares == "unit" else []),
        *([host.rows.text] if host else []),
    ]
    terms = {"core": core_name(use), "precision": f"precision {use.precision}"}
    cell = Cell(
        " ".join([board, *tail]),
        board,
        engine,
        table(list(works.values())),
        np.array([times[network] for network in works]),
        tuple(works),
        tuple(terms[name] for name in family.shares),
    )
    data.cells.setdefault(family.name, []).append(cell)
