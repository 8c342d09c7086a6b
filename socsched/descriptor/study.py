"""Studies (``studies/NAME.yaml``): parameters, sampling, simulation and acceptance criteria; a fleet."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from socsched import resources, units
from socsched.descriptor.distribution import Distribution, normal
from socsched.descriptor.fields import (
    OR_NULL,
    Assumed,
    Entry,
    Listed,
    Name,
    OneOf,
    Period,
    SourceKey,
    Temperature,
    Title,
    doc,
)
from socsched.descriptor.source import Document, read
from socsched.descriptor.validation import Tree, suggest, validate

NAMED = ("platform", "mode", "pipeline", "objective", "policy", "faults", "load", "seed")
"""Parameters by name, in addition to ``rate.SOURCE``, ``platform.FIELD`` and ``pipeline.FIELD``."""
PATHS = ("rate.", "platform.", "pipeline.")
ALL = "all"
"""Value of `mode` that stands for every power mode of the platform."""
DESIGNS = ("grid", "random", "latin-hypercube", "halving")
SMALLEST = ("platform_tdp_mw", "tdp_mw", "price", "planned_power_mw", "latency_ns", "energy_mj_per_round", "power_mw")
"""Columns by which the smallest configuration can be chosen."""
ALWAYS_AS_PLANNED = Distribution((1_000_000,), "1")
"""Load, in millionths, of a vehicle whose jobs take their planned times."""
MOST_VALUES = 100_000
OBJECTIVES = ("latency", "energy", "throughput", "slack")
NO_FAULTS = "none"
_RANGE = ("between", "steps", "scale")
_Probability = Annotated[float, Field(gt=0, lt=1)]
SizeColumn = Annotated[str, OneOf(*SMALLEST)]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A varied parameter: listed `values` as in the file, or from `low` to `high` in `steps` (0: continuous).

    `dimension` of `units.UNITS` for quantities, else empty; `low` and `high` are in its base unit.  `log`: steps and
    density are uniform in the logarithm.
    """

    name: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    steps: int = 0
    log: bool = False
    dimension: str = ""

    @property
    def listed(self) -> bool:
        """Return whether the parameter lists its values rather than giving a range."""
        return bool(self.values)


def dimension_of(value: object) -> str:
    """Return the dimension of a quantity with a unit; empty for anything else."""
    if not isinstance(value, str):
        return ""
    for dimension in units.UNITS:
        try:
            units.parse_exact(value, dimension)
        except ValueError:
            continue
        return dimension
    return ""


@dataclass(frozen=True, slots=True)
class ParameterType:
    """Annotation of a parameter: one value, a list of them, or ``{between: [low, high], steps: n, scale: log}``."""

    def read(self, value: Any) -> Parameter:
        """Return the parameter, without its name; raise ValueError with the expected form."""
        if isinstance(value, dict):
            return self._range(value)
        listed = value if isinstance(value, list) else [value]
        if not listed:
            raise ValueError("expected at least one value")
        if any(isinstance(item, (list, dict)) or item is None for item in listed):
            raise ValueError("expected a value, a list of values, or {between: [low, high], steps: n}")
        if len({(type(item), item) for item in listed}) < len(listed):
            raise ValueError("expected every value once")
        kinds = {dimension_of(item) or (type(item) if not isinstance(item, (int, float)) else float) for item in listed}
        if len(kinds) > 1:
            raise ValueError("expected values of one kind: numbers, text, or quantities of one dimension")
        return Parameter("", tuple(listed), dimension=dimension_of(listed[0]))

    def _range(self, value: dict[str, Any]) -> Parameter:
        wrong = next((key for key in value if key not in _RANGE), None)
        ends, steps, scale = value.get("between"), value.get("steps", 0), value.get("scale", "linear")
        if wrong is not None or not isinstance(ends, list) or len(ends) != 2:
            raise ValueError("expected {between: [low, high], steps: n, scale: linear or log}")
        if scale not in ("linear", "log"):
            raise ValueError(f"expected scale linear or log, got {scale!r}")
        if isinstance(steps, bool) or not isinstance(steps, int) or not (steps == 0 or 2 <= steps <= MOST_VALUES):
            raise ValueError(f"expected 2 to {MOST_VALUES} steps")
        dimension = dimension_of(ends[0])
        if dimension:
            low, high = (float(units.parse_exact(end, dimension)) for end in ends)
        elif any(isinstance(end, bool) or not isinstance(end, (int, float)) for end in ends):
            raise ValueError("expected numbers, or quantities of one dimension, as ends")
        else:
            low, high = map(float, ends)
        if not low < high or (scale == "log" and low <= 0):
            raise ValueError("expected ends in order" + (", above zero" if scale == "log" else ""))
        return Parameter("", (), low, high, steps, scale == "log", dimension)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        scalar = {"type": ["string", "number", "boolean"]}
        ends = {"type": "array", "items": scalar, "minItems": 2, "maxItems": 2}
        steps = {"type": "integer", "minimum": 2}
        interval = {"between": ends, "steps": steps, "scale": {"enum": ["linear", "log"]}}
        return {
            "anyOf": [
                scalar,
                {"type": "array", "items": scalar, "minItems": 1},
                {"type": "object", "properties": interval, "required": ["between"], "additionalProperties": False},
            ]
        }


