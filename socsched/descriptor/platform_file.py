"""Platform files: one SoC, every figure with its source."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from socsched.descriptor.engine_file import EngineFile, Resolve
from socsched.descriptor.fields import (
    Bandwidth,
    BandwidthFigure,
    Count,
    DurationFigure,
    EnergyPerByteFigure,
    FileModel,
    Frequency,
    Grounded,
    Name,
    PowerFigure,
    RateFigure,
    ShareFigure,
    SizeFigure,
    SourceFile,
    TemperatureFigure,
    Title,
)
from socsched.descriptor.operating_points import dynamic_power
from socsched.descriptor.operator_rules import OperatorRules
from socsched.descriptor.operator_rules_file import OperatorRulesFile
from socsched.descriptor.platform import Contention, Dram, Engine, EngineMode, Figure, Platform, PowerMode, Rail, Supply
from socsched.descriptor.platform_checks import CHECKS, engine_ids
from socsched.descriptor.source import Document, read
from socsched.descriptor.thermal_file import ThermalStateFile
from socsched.descriptor.validation import plain, validate

Stated = BandwidthFigure | RateFigure
"""A parameter with a provenance of its own."""


def _form(value: Any) -> str:
    """Return the form a parameter is written in, so that faults are those of this form alone."""
    figure = isinstance(value, Stated) or (isinstance(value, dict) and {"value", "kind"} & set(value))
    if figure:
        number = value.get("value") if isinstance(value, dict) else value.value
        return "<bandwidth figure>" if isinstance(number, str) or isinstance(value, BandwidthFigure) else "<figure>"
    if isinstance(value, dict):
        return "<by engine>"
    return "<bandwidth>" if isinstance(value, str) else "<number>"


Parameter = Annotated[
    Annotated[float, Tag("<number>")]
    | Annotated[Bandwidth, Tag("<bandwidth>")]
    | Annotated[RateFigure, Tag("<figure>")]
    | Annotated[BandwidthFigure, Tag("<bandwidth figure>")],
    Discriminator(_form),
]
"""A plain number, a bandwidth with its unit, or a figure with either."""
ByEngine = Annotated[
    Annotated[float, Tag("<number>")]
    | Annotated[Bandwidth, Tag("<bandwidth>")]
    | Annotated[RateFigure, Tag("<figure>")]
    | Annotated[BandwidthFigure, Tag("<bandwidth figure>")]
    | Annotated[dict[Name, Parameter], Tag("<by engine>")],
    Discriminator(_form),
]


class ContentionFile(Grounded):
    """How engines slow each other down at the DRAM."""

    model: Name = Field(description="max-min, pccs, linear, pairwise, or the name of an installed model")
    parameters: dict[Name, ByEngine] = Field(
        default_factory=dict,
        description="the model's parameters, by engine if they differ by engine; figures name a source of their own",
    )

    def lower(self) -> Contention:
        """Return the internal `Contention`."""
        return Contention(self.model, _values(self.parameters), self.source, self.assumed)


def _values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with the value of every figure."""
    return {
        name: _values(given) if isinstance(given, dict) else given.lower().value if isinstance(given, Stated) else given
        for name, given in parameters.items()
    }


class DramFile(FileModel):
    """Main memory."""

    size: SizeFigure = Field(description="capacity")
    peak: BandwidthFigure = Field(description="theoretical bandwidth")
    achievable: BandwidthFigure = Field(description="bandwidth that all initiators reach together")
    energy: EnergyPerByteFigure = Field(description="energy per byte moved")
    reserved: SizeFigure | None = Field(
        None, description="part of the capacity that firmware and the operating system take; absent: not known, none"
    )
    latency: DurationFigure | None = Field(None, description="latency of a random access by a CPU")
    contention: ContentionFile | None = Field(
        None, description="absent: max-min fair shares of the achievable bandwidth"
    )

    def lower(self) -> Dram:
        """Return the internal `Dram`."""
        latency = self.latency.lower() if self.latency else None
        contention = self.contention.lower() if self.contention else Contention()
        figures = (self.peak.lower(), self.achievable.lower(), self.size.lower(), self.energy.lower())
        return Dram(*figures, latency, contention, self.reserved.lower() if self.reserved else None)


class RailFile(Grounded):
    """A supply with a power meter."""

    title: Title = Field(description="one-line description")
    covers: list[str] = Field(default_factory=list, description="engines it supplies, and other blocks as text")
    sensor: str = Field("", description="chip, address and channel that read it")
    idle: PowerFigure | None = Field(None, description="idle power")

    def lower(self) -> Rail:
        """Return the internal `Rail`."""
        idle = self.idle.lower() if self.idle else None
        return Rail(self.title, tuple(self.covers), self.sensor, idle, self.source)


class SupplyFile(FileModel):
    """The carrier board and the power adaptor of the board that published measurements were taken on."""

    title: Title = Field(description="one-line description of board and adaptor")
    carrier: PowerFigure = Field(description="power of the carrier board, fan and interfaces included")
    efficiency: ShareFigure = Field(description="share of the wall's power that the adaptor delivers")

    def lower(self) -> Supply:
        """Return the internal `Supply`."""
        return Supply(self.title, self.carrier.lower(), self.efficiency.lower())


