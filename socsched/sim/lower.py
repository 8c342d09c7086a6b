"""Lower a plan to the flat tables the kernel runs on; names and indices are checked here, not in the loop."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Any

from socsched.cost.cost import Segment
from socsched.errors import UsageError
from socsched.plan.plan import Plan, PlannedEngine, Task
from socsched.sim.chains import chain_tables
from socsched.sim.controls import control_tables
from socsched.sim.mechanisms import dynamic, pairs, taken, task_row, unit_row
from socsched.sim.policies import Policy, Term, policy

FAR = 1 << 62
KINDS = {"full": 0, "segment": 1, "none": 2, "restart": 3}
LATE = {"continue": 0, "skip": 1, "abort": 2, "degrade": 3}
CRITICALITY = {"hard": 0, "firm": 1, "soft": 2}
MOST_LANES = 62
_PREFIX = ("switch", "wait")


@dataclass(frozen=True, slots=True)
class Unit:
    """Lanes of one engine that compete with each other: no task outside shares a lane with a task inside."""

    engine: int
    mask: int


@dataclass(frozen=True, slots=True)
class Lowered:
    """A plan as the kernel reads it.

    `tables`: arrays of int64 by name, and `numbers`.  `segments[g]`: engine id and segment of row g, in terms of which
    contention is asked for.  `streams`: what each stream of random numbers is seeded with.  `names`: of segments.
    """

    plan: Plan
    tables: dict[str, Any]
    segments: tuple[tuple[str, Segment], ...]
    streams: tuple[str, ...]
    names: tuple[str, ...]
    sources: tuple[str, ...]
    units: tuple[Unit, ...]
    policies: tuple[Policy, ...]


class _Columns(dict[str, "array[int]"]):
    """Arrays of int64 that grow by rows of named numbers."""

    def row(self, prefix: str, **values: int) -> None:
        for name, value in values.items():
            self.setdefault(f"{prefix}_{name}", array("q")).append(int(value))


def lower(plan: Plan, seed: int, override: str | None = None) -> Lowered:
    """Return the tables of `plan`; UsageError when it names what does not exist or a policy is unknown.

    `override`: policy of every engine instead of its own.
    """
    engines = {engine.id: index for index, engine in enumerate(plan.engines)}
    for task in plan.tasks:
        _check(task, plan, engines)
    policies = tuple(policy(override or engine.policy) for engine in plan.engines)
    units = _units(plan, engines)
    rows, streams = _Columns(), _Streams(seed)
    segments = _segments(rows, plan, engines, units)
    processes: dict[tuple[bool, str], int] = {}
    rows["waits"] = array("q")
    for task in plan.tasks:
        _task(rows, task, streams)
        process = (True, task.process) if task.process else (False, task.name)
        rows.row("t", process=processes.setdefault(process, len(processes)))
        rows.row(
            "t",
            **task_row(task, plan.engines[engines[task.engine]].kind, policies[engines[task.engine]], rows["waits"]),
        )
    rules = {engine.id: rule for engine, rule in zip(plan.engines, policies, strict=True)}
    rows["g_class"], beside = pairs(plan.tasks, [(task, segment) for task, _, segment in segments], rules)
    scale = lcm(*(max(engine.lanes, 1) for engine in plan.engines)) if plan.engines else 1
    levels = max((len(engine.levels) for engine in plan.engines), default=1) or 1
    for unit in units:
        _unit(rows, unit, plan.engines[unit.engine], policies[unit.engine])
        rows.row("u", **{"global": _everywhere(rows, plan, units, unit)})
    for engine in plan.engines:
        _engine(rows, engine, scale, levels)
    sources = _sources(rows, plan, streams)
    _connect(rows, plan, sources)
    _close_loops(rows, plan, sources)
    rows.update(chain_tables(plan, sources))
    homes = [rows["g_unit"][row] for row in rows["t_first"][: len(plan.tasks)]]
    own = [[number for number, home in enumerate(homes) if home == index] for index in range(len(units))]
    steered = control_tables(plan, [unit.engine for unit in units], own, policies, sources)
    rows.update(beside)
    uneven = any(value != 1024 for value in rows["lane_speed"])
    numbers = {
        "levels": levels,
        "uneven": int(uneven),
        "scale": float(scale),
        "picojoule": plan.dram_picojoule_per_byte,
        "static": float(plan.base_mw + sum(engine.idle_mw for engine in plan.engines)),
        "capacity": int(plan.dram_bandwidth > 0 or bool(plan.contention)),
        "streams": len(streams.names),
        "classes": beside.pop("classes"),
        "points": steered.pop("points"),
        "first_edge": FAR,
        "first_control": FAR,
    }
    rows.update(steered)
    for name in _EMPTY:
        rows.setdefault(name, array("q"))
    named = tuple(dict.fromkeys([*_PREFIX, *(segment.name for _, _, segment in segments)]))
    index = {name: number for number, name in enumerate(named)}
    # a segment that happens to be called like a prefix keeps its own slice name; both read the same
    rows["g_name"] = array("q", [index[segment.name] for _, _, segment in segments])
    tables = {**rows, "numbers": numbers}
    placed = tuple((engine, segment) for _, engine, segment in segments)
    return Lowered(plan, tables, placed, tuple(streams.names), named, sources, units, policies)


_EMPTY = (
    "reads", "nexts", "times", "t_need", "s_period", "n_lanes", "u_engine", "lane_speed", "g_time",
)  # fmt: skip


class _Streams:
    """Names of the streams of random numbers, numbered as they are asked for."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.names: list[str] = []

    def new(self, what: str) -> int:
        self.names.append(f"{self.seed}:{what}")
        return len(self.names) - 1