@dataclass(frozen=True, slots=True)
class SpreadType:
    """Annotation of a distribution, in integers of 1/`scale` of the unit; `dimension` empty: plain numbers."""

    scale: int
    dimension: str = ""
    least: float | None = None

    def read(self, value: Any) -> Distribution:
        """Return the distribution; raise ValueError with the expected form."""
        if not isinstance(value, dict):
            return Distribution.constant(self._number(value), str(value))
        if len(value) != 1:
            raise ValueError(f"expected {_FORMS}")
        ((form, numbers),) = value.items()
        if (form == "uniform" and isinstance(numbers, list) and len(numbers) == 2) or (
            form == "quantiles" and isinstance(numbers, list) and len(numbers) >= 2
        ):
            amounts = tuple(map(self._number, numbers))
        elif form == "normal" and isinstance(numbers, dict) and set(numbers) == {"mean", "sd", "least", "most"}:
            parts = {key: Decimal(self._number(item, free=True)) for key, item in numbers.items()}
            if not parts["least"] < parts["mean"] < parts["most"] or parts["sd"] <= 0:
                raise ValueError("expected least < mean < most and sd above zero")
            self._number(numbers["least"])
            amounts = normal(parts["mean"], parts["sd"], parts["least"], parts["most"])
        else:
            raise ValueError(f"expected {_FORMS}")
        if list(amounts) != sorted(amounts):
            raise ValueError("expected values in ascending order")
        return Distribution(amounts, f"{form} {numbers}")

    def _number(self, value: object, free: bool = False) -> int:
        if self.dimension:
            exact = units.parse_exact(value, self.dimension)
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"expected a number, or {_FORMS}, got {value!r}")
        else:
            exact = Fraction(str(value))
        if not free and self.least is not None and exact < Fraction(self.least):
            raise ValueError(f"expected at least {self.least:g}, got {value!r}")
        return round(exact * self.scale)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        number = {"type": "string" if self.dimension else "number"}
        pair = {"type": "array", "items": number, "minItems": 2}
        normal = {"type": "object", "properties": dict.fromkeys(("mean", "sd", "least", "most"), number)}
        forms = {"uniform": {**pair, "maxItems": 2}, "quantiles": pair, "normal": normal}
        return {"anyOf": [number, {"type": "object", "properties": forms, "additionalProperties": False}]}


_FORMS = (
    "a value, {uniform: [low, high]}, {quantiles: [lowest, ..., highest]} "
    "or {normal: {mean: m, sd: s, least: l, most: h}}"
)


def quantity_text(value: float, dimension: str) -> str:
    """Return a number in base units in file notation."""
    unit = units.BASE_UNIT[dimension]
    return f"{round(value)} {unit}" if dimension not in ("energy per byte", "temperature") else f"{value:.6f} {unit}"


@dataclass(frozen=True, slots=True)
class Design(Entry):
    """How configurations are chosen.

    Halving keeps the best fraction `keep` in every round and simulates it 1 / `keep` times as often in the next, from
    `first` runs up to all.
    """

    kind: Annotated[str, OneOf(*DESIGNS), doc("how to sample")] = "grid"
    points: Annotated[int, doc("number of sampled configurations; not for a grid", ge=0, le=10_000_000)] = 0
    seed: Annotated[int, doc("seed of the sample", ge=0, le=2**63 - 1)] = 0
    start: Annotated[str, OneOf(*DESIGNS[:3]), doc("for halving: the first round")] = "grid"
    keep: Annotated[_Probability, doc("for halving: share that enters the next round")] = 0.5
    first: Annotated[int, doc("for halving: runs of a configuration in the first round", ge=1, le=100_000)] = 1


@dataclass(frozen=True, slots=True)
class Simulate(Entry):
    """How a configuration is simulated."""

    duration_ns: Annotated[Period, doc("simulated time of one run", "duration")] = 10 * 10**9
    runs: Annotated[int, doc("runs of a configuration, with consecutive seeds", ge=1, le=100_000)] = 1
    settle: Annotated[bool, doc("stop once the verdict on misses is statistically settled")] = True
    confidence: Annotated[_Probability, doc("confidence of that verdict and of intervals of misses")] = 0.99


@dataclass(frozen=True, slots=True)
class Holds(Entry):
    """Requirements on a configuration in addition to a feasible plan."""

    slack: Annotated[
        Annotated[float, Field(ge=0, lt=1)] | None,
        doc("share of its deadline that the bound of every chain leaves, at least"),
    ] = None
    growth: Annotated[
        Annotated[float, Field(ge=1, le=64)] | None,
        doc("factor by which all WCETs may grow with every deadline still proved, at least"),
    ] = None
    misses: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None, doc("share of frames late or dropped in simulation, at most")
    ] = None


