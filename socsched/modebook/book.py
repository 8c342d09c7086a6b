"""A book of plans: book.json and its plans, made from planned cells or read from a folder, and drives through it.

A cell (mode, thermal state, lost engine, condition) is a platform and a pipeline like any other, so planner, analysis
and simulator need no notion of it, and plan.json holds no modes: each reader would have to choose.  No
placement is feasible in all cells, so each cell has a plan, shared where one holds in several.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Literal

from socsched.bounded import read_bytes
from socsched.descriptor.json_file import MAX_BYTES, JsonFile
from socsched.descriptor.limits import Amount, Bytes, Count, Line, LongLine, NoName, Ns, PlanName, Rows, Verdict
from socsched.errors import InputError, UsageError, unwritable
from socsched.files import write_file
from socsched.modebook.build import Placed, placement
from socsched.modebook.cells import NONE, Cell, CellContext
from socsched.planning import io as plan_io
from socsched.planning.deployment import WEIGHTS, capacity, weights_of

if TYPE_CHECKING:
    from socsched.faults.model import Faults
    from socsched.modebook.build import Entry
    from socsched.modebook.cells import Axes
    from socsched.modebook.simulate import BookSimulation
    from socsched.modebook.transitions import Switch
    from socsched.planning.plan import Plan

BOOK, PLANS, PICTURE, TABLE = "book.json", "plans", "book.svg", "book.html"
PROTOCOL = "idle time (Tindell & Alonso 1996; Real & Crespo 2004)"
_HINT = "write it again with `socsched book PIPELINE -p PLATFORM -o FOLDER`"
_MOST = 5_000_000


@dataclass(frozen=True, slots=True)
class ChainEntry:
    """A chain in a cell: its bound (None: none exists) and its deadline, in ns."""

    name: PlanName
    bound_ns: Amount | None
    deadline_ns: Ns


@dataclass(frozen=True, slots=True)
class CellEntry:
    """A cell: its plan's file (empty where a stage has no engine), its placement, and how the plan was made.

    `made`: searched, shared or dominated; `of`: the cell that the plan or the verdict comes from.  `why`: the unmet
    requirements.
    """

    mode: PlanName
    thermal: PlanName
    loss: PlanName
    condition: PlanName
    verdict: Verdict
    plan: NoName
    placement: NoName
    made: Line
    of: Line
    why: tuple[LongLine, ...]
    power_mw: Amount | None
    chains: tuple[ChainEntry, ...]


@dataclass(frozen=True, slots=True)
class PlacementEntry:
    """A placement: stage -> engine and data type, in words, and the bytes of the weights it needs."""

    id: PlanName
    stages: Mapping[Line, Line]
    weights_bytes: Bytes


@dataclass(frozen=True, slots=True)
class ArtefactEntry:
    """A compiled stage: its weights and the placements that use it; it is built and loaded once for all of them."""

    stage: PlanName
    cut: Line
    engine: PlanName
    precision: NoName
    lanes: Count
    weights_bytes: Bytes
    placements: tuple[PlanName, ...]


@dataclass(frozen=True, slots=True)
class SwitchEntry:
    """A switch between two cells, by their numbers from 0; times in ns from the request, bounds.

    `drain_ns`: until the last frame of the old plan has ended, by `drain_by`; `switch_ns`: until the new plan runs;
    `held`: source -> the most frames that neither plan serves; `first_ns`: chain -> the new plan's first output.
    `why`: the reason why there is no switch while the board runs, empty if there is one.  `unpaired`: source -> the
    most frames that the old plan begins and that no join completes, because the frame they need with them is held.
    """

    source: Count
    target: Count
    drain_ns: Ns | None
    drain_by: Line
    setup_ns: Ns
    switch_ns: Ns | None
    held: Mapping[Line, Count]
    first_ns: Mapping[Line, Amount | None]
    why: LongLine
    unpaired: Mapping[Line, Count] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BookDocument:
    """A whole book.

    `resident_bytes`: memory with the artefacts of all placements loaded and the largest plan running; more than
    `capacity_bytes` leaves no switch between placements, since switches load nothing.
    """

    schema_version: Literal["1"]
    kind: Literal["book"]
    pipeline: PlanName
    platform: PlanName
    modes: tuple[PlanName, ...]
    thermal: Mapping[Line, float]
    losses: tuple[PlanName, ...]
    conditions: tuple[PlanName, ...]
    protocol: Line
    cells: Annotated[tuple[CellEntry, ...], Rows]
    placements: Annotated[tuple[PlacementEntry, ...], Rows] = ()
    artefacts: Annotated[tuple[ArtefactEntry, ...], Rows] = ()
    switches: Annotated[tuple[SwitchEntry, ...], Rows] = ()
    inputs: Mapping[Line, Line] = field(default_factory=dict)
    resident_bytes: Bytes = 0
    capacity_bytes: Bytes = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A change to another cell, requested at an instant (ns)."""

    at_ns: int
    target: Cell


