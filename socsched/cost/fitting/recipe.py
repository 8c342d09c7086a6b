"""The fit of a platform: its engines' families fitted to all boards measured, and what the platform gets of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from socsched.cost.fitting.cells import Choice, Data, Refused, board_name, make_cells, runs_joined, terms_of
from socsched.cost.fitting.conformal import coverage, half_width, relative
from socsched.cost.fitting.cross import Errors, cross_validate, mean_error, scores_of
from socsched.cost.fitting.families import Family, Program, find_family, get_family
from socsched.cost.fitting.least import Cell, Fitted, fit
from socsched.cost.fitting.networks import Networks
from socsched.cost.fitting.nominal import Use, fullest, nominal, use_of
from socsched.cost.measurements import Row
from socsched.cost.timing import NAMES, Array, Nominal, Parameters, from_logs
from socsched.descriptor.catalog import find_platform
from socsched.descriptor.fit import PASS_KINDS as KINDS
from socsched.descriptor.platform import Engine, Platform
from socsched.errors import UsageError

FEW = 2
"""Networks of a board from which leaving one out says something; below, the error is that of a board left out."""


@dataclass(frozen=True, slots=True)
class CellErrors:
    """Mean absolute relative errors of a cell: of the fit, with the network, its design or the board left out.

    `inside`: share of the networks that intervals from the other networks' errors hold; `interval`: their half width.
    """

    name: str
    networks: tuple[str, ...]
    fitted: float
    network: float
    design: float
    board: float
    inside: float
    interval: float


@dataclass(frozen=True, slots=True)
class FamilyFit:
    """A family's cells with their fit and errors; no cells: nothing was measured."""

    family: Family
    cells: tuple[Cell, ...] = ()
    fitted: Fitted | None = None
    errors: Errors | None = None
    rows: tuple[CellErrors, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """Parameters of an engine in a precision, the figures they are ratios to, and how well they predict.

    `networks`: those measured on this board; `error` with one left out, `error_design` with all of its design (None
    where neither says anything); `interval`: relative half width that holds `LEVEL` of networks left out; `classes`:
    those of `timing.KINDS` among the measured networks of the family; `runtimes`, `hosts`: programs they ran under.
    """

    use: Use
    family: Family
    nominal: Nominal
    parameters: Parameters
    networks: tuple[str, ...]
    error: float
    error_design: float | None
    interval: float
    classes: tuple[str, ...]
    runtimes: tuple[str, ...] = ()
    hosts: tuple[Program, ...] = ()

    @property
    def name(self) -> str:
        """Return platform, engine and precision as one text."""
        return board_name(self.use)


@dataclass(frozen=True, slots=True)
class Report:
    """What a fit found: sections of the platform, all cells of their families, rows that were not used."""

    platform: Platform
    sections: tuple[Section, ...]
    families: tuple[FamilyFit, ...]
    refused: tuple[Refused, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be fitted: one engine or precision (None: all), a mode for its nominal figures, a forced family."""

    platform: Platform
    engine: str | None = None
    precision: str | None = None
    mode: str | None = None
    family: str | None = None
    choice: Choice = field(default_factory=Choice)


def fit_platform(
    request: Request, pairs: Sequence[Row], networks: Networks, known_fits: dict[str, FamilyFit] | None = None
) -> Report:
    """Return the sections of a platform from measurements of it and of its family's other boards.

    Deterministic.  `known_fits` keeps the fits of families for other platforms with the same measurements.  Raises
    UsageError when the request names what the platform does not have, or nothing can be fitted.
    """
    refused: list[Refused] = []
    uses = _uses(request, pairs, refused)
    wanted = list(dict.fromkeys(family.name for _, family in uses))
    known: dict[str, Platform | None] = {request.platform.name: request.platform}

    def described(name: str) -> Platform | None:
        if name not in known:
            known[name] = find_platform(name)
        return known[name]

    def forced(pair: Row) -> Family | None:
        own = pair.platform == request.platform.name and request.engine in (None, pair.engine)
        return get_family(request.family) if request.family and own else None

    families = [get_family(name) for name in wanted]
    data = make_cells(pairs, networks, request.choice, described, families, forced)
    refused += data.refused
    fits = {} if known_fits is None else known_fits
    for family in families:
        fits[family.name] = fits.get(family.name) or _fit_family(family, data)
    sections = []
    for use, family in uses:
        try:
            measured = data.runtimes.get(board_name(use), set())
            sections.append(_section(use, fits[family.name], measured))
        except UsageError as error:
            refused.append(Refused(board_name(use), str(error)))
    if not sections:
        raise UsageError(f"{request.platform.name}: nothing to fit: {refused[0].reason if refused else 'no engine'}")
    return Report(request.platform, tuple(sections), tuple(fits[name] for name in wanted), tuple(refused))


def _different(platform: Platform) -> Iterator[Engine]:
    """Yield the engines of a platform, of equal ones (cpu0, cpu1, ...) the first."""
    seen: set[tuple[str, str]] = set()
    for engine in platform.engines:
        key = re.sub(r"\d+$", "", engine.id), engine.title
        if key not in seen:
            yield engine
        seen.add(key)


def _uses_of(request: Request, engine: Engine, precision: str, rows: Sequence[Row]) -> list[Use]:
    """Return the uses of an engine in a precision that get a section.

    CPUs: one core; all cores of a cluster; the cores of all clusters with this core where that was measured.
    """
    platform, mode = request.platform, request.mode or ""
    if engine.kind != "cpu":
        return [use_of(platform, engine.id, mode, precision)]
    one, cluster = (use_of(platform, engine.id, mode, precision, units) for units in (1, 0))
    joined = use_of(platform, engine.id, mode, precision, 0, joined=True)
    family = get_family(request.family) if request.family else None
    wide = any(runs_joined(platform, row) or any(p.holds(row) for p in request.choice.joined) for row in rows)
    uses = [one, *([cluster] if cluster.threads == "cluster" else []), *([joined] if wide else [])]
    if wide and len(joined.clusters) == 1:
        uses.remove(cluster)
    if family is not None:
        uses = [use for use in (one, cluster, joined) if family.suits(use.threads)][:1]
    return uses


def _uses(request: Request, pairs: Sequence[Row], refused: list[Refused]) -> list[tuple[Use, Family]]:
    """Return the uses that get a section, each with its family."""
    platform = request.platform
    if request.engine is not None and request.engine not in {engine.id for engine in platform.engines}:
        known = ", ".join(engine.id for engine in platform.engines)
        raise UsageError(f"{platform.name} has no engine {request.engine!r}", f"engines: {known}")
    found = []
    for engine in _different(platform):
        if request.engine not in (None, engine.id):
            continue
        own = [pair for pair in pairs if (pair.platform, pair.engine) == (platform.name, engine.id)]
        for precision in dict.fromkeys([*engine.precisions, *sorted({pair.precision for pair in own})]):
            if request.precision not in (None, precision):
                continue
            rows = [pair for pair in own if pair.precision == precision]
            for use in _uses_of(request, engine, precision, rows):
                family = get_family(request.family) if request.family else find_family(engine, use.threads)
                if family is None:
                    refused.append(Refused(board_name(use), "no engine family is known for it; choose --family"))
                else:
                    found.append((use, family))
    if request.precision is not None and not found and not refused:
        raise UsageError(f"{platform.name}: no engine computes in {request.precision!r}, and none is measured in it")
    return found


def _fit_family(family: Family, data: Data) -> FamilyFit:
    cells = tuple(data.cells.get(family.name, ()))
    if not cells:
        return FamilyFit(family)
    fitted = fit(cells, family)
    errors = cross_validate(cells, family, fitted)
    scores = scores_of(cells, errors.network)
    inside = coverage(scores)

    def error(cell: Cell, predicted: Mapping[str, Array]) -> float:
        return float(np.mean(np.abs(predicted[cell.name] / cell.measured_us - 1)))

    rows = tuple(
        CellErrors(
            cell.name,
            cell.networks,
            error(cell, errors.fitted),
            error(cell, errors.network),
            error(cell, errors.design),
            error(cell, errors.board),
            inside.get(cell.name, 1.0),
            relative(half_width(scores, cell.name)),
        )
        for cell in cells
    )
    return FamilyFit(family, cells, fitted, errors, rows)


def _section(use: Use, found: FamilyFit, measured: Collection[str]) -> Section:
    family, board = found.family, board_name(use)
    use = fullest(use)
    figures = nominal(use, family)
    runtimes = tuple(glob for glob in family.runtimes if glob in measured or not measured)
    programs = runtimes, family.hosts
    if found.fitted is None or found.errors is None:
        unseen = family.unseen[0], None, family.unseen[1]
        prior = from_logs(np.log([family.prior[name][0] for name in NAMES]))
        return Section(use, family, figures, prior, (), *unseen, KINDS, *programs)
    own = [cell for cell in found.cells if cell.board == board]
    networks = tuple(sorted({network for cell in own for network in cell.networks}))
    shares = terms_of(use, family)
    model = Cell(board, board, figures, found.cells[0].work, found.cells[0].measured_us, (), shares)
    parameters = found.fitted.parameters(model)
    kinds = {int(kind) for cell in found.cells for kind in cell.work.kind}
    classes = tuple(name for number, name in enumerate(KINDS) if number in kinds)
    if len(networks) >= FEW:
        scores = scores_of(found.cells, found.errors.network)
        error, design = mean_error(own, found.errors.network), mean_error(own, found.errors.design)
        width = max(relative(half_width(scores, cell.name)) for cell in own)
        return Section(use, family, figures, parameters, networks, error, design, width, classes, *programs)
    error, width = family.unseen
    if len({cell.board.split(".")[0] for cell in found.cells}) > 1:
        scores = scores_of(found.cells, found.errors.board)
        error, width = mean_error(found.cells, found.errors.board), relative(half_width(scores, ""))
    return Section(use, family, figures, parameters, networks, error, None, width, classes, *programs)
