"""Checks that a plan can be simulated: ranges of its numbers, unique names, runnable tasks."""

from __future__ import annotations

from collections.abc import Mapping

from socsched.errors import UsageError
from socsched.planning.checks import Where, out_of_range
from socsched.planning.plan import Plan, Task

LATE = {"continue": 0, "skip": 1, "abort": 2, "degrade": 3}
CRITICALITY = {"hard": 0, "firm": 1, "soft": 2}


def check_plan(plan: Plan) -> None:
    """Raise UsageError unless every number is in range, every name is unique, and every chain has tasks."""
    wrong = next(out_of_range(plan), None)
    if wrong is not None:
        path, expected = wrong
        raise UsageError(f"plan: {_describe_path(plan, path)}: {expected}", hint="docs/simulator.md has the limits")
    for what, names in (
        ("engine", [engine.id for engine in plan.engines]),
        ("task or sensor", [*(task.name for task in plan.tasks), *(sensor.name for sensor in plan.sensors)]),
    ):
        if len(set(names)) < len(names):
            twice = next(name for index, name in enumerate(names) if name in names[:index])
            raise UsageError(f"plan: {what} {twice!r} appears twice")
    for chain in plan.chains:
        if not chain.path:
            raise UsageError(f"plan: chain {chain.name!r}: expected a path of at least one task")


def _describe_path(plan: Plan, path: Where) -> str:
    """Return the path of a field in words: ``tasks[3].queue (task 'fuse')``."""
    words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]
    if len(path) < 2 or not isinstance(path[1], int):
        return words
    member = getattr(plan, str(path[0]))[path[1]]
    return f"{words} ({str(path[0])[:-1]} {getattr(member, 'name', None) or member.id!r})"


def check_task(task: Task, plan: Plan, engines: Mapping[str, int]) -> None:
    """Raise UsageError unless a task's engines, lanes, trigger and reservation are valid."""
    where = f"plan: task {task.name!r}"
    claims = [(task.engine, task.lanes)]
    for segment in (*task.segments, *task.degraded):
        if segment.engine:
            claims.append((segment.engine, segment.lanes))
    for name, lanes in claims:
        if name not in engines:
            raise UsageError(f"{where}: engine {name!r} is not in the plan", hint=f"engines: {', '.join(engines)}")
        count = plan.engines[engines[name]].lanes
        if not lanes or min(lanes) < 0 or max(lanes) >= count:
            raise UsageError(f"{where}: lanes {list(lanes)} are not among the {count} of engine {name!r}")
    if task.timer == bool(task.after):
        raise UsageError(f"{where}: exactly one of a timer and `after` must trigger it")
    if task.timer and task.period_ns <= 0:
        raise UsageError(f"{where}: a timer needs a period above 0, got {task.period_ns} ns")
    if not 0 <= task.width <= len(set(task.lanes)):
        raise UsageError(
            f"{where}: expected a width from 0 to {len(set(task.lanes))}, the number of lanes, got {task.width}"
        )
    for value, known, field in ((task.on_late, LATE, "on_late"), (task.criticality, CRITICALITY, "criticality")):
        if value not in known:
            raise UsageError(f"{where}: unknown {field} {value!r}", hint=f"known: {', '.join(known)}")
    if task.budget_ns and not 0 < task.budget_ns <= task.server_ns:
        raise UsageError(
            f"{where}: expected a budget within its server period of {task.server_ns} ns, got {task.budget_ns} ns"
        )
