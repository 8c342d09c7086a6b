"""The model of a SoC: engines, memory, power modes, thermal states, and figures with their provenance.

`platform_file` reads it from YAML; `host` detects this machine.  Engines differ only by what they declare here: no code
tests whether an engine is a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, GetCoreSchemaHandler, Tag, create_model
from pydantic_core import CoreSchema, core_schema

from socsched.descriptor.fields import (
    LAYOUT_PATTERN,
    OR_NULL,
    VERSION_PATTERN,
    Assumed,
    Bandwidth,
    Count,
    Duration,
    EnergyPerByte,
    Entry,
    FileModel,
    Frequency,
    Keyed,
    Limit,
    Listed,
    Name,
    OneOf,
    Power,
    PrecisionName,
    Quantity,
    Rate,
    Share,
    Size,
    Source,
    SourceKey,
    Temperature,
    Title,
    Voltage,
    doc,
)
from socsched.descriptor.fit import Fit
from socsched.descriptor.kernel_times import KernelTimes
from socsched.descriptor.limits import Json, Line
from socsched.descriptor.operator_rules import OperatorRules
from socsched.descriptor.processors import TargetFile
from socsched.errors import UsageError

Evidence = Annotated[str, OneOf("measured", "published", "fitted", "vendor model", "derived", "assumed")]
NOMINAL = "nominal"
"""Name of the only thermal state of a platform that declares none: full clocks."""
OWN, NATIVE = "tvm", "native"
"""Runtimes of code compiled here: networks, and host functions."""
ONNXRUNTIME = "onnxruntime"
"""Runtime of CPUs that takes networks as ONNX files."""
_LINEAR_ERROR = 0.5


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its provenance.

    `value` is in base units (ns, bytes, bytes/s, Hz, mW) or a plain ratio; `kind` is one of `PROVENANCE`; `source` is a
    key of `Platform.sources` or empty; `note` holds the formula of a derived figure or the reasoning of an assumed one;
    `error` is the relative uncertainty (0.2 = within 20 %), 0 when none is stated.  `interval` is set where only limits
    are known or published: `value` is then its middle unless the file prefers another, and `error` covers it.
    """

    value: float
    kind: str
    source: str = ""
    note: str = ""
    error: float = 0.0
    interval: tuple[float, float] | None = None


class _FigureForm(FileModel):
    kind: Evidence = doc(
        "measured, published, fitted and vendor model name their source; derived and assumed give their reasoning in "
        "note"
    )
    source: str = Field("", description="key of sources")
    note: str = Field("", description="formula of a derived, reasoning of an assumed figure, remarks on others")
    error: float = Field(0.0, ge=0.0, le=100.0, description="relative uncertainty, 0.2 = within 20 %; 0 = none stated")


@dataclass(frozen=True, slots=True)
class FigureType:
    """Annotation of a figure whose numbers are of a kind: `what` they are, and in which form (`unit`)."""

    name: str
    what: str
    number: Any = field(compare=False)
    unit: str

    def form(self) -> type[FileModel]:
        """Return the model of the mapping that the figure is read from."""
        return _figure_form(self)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(_figure, handler.generate_schema(self.form()))


@cache
def _figure_form(kind: FigureType) -> type[FileModel]:
    ends = Field(None, min_length=2, max_length=2, description=f"[lowest, highest] {kind.unit}")
    value = (kind.number | None, Field(None, description=kind.unit))
    numbers: dict[str, Any] = {"value": value, "range": (list[kind.number] | None, ends)}  # type: ignore[name-defined]
    return create_model(f"{kind.name}Figure", __base__=_FigureForm, __doc__=kind.what, **numbers)


def _figure(form: Any) -> Figure:
    """Return a figure; a range alone becomes its middle with half its width as error."""
    value, error = form.value, form.error
    interval = (form.range[0], form.range[1]) if form.range else None
    if value is None and interval is None:
        raise ValueError("expected value, or range where only limits are known")
    if interval and not interval[0] <= interval[1]:
        raise ValueError("expected range as [lowest, highest]")
    if interval and value is not None and not interval[0] <= value <= interval[1]:
        raise ValueError("expected value within range")
    if interval:
        value = sum(interval) / 2 if value is None else value
        error = error or max(interval[1] - value, value - interval[0]) / (abs(value) or 1.0)
    return Figure(value, form.kind, form.source, form.note, error, interval)


