"""Consistency of a plan's parts: names, lanes and triggers that a file may state but a planner never would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from socsched.cost.cost import Segment
from socsched.errors import UsageError
from socsched.models.parts import part_of
from socsched.planning.plan import Plan, PlannedEngine, Task

Where = tuple[str | int, ...]
Fault = tuple[Where, str]


def faults(plan: Plan) -> Iterator[Fault]:
    """Yield every inconsistency, with its path in plan.json and what was expected there."""
    engines = {engine.id: engine for engine in plan.engines}
    tasks = {task.name: task for task in plan.tasks}
    names = {*tasks, *(sensor.name for sensor in plan.sensors)}
    yield from _twice("engines", [engine.id for engine in plan.engines], "id")
    yield from _twice("tasks", [task.name for task in plan.tasks], "name")
    yield from _twice("sensors", [sensor.name for sensor in plan.sensors], "name", set(tasks))
    yield from _twice("chains", [chain.name for chain in plan.chains], "name")
    for index, engine in enumerate(plan.engines):
        if engine.capacities and len(engine.capacities) != engine.lanes:
            yield ("engines", index, "capacities"), f"expected one for each of {engine.lanes} lanes, or none"
        if any(later.clock_hz < level.clock_hz for level, later in zip(engine.levels, engine.levels[1:], strict=False)):
            yield ("engines", index, "levels"), "expected operating points in the order of their clocks"
    for index, task in enumerate(plan.tasks):
        yield from _task(("tasks", index), task, engines, names)
    for index, chain in enumerate(plan.chains):
        if not chain.path:
            yield ("chains", index, "path"), "expected a path of at least one task"
        for place, name in enumerate(chain.path):
            if plan.tasks and name not in names:
                yield ("chains", index, "path", place), f"expected a task or sensor of the plan, got {name!r}"
    for place in _circular(plan, tasks):
        yield ("tasks", place, "after"), "expected triggers without a cycle, the task waits for itself"


def _twice(part: str, names: Iterable[str], key: str, taken: set[str] | None = None) -> Iterator[Fault]:
    known = set(taken or ())
    for index, name in enumerate(names):
        if name in known:
            yield (part, index, key), f"expected a unique name, {name!r} is in use already"
        known.add(name)


def _task(where: Where, task: Task, engines: Mapping[str, PlannedEngine], names: set[str]) -> Iterator[Fault]:
    yield from _place(where, task.engine, task.lanes, engines)
    for field in ("after", "reads"):
        for place, name in enumerate(getattr(task, field)):
            if name not in names:
                yield (*where, field, place), f"expected a task or sensor of the plan, got {name!r}"
    if not task.after and not task.timer:
        yield (*where, "after"), "expected what triggers the task, or timer: true"
    if task.after and task.timer:
        yield (*where, "timer"), "expected false for a task that others trigger"
    if task.closed_by and task.closed_by not in names:
        yield (*where, "closed_by"), f"expected a task of the plan, got {task.closed_by!r}"
    if task.width > len(task.lanes):
        yield (*where, "width"), f"expected at most {len(task.lanes)}, as many as lanes"
    if task.times is not None and (
        not task.times.values_ns or list(task.times.values_ns) != sorted(task.times.values_ns)
    ):
        yield (*where, "times", "values_ns"), "expected at least one time, in ascending order"
    for field in ("segments", "degraded"):
        yield from _segments((*where, field), getattr(task, field), engines)
    try:
        part_of(task.params)
    except UsageError as error:
        yield (*where, "params"), f"expected a part as the planner writes it: {error}"


def _segments(where: Where, segments: Iterable[Segment], engines: Mapping[str, PlannedEngine]) -> Iterator[Fault]:
    for index, segment in enumerate(segments):
        if segment.engine:
            yield from _place((*where, index), segment.engine, segment.lanes, engines)
        elif segment.lanes:
            yield (*where, index, "lanes"), "expected none without an engine"
        if segment.fixed_ns > segment.time_ns:
            yield (*where, index, "fixed_ns"), f"expected at most time_ns, {segment.time_ns}"


def _place(where: Where, name: str, lanes: tuple[int, ...], engines: Mapping[str, PlannedEngine]) -> Iterator[Fault]:
    engine = engines.get(name)
    if engine is None:
        known = ", ".join(sorted(engines)[:20])
        yield (*where, "engine"), f"expected an engine of the plan ({known}), got {name!r}"
    elif not lanes or max(Counter(lanes).values()) > 1 or max(lanes) >= engine.lanes:
        yield (*where, "lanes"), f"expected different lanes from 0 to {engine.lanes - 1} of {name}"


def _circular(plan: Plan, tasks: Mapping[str, Task]) -> list[int]:
    """Return the index of a task that triggers itself, directly or through others; empty if there is none."""
    waits = {task.name: {name for name in task.after if name in tasks} for task in plan.tasks}
    readers: dict[str, list[str]] = {}
    for name, before in waits.items():
        for other in before:
            readers.setdefault(other, []).append(name)
    ready = [name for name, before in waits.items() if not before]
    while ready:
        done = ready.pop()
        waits.pop(done)
        for name in readers.get(done, ()):
            waits[name].discard(done)
            if not waits[name]:
                ready.append(name)
    if not waits:
        return []
    # tasks that only follow a circle are left over as well, but every task left over waits for another such task
    name, path = next(iter(waits)), dict[str, None]()
    while name not in path:
        path[name] = None
        name = next(other for other in tasks[name].after if other in waits)
    circle = {name, *list(path)[list(path).index(name) :]}
    return [next(index for index, task in enumerate(plan.tasks) if task.name in circle)]
