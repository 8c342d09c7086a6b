"""A book of plans in memory, made from a pipeline and a platform or read from its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from socsched.bounded import read_bytes
from socsched.descriptor.json_file import MAX_BYTES, JsonFile
from socsched.errors import InputError, UsageError, unwritable
from socsched.files import write_file
from socsched.modebook.cells import NONE, Cell, Surroundings
from socsched.modebook.document import (
    ArtefactEntry,
    BookDocument,
    CellEntry,
    ChainEntry,
    PlacementEntry,
    SwitchEntry,
    faults,
    plain,
)
from socsched.modebook.sharing import Placed, placement
from socsched.planning import io as plan_io
from socsched.planning.memory import WEIGHTS, capacity, weights_of

if TYPE_CHECKING:
    from socsched.faults.model import Faults
    from socsched.modebook.build import Entry
    from socsched.modebook.cells import Axes
    from socsched.modebook.drive import Drive
    from socsched.modebook.simulate import BookSimulation
    from socsched.modebook.transitions import Switch
    from socsched.planning.plan import Plan

BOOK, PLANS, PICTURE, TABLE = "book.json", "plans", "book.svg", "book.html"
PROTOCOL = "idle time (Tindell & Alonso 1996; Real & Crespo 2004)"
_HINT = "write it again with `socsched book PIPELINE -p PLATFORM -o FOLDER`"
_MOST = 5_000_000


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
        wanted = numbers.get(source), numbers.get(target)
        return next((one for one in self.document.switches if (one.source, one.target) == wanted), None)

    def spares(self, plan: Plan) -> list[Plan]:
        """Return the plans for every lost engine in the cell of `plan`, for failover; UsageError if it is not here.

        Engines off in a plan are listed as in `plan`, so that all of them have the same engines.
        """
        home = next((cell for cell, one in self.plans.items() if cell.loss == NONE and one == plan), None)
        if home is None:
            raise UsageError("the plan is none of the book's", "run a plan from the book's folder")
        found = []
        for cell, other in self.plans.items():
            same = (cell.mode, cell.thermal, cell.condition) == (home.mode, home.thermal, home.condition)
            if same and cell.loss != NONE and self.entry(cell).verdict == "feasible":
                found.append(with_engines(other, plan))
        return found

    def simulate(
        self,
        drive: str | Path | Drive,
        duration: str | int = "60s",
        seed: int = 0,
        faults: str | Path | Faults | None = None,
    ) -> BookSimulation:
        """Simulate the plans and switches of the book through a drive (or its file) for a duration (text or ns)."""
        from socsched.faults.file import load_faults
        from socsched.modebook.drive import read_drive
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
    known = {engine.id for engine in plan.engines}
    return replace(plan, engines=(*plan.engines, *(engine for engine in of.engines if engine.id not in known)))


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
    source.check(faults(document))
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


def make_book(entries: list[Entry], switches: list[Switch], axes: Axes, around: Surroundings) -> Book:
    """Return a book of planned cells and their switches."""
    ids: dict[frozenset[Placed], str] = {}
    weights: dict[Placed, int] = {}
    cells = []
    for entry in entries:
        placed = placement(entry.plan)
        if placed:
            ids.setdefault(placed, f"P{len(ids) + 1:02d}")
            _weigh(weights, entry, around)
        cells.append(_cell(entry, ids.get(placed, "")))
    artefacts = tuple(_artefacts(ids, weights))
    resident = _resident(entries, artefacts)
    room = capacity(around.platform)
    numbers = {entry.cell: number for number, entry in enumerate(entries)}
    states = {state.name: state.clocks.value for state in around.platform.thermal_states}
    document = BookDocument(
        "1",
        "book",
        around.pipeline.name,
        around.platform.name,
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


def _weigh(weights: dict[Placed, int], entry: Entry, around: Surroundings) -> None:
    """Add the bytes of the weights of an entry's stages that are not known yet."""
    from socsched.planning.cutting.restore import as_planned

    missing = [one for one in placement(entry.plan) if one not in weights]
    if not missing:
        return
    cut = as_planned(around.workload(entry.cell), entry.plan)
    model = around.known(entry.cell).model(around.mode(entry.cell))
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