DurationFigure = Annotated[Figure, FigureType("Duration", "A time.", Duration, "time with unit")]
BandwidthFigure = Annotated[
    Figure, FigureType("Bandwidth", "A rate of bytes.", Bandwidth, "bytes per second with unit")
]
FrequencyFigure = Annotated[Figure, FigureType("Frequency", "A clock.", Frequency, "frequency with unit")]
SizeFigure = Annotated[Figure, FigureType("Size", "An amount of memory.", Size, "size with unit")]
PowerFigure = Annotated[Figure, FigureType("Power", "A power.", Power, "power with unit")]
TemperatureFigure = Annotated[Figure, FigureType("Temperature", "A temperature.", Temperature, "temperature with unit")]
EnergyPerByteFigure = Annotated[
    Figure, FigureType("EnergyPerByte", "Energy spent per byte moved.", EnergyPerByte, "energy per byte with unit")
]
RateFigure = Annotated[
    Figure, FigureType("Rate", "A plain positive number, such as operations per cycle.", Rate, "number without unit")
]
ShareFigure = Annotated[Figure, FigureType("Share", "A part of a whole.", Share, "share between 0 and 1")]


@dataclass(frozen=True, slots=True)
class FunctionCost(Entry):
    """A function that the engine runs, and its time.

    Both times are inversely proportional to units times clock.  Outside `limits` the engine refuses the function.
    `units`: those that the time holds for, 0 for all.
    """

    time_ns: Annotated[
        DurationFigure,
        doc("time of a job with all units at the highest clock, launches and submission included", "time"),
    ]
    work: Annotated[
        Mapping[Name, Annotated[float, Field(ge=0, le=1e12)]],
        doc("size of the job that the time holds for, by quantity", min_length=1),
    ]
    per_million: Annotated[
        Mapping[Name, DurationFigure],
        doc("time of a million items more of a quantity of work; absent: it is the same"),
    ] = field(default_factory=dict)
    kernels: Annotated[int, doc("launches of a job", ge=1, le=10_000)] = 1
    dtypes: Annotated[Listed[PrecisionName], doc("data types of tensors it reads and writes without a conversion")] = ()
    limits: Annotated[Mapping[Name, Limit], doc("quantity: [smallest, largest] value taken")] = field(
        default_factory=dict
    )
    units: int = 0


@dataclass(frozen=True, slots=True)
class Preemption(Entry):
    """When an engine preempts a running job.

    `segment`: between segments of the job (kernels of a GPU, loadables or tiles of an NPU).  `restart`: the running job
    is killed at once and restarts its segment; the preempting job waits `reset_ns`.  `granularity_ns` is how long other
    jobs wait for a segment or a time slice to end.
    """

    kind: Annotated[
        str,
        OneOf("full", "segment", "none", "restart"),
        doc("at any instant, between segments, never, or at once by killing the running job, which restarts"),
    ]
    cost_ns: Annotated[DurationFigure, doc("time of one switch", "cost")]
    segment_kind: Annotated[str, doc("name of a segment: kernel, loadable, tile, ...", "segment")] = ""
    granularity_ns: Annotated[DurationFigure | None, doc("length of a segment or time slice", "granularity")] = None
    reset_ns: Annotated[
        DurationFigure | None, doc("with kind restart: time until the engine can be used again", "reset")
    ] = None
    in_flight: Annotated[
        int, doc("with kind segment: segments launched ahead, the running one included", ge=1, le=1000)
    ] = 1
    migration_ns: Annotated[
        DurationFigure | None, doc("in addition to cost, for a job that resumes on another unit", "migration")
    ] = None
    slices_ns: Annotated[
        DurationFigure | None, doc("with kind segment: range of time slices that can be set for a process", "slices")
    ] = None
    least_ns: Annotated[
        DurationFigure | None,
        doc("with kind segment: shortest segment; kernels are joined to make it", "least"),
    ] = None


@dataclass(frozen=True, slots=True)
class WeightsMemory(Entry):
    """Room for weights on the engine."""

    size: Annotated[SizeFigure, doc("capacity")]
    swap: Annotated[BandwidthFigure, doc("rate at which missing weights are loaded")]
    copies: Annotated[
        bool, doc("weights are loaded by a copy engine while the engine computes; the plan says which networks stay")
    ] = False


