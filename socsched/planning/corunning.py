"""Execution times without the traffic of relatives, which never run concurrently while frames end within a period."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from socsched.cost.contention import ContentionModel, contention_model
from socsched.planning.execution import slowed_by_lanes
from socsched.planning.lanes import with_wcet
from socsched.planning.plan import Plan, PlannedEngine, Task
from socsched.planning.schedulability.precedence import families, relatives
from socsched.planning.schedulability.tasks import Response, RtTask, longest_segment


@dataclass(slots=True)
class Corunning:
    """The tasks, engines and contention model from which execution times follow; results are kept by family."""

    tasks: Sequence[Task]
    engines: Sequence[PlannedEngine]
    contention: ContentionModel
    done: dict[frozenset[str], dict[str, tuple[int, int]]] = field(default_factory=dict)

    @staticmethod
    def of(plan: Plan) -> Corunning:
        """Return the co-running of a plan's tasks."""
        kinds = {engine.id: engine.kind for engine in plan.engines}
        return Corunning(plan.tasks, plan.engines, contention_model(plan.contention, plan.dram_bandwidth, kinds))

    def without_relatives(
        self, tasks: Mapping[str, RtTask], responses: Mapping[str, Response]
    ) -> dict[str, RtTask] | None:
        """Return the tasks with times that hold if `responses` do, None if no time is shorter.

        `tasks` have the times of the plan or longer ones.  A time that does not follow from the model stays.
        """
        apart = frozenset(name for family in families(tasks) if _in_time(tasks, responses, family) for name in family)
        if apart not in self.done:
            self.done[apart] = self._saved(relatives(tasks), apart) if apart else {}
        saved = self.done[apart]
        if not saved:
            return None
        return {
            name: replace(task, wcet=task.wcet - saved[name][0], segment=task.segment - saved[name][1])
            if name in saved
            else task
            for name, task in tasks.items()
        }

    def _saved(self, near: Mapping[str, frozenset[str]], apart: frozenset[str]) -> dict[str, tuple[int, int]]:
        full = slowed_by_lanes(with_wcet(self.tasks, self.contention), self.engines)
        engines = {engine.id: engine for engine in self.engines}
        without = {name: near[name] for name in apart}
        less = slowed_by_lanes(with_wcet(self.tasks, self.contention, apart=without), self.engines)
        found = {}
        for given, worst, task in zip(self.tasks, full, less, strict=True):
            if task.wcet_ns < worst.wcet_ns == given.wcet_ns:
                engine = engines[task.engine]
                before = longest_segment(given, engine.preemption, engine.in_flight)
                after = longest_segment(task, engine.preemption, engine.in_flight)
                found[task.name] = worst.wcet_ns - task.wcet_ns, max(before - after, 0)
        return found


def _in_time(tasks: Mapping[str, RtTask], responses: Mapping[str, Response], family: frozenset[str]) -> bool:
    """Return whether all tasks of a family end a frame before any of them is released for the next."""
    first = min(tasks[name].offset for name in family)
    return all(
        responses[name].bounded and tasks[name].offset + responses[name].value - first <= tasks[name].period
        for name in family
    )
