"""Faults that a plan file may have and a planner never makes: names, lanes and triggers that do not fit, and ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from socsched.cost.cost import Segment
from socsched.errors import UsageError
from socsched.limits import (
    LONGEST_NS,
    MOST_BYTES,
    MOST_CHAINS,
    MOST_ENGINES,
    MOST_HZ,
    MOST_IN_FLIGHT,
    MOST_LANES,
    MOST_MW,
    MOST_PICOJOULE,
    MOST_QUEUE,
    MOST_RANK,
    MOST_RATE,
    MOST_SEGMENTS,
    MOST_SENSORS,
    MOST_TASKS,
    MOST_TIMES,
)
from socsched.models.parts import part_of
from socsched.planning.plan import Plan, PlannedEngine, Task

Where = tuple[str | int, ...]
Fault = tuple[Where, str]


def inconsistencies(plan: Plan) -> Iterator[Fault]:
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


_Range = tuple[float, float]
_TIME, _BYTES, _RATE, _POWER = (0, LONGEST_NS), (0, MOST_BYTES), (0, MOST_RATE), (0, MOST_MW)

_SEGMENT: dict[str, _Range] = {"time_ns": _TIME, "fixed_ns": _TIME, "bytes": _BYTES}
_SHARED: dict[str, _Range] = {f"{name}_ns": _TIME for name in ("share", "memory", "cache", "launches")}
_TASK: dict[str, _Range] = {
    "period_ns": _TIME, "offset_ns": _TIME, "queue": (0, MOST_QUEUE), "cost_ns": _TIME, "bytes": _BYTES,
    "priority": (-MOST_RANK, MOST_RANK), "deadline_ns": _TIME, "width": (0, MOST_LANES), "release_jitter_ns": _TIME,
    "gap_ns": _TIME, "weights_bytes": _BYTES, "budget_ns": _TIME, "server_ns": _TIME, "high_ns": _TIME,
}  # fmt: skip
_ENGINE: dict[str, _Range] = {
    "lanes": (1, MOST_LANES), "switch_ns": _TIME, "bandwidth": _RATE, "idle_mw": _POWER, "dynamic_mw": _POWER,
    "migration_ns": _TIME, "reshape_ns": _TIME, "reset_ns": _TIME, "in_flight": (0, MOST_IN_FLIGHT),
    "quantum_ns": _TIME, "memory_bytes": _BYTES, "swap_bandwidth": _RATE, "linger_ns": _TIME,
    "look_ns": _TIME, "busy_ppm": (0, 10**6),
}  # fmt: skip
_LEVEL: dict[str, _Range] = {"clock_hz": (1, MOST_HZ), "dynamic_mw": _POWER}
_SENSOR: dict[str, _Range] = {
    "period_ns": (1, LONGEST_NS), "offset_ns": _TIME, "jitter_ns": _TIME, "bytes_per_frame": _BYTES, "gap_ns": _TIME
}  # fmt: skip
_CHAIN: dict[str, _Range] = {"deadline_ns": _TIME}
_THROTTLE: dict[str, _Range] = {
    "period_ns": (1, LONGEST_NS), "cap_mw": _POWER, "recover": (0, 1), "ambient_mc": (-273_150, 10**6),
    "resistance_mk_per_w": (0, 10**9), "time_constant_ns": _TIME, "trip_mc": (0, 10**6), "recover_mc": (0, 10**6),
}  # fmt: skip
_PLAN: dict[str, _Range] = {
    "base_mw": _POWER, "dram_bandwidth": _RATE, "dram_picojoule_per_byte": (0, MOST_PICOJOULE)
}  # fmt: skip


def out_of_range(plan: Plan) -> Iterator[tuple[Where, str]]:
    """Yield every field of `plan` that is out of range, with its path in plan.json and what is expected there."""
    yield from _outside(plan, _PLAN, ())
    sizes = (("engines", MOST_ENGINES), ("sensors", MOST_SENSORS), ("tasks", MOST_TASKS), ("chains", MOST_CHAINS))
    for name, most in sizes:
        if len(getattr(plan, name)) > most:
            yield (name,), f"expected at most {most}, got {len(getattr(plan, name))}"
    for index, engine in enumerate(plan.engines):
        path: Where = ("engines", index)
        yield from _outside(engine, _ENGINE, path)
        for place, level in enumerate(engine.levels):
            yield from _outside(level, _LEVEL, (*path, "levels", place))
        if any(after.clock_hz < before.clock_hz for before, after in pairwise(engine.levels)):
            yield (*path, "levels"), "expected operating points in the order of their clocks, slowest first"
        if engine.capacities and (
            len(engine.capacities) != engine.lanes or not all(0 < speed <= 1024 for speed in engine.capacities)
        ):
            yield (*path, "capacities"), f"expected {engine.lanes} capacities from 1 to 1024"
    for kind, ranges, members in (("sensors", _SENSOR, plan.sensors), ("chains", _CHAIN, plan.chains)):
        for index, member in enumerate(members):
            yield from _outside(member, ranges, (kind, index))
    for index, task in enumerate(plan.tasks):
        yield from _task_out_of_range(task, ("tasks", index))
    segments = sum(len(task.segments) + len(task.degraded) for task in plan.tasks)
    times = sum(len(task.times.values_ns) for task in plan.tasks if task.times is not None)
    for what, count, most in (("segments", segments, MOST_SEGMENTS), ("execution times", times, MOST_TIMES)):
        if count > most:
            yield ("tasks",), f"expected at most {most} {what} in total, got {count}"
    if plan.throttle is not None:
        yield from _outside(plan.throttle, _THROTTLE, ("throttle",))


def _task_out_of_range(task: Task, path: Where) -> Iterator[tuple[Where, str]]:
    yield from _outside(task, _TASK, path)
    for name, parts in (("segments", task.segments), ("degraded", task.degraded)):
        for place, segment in enumerate(parts):
            yield from _outside(segment, _SEGMENT, (*path, name, place))
        if sum(segment.time_ns for segment in parts) > LONGEST_NS:
            yield (*path, name), f"expected times of at most {LONGEST_NS} ns in total"
    if task.shared is not None:
        yield from _outside(task.shared, _SHARED, (*path, "shared"))
    if task.times is not None:
        values = task.times.values_ns
        if not values or min(values) < 0 or max(values) > LONGEST_NS:
            yield (*path, "times"), f"expected one or more times from 0 to {LONGEST_NS} ns"
        elif any(after < before for before, after in pairwise(values)):
            yield (*path, "times"), "expected ascending times"


def _outside(member: Any, ranges: dict[str, _Range], path: Where) -> Iterator[tuple[Where, str]]:
    for name, (least, most) in ranges.items():
        value = getattr(member, name)
        # Written so that nan is out of range too.
        if not least <= value <= most:
            yield (*path, name), f"expected from {least} to {most}, got {value}"
