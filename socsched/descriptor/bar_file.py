"""Bar files: limits on the scores of predictions (`socsched validate --bar`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from socsched.descriptor.fields import FileModel, Name
from socsched.descriptor.source import read
from socsched.descriptor.validation import Tree, validate

_Error = Annotated[float, Field(ge=0, le=1000)]
_Share = Annotated[float, Field(ge=0, le=1)]
LIMITS = ("mape", "p90", "inside", "spearman", "cells")


class LimitsFile(FileModel):
    """Limits on scores; errors are relative (0.2 is 20 %)."""

    mape: _Error | None = Field(None, description="mean error, at most")
    p90: _Error | None = Field(None, description="error that 90 % of the cells keep within, at most")
    inside: _Share | None = Field(None, description="share of the cells measured inside the interval, at least")
    spearman: Annotated[float, Field(ge=-1, le=1)] | None = Field(None, description="rank correlation, at least")
    cells: Annotated[int, Field(ge=1, le=10**6)] | None = Field(None, description="cells with a prediction, at least")


class GroupLimitsFile(LimitsFile):
    """Limits on the scores of an engine in a precision, or at a meter; a field left out stands for all of them."""

    platform: Name | None = Field(None, description="platform")
    engine: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$", max_length=600)] | None = Field(
        None, description="engine, or engines joined by +"
    )
    precision: Literal["fp32", "fp16", "int8"] | None = Field(None, description="precision, of scores of times")
    meter: Annotated[str, Field(pattern=r"^(wall|module|rail [A-Za-z0-9][A-Za-z0-9_.-]*)$", max_length=80)] | None = (
        Field(None, description="wall, module or rail NAME, of scores of power")
    )


class BarFile(FileModel):
    """Limits that the scores of predictions have to keep."""

    schema_version: Literal["1"] = Field(description='version of this format, "1"')
    overall: LimitsFile | None = Field(None, description="limits on all cells together")
    groups: list[GroupLimitsFile] = Field(default_factory=list, description="limits per platform, engine, precision")


def load_bar(path: Path) -> BarFile:
    """Return the limits of a file; DescriptorError lists all its faults with their positions."""
    return validate(read(path), BarFile, (check_limits,))


def check_limits(root: Tree) -> None:
    """Report groups without a limit, and a file without any."""
    groups = [group for group in root.at("groups").items() if isinstance(group.value, dict)]
    for group in groups:
        if not set(group.names()) & set(LIMITS):
            group.report(f"expected a limit: {', '.join(LIMITS)}")
    if isinstance(root.value, dict) and not groups and not root.at("overall").names():
        root.report("expected limits: overall, or groups")
