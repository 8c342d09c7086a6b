"""What a controller that changes the order of an engine during a simulation sees, and what it decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from socsched.planning.plan import Plan
    from socsched.sim.policies.terms import ReadyJob, Term


@dataclass(frozen=True, slots=True)
class View:
    """A controller's view of the slots it orders (one `unit`: slots of an engine that tasks compete for).

    `tasks`: the tasks that run there, as numbers in the plan.  `busy`: share of the engine's slots in use since the
    last sample.  `ready()`: the jobs there now, in the present order.  `next_frames()`: for every sensor and timer, by
    name, the instant of its next release and the frame's number.  `counts`: the kernel's counters so far, by name, one
    number per task (done, late, dropped, aborted, ...).
    """

    plan: Plan
    engine: str
    unit: int
    tasks: tuple[int, ...]
    busy: float
    ready: Callable[[], Sequence[ReadyJob]]
    next_frames: Callable[[], dict[str, tuple[int, int]]]
    counts: Mapping[str, Sequence[int]]


class Controller(Protocol):
    """Sets the ordering terms and the operating point every `period_ns`.

    One controller serves one unit of one simulation; it may keep any state.
    """

    period_ns: int

    def decide(self, view: View, now_ns: int) -> tuple[tuple[Term, Term], int | None]:
        """Return the order, and the operating point (index, slowest first; None: unchanged)."""
        ...
