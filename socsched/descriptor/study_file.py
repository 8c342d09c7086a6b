"""Study files (``studies/NAME.yaml``): structure, cross-checks, and conversion to `descriptor.study`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from socsched import resources
from socsched.descriptor.distribution import Distribution
from socsched.descriptor.fields import Duration, FileModel, Grounded, Name, Period, Temperature, Title
from socsched.descriptor.source import Document, read
from socsched.descriptor.study import (
    ALL,
    ALWAYS_AS_PLANNED,
    DESIGNS,
    NAMED,
    PATHS,
    SMALLEST,
    Design,
    Fleet,
    Holds,
    Measure,
    Parameter,
    Simulate,
    Study,
    Thermal,
)
from socsched.descriptor.study_fields import ParameterType, SpreadType, Values
from socsched.descriptor.validation import Tree, suggest, validate

OBJECTIVES = ("latency", "energy", "throughput", "slack")
NO_FAULTS = "none"
_Probability = Annotated[float, Field(gt=0, lt=1)]


class DesignFile(FileModel):
    """How configurations are chosen."""

    kind: Literal["grid", "random", "latin-hypercube", "halving"] = Field("grid", description="how to sample")
    points: int = Field(0, ge=0, le=10_000_000, description="number of sampled configurations; not for a grid")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="seed of the sample")
    start: Literal["grid", "random", "latin-hypercube"] = Field("grid", description="for halving: the first round")
    keep: _Probability = Field(0.5, description="for halving: share that enters the next round")
    first: int = Field(1, ge=1, le=100_000, description="for halving: runs of a configuration in the first round")

    def lower(self) -> Design:
        """Return the internal `Design`."""
        return Design(self.kind, self.points, self.seed, self.start, self.keep, self.first)


class SimulateFile(FileModel):
    """How a configuration is simulated."""

    duration: Period = Field(10 * 10**9, description="simulated time of one run")
    runs: int = Field(1, ge=1, le=100_000, description="runs of a configuration, with consecutive seeds")
    settle: bool = Field(True, description="stop once the verdict on misses is statistically settled")
    confidence: _Probability = Field(0.99, description="confidence of that verdict and of intervals of misses")

    def lower(self) -> Simulate:
        """Return the internal `Simulate`."""
        return Simulate(self.duration, self.runs, self.settle, self.confidence)


class HoldsFile(FileModel):
    """Requirements on a configuration in addition to a feasible plan."""

    slack: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None, description="share of its deadline that the bound of every chain leaves, at least"
    )
    growth: Annotated[float, Field(ge=1, le=64)] | None = Field(
        None, description="factor by which all WCETs may grow with every deadline still proved, at least"
    )
    misses: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="share of frames late or dropped in simulation, at most"
    )

    def lower(self) -> Holds:
        """Return the internal `Holds`."""
        return Holds(self.slack, self.growth, self.misses)


class MeasureFile(FileModel):
    """Boards that measure configurations (`--measure`)."""

    keys: dict[Name, str] = Field(
        default_factory=dict, description="tracker key by platform; default: the platform name"
    )
    priority: int = Field(1, ge=0, le=1000, description="priority of requests, the highest is served first")
    timeout: Period = Field(120 * 10**9, description="time limit of a board for the stages of a configuration")
    repeat: int = Field(10, ge=1, le=10_000, description="measurements per stage")
    choose: Literal["best", "front", "all"] = Field("front", description="number of configurations to measure")

    def lower(self) -> Measure:
        """Return the internal `Measure`."""
        return Measure(dict(self.keys), self.priority, max(self.timeout // 10**9, 1), self.repeat, self.choose)


class ThermalFile(Grounded):
    """A module with its heat sink as one lumped mass."""

    resistance: Annotated[float, Field(gt=0, le=1000)] = Field(
        description="thermal resistance: kelvins above ambient per watt"
    )
    time_constant: Period = Field(description="time constant: 63 % of a step")
    trip: Temperature | None = Field(
        None, description="temperature at which clocks are throttled; absent: the platform's throttle limit"
    )

    def lower(self) -> Thermal:
        """Return the internal `Thermal`."""
        trip = 0 if self.trip is None else round(self.trip * 1000)
        return Thermal(round(self.resistance * 1000), self.time_constant, trip, self.source or self.assumed)


class FleetFile(FileModel):
    """Vehicles that differ in load, temperature and faults (`socsched fleet`)."""

    vehicles: int = Field(ge=2, le=10_000_000, description="number of vehicles")
    duration: Period = Field(60 * 10**9, description="simulated driving time of each")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="seed of the first vehicle; the others follow")
    load: Annotated[Distribution, SpreadType(1_000_000, least=0.01)] | None = Field(
        None, description="factor on execution times, drawn for each vehicle"
    )
    ambient: Annotated[Distribution, SpreadType(1000, "temperature")] | None = Field(
        None, description="temperature around the module, drawn for each vehicle; needs thermal"
    )
    thermal: ThermalFile | None = Field(None, description="thermal model of the module")
    faults_per_minute: Annotated[Distribution, SpreadType(1_000_000, least=0)] | None = Field(
        None, description="rate of random faults, drawn for each vehicle"
    )
    kinds: list[Literal["dropouts", "delays", "bursts", "slowdowns", "throttles", "stalls", "deaths", "hogs"]] = Field(
        default_factory=list, description="kinds of random faults; default: all"
    )
    confidence: _Probability = Field(0.95, description="confidence of intervals")
    worst: int = Field(10, ge=0, le=1000, description="number of worst vehicles to list")
    vehicle_hours: int = Field(
        1_000_000, ge=1, le=10**12, description="vehicle-hours to which the table of costs extrapolates"
    )

    def lower(self) -> Fleet:
        """Return the internal `Fleet`."""
        return Fleet(
            self.vehicles,
            self.duration,
            self.seed,
            self.load or ALWAYS_AS_PLANNED,
            self.ambient,
            self.thermal.lower() if self.thermal else None,
            self.faults_per_minute,
            tuple(self.kinds),
            self.confidence,
            self.worst,
            self.vehicle_hours,
        )


SizeColumn = Literal[
    "platform_tdp_mw", "tdp_mw", "price", "planned_power_mw", "latency_ns", "energy_mj_per_round", "power_mw"
]


class StudyFile(FileModel):
    """A sweep over configurations, and a fleet of vehicles."""

    schema_version: Literal["1"] = Field(description='version of this format, "1"')
    name: Name = Field(description="name of the study, as in the file's name")
    title: Title | Literal[""] = Field("", description="the question it answers, in one line")
    parameters: dict[str, Annotated[Values, ParameterType()]] = Field(
        min_length=1,
        description="platform, mode, pipeline, objective, policy, faults, load, seed, rate.SOURCE (Hz), "
        "platform.FIELD, pipeline.FIELD",
    )
    design: DesignFile | None = Field(None, description="how configurations are chosen; absent: the full grid")
    simulate: SimulateFile | None = Field(None, description="how a configuration is simulated; absent: 10 s once")
    holds: HoldsFile | None = Field(None, description="requirements in addition to a feasible plan")
    smallest: list[SizeColumn] = Field(default_factory=list, description="what to minimise; the first counts most")
    cuts: bool = Field(True, description="networks may be cut between engines")
    prices: dict[Name, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict, description="price of a module by platform, in any currency"
    )
    measure: MeasureFile | None = Field(None, description="measurement of configurations on boards")
    fleet: FleetFile | None = Field(None, description="fleet of vehicles that differ")

    def lower(self, file: str) -> Study:
        """Return the internal `Study`."""
        parameters = tuple(
            Parameter(name, v.values, v.low, v.high, v.steps, v.log, v.dimension) for name, v in self.parameters.items()
        )
        return Study(
            self.name,
            self.title,
            parameters,
            self.design.lower() if self.design else Design(),
            self.simulate.lower() if self.simulate else Simulate(),
            self.holds.lower() if self.holds else Holds(),
            tuple(self.smallest) or SMALLEST[:2],
            self.cuts,
            dict(self.prices),
            self.measure.lower() if self.measure else Measure(),
            self.fleet.lower() if self.fleet else None,
            file,
        )


def load_study(name_or_path: str | Path) -> Study:
    """Return the study of a shipped name or a file; DescriptorError lists all its faults with their positions."""
    path = resources.find("studies", str(name_or_path))
    return validate(document := read(path), StudyFile, CHECKS).lower(document.file)


def study_from(document: Document) -> Study:
    """Return the study of a document already read, checked the same way."""
    return validate(document, StudyFile, CHECKS).lower(document.file)


def check_parameters(root: Tree) -> None:
    """Report unknown and missing parameters, and values of the wrong kind."""
    parameters = root.at("parameters")
    for entry in parameters.items():
        if entry.key not in NAMED and not (entry.key.startswith(PATHS) and not entry.key.endswith(".")):
            known = f"{', '.join(NAMED)}, rate.SOURCE, platform.FIELD, pipeline.FIELD"
            near = suggest(entry.key, NAMED)
            hint = near if near.startswith("did") else f"expected one of {known}"
            entry.report(f"unknown parameter {entry.key!r}; {hint}", key=True)
    for needed in ("platform", "pipeline"):
        if isinstance(parameters.value, dict) and needed not in parameters.value:
            parameters.report(f"expected {needed} among the parameters")


def check_values(root: Tree) -> None:
    """Report values that a parameter cannot take."""
    parameters = root.at("parameters")
    for name in ("platform", "mode", "pipeline", "objective", "policy", "faults"):
        for value in _values(parameters.at(name)):
            if not value.text:
                value.report("expected text")
    for value in _values(parameters.at("objective")):
        wrong = [part for part in value.text.split(",") if part.strip() not in OBJECTIVES]
        if wrong:
            value.unknown("objective", OBJECTIVES)
    modes = _values(parameters.at("mode"))
    if len(modes) > 1 and any(mode.text == ALL for mode in modes):
        parameters.at("mode").report("expected all by itself, or names of modes")
    rates = [name for name in parameters.names() if name.startswith("rate.")]
    for name, least in (("load", 0.01), ("seed", 0), *((rate, 1e-6) for rate in rates)):
        for value in _values(parameters.at(name)):
            whole = isinstance(value.value, int) or name != "seed"
            if isinstance(value.value, bool) or not isinstance(value.value, (int, float)) or not whole:
                value.report("expected a whole number" if name == "seed" else "expected a number")
            elif value.value < least:
                value.report(f"expected at least {least:g}")


def check_references(root: Tree) -> None:
    """Report missing platforms, pipelines and fault files."""
    folder = Path(root.document.file).parent
    for kind, name in (("platforms", "platform"), ("pipelines", "pipeline")):
        for value in _values(root.at("parameters").at(name)):
            if resources.is_path(value.text):
                if not resolve_path(folder, value.text).is_file():
                    value.report(f"expected the name or file of a {name}; {value.text} does not exist")
            elif value.text and value.text != "host" and value.text not in resources.names(kind):
                value.unknown(name, resources.names(kind))
    for value in _values(root.at("parameters").at("faults")):
        if value.text and value.text != NO_FAULTS and not resolve_path(folder, value.text).is_file():
            value.report(f"expected {NO_FAULTS}, or a file of faults; {value.text} does not exist")


def check_design(root: Tree) -> None:
    """Report samples without a size, and grids over ranges without steps."""
    design = root.at("design")
    kind = design.at("kind").text or "grid"
    sampled = kind in DESIGNS[1:3] or (kind == "halving" and (design.at("start").text or "grid") != "grid")
    if sampled and not design.at("points").value:
        design.report("expected points: the number of configurations to draw")
    if not sampled:
        for entry in root.at("parameters").items():
            if isinstance(entry.value, dict) and not entry.value.get("steps"):
                entry.report("expected steps: a grid needs the number of values of the range")
    smallest = root.at("smallest")
    if any(item.text == "price" for item in smallest.texts()) and not root.at("prices").value:
        smallest.report("expected prices as well")
    if any(item.text not in SMALLEST for item in smallest.texts()):
        return
    fleet = root.at("fleet")
    if fleet.at("ambient").value is not None and fleet.at("thermal").value is None:
        fleet.at("ambient").report("expected thermal as well: the thermal model of the module", key=True)


def resolve_path(folder: Path, name: str) -> Path:
    """Return the file a study's path refers to, relative to the study's own folder."""
    path = Path(os.path.expanduser(name))
    return path if path.is_absolute() else folder / path


def _values(entry: Tree) -> list[Tree]:
    if isinstance(entry.value, list):
        return list(entry.items())
    return [] if entry.value is None or isinstance(entry.value, dict) else [entry]


CHECKS = (check_parameters, check_values, check_references, check_design)
__all__ = ["CHECKS", "Duration", "StudyFile", "load_study", "study_from"]