class EngineModeFile(FileModel):
    """An engine under a power mode; `units: 0` is off and needs nothing else."""

    units: Count | None = Field(None, description="units online, 0 = off; or give mask")
    mask: Count | None = Field(None, description="the vendor's gating mask, instead of units")
    clock: Frequency | None = Field(None, description="highest clock in this mode")
    dynamic: PowerFigure | None = Field(
        None, description="power in addition with all online units busy; absent: derived from the engine's figures"
    )

    def lower(self, engine: Engine) -> EngineMode:
        """Return the internal `EngineMode`."""
        units = self.units or 0
        if self.mask is not None and engine.gating:
            units = engine.gating.online(self.mask, engine.units)
        if units == 0:
            return EngineMode(0, 0, Figure(0, "derived", note="the engine is off in this mode"))
        clock = self.clock or 0
        return EngineMode(units, clock, self.dynamic.lower() if self.dynamic else dynamic_power(engine, units, clock))


class PowerModeFile(Grounded):
    """A power mode as the vendor ships it."""

    name: Name = Field(description="the vendor's name of the mode")
    id: int = Field(ge=0, le=1000, description="the vendor's number of the mode")
    aliases: list[Name] = Field(default_factory=list, description="other names in use")
    default: bool = Field(False, description="true for the mode after boot; exactly one mode")
    cap: PowerFigure | None = Field(None, description="power budget of the module; absent: none stated")
    base: PowerFigure = Field(description="idle power of everything except the engines")
    dram: BandwidthFigure = Field(description="bandwidth at the memory clock of this mode")
    engines: dict[Name, EngineModeFile] = Field(description="every engine, by id or by the key that declares it")
    clocks: dict[Name, Frequency] = Field(default_factory=dict, description="clocks of blocks that are not engines")
    stated_tops: RateFigure | None = Field(None, description="the vendor's INT8 peak, TOPS, with sparsity if any")
    family: str = Field("", description="configuration file, if the vendor ships several with the same mode numbers")
    note: str = Field("", description="remarks for the reader, such as vendor figures that disagree")

    def lower(self, groups: Mapping[str, list[Engine]]) -> PowerMode:
        """Return the internal `PowerMode`; `groups` maps the engines' keys to the engines."""
        engines: dict[str, EngineMode] = {}
        for key, members in groups.items():
            for engine in members:
                setting = self.engines.get(engine.id) or self.engines[key]
                engines[engine.id] = setting.lower(engine)
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
            clocks_hz=dict(self.clocks),
            family=self.family,
            stated_tops=self.stated_tops.lower() if self.stated_tops else None,
            source=self.source,
            assumed=self.assumed,
        )


class PlatformFile(FileModel):
    """One SoC module or board."""

    schema_version: Literal["1"] = Field(description='version of this format, "1"')
    name: Name = Field(description="name of the platform, as in the file's name")
    title: Title = Field(description="one-line description")
    vendor: str = Field(min_length=1, description="manufacturer")
    sources: dict[Name, SourceFile] = Field(default_factory=dict, description="sources of figures, by key")
    dram: DramFile = Field(description="main memory")
    thermal: dict[Name, TemperatureFigure] = Field(default_factory=dict, description="temperature limits by name")
    thermal_states: dict[Name, ThermalStateFile] = Field(
        default_factory=dict, description="thermal states by name, coolest first, for books of plans"
    )
    rails: dict[Name, RailFile] = Field(default_factory=dict, description="power rails with a meter, by name")
    supply: SupplyFile | None = Field(None, description="carrier board and adaptor, for power at the wall")
    engines: dict[Name, EngineFile] = Field(min_length=1, description="schedulable processors by id")
    modes: list[PowerModeFile] = Field(min_length=1, description="power modes as the vendor ships them")

    def lower(self, file: str, resolve: Resolve) -> Platform:
        """Return the internal `Platform`; `resolve` finds the operator rules engines name."""
        groups = {
            key: [engine.lower(engine_id, resolve) for engine_id in engine_ids(key, engine.count)]
            for key, engine in self.engines.items()
        }
        engines = tuple(engine for members in groups.values() for engine in members)
        return Platform(
            name=self.name,
            title=self.title,
            vendor=self.vendor,
            engines=engines,
            dram=self.dram.lower(),
            modes=tuple(mode.lower(groups) for mode in self.modes),
            sources={key: source.lower() for key, source in self.sources.items()},
            thermal={name: figure.lower() for name, figure in self.thermal.items()},
            rails={name: rail.lower() for name, rail in self.rails.items()},
            file=file,
            supply=self.supply.lower() if self.supply else None,
            thermal_states=tuple(state.lower(name) for name, state in self.thermal_states.items()),
        )


def load_platform(path: str | Path) -> Platform:
    """Return the platform of a YAML file; DescriptorError lists all its faults with their positions."""
    return _platform(read(path))


def platform_from_mapping(mapping: Mapping[str, Any], file: str) -> Platform:
    """Return a platform from data in the form of a platform file, checked the same way; `file` names it in errors."""
    return _platform(Document(file, plain(mapping)))


def _platform(document: Document) -> Platform:
    folder = Path(document.file).parent

    def resolve(rules: OperatorRulesFile) -> OperatorRules:
        return rules.lower(folder)

    return validate(document, PlatformFile, CHECKS).lower(document.file, resolve)