@dataclass(frozen=True, slots=True)
class Division(Entry):
    """How jobs of several stages can have units of an engine each, at the same time.

    `plan --shares` chooses such shares; without it a job has all units.
    """

    by: Annotated[
        str,
        OneOf("contexts", "instances", "masks"),
        doc("what gives a stage its units: green contexts of a GPU, instances (MIG), or masks of cores"),
    ]
    group: Annotated[int, doc("units that are given together", ge=1, le=1000)] = 1
    groups: Annotated[int, doc("groups in all, where fewer than units allow; 0: as many", ge=0, le=1024)] = 0
    sizes: Annotated[
        Listed[Annotated[int, Field(ge=1, le=1024)]], doc("groups that a share may have; absent: any number")
    ] = ()
    port: Annotated[
        BandwidthFigure | None, doc("bytes/s that one unit draws at most at the highest clock; absent: 64 a cycle")
    ] = None
    near: Annotated[DurationFigure | None, doc("latency of a load from the cache that all units share")] = None
    far: Annotated[DurationFigure | None, doc("latency of a load from the engine's DRAM")] = None
    launch: Annotated[
        DurationFigure | None, doc("what a launch waits in the queue that all units share for one under way; absent: 0")
    ] = None
    source: SourceKey = ""
    assumed: Assumed = ""

    def count(self, units: int) -> int:
        """Return the groups of so many units."""
        return min(units // self.group, self.groups or units)

    def counts(self, units: int) -> tuple[int, ...]:
        """Return the numbers of groups, below all, that a share of so many units may have."""
        return tuple(n for n in range(1, self.count(units)) if not self.sizes or n in self.sizes)


@dataclass(frozen=True, slots=True)
class OperatingPoint(Entry):
    """A clock the engine can be set to."""

    clock_hz: Annotated[Frequency, doc("frequency with unit", "clock")]
    microvolt: Annotated[Voltage | None, doc("supply voltage at this clock", "voltage")] = None
    capacity: Annotated[Rate | None, doc("one unit's capacity, 1024 = the platform's fastest")] = None
    dynamic_mw: Annotated[
        Annotated[float, Quantity("power")] | None, doc("power one busy unit draws in addition", "power")
    ] = None


@dataclass(frozen=True, slots=True)
class OperatingPoints(Entry):
    """All operating points of an engine, slowest first."""

    points: Annotated[Listed[OperatingPoint], doc("operating points by clock", min_length=1, max_length=200)]
    kind: Annotated[Evidence, doc("kind of evidence, as of a figure")]
    source: Annotated[str, doc("key of sources")] = ""
    note: Annotated[str, doc("remarks; the reasoning where derived or assumed")] = ""

    def at(self, clock_hz: float) -> OperatingPoint:
        """Return the slowest point not below a clock, the fastest where there is none."""
        return next((point for point in self.points if point.clock_hz >= clock_hz), self.points[-1])


@dataclass(frozen=True, slots=True)
class LoadGovernor(Entry):
    """How the clock follows the load unless it is pinned: the slowest point that keeps the busy share of time.

    Then the latency of a periodic job is about that share of its period, whatever the work (`--governor load`).
    """

    load: Annotated[ShareFigure, doc("busy share of time that the governor keeps")]
    period_ns: Annotated[DurationFigure, doc("time between two looks at the load", "period")]


@dataclass(frozen=True, slots=True)
class Coherency(Entry):
    """How the engine sees the CPUs' caches.

    Cleaning them for an engine that is not coherent is paid for every byte handed over.
    """

    domain: Annotated[
        str,
        OneOf("full", "io", "none"),
        doc("fully coherent, I/O-coherent (it snoops the CPUs' caches, not they its own), or not coherent"),
    ]
    flush: Annotated[BandwidthFigure | None, doc("rate of cleaning caches for an engine without coherency")] = None
    source: SourceKey = ""
    note: Annotated[str, doc("remarks")] = ""
    assumed: Assumed = ""


@dataclass(frozen=True, slots=True)
class Gating(Entry):
    """Groups of units a power mode switches off by a mask.

    A set bit gates one group (TPCs of a GPU).
    """

    groups: Annotated[int, doc("bits of the mask", ge=1, le=32)]
    units: Annotated[int, doc("units per group", ge=1, le=1000)]
    source: SourceKey = ""
    assumed: Assumed = ""

    def online(self, mask: int, most: int) -> int:
        """Return the number of units a mask leaves online, at most `most`."""
        return min((self.groups - (mask & ((1 << self.groups) - 1)).bit_count()) * self.units, most)


@dataclass(frozen=True, slots=True)
class Rail(Entry):
    """A supply with a power meter."""

    title: Annotated[Title, doc("one-line description")]
    covers: Annotated[Listed[str], doc("engines it supplies, and other blocks as text", default=())]
    sensor: Annotated[str, doc("chip, address and channel that read it")] = ""
    idle_mw: Annotated[PowerFigure | None, doc("idle power", "idle")] = None
    source: SourceKey = ""
    assumed: Assumed = ""


@dataclass(frozen=True, slots=True)
class Supply(Entry):
    """The carrier board and the power adaptor of the board that published measurements were taken on.

    Power at the wall is (module + carrier) / efficiency.
    """

    title: Annotated[Title, doc("one-line description of board and adaptor")]
    carrier_mw: Annotated[PowerFigure, doc("power of the carrier board, fan and interfaces included", "carrier")]
    efficiency: Annotated[ShareFigure, doc("share of the wall's power that the adaptor delivers")]


@dataclass(frozen=True, slots=True)
class Precision(Entry):
    """A data type an engine computes in.

    A multiply-add is two operations.  Plans do not rely on `sparsity`.  `fitted` is used instead of `efficiency` for
    networks.  `on_request`: only for networks whose file states this data type, or that are asked for it.
    """

    dtype: str
    ops_per_cycle: Annotated[RateFigure, doc("dense operations per unit and cycle, a multiply-add is two")]
    layout: Annotated[str, doc("native activation layout: NCHW, NHWC, NCHW16c, ...", pattern=LAYOUT_PATTERN)]
    efficiency: Annotated[
        Mapping[Name, ShareFigure],
        doc("share of the peak reached by operator class: conv, gemm, elementwise, default", min_length=1),
    ]
    sparsity: Annotated[RateFigure | None, doc("peak with structured sparsity as a multiple of the dense")] = None
    fitted: Annotated[
        Listed[Fit], doc("cost models fitted to measurements, by units used; absent: peak, efficiency")
    ] = ()
    on_request: bool = False


@dataclass(frozen=True, slots=True)
class Runtime(Entry):
    """A program that computes networks on the engine, and its speed relative to the one that was measured.

    The costs that an engine states are those of its first.  Another one's are these times `ratio`, or the roofline with
    its own `efficiency`.
    """

    name: str
    version: Annotated[
        str, Field(pattern=VERSION_PATTERN), OR_NULL, doc("version of the toolchain that stages are handed to")
    ] = ""
    ratio: Annotated[
        RateFigure | None,
        doc("time of a network over the time that the engine's costs state; absent: 1, they are its own"),
    ] = None
    general: Annotated[RateFigure | None, doc("the same for a network beyond kernels and tuned; absent: as ratio")] = (
        None
    )
    efficiency: Annotated[
        Mapping[Name, ShareFigure],
        doc("instead of ratio: share of the peak that this program reaches by operator class, as of a data type"),
    ] = field(default_factory=dict)
    kernels: Annotated[Listed[Name], doc("operators with kernels of their own; empty: all")] = ()
    tuned: Annotated[Listed[PrecisionName], doc("data types of these kernels; empty: all")] = ()
    without: Annotated[Listed[Name], doc("operators that this program cannot compute")] = ()
    precisions: Annotated[
        Listed[PrecisionName], doc("data types that this program computes in; empty: all of the engine")
    ] = ()
    source: Annotated[str, doc("key of sources")] = ""


@dataclass(frozen=True, slots=True)
class Link(Entry):
    """The way from main memory to an engine that has memory of its own, such as PCIe or USB."""

    bandwidth: Annotated[BandwidthFigure, doc("bytes a second that the link carries")]
    latency_ns: Annotated[DurationFigure, doc("overhead of each tensor that crosses it", "latency")]
    keeps: Annotated[bool, doc("tensors between stages of the engine stay in its memory", default=False)] = False


_ON_ARM = (
    Runtime(OWN),
    Runtime(
        ONNXRUNTIME,
        ratio=Figure(
            1.0,
            "derived",
            note="resnet50 on 12 Cortex-A78AE: 28.7, 32.7, 62.9, 75.9 ms with ONNX Runtime 1.12 to 1.14, 50.6 with TVM "
            "(MLPerf Inference v3.0, open/Krai): 0.57 to 1.5 of it; no other network or board is published with both",
            error=0.5,
        ),
        without=("pillar_features", "scatter"),
        precisions=("fp32", "int8"),
    ),
)
"""Programs of a 64-bit Arm CPU under Linux, for which both exist ready-made: where both compute, ours is as fast."""


def _runtimes_of(target: Mapping[str, Any]) -> tuple[Runtime, ...]:
    """Return the programs of an engine that states none; empty: the one that its target or its rules name."""
    triple = str(target.get("mtriple", ""))
    arm = target.get("kind") == "llvm" and re.fullmatch(r"(aarch64|arm64)(-\w+)?-linux-gnu", triple)
    return _ON_ARM if arm else ()


_SYMMETRIC = ("cuda", "opencl")
"""Targets whose bytes are stored as their integers, so that zero is zero."""


@dataclass(frozen=True, slots=True)
class Engine(Entry):
    """One schedulable processor, or `count` equal ones called key0, key1, ...

    `kind` groups engines for display and for cost anchors only.  Behind a `link`, weights and inner tensors stay in the
    engine's own memory, while inputs and outputs cross the link.  `kernel_times`: what was measured of the kernels of a
    runtime on this machine, by runtime.  `capacity` and `coefficient` go with `points`.  CPUs
    run all host functions (`operators.host_code`), other engines those of `functions`
    (`models.model.Model.device`).
    """

    id: str
    kind: Annotated[Name, doc("type of engine: cpu, gpu, dla, npu, dsp, ...")]
    title: Annotated[Title, doc("one-line description")]
    units: Annotated[int, doc("number of identical units (cores, SMs)", ge=1, le=100_000)]
    unit: Annotated[Name, doc("name of a unit: core, SM, ...")]
    shares: Annotated[str, OneOf("unit", "whole"), doc("a job occupies some units, or the engine as a whole")]
    clock_hz: Annotated[FrequencyFigure, doc("highest clock", "clock")]
    precisions: Annotated[Mapping[PrecisionName, Precision], Keyed("dtype"), doc("supported data types", min_length=1)]
    bandwidth: Annotated[
        BandwidthFigure, doc("DRAM bandwidth that this engine reaches alone; with a link, that of its own memory")
    ]
    sram: Annotated[SizeFigure | None, doc("on-chip memory of the engine", default=None)]
    preemption: Annotated[Preemption, doc("when a running job can be preempted")]
    launch_ns: Annotated[DurationFigure, doc("overhead per segment (kernel, loadable)", "launch")]
    submit_ns: Annotated[DurationFigure, doc("overhead per job", "submit")]
    handoff_ns: Annotated[DurationFigure, doc("overhead when a job's output goes to another engine", "handoff")]
    converts: Annotated[bool, doc("can run layout and data type conversions", default=False)]
    operators: Annotated[OperatorRules, doc("operators it supports")]
    idle_mw: Annotated[PowerFigure, doc("constant power while powered", "idle")]
    dynamic_mw: Figure
    target: Mapping[str, Any]
    performance: Annotated[RateFigure | None, doc("7-zip MIPS of one unit at the highest clock (CPUs)")] = None
    capacity: Annotated[RateFigure | None, doc("capacity-dmips-mhz of one unit, as in the device tree")] = None
    coefficient: Annotated[RateFigure | None, doc("dynamic power of one unit, uW/MHz/V^2", "dynamic_coefficient")] = (
        None
    )
    points: Annotated[OperatingPoints | None, doc("clocks it can be set to, slowest first", "operating_points")] = None
    governor: Annotated[LoadGovernor | None, doc("how its clock follows the load; absent: not known")] = None
    conversion: Annotated[BandwidthFigure | None, doc("bytes read plus written per second when converting")] = None
    coherency: Annotated[Coherency, OR_NULL, doc("coherency with the CPUs' caches; absent: fully coherent")] = (
        Coherency("full")
    )
    gating: Annotated[Gating | None, doc("groups of units a mode's mask switches off")] = None
    source: SourceKey = ""
    assumed: Assumed = ""
    quantum_ns: Annotated[Duration, doc("time slice of round-robin; absent: 1 ms", "quantum")] = 0
    reconfigure_ns: Annotated[
        DurationFigure | None, doc("cost of regrouping units last used in other groups", "reconfigure")
    ] = None
    weights: Annotated[WeightsMemory | None, doc("capacity for weights; absent: no limit")] = None
    division: Annotated[Division | None, doc("how it can be divided among stages; absent: it cannot")] = None
    capacities: Annotated[
        Listed[Annotated[int, Field(ge=1, le=1024)]],
        doc("speed of each unit where they differ, 1024 for the one costs refer to"),
    ] = ()
    functions: Annotated[
        Mapping[Name, FunctionCost],
        doc("host functions it runs: voxelise, anchor-decode, camera-preprocess, ..."),
    ] = field(default_factory=dict)
    runtimes: Annotated[
        tuple[Runtime, ...],
        Keyed(),
        doc(
            "programs that can compute its networks, the one that costs stand for first; absent: our code, and on a "
            "64-bit Arm CPU under Linux ONNX Runtime"
        ),
    ] = ()
    link: Annotated[
        Link | None,
        doc("link to an engine with memory of its own: weights stay there, inputs and outputs cross it"),
    ] = None
    count: Annotated[int | None, doc("number of equal engines, named key0, key1, ...; absent: one", ge=1, le=64)] = None
    kernel_times: tuple[KernelTimes, ...] = ()

    class File:
        """Power may be left to the operating points; a target has fields of its own."""

        dynamic_mw: Annotated[
            PowerFigure | None,
            doc("power in addition with all units busy at the highest clock; absent: from operating points", "dynamic"),
        ] = None
        target: Annotated[TargetFile, doc("compilation target")]

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> Engine:
        """Return the engine; where its power is not stated, it follows from its operating points."""
        stated = values.get("dynamic_mw")
        target = values["target"].model_dump(by_alias=True, exclude_none=True)
        unknown = Figure(0, "derived", note="from operating points")
        runtimes = values.get("runtimes") or _runtimes_of(target)
        engine = cls(**{**values, "target": target, "dynamic_mw": stated or unknown, "runtimes": runtimes})
        if stated is None:
            return replace(engine, dynamic_mw=dynamic_power(engine, engine.units, round(engine.clock_hz.value)))
        return engine

    @property
    def keeps(self) -> bool:
        """Return whether tensors stay in its own memory until others read them: then hand-overs are charged."""
        return self.link is not None and self.link.keeps

    def host_bandwidth(self, dram: float) -> float:
        """Return the bytes/s that this engine moves from and to main memory, of which all engines reach `dram`."""
        return min((self.link.bandwidth if self.link else self.bandwidth).value, dram)

    @property
    def zero_points(self) -> bool:
        """Return whether its code computes int8 values of any zero point; kernels of GPUs and TensorRT do not."""
        return self.target.get("kind") not in _SYMMETRIC and self.operators.runtime != "TensorRT"


@dataclass(frozen=True, slots=True)
class EngineMode:
    """An engine under a power mode: units online (0 = off), clock, and full-load dynamic power there (mW)."""

    units: int
    clock_hz: int
    dynamic_mw: Figure


@dataclass(frozen=True, slots=True)
class EngineSetting(Entry):
    """An engine under a power mode; `units: 0` is off and needs nothing else."""

    units: Annotated[Count | None, doc("units online, 0 = off; or give mask")] = None
    mask: Annotated[Count | None, doc("the vendor's gating mask, instead of units")] = None
    clock: Annotated[Frequency | None, doc("highest clock in this mode")] = None
    dynamic: Annotated[
        PowerFigure | None,
        doc("power in addition with all online units busy; absent: derived from the engine's figures"),
    ] = None

    def of_engine(self, engine: Engine) -> EngineMode:
        """Return what the setting means for an engine."""
        units = self.units or 0
        if self.mask is not None and engine.gating:
            units = engine.gating.online(self.mask, engine.units)
        if units == 0:
            return EngineMode(0, 0, Figure(0, "derived", note="the engine is off in this mode"))
        clock = self.clock or 0
        # Power of a measurement in the mode, else C V^2 f, else scaled with the clock: each with a larger error.
        return EngineMode(units, clock, self.dynamic or dynamic_power(engine, units, clock))


@dataclass(frozen=True, slots=True)
class PowerMode(Entry):
    """A power mode as the vendor ships it.

    `engines` covers every engine of the platform.
    """

    name: Annotated[Name, doc("the vendor's name of the mode")]
    aliases: Annotated[Listed[Name], doc("other names in use", default=())]
    id: Annotated[int, doc("the vendor's number of the mode", ge=0, le=1000)]
    default: Annotated[bool, doc("true for the mode after boot; exactly one mode", default=False)]
    cap_mw: Annotated[PowerFigure | None, doc("power budget of the module; absent: none stated", "cap", default=None)]
    base_mw: Annotated[PowerFigure, doc("idle power of everything except the engines", "base")]
    dram: Annotated[BandwidthFigure, doc("bandwidth at the memory clock of this mode")]
    engines: Mapping[str, EngineMode]
    note: Annotated[str, doc("remarks for the reader, such as vendor figures that disagree")] = ""
    clocks_hz: Annotated[Mapping[Name, Frequency], doc("clocks of blocks that are not engines", "clocks")] = field(
        default_factory=dict
    )
    family: Annotated[str, doc("configuration file, if the vendor ships several with the same mode numbers")] = ""
    stated_tops: Annotated[RateFigure | None, doc("the vendor's INT8 peak, TOPS, with sparsity if any")] = None
    source: SourceKey = ""
    assumed: Assumed = ""

    class File:
        """Settings become modes of engines once the engines are read (`Platform.of_file`)."""

        engines: Annotated[Mapping[Name, EngineSetting], doc("every engine, by id or by the key that declares it")]

    def called(self, name: str) -> bool:
        """Return whether a name denotes this mode: its own or an alias, without "MODE_"; case, blanks and "_" alike."""
        plain = [n.lower().replace(" ", "_").removeprefix("mode_") for n in (name, self.name, *self.aliases)]
        return plain[0] in plain[1:]


def _form_of_parameter(value: Any) -> str:
    """Return the form a parameter is written in, so that faults are those of this form alone."""
    if isinstance(value, dict) and {"value", "kind"} & set(value):
        return "<bandwidth figure>" if isinstance(value.get("value"), str) else "<figure>"
    if isinstance(value, dict):
        return "<by engine>"
    return "<bandwidth>" if isinstance(value, str) else "<number>"


Parameter = Annotated[
    Annotated[float, Tag("<number>")]
    | Annotated[Bandwidth, Tag("<bandwidth>")]
    | Annotated[RateFigure, Tag("<figure>")]
    | Annotated[BandwidthFigure, Tag("<bandwidth figure>")],
    Discriminator(_form_of_parameter),
]
"""A plain number, a bandwidth with its unit, or a figure with either."""
ByEngine = Annotated[
    Annotated[float, Tag("<number>")]
    | Annotated[Bandwidth, Tag("<bandwidth>")]
    | Annotated[RateFigure, Tag("<figure>")]
    | Annotated[BandwidthFigure, Tag("<bandwidth figure>")]
    | Annotated[dict[Name, Parameter], Tag("<by engine>")],
    Discriminator(_form_of_parameter),
]


@dataclass(frozen=True, slots=True)
class Contention(Entry):
    """How engines slow each other down at the DRAM.

    Models are those of `cost.contention`; an empty one stands for the default.
    """

    model: Annotated[Name, doc("max-min, pccs, linear, pairwise, or the name of an installed model")]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    source: SourceKey = ""
    assumed: Assumed = ""

    class File:
        """Parameters may be figures."""

        parameters: Annotated[
            dict[Name, ByEngine],
            doc("the model's parameters, by engine if they differ by engine; figures name a source of their own"),
        ] = {}  # noqa: RUF012

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> Contention:
        """Return the model with the value of every figure among its parameters."""
        return cls(**{**values, "parameters": _values(values.get("parameters", {}))})


def _values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _values(one) if isinstance(one, dict) else one.value if isinstance(one, Figure) else one
        for name, one in parameters.items()
    }


