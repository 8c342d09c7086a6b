"""The plan: everything a simulator, an executor or a reader needs, so that nothing has to be derived again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from socsched.cost.cost import Segment
from socsched.descriptor.limits import (
    Amount,
    Bytes,
    Count,
    Criticality,
    Lane,
    Lanes,
    Line,
    Milliwatts,
    NoName,
    Ns,
    OnLate,
    Overflow,
    PerSecond,
    PlanName,
    Positive,
    Preempts,
    Rows,
    SignedNs,
    SomeNs,
    Verdict,
)

SCHEMA_VERSION = "1"


@dataclass(frozen=True, slots=True)
class Level:
    """An operating point available to an engine at run time: clock, and dynamic power with all lanes busy (mW)."""

    clock_hz: PerSecond
    dynamic_mw: Milliwatts


@dataclass(frozen=True, slots=True)
class PlannedEngine:
    """An engine in the planned mode, as seen by scheduling.

    `lanes`: number of jobs that can run concurrently (online cores; 1 for an engine that a job occupies whole).
    `preemption`: full | segment | none | restart (the running segment is killed at once and starts again later; the
    preempting job waits `reset_ns`).  `switch_ns` is paid by a job that resumes, `migration_ns` in addition when it
    resumes on other lanes, `reshape_ns` by a job whose lanes were last used in another grouping.  `in_flight`: segments
    launched ahead, which run before a preemption takes effect (1: the running one).  `policy`: see `sim.policies`;
    `quantum_ns` for policies with a time slice.  `bandwidth`: bytes/s this engine reaches alone.  Power in mW:
    `idle_mw` always, `dynamic_mw` with all lanes busy (proportional to busy lanes).  `capacities`: speed of each lane,
    1024 for the speed costs refer to; empty: all equal.  `memory_bytes`: room for weights, fetched at `swap_bandwidth`
    (bytes/s) when absent; 0: no limit.  `levels`: operating points, slowest first, the last being the one costs refer
    to; `governor`: static | ccedf.  `linger_ns`: time the engine stays with a process after use, unless its
    `quantum_ns` ends earlier; 0: none.
    """

    id: PlanName
    kind: PlanName
    lanes: Lanes
    preemption: Preempts
    switch_ns: Ns
    policy: Line
    bandwidth: PerSecond
    idle_mw: Milliwatts
    dynamic_mw: Milliwatts
    migration_ns: Ns = 0
    reshape_ns: Ns = 0
    reset_ns: Ns = 0
    in_flight: Lanes = 1
    quantum_ns: Ns = 0
    capacities: tuple[Lanes, ...] = ()
    memory_bytes: Bytes = 0
    swap_bandwidth: PerSecond = 0
    levels: tuple[Level, ...] = ()
    governor: Line = "static"
    linger_ns: Ns = 0


@dataclass(frozen=True, slots=True)
class ExecutionTimes:
    """Execution times of a task's jobs (ns, ascending): equally likely measured samples, or quantiles at equal steps.

    With `interpolate`, values between neighbouring quantiles are drawn too.
    """

    values_ns: tuple[Ns, ...]
    interpolate: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """One schedulable task of the plan: a stage, or a conversion on a transition.

    Trigger: `after` (task or sensor names, all of which must deliver frame k) or `period_ns` with `offset_ns`; a
    data-triggered task also has the period of its sensor in `period_ns`, and `timer` False.  `reads`: latest outputs
    sampled at start.  `lanes`: the lanes of `engine` a job occupies, all of them together.  `cost_ns` alone, `wcet_ns`
    under the worst co-running traffic.  `priority`: 0 is highest.  `deadline_ns`: relative to the release of the frame
    at the sensor or timer, the deadline EDF orders by.  `jitter_ns`: latest activation after that release, as analysed.

    `width`: number of `lanes` a job takes wherever they are free; 0: all of them.  `overflow`: the frame dropped when
    more than `queue` wait: the newest, or the oldest.  `on_late`: treatment of a job that cannot meet its deadline:
    continue | skip (never started) | abort (at its deadline) | degrade (runs `degraded` instead).  `times`: execution
    times drawn for each job, None for `cost_ns`.  `release_jitter_ns`: how much later than its nominal instant a
    timer's job becomes ready (deadlines count from the instant); `gap_ns`: how much later than its period a sporadic
    job arrives.  `weights_bytes`: weights that must be in the engine's memory.  `budget_ns` of every `server_ns`:
    reservation of a task under a policy that serves reservations.

    `closed_by`: for a timer in a closed loop; its next frame waits until this task has completed the last one, and
    until `period_ns` (and up to `gap_ns`) after that one arrived.  `process`: the process that lingering engines stay
    with; empty: the task's own.
    """

    name: PlanName
    kind: PlanName
    engine: PlanName
    lanes: tuple[Lane, ...]
    precision: NoName
    after: tuple[PlanName, ...]
    reads: tuple[PlanName, ...]
    timer: bool
    period_ns: SomeNs
    offset_ns: Ns
    queue: Count
    cost_ns: Ns
    wcet_ns: Ns
    bytes: Bytes
    energy_uj: Amount
    segments: tuple[Segment, ...]
    priority: Count
    deadline_ns: SignedNs
    jitter_ns: Ns
    criticality: Criticality
    provenance: Line
    source: Line
    error: Positive
    model: Line | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    why: Line = ""
    width: Count = 0
    overflow: Overflow = "newest"
    on_late: OnLate = "continue"
    degraded: tuple[Segment, ...] = ()
    times: ExecutionTimes | None = None
    release_jitter_ns: Ns = 0
    gap_ns: Ns = 0
    weights_bytes: Bytes = 0
    budget_ns: Ns = 0
    server_ns: Ns = 0
    closed_by: NoName = ""
    process: NoName = ""


@dataclass(frozen=True, slots=True)
class PlannedSensor:
    """A source of frames in the plan (ns, bytes); `gap_ns`: how much later than its period a frame may arrive."""

    name: PlanName
    period_ns: SomeNs
    offset_ns: Ns
    jitter_ns: Ns
    bytes_per_frame: Bytes
    gap_ns: Ns = 0


@dataclass(frozen=True, slots=True)
class Transition:
    """A hand-over between stages on different engines, precisions or layouts; `task` names the conversion, if any."""

    source: PlanName
    sink: PlanName
    bytes: Bytes
    layout_from: Line
    layout_to: Line
    dtype_from: Line
    dtype_to: Line
    engine: NoName
    task: NoName
    cost_ns: Ns


@dataclass(frozen=True, slots=True)
class Throttle:
    """Protection of the board: every `period_ns` the power and temperature of that time are evaluated.

    Above `cap_mw` (0: no cap), or at `trip_mc` (thousandths of a degree Celsius, 0: never), the engine that draws most
    goes one operating point down; below `recover` of the cap and `recover_mc`, the engine lowered last goes one up
    again.  Temperature: one lumped mass, dT/dt = (ambient + P R - T) / tau, with R in mK/W and tau in ns.
    """

    period_ns: SomeNs
    cap_mw: Milliwatts = 0
    recover: Positive = 0.9
    ambient_mc: Amount = 25_000
    resistance_mk_per_w: Amount = 0
    time_constant_ns: Ns = 0
    trip_mc: Amount = 0
    recover_mc: Amount = 0


@dataclass(frozen=True, slots=True)
class ChainResult:
    """An end-to-end requirement: expected latency without interference, upper bound (None: no bound exists), in ns.

    `test`: the analysis that gives the bound.
    """

    name: PlanName
    path: tuple[PlanName, ...]
    deadline_ns: Ns
    expected_ns: Amount
    bound_ns: Amount | None
    max_age_ns: Ns | None
    terms: tuple[tuple[Line, Amount], ...]
    test: Line = ""


@dataclass(frozen=True, slots=True)
class Violation:
    """An unmet requirement: demand > bound by `gap`; `terms` add up to the demand, `levers` would close the gap."""

    requirement: Line
    demand: Amount
    bound: Amount
    gap: Amount
    unit: Line
    terms: tuple[tuple[Line, Amount], ...]
    levers: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Requirements that are not met together; `minimal`: the rest can be met without any one of them.

    Each has the demand, bound and terms of a plan that meets the others.  `proved`: no mapping meets them; otherwise a
    search of `tried` mappings found none.
    """

    requirements: tuple[Violation, ...]
    proved: bool
    minimal: bool
    tried: Amount


