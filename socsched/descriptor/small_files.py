"""Small files: limits of validations, drives of books, and what stages do under overload."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from socsched.descriptor.fields import Duration, FileModel, Name, Period, PrecisionName
from socsched.descriptor.source import read
from socsched.descriptor.validation import Tree, validate
from socsched.units import parse

_Error = Annotated[float, Field(ge=0, le=1000)]
_Share = Annotated[float, Field(ge=0, le=1)]
LIMITS = ("mape", "p90", "inside", "spearman", "cells")
AXES = ("mode", "thermal", "loss", "condition")
MOST_EVENTS = 100_000


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
    precision: PrecisionName | None = Field(None, description="precision, of scores of times")
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


class StartFile(FileModel):
    """The first cell; what is absent is the book's first."""

    mode: str | None = Field(None, description="power mode")
    thermal: str | None = Field(None, description="thermal state")
    loss: str | None = Field(None, description="engine that is lost, or none")
    condition: str | None = Field(None, description="operating condition")


class EventFile(FileModel):
    """A change of one coordinate at an instant."""

    at: Duration = Field(description="instant of the change")
    mode: str | None = Field(None, description="power mode from then on")
    thermal: str | None = Field(None, description="thermal state from then on")
    loss: str | None = Field(None, description="engine lost from then on, or none once it works again")
    condition: str | None = Field(None, description="operating condition from then on")


class DriveFile(FileModel):
    """A start and the changes that follow."""

    start: StartFile = Field(default_factory=lambda: StartFile.model_validate({}), description="the first cell")
    events: list[EventFile] = Field(
        default_factory=list, max_length=MOST_EVENTS, description="changes in order of time"
    )


def load_drive(path: str | Path, axes: dict[str, tuple[str, ...]]) -> DriveFile:
    """Return a drive file (YAML or JSON), checked against a book's axes; DescriptorError with every finding."""

    def names(tree: Tree) -> list[str]:
        stated = [axis for axis in AXES if tree.at(axis).value is not None]
        for axis in stated:
            if tree.at(axis).text and tree.at(axis).text not in axes[axis]:
                tree.at(axis).unknown(axis, axes[axis])
        return stated

    def check(root: Tree) -> None:
        names(root.at("start"))
        last = None
        for event in root.at("events").items():
            stated = names(event)
            if isinstance(event.value, dict) and len(stated) != 1:
                event.report(f"expected one change, {', '.join(AXES[:-1])} or condition; got {len(stated)}")
            try:
                instant = event.at("at").value
                at = None if instant is None else parse(instant, "duration")
            except ValueError:
                continue
            if last is not None and at is not None and at < last:
                event.at("at").report("expected the events in order of time")
            last = at if at is not None else last

    return validate(read(path), DriveFile, (check,))


class StagePolicyFile(FileModel):
    """A stage's policy."""

    policy: Literal["skip", "abort", "degrade"] = Field(description="action for a job that would end late")
    precision: PrecisionName | None = Field(None, description="with degrade: data type of the cheaper variant")
    params: dict[str, Any] = Field(default_factory=dict, description="with degrade: params of the cheaper variant")


class ShedFile(FileModel):
    """Which stages get no jobs while more critical ones miss deadlines."""

    below: Literal["firm", "hard"] = Field(description="stages less critical than this are shed")
    duration: Period = Field(
        1_000_000_000, alias="for", description="duration of shedding after the last miss, such as 1 s"
    )


class OverloadFile(FileModel):
    """Policies by stage, and shedding."""

    stages: dict[str, StagePolicyFile] = Field(default_factory=dict, description="policies by task of the plan")
    shed: ShedFile | None = Field(None, description="load shedding; absent: none")


def load_overload(path: str | Path, tasks: Iterable[str]) -> OverloadFile:
    """Return a policy file (YAML or JSON), checked against the plan's tasks; DescriptorError with every finding."""

    known = set(tasks)

    def check(root: Tree) -> None:
        for stage in root.at("stages").items():
            if stage.key not in known:
                stage.unknown("task", known, key=True)
            elif stage.at("policy").text == "degrade" and not (stage.at("precision").value or stage.at("params").value):
                stage.report("expected precision or params of the cheaper variant")

    return validate(read(path), OverloadFile, (check,))