@dataclass(frozen=True, slots=True)
class Drive:
    """The first cell, and the changes in order of time."""

    start: Cell
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Book:
    """A book: its document, and the plan of every cell that has one, by cell."""

    document: BookDocument
    plans: Mapping[Cell, Plan]

    def entry(self, cell: Cell) -> CellEntry:
        """Return the entry of a cell; UsageError if the book has no such cell."""
        for entry in self.document.cells:
            if cell_of(entry) == cell:
                return entry
        raise UsageError(f"the book has no cell {cell}", "its axes are listed in book.json")

    def plan(self, cell: Cell) -> Plan:
        """Return the plan of a cell; UsageError if it has none."""
        self.entry(cell)
        if cell not in self.plans:
            raise UsageError(f"cell {cell} has no plan", "; ".join(self.entry(cell).why))
        return self.plans[cell]

    def switch(self, source: Cell, target: Cell) -> SwitchEntry | None:
        """Return the switch between two cells, None if the book lists none."""
        numbers = {cell_of(entry): number for number, entry in enumerate(self.document.cells)}
        ends = numbers.get(source), numbers.get(target)
        return next((one for one in self.document.switches if (one.source, one.target) == ends), None)

    def spares(self, plan: Plan) -> list[Plan]:
        """Return the plans for every lost engine in the cell of `plan`, for failover; UsageError if it is not here.

        Engines off in a plan are listed as in `plan`, so that all of them have the same engines.
        """
        home = next((cell for cell, one in self.plans.items() if cell.loss == NONE and one == plan), None)
        if home is None:
            raise UsageError("the plan is none of the book's", "run a plan from the book's folder")
        plans = []
        for cell, other in self.plans.items():
            same = (cell.mode, cell.thermal, cell.condition) == (home.mode, home.thermal, home.condition)
            if same and cell.loss != NONE and self.entry(cell).verdict == "feasible":
                plans.append(with_engines(other, plan))
        return plans

    def simulate(
        self,
        drive: str | Path | Drive,
        duration: str | int = "60s",
        seed: int = 0,
        faults: str | Path | Faults | None = None,
    ) -> BookSimulation:
        """Simulate the plans and switches of the book through a drive (or its file) for a duration (text or ns)."""
        from socsched.faults.file import load_faults
        from socsched.modebook.simulate import simulate_book
        from socsched.units import parse_duration

        path = read_drive(drive, self) if isinstance(drive, str | Path) else drive
        length = parse_duration(duration) if isinstance(duration, str) else duration
        injected = load_faults(faults, self.plan(path.start)) if isinstance(faults, str | Path) else faults
        return simulate_book(self, path, length, seed, injected)

    def save(self, folder: str | Path) -> None:
        """Write book.json, the plans, a table and a picture into a folder."""
        from socsched.modebook.view import page, picture

        place = Path(folder)
        try:
            (place / PLANS).mkdir(parents=True, exist_ok=True)
            for cell, plan in self.plans.items():
                plan_io.save(plan, place / PLANS / self.entry(cell).plan)
            write_file(place / BOOK, json.dumps(plain(self.document), indent=1) + "\n")
            write_file(place / PICTURE, picture(self.document) + "\n")
            write_file(place / TABLE, page(self.document))
        except OSError as error:
            raise unwritable(folder, error) from None


def with_engines(plan: Plan, of: Plan) -> Plan:
    """Return a plan that also lists the engines of another plan that it does not use."""
    listed = {engine.id for engine in plan.engines}
    return replace(plan, engines=(*plan.engines, *(engine for engine in of.engines if engine.id not in listed)))


def cell_of(entry: CellEntry) -> Cell:
    """Return the coordinates of an entry."""
    return Cell(entry.mode, entry.thermal, entry.loss, entry.condition)


