"""Overload handling by policies that the user sets per stage.

skip     a job that would end late is dropped before it starts
abort    a job that ends late is discarded: none of its successors runs
degrade  a job that would end late runs the stage's cheaper compiled variant
shed     while jobs of stages at least as critical as `shed.below` miss deadlines, stages below it get no jobs

    stages: {decode: {policy: skip}, backbone: {policy: degrade, precision: int8}}
    shed:   {below: hard, for: 1 s}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from socsched.planning.plan import Plan, Task

CRITICALITIES = ("soft", "firm", "hard")


@dataclass(frozen=True, slots=True)
class StagePolicy:
    """A stage's policy; for `degrade`, the `precision` and `params` of the cheaper variant."""

    policy: str
    precision: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policies:
    """The contents of a policy file; with an empty `shed_below`, nothing is shed."""

    stages: Mapping[str, StagePolicy] = field(default_factory=dict)
    shed_below: str = ""
    shed_ns: int = 1_000_000_000

    def cheaper(self, task: Task) -> Task | None:
        """Return the cheaper variant of the task, None if it has none."""
        chosen = self.stages.get(task.name)
        if chosen is None or chosen.policy != "degrade":
            return None
        return replace(task, precision=chosen.precision or task.precision, params={**task.params, **chosen.params})


def load_policies(path: str | Path, plan: Plan) -> Policies:
    """Read a policy file (YAML or JSON) against the names of `plan`; raise DescriptorError with all findings."""
    from socsched.descriptor.small_files import load_overload

    file = load_overload(path, (task.name for task in plan.tasks))
    stages = {
        name: StagePolicy(entry.policy, entry.precision or "", entry.params) for name, entry in file.stages.items()
    }
    return Policies(stages, file.shed.below, file.shed.duration) if file.shed else Policies(stages)
