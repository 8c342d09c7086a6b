"""Operating conditions in a pipeline file: what differs from the file's own figures by day, at night, on a motorway."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from socsched.descriptor.conditions import Condition, StageChange
from socsched.descriptor.fields import FileModel, Grounded, Name, Period, Title
from socsched.descriptor.validation import Tree


class SensorChangeFile(FileModel):
    """A sensor under a condition."""

    period: Period | None = Field(None, description="another period, such as 66 ms for a longer exposure at night")


class StageChangeFile(FileModel):
    """A stage under a condition."""

    load: float = Field(1.0, gt=0, le=1e6, description="factor on the times under costs, for stages without a network")
    params: dict[str, Any] = Field(default_factory=dict, description="parameters of the model that differ")
    period: Period | None = Field(None, description="another period of its timer")

    def lower(self) -> StageChange:
        """Return the internal `StageChange`."""
        return StageChange(self.load, dict(self.params), self.period)


class ChainChangeFile(FileModel):
    """A chain under a condition."""

    deadline: Period = Field(description="another deadline")


class ConditionFile(Grounded):
    """An operating condition: sensors, stages and chains as far as they differ from the file's own figures."""

    title: Title = Field(description="one-line description")
    sensors: dict[Name, SensorChangeFile] = Field(default_factory=dict, description="sensors that differ")
    stages: dict[Name, StageChangeFile] = Field(default_factory=dict, description="stages that differ")
    chains: dict[Name, ChainChangeFile] = Field(default_factory=dict, description="chains that differ")

    def lower(self, name: str) -> Condition:
        """Return the internal `Condition`."""
        return Condition(
            name,
            self.title,
            {sensor: one.period for sensor, one in self.sensors.items() if one.period is not None},
            {stage: one.lower() for stage, one in self.stages.items()},
            {chain: one.deadline for chain, one in self.chains.items()},
            self.source,
            self.assumed,
        )


def check_conditions(root: Tree) -> None:
    """Report conditions that name sensors, stages or chains the file lacks, or change what these do not have."""
    stages = root.at("stages")
    for condition in root.at("conditions").items():
        if condition.key == "base":
            condition.report("expected another name: base is the file without changes", key=True)
        for part in ("sensors", "stages", "chains"):
            known = root.at(part).names()
            for item in condition.at(part).items():
                if item.key not in known:
                    item.unknown(part[:-1], known, key=True)
        for change in condition.at("stages").items():
            stage = stages.at(change.key)
            network = stage.at("model").value or stage.at("onnx").value
            if stage.value is None:
                continue
            if change.at("load").value is not None and network:
                change.at("load").report("expected params instead: the model of this stage determines its time")
            if change.at("params").value and not network:
                change.at("params").report("expected load instead: this stage has no model", key=True)
            if change.at("period").value is not None and stage.at("period").value is None:
                change.at("period").report("expected no period: the stage has no timer", key=True)