def is_book(path: str | Path) -> bool:
    """Return whether a path is the folder of a book."""
    return (Path(path) / BOOK).is_file()


def load_book(folder: str | Path) -> Book:
    """Return the book in a folder; InputError or DescriptorError with every fault and its position."""
    place = Path(folder)
    source = JsonFile(read_bytes(place / BOOK, "book", _HINT, MAX_BYTES), str(place / BOOK), _HINT, _MOST)
    document: BookDocument = source.load(BookDocument)
    source.check(_faults(document))
    plans = {}
    for entry in document.cells:
        if entry.plan:
            plan = plan_io.load(place / PLANS / entry.plan)
            if (plan.pipeline, plan.platform) != (document.pipeline, document.platform):
                raise InputError(
                    f"{place / PLANS / entry.plan}: a plan for {plan.pipeline} on {plan.platform}, "
                    f"the book is of {document.pipeline} on {document.platform}",
                    _HINT,
                )
            plans[cell_of(entry)] = plan
    return Book(document, plans)


def make_book(entries: list[Entry], switches: list[Switch], axes: Axes, context: CellContext) -> Book:
    """Return a book of planned cells and their switches."""
    ids: dict[frozenset[Placed], str] = {}
    weights: dict[Placed, int] = {}
    cells = []
    for entry in entries:
        placed = placement(entry.plan)
        if placed:
            ids.setdefault(placed, f"P{len(ids) + 1:02d}")
            _weigh(weights, entry, context)
        cells.append(_cell(entry, ids.get(placed, "")))
    artefacts = tuple(_artefacts(ids, weights))
    resident = _resident(entries, artefacts)
    room = capacity(context.platform)
    numbers = {entry.cell: number for number, entry in enumerate(entries)}
    states = {state.name: state.clocks.value for state in context.platform.thermal_states}
    document = BookDocument(
        "1",
        "book",
        context.pipeline.name,
        context.platform.name,
        axes.modes,
        {name: states.get(name, 1.0) for name in axes.thermal},
        axes.losses,
        axes.conditions,
        PROTOCOL,
        tuple(cells),
        tuple(_placement(placed, name, weights) for placed, name in ids.items()),
        artefacts,
        tuple(_switch(one, numbers, cells, resident > room) for one in switches),
        dict(next((entry.plan.inputs for entry in entries), {})),
        resident,
        room,
    )
    return Book(document, {entry.cell: entry.plan for entry in entries if entry.plan.tasks})


def _resident(entries: list[Entry], artefacts: tuple[ArtefactEntry, ...]) -> int:
    """Return the bytes of all artefacts, and of the activations and buffers of the plan that needs most."""
    running = [
        sum(int(size) for name, size in entry.plan.memory.terms if not name.startswith(WEIGHTS)) for entry in entries
    ]
    return sum(one.weights_bytes for one in artefacts) + max(running, default=0)


def _cell(entry: Entry, placed: str) -> CellEntry:
    plan = entry.plan
    return CellEntry(
        *entry.cell.axes,
        plan.verdict,
        f"{'_'.join(entry.cell.axes)}.json" if plan.tasks else "",
        placed,
        entry.made,
        entry.of,
        entry.why,
        round(plan.power.expected_mw or 0) if plan.tasks else None,
        tuple(ChainEntry(chain.name, chain.bound_ns, chain.deadline_ns) for chain in plan.chains),
    )


def _weigh(weights: dict[Placed, int], entry: Entry, context: CellContext) -> None:
    """Add the bytes of the weights of an entry's stages that are not known yet."""
    from socsched.planning.cutting.pipelines import as_planned

    missing = [one for one in placement(entry.plan) if one not in weights]
    if not missing:
        return
    cut = as_planned(context.workload(entry.cell), entry.plan)
    model = context.known(entry.cell).model(context.mode(entry.cell))
    for one in missing:
        work = model.work_of(cut.stage(one[0]), one[3])
        weights[one] = weights_of(work) if work else 0


def _placement(placed: frozenset[Placed], name: str, weights: Mapping[Placed, int]) -> PlacementEntry:
    stages = {
        stage: f"{engine} {precision}" + (f" x{lanes}" if lanes > 1 else "")
        for stage, _, engine, precision, lanes in sorted(placed)
    }
    return PlacementEntry(name, stages, sum(weights[one] for one in placed))


