"""The changes that a simulated book goes through: read from a file, or drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from socsched.errors import UsageError
from socsched.modebook.book import cell_of
from socsched.modebook.cells import Cell

if TYPE_CHECKING:
    from socsched.modebook.book import Book

_SHORTEST = 100_000_000


@dataclass(frozen=True, slots=True)
class Change:
    """A change to another cell, requested at an instant (ns)."""

    at_ns: int
    target: Cell


@dataclass(frozen=True, slots=True)
class Scenario:
    """The first cell, and the changes in order of time."""

    start: Cell
    changes: tuple[Change, ...] = ()


def first_cell(book: Book) -> Cell:
    """Return the first feasible cell of a book; UsageError if there is none."""
    for entry in book.document.cells:
        if entry.verdict == "feasible":
            return cell_of(entry)
    raise UsageError("no cell of the book has a feasible plan", "book.html lists the reasons")


def read_scenario(path: str | Path, book: Book) -> Scenario:
    """Return the scenario of a file (YAML or JSON); DescriptorError with every finding."""
    from socsched.descriptor.scenario_file import AXES, load_scenario

    document = book.document
    axes = {
        "mode": document.modes,
        "thermal": tuple(document.thermal),
        "loss": document.losses,
        "condition": document.conditions,
    }
    file = load_scenario(path, axes)
    start = Cell(*(getattr(file.start, axis) or axes[axis][0] for axis in AXES))
    changes, cell = [], start
    for event in file.events:
        changed = {axis: value for axis in AXES if (value := getattr(event, axis)) is not None}
        cell = replace(cell, **changed)
        changes.append(Change(event.at, cell))
    return Scenario(start, tuple(changes))


def random_scenario(book: Book, count: int, until_ns: int, seed: int = 0) -> Scenario:
    """Return a walk of up to `count` changes until an instant (ns), along switches that the board can make."""
    draw = Random(f"{seed}:scenario").getrandbits
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
    return Scenario(start, tuple(changes))
