"""Options of a run that the plan leaves open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from socsched.faults.model import Faults
from socsched.planning.plan import Plan
from socsched.runtime.arrivals import Arrivals, Results
from socsched.runtime.overload import Policies


@dataclass(frozen=True, slots=True)
class Options:
    """`executor`: one of `executor.rules.EXECUTORS`.  `in_flight`: concurrent frames if frames are released as soon as
    possible, and the streams of stream-per-frame.  `steal`: idle lanes take jobs of equivalent lanes.
    `shield`: less critical jobs wait while a more critical one is in progress, for at most one of their periods.

    `awake_ns`: how long a worker may stay awake on its cores for an expected job; None means `anticipate.AUTO_NS` if it
    owns its cores by real-time scheduling, otherwise 0.

    `realtime`: off, auto, fifo or deadline (`realtime.chosen_class`).  `limp_home`: failover plans for a lost engine,
    best first.  `hang_ns`: how long a job may run before its engine counts as lost; by default longer than its planned
    time and, with a failover plan, within its period.  `journal`: the file in which the trace survives the end of the
    process.  `frames`: the file for per-frame results (`Trace.details` then stays empty).  With both files, memory does
    not grow with the length of the run.  `topics`: by sensor, the topic that feeds it from MCAP files.

    `arrivals`: frames are released as they arrive from outside, instead of at planned times; `results` receives the
    results of frames, instead of `frames`.  Such a run has no end, and keeps no trace.

    `pace` "rate" releases at the planned rates, "asap" as soon as fewer than `in_flight` frames are in progress.
    `alone` lets only one job run at a time, whatever its lanes.  `stats` adds figures of all intermediate tensors to
    the results of frames, which costs time.  `observe` takes the outputs of all stages (stage, frame, tensors by port),
    in place of the results of frames.
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
    topics: Mapping[str, str] = field(default_factory=dict)
    arrivals: Arrivals | None = None
    results: Results | None = None
    pace: str = "rate"
    alone: bool = False
    stats: bool = False
    observe: Callable[[str, int, Mapping[str, Any]], None] | None = None


PLAIN = Options()
