"""What may change the order of an engine while a simulation runs: what is declared here, or a class of one's own.

`Switching` and `Choosing` are worked out inside the kernel, and only on units that `guard` knows something of; on
others their first order is all there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from socsched.planning.plan import Plan
    from socsched.sim.policies.terms import Ready, Term


@dataclass(frozen=True, slots=True)
class View:
    """What a controller sees of the lanes it orders (one `unit`: lanes of an engine that tasks compete for).

    `tasks`: those that run there, as numbers in the plan.  `busy`: share of its engine's lanes in use since the last
    look.  `ready()`: the jobs there now, in the present order.  `next_frames()`: of every sensor and timer, by name,
    the instant of its next release and the frame's number.  `counts`: what the kernel counted so far, by name, one
    number a task (done, late, dropped, aborted, ...).
    """

    plan: Plan
    engine: str
    unit: int
    tasks: tuple[int, ...]
    busy: float
    ready: Callable[[], Sequence[Ready]]
    next_frames: Callable[[], dict[str, tuple[int, int]]]
    counts: Mapping[str, Sequence[int]]


class Controller(Protocol):
    """Looks every `period_ns` and says by what terms jobs are ordered from now on, and at which operating point.

    One controller serves one unit of one simulation; it may remember what it likes.
    """

    period_ns: int

    def look(self, view: View, now_ns: int) -> tuple[tuple[Term, Term], int | None]:
        """Return the order, and the operating point (index, slowest first; None: as it is)."""
        ...


@dataclass(frozen=True, slots=True)
class Switching:
    """Two orders by load (shares of lanes in use, mean over about `window` looks, one every `period_ns`).

    `calm` below `low` and until it is above `high`, while slack is left for all tasks until the next look; otherwise
    `safe`.  Terms must be such that nothing but a job's own progress changes them.
    """

    safe: tuple[Term, Term]
    calm: tuple[Term, Term]
    low: float
    high: float
    window: int
    period_ns: int


@dataclass(frozen=True, slots=True)
class Choosing:
    """The order of the highest score by `learned.FEATURES`, every `period_ns`; the first where that might cost misses.

    While one job at most is there and no clock to set, the last choice stays.
    `choices`: orders, and whether at the next slower operating point.  `weights`: a row of numbers a choice.
    """

    choices: tuple[tuple[tuple[Term, Term], bool], ...]
    weights: tuple[tuple[float, ...], ...]
    period_ns: int
