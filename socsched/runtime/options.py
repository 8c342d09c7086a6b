"""Options of a run that the plan leaves open, and policies of overload."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from socsched.faults.model import Faults
from socsched.planning.plan import Plan, Task
from socsched.runtime.frames import Arrivals, Results


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a run computes with, and for how long.

    `scans` are files that feed the matching sensors in turn (`runtime.input_files`); they repeat only with `loop` or if
    `frames` asks for more.  Other sensors get synthetic data.  `scales` is the file written by `socsched calibrate`,
    for stages in int8.  `frames` counts frames of the LiDAR, or of the first sensor if there is none.
    """

    scans: Sequence[Path] | None = None
    weights: Path | None = None
    scales: Path | None = None
    frames: int | None = None
    duration_ns: int | None = None
    loop: bool = False
    seed: int = 0


PLAIN_INPUTS = Inputs()


@dataclass(frozen=True, slots=True)
class Options:
    """`executor`: one of `executor.settings.EXECUTORS`.  `in_flight`: concurrent frames if frames are released as soon
    as possible, and the streams of stream-per-frame.  `steal`: idle lanes take jobs of equivalent lanes.
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


# Overload handling by policies that the user sets per stage.
#
# skip     a job that would end late is dropped before it starts
# abort    a job that ends late is discarded: none of its successors runs
# degrade  a job that would end late runs the stage's cheaper compiled variant
# shed     while jobs of stages at least as critical as `shed.below` miss deadlines, stages below it get no jobs
#
#     stages: {decode: {policy: skip}, backbone: {policy: degrade, precision: int8}}
#     shed:   {below: hard, for: 1 s}

CRITICALITIES = ("soft", "firm", "hard")


@dataclass(frozen=True, slots=True)
class StagePolicy:
    """A stage's policy; for `degrade`, the `precision` and `params` of the cheaper variant."""

    policy: str
    precision: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policies:
    """The contents of a policy file; with an empty `shed_below`, nothing is shed."""

    stages: Mapping[str, StagePolicy] = field(default_factory=dict)
    shed_below: str = ""
    shed_ns: int = 1_000_000_000

    def cheaper(self, task: Task) -> Task | None:
        """Return the cheaper variant of the task, None if it has none."""
        chosen = self.stages.get(task.name)
        if chosen is None or chosen.policy != "degrade":
            return None
        return replace(task, precision=chosen.precision or task.precision, params={**task.params, **chosen.params})


def load_policies(path: str | Path, plan: Plan) -> Policies:
    """Read a policy file (YAML or JSON) against the names of `plan`; raise DescriptorError with all findings."""
    from socsched.descriptor.small_files import load_overload

    file = load_overload(path, (task.name for task in plan.tasks))
    stages = {
        name: StagePolicy(entry.policy, entry.precision or "", entry.params) for name, entry in file.stages.items()
    }
    return Policies(stages, file.shed.below, file.shed.duration) if file.shed else Policies(stages)