def _check(task: Task, plan: Plan, engines: Mapping[str, int]) -> None:
    where = f"plan: task {task.name!r}"
    places = [(task.engine, task.lanes)]
    for segment in (*task.segments, *task.degraded):
        if segment.engine:
            places.append((segment.engine, segment.lanes))
    for name, lanes in places:
        if name not in engines:
            raise UsageError(f"{where}: engine {name!r} is not in the plan", hint=f"engines: {', '.join(engines)}")
        count = plan.engines[engines[name]].lanes
        if not lanes or not all(0 <= lane < count for lane in lanes):
            raise UsageError(f"{where}: lanes {list(lanes)} are not among the {count} of engine {name!r}")
        if count > MOST_LANES:
            raise UsageError(
                f"engine {name!r} has {count} lanes", hint=f"group them: at most {MOST_LANES} are simulated"
            )
    if task.timer == bool(task.after):
        raise UsageError(f"{where}: exactly one of a timer and `after` must trigger it")
    if task.timer and task.period_ns <= 0:
        raise UsageError(f"{where}: a timer needs a period above 0, got {task.period_ns} ns")
    if not 0 <= task.width <= len(task.lanes):
        raise UsageError(f"{where}: a width of {task.width} of {len(task.lanes)} lanes")
    for value, known, field in ((task.on_late, LATE, "on_late"), (task.criticality, CRITICALITY, "criticality")):
        if value not in known:
            raise UsageError(f"{where}: {field} {value!r} is unknown", hint=f"known: {', '.join(known)}")
    if task.budget_ns and not 0 < task.budget_ns <= task.server_ns:
        raise UsageError(f"{where}: a budget of {task.budget_ns} ns in every {task.server_ns} ns is no reservation")


def _mask(lanes: Iterable[int]) -> int:
    return sum(1 << lane for lane in set(lanes))


def _places(task: Task) -> Iterable[tuple[str, int]]:
    yield task.engine, _mask(task.lanes)
    for segment in (*task.segments, *task.degraded):
        if segment.engine:
            yield segment.engine, _mask(segment.lanes)


def _units(plan: Plan, engines: Mapping[str, int]) -> tuple[Unit, ...]:
    masks: list[tuple[str, int]] = []
    for task in plan.tasks:
        for engine, mask in _places(task):
            kept = []
            for name, other in masks:
                if name == engine and other & mask:
                    mask |= other
                else:
                    kept.append((name, other))
            masks = [*kept, (engine, mask)]
    return tuple(
        Unit(engines[name], mask) for name, mask in sorted(masks, key=lambda pair: (engines[pair[0]], pair[1]))
    )


