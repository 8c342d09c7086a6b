"""The level of criticality of a running plan: high from the overrun of a hard job until no job is left.

At the high level, jobs of stages that are not hard are dropped unless they have begun; the simulator and the native
executor follow the same rules.
"""

from __future__ import annotations

from socsched.planning.plan import Plan

DROPPED = "dropped at the high level of criticality"
RAISED = "over its time: the high level of criticality begins"


class Levels:
    """Whether the level is `high`, and the tasks that are dropped then (`low`).  Not thread safe."""

    def __init__(self, plan: Plan) -> None:
        self.high = False
        self._budgets = {task.name: task.wcet_ns for task in plan.tasks if task.high_ns}
        self.low = frozenset(task.name for task in plan.tasks if task.criticality != "hard")

    @staticmethod
    def of(plan: Plan) -> Levels | None:
        """Return the levels of a plan, None if it has one only."""
        return Levels(plan) if any(task.high_ns for task in plan.tasks) else None

    def budget_ns(self, task: str) -> int | None:
        """Return the execution time beyond which a job of a task raises the level, None if none does."""
        return self._budgets.get(task)

    def over(self, task: str, exec_ns: int) -> bool:
        """Return whether an execution time raises the level."""
        return not self.high and task in self._budgets and exec_ns > self._budgets[task]
