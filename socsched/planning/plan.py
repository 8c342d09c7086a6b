"""The plan: everything a simulator, an executor or a reader needs, so that nothing has to be derived again.

From top to bottom: necessary conditions and the proofs resting on them; figures and their evidence; what was asked for;
the report of the search; the plan itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from socsched.descriptor.limits import (
    Amount,
    Bytes,
    Json,
    Lanes,
    Line,
    LongLine,
    Milliwatts,
    NoName,
    NonNegative,
    Ns,
    Number,
    Objective,
    Objectives,
    PerSecond,
    PlanName,
    Positive,
    Preempts,
    Rows,
    Setting,
    SomeNs,
    Verdict,
)
from socsched.descriptor.pipeline import Chain, Pipeline, Sensor, Stage
from socsched.descriptor.platform import ContentionChoice
from socsched.planning.task import ExecutionTimes as ExecutionTimes
from socsched.planning.task import Task as Task

Theorem = Literal[
    "capacity", "joint capacity", "period", "path", "traffic", "power", "memory", "accuracy", "resident jobs",
    "no engine",
]  # fmt: skip
THEOREMS: tuple[Theorem, ...] = get_args(Theorem)
PAGE = "docs/proofs.md"
BOUND, SEARCH = "lower bound", "all mappings"
"""Methods of proofs: bounds that hold for every mapping, and a search that finds each mapping excluded by one."""


@dataclass(frozen=True, slots=True)
class Necessity:
    """A necessary condition that does not hold: every schedule needs `demand`, which exceeds `bound`.

    `terms` add up to the demand; `theorem`: why nothing can need less.  ValueError for a condition that holds.
    """

    theorem: Theorem
    requirement: Line
    demand: Amount
    bound: Amount
    unit: Line
    terms: tuple[tuple[Line, Amount], ...]

    def __post_init__(self) -> None:
        """Refuse what is no violated condition."""
        if self.demand <= self.bound:
            raise ValueError(f"{self.requirement}: a demand of {self.demand} is within {self.bound}")

    @property
    def section(self) -> str:
        """Return the place of the theorem in the documentation."""
        return f"{PAGE}#{anchor(self.theorem)}"

    @property
    def unmet(self) -> Violation:
        """Return the condition as an unmet requirement, of the least demand that there is."""
        return Violation(self.requirement, self.demand, self.bound, self.demand - self.bound, self.unit, self.terms, ())


def anchor(theorem: Theorem) -> str:
    """Return the anchor of a theorem's heading in docs/proofs.md."""
    return f"infeasible-{theorem.replace(' ', '-')}"


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof that no mapping meets every requirement: the `method`, the argument in words, and what it rests on.

    With `BOUND`, every mapping violates each necessity; with `SEARCH`, every mapping violates one of them, of which the
    least demands are listed.  ValueError without any necessity.
    """

    method: Line
    text: LongLine
    necessities: tuple[Necessity, ...]

    def __post_init__(self) -> None:
        """Refuse a proof of nothing."""
        if not self.necessities:
            raise ValueError("a proof rests on at least one necessity")


Terms = Annotated[tuple[tuple[Line, Number], ...], Rows]
"""The parts of a sum by name."""


@dataclass(frozen=True, slots=True)
class Power:
    """Expected mean power and the cap of the mode or the user (mW); None if unknown, or without a cap.

    `terms`: base, idle, dynamic and DRAM power, which add up to the mean.
    """

    expected_mw: NonNegative | None = None
    cap_mw: NonNegative | None = None
    terms: Terms = ()


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Expected mean DRAM traffic and its limit (GB/s), None if unknown; `terms`: the traffic of tasks and sensors."""

    expected_gbps: NonNegative | None = None
    cap_gbps: NonNegative | None = None
    terms: Terms = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that a plan keeps in main memory, and those it may have; None if unknown.

    `terms`: weights, activations and buffers by stage and sensor, which add up to `needed_bytes`.
    """

    needed_bytes: NonNegative | None = None
    capacity_bytes: NonNegative | None = None
    terms: Terms = ()


@dataclass(frozen=True, slots=True)
class Provenance:
    """The figures behind the time on the chains' critical paths.

    `critical_path`: the share of that time by kind of figure (0 to 1); `error`: its relative error.  None if unknown.
    """

    critical_path: Mapping[Line, NonNegative] | None = None
    error: NonNegative | None = None


@dataclass(frozen=True, slots=True)
class Tie:
    """A place for a stage that is better or worse than the planned one by less than the error of the costs.

    `difference` and `error` have the unit of the objective: ns, mW for energy, a share for throughput.
    """

    stage: Line
    instead: Line
    difference: Number
    error: Number


@dataclass(frozen=True, slots=True)
class Measurement:
    """The cost to measure first: its estimate and interval (ns), and the effect that measuring it may have.

    `verdict_flips`: chance that it overturns the verdict (0 to 1); `gain`: otherwise, the expected gain in the
    objective.
    """

    stage: Line
    engine: Line
    precision: Line
    estimate_ns: Number
    low_ns: Number
    high_ns: Number
    verdict_flips: Number
    gain: Number
    why: Line


@dataclass(frozen=True, slots=True)
class Condition:
    """The break-even of a chain: the mapping is feasible while `stage` takes at most `factor` times its stated cost.

    `stage` is the one on the chain's path whose interval reaches furthest (ns); it ends at `interval` times the cost.
    Factors are rounded down, and beyond them some requirement of the plan is not proved.
    """

    chain: Line
    stage: Line
    factor: Number
    interval: Number


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Choices that the errors of costs leave open under an objective, None if they were not examined.

    Of a feasible plan: the `conditions` of its proof, one for every chain, and `upper`, the verdict with all costs at
    the upper ends of their intervals at once; local deadlines and priorities are set anew for other costs.
    `unchanged`: what no single cost, measured anywhere within its interval, would change: the ``verdict`` (of a plan
    that is not feasible, with one stage at any place and the others as planned), the ``choice`` of places under the
    objective.  Neither is listed if not all costs were examined.
    """

    objective: Objective | None = None
    ties: Annotated[tuple[Tie, ...], Rows] = ()
    measure: Measurement | None = None
    conditions: Annotated[tuple[Condition, ...], Rows] = ()
    upper: Line | None = None
    unchanged: tuple[Line, ...] = ()