@dataclass(frozen=True, slots=True)
class Dram(Entry):
    """Main memory."""

    peak: Annotated[BandwidthFigure, doc("theoretical bandwidth")]
    achievable: Annotated[BandwidthFigure, doc("bandwidth that all initiators reach together")]
    size: Annotated[SizeFigure, doc("capacity")]
    picojoule_per_byte: Annotated[EnergyPerByteFigure, doc("energy per byte moved", "energy")]
    latency_ns: Annotated[DurationFigure | None, doc("latency of a random access by a CPU", "latency")] = None
    contention: Annotated[Contention, OR_NULL, doc("absent: max-min fair shares of the achievable bandwidth")] = (
        Contention("")
    )
    reserved: Annotated[
        SizeFigure | None,
        doc("part of the capacity that firmware and the operating system take; absent: not known, none"),
    ] = None


@dataclass(frozen=True, slots=True)
class ThermalState(Entry):
    """A thermal state of the module."""

    name: str
    title: Annotated[Title, doc("one-line description")]
    clocks: Annotated[ShareFigure, doc("share of a mode's clocks that engines keep")]
    engines: Annotated[Mapping[Name, ShareFigure], doc("engines (id or kind) that keep another share")] = field(
        default_factory=dict
    )
    above: Annotated[Temperature | None, doc("temperature from which the state is entered")] = None
    source: SourceKey = ""
    assumed: Assumed = ""

    def share(self, engine: Engine) -> float:
        """Return the share of its clock that an engine keeps."""
        figure = self.engines.get(engine.id) or self.engines.get(engine.kind) or self.clocks
        return figure.value


