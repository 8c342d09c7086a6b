"""The section `fitted` of a precision in platform files."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from socsched.descriptor.fields import Bandwidth, Duration, FileModel, Name, Rate, Share, Size
from socsched.descriptor.fit import Fit, Host, Parameters

Positive = Annotated[float, Field(gt=0, le=1000)]
Kind = Literal["conv", "pointwise", "winograd", "depthwise", "grouped", "gemm", "matmul", "pool", "eltwise", "copy",
               "transpose", "softmax", "resize", "pillars", "scatter"]  # fmt: skip


class ParametersFile(FileModel):
    """Fitted ratios of an engine's rates and overheads to the nominal ones."""

    conv: Positive = Field(description="share of the peak that a large convolution reaches")
    pointwise: Positive = Field(description="rate of 1x1 convolutions over that of convolutions")
    winograd: Positive = Field(description="rate of 3x3 convolutions of stride 1 over that of convolutions")
    grouped: Positive = Field(description="rate of grouped convolutions over that of convolutions")
    gemm: Positive = Field(description="rate of dense layers over that of convolutions")
    matmul: Positive = Field(description="rate of products of two computed operands over that of convolutions")
    vector: Positive = Field(description="operations of the vector unit per multiply-add of the peak")
    exp: Positive = Field(description="operations of the vector unit for an exp-like function")
    onchip: Positive = Field(description="bandwidth of activations that fit on chip over that of the memory")
    spill: Positive = Field(description="bandwidth of other activations over that of the memory")
    weights: Positive = Field(description="bandwidth of weights over that of the memory")
    fill: Positive = Field(description="thousands of outputs a unit at which a layer reaches half of its rate")
    layer: Positive = Field(description="fixed cost of a pass over launch")
    job: Positive = Field(description="fixed cost of a job over submit")

    def lower(self) -> Parameters:
        """Return the internal `Parameters`."""
        return Parameters(**self.model_dump())


Glob = Annotated[str, Field(min_length=1, max_length=200)]


class HostFile(FileModel):
    """Costs under other host programs than the one that plans stand for."""

    runtimes: list[Glob] = Field(min_length=1, description="names of the programs, as globs")
    launch: Duration = Field(description="nominal overhead of a pass at the highest clock")
    submit: Duration = Field(description="nominal overhead of a job at the highest clock")

    def lower(self) -> Host:
        """Return the internal `Host`."""
        return Host(tuple(self.runtimes), self.launch, self.submit)


class FitFile(FileModel):
    """Cost model fitted to measurements of this engine in this precision."""

    source: str = Field(min_length=1, description="key of sources, the measurements")
    networks: int = Field(ge=0, le=100_000, description="networks measured; 0: the parameters of the engine's family")
    date: str = Field(description="day of the fit, 2026-11-23")
    error: float = Field(gt=0, le=100, description="mean absolute relative error on networks left out of the fit")
    interval: float = Field(gt=0, le=100, description="half width of the stated interval, relative to the time")
    classes: list[Kind] = Field(min_length=1, description="classes of passes among the measured networks")
    block: int = Field(ge=1, le=1024, description="channels that an operator is padded to")
    launch: Duration = Field(description="nominal overhead of a pass at the highest clock")
    submit: Duration = Field(description="nominal overhead of a job at the highest clock")
    sram: Size = Field(description="memory on chip that keeps activations between passes")
    ops_per_cycle: Rate | None = Field(None, description="rate the fit refers to; absent: the precision's")
    memory: Bandwidth | None = Field(
        None, description="bandwidth one unit reaches alone, which the fit refers to; absent: the mode's memory clock"
    )
    units: int | None = Field(None, ge=1, le=100_000, description="units the fit was made with; absent: any number")
    joined: list[Name] = Field(
        default_factory=list, description="engines whose units ran a network together; absent: this one alone"
    )
    runtimes: list[Glob] = Field(default_factory=list, description="programs that were measured, as globs")
    hosts: list[HostFile] = Field(
        default_factory=list, description="costs under measured programs that add their own to a pass and a job"
    )
    varied: list[Glob] = Field(
        default_factory=list, description="programs that compute sequences at their own length, not padded"
    )
    taps: Share = Field(1.0, description="cost of a further row of a depthwise window over that of the row before")
    copies: bool = Field(False, description="concatenations and slices of tensors with other readers are kernels")
    resident: bool = Field(False, description="weights that fit on chip stay there between jobs")
    note: str = Field("", description="remarks")
    parameters: ParametersFile = Field(description="the fitted ratios")

    @field_validator("date", mode="before")
    @classmethod
    def _day(cls, value: Any) -> Any:
        try:
            return date.fromisoformat(str(value)).isoformat()
        except ValueError:
            raise ValueError(f"expected a day such as 2026-11-23, got {value!r}") from None

    def lower(self) -> Fit:
        """Return the internal `Fit`."""
        return Fit(
            parameters=self.parameters.lower(),
            block=self.block,
            launch_ns=self.launch,
            submit_ns=self.submit,
            sram=float(self.sram),
            source=self.source,
            networks=self.networks,
            date=self.date,
            error=self.error,
            interval=self.interval,
            classes=tuple(self.classes),
            ops_per_cycle=self.ops_per_cycle or 0.0,
            memory=float(self.memory or 0),
            taps=self.taps,
            copies=self.copies,
            resident=self.resident,
            units=self.units or 0,
            note=self.note,
            joined=tuple(self.joined),
            runtimes=tuple(self.runtimes),
            hosts=tuple(host.lower() for host in self.hosts),
            varied=tuple(self.varied),
        )