def _segments(
    rows: _Columns, plan: Plan, engines: Mapping[str, int], units: Sequence[Unit]
) -> list[tuple[Task, str, Segment]]:
    """Write one row a segment, and where the segments of every task start."""
    found: list[tuple[Task, str, Segment]] = []

    def add(task: Task, segments: Sequence[Segment]) -> int:
        first = len(found)
        rest = sum(segment.time_ns for segment in segments)
        for segment in segments:
            rest -= segment.time_ns
            name, lanes = (segment.engine, segment.lanes) if segment.engine else (task.engine, task.lanes)
            mask = _mask(lanes)
            unit = next(i for i, u in enumerate(units) if u.engine == engines[name] and u.mask & mask)
            width = 0 if segment.engine else task.width
            drawn = segment.bytes if segment.time_ns else 0
            rows.row("g", time=segment.time_ns, bytes=drawn, unit=unit, mask=mask, width=width)
            rows.row("g", hold=bool(segment.hold and segment.engine), rest=rest)
            found.append((task, name, segment))
        return first

    for task in plan.tasks:
        own = task.segments or (Segment(task.name, task.cost_ns, 0, task.bytes),)
        if own[0].hold:
            raise UsageError(f"plan: task {task.name!r}: nothing to hold before its first segment on its own engine")
        rows.row("t", first=add(task, own), count=len(own), cost=sum(segment.time_ns for segment in own))
        rows.row("t", alt=add(task, task.degraded), alts=len(task.degraded))
    return found


def _task(rows: _Columns, task: Task, streams: _Streams) -> None:
    times = task.times.values_ns if task.times else ()
    rows.setdefault("times", array("q"))
    rows.row("t", need=len(task.after), queue=task.queue, full=task.overflow == "oldest", deadline=task.deadline_ns)
    rows.row("t", priority=task.priority, period=task.period_ns, criticality=CRITICALITY[task.criticality])
    rows.row("t", late=LATE[task.on_late], budget=task.budget_ns, server=task.server_ns, weights=task.weights_bytes)
    rows.row("t", table0=len(rows["times"]), table=len(times), stream=streams.new(f"time:{task.name}") if times else -1)
    rows.row("t", between=bool(task.times and task.times.interpolate and len(times) > 1))
    rows.row("t", over=-1, chance=0, up=1, down=1, loop=-1, closes=0)
    rows["times"].extend(times)


def _everywhere(rows: _Columns, plan: Plan, units: Sequence[Unit], unit: Unit) -> bool:
    """Whether every job of a unit's own tasks takes one of its lanes, whichever is free."""
    own = [row for row in rows["t_first"][: len(plan.tasks)] if units[rows["g_unit"][row]] == unit]
    return all(rows["g_width"][row] == 1 and rows["g_mask"][row] == unit.mask for row in own)


def _unit(rows: _Columns, unit: Unit, engine: PlannedEngine, rule: Policy) -> None:
    if engine.preemption not in KINDS:
        problem = f"engine {engine.id!r}: preemption {engine.preemption!r} is unknown"
        raise UsageError(problem, hint=f"known: {', '.join(KINDS)}")
    engine, way = taken(engine, rule)
    kind = KINDS[engine.preemption] if rule.preemptive else KINDS["none"]
    asked = callable(rule.order)
    first, second = (Term.ASKED, Term.NOTHING) if asked else rule.order  # type: ignore[misc]
    rows.row("u", engine=unit.engine, mask=unit.mask, kind=kind, flight=max(engine.in_flight, 1), reset=engine.reset_ns)
    rows.row("u", term0=first, term1=second, dynamic=dynamic(rule), tick=rule.tick_ns, across=rule.across)
    rows.row("u", quantum=(engine.quantum_ns or 1_000_000) if rule.sliced else 0, serves=rule.serves)
    rows.row("u", **unit_row(rule, way, engine.kind))