@dataclass(frozen=True, slots=True)
class Platform(Entry):
    """One SoC module or board."""

    name: Annotated[Name, doc("name of the platform, as in the file's name")]
    title: Annotated[Title, doc("one-line description")]
    vendor: Annotated[str, doc("manufacturer", min_length=1)]
    engines: tuple[Engine, ...]
    dram: Annotated[Dram, doc("main memory")]
    modes: Annotated[Listed[PowerMode], doc("power modes as the vendor ships them", min_length=1)]
    sources: Annotated[Mapping[Name, Source], doc("sources of figures, by key", default=())]
    thermal: Annotated[Mapping[Name, TemperatureFigure], doc("temperature limits by name")] = field(
        default_factory=dict
    )
    rails: Annotated[Mapping[Name, Rail], doc("power rails with a meter, by name")] = field(default_factory=dict)
    file: str = ""
    supply: Annotated[Supply | None, doc("carrier board and adaptor, for power at the wall")] = None
    thermal_states: Annotated[
        tuple[ThermalState, ...], Keyed(), doc("thermal states by name, coolest first, for books of plans")
    ] = ()

    class File:
        """Equal engines are declared once."""

        schema_version: Annotated[Literal["1"], doc('version of this format, "1"')]
        extends: Annotated[Name, OR_NULL, doc("platform that holds where this file states nothing; it merges")] = ""
        engines: Annotated[Mapping[Name, Engine], doc("schedulable processors by id", min_length=1)]

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> Platform:
        """Return the platform with every engine of a declared group; without a setting it is off in a mode."""
        del values["schema_version"]
        values.pop("extends", None)
        groups = {
            key: [replace(engine, id=name, count=None) for name in engine_ids(key, engine.count)]
            for key, engine in values.pop("engines").items()
        }
        pairs = [(key, engine) for key, members in groups.items() for engine in members]
        modes = [
            replace(
                mode,
                engines={e.id: settings.get(e.id, settings.get(key, EngineSetting())).of_engine(e) for key, e in pairs},
            )
            for mode in values.pop("modes")
            for settings in (mode.engines,)
        ]
        engines = tuple(engine for _, engine in pairs)
        return cls(engines=engines, modes=tuple(modes), **{**values, "sources": dict(values["sources"])})

    def engine(self, engine_id: str) -> Engine:
        """Return the engine with this id; KeyError when there is none."""
        for engine in self.engines:
            if engine.id == engine_id:
                return engine
        raise KeyError(engine_id)

    def mode(self, name: str | None = None) -> PowerMode:
        """Return the mode with this name or alias (case ignored), the default one for None; KeyError when unknown."""
        for mode in self.modes:
            if name is None and mode.default:
                return mode
            if name is not None and mode.called(name):
                return mode
        raise KeyError(name)


