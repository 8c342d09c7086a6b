"""What a stage does when there is more work than time, by policies the user sets per stage.

skip     a job that would end late is dropped before it starts
abort    a job that ends late is thrown away: nothing behind it runs
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
    """What the policy file says; `shed_below` empty: nothing is shed."""

    stages: Mapping[str, StagePolicy] = field(default_factory=dict)
    shed_below: str = ""
    shed_ns: int = 1_000_000_000

    def cheaper(self, task: Task) -> Task | None:
        """Return the task as its cheaper variant, None when it has none."""
        chosen = self.stages.get(task.name)
        if chosen is None or chosen.policy != "degrade":
            return None
        return replace(task, precision=chosen.precision or task.precision, params={**task.params, **chosen.params})


class Overload:
    """The policies at work; times in ns.  Not thread safe."""

    def __init__(self, policies: Policies) -> None:
        self._stages = policies.stages
        self._below = CRITICALITIES.index(policies.shed_below) if policies.shed_below else 0
        self._shed_ns, self._until = policies.shed_ns, -1

    def choose(self, task: Task, slack_ns: int) -> str:
        """Return run, skip or degrade for a job that has `slack_ns` left to its deadline."""
        chosen = self._stages.get(task.name)
        if chosen is None or chosen.policy == "abort" or slack_ns >= task.wcet_ns:
            return "run"
        return chosen.policy

    def aborts(self, task: Task) -> bool:
        """Whether a job of `task` that ended late is thrown away."""
        chosen = self._stages.get(task.name)
        return chosen is not None and chosen.policy == "abort"

    def missed(self, task: Task, now_ns: int) -> bool:
        """Take note of a missed deadline; True when shedding begins with it."""
        if not self._below or CRITICALITIES.index(task.criticality) < self._below:
            return False
        began = now_ns >= self._until
        self._until = now_ns + self._shed_ns
        return began

    def sheds(self, task: Task, now_ns: int) -> bool:
        """Whether a new job of `task` is not to be run at present."""
        return now_ns < self._until and CRITICALITIES.index(task.criticality) < self._below


def load_policies(path: str | Path, plan: Plan) -> Policies:
    """Read a policy file (YAML or JSON) against the names of `plan`; DescriptorError with every finding."""
    from socsched.descriptor.overload_file import load_overload

    file = load_overload(path, (task.name for task in plan.tasks))
    stages = {
        name: StagePolicy(entry.policy, entry.precision or "", entry.params) for name, entry in file.stages.items()
    }
    return Policies(stages, file.shed.below, file.shed.duration) if file.shed else Policies(stages)
