"""Execution times without the traffic of tasks that never run concurrently: relatives, and jobs of a common phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from socsched.cost.contention import ContentionModel, contention_model
from socsched.planning.execution import slowed_by_lanes
from socsched.planning.lanes import with_wcet
from socsched.planning.plan import Plan, PlannedEngine, Task
from socsched.schedulability.path_rivals import sources_of
from socsched.schedulability.precedence import relatives
from socsched.schedulability.tasks import Response, RtTask, longest_segment, topological

_Apart = tuple[tuple[str, frozenset[str]], ...]
"""Tasks with those that never run concurrently."""


@dataclass(slots=True)
class Corunning:
    """The tasks, engines and contention model from which execution times follow; results are kept."""

    tasks: Sequence[Task]
    engines: Sequence[PlannedEngine]
    contention: ContentionModel
    _near: Mapping[str, frozenset[str]] = field(default_factory=dict)
    _groups: Sequence[Sequence[str]] = ()
    _begins: Mapping[str, int] = field(default_factory=dict)
    _done: dict[_Apart, dict[str, tuple[int, int]]] = field(default_factory=dict)

    @staticmethod
    def of(plan: Plan) -> Corunning:
        """Return the co-running of a plan's tasks."""
        kinds = {engine.id: engine.kind for engine in plan.engines}
        return Corunning(plan.tasks, plan.engines, contention_model(plan.contention, plan.dram_bandwidth, kinds))

    def without_absent(
        self, tasks: Mapping[str, RtTask], responses: Mapping[str, Response]
    ) -> dict[str, RtTask] | None:
        """Return the tasks with times that hold if `responses` do, None if no time is shorter.

        `tasks` have the times of the plan or longer ones.  A time that does not follow from the model stays.
        """
        if not self._groups:
            self._near, self._groups, self._begins = relatives(tasks), _groups(tasks), _begins(tasks)
        apart = tuple(pair for group in self._groups for pair in self._apart(group, tasks, responses) if pair[1])
        if apart not in self._done:
            self._done[apart] = self._saved(dict(apart)) if apart else {}
        saved = self._done[apart]
        if not saved:
            return None
        return {
            name: replace(task, wcet=task.wcet - saved[name][0], segment=task.segment - saved[name][1])
            if name in saved
            else task
            for name, task in tasks.items()
        }

    def _apart(self, group: Sequence[str], tasks: Mapping[str, RtTask], responses: Mapping[str, Response]) -> _Apart:
        """Return which tasks of a common phase never run concurrently: each runs from its begin to its response."""
        bounded = [name for name in group if responses[name].bounded]
        ends = {name: tasks[name].offset + responses[name].value for name in bounded}
        begins, near = self._begins, self._near
        period = tasks[group[0]].period
        together = len({begins[name] for name in group}) == 1 and len(bounded) == len(group)
        if together and max(ends.values()) - begins[group[0]] <= period:
            return tuple((name, near[name]) for name in group)

        def apart(one: str, other: str) -> bool:
            if one == other or tasks[other].period != tasks[one].period:
                return False
            if other in near[one]:  # one after the other, and before the next frame
                return max(ends[one] - begins[other], ends[other] - begins[one]) <= tasks[one].period
            if tasks[one].sporadic or tasks[other].sporadic:
                return False
            later = (begins[other] - ends[one]) // period  # `one` ends that many periods before `other` begins
            return ends[other] <= begins[one] + (later + 1) * period

        return tuple((one, frozenset(other for other in bounded if apart(one, other))) for one in bounded)

    def _saved(self, without: Mapping[str, frozenset[str]]) -> dict[str, tuple[int, int]]:
        full = slowed_by_lanes(with_wcet(self.tasks, self.contention), self.engines)
        engines = {engine.id: engine for engine in self.engines}
        less = slowed_by_lanes(with_wcet(self.tasks, self.contention, apart=without), self.engines)
        found = {}
        for given, worst, task in zip(self.tasks, full, less, strict=True):
            if task.wcet_ns < worst.wcet_ns == given.wcet_ns:
                engine = engines[task.engine]
                before = longest_segment(given, engine.preemption, engine.in_flight)
                after = longest_segment(task, engine.preemption, engine.in_flight)
                found[task.name] = worst.wcet_ns - task.wcet_ns, max(before - after, 0)
        return found


def _groups(tasks: Mapping[str, RtTask]) -> list[list[str]]:
    """Return the tasks by sources of a common phase."""
    found: dict[str, list[str]] = {}
    for name, source in sources_of(tasks).items():
        found.setdefault(source, []).append(name)
    return list(found.values())


def _begins(tasks: Mapping[str, RtTask]) -> dict[str, int]:
    """Return when the first job of each task may begin (ns): once its sources have, if all others take no time."""
    found: dict[str, int] = {}
    for name in topological(tasks):
        task = tasks[name]
        before = [found[other] for other in task.after if other in tasks]
        found[name] = max([task.offset, *before, *(arrival.offset for arrival in task.arrivals)])
    return found
