"""A task of the plan, its fields grouped by concern: activation, placement, execution and scheduling.

Functions that need one concern only may take that class instead of a whole task.  The fields stay flat: concerns as
nested objects would add a name to every access and to every `replace` of one field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from socsched.cost.cost import Segment, Shared
from socsched.descriptor.limits import (
    Amount,
    Bytes,
    Count,
    Criticality,
    Json,
    Lane,
    Line,
    NoName,
    Ns,
    OnLate,
    Overflow,
    PlanName,
    Positive,
    SignedNs,
    SomeNs,
)


@dataclass(frozen=True, slots=True)
class ExecutionTimes:
    """Execution times of a task's jobs (ns, ascending): equally likely measured samples, or quantiles at equal steps.

    With `interpolate`, values between neighbouring quantiles are drawn too.
    """

    values_ns: tuple[Ns, ...]
    interpolate: bool = False


@dataclass(frozen=True, kw_only=True)
class Activation:
    """The event that creates a job, and the frames that wait for it.

    Trigger: `after` (task or sensor names, all of which must deliver frame k), or a `timer` with `period_ns` and
    `offset_ns`; a data-triggered task has the period of its sensor in `period_ns`.  `reads`: latest outputs sampled at
    start.  `jitter_ns`: latest activation after the release of the frame at the sensor or timer, as analysed.
    `release_jitter_ns`: how much later than its nominal instant a timer's job becomes ready (deadlines count from the
    instant); `gap_ns`: how much later than its period a sporadic job arrives.  `closed_by`: for a timer in a closed
    loop; its next frame waits until this task has completed the last one, and until `period_ns` (and up to `gap_ns`)
    after that one arrived.  `overflow`: the frame dropped when more than `queue` wait: the newest, or the oldest.
    """

    __slots__ = ()
    after: tuple[PlanName, ...]
    reads: tuple[PlanName, ...]
    timer: bool
    period_ns: SomeNs
    offset_ns: Ns
    queue: Count
    jitter_ns: Ns
    overflow: Overflow = "newest"
    release_jitter_ns: Ns = 0
    gap_ns: Ns = 0
    closed_by: NoName = ""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The engine and the lanes that a job occupies, all of them together.

    `width`: number of `lanes` a job takes wherever they are free; 0: all of them.  `process`: the process that
    lingering engines stay with; empty: the task's own.  `weights_bytes`: weights that must be in the engine's memory.
    `runtime`: the program that computes the stage there, whose time `cost_ns` is: tvm (a network compiled by socsched),
    native (a function compiled by socsched), or the toolchain the stage is handed to (tensorrt, qnn, rknn); empty
    where no program is known.
    """

    __slots__ = ()
    engine: PlanName
    lanes: tuple[Lane, ...]
    precision: NoName
    width: Count = 0
    process: NoName = ""
    weights_bytes: Bytes = 0
    runtime: NoName = ""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The time, traffic and energy of a job, and the figures they rest on.

    `cost_ns` alone, `wcet_ns` under the worst co-running traffic; `bytes` to or from DRAM; `energy_uj` without idle
    power.  `times`: execution times drawn for each job, None for `cost_ns`.  `provenance`: the weakest kind of figure
    that carries the time, from `source`, with a relative `error`.  `high_ns`: the time of a job alone at the high
    level of criticality, which begins when a job runs for longer than its `cost_ns`; 0: the task has one time.
    `shared` of `cost_ns`: what a share of the engine takes longer than all of it.
    """

    __slots__ = ()
    cost_ns: Ns
    wcet_ns: Ns
    bytes: Bytes
    energy_uj: Amount
    segments: tuple[Segment, ...]
    provenance: Line
    source: Line
    error: Positive
    times: ExecutionTimes | None = None
    high_ns: Ns = 0
    shared: Shared | None = None


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """The order in which jobs run, and the treatment of late ones.

    `priority`: 0 is highest.  `deadline_ns`: relative to the release of the frame at the sensor or timer, the deadline
    EDF orders by.  `on_late`: treatment of a job that cannot meet its deadline: continue | skip (never started) | abort
    (at its deadline) | degrade (runs `degraded` instead).  `budget_ns` of every `server_ns`: reservation of a task
    under a policy that serves reservations.
    """

    __slots__ = ()
    priority: Count
    deadline_ns: SignedNs
    criticality: Criticality
    on_late: OnLate = "continue"
    degraded: tuple[Segment, ...] = ()
    budget_ns: Ns = 0
    server_ns: Ns = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Activation, Placement, Execution, Scheduling):
    """One schedulable task of the plan: a stage, or a conversion on a transition (`kind`).

    `model` and `params`: the stage's model and the parameters it was given, plain data that the model checks; a part or
    tile of a network has one more (`models.parts`).  `why`: the reason for its placement.
    """

    name: PlanName
    kind: PlanName
    model: Line | None = None
    params: Mapping[str, Json] = field(default_factory=dict)
    why: Line = ""

    def room_ns(self) -> int:
        """Return the longest response (ns) with which no frame is dropped.

        A job that ends by then, and may take `cost_ns`, has begun before the frame `queue` frames later arrives.
        """
        return max(self.queue, 1) * self.period_ns + max(self.cost_ns - 1, 0)


LOAD = "load:"
"""Start of the names of tasks that load weights (`planning.residency`)."""
SLOT = "slot:"
"""Start of the names of chains that keep the loads of a slot apart, which its networks take turns in."""
COPY = "copy"
"""Kind of the engine that stands for a copy engine, and the ending of its name."""

FILE_ORDER = (
    "name", "kind", "engine", "lanes", "precision", "runtime", "after", "reads", "timer", "period_ns", "offset_ns",
    "queue", "cost_ns", "wcet_ns", "bytes", "energy_uj", "segments", "priority", "deadline_ns", "jitter_ns",
    "criticality", "provenance", "source", "error", "model", "params", "why", "width", "overflow", "on_late",
    "degraded", "times", "release_jitter_ns", "gap_ns", "weights_bytes", "budget_ns", "server_ns", "closed_by",
    "process", "high_ns", "shared",
)  # fmt: skip
"""The fields of a task in the order of plan.json."""
_READ = attrgetter(*FILE_ORDER)
_WRITE = [getattr(Task, name).__set__ for name in FILE_ORDER]


def changed(task: Task, **values: Any) -> Task:
    """Return a task with other values of some fields; `dataclasses.replace` takes more than twice as long."""
    made: Task = object.__new__(Task)
    for write, value in zip(_WRITE, _READ(task), strict=True):
        write(made, value)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made