def engine_ids(key: str, count: int | None) -> list[str]:
    """Return the ids of the engines declared under `key`."""
    return [key] if count is None else [f"{key}{index}" for index in range(count)]


def dynamic_power(engine: Engine, units: int, clock_hz: int) -> Figure:
    """Return the additional power (mW) of `units` busy units at a clock; an overestimate where no voltage is known.

    P = C V^2 f per unit (Chandrakasan, Sheng, Brodersen, Low-power CMOS digital design, JSSC 27(4) 1992, equation 1),
    with C as Linux device trees give it: dynamic-power-coefficient in uW/MHz/V^2.

    Without a coefficient or measured power of the operating points, the engine's own figure is scaled by units and
    clock, which ignores that the voltage falls with the clock.
    """
    point = engine.points.at(clock_hz) if engine.points else None
    if point and point.dynamic_mw is not None:
        return _of_point(engine, units, clock_hz, point.dynamic_mw, point.clock_hz)
    if point and point.microvolt and engine.coefficient:
        return _of_coefficient(engine, engine.coefficient, units, clock_hz, point.microvolt)
    full = engine.dynamic_mw
    share = units / engine.units * clock_hz / engine.clock_hz.value
    if share == 1.0:
        return full
    note = f"{full.value / 1000:.3g} W x {units}/{engine.units} units x {share * engine.units / units:.3g} of the clock"
    error = max(full.error, _LINEAR_ERROR)
    return Figure(round(full.value * share), "derived", full.source, f"{note}; the voltage is not known", error)


