"""The plan: everything a simulator, an executor or a reader needs, so that nothing has to be derived again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from socsched.descriptor.contention import ContentionChoice
from socsched.descriptor.limits import (
    Amount,
    Bytes,
    Lanes,
    Line,
    Milliwatts,
    NoName,
    Ns,
    PerSecond,
    PlanName,
    Positive,
    Preempts,
    Rows,
    SomeNs,
    Verdict,
)
from socsched.planning.evidence import Bandwidth, Memory, Power, Provenance, Uncertainty
from socsched.planning.requirements import Requirement
from socsched.planning.search_report import SearchReport
from socsched.planning.task import ExecutionTimes, Task

SCHEMA_VERSION = "1"
SOURCES = "socsched"
"""The input that stands for the program itself: its cost model, analyses and searches."""
__all__ = [
    "SCHEMA_VERSION", "SOURCES", "ChainResult", "Conflict", "ExecutionTimes", "Level", "Plan", "PlannedEngine",
    "PlannedSensor", "Task", "Throttle", "Transition", "Violation",
]  # fmt: skip


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
    """A deployment and its verdict (feasible | infeasible | undecided); infeasible only with `solver.proof`.

    `inputs`: the SHA-256 of everything that it was planned from, by name.  `requirements`: what was asked for; none of
    a plan that was not made from a pipeline.
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
    power: Power
    bandwidth: Bandwidth
    solver: SearchReport
    inputs: Mapping[Line, Line]
    base_mw: Milliwatts = 0
    dram_bandwidth: PerSecond = 0
    dram_picojoule_per_byte: Positive = 0.0
    contention: ContentionChoice = field(default_factory=ContentionChoice)
    provenance: Provenance = field(default_factory=Provenance)
    tool: Mapping[Line, Line] = field(default_factory=dict)
    throttle: Throttle | None = None
    conflicts: Annotated[tuple[Conflict, ...], Rows] = ()
    uncertainty: Uncertainty = field(default_factory=Uncertainty)
    memory: Memory = field(default_factory=Memory)
    requirements: Annotated[tuple[Requirement, ...], Rows] = ()

    def __post_init__(self) -> None:
        """Refuse a verdict of infeasible that rests on nothing."""
        if self.verdict == "infeasible" and self.solver.proof is None:
            raise ValueError("a plan is infeasible only with a proof, which rests on necessary conditions")
