"""Platform files: one SoC, every figure with its source."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from socsched.descriptor.fields import (
    LAYOUT_PATTERN,
    BandwidthFigure,
    Count,
    DurationFigure,
    EnergyPerByteFigure,
    FileModel,
    Frequency,
    FrequencyFigure,
    Name,
    PowerFigure,
    PrecisionName,
    RateFigure,
    ShareFigure,
    Size,
    SourceFile,
    TemperatureFigure,
)
from socsched.descriptor.operator_rules_file import OperatorRulesFile
from socsched.descriptor.platform import (
    Dram,
    Engine,
    EngineMode,
    Figure,
    Platform,
    PowerMode,
    Precision,
    Preemption,
)
from socsched.descriptor.platform_checks import CHECKS, engine_ids
from socsched.descriptor.source import Document, read
from socsched.descriptor.validation import plain, validate


class DramFile(FileModel):
    """Main memory."""

    size: Size = Field(description="capacity")
    peak: BandwidthFigure = Field(description="theoretical bandwidth")
    achievable: BandwidthFigure = Field(description="bandwidth all initiators together reach")
    energy: EnergyPerByteFigure = Field(description="energy per byte moved")

    def lower(self) -> Dram:
        """Return the memory as the rest of socsched sees it."""
        return Dram(self.peak.lower(), self.achievable.lower(), self.size, self.energy.lower())


class PrecisionFile(FileModel):
    """A data type an engine computes in."""

    ops_per_cycle: RateFigure = Field(description="dense operations per unit and cycle, a multiply-add is two")
    layout: str = Field(pattern=LAYOUT_PATTERN, description="native activation layout: NCHW, NHWC, NCHW16c, ...")
    efficiency: dict[Name, ShareFigure] = Field(
        min_length=1, description="share of the peak reached by operator class: conv, gemm, elementwise, default"
    )

    def lower(self, dtype: str) -> Precision:
        """Return the precision as the rest of socsched sees it."""
        efficiency = {name: figure.lower() for name, figure in self.efficiency.items()}
        return Precision(dtype, self.ops_per_cycle.lower(), self.layout, efficiency)


class PreemptionFile(FileModel):
    """When an engine gives a running job up."""

    kind: Literal["full", "segment", "none"] = Field(description="at any instant, between segments, or never")
    cost: DurationFigure = Field(description="time one switch takes")
    segment: str = Field("", description="what a segment is called: kernel, loadable, tile, ...")

    def lower(self) -> Preemption:
        """Return the preemption as the rest of socsched sees it."""
        return Preemption(self.kind, self.cost.lower(), self.segment)


class EngineFile(FileModel):
    """One schedulable processor, or `count` equal ones called key0, key1, ..."""

    kind: Name = Field(description="what people call it: cpu, gpu, dla, npu, dsp, ...")
    title: str = Field(min_length=1, description="one line about it")
    count: int | None = Field(None, ge=1, le=64, description="equal engines, called key0, key1, ...; absent: one")
    units: int = Field(ge=1, le=100_000, description="identical units it consists of (cores, SMs)")
    unit: Name = Field(description="what a unit is called: core, SM, ...")
    shares: Literal["unit", "whole"] = Field(description="a job occupies some units, or the engine as a whole")
    clock: FrequencyFigure = Field(description="highest clock")
    sram: Size = Field(0, description="on-chip memory of the engine")
    bandwidth: BandwidthFigure = Field(description="DRAM bandwidth this engine alone reaches")
    precisions: dict[PrecisionName, PrecisionFile] = Field(min_length=1, description="data types it computes in")
    preemption: PreemptionFile = Field(description="when it gives a running job up")
    launch: DurationFigure = Field(description="overhead per segment (kernel, loadable)")
    submit: DurationFigure = Field(description="overhead per job")
    handoff: DurationFigure = Field(description="overhead when a job's output goes to another engine")
    converts: bool = Field(False, description="can run layout and data type conversions")
    idle: PowerFigure = Field(description="power drawn always while powered")
    dynamic: PowerFigure = Field(description="power drawn in addition with all units busy at the highest clock")
    operators: OperatorRulesFile = Field(description="what it can compute")
    target: dict[str, Any] = Field(description="what to compile for")

    def lower(self, engine_id: str) -> Engine:
        """Return the engine as the rest of socsched sees it."""
        return Engine(
            id=engine_id,
            kind=self.kind,
            title=self.title,
            units=self.units,
            unit=self.unit,
            shares=self.shares,
            clock_hz=self.clock.lower(),
            precisions={dtype: precision.lower(dtype) for dtype, precision in self.precisions.items()},
            bandwidth=self.bandwidth.lower(),
            sram_bytes=self.sram,
            preemption=self.preemption.lower(),
            launch_ns=self.launch.lower(),
            submit_ns=self.submit.lower(),
            handoff_ns=self.handoff.lower(),
            converts=self.converts,
            operators=self.operators.lower(),
            idle_mw=self.idle.lower(),
            dynamic_mw=self.dynamic.lower(),
            target=dict(self.target),
        )


class EngineModeFile(FileModel):
    """An engine under a power mode; `units: 0` is off and needs nothing else."""

    units: Count = Field(description="units online, 0 = off")
    clock: Frequency | None = Field(None, description="highest clock in this mode")
    dynamic: PowerFigure | None = Field(None, description="power drawn in addition with all online units busy")

    def lower(self) -> EngineMode:
        """Return the engine's mode as the rest of socsched sees it."""
        off = Figure(0, "derived", note="the engine is off in this mode")
        return EngineMode(self.units, self.clock or 0, self.dynamic.lower() if self.dynamic else off)


