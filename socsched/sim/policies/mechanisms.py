"""Mechanisms a policy may declare: how an engine is taken from a job, tokens, jobs beside each other, batches.

The kernel knows these and not the policies that use them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from socsched.cost.cost import Segment
from socsched.planning.plan import Task

WAYS = ("full", "segment", "none", "restart")
LOSES = ("in-flight", "job")
DRAINS = ("", "slowdown", "share", "completion")


@dataclass(frozen=True, slots=True)
class Taking:
    """How an engine is taken from a job that somebody more urgent follows, where software brings that about.

    `preemption` full | segment | none | restart, as `PlannedEngine.preemption` says; `kinds`: of engines it is for (the
    first that fits counts), none named: all that are not preempted fully by themselves.  `in_flight`: segments launched
    ahead, 0 for the engine's own.  `reset_ns`: who takes over waits while work is killed; `save_ns`: or while the state
    of a job that keeps its progress is saved, which then pays `restore_ns` on top of the engine's switch.

    `loses` of a restart: ``in-flight`` goes back to the first segment that may not be finished, `in_flight` before the
    last one launched and no further than where the job was resumed; ``job`` starts all over.

    `drain`: let a job that runs finish (looked at again at every dispatch) rather than take its engine, where

    - ``slowdown``: the one that waits would slow it down by more (what is left of the one that waits, in whole times of
      the one that runs) than the other way round;
    - ``share``: a larger share of it is left than of the one that waits;
    - ``completion``: both together would end later: what is left of it is at most what is left of the one that waits,
      and what saving and restoring take.
    """

    preemption: str
    kinds: tuple[str, ...] = ()
    in_flight: int = 0
    reset_ns: int = 0
    save_ns: int = 0
    restore_ns: int = 0
    loses: str = "in-flight"
    drain: str = ""

    def __post_init__(self) -> None:
        """Refuse names the kernel does not know."""
        named = ((self.preemption, WAYS), (self.loses, LOSES), (self.drain, DRAINS))
        for value, known in named:
            if value not in known:
                raise ValueError(f"{value!r} is none of {', '.join(repr(name) for name in known)}")

    def fits(self, kind: str, preemption: str) -> bool:
        """Return whether this is the way with an engine of a kind that has its own way of preemption."""
        return kind in self.kinds if self.kinds else preemption != "full"


@dataclass(frozen=True, slots=True)
class Tokens:
    """A job starts with its task's weight in tokens and earns that many more in every own execution time it waits.

    Candidates are those that have as many as the threshold: the largest of `levels` that some job reaches, or `fixed`.
    `strict`: more than that many.
    """

    levels: tuple[int, ...]
    fixed: int = 0
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Beside:
    """On an engine that one job has whole, the first of the order that fits beside it runs too, as its guest.

    `pace(task, segment, guest, its segment)`: ns that both segments take as a whole beside each other, host's first;
    None: not together.  It is asked once a pair, before time begins.  `kinds`: of engines, none named: all.  With
    `weigh` a guest is let in only where both end sooner in sum than one after the other; with `once` at most one
    segment of guests ends beside a host's.  Guests occupy no lanes; they take the energy that their work takes alone,
    and their memory traffic is counted but neither waits nor makes others wait.
    """

    pace: Callable[[Task, Segment, Task, Segment], tuple[int, int] | None]
    weigh: bool = False
    kinds: tuple[str, ...] = ()
    once: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """A job that starts takes waiting ones of its task along, `most(task)` in all.

    Every one more costs `more` thousandths of a job alone; they end together.  `kinds`: of engines, none named: all.
    """

    most: Callable[[Task], int]
    more: int
    kinds: tuple[str, ...] = ()
