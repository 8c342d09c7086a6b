"""The fit of a platform: its engines' families fitted to all boards measured, and what the platform gets of them.

It gets the section `fitted` of its file, as text: one for each engine and precision of a fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from socsched.cost.fitting.cells import (
    Choice,
    Data,
    Networks,
    RefusedRow,
    board_name,
    make_cells,
    runs_joined,
    terms_of,
)
from socsched.cost.fitting.families import Family, Program, Use, find_family, fullest, get_family, nominal, rate, use_of
from socsched.cost.fitting.least import (
    Cell,
    Doubt,
    Errors,
    Fitted,
    cross_validate,
    doubt,
    fit,
    judged,
    mean_error,
    relative,
    scores_of,
)
from socsched.cost.fitting.table import Array, from_logs
from socsched.cost.measurements import Row
from socsched.cost.timing import Nominal
from socsched.descriptor.catalog import find_platform
from socsched.descriptor.fit import NAMES, Parameters
from socsched.descriptor.fit import PASS_KINDS as KINDS
from socsched.descriptor.platform import Engine, Platform
from socsched.descriptor.platform_file import read_platform
from socsched.descriptor.source import parse
from socsched.errors import UsageError
from socsched.units import format_bandwidth, format_duration, format_size

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
    """A family's cells with their fit and errors; no cells: nothing was measured.

    `doubts`: by precision on measured boards, from networks and designs left out; `unseen`: on others, from board and
    design left out together, with the mean error of these.  `middle`: distance of the median network left out.
    """

    family: Family
    cells: tuple[Cell, ...] = ()
    fitted: Fitted | None = None
    errors: Errors | None = None
    rows: tuple[CellErrors, ...] = ()
    doubts: Mapping[str, Doubt] = field(default_factory=dict)
    unseen: tuple[float, Mapping[str, Doubt]] | None = None
    middle: float = 0.0


@dataclass(frozen=True, slots=True)
class FittedSection:
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
    doubt: Doubt | None = None

    @property
    def name(self) -> str:
        """Return platform, engine and precision as one text."""
        return board_name(self.use)


@dataclass(frozen=True, slots=True)
class Report:
    """What a fit found: sections of the platform, all cells of their families, rows that were not used."""

    platform: Platform
    sections: tuple[FittedSection, ...]
    families: tuple[FamilyFit, ...]
    refused: tuple[RefusedRow, ...]


@dataclass(frozen=True, slots=True)
class FitRequest:
    """What is to be fitted: one engine or precision (None: all), a mode for its nominal figures, a forced family.

    `omitted`: kinds of engines that are left as they are.
    """

    platform: Platform
    engine: str | None = None
    precision: str | None = None
    mode: str | None = None
    family: str | None = None
    choice: Choice = field(default_factory=Choice)
    omitted: tuple[str, ...] = ()


def fit_platform(
    request: FitRequest, pairs: Sequence[Row], networks: Networks, known_fits: dict[str, FamilyFit] | None = None
) -> Report:
    """Return the sections of a platform from measurements of it and of its family's other boards.

    Deterministic.  `known_fits` keeps the fits of families for other platforms with the same measurements.  Raises
    UsageError when the request names what the platform does not have, or nothing can be fitted.
    """
    refused: list[RefusedRow] = []
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
            refused.append(RefusedRow(board_name(use), str(error)))
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


def _uses_of(request: FitRequest, engine: Engine, precision: str, rows: Sequence[Row]) -> list[Use]:
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


def _uses(request: FitRequest, pairs: Sequence[Row], refused: list[RefusedRow]) -> list[tuple[Use, Family]]:
    """Return the uses that get a section, each with its family."""
    platform = request.platform
    if request.engine is not None and request.engine not in {engine.id for engine in platform.engines}:
        known = ", ".join(engine.id for engine in platform.engines)
        raise UsageError(f"{platform.name} has no engine {request.engine!r}", f"engines: {known}")
    found = []
    for engine in _different(platform):
        if request.engine not in (None, engine.id) or engine.kind in request.omitted:
            continue
        own = [pair for pair in pairs if (pair.platform, pair.engine) == (platform.name, engine.id)]
        for precision in dict.fromkeys([*engine.precisions, *sorted({pair.precision for pair in own})]):
            if request.precision not in (None, precision):
                continue
            rows = [pair for pair in own if pair.precision == precision]
            for use in _uses_of(request, engine, precision, rows):
                family = get_family(request.family) if request.family else find_family(engine, use.threads)
                if family is None:
                    refused.append(RefusedRow(board_name(use), "no engine family is known for it; choose --family"))
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
    scores = scores_of(cells, errors.network, str)  # near ones; with designs left out they are far
    precisions = sorted({score.precision for score in scores})
    held = [(score.cell, score.value <= width) for score, width in judged(scores, lambda score: score.network)]
    doubts = {name: doubt([*scores, *scores_of(cells, errors.design)], name) for name in precisions}
    widths = {
        cell.name: float(np.median([doubts[s.precision].width(s.distance) for s in scores if s.cell == cell.name]))
        for cell in cells
    }

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
            float(np.mean([inside for name, inside in held if name == cell.name] or [True])),
            relative(widths[cell.name]),
        )
        for cell in cells
    )
    unseen = None
    if len({cell.platform for cell in cells}) > 1:
        strange = scores_of(cells, errors.both)
        unseen = mean_error(cells, errors.both), {name: doubt(strange, name) for name in ("", *precisions)}
    middle = float(np.median([score.distance for score in scores]))
    return FamilyFit(family, cells, fitted, errors, rows, {**doubts, "": doubt(scores)}, unseen, middle)


def _section(use: Use, found: FamilyFit, measured: Collection[str]) -> FittedSection:
    family, board = found.family, board_name(use)
    use = fullest(use)
    figures = nominal(use, family)
    hosted = (glob for host in family.hosts for glob in host.runtimes)  # their costs are known on any board
    runtimes = (
        tuple(glob for glob in family.runtimes if glob in measured) + tuple(hosted) if measured else family.runtimes
    )
    programs = runtimes, family.hosts
    if found.fitted is None or found.errors is None:
        unseen = family.unseen[0], None, family.unseen[1]
        prior = from_logs(np.log([family.prior[name][0] for name in NAMES]))
        return FittedSection(use, family, figures, prior, (), *unseen, KINDS, *programs)
    own = [cell for cell in found.cells if cell.board == board]
    networks = tuple(sorted({network for cell in own for network in cell.networks}))
    shares = terms_of(use, family)
    model = Cell(board, board, figures, found.cells[0].work, found.cells[0].measured_us, (), shares)
    parameters = found.fitted.parameters(model)
    kinds = {int(kind) for cell in found.cells for kind in cell.work.kinds}
    classes = tuple(name for number, name in enumerate(KINDS) if number in kinds)
    error, width = family.unseen
    design, doubts = None, dict[str, Doubt]()
    if len(networks) >= FEW:
        error, design = mean_error(own, found.errors.network), mean_error(own, found.errors.design)
        doubts = dict(found.doubts)
    elif found.unseen is not None:
        error, doubts = found.unseen[0], dict(found.unseen[1])
    held = doubts.get(use.precision, doubts.get(""))
    width = relative(held.width(found.middle)) if held else width
    return FittedSection(use, family, figures, parameters, networks, error, design, width, classes, *programs, held)


def lines(section: FittedSection, source: str, date: str) -> list[str]:
    """Return the lines of a section, an item of a list, without indentation; `source` is a key of `sources`."""
    engine, family, use = section.nominal, section.family, section.use
    stated = use.engine.precisions.get(use.precision)
    figure = rate(use, family)
    found = [
        f"- source: {source}",
        f"  networks: {len(section.networks)}",
        f"  date: {json.dumps(date)}",
        f"  error: {section.error:.3g}",
        f"  interval: {section.interval:.3g}",
        f"  classes: [{', '.join(section.classes)}]",
        f"  block: {engine.block}",
        f"  launch: {format_duration(round(engine.launch_us * 1e3))}",
        f"  submit: {format_duration(round(engine.submit_us * 1e3))}",
        f"  sram: {format_size(engine.sram) if engine.sram else '0 B'}",
    ]
    if stated is None or stated.ops_per_cycle.value != figure.value:
        found.append(f"  ops_per_cycle: {figure.value:g}  # {figure.note}")
    if family.memory != "dram":
        found.append(f"  memory: {format_bandwidth(engine.dram * 1e6 / engine.units)}")
    if use.engine.shares == "unit" and use.engine.kind == "cpu":
        found.append(f"  units: {engine.units}")
    if len(use.clusters) > 1:
        found.append(f"  joined: [{', '.join(one.id for one in use.clusters)}]")
    if section.runtimes:
        found.append(f"  runtimes: {json.dumps(section.runtimes)}")
    if section.hosts:
        found += ["  hosts:", *(f"    - {_host(one)}" for one in section.hosts)]
    if family.varied:
        found.append(f"  varied: {json.dumps(family.varied)}")
    if engine.taps != 1:
        found.append(f"  taps: {engine.taps:g}")
    if engine.copies:
        found.append("  copies: true")
    if engine.resident:
        found.append("  resident: true")
    if engine.dataflow:
        found.append("  dataflow: true")
    if engine.padded:
        found.append("  padded: true")
    found += [f"  note: {json.dumps(note(section), ensure_ascii=False)}", ""]
    if section.doubt:
        found.insert(-1, f"  family: {family.name}")
        found.insert(-1, f"  doubt: {{near: {section.doubt.near:.3g}, far: {max(section.doubt.far, 1e-3):.3g}}}")
    values = ", ".join(f"{name}: {getattr(section.parameters, name):.3g}" for name in NAMES)
    return [*found[:-1], f"  parameters: {{{values}}}"]


def _host(one: Program) -> str:
    costs = (format_duration(round(us * 1e3)) for us in (one.launch, one.submit))
    launch, submit = costs
    return f"{{runtimes: {json.dumps(one.runtimes)}, launch: {launch}, submit: {submit}}}  # {one.note}"


def note(section: FittedSection) -> str:
    """Return what the parameters rest on."""
    family = f"family {section.family.name}"
    if not section.networks:
        return f"{family}, no measurement of this engine in this precision"
    design = (
        "" if section.error_design is None else f"; error with designs of networks left out {section.error_design:.3g}"
    )
    return f"{family}{design}"


def document(sections: Sequence[FittedSection], source: str, date: str) -> str:
    """Return all sections as YAML, nested as in a platform file."""
    text = [
        f"# {sections[0].use.platform.name}: paste each `fitted` into its precision; `{source}` is a key of sources"
    ]
    text.append("engines:")
    engine = ""
    for (name, precision), own in grouped(sections).items():
        if name != engine:
            text += [f"  {name}:", "    precisions:"]
        engine = name
        text += [f"      {precision}:", *(f"        {line}" for line in _block(own, source, date))]
    return "\n".join(text) + "\n"


def grouped(sections: Sequence[FittedSection]) -> dict[tuple[str, str], list[FittedSection]]:
    """Return the sections of every engine and precision."""
    found: dict[tuple[str, str], list[FittedSection]] = {}
    for section in sections:
        found.setdefault((section.use.engine.id, section.use.precision), []).append(section)
    return found


def _block(sections: Sequence[FittedSection], source: str, date: str) -> list[str]:
    return ["fitted:", *(f"  {line}" for section in sections for line in lines(section, source, date))]


def _key(engines: Mapping[str, object], engine: str) -> str:
    """Return the key of an engine in a file, which declares equal ones as one with a count."""
    counted = (key for key in engines if re.fullmatch(re.escape(key) + r"\d+", engine))
    return engine if engine in engines else next(counted, engine)


def rewritten(raw: bytes, file: str, sections: Sequence[FittedSection], source: str, date: str) -> str:
    """Return a platform file with the sections put in or replaced, all else as it stands; UsageError where it cannot.

    A precision that the file lacks, or one written on a single line, is refused.  The source is added when missing.
    """
    text = raw.decode("utf-8")
    whole = read_platform(file) if "extends" in parse(raw, file).data else parse(raw, file)
    for (engine, precision), own in grouped(sections).items():
        path = ("engines", _key(whole.data["engines"], engine), "precisions", precision)
        text = _placed(text, file, path, _block(own, source, date))
    if source not in parse(text.encode(), file).data.get("sources", {}):
        entry = [f"{source}:", '  title: "measured times of networks, fitted with `socsched fit`"']
        text = _placed(text, file, ("sources",), entry)
    parse(text.encode(), file)
    return text


def _placed(text: str, file: str, path: tuple[str, ...], block: Sequence[str]) -> str:
    """Return YAML text with a block at the end of the mapping at `path`, in place of one with the same key."""
    found = parse(text.encode(), file)
    rows = text.splitlines()
    if "extends" in found.data and path not in found.keys:  # what it inherits has no place in the file yet
        stated = max((n for n in range(len(path)) if path[:n] in found.keys), default=0)
        *above, last = path[stated:]
        block = [f"{last}:", *(f"  {row}" for row in block)]
        for name in reversed(above):
            block = [f"{name}:", *(f"  {row}" for row in block)]
        path = path[:stated]
        if not path:
            return "\n".join([*rows, *block]) + "\n"
    where = ".".join(path)
    if path not in found.keys or not isinstance(_value(found.data, path), dict):
        raise UsageError(f"{file}: has no {where}", "add it first; a fit does not state layout and efficiency")
    key, first = found.keys[path], found.values[path]
    if first.line <= key.line or rows[key.line - 1].rstrip().endswith("{"):
        raise UsageError(f"{file}:{key.line}: {where}: is written on one line", "write it as a block")
    head = (*path, block[0].split(":")[0])
    child = (*path, next(iter(_value(found.data, path))))
    indent = found.keys[child].column - 1
    new = [" " * indent + row for row in block]
    if head in found.keys:
        start = found.keys[head].line
        rows[start - 1 : _end(rows, start, indent)] = new
    else:
        end = _end(rows, key.line, key.column - 1)
        rows[end:end] = new
    return "\n".join(rows) + "\n"


def _value(data: Mapping[str, object], path: Sequence[str]) -> Mapping[str, object]:
    for name in path:
        data = data[name]  # type: ignore[assignment]
    return data


def _end(rows: Sequence[str], line: int, indent: int) -> int:
    """Return the index after the last row of the block whose key stands on `line` at `indent`."""
    end = line
    for index in range(line, len(rows)):
        row = rows[index]
        if not row.strip():
            continue
        if len(row) - len(row.lstrip(" ")) <= indent:
            break
        end = index + 1
    return end
