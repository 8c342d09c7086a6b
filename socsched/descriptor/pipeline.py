"""The workload: sensors, stages, cause-effect chains, and operating conditions; `pipeline_file` reads it from YAML.

An amount of time is a number (a factor on the planned cost, valid on any engine) or a time with its unit (the same
wherever the stage runs); one stage uses one kind throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from socsched.descriptor import distribution
from socsched.descriptor.fields import (
    OR_NULL,
    Assumed,
    Count,
    Duration,
    Entry,
    FileModel,
    Keyed,
    Listed,
    Name,
    OneOf,
    Period,
    PrecisionName,
    Quantity,
    Size,
    Source,
    SourceKey,
    Timer,
    Title,
    doc,
    whole_periods,
)
from socsched.descriptor.platform import DurationFigure
from socsched.errors import UsageError

BASE = "base"
"""Name of the pipeline without changes, among operating conditions."""
PER_POINT = 1000
"""Accuracy is counted in thousandths of a point."""
PER_COST = 10**9
"""Factors on a planned cost are whole numbers of 1/`PER_COST`."""
Points = Annotated[float, Field(ge=0, le=1e6)]
Criticality = Annotated[str, OneOf("hard", "firm", "soft")]
_TIME = Quantity("duration", positive=True)


class AmountType:
    """Annotation of a factor on the planned cost (Fraction once read) or a time with unit (int, in ns)."""

    @staticmethod
    def read(value: object) -> int | Fraction:
        """Return the amount; raise ValueError with the expected form."""
        if isinstance(value, str):
            return int(_TIME.read(value))
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1e-6 <= value <= 1e6:
            raise ValueError(f"expected a factor on the planned cost (0.000001 to 1000000) or a time, got {value!r}")
        return Fraction(str(value))

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        factor = {"type": "number", "exclusiveMinimum": 0, "maximum": 1e6}
        return {"anyOf": [factor, _TIME.__get_pydantic_json_schema__(schema, handler)]}


Amount = Annotated[int | Fraction, AmountType()]
_Amounts = list[Amount]
_FORMS = ("samples", "quantiles", "uniform", "normal", "lognormal")


def _inner(amount: int | Fraction) -> Decimal:
    """Return an amount in ns, or in 1/`PER_COST` of the planned cost."""
    exact = amount * PER_COST if isinstance(amount, Fraction) else Fraction(amount)
    return Decimal(exact.numerator) / Decimal(exact.denominator)


class Spread(FileModel):
    """A distribution, cut off at its ends."""

    mean: Amount = Field(description="mean of the whole distribution")
    sd: Amount = Field(description="standard deviation of the whole distribution")
    max: Amount = Field(description="longest time: the worst case of the analysis")
    min: Amount | None = Field(None, description="shortest time; absent: almost 0")

    def amounts(self) -> _Amounts:
        """Return all amounts."""
        return [self.mean, self.sd, self.max, *([self.min] if self.min is not None else [])]

    def ends(self) -> tuple[Decimal, Decimal]:
        """Return the shortest and the longest time."""
        return (_inner(self.min) if self.min is not None else Decimal(1)), _inner(self.max)

    def fault(self, logarithmic: bool) -> str:
        """Return a description of the fault, empty when there is none."""
        least, most = self.ends()
        mean = _inner(self.mean)
        if not least < mean < most:
            return "expected min below mean below max"
        if distribution.deviations(mean, _inner(self.sd), most, logarithmic) > distribution.FARTHEST:
            return (
                f"expected max at most {distribution.FARTHEST} standard deviations out; rarer times are overrun faults"
            )
        return ""

    def table(self, make: Callable[..., tuple[int, ...]]) -> tuple[int, ...]:
        """Return the quantiles computed by `make`."""
        return make(_inner(self.mean), _inner(self.sd), *self.ends())


@dataclass(frozen=True, slots=True)
class Execution(Entry):
    """Execution times of jobs, in exactly one of the forms below.

    Read: ascending, equally likely `values`, or quantiles at equal steps with `interpolate`.  Values are in ns, or with
    `relative` in 1/`PER_COST` of the planned cost.
    """

    values: tuple[int, ...]
    relative: bool
    interpolate: bool

    class File:
        """How the times are written."""

        samples: Annotated[_Amounts | None, doc("drawn with equal probability", min_length=1, max_length=10_000)] = None
        quantiles: Annotated[
            _Amounts | None,
            doc("at equal steps of probability, ascending; linear in between", min_length=2, max_length=10_000),
        ] = None
        uniform: Annotated[_Amounts | None, doc("[shortest, longest]", min_length=2, max_length=2)] = None
        normal: Annotated[Spread | None, doc("normal distribution")] = None
        lognormal: Annotated[Spread | None, doc("lognormal distribution")] = None
        source: SourceKey = ""
        assumed: Assumed = ""

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> Execution:
        """Return the times of the one form that is given; ValueError if they are none, several, or out of order."""
        forms = {form: given for form in _FORMS if (given := values.get(form)) is not None}
        if len(forms) != 1:
            got = "none" if not forms else "several"
            raise ValueError(f"expected one of {', '.join(_FORMS)}; got {got}")
        ((form, given),) = forms.items()
        amounts = given.amounts() if isinstance(given, Spread) else given
        relative = isinstance(amounts[0], Fraction)
        if len({isinstance(amount, Fraction) for amount in amounts}) > 1:
            raise ValueError("expected factors on the planned cost or times, not both")
        if isinstance(given, Spread):
            if fault := given.fault(form == "lognormal"):
                raise ValueError(fault)
            make = distribution.lognormal if form == "lognormal" else distribution.normal
            return cls(given.table(make), relative, True)
        if form != "samples" and list(given) != sorted(given):
            raise ValueError("expected amounts in ascending order")
        return cls(tuple(max(round(_inner(amount)), 1) for amount in sorted(given)), relative, form != "samples")

    def times_ns(self, cost_ns: int) -> tuple[int, ...]:
        """Return the values in ns for a stage of this planned cost, rounded up."""
        return tuple(-(-value * cost_ns // PER_COST) if self.relative else value for value in self.values)


@dataclass(frozen=True, slots=True)
class Degraded(Entry):
    """What a job runs instead when it cannot meet its deadline any more; exactly one of precision and cost."""

    precision: Annotated[PrecisionName, OR_NULL, doc("the same stage in a cheaper data type on the same engine")] = ""
    cost: int = 0
    relative: bool = False

    class File:
        """A cost is a factor or a time."""

        cost: Annotated[Amount | None, doc("factor on the planned cost, or a time")] = None
        source: SourceKey = ""
        assumed: Assumed = ""

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> Degraded:
        """Return the variant; ValueError unless it is cheaper, and stated in one way."""
        precision, cost = values.get("precision", ""), values.get("cost")
        if (not precision) == (cost is None):
            raise ValueError("expected one of precision and cost")
        if isinstance(cost, Fraction) and cost >= 1:
            raise ValueError("expected a cost below 1: less than the planned cost")
        return cls(precision) if cost is None else cls("", round(_inner(cost)), isinstance(cost, Fraction))


@dataclass(frozen=True, slots=True)
class High:
    """The time of a stage at the high level of criticality: ns, or with `relative` in 1/`PER_COST` of its cost."""

    cost: int
    relative: bool

    def time_ns(self, cost_ns: int) -> int:
        """Return the time in ns for a stage of this planned cost, rounded up, and no less than the cost."""
        return max(-(-self.cost * cost_ns // PER_COST) if self.relative else self.cost, cost_ns)


@dataclass(frozen=True, slots=True)
class Sensor(Entry):
    """A source of frames: periodic, or sporadic."""

    name: str
    kind: Annotated[Name, doc("type of sensor: lidar, camera, imu, ...")]
    period_ns: Annotated[
        Timer, doc("time between frames, such as 100 ms or 10 Hz; the shortest one if they are sporadic", "period")
    ]
    offset_ns: Annotated[Duration, doc("release of the first frame after the start", "offset")] = 0
    jitter_ns: Annotated[Duration, doc("largest delay of a release", "jitter")] = 0
    bytes_per_frame: Annotated[Size, doc("bytes a frame writes to memory")] = 0
    source: SourceKey = ""
    assumed: Assumed = ""
    gap_ns: Annotated[Duration, doc("largest excess of the time between frames over period", "sporadic")] = 0
    columns: Annotated[
        Listed[Name],
        doc(
            "columns of recorded scans, such as [x, y, z, intensity, ring]; absent: detected where values tell",
            max_length=64,
        ),
    ] = ()
    column_type: Annotated[str, OneOf("float32", "float64"), doc("type of the numbers in recorded scans")] = "float32"


@dataclass(frozen=True, slots=True)
class Anchor(Entry):
    """A known execution time: what was run where, and how long it took.

    `platform` and `mode` name a described platform, or are any text for other hardware: `engine` is then matched as an
    engine *kind* of the planned platform, and `scale` converts the time to its fastest setting.  `scales_with`:
    performance of one unit (general code), bandwidth of the engine, compute (units x clock x operations per cycle).
    """

    platform: Annotated[Title, doc("a platform's name, or any text for hardware not described")]
    mode: Annotated[Title, doc("power mode, or any text for hardware not described")]
    engine: Annotated[Name, doc("engine id (dla0) or kind (cpu)")]
    precision: Annotated[PrecisionName, doc("data type for which the time holds")]
    time_ns: Annotated[DurationFigure, doc("execution time of one job as a figure", "time")]
    units: Annotated[Count, doc("number of engine units (cores, SMs) for which the time holds, 0 = all")] = 0
    scale: Annotated[float, doc("factor on the time, explained in the figure's note", gt=0, le=1e6)] = 1.0
    scales_with: Annotated[
        str,
        OneOf("performance", "bandwidth", "compute", "nothing"),
        doc("quantity that the time scales with on other described hardware"),
    ] = "performance"
    slice_ns: Annotated[
        Duration,
        doc("longest non-preemptive part; absent: chosen from the engine's slices, or the whole job", "slice"),
    ] = 0


@dataclass(frozen=True, slots=True)
class Stage(Entry):
    """One schedulable piece of work; exactly one of after and period starts it.

    `model` names a built-in model ("pointpillars.backbone"), or is "onnx" with the param `file` (absolute path); a
    stage without a model is known by its execution times only.  After the frames of all of `after` it runs; of `reads`
    it samples the latest finished output.  `open_queue`: no number is stated, so that the planner may choose a larger
    one.  `slice_ns`: length of time slices chosen by the planner for times that state none, on engines that declare
    slices (0: jobs run in one piece).  A late job is skipped (not started) or aborted (at its deadline).  `losses` are
    in 1/`PER_POINT` of a point of the pipeline's measure.  `portions`: by engine that a search divides, the first lane
    and the number of lanes that the stage has there (`planning.shares`).  `stated`: why its `precisions` are the only
    ones, "" if the file lists them (`models.precision`).
    """

    name: str
    title: Annotated[Title, doc("short description of the stage")]
    model: Annotated[str | None, doc("built-in model; without one, costs give the execution times", default=None)]
    after: Annotated[Listed[str], doc("sensors and stages that must all deliver a frame first")] = ()
    period_ns: Annotated[
        Timer | None, doc("runs on its own timer with this period, such as 20 ms or 50 Hz", "period")
    ] = None
    offset_ns: Annotated[Duration, doc("first activation of the timer after the start", "offset")] = 0
    reads: Annotated[Listed[str], doc("sensors and stages sampled at start")] = ()
    params: Annotated[Mapping[str, Any], doc("parameters of the model")] = field(default_factory=dict)
    precisions: Annotated[Listed[PrecisionName], doc("accepted data types, best first", min_length=1)] = ("fp32",)
    costs: Annotated[Listed[Anchor], doc("known execution times")] = ()
    queue: Annotated[
        int,
        Field(ge=1, le=1000),
        OR_NULL,
        doc("largest number of waiting frames, one more drops one by overflow; absent: the planner chooses"),
    ] = 1
    share: Annotated[
        Count,
        OR_NULL,
        doc(
            "largest number of engine units one job can use, 0 = all; default: 1 for a stage without model whose costs "
            "are all for one unit, else all"
        ),
    ] = 0
    output_bytes: Annotated[Size, doc("output of a stage without model")] = 0
    criticality: Annotated[Criticality, doc("criticality of a late job: hard, firm or soft")] = "firm"
    source: SourceKey = ""
    assumed: Assumed = ""
    overflow: Annotated[str, OneOf("newest", "oldest"), doc("frame dropped when the queue is full")] = "newest"
    on_late: Annotated[
        str, OneOf("continue", "skip", "abort", "degrade"), doc("action for a job that cannot meet its deadline")
    ] = "continue"
    execution: Annotated[Execution | None, doc("execution times of jobs; absent: the planned cost")] = None
    degraded: Annotated[Degraded | None, doc("with on_late: degrade, what the job runs instead")] = None
    jitter_ns: Annotated[Duration, doc("largest delay of an activation of the timer", "jitter")] = 0
    engines: Annotated[Listed[Name], doc("engine ids or kinds it may run on; absent: any")] = ()
    losses: Mapping[str, int] = field(default_factory=dict)
    open_queue: bool = False
    slice_ns: int = 0
    portions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    high: High | None = None
    stated: str = ""

    class File:
        """A network may be a file; times at the high level and losses are in units of the user."""

        onnx: Annotated[
            Title | None,
            doc("network in an ONNX file, path relative to this file; params inputs and outputs rename its ports"),
        ] = None
        losses: Annotated[
            dict[PrecisionName, Points],
            doc("loss of accuracy by data type, in points, such as 0.4 (mAP); none if not listed", "accuracy_loss"),
        ] = {}  # noqa: RUF012
        high: Annotated[
            Amount | None,
            doc("time at the high level of criticality: a factor on the planned cost, or a time"),
        ] = None

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> Stage:
        """Return the stage; the path of a network is still relative to the file."""
        onnx, high, costs = values.pop("onnx", None), values.pop("high", None), values.get("costs", ())
        if onnx:
            values |= {"model": "onnx", "params": {"file": Path(onnx), **values.get("params", {})}}
        # Nothing says that a time for one unit halves on two.
        serial = bool(costs) and not values["model"] and all(cost.units == 1 for cost in costs)
        return cls(
            **{
                "share": 1 if serial else 0,
                **values,
                "open_queue": "queue" not in values,
                "losses": {kind: round(points * PER_POINT) for kind, points in values.get("losses", {}).items()},
                "high": None if high is None else High(round(_inner(high)), isinstance(high, Fraction)),
            }
        )

    @property
    def modelled(self) -> bool:
        """Return whether the stage has a model to compile or call: built in, or a network from a file."""
        return self.model is not None


@dataclass(frozen=True, slots=True)
class Chain(Entry):
    """A cause-effect chain with its end-to-end deadline."""

    name: str
    path: Annotated[Listed[str], doc("a sensor or timer stage, then stages linked by after or reads", min_length=1)]
    deadline_ns: Annotated[Period, doc("longest time from the release at the start of the path to its end", "deadline")]
    max_age_ns: Annotated[Period | None, doc("largest data age at the end of the last stage", "max_age")] = None
    criticality: Annotated[Criticality, doc("criticality of a late output: hard, firm or soft")] = "firm"
    source: SourceKey = ""
    assumed: Assumed = ""


class SensorChange(FileModel):
    """A sensor under a condition."""

    period: Period | None = Field(None, description="another period, such as 66 ms for a longer exposure at night")


@dataclass(frozen=True, slots=True)
class StageChange(Entry):
    """A stage under a condition."""

    load: Annotated[float, doc("factor on the times under costs, for stages without a network", gt=0, le=1e6)] = 1.0
    params: Annotated[Mapping[str, Any], doc("parameters of the model that differ")] = field(default_factory=dict)
    period_ns: Annotated[Period | None, doc("another period of its timer", "period")] = None


class ChainChange(FileModel):
    """A chain under a condition."""

    deadline: Period = Field(description="another deadline")


@dataclass(frozen=True, slots=True)
class Condition(Entry):
    """An operating condition: sensors, stages and chains as far as they differ from the file's own figures."""

    name: str
    title: Annotated[Title, doc("one-line description")]
    periods: Mapping[str, int] = field(default_factory=dict)
    stages: Annotated[Mapping[Name, StageChange], doc("stages that differ")] = field(default_factory=dict)
    deadlines: Mapping[str, int] = field(default_factory=dict)
    source: SourceKey = ""
    assumed: Assumed = ""

    class File:
        """A sensor has a period, a chain a deadline to change."""

        sensors: Annotated[dict[Name, SensorChange], doc("sensors that differ")] = {}  # noqa: RUF012
        chains: Annotated[dict[Name, ChainChange], doc("chains that differ")] = {}  # noqa: RUF012

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> Condition:
        """Return the condition with the periods and deadlines that differ."""
        sensors, chains = values.pop("sensors", {}), values.pop("chains", {})
        periods = {name: one.period for name, one in sensors.items() if one.period is not None}
        return cls(periods=periods, deadlines={name: one.deadline for name, one in chains.items()}, **values)


