"""Pipeline files: workload, rates and end-to-end deadlines."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from socsched.descriptor.condition_file import ConditionFile, check_conditions
from socsched.descriptor.execution_file import Amount, DegradedFile, ExecutionFile, lower_high
from socsched.descriptor.fields import (
    Count,
    Duration,
    DurationFigure,
    FileModel,
    Grounded,
    Name,
    Period,
    PrecisionName,
    Size,
    SourceFile,
    Title,
)
from socsched.descriptor.pipeline import PER_POINT, Anchor, Chain, Pipeline, Sensor, Stage
from socsched.descriptor.pipeline_checks import CHECKS
from socsched.descriptor.rates import Cycle, whole_periods
from socsched.descriptor.source import Document, read
from socsched.descriptor.validation import plain, validate

Timer = Annotated[int | Fraction, Cycle("duration", positive=True)]
Points = Annotated[float, Field(ge=0, le=1e6)]
Criticality = Literal["hard", "firm", "soft"]


class SensorFile(Grounded):
    """A source of frames: periodic, or sporadic."""

    kind: Name = Field(description="type of sensor: lidar, camera, imu, ...")
    period: Timer = Field(
        description="time between frames, such as 100 ms or 10 Hz; the shortest one if they are sporadic"
    )
    offset: Duration = Field(0, description="release of the first frame after the start")
    jitter: Duration = Field(0, description="largest delay of a release")
    sporadic: Duration = Field(0, description="largest excess of the time between frames over period")
    bytes_per_frame: Size = Field(0, description="bytes a frame writes to memory")
    columns: list[Name] = Field(
        default_factory=list,
        max_length=64,
        description="columns of recorded scans, such as [x, y, z, intensity, ring]; absent: detected where values tell",
    )
    column_type: Literal["float32", "float64"] = Field("float32", description="type of the numbers in recorded scans")

    def lower(self, name: str, period_ns: int) -> Sensor:
        """Return the internal `Sensor`."""
        times = (period_ns, self.offset, self.jitter)
        scan = tuple(self.columns), self.column_type
        return Sensor(name, self.kind, *times, self.bytes_per_frame, self.source, self.assumed, self.sporadic, *scan)


class AnchorFile(FileModel):
    """A known execution time: what was run where, and how long it took."""

    platform: Title = Field(description="a platform's name, or any text for hardware not described")
    mode: Title = Field(description="power mode, or any text for hardware not described")
    engine: Name = Field(description="engine id (dla0) or kind (cpu)")
    precision: PrecisionName = Field(description="data type for which the time holds")
    time: DurationFigure = Field(description="execution time of one job as a figure")
    units: Count = Field(0, description="number of engine units (cores, SMs) for which the time holds, 0 = all")
    scale: float = Field(1.0, gt=0, le=1e6, description="factor on the time, explained in the figure's note")
    scales_with: Literal["performance", "bandwidth", "compute", "nothing"] = Field(
        "performance", description="quantity that the time scales with on other described hardware"
    )

    slice: Duration = Field(
        0, description="longest non-preemptive part; absent: chosen from the engine's slices, or the whole job"
    )

    def lower(self) -> Anchor:
        """Return the internal `Anchor`."""
        time = self.time.lower()
        place = (self.platform, self.mode, self.engine, self.precision)
        return Anchor(*place, time, self.units, self.scale, self.scales_with, self.slice)


class StageFile(Grounded):
    """One schedulable piece of work; exactly one of after and period starts it."""

    title: Title = Field(description="short description of the stage")
    model: str | None = Field(None, description="built-in model; without one, costs give the execution times")
    onnx: Title | None = Field(
        None,
        description="network in an ONNX file, path relative to this file; params inputs and outputs rename its ports",
    )
    after: list[str] = Field(default_factory=list, description="sensors and stages that must all deliver a frame first")
    period: Timer | None = Field(None, description="runs on its own timer with this period, such as 20 ms or 50 Hz")
    offset: Duration = Field(0, description="first activation of the timer after the start")
    jitter: Duration = Field(0, description="largest delay of an activation of the timer")
    reads: list[str] = Field(default_factory=list, description="sensors and stages sampled at start")
    params: dict[str, Any] = Field(default_factory=dict, description="parameters of the model")
    precisions: list[PrecisionName] = Field(
        default=["fp32"], min_length=1, description="accepted data types, best first"
    )
    engines: list[Name] = Field(default_factory=list, description="engine ids or kinds it may run on; absent: any")
    accuracy_loss: dict[PrecisionName, Points] = Field(
        default_factory=dict,
        description="loss of accuracy by data type, in points, such as 0.4 (mAP); none if not listed",
    )
    costs: list[AnchorFile] = Field(default_factory=list, description="known execution times")
    execution: ExecutionFile | None = Field(None, description="execution times of jobs; absent: the planned cost")
    queue: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="largest number of waiting frames, one more drops one by overflow; absent: the planner chooses",
    )
    overflow: Literal["newest", "oldest"] = Field("newest", description="frame dropped when the queue is full")
    on_late: Literal["continue", "skip", "abort", "degrade"] = Field(
        "continue", description="action for a job that cannot meet its deadline"
    )
    degraded: DegradedFile | None = Field(None, description="with on_late: degrade, what the job runs instead")
    high: Amount | None = Field(
        None, description="time at the high level of criticality: a factor on the planned cost, or a time"
    )
    share: Count | None = Field(
        None,
        description="largest number of engine units one job can use, 0 = all; default: 1 for a stage without model "
        "whose costs are all for one unit, else all",
    )
    output_bytes: Size = Field(0, description="output of a stage without model")
    criticality: Criticality = Field("firm", description="criticality of a late job: hard, firm or soft")

    def _share(self) -> int:
        """Return the most units that a job can use: nothing says that a time for one unit halves on two."""
        if self.share is not None:
            return self.share
        serial = self.costs and not self.model and not self.onnx and all(cost.units == 1 for cost in self.costs)
        return 1 if serial else 0

    def lower(self, name: str, folder: Path, period_ns: int | None) -> Stage:
        """Return the internal `Stage`; a network's path is relative to `folder`, and stays so behind it."""
        return Stage(
            name=name,
            title=self.title,
            model="onnx" if self.onnx else self.model,
            after=tuple(self.after),
            period_ns=period_ns,
            offset_ns=self.offset,
            reads=tuple(self.reads),
            params={**({"file": str(folder.absolute() / self.onnx)} if self.onnx else {}), **self.params},
            precisions=tuple(self.precisions),
            costs=tuple(cost.lower() for cost in self.costs),
            queue=self.queue or 1,
            open_queue=self.queue is None,
            share=self._share(),
            output_bytes=self.output_bytes,
            criticality=self.criticality,
            source=self.source,
            assumed=self.assumed,
            overflow=self.overflow,
            on_late=self.on_late,
            execution=self.execution.lower() if self.execution else None,
            degraded=self.degraded.lower() if self.degraded else None,
            high=lower_high(self.high) if self.high is not None else None,
            jitter_ns=self.jitter,
            engines=tuple(self.engines),
            losses={precision: round(points * PER_POINT) for precision, points in self.accuracy_loss.items()},
        )


