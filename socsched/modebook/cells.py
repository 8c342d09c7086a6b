"""The cells of a book, and the platform and pipeline that each of them plans for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from socsched.descriptor.pipeline import BASE, under_condition
from socsched.descriptor.platform import NOMINAL, mode_in_state
from socsched.errors import UsageError
from socsched.models.work import stage_work
from socsched.planning.search import CostCache
from socsched.planning.workload import NO_LIMITS, Limits

if TYPE_CHECKING:
    from socsched.descriptor.pipeline import Pipeline
    from socsched.descriptor.platform import EngineMode, Platform, PowerMode

NONE = "none"
"""Name of the state in which no unit is lost."""
MOST_CELLS = 10_000


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """A state of the board and its surroundings: power mode, thermal state, lost engine, operating condition."""

    mode: str
    thermal: str
    loss: str
    condition: str

    def __str__(self) -> str:
        return f"{self.mode}/{self.thermal}/{self.loss}/{self.condition}"

    @property
    def axes(self) -> tuple[str, str, str, str]:
        """Return the four coordinates in order."""
        return self.mode, self.thermal, self.loss, self.condition


@dataclass(frozen=True, slots=True)
class Axes:
    """The modes, thermal states, losses and conditions of a book; its cells are their product."""

    modes: tuple[str, ...]
    thermal: tuple[str, ...]
    losses: tuple[str, ...]
    conditions: tuple[str, ...]

    def cells(self) -> Iterator[Cell]:
        """Yield every cell, conditions varying slowest."""
        for condition, mode, thermal, loss in itertools.product(self.conditions, self.modes, self.thermal, self.losses):
            yield Cell(mode, thermal, loss, condition)


def axes_of(
    pipeline: Pipeline,
    platform: Platform,
    modes: Sequence[str] = (),
    thermal: Sequence[str] = (),
    losses: Sequence[str] | None = None,
    conditions: Sequence[str] = (),
) -> Axes:
    """Return the axes of a book, empty ones filled: all modes, thermal states, engines and conditions.

    `losses` None: every engine.  Raises UsageError for unknown names and for too many cells.
    """
    states = [state.name for state in platform.thermal_states] or [NOMINAL]
    engines = [engine.id for engine in platform.engines]
    known = {
        "thermal state": (thermal, states),
        "engine": (losses or (), engines),
        "operating condition": (conditions, [BASE, *(one.name for one in pipeline.conditions)]),
    }
    for what, (asked, names) in known.items():
        for name in asked:
            if name not in names and (what, name) != ("engine", NONE):
                raise UsageError(f"unknown {what} {name!r}", f"one of {', '.join(names)}")
    found = Axes(
        tuple(dict.fromkeys(_mode(platform, name) for name in modes)) or tuple(m.name for m in platform.modes),
        tuple(name for name in states if not thermal or name in thermal),
        (NONE, *(name for name in engines if losses is None or name in losses)),
        tuple(name for name in known["operating condition"][1] if not conditions or name in conditions),
    )
    count = len(found.modes) * len(found.thermal) * len(found.losses) * len(found.conditions)
    if count > MOST_CELLS:
        raise UsageError(f"{count} cells are more than the {MOST_CELLS} that a book may have", "name fewer of them")
    return found


def _mode(platform: Platform, name: str) -> str:
    try:
        return platform.mode(name).name
    except KeyError:
        names = ", ".join(mode.name for mode in platform.modes)
        raise UsageError(f"platform {platform.name!r} has no mode {name!r}", f"its modes: {names}") from None


@dataclass(slots=True)
class CellContext:
    """The platform and pipeline in each cell; costs are shared between cells as far as they are equal."""

    pipeline: Pipeline
    platform: Platform
    limits: Limits = NO_LIMITS
    _boards: dict[str, Platform] = field(default_factory=dict)
    _pipelines: dict[str, Pipeline] = field(default_factory=dict)
    _known: dict[tuple[str, str], CostCache] = field(default_factory=dict)

    def board(self, loss: str) -> Platform:
        """Return the platform with a lost engine off in all modes, and with its modes in every thermal state."""
        if loss not in self._boards:
            states = [state.name for state in self.platform.thermal_states] or [NOMINAL]
            modes = {
                (made := mode_in_state(self.platform, mode, state)).name: made
                for mode in self.platform.modes
                for state in states
            }
            reduced = tuple(
                replace(mode, engines={name: _off(s) if name == loss else s for name, s in mode.engines.items()})
                for mode in modes.values()
            )
            self._boards[loss] = replace(self.platform, modes=reduced)
        return self._boards[loss]

    def mode(self, cell: Cell) -> PowerMode:
        """Return the power mode of a cell, with the clocks of its thermal state."""
        board = self.board(cell.loss)
        slower = mode_in_state(self.platform, self.platform.mode(cell.mode), cell.thermal).name
        return board.mode(slower)

    def workload(self, cell: Cell) -> Pipeline:
        """Return the pipeline under the condition of a cell."""
        if cell.condition not in self._pipelines:
            self._pipelines[cell.condition] = under_condition(self.pipeline, cell.condition)
        return self._pipelines[cell.condition]

    def known(self, cell: Cell) -> CostCache:
        """Return the costs of a cell's pipeline on its platform, kept from one cell to the next."""
        key = (cell.loss, cell.condition)
        if key not in self._known:
            self._known[key] = CostCache(self.board(cell.loss), stage_work)
        return self._known[key]

    def stronger(self, cell: Cell, other: Cell) -> bool:
        """Return whether `cell` has all engines of `other`, none with fewer units or a lower clock.

        The condition must be the same and the memory as fast; limits on power are not compared.
        """
        if cell.condition != other.condition or cell.loss not in (NONE, other.loss):
            return False
        mine, its = self.mode(cell), self.mode(other)
        return mine.dram.value >= its.dram.value and all(
            mine.engines[name].units >= state.units and mine.engines[name].clock_hz >= state.clock_hz
            for name, state in its.engines.items()
        )

    def strength(self, cell: Cell) -> float:
        """Return a number that is larger for a stronger cell: units times clock, summed over engines."""
        engines = self.mode(cell).engines
        return sum(s.units * s.clock_hz / max(self.platform.engine(n).clock_hz.value, 1) for n, s in engines.items())


def _off(state: EngineMode) -> EngineMode:
    return replace(state, units=0, clock_hz=0, dynamic_mw=replace(state.dynamic_mw, value=0))
