"""Overload files: what a stage does under overload (see `runtime.overload`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from socsched.descriptor.fields import FileModel, Period, PrecisionName
from socsched.descriptor.source import read
from socsched.descriptor.validation import Tree, validate


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
