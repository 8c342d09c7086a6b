"""The section `functions` of an engine in platform files: host functions that the engine has code or hardware for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from socsched.descriptor.fields import DurationFigure, FileModel, Name, PrecisionName, Quantity
from socsched.descriptor.functions import FunctionCost
from socsched.descriptor.operator_rules_file import Limit
from socsched.descriptor.validation import Tree

FUNCTIONS = ("voxelise", "anchor-decode", "center-decode", "camera-preprocess", "camera-resize", "camera-normalise",
             "camera-decode")  # fmt: skip
"""Functions of the built-in models that an engine can declare (`models.model.Model.device`)."""
COUNTS = ("points", "pillars", "anchors", "cells", "candidates", "boxes", "input_pixels", "output_pixels")
"""Quantities that the built-in functions count their work in (`graph.operators.Operator.attrs`)."""
SCALES = ("scale_h", "scale_w")
"""Further attributes of functions that limits can name: output size over input size."""
_TIME = Quantity("duration").read
Amount = Annotated[float, Field(ge=0, le=1e12)]


class FunctionFile(FileModel):
    """A function that the engine runs, and its time."""

    time: DurationFigure = Field(
        description="time of a job with all units at the highest clock, launches and submission included"
    )
    work: dict[Name, Amount] = Field(min_length=1, description="size of the job that the time holds for, by quantity")
    per_million: dict[Name, DurationFigure] = Field(
        default_factory=dict, description="time of a million items more of a quantity of work; absent: it is the same"
    )
    kernels: int = Field(1, ge=1, le=10_000, description="launches of a job")
    dtypes: list[PrecisionName] = Field(
        default_factory=list, description="data types of tensors it reads and writes without a conversion"
    )
    limits: dict[Name, Limit] = Field(default_factory=dict, description="quantity: [smallest, largest] value taken")

    def lower(self) -> FunctionCost:
        """Return the internal `FunctionCost`."""
        return FunctionCost(
            time_ns=self.time.lower(),
            work=dict(self.work),
            per_million={name: figure.lower() for name, figure in self.per_million.items()},
            kernels=self.kernels,
            dtypes=tuple(self.dtypes),
            limits={name: (limit[0], limit[1]) for name, limit in self.limits.items()},
        )


def check_functions(root: Tree) -> None:
    """Report quantities that no function counts, and growth with work that exceeds the stated time."""
    for engine in root.at("engines").items():
        for function in engine.at("functions").items():
            _check_function(function)


def _check_function(function: Tree) -> None:
    if function.key not in FUNCTIONS:
        function.unknown("function", FUNCTIONS, key=True)
    for quantity in function.at("work").items():
        if quantity.key not in COUNTS:
            quantity.unknown("quantity of work", COUNTS, key=True)
    for limit in function.at("limits").items():
        if limit.key not in (*COUNTS, *SCALES):
            limit.unknown("quantity", (*COUNTS, *SCALES), key=True)
        bounds = [bound.value for bound in limit.items()]
        if len(bounds) == 2 and all(isinstance(bound, (int, float)) for bound in bounds) and bounds[0] > bounds[1]:
            limit.report(f"expected [smallest, largest], got {bounds[0]} above {bounds[1]}")
    held = 0.0
    for growth in function.at("per_million").items():
        if growth.key not in function.at("work").names():
            growth.report(f"expected {growth.key} under work too: the size that the time holds for", key=True)
        amount, slope = function.at("work").at(growth.key).value, growth.at("value").parse(_TIME)
        if isinstance(amount, (int, float)) and slope:
            held += amount / 1e6 * slope
    whole = function.at("time").at("value").parse(_TIME)
    if whole and held > whole:
        function.at("per_million").report(f"expected at most the time: the stated work alone takes {held / 1e6:.3g} ms")
