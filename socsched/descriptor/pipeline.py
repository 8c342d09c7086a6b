"""The workload: sensors, stages, cause-effect chains; read from YAML by `pipeline_file.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from socsched.descriptor.conditions import Condition
from socsched.descriptor.platform import Figure, Source


@dataclass(frozen=True, slots=True)
class Sensor:
    """A source of frames: period, offset and release jitter in ns, bytes written to DRAM per frame.

    `gap_ns`: for a sporadic sensor, how much later than its period the next frame may arrive.  `columns` of the rows of
    its recorded scans and the type of their numbers, () where they are to be detected.  `source` (a key of
    `Pipeline.sources`) or `assumed` gives the provenance of its numbers.
    """

    name: str
    kind: str
    period_ns: int
    offset_ns: int = 0
    jitter_ns: int = 0
    bytes_per_frame: int = 0
    source: str = ""
    assumed: str = ""
    gap_ns: int = 0
    columns: tuple[str, ...] = ()
    column_type: str = "float32"


PER_POINT = 1000
"""Accuracy is counted in thousandths of a point."""
PER_COST = 10**9
"""Factors on a planned cost are whole numbers of 1/`PER_COST`."""


@dataclass(frozen=True, slots=True)
class Execution:
    """Execution times of jobs: ascending, equally likely `values`, or quantiles at equal steps with `interpolate`.

    Values are in ns, or with `relative` in 1/`PER_COST` of the planned cost.
    """

    values: tuple[int, ...]
    relative: bool
    interpolate: bool

    def times_ns(self, cost_ns: int) -> tuple[int, ...]:
        """Return the values in ns for a stage of this planned cost, rounded up."""
        return tuple(-(-value * cost_ns // PER_COST) if self.relative else value for value in self.values)


@dataclass(frozen=True, slots=True)
class Degraded:
    """A cheaper variant of a stage: in another `precision`, or at a `cost` in ns (`relative`: 1/`PER_COST` of it)."""

    precision: str
    cost: int = 0
    relative: bool = False


@dataclass(frozen=True, slots=True)
class High:
    """The time of a stage at the high level of criticality: ns, or with `relative` in 1/`PER_COST` of its cost."""

    cost: int
    relative: bool

    def time_ns(self, cost_ns: int) -> int:
        """Return the time in ns for a stage of this planned cost, rounded up, and no less than the cost."""
        return max(-(-self.cost * cost_ns // PER_COST) if self.relative else self.cost, cost_ns)


@dataclass(frozen=True, slots=True)
class Anchor:
    """A known execution time of a stage: what was run where, and how long it took.

    `platform` and `mode` name a described platform, or are any text for other hardware: `engine` is then matched as an
    engine *kind* of the planned platform, and `scale` converts the time to its fastest setting.  `engine` is an engine
    id or kind; `units` the number of its units the time holds for (0 = all).  `scales_with` states what the time scales
    with on other described hardware: "performance" of one unit (general code), "bandwidth" of the engine, "compute"
    (units x clock x operations per cycle), or "nothing".  `slice_ns`: the longest part that runs without preemption on
    an engine that preempts between segments, 0: all of it.
    """

    platform: str
    mode: str
    engine: str
    precision: str
    time_ns: Figure
    units: int = 0
    scale: float = 1.0
    scales_with: str = "performance"
    slice_ns: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """One schedulable piece of work.

    Exactly one trigger: `after` (sensors or stages; runs when all of them have delivered frame k) or `period_ns` (runs
    on its own timer).  `reads` are stages or sensors whose latest finished output is sampled at start.  `model` names a
    built-in model ("pointpillars.backbone"), or is "onnx" with the param `file` (absolute path); a stage without a
    model is known by its execution times only.  `source` or `assumed` gives the provenance of its plain numbers.
    `params` are passed to the model.  `precisions` are those whose accuracy the user accepts, best first.  `queue` is
    the largest number of frames waiting at the stage; on overflow the `overflow` (newest | oldest) frame is dropped.
    `open_queue`: no number is stated, so that the planner may choose a larger one.  `slice_ns`: length of time slices
    chosen by the planner for times that state none, on engines that declare slices (0: jobs run in one piece).
    `high`: its time at the high level of criticality, None if it has one time only.
    `on_late` is the treatment of a job that cannot meet its deadline: continue | skip (not started) | abort (at its
    deadline) | degrade (runs as `degraded`).  `execution`: None where a job takes its planned time.  `jitter_ns`:
    largest timer lateness.  `output_bytes` is the output size of a stage without model (a model knows its own
    outputs).  `engines`: ids or kinds of engines it may run on, empty for any.  `share` is the most engine units one
    job can use (1 for single-threaded code, 0 = all).  `losses`: accuracy loss of the result by precision, in
    1/`PER_POINT` of a point of the pipeline's measure.
    """

    name: str
    title: str
    model: str | None
    after: tuple[str, ...] = ()
    period_ns: int | None = None
    offset_ns: int = 0
    reads: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    precisions: tuple[str, ...] = ("fp32",)
    costs: tuple[Anchor, ...] = ()
    queue: int = 1
    share: int = 0
    output_bytes: int = 0
    criticality: str = "firm"
    source: str = ""
    assumed: str = ""
    overflow: str = "newest"
    on_late: str = "continue"
    execution: Execution | None = None
    degraded: Degraded | None = None
    jitter_ns: int = 0
    engines: tuple[str, ...] = ()
    losses: Mapping[str, int] = field(default_factory=dict)
    open_queue: bool = False
    slice_ns: int = 0
    high: High | None = None

    @property
    def modelled(self) -> bool:
        """Return whether the stage has a model to compile or call: built in, or a network from a file."""
        return self.model is not None


@dataclass(frozen=True, slots=True)
class Chain:
    """A cause-effect chain from a sensor or timer stage to an effect, with its end-to-end deadline (ns).

    `path` starts with a sensor or a timer-triggered stage; neighbours are linked by `after` or `reads`.  `max_age_ns`:
    oldest data the last stage may act on, None when not required.  `source` (a key of `Pipeline.sources`) or `assumed`
    justifies the requirement.
    """

    name: str
    path: tuple[str, ...]
    deadline_ns: int
    max_age_ns: int | None = None
    criticality: str = "firm"
    source: str = ""
    assumed: str = ""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One workload; `accuracy_budget`: total accuracy loss allowed over all stages (1/`PER_POINT` points)."""

    name: str
    title: str
    sensors: tuple[Sensor, ...]
    stages: tuple[Stage, ...]
    chains: tuple[Chain, ...]
    sources: Mapping[str, Source] = field(default_factory=dict)
    file: str = ""
    accuracy_budget: int | None = None
    conditions: tuple[Condition, ...] = ()

    def stage(self, name: str) -> Stage:
        """Return the stage of this name; KeyError when there is none."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)
