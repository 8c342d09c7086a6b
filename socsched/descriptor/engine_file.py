"""Engines in platform files: data types, rates, operating points and preemption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from socsched.descriptor.fields import (
    LAYOUT_PATTERN,
    BandwidthFigure,
    Duration,
    DurationFigure,
    FileModel,
    Frequency,
    FrequencyFigure,
    Grounded,
    Name,
    Power,
    PowerFigure,
    PrecisionName,
    Rate,
    RateFigure,
    ShareFigure,
    SizeFigure,
    Title,
    Voltage,
)
from socsched.descriptor.fit_file import FitFile
from socsched.descriptor.function_file import FunctionFile
from socsched.descriptor.operating_points import dynamic_power
from socsched.descriptor.operator_rules import OperatorRules
from socsched.descriptor.operator_rules_file import OperatorRulesFile
from socsched.descriptor.platform import (
    Coherency,
    Engine,
    Figure,
    Gating,
    Link,
    OperatingPoint,
    OperatingPoints,
    Precision,
    Preemption,
    WeightsMemory,
)
from socsched.descriptor.runtime_file import RuntimeFile
from socsched.descriptor.target_file import TargetFile

Resolve = Callable[[OperatorRulesFile], OperatorRules]


class PrecisionFile(FileModel):
    """A data type an engine computes in."""

    ops_per_cycle: RateFigure = Field(description="dense operations per unit and cycle, a multiply-add is two")
    layout: str = Field(pattern=LAYOUT_PATTERN, description="native activation layout: NCHW, NHWC, NCHW16c, ...")
    efficiency: dict[Name, ShareFigure] = Field(
        min_length=1, description="share of the peak reached by operator class: conv, gemm, elementwise, default"
    )

    sparsity: RateFigure | None = Field(None, description="peak with structured sparsity as a multiple of the dense")
    fitted: list[FitFile] = Field(
        default_factory=list, description="cost models fitted to measurements, by units used; absent: peak, efficiency"
    )

    def lower(self, dtype: str) -> Precision:
        """Return the internal `Precision`."""
        efficiency = {name: figure.lower() for name, figure in self.efficiency.items()}
        sparsity = self.sparsity.lower() if self.sparsity else None
        fitted = tuple(fit.lower() for fit in self.fitted)
        return Precision(dtype, self.ops_per_cycle.lower(), self.layout, efficiency, sparsity, fitted)


class PreemptionFile(FileModel):
    """When an engine preempts a running job."""

    kind: Literal["full", "segment", "none", "restart"] = Field(
        description="at any instant, between segments, never, or at once by killing the running job, which restarts"
    )
    cost: DurationFigure = Field(description="time of one switch")
    segment: str = Field("", description="name of a segment: kernel, loadable, tile, ...")
    granularity: DurationFigure | None = Field(None, description="length of a segment or time slice")
    slices: DurationFigure | None = Field(
        None, description="with kind segment: range of time slices that can be set for a process"
    )
    reset: DurationFigure | None = Field(None, description="with kind restart: time until the engine can be used again")
    in_flight: int = Field(
        1, ge=1, le=1000, description="with kind segment: segments launched ahead, the running one included"
    )
    migration: DurationFigure | None = Field(
        None, description="in addition to cost, for a job that resumes on another unit"
    )

    def lower(self) -> Preemption:
        """Return the internal `Preemption`."""
        granularity = self.granularity.lower() if self.granularity else None
        reset = self.reset.lower() if self.reset else None
        migration = self.migration.lower() if self.migration else None
        slices = self.slices.lower() if self.slices else None
        return Preemption(
            self.kind, self.cost.lower(), self.segment, granularity, reset, self.in_flight, migration, slices
        )


class WeightsMemoryFile(FileModel):
    """Room for weights on the engine."""

    size: SizeFigure = Field(description="capacity")
    swap: BandwidthFigure = Field(description="rate at which missing weights are loaded")

    def lower(self) -> WeightsMemory:
        """Return the internal `WeightsMemory`."""
        return WeightsMemory(self.size.lower(), self.swap.lower())


class LinkFile(FileModel):
    """The way from main memory to an engine that has memory of its own, such as PCIe or USB."""

    bandwidth: BandwidthFigure = Field(description="bytes a second that the link carries")
    latency: DurationFigure = Field(description="overhead of each tensor that crosses it")

    def lower(self) -> Link:
        """Return the internal `Link`."""
        return Link(self.bandwidth.lower(), self.latency.lower())


class OperatingPointFile(FileModel):
    """A clock the engine can be set to."""

    clock: Frequency = Field(description="frequency with unit")
    voltage: Voltage | None = Field(None, description="supply voltage at this clock")
    capacity: Rate | None = Field(None, description="one unit's capacity, 1024 = the platform's fastest")
    power: Power | None = Field(None, description="power one busy unit draws in addition")

    def lower(self) -> OperatingPoint:
        """Return the internal `OperatingPoint`."""
        return OperatingPoint(self.clock, self.voltage, self.capacity, self.power)


class OperatingPointsFile(FileModel):
    """All operating points of an engine, slowest first."""

    kind: Literal["measured", "published", "fitted", "vendor model", "derived", "assumed"] = Field(
        description="kind of evidence, as of a figure"
    )
    source: str = Field("", description="key of sources")
    note: str = Field("", description="remarks; the reasoning where derived or assumed")
    points: list[OperatingPointFile] = Field(min_length=1, max_length=200, description="operating points by clock")

    def lower(self) -> OperatingPoints:
        """Return the internal `OperatingPoints`."""
        return OperatingPoints(tuple(point.lower() for point in self.points), self.kind, self.source, self.note)


class CoherencyFile(Grounded):
    """How the engine sees the CPUs' caches."""

    domain: Literal["full", "io", "none"] = Field(
        description="fully coherent, I/O-coherent (it snoops the CPUs' caches, not they its own), or not coherent"
    )
    flush: BandwidthFigure | None = Field(None, description="rate of cleaning caches for an engine without coherency")
    note: str = Field("", description="remarks")

    def lower(self) -> Coherency:
        """Return the internal `Coherency`."""
        flush = self.flush.lower() if self.flush else None
        return Coherency(self.domain, flush, self.source, self.note or self.assumed)