@dataclass(frozen=True, slots=True)
class Pipeline(Entry):
    """One workload: sensors, stages and end-to-end requirements.

    `accuracy_budget` is in 1/`PER_POINT` points.
    """

    name: Annotated[Name, doc("name of the pipeline, as in the file's name")]
    title: Annotated[Title, doc("one-line description")]
    sensors: Annotated[tuple[Sensor, ...], Keyed(), doc("sensors by name", default=())]
    stages: Annotated[tuple[Stage, ...], Keyed(), doc("stages by name", min_length=1)]
    chains: Annotated[tuple[Chain, ...], Keyed(), doc("end-to-end requirements by name", default=())]
    sources: Annotated[Mapping[Name, Source], doc("sources of figures, by key")] = field(default_factory=dict)
    file: str = ""
    accuracy_budget: int | None = None
    precision: Annotated[
        str,
        OneOf("auto", "int8", "fp16", "fp32"),
        doc(
            "data type of all networks; auto: of a stage's precisions the planner's choice, or int8 as its file states"
        ),
    ] = "auto"
    conditions: Annotated[tuple[Condition, ...], Keyed(), doc("operating conditions by name, for books of plans")] = ()

    class File:
        """The budget is in points."""

        schema_version: Annotated[Literal["1"], doc('version of this format, "1"')]
        accuracy_budget: Annotated[
            Points | None,
            doc("largest loss of accuracy of all stages together, in points, by their data types"),
        ] = None

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> Pipeline:
        """Return the pipeline with periods in whole nanoseconds that repeat together as the stated ones do."""
        del values["schema_version"]
        budget, timers = values.pop("accuracy_budget", None), [*values["sensors"], *values["stages"]]
        stated = {one.name: one.period_ns for one in timers if one.period_ns is not None}
        periods = dict(zip(stated, whole_periods(list(stated.values())), strict=True))
        for part in ("sensors", "stages"):
            values[part] = tuple(replace(one, period_ns=periods.get(one.name)) for one in values[part])
        return cls(accuracy_budget=None if budget is None else round(budget * PER_POINT), **values)

    def stage(self, name: str) -> Stage:
        """Return the stage of this name; KeyError when there is none."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)


def under_condition(pipeline: Pipeline, name: str) -> Pipeline:
    """Return a pipeline under one of its operating conditions, itself for `BASE`; UsageError for an unknown one."""
    if name == BASE:
        return pipeline
    condition = next((one for one in pipeline.conditions if one.name == name), None)
    if condition is None:
        names = ", ".join((BASE, *(one.name for one in pipeline.conditions)))
        raise UsageError(f"pipeline {pipeline.name!r} has no operating condition {name!r}", f"one of {names}")
    return replace(
        pipeline,
        sensors=tuple(replace(s, period_ns=condition.periods.get(s.name, s.period_ns)) for s in pipeline.sensors),
        stages=tuple(_changed(s, condition.stages.get(s.name)) for s in pipeline.stages),
        chains=tuple(replace(c, deadline_ns=condition.deadlines.get(c.name, c.deadline_ns)) for c in pipeline.chains),
    )


def _changed(stage: Stage, change: StageChange | None) -> Stage:
    if change is None:
        return stage
    return replace(
        stage,
        costs=tuple(replace(anchor, scale=anchor.scale * change.load) for anchor in stage.costs),
        params={**stage.params, **change.params},
        period_ns=stage.period_ns if change.period_ns is None else change.period_ns,
    )
