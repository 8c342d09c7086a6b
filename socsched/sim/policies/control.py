"""What may change the order of an engine while a simulation runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from socsched.plan.plan import Plan
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