def _engine(rows: _Columns, engine: PlannedEngine, scale: int, levels: int) -> None:
    speeds = engine.capacities or (1024,) * engine.lanes
    if len(speeds) != engine.lanes or not all(0 < speed <= 1024 for speed in speeds):
        raise UsageError(
            f"engine {engine.id!r}: {engine.lanes} capacities from 1 to 1024 are needed, got {list(speeds)}"
        )
    rows.setdefault("lane_speed", array("q"))
    rows.row("n", switch=engine.switch_ns, migrate=engine.migration_ns, reshape=engine.reshape_ns, slow=1, fast=1)
    rows.row("n", lane0=len(rows["lane_speed"]), lanes=engine.lanes, still=0, memory=engine.memory_bytes)
    rows.row("n", linger=engine.linger_ns, slice=max(engine.quantum_ns, 1))
    rows.row("n", swap=engine.swap_bandwidth or engine.bandwidth or 1, governor=engine.governor == "ccedf")
    rows["lane_speed"].extend(speeds)
    # engines with fewer operating points than others repeat their slowest one
    points = [(point.clock_hz, point.dynamic_mw) for point in engine.levels] or [(1, engine.dynamic_mw)]
    points = [points[0]] * (levels - len(points)) + points
    for clock, power in points:
        rows.row("n", clock=clock, power=power * scale // max(engine.lanes, 1))
    rows.row("n", level=levels - 1)


def _sources(rows: _Columns, plan: Plan, streams: _Streams) -> tuple[str, ...]:
    names = []
    for sensor in plan.sensors:
        if sensor.period_ns <= 0:
            raise UsageError(f"plan: sensor {sensor.name!r}: a period above 0 is needed, got {sensor.period_ns} ns")
        times = (sensor.period_ns, sensor.offset_ns, sensor.jitter_ns, sensor.gap_ns)
        _source(rows, sensor.name, times, False, streams)
        names.append(sensor.name)
    for task in plan.tasks:
        if task.timer:
            times = (task.period_ns, task.offset_ns, task.release_jitter_ns, task.gap_ns)
            _source(rows, task.name, times, True, streams)
            names.append(task.name)
    return tuple(names)


def _source(rows: _Columns, name: str, times: tuple[int, int, int, int], behind: bool, streams: _Streams) -> None:
    """Write a source; `behind`: its jitter comes after the instant that deadlines count from."""
    period, offset, jitter, gap = times
    stream = streams.new(f"release:{name}") if jitter or gap else -1
    rows.row("s", period=period, offset=offset, jitter=jitter, gap=gap, stream=stream, lost=0, delay=0, burst=0)
    rows.row("s", behind=behind, loop=0)


def _connect(rows: _Columns, plan: Plan, sources: Sequence[str]) -> None:
    """Write whom every source and task triggers, and what every task samples."""
    count, sensors = len(plan.tasks), len(plan.sensors)
    producers = {name: count + index for index, name in enumerate(sources[:sensors])}
    producers.update({task.name: index for index, task in enumerate(plan.tasks)})
    followers: list[list[int]] = [[] for _ in range(count + len(sources))]
    rows["reads"], rows["nexts"] = array("q"), array("q")
    for index, task in enumerate(plan.tasks):
        for name in (*task.after, *task.reads):
            if name not in producers:
                problem = f"plan: task {task.name!r}: {name!r} is no task or sensor"
                raise UsageError(problem, hint=f"known: {', '.join(producers)}")
        for name in task.after:
            followers[producers[name]].append(index)
        rows.row("t", reads0=len(rows["reads"]), reads=len(task.reads))
        rows["reads"].extend(producers[name] for name in task.reads)
    timers = [index for index, task in enumerate(plan.tasks) if task.timer]
    for place, index in enumerate(timers):
        followers[count + sensors + place].append(index)
    for owner, listed in enumerate(followers):
        rows.row("t" if owner < count else "s", next0=len(rows["nexts"]), next=len(listed))
        rows["nexts"].extend(listed)


def _close_loops(rows: _Columns, plan: Plan, sources: Sequence[str]) -> None:
    """Write which tasks' ends let closed loops go on: the last one's, and any that loses a frame on the way to it."""
    number = {task.name: index for index, task in enumerate(plan.tasks)}
    for timer in plan.tasks:
        if not timer.closed_by:
            continue
        way = _way(plan, timer.name, timer.closed_by) if timer.timer else []
        if not way or any(len(plan.tasks[number[name]].after) > 1 for name in way):
            raise UsageError(
                f"plan: task {timer.name!r}: closed by {timer.closed_by!r}, which its data alone must lead to"
            )
        source = list(sources).index(timer.name)
        rows["s_loop"][source] = 1
        for name in way:
            rows["t_loop"][number[name]] = source
        rows["t_closes"][number[timer.closed_by]] = 1


def _way(plan: Plan, first: str, last: str) -> list[str]:
    """Return the tasks from `first` to `last`, each triggered by the one before; none if there is no way."""
    after = {task.name: task.after for task in plan.tasks}
    found, name = [last], last
    while name != first:
        if len(after.get(name, ())) != 1 or after[name][0] in found:
            return []
        name = after[name][0]
        found.append(name)
    return found


def with_policy(plan: Plan, name: str) -> Plan:
    """Return the plan with every engine under one policy."""
    return replace(plan, engines=tuple(replace(engine, policy=name) for engine in plan.engines))