def _artefacts(ids: Mapping[frozenset[Placed], str], weights: Mapping[Placed, int]) -> list[ArtefactEntry]:
    users: dict[Placed, list[str]] = {}
    for placed, name in ids.items():
        for one in placed:
            users.setdefault(one, []).append(name)
    return [ArtefactEntry(*one, weights[one], tuple(sorted(names))) for one, names in sorted(users.items())]


def _switch(one: Switch, numbers: Mapping[Cell, int], cells: list[CellEntry], full: bool) -> SwitchEntry:
    """Return a switch as an entry; `full`: not all artefacts fit into the memory together."""
    ends = {cells[numbers[cell]].placement for cell in (one.source, one.target)}
    why = one.why or ("the artefacts of both plans are not in memory together" if full and len(ends) > 1 else "")
    drained = one.drain
    by = "" if drained is None else f"{drained.by}: {drained.worst}" if drained.worst else drained.by
    return SwitchEntry(
        numbers[one.source],
        numbers[one.target],
        drained.ns if drained else None,
        by,
        one.setup_ns,
        None if drained is None else one.switch_ns,
        one.held,
        one.first_ns,
        why,
        one.unpaired,
    )


def _faults(book: BookDocument) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the path of every wrong reference in a book, and what was expected there."""
    axes = (book.modes, tuple(book.thermal), book.losses, book.conditions)
    ids = {one.id for one in book.placements}
    places = set()
    for number, cell in enumerate(book.cells):
        place = (cell.mode, cell.thermal, cell.loss, cell.condition)
        for name, value, known in zip(("mode", "thermal", "loss", "condition"), place, axes, strict=True):
            if value not in known:
                yield ("cells", number, name), f"expected one of {', '.join(known)}, got {value!r}"
        if place in places:
            yield ("cells", number), "expected each cell once"
        places.add(place)
        if cell.placement and cell.placement not in ids:
            yield ("cells", number, "placement"), "expected the id of a placement"
        if cell.verdict == "feasible" and not cell.plan:
            yield ("cells", number, "plan"), "expected the file of a feasible cell's plan"
    for number, switch in enumerate(book.switches):
        for name in ("source", "target"):
            if getattr(switch, name) >= len(book.cells):
                yield ("switches", number, name), f"expected the number of a cell, below {len(book.cells)}"
        if not switch.why and switch.switch_ns is None:
            yield ("switches", number, "switch_ns"), "expected a bound for a switch that the board can make"


def plain(value: Any) -> Any:
    """Return dataclasses as plain data."""
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


_SHORTEST = 100_000_000


def first_cell(book: Book) -> Cell:
    """Return the first feasible cell of a book; UsageError if there is none."""
    for entry in book.document.cells:
        if entry.verdict == "feasible":
            return cell_of(entry)
    raise UsageError("no cell of the book has a feasible plan", "book.html lists the reasons")


def read_drive(path: str | Path, book: Book) -> Drive:
    """Return the drive of a file (YAML or JSON); DescriptorError with every finding."""
    from socsched.descriptor.small_files import AXES, load_drive

    document = book.document
    axes = {
        "mode": document.modes,
        "thermal": tuple(document.thermal),
        "loss": document.losses,
        "condition": document.conditions,
    }
    file = load_drive(path, axes)
    start = Cell(*(getattr(file.start, axis) or axes[axis][0] for axis in AXES))
    changes, cell = [], start
    for event in file.events:
        changed = {axis: value for axis in AXES if (value := getattr(event, axis)) is not None}
        cell = replace(cell, **changed)
        changes.append(Change(event.at, cell))
    return Drive(start, tuple(changes))


def random_drive(book: Book, count: int, until_ns: int, seed: int = 0) -> Drive:
    """Return a walk of up to `count` changes until an instant (ns), along switches that the board can make."""
    draw = Random(f"{seed}:drive").getrandbits
    cells = [cell_of(entry) for entry in book.document.cells]
    ways: dict[int, list[int]] = {}
    for switch in book.document.switches:
        if not switch.why:
            ways.setdefault(switch.source, []).append(switch.target)
    here = cells.index(first_cell(book))
    start = cells[here]
    changes: list[Change] = []
    step = max(until_ns // (count + 1), _SHORTEST)
    at = step
    while len(changes) < count and at < until_ns and here in ways:
        here = ways[here][draw(62) % len(ways[here])]
        changes.append(Change(at + draw(62) % (step // 2 + 1), cells[here]))
        at += step
    return Drive(start, tuple(changes))
