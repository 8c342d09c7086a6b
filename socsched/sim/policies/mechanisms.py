"""Mechanisms a policy may declare: preemption of engines, tokens, co-running jobs.

The kernel implements these, independently of the policies that use them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from socsched.cost.cost import Segment
from socsched.planning.plan import Task

MODES = ("full", "segment", "none", "restart")
LOST_WORK = ("in-flight", "job")
DRAINS = ("", "slowdown", "share")


@dataclass(frozen=True, slots=True)
class PreemptionMechanism:
    """How a more urgent job preempts a running one, for preemption implemented in software.

    `mode` full | segment | none | restart, as in `PlannedEngine.preemption`.  `kinds`: engine kinds it applies to
    (the first match counts); empty: all engines without full preemption of their own.  `in_flight`: segments launched
    ahead, 0 for the engine's own.  `reset_ns`: delay of the preempting job while work is killed.  `save_ns`: its delay
    while the state of a job that keeps its progress is saved; that job later pays `restore_ns` on top of the engine's
    switch.

    `lost_work`, for a restart: ``in-flight`` goes back to the first segment that may be unfinished, `in_flight` before
    the last one launched but no further than where the job was resumed; ``job`` starts over.

    `drain`: let a running job finish (re-evaluated at every dispatch) rather than preempt it, if

    - ``slowdown``: the waiting job would slow it down by more (the rest of the waiting job, relative to the whole
      time of the running one) than the other way round;
    - ``share``: a larger share of it is left than of the waiting job.
    """

    mode: str
    kinds: tuple[str, ...] = ()
    in_flight: int = 0
    reset_ns: int = 0
    save_ns: int = 0
    restore_ns: int = 0
    lost_work: str = "in-flight"
    drain: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for names the kernel does not know."""
        named = ((self.mode, MODES), (self.lost_work, LOST_WORK), (self.drain, DRAINS))
        for value, known in named:
            if value not in known:
                raise ValueError(f"{value!r} is none of {', '.join(repr(name) for name in known)}")

    def applies_to(self, kind: str, preemption: str) -> bool:
        """Return whether this applies to an engine of a kind with the given preemption of its own."""
        return kind in self.kinds if self.kinds else preemption != "full"


@dataclass(frozen=True, slots=True)
class Tokens:
    """A job starts with its task's weight in tokens and earns that many more per own execution time it waits.

    Candidates are the jobs with at least as many as the threshold: the largest of `levels` that some job reaches, or
    `fixed`.  `strict`: more than that many.
    """

    levels: tuple[int, ...]
    fixed: int = 0
    strict: bool = False


@dataclass(frozen=True, slots=True)
class CoRunning:
    """On an engine occupied by one job as a whole, the first job in order that may co-run with it does.

    `times(host, segment, co-runner, its segment)`: duration in ns of each whole segment when both co-run, host's first;
    None: they do not co-run.  It is called once per pair, before the simulation starts.  `kinds`: engine kinds, empty:
    all.  With `once_per_segment` at most one co-running segment ends during a host's segment.  Co-runners occupy no
    slots; their energy is that of their work running alone, and their memory traffic is counted but neither waits nor
    delays other traffic.
    """

    times: Callable[[Task, Segment, Task, Segment], tuple[int, int] | None]
    kinds: tuple[str, ...] = ()
    once_per_segment: bool = False
