"""The fixed part of a running plan: which tasks follow which, and how long each output is kept."""

from __future__ import annotations

from collections.abc import Mapping

from socsched.errors import UsageError
from socsched.planning.plan import Plan, Task

MOST_APART, LEAST_APART = 1024, 64


class Wiring:
    """The fixed part of a plan, consulted for every job.

    `needs` maps a task to the stages and sensors whose outputs its model reads (`registry.bindings`).
    Raises UsageError for a task on lanes that do not exist.
    """

    def __init__(self, plan: Plan, needs: Mapping[str, set[str]]) -> None:
        for task in plan.tasks:
            _check(plan, task)
        self.tasks = {task.name: task for task in plan.tasks}
        self.timers = {task.name for task in plan.tasks if task.timer}
        self.needs = {name: frozenset(needs.get(name, ())) for name in self.tasks}
        self.replaces = {t.task: t.source for t in plan.transitions if t.task}
        self.sampled = {name for task in plan.tasks for name in task.reads}
        self.queue_names = {name: f"queue.{name}" for name in self.tasks}
        self.carry = _carried(plan, needs)
        self.apart = _apart(plan)
        self.followers: dict[str, tuple[Task, ...]] = dict.fromkeys((s.name for s in plan.sensors), ())
        self.followers |= dict.fromkeys(self.tasks, ())
        for task in plan.tasks:
            for name in () if task.timer else task.after:
                self.followers[name] = (*self.followers.get(name, ()), task)


def _apart(plan: Plan) -> int:
    """Return the number of frames by which one input of a join may be ahead of another, as in the simulator.

    It is the number that can wait in all queues, within limits; an input that lags by more is lost.
    """
    joins = sum(len(task.after) > 1 for task in plan.tasks)
    waiting = sum(min(task.queue, MOST_APART) + 2 for task in plan.tasks)
    return max(min(waiting, MOST_APART, (1 << 22) // max(joins, 1)), LEAST_APART)


def _carried(plan: Plan, needs: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return, for every task, the producers whose outputs a later task still reads; others are freed when it ends."""
    behind: dict[str, list[str]] = {task.name: [] for task in plan.tasks}
    for task in plan.tasks:
        for name in {*task.after, *task.reads} & set(behind):
            behind[name].append(task.name)
    carry: dict[str, set[str]] = {task.name: set() for task in plan.tasks}
    changed = True
    while changed:  # `reads` may close a cycle, so iterate to the fixed point
        changed = False
        for name, followers in behind.items():
            wanted = set().union(*(needs.get(f, set()) | carry[f] for f in followers)) if followers else set()
            changed |= wanted != carry[name]
            carry[name] = wanted
    return carry


def _check(plan: Plan, task: Task) -> None:
    engine = next((engine for engine in plan.engines if engine.id == task.engine), None)
    if engine is None or not task.lanes or not all(0 <= lane < engine.lanes for lane in task.lanes):
        where = f"lanes {list(task.lanes)} of {task.engine!r}"
        raise UsageError(f"plan: task {task.name!r}: {where} do not exist", "plan again")