AUTO = "auto"
"""The mode that a plan was asked for where every mode may be chosen."""
PLATFORM, PIPELINE = "platform", "pipeline"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement: `kind` of a `subject` ("deadline" of "chain detection"), as a number or as names.

    `value` is in ns, bytes, mW, bytes/s, or 1/`PER_POINT` points, None where `names` state it.  A requirement that is
    not stated is not listed.
    """

    subject: Line
    kind: Line
    value: Amount | None = None
    names: tuple[PlanName, ...] = ()


def requirements_of(pipeline: Pipeline) -> tuple[Requirement, ...]:
    """Return the requirements that a pipeline states."""
    found = [one for chain in pipeline.chains for one in of_chain(chain)]
    found += [one for sensor in pipeline.sensors for one in _of_sensor(sensor)]
    found += [one for stage in pipeline.stages for one in _of_stage(stage)]
    if pipeline.accuracy_budget is not None:
        found.append(Requirement(PIPELINE, "accuracy budget", pipeline.accuracy_budget))
    return tuple(found)


def of_chain(chain: Chain) -> Iterator[Requirement]:
    """Yield what a chain requires."""
    subject = f"chain {chain.name}"
    yield Requirement(subject, "path", names=chain.path)
    yield Requirement(subject, "deadline", chain.deadline_ns)
    if chain.max_age_ns is not None:
        yield Requirement(subject, "max age", chain.max_age_ns)
    yield Requirement(subject, "criticality", names=(chain.criticality,))


def _of_sensor(sensor: Sensor) -> Iterator[Requirement]:
    subject = f"sensor {sensor.name}"
    yield Requirement(subject, "period", sensor.period_ns)
    for kind, value in (
        ("offset", sensor.offset_ns),
        ("jitter", sensor.jitter_ns),
        ("sporadic", sensor.gap_ns),
        ("frame size", sensor.bytes_per_frame),
    ):
        if value:
            yield Requirement(subject, kind, value)


def _of_stage(stage: Stage) -> Iterator[Requirement]:
    subject = f"stage {stage.name}"
    yield Requirement(subject, "precisions", names=stage.precisions)
    yield Requirement(subject, "criticality", names=(stage.criticality,))
    if stage.on_late != "continue":
        yield Requirement(subject, "on late", names=(stage.on_late,))
    if not stage.open_queue:
        yield Requirement(subject, "queue", stage.queue)
    if stage.overflow != "newest":
        yield Requirement(subject, "overflow", names=(stage.overflow,))
    if stage.engines:
        yield Requirement(subject, "engines", names=stage.engines)
    for kind, value in (("period", stage.period_ns), ("offset", stage.offset_ns), ("jitter", stage.jitter_ns)):
        if value:
            yield Requirement(subject, kind, value)
    for precision, loss in stage.losses.items():
        yield Requirement(subject, f"accuracy loss in {precision}", loss)


TIME_LIMIT = "time limit"
"""Status of a search that a limit on time ended."""
IMPORTED = "imported"
"""`SearchReport.name` of a plan that describes a recording: nothing was searched for."""


@dataclass(frozen=True, slots=True)
class ModeResult:
    """The verdict and objective value of the best plan in a power mode."""

    verdict: Line | None = None
    value: Number | None = None


@dataclass(frozen=True, slots=True)
class OpenRequirement:
    """A requirement of an undecided plan: the `demand` of the best mapping found, and the `bound` it exceeds.

    `least`: what no mapping is below, None if unknown; between it and `bound` another mapping may lie.
    """

    requirement: Line
    demand: Number
    least: Number | None
    bound: Number
    unit: Line


@dataclass(frozen=True, slots=True)
class SearchReport:
    """The planner or solver, how it ended, and the value of the plan in the unit of the first objective.

    The unit is ns for latency and longest, mW for energy, a share for throughput and slack.  `bound`: a lower bound of
    the value, None if unknown; `gap`: the share of the value above it, None for a plan that does not meet every
    requirement; `overrun`: the share by which requirements are exceeded, summed over them.  `evaluated`: mappings
    tried; `modes`: the outcome in each power mode; `notes`: stage -> the reason why it is cut as it is, or whole.

    Of a CP-SAT search: `proposed` mappings, `conflict`, the requirements it cannot meet together; where networks may be
    cut, the `scope` of its proof and its status for `whole_stages`.  Of an infeasible plan: the `proof`.  Of a
    planner other than the built-in search: its `source`, `options` and `facts`.  Of a refined plan: the number of
    `rounds`, and whether they reached a `fixed_point`.  Of the best of several planners: `compared_latency_ns`, the
    simulated latency (ns) of each.  Where the first search of a portfolio found no feasible plan: `portfolio`, the
    searches tried in order, and `found_by`, the one that found this plan, if any.  Of an undecided plan: the `open`
    requirements, and what would decide them (`decide`), a line each.  `chosen`: what the planner chose beyond the
    mapping, where the pipeline states nothing (`planning.choices`), by stage.  What does not apply is None.

    `cut_off`: true where a limit on time ended the search before its budget of evaluations did, so that another run may
    give another plan; absent otherwise.
    """

    name: Line = ""
    status: Line | None = None
    objective: Objectives = ()
    value: Number | None = None
    bound: Number | None = None
    gap: Number | None = None
    overrun: Number | None = None
    evaluated: Amount | None = None
    modes: Mapping[Line, ModeResult] = field(default_factory=dict)
    notes: Mapping[Line, Line] | None = None
    proposed: Amount | None = None
    conflict: tuple[Line, ...] | None = None
    scope: Line | None = None
    whole_stages: Line | None = None
    proof: Proof | None = None
    source: Line | None = None
    options: Mapping[Line, Setting] | None = None
    facts: Mapping[str, Json] | None = None
    rounds: Amount | None = None
    fixed_point: bool | None = None
    compared_latency_ns: Mapping[Line, Amount] | None = None
    portfolio: tuple[Line, ...] | None = None
    found_by: Line | None = None
    open: tuple[OpenRequirement, ...] | None = None
    decide: tuple[LongLine, ...] | None = None
    chosen: Mapping[Line, Mapping[Line, Amount]] | None = None
    cut_off: bool | None = None

    @property
    def cut_short(self) -> bool:
        """Return whether a limit on time ended the search, as plans of versions before 0.2 say by their `status`."""
        return bool(self.cut_off) or self.status == TIME_LIMIT


def gap(value: float | None, bound: float | None) -> float | None:
    """Return the share of a value that lies above its lower bound, None without a bound or for a value of 0."""
    return None if bound is None or not value else round(max(value - bound, 0) / value, 6)


SCHEMA_VERSION = "1"
SOURCES = "socsched"
"""The input that stands for the program itself: its cost model, analyses and searches."""


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
    to; `governor`: static | ccedf | load, which looks every `look_ns` and keeps it busy for `busy_ppm` (1e-6) of the
    time.  `linger_ns`: time the engine stays with a process after use, unless its
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
    look_ns: Ns = 0
    busy_ppm: Amount = 0


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