class GatingFile(Grounded):
    """Groups of units a power mode switches off by a mask."""

    groups: int = Field(ge=1, le=32, description="bits of the mask")
    units: int = Field(ge=1, le=1000, description="units per group")

    def lower(self) -> Gating:
        """Return the internal `Gating`."""
        return Gating(self.groups, self.units)


class EngineFile(Grounded):
    """One schedulable processor, or `count` equal ones called key0, key1, ..."""

    kind: Name = Field(description="type of engine: cpu, gpu, dla, npu, dsp, ...")
    title: Title = Field(description="one-line description")
    count: int | None = Field(
        None, ge=1, le=64, description="number of equal engines, named key0, key1, ...; absent: one"
    )
    units: int = Field(ge=1, le=100_000, description="number of identical units (cores, SMs)")
    unit: Name = Field(description="name of a unit: core, SM, ...")
    shares: Literal["unit", "whole"] = Field(description="a job occupies some units, or the engine as a whole")
    clock: FrequencyFigure = Field(description="highest clock")
    sram: SizeFigure | None = Field(None, description="on-chip memory of the engine")
    bandwidth: BandwidthFigure = Field(
        description="DRAM bandwidth that this engine reaches alone; with a link, that of its own memory"
    )
    link: LinkFile | None = Field(
        None, description="link to an engine with memory of its own: weights stay there, inputs and outputs cross it"
    )
    performance: RateFigure | None = Field(None, description="7-zip MIPS of one unit at the highest clock (CPUs)")
    capacity: RateFigure | None = Field(None, description="capacity-dmips-mhz of one unit, as in the device tree")
    dynamic_coefficient: RateFigure | None = Field(None, description="dynamic power of one unit, uW/MHz/V^2")
    operating_points: OperatingPointsFile | None = Field(None, description="clocks it can be set to, slowest first")
    gating: GatingFile | None = Field(None, description="groups of units a mode's mask switches off")
    precisions: dict[PrecisionName, PrecisionFile] = Field(min_length=1, description="supported data types")
    preemption: PreemptionFile = Field(description="when a running job can be preempted")
    quantum: Duration = Field(0, description="time slice of round-robin; absent: 1 ms")
    reconfigure: DurationFigure | None = Field(None, description="cost of regrouping units last used in other groups")
    weights: WeightsMemoryFile | None = Field(None, description="capacity for weights; absent: no limit")
    capacities: list[Annotated[int, Field(ge=1, le=1024)]] = Field(
        default_factory=list, description="speed of each unit where they differ, 1024 for the one costs refer to"
    )
    launch: DurationFigure = Field(description="overhead per segment (kernel, loadable)")
    submit: DurationFigure = Field(description="overhead per job")
    handoff: DurationFigure = Field(description="overhead when a job's output goes to another engine")
    coherency: CoherencyFile | None = Field(None, description="coherency with the CPUs' caches; absent: fully coherent")
    converts: bool = Field(False, description="can run layout and data type conversions")
    conversion: BandwidthFigure | None = Field(None, description="bytes read plus written per second when converting")
    idle: PowerFigure = Field(description="constant power while powered")
    dynamic: PowerFigure | None = Field(
        None, description="power in addition with all units busy at the highest clock; absent: from operating points"
    )
    operators: OperatorRulesFile = Field(description="operators it supports")
    functions: dict[Name, FunctionFile] = Field(
        default_factory=dict, description="host functions it runs: voxelise, anchor-decode, camera-preprocess, ..."
    )
    runtimes: dict[Name, RuntimeFile] = Field(
        default_factory=dict,
        description="programs that can compute its networks, the one that costs stand for first; absent: one only",
    )
    target: TargetFile = Field(description="compilation target")

    def lower(self, engine_id: str, resolve: Resolve) -> Engine:
        """Return the internal `Engine`; `resolve` finds the operator rules it names."""
        unknown = Figure(0, "derived", note="from operating points")
        engine = Engine(
            id=engine_id,
            kind=self.kind,
            title=self.title,
            units=self.units,
            unit=self.unit,
            shares=self.shares,
            clock_hz=self.clock.lower(),
            precisions={dtype: precision.lower(dtype) for dtype, precision in self.precisions.items()},
            bandwidth=self.bandwidth.lower(),
            sram=self.sram.lower() if self.sram else None,
            preemption=self.preemption.lower(),
            launch_ns=self.launch.lower(),
            submit_ns=self.submit.lower(),
            handoff_ns=self.handoff.lower(),
            converts=self.converts,
            operators=resolve(self.operators),
            idle_mw=self.idle.lower(),
            dynamic_mw=self.dynamic.lower() if self.dynamic else unknown,
            target=self.target.lower(),
            performance=self.performance.lower() if self.performance else None,
            capacity=self.capacity.lower() if self.capacity else None,
            coefficient=self.dynamic_coefficient.lower() if self.dynamic_coefficient else None,
            points=self.operating_points.lower() if self.operating_points else None,
            conversion=self.conversion.lower() if self.conversion else None,
            coherency=self.coherency.lower() if self.coherency else Coherency(),
            gating=self.gating.lower() if self.gating else None,
            source=self.source,
            assumed=self.assumed,
            quantum_ns=self.quantum,
            reconfigure_ns=self.reconfigure.lower() if self.reconfigure else None,
            weights=self.weights.lower() if self.weights else None,
            capacities=tuple(self.capacities),
            functions={name: function.lower() for name, function in self.functions.items()},
            runtimes=tuple(runtime.lower(name) for name, runtime in self.runtimes.items()),
            link=self.link.lower() if self.link else None,
        )
        if self.dynamic is None:
            return replace(engine, dynamic_mw=dynamic_power(engine, engine.units, round(engine.clock_hz.value)))
        return engine