@dataclass(frozen=True, slots=True)
class Plan:
    """A deployment and its verdict (feasible | infeasible | undecided).

    `contention`: DRAM contention model and its parameters (`cost.contention`), empty for max-min fair sharing.
    """

    platform: PlanName
    mode: PlanName
    pipeline: PlanName
    verdict: Verdict
    policy: Line
    engines: Annotated[tuple[PlannedEngine, ...], Rows]
    sensors: Annotated[tuple[PlannedSensor, ...], Rows]
    tasks: Annotated[tuple[Task, ...], Rows]
    transitions: Annotated[tuple[Transition, ...], Rows]
    chains: Annotated[tuple[ChainResult, ...], Rows]
    violations: Annotated[tuple[Violation, ...], Rows]
    power: Mapping[str, Any]
    bandwidth: Mapping[str, Any]
    solver: Mapping[str, Any]
    inputs: Mapping[Line, Line]
    base_mw: Milliwatts = 0
    dram_bandwidth: PerSecond = 0
    dram_picojoule_per_byte: Positive = 0.0
    contention: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    tool: Mapping[Line, Line] = field(default_factory=dict)
    throttle: Throttle | None = None
    conflicts: Annotated[tuple[Conflict, ...], Rows] = ()
    uncertainty: Mapping[str, Any] = field(default_factory=dict)
