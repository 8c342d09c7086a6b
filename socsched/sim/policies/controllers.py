"""Controllers that change the order of an engine during a simulation: declared here, or a custom class.

`Switching` and `Choosing` are evaluated inside the kernel, and only on units whose slack `slack_stealing` can bound; on
others their first order always applies.
"""

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


@dataclass(frozen=True, slots=True)
class Switching:
    """Two orders selected by load (share of slots in use, mean over about `window` samples, one every `period_ns`).

    `calm` applies once the load is below `low` and until it exceeds `high`, while all tasks have slack until the next
    sample; otherwise `safe`.  Terms must change only through a job's own progress.
    """

    safe: tuple[Term, Term]
    calm: tuple[Term, Term]
    low: float
    high: float
    window: int
    period_ns: int


@dataclass(frozen=True, slots=True)
class Choosing:
    """The order with the highest score over `learned.FEATURES`, every `period_ns`; the first if others risk a miss.

    While at most one job is present and there is no clock to set, the last choice holds.
    `choices`: orders, and whether to use the next slower operating point.  `weights`: a row of numbers per choice.
    """

    choices: tuple[tuple[tuple[Term, Term], bool], ...]
    weights: tuple[tuple[float, ...], ...]
    period_ns: int