class ChainFile(Grounded):
    """A cause-effect chain with its end-to-end deadline."""

    path: list[str] = Field(min_length=1, description="a sensor or timer stage, then stages linked by after or reads")
    deadline: Period = Field(description="longest time from the release at the start of the path to its end")
    max_age: Period | None = Field(None, description="largest data age at the end of the last stage")
    criticality: Criticality = Field("firm", description="criticality of a late output: hard, firm or soft")

    def lower(self, name: str) -> Chain:
        """Return the internal `Chain`."""
        limits = (self.deadline, self.max_age, self.criticality)
        return Chain(name, tuple(self.path), *limits, self.source, self.assumed)


class PipelineFile(FileModel):
    """One workload: sensors, stages and end-to-end requirements."""

    schema_version: Literal["1"] = Field(description='version of this format, "1"')
    name: Name = Field(description="name of the pipeline, as in the file's name")
    title: Title = Field(description="one-line description")
    sources: dict[Name, SourceFile] = Field(default_factory=dict, description="sources of figures, by key")
    sensors: dict[Name, SensorFile] = Field(default_factory=dict, description="sensors by name")
    stages: dict[Name, StageFile] = Field(min_length=1, description="stages by name")
    chains: dict[Name, ChainFile] = Field(default_factory=dict, description="end-to-end requirements by name")
    conditions: dict[Name, ConditionFile] = Field(
        default_factory=dict, description="operating conditions by name, for books of plans"
    )
    accuracy_budget: Points | None = Field(
        None, description="largest loss of accuracy of all stages together, in points, by their data types"
    )

    def lower(self, file: str) -> Pipeline:
        """Return the internal `Pipeline`."""
        stated = {name: sensor.period for name, sensor in self.sensors.items()}
        stated |= {name: stage.period for name, stage in self.stages.items() if stage.period is not None}
        periods = dict(zip(stated, whole_periods(list(stated.values())), strict=True))
        return Pipeline(
            name=self.name,
            title=self.title,
            sensors=tuple(sensor.lower(name, periods[name]) for name, sensor in self.sensors.items()),
            stages=tuple(
                stage.lower(name, Path(file).parent, periods.get(name)) for name, stage in self.stages.items()
            ),
            chains=tuple(chain.lower(name) for name, chain in self.chains.items()),
            sources={key: source.lower() for key, source in self.sources.items()},
            file=file,
            conditions=tuple(condition.lower(name) for name, condition in self.conditions.items()),
            accuracy_budget=None if self.accuracy_budget is None else round(self.accuracy_budget * PER_POINT),
        )


def load_pipeline(path: str | Path) -> Pipeline:
    """Return the pipeline of a YAML file; DescriptorError lists all its faults with their positions."""
    return pipeline_from_document(read(path))


def pipeline_from_mapping(mapping: Mapping[str, Any], file: str) -> Pipeline:
    """Return a pipeline from data in the form of a pipeline file, checked the same way; `file` names it in errors."""
    return pipeline_from_document(Document(file, plain(mapping)))


def pipeline_from_document(document: Document) -> Pipeline:
    """Return the pipeline of a parsed file; DescriptorError as `load_pipeline`."""
    return validate(document, PipelineFile, (*CHECKS, check_conditions)).lower(document.file)