def _of_point(engine: Engine, units: int, clock_hz: int, power: float, clock_of: int) -> Figure:
    assert engine.points is not None
    mega = clock_hz / 1e6
    value = round(units * power * min(clock_hz / clock_of, 1.0))
    note = f"{units} x {power:.4g} mW of the operating point at {mega:g} MHz"
    return Figure(value, "derived", engine.points.source, note, 0.2)


def _of_coefficient(engine: Engine, coefficient: Figure, units: int, clock_hz: int, microvolt: int) -> Figure:
    mega, volt = clock_hz / 1e6, microvolt / 1e6
    value = round(units * coefficient.value * mega * volt**2 / 1000)
    note = f"{units} x {coefficient.value:g} uW/MHz/V^2 x {mega:g} MHz x ({volt:g} V)^2"
    return Figure(value, "derived", coefficient.source, note, coefficient.error or 0.3)


def mode_in_state(platform: Platform, mode: PowerMode, state: str) -> PowerMode:
    """Return a power mode with the clocks of a thermal state; UsageError for an unknown state.

    Clocks fall to the highest operating point within the share, or to the share itself where no points are listed.
    Dynamic power follows the clock, the memory clock stays.  The name of a slower mode ends with the state's, since
    times known for the mode do not hold in it.
    """
    found = next((one for one in platform.thermal_states if one.name == state), None)
    if found is None and state != NOMINAL:
        names = ", ".join(one.name for one in platform.thermal_states) or NOMINAL
        raise UsageError(f"platform {platform.name!r} has no thermal state {state!r}", f"one of {names}")
    if found is None or all(found.share(engine) == 1.0 for engine in platform.engines):
        return mode
    engines = {e.id: _slower(e, mode.engines[e.id], found.share(e)) for e in platform.engines}
    return replace(mode, name=f"{mode.name}@{state}", aliases=(), default=False, engines=engines, stated_tops=None)