class PowerModeFile(FileModel):
    """A power mode as the vendor ships it."""

    name: Name = Field(description="the vendor's name of the mode")
    id: int = Field(ge=0, le=1000, description="the vendor's number of the mode")
    aliases: list[Name] = Field(default_factory=list, description="other names people use")
    default: bool = Field(False, description="the mode after boot; exactly one")
    cap: PowerFigure | None = Field(None, description="power budget of the module; absent: none stated")
    base: PowerFigure = Field(description="power of everything that is no engine, at idle")
    dram: BandwidthFigure = Field(description="bandwidth the memory clock of this mode allows")
    engines: dict[Name, EngineModeFile] = Field(description="every engine, by id or by the key that declares it")
    note: str = Field("", description="what a reader must know, such as vendor figures that disagree")

    def lower(self, groups: Mapping[str, list[str]]) -> PowerMode:
        """Return the mode as the rest of socsched sees it; `groups` maps the engines' keys to their ids."""
        engines: dict[str, EngineMode] = {}
        for key, ids in groups.items():
            for engine_id in ids:
                engines[engine_id] = self.engines.get(engine_id, self.engines.get(key)).lower()  # type: ignore[union-attr]
        cap = self.cap.lower() if self.cap else None
        return PowerMode(
            name=self.name,
            aliases=tuple(self.aliases),
            id=self.id,
            default=self.default,
            cap_mw=cap,
            base_mw=self.base.lower(),
            dram=self.dram.lower(),
            engines=engines,
            note=self.note,
        )


class PlatformFile(FileModel):
    """One SoC module or board."""

    schema_version: Literal["1"] = Field(description='version of this format, "1"')
    name: Name = Field(description="name of the platform, as in the file's name")
    title: str = Field(min_length=1, description="one line about it")
    vendor: str = Field(min_length=1, description="who makes it")
    sources: dict[Name, SourceFile] = Field(default_factory=dict, description="where figures come from, by key")
    dram: DramFile = Field(description="main memory")
    thermal: dict[Name, TemperatureFigure] = Field(default_factory=dict, description="temperature limits by name")
    engines: dict[Name, EngineFile] = Field(min_length=1, description="schedulable processors by id")
    modes: list[PowerModeFile] = Field(min_length=1, description="power modes as the vendor ships them")

    def lower(self, file: str) -> Platform:
        """Return the platform as the rest of socsched sees it."""
        groups = {key: engine_ids(key, engine.count) for key, engine in self.engines.items()}
        engines = tuple(self.engines[key].lower(engine_id) for key, ids in groups.items() for engine_id in ids)
        return Platform(
            name=self.name,
            title=self.title,
            vendor=self.vendor,
            engines=engines,
            dram=self.dram.lower(),
            modes=tuple(mode.lower(groups) for mode in self.modes),
            sources={key: source.lower() for key, source in self.sources.items()},
            thermal={name: figure.lower() for name, figure in self.thermal.items()},
            file=file,
        )


def load_platform(path: str | Path) -> Platform:
    """Return the platform of a YAML file; DescriptorError lists every fault of it with its position."""
    return _platform(read(path))


def platform_from_mapping(mapping: Mapping[str, Any], file: str) -> Platform:
    """Return a platform from data in the form of a platform file, checked the same way; `file` names it in errors."""
    return _platform(Document(file, plain(mapping)))


def _platform(document: Document) -> Platform:
    return validate(document, PlatformFile, CHECKS).lower(document.file)
