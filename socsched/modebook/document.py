"""book.json: the cells of a book, their plans' files, what plans share, and the switches between cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Literal

from socsched.descriptor.limits import Amount, Bytes, Count, Line, LongLine, NoName, Ns, PlanName, Rows, Verdict


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


def faults(book: BookDocument) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the path of every wrong reference in a book, and what was expected there."""
    axes = (book.modes, tuple(book.thermal), book.losses, book.conditions)
    ids = {one.id for one in book.placements}
    seen = set()
    for number, cell in enumerate(book.cells):
        place = (cell.mode, cell.thermal, cell.loss, cell.condition)
        for name, value, known in zip(("mode", "thermal", "loss", "condition"), place, axes, strict=True):
            if value not in known:
                yield ("cells", number, name), f"expected one of {', '.join(known)}, got {value!r}"
        if place in seen:
            yield ("cells", number), "expected each cell once"
        seen.add(place)
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