def _slower(engine: Engine, state: EngineMode, share: float) -> EngineMode:
    if state.units <= 0 or share == 1.0:
        return state
    limit = round(state.clock_hz * share)
    points = [point.clock_hz for point in engine.points.points if point.clock_hz <= limit] if engine.points else []
    clock = max(points, default=limit)
    full = state.dynamic_mw
    linear = full.value * clock / state.clock_hz
    stated = dynamic_power(engine, state.units, clock).value
    note = f"{full.value / 1000:.3g} W x {clock / state.clock_hz:.3g} of the clock, or less by operating points"
    power = replace(full, value=round(min(linear, stated)), kind="derived", note=note, interval=None)
    return replace(state, clock_hz=clock, dynamic_mw=power)


@dataclass(frozen=True, slots=True)
class ContentionChoice:
    """A DRAM contention model by name, empty for max-min fair sharing, and its parameters (`cost.contention`).

    `parameters`: numbers (bandwidths in bytes/s), text, or mappings of these, checked by the model.  `engines`: the
    kind of every engine of the platform by id, because parameters may name one that the planned mode switches off.
    """

    model: Line = ""
    parameters: Mapping[Line, Json] = field(default_factory=dict)
    engines: Mapping[Line, Line] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether a model is chosen."""
        return bool(self.model)


def contention_of(platform: Platform) -> ContentionChoice:
    """Return the contention model that a platform chooses, empty for the default."""
    chosen = platform.dram.contention
    if not chosen.model:
        return ContentionChoice()
    engines = {engine.id: engine.kind for engine in platform.engines}
    return ContentionChoice(chosen.model, dict(chosen.parameters), engines)
