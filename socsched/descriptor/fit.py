"""Parameters of the cost model that were fitted to measurements of an engine, with what they were fitted to.

In platform files they are the section `fitted` of a precision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from socsched.descriptor.fields import (
    OR_NULL,
    REQUIRED,
    Duration,
    Entry,
    Listed,
    Name,
    OneOf,
    Quantity,
    Rate,
    Share,
    doc,
)

PASS_KINDS = ("conv", "pointwise", "winograd", "depthwise", "grouped", "gemm", "matmul", "pool", "eltwise", "copy",
              "transpose", "softmax", "resize", "pillars", "scatter")  # fmt: skip
"""Classes of passes (`graph.accelerator_kernels`)."""
Plain = Annotated[float, Field(gt=0, le=1000)]
Ratio = Annotated[Plain, REQUIRED]
Globs = Listed[Annotated[str, Field(min_length=1, max_length=200)]]


WIDEST = math.log(4)
"""Half width (log) beyond which no interval goes: strange networks on boards never measured were off by 3 at most."""


def _day(value: Any) -> str:
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError:
        raise ValueError(f"expected a day such as 2026-11-23, got {value!r}") from None


@dataclass(frozen=True, slots=True)
class Parameters(Entry):
    """Fitted ratios of an engine's rates and overheads to the nominal ones.

    All are positive, so that fits work on their logarithms.  Depthwise layers, pooling and element-wise functions run
    on the vector unit.
    """

    conv: Annotated[Ratio, doc("share of the peak that a large convolution reaches")] = 0.5
    pointwise: Annotated[Ratio, doc("rate of 1x1 convolutions over that of convolutions")] = 1.0
    winograd: Annotated[Ratio, doc("rate of 3x3 convolutions of stride 1 over that of convolutions")] = 1.0
    grouped: Annotated[Ratio, doc("rate of grouped convolutions over that of convolutions")] = 0.5
    gemm: Annotated[Ratio, doc("rate of dense layers over that of convolutions")] = 1.0
    matmul: Annotated[Ratio, doc("rate of products of two computed operands over that of convolutions")] = 0.5
    vector: Annotated[Ratio, doc("operations of the vector unit per multiply-add of the peak")] = 0.01
    exp: Annotated[Ratio, doc("operations of the vector unit for an exp-like function")] = 5.0
    onchip: Annotated[Ratio, doc("bandwidth of activations that fit on chip over that of the memory")] = 1.0
    spill: Annotated[Ratio, doc("bandwidth of other activations over that of the memory")] = 0.6
    weights: Annotated[Ratio, doc("bandwidth of weights over that of the memory")] = 0.6
    norm: Annotated[Plain, doc("operations of the vector unit an element of a softmax or norm")] = 4.0
    ride: Annotated[Plain, doc("operations of the vector unit an element of a function fused into a convolution")] = (
        1e-3
    )
    move: Annotated[Plain, doc("bandwidth of transposes and copies over that of other activations")] = 1.0
    fill: Annotated[Ratio, doc("thousands of outputs a unit at which a layer reaches half of its rate")] = 1.0
    layer: Annotated[Ratio, doc("fixed cost of a pass over launch")] = 1.0
    job: Annotated[Ratio, doc("fixed cost of a job over submit")] = 1.0
    border: Annotated[Plain, doc("bandwidth of images, brought into whole blocks, over that of the memory")] = 1.0

    def logs(self) -> tuple[float, ...]:
        """Return the logarithms in the order of `NAMES`."""
        return tuple(math.log(getattr(self, name)) for name in NAMES)

    def changed(self, **values: float) -> Parameters:
        """Return parameters with some of them set."""
        return replace(self, **values)


NAMES = tuple(item.name for item in fields(Parameters))


@dataclass(frozen=True, slots=True)
class Host(Entry):
    """Costs under other host programs than the one that plans stand for."""

    runtimes: Annotated[Globs, doc("names of the programs, as globs", min_length=1)]
    launch_ns: Annotated[Duration, doc("nominal overhead of a pass at the highest clock", "launch")]
    submit_ns: Annotated[Duration, doc("nominal overhead of a job at the highest clock", "submit")]


@dataclass(frozen=True, slots=True)
class Fit(Entry):
    """Cost model fitted to measurements of this engine in this precision.

    Parameters, the nominal figures they are ratios to, and their evidence: `ops_per_cycle` 0 is the precision's own,
    `memory` 0 the memory's peak in the mode, `units` 0 any number.
    """

    parameters: Annotated[Parameters, doc("the fitted ratios")]
    block: Annotated[int, doc("channels that an operator is padded to", ge=1, le=1024)]
    launch_ns: Annotated[Duration, doc("nominal overhead of a pass at the highest clock", "launch")]
    submit_ns: Annotated[Duration, doc("nominal overhead of a job at the highest clock", "submit")]
    sram: Annotated[float, Quantity("size"), doc("memory on chip that keeps activations between passes")]
    source: Annotated[str, doc("key of sources, the measurements", min_length=1)]
    networks: Annotated[
        int,
        doc("networks measured; 0: the parameters of the engine's family", ge=0, le=100_000),
    ]
    date: Annotated[str, BeforeValidator(_day), doc("day of the fit, 2026-11-23")]
    error: Annotated[float, doc("mean absolute relative error on networks left out of the fit", gt=0, le=100)]
    interval: Annotated[float, doc("half width of the stated interval, relative to the time", gt=0, le=100)]
    classes: Annotated[
        Listed[Annotated[str, OneOf(*PASS_KINDS)]], doc("classes of passes among the measured networks", min_length=1)
    ]
    doubt: Annotated[
        Mapping[Name, Plain],
        doc("half width (log) of the interval: `near` for a network as those measured, plus `far` times its distance"),
    ] = field(default_factory=dict)
    ops_per_cycle: Annotated[Rate, OR_NULL, doc("rate the fit refers to; absent: the precision's")] = 0.0
    memory: Annotated[
        float,
        Quantity("bandwidth", positive=True),
        OR_NULL,
        doc("bandwidth one unit reaches alone, which the fit refers to; absent: the mode's memory clock"),
    ] = 0.0
    taps: Annotated[Share, doc("cost of a further row of a depthwise window over that of the row before")] = 1.0
    copies: Annotated[bool, doc("concatenations and slices of tensors with other readers are kernels")] = False
    views: Annotated[
        bool, doc("transposes are no kernels, nor copies but of images: readers take elements from where they are")
    ] = False
    resident: Annotated[bool, doc("weights that fit on chip stay there between jobs")] = False
    dataflow: Annotated[bool, doc("layers hand over on chip, and a frame is loaded in parts")] = False
    padded: Annotated[bool, doc("tensors hold whole blocks of channels")] = False
    units: Annotated[
        int,
        Field(ge=1, le=100_000),
        OR_NULL,
        doc("units the fit was made with; absent: any number"),
    ] = 0
    note: Annotated[str, doc("remarks")] = ""
    joined: Annotated[Listed[Name], doc("engines whose units ran a network together; absent: this one alone")] = ()
    runtimes: Annotated[Globs, doc("programs that were measured, as globs")] = ()
    hosts: Annotated[Listed[Host], doc("costs under measured programs that add their own to a pass and a job")] = ()
    varied: Annotated[Globs, doc("programs that compute sequences at their own length, not padded")] = ()
    family: Annotated[str, doc("engine family, whose measured networks `far` counts from")] = ""

    def width(self, distance: float, strange: float = 0.0) -> float:
        """Return the relative half width of the interval of a network at a distance from the measured ones.

        `strange`: share of its time in classes that no measured network has, which are doubted three times as much.
        """
        known = self.doubt["near"] + self.doubt.get("far", 0.0) * distance if "near" in self.doubt else None
        width = (math.log1p(self.interval) if known is None else known) * (1 + 2 * strange)
        return math.expm1(min(width, WIDEST))

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> Fit:
        """Return the fit with its sizes as the fractional numbers that the model computes with."""
        return cls(**{**values, "sram": float(values["sram"]), "memory": float(values.get("memory", 0))})

    def covers(self, runtime: str) -> bool:
        """Return whether the fit stands for a program that ran networks."""
        return any(fnmatchcase(runtime, glob) for glob in self.runtimes)

    def varies(self, runtime: str) -> bool:
        """Return whether a program computes sequences at their own length rather than the network's.

        MLPerf's programs leave out the padding: their rows are means over questions of varied length, 1.6 to 2.4 times
        faster, and no measurement of the network.
        """
        return any(fnmatchcase(runtime, glob) for glob in self.varied)

    def under(self, runtime: str) -> Fit:
        """Return the fit with the costs of a host program."""
        if not runtime:
            return self
        found = (one for one in self.hosts if any(fnmatchcase(runtime, glob) for glob in one.runtimes))
        host = next(found, None)
        return replace(self, launch_ns=host.launch_ns, submit_ns=host.submit_ns) if host else self


def choose_fit(fits: Sequence[Fit], units: int, runtime: str = "") -> Fit | None:
    """Return the fit for a job on `units` units of an engine, None without any.

    Fits that cover `runtime` are preferred; without one that does, those of a single engine.  Among these it is the one
    made with as many units, else with any number, else with the nearest number.
    """
    # Barriers and shared caches cost what no number of units explains, and programs differ by a constant a pass and a
    # job, or altogether.  Rejected: the speed of twelve cores for a cluster of four (plans would use cores twice), a
    # factor for each program (it hides that one's int8 never ran on the GPU).
    covering = [fit for fit in fits if fit.covers(runtime)] if runtime else []
    fitting = covering or [fit for fit in fits if not fit.joined]
    if len(fitting) < 2:  # the usual case, asked for thousands of times in a search
        return fitting[0].under(runtime) if fitting else None
    best = min(fitting, key=lambda fit: (fit.units != units, fit.units != 0, abs(fit.units - units)))
    return best.under(runtime)