@dataclass(frozen=True, slots=True)
class Thermal(Entry):
    """A module with its heat sink as one lumped mass.

    Its thermal resistance is in mK/W.  `trip_mc`: temperature of throttling (1/1000 degree Celsius), 0: that of
    the platform.
    """

    resistance_mk_per_w: int
    time_constant_ns: Annotated[Period, doc("time constant: 63 % of a step", "time_constant")]
    trip_mc: int = 0
    source: SourceKey = ""

    class File:
        """Numbers in the units of data sheets."""

        resistance: Annotated[float, doc("thermal resistance: kelvins above ambient per watt", gt=0, le=1000)]
        trip: Annotated[
            Temperature | None,
            doc("temperature at which clocks are throttled; absent: the platform's throttle limit"),
        ] = None
        assumed: Assumed = ""

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> Thermal:
        """Return the module in the integers that simulations compute with."""
        trip = values.get("trip")
        return cls(
            round(values["resistance"] * 1000),
            values["time_constant_ns"],
            0 if trip is None else round(trip * 1000),
            values.get("source") or values.get("assumed", ""),
        )


@dataclass(frozen=True, slots=True)
class Fleet(Entry):
    """Vehicles that differ in load, temperature and faults (`socsched fleet`)."""

    vehicles: Annotated[int, doc("number of vehicles", ge=2, le=10_000_000)]
    duration_ns: Annotated[Period, doc("simulated driving time of each", "duration", default=60 * 10**9)]
    seed: Annotated[int, doc("seed of the first vehicle; the others follow", ge=0, le=2**31 - 1)] = 0
    load: Annotated[
        Distribution,
        SpreadType(1_000_000, least=0.01),
        OR_NULL,
        doc("factor on execution times, drawn for each vehicle"),
    ] = ALWAYS_AS_PLANNED
    ambient_mc: Annotated[
        Annotated[Distribution, SpreadType(1000, "temperature")] | None,
        doc("temperature around the module, drawn for each vehicle; needs thermal", "ambient"),
    ] = None
    thermal: Annotated[Thermal | None, doc("thermal model of the module")] = None
    faults_per_minute: Annotated[
        Annotated[Distribution, SpreadType(1_000_000, least=0)] | None,
        doc("rate of random faults, drawn for each vehicle"),
    ] = None
    kinds: Annotated[
        Listed[
            Annotated[str, OneOf("dropouts", "delays", "bursts", "slowdowns", "throttles", "stalls", "deaths", "hogs")]
        ],
        doc("kinds of random faults; default: all"),
    ] = ()
    confidence: Annotated[_Probability, doc("confidence of intervals")] = 0.95
    worst: Annotated[int, doc("number of worst vehicles to list", ge=0, le=1000)] = 10
    vehicle_hours: Annotated[int, doc("vehicle-hours to which the table of costs extrapolates", ge=1, le=10**12)] = (
        1_000_000
    )


@dataclass(frozen=True, slots=True)
class Study(Entry):
    """A sweep over configurations, and a fleet of vehicles."""

    name: Annotated[Name, doc("name of the study, as in the file's name")]
    title: Annotated[Title | Literal[""], doc("the question it answers, in one line", default="")]
    parameters: tuple[Parameter, ...]
    design: Annotated[Design, OR_NULL, doc("how configurations are chosen; absent: the full grid")] = Design()
    simulate: Annotated[Simulate, OR_NULL, doc("how a configuration is simulated; absent: 10 s once")] = Simulate()
    holds: Annotated[Holds, OR_NULL, doc("requirements in addition to a feasible plan")] = Holds()
    smallest: Annotated[Listed[SizeColumn], doc("what to minimise; the first counts most")] = SMALLEST[:2]
    cuts: Annotated[bool, doc("networks may be cut between engines")] = True
    prices: Annotated[
        Mapping[Name, Annotated[float, Field(gt=0)]], doc("price of a module by platform, in any currency")
    ] = field(default_factory=dict)
    fleet: Annotated[Fleet | None, doc("fleet of vehicles that differ")] = None
    file: str = ""

    class File:
        """Parameters are a mapping by name."""

        schema_version: Annotated[Literal["1"], doc('version of this format, "1"')]
        parameters: Annotated[
            dict[str, Annotated[Parameter, ParameterType()]],
            doc(
                "platform, mode, pipeline, objective, policy, faults, load, seed, rate.SOURCE (Hz), platform.FIELD, "
                "pipeline.FIELD",
                min_length=1,
            ),
        ]

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> Study:
        """Return the study with parameters that know their names."""
        del values["schema_version"]
        parameters = tuple(replace(one, name=name) for name, one in values.pop("parameters").items())
        smallest = values.pop("smallest", ()) or SMALLEST[:2]
        return cls(parameters=parameters, smallest=smallest, **values)

    def parameter(self, name: str) -> Parameter | None:
        """Return a parameter by name, None if it does not vary."""
        return next((parameter for parameter in self.parameters if parameter.name == name), None)


def load_study(name_or_path: str | Path) -> Study:
    """Return the study of a shipped name or a file; DescriptorError lists all its faults with their positions."""
    return study_from(read(resources.find("studies", str(name_or_path))))


def study_from(document: Document) -> Study:
    """Return the study of a document already read, checked the same way."""
    return replace(validate(document, Study, CHECKS), file=document.file)


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
