"""How a plan is run, where the plan itself leaves it open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from socsched.planning.plan import Plan
from socsched.runtime.faults import Faults
from socsched.runtime.overload import Policies


@dataclass(frozen=True, slots=True)
class Options:
    """`executor`: one of `discipline.EXECUTORS`.  `in_flight`: frames under way at once when they are released as fast
    as it goes, and the streams of stream-per-frame.  `steal`: idle lanes take jobs of like ones.
    `shield`: while a more critical job is under way, less critical ones do not start, for a period of theirs at most.

    `awake_ns`: how long a worker whose next job is expected may stay awake for it on its processors; None means
    `anticipate.AUTO_NS` where these are its own by real-time scheduling, else not at all.

    `realtime`: off, auto, fifo or deadline (`realtime.chosen_class`).  `limp_home`: plans that may take over when an
    engine is lost, best first.  `hang_ns`: how long a job may run before its engine counts as lost; by default longer
    than its planned time, and with a plan to take over within its period.  `journal`: the file in which the trace
    survives the end of the process, `frames` the one for what is found in frames (`Trace.details` stays
    empty then); with both, memory does not grow however long a run goes on.
    """

    executor: str = "event-chained"
    in_flight: int = 1
    steal: bool = False
    shield: bool = False
    awake_ns: int | None = None
    realtime: str = "off"
    faults: Faults | None = None
    policies: Policies | None = None
    limp_home: tuple[Plan, ...] = ()
    hang_ns: int = 0
    journal: Path | None = None
    frames: Path | None = None


PLAIN = Options()
