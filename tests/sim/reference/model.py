"""Lower a plan to the small structures the simulation runs on; names and indices are checked here, not in the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from random import Random
from typing import Any

from socsched.cost.contention import demand
from socsched.cost.cost import Segment
from socsched.errors import UsageError
from socsched.planning.plan import Plan, PlannedEngine, PlannedSensor, Task
from socsched.trace.trace import Job, Slice
from tests.sim.reference.policies import Policy, policy

Origin = Mapping[str, tuple[int, int]]

NO_JOB = Job("", -1, 0, 0)
NO_SLICE = Slice("", (), -1, "", 0, 0)


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment as the simulator runs it: `uid` numbers it, `demand` is what it draws alone (bytes/s)."""

    uid: int
    segment: Segment
    time_ns: int
    demand: float


@dataclass(slots=True)
class Unit:
    """Lanes of one engine that compete with each other: no task outside shares a lane with a task inside.

    `order` holds the oldest unfinished job of every task, sorted; `running` the tasks on lanes; `held` the lanes whose
    occupant may not be preempted now; `slow` the factor of a slowdown in force.
    """

    index: int
    engine: PlannedEngine
    mask: int
    preemptive: bool
    segmented: bool
    order: list[Entry] = field(default_factory=list)
    running: list[TaskState] = field(default_factory=list)
    held: int = 0
    slow: Fraction | None = None
    dirty: bool = False


@dataclass(slots=True, eq=False)
class TaskState:
    """A task and its oldest unfinished job (`job`, number `number` in the trace); younger ones wait in `waiting`.

    Progress: the job is in `piece`, the one at `position` of `todo`, which takes `pace_ns` as a whole as things are; as
    of `since_ns`, `left` (2**-64 ns) would remain if it took `base_ns`; `timed` once its completion is expected.
    `generation` distinguishes current completion events from outdated ones.  `depth` is the recorded queue depth,
    `power` the metered load.
    """

    index: int
    task: Task
    unit: Unit
    mask: int
    pieces: tuple[Piece, ...]
    key: Policy
    power: int
    name: str
    deadline_ns: int
    queue: int
    need: int
    todo: tuple[Piece, ...]
    piece: Piece
    followers: list[TaskState] = field(default_factory=list)
    reads: list[TaskState | Source] = field(default_factory=list)
    partial: dict[int, list[tuple[int, Origin]]] = field(default_factory=dict)
    latest: Origin = field(default_factory=dict)
    latest_frame: int = -1
    waiting: deque[int] = field(default_factory=deque)
    job: Job = field(default_factory=lambda: NO_JOB)
    number: int = -1
    entry: Entry = ((), -1, None)
    position: int = 0
    left: int = 0
    pace_ns: int = 0
    base_ns: int = 0
    since_ns: int = 0
    generation: int = 0
    timed: bool = False
    running: bool = False
    locked: bool = False
    switching: bool = False
    blocked_ns: int = -1
    slice: Slice = field(default_factory=lambda: NO_SLICE)
    depth: int = 0


Entry = tuple[tuple[int, ...], int, Any]
"""Policy key, task index, task: sorts by key, then task."""


@dataclass(slots=True, eq=False)
class Source:
    """A sensor or timer: when frames are released, and which tasks they start."""

    name: str
    period_ns: int
    offset_ns: int
    jitter_ns: int
    timer: bool
    rng: Random
    followers: list[TaskState] = field(default_factory=list)
    latest: Origin = field(default_factory=dict)
    latest_frame: int = -1
    last_ns: int = 0
    releases: list[int] = field(default_factory=list)

    def release_ns(self, frame: int) -> int:
        """Return when `frame` is released: its nominal instant plus uniform jitter, never before its predecessor."""
        instant = self.offset_ns + frame * self.period_ns
        if self.jitter_ns:
            instant += self.rng.getrandbits(62) % (self.jitter_ns + 1)
        self.last_ns = max(self.last_ns, instant)
        return self.last_ns


@dataclass(slots=True)
class Model:
    """A plan ready to be simulated; `power_scale` makes per-lane power an integer (mW = value / power_scale)."""

    plan: Plan
    tasks: list[TaskState]
    sources: list[Source]
    units: list[Unit]
    power_scale: int
    piece_count: int

    def stretch(self, state: TaskState, factor: Fraction) -> tuple[Piece, ...]:
        """Return the pieces of a job of `state` that takes `factor` times its planned work."""
        self.piece_count += len(state.pieces)
        first = self.piece_count - len(state.pieces)
        segments = [_scaled(piece.segment, factor) for piece in state.pieces]
        return _pieces(segments, first)


def lower(plan: Plan, seed: int, override: str | None = None) -> Model:
    """Return the model of `plan`; UsageError when it names what does not exist or a policy is unknown."""
    engines = {engine.id: engine for engine in plan.engines}
    for task in plan.tasks:
        _check(task, engines)
    units = _units(plan, engines)
    scale = lcm(*(max(engine.lanes, 1) for engine in plan.engines)) if plan.engines else 1
    policies = {engine.id: policy(override or engine.policy) for engine in plan.engines}
    states: list[TaskState] = []
    pieces = 0
    for task in plan.tasks:
        engine = engines[task.engine]
        todo = _pieces(task.segments or (Segment(task.name, task.cost_ns, 0, task.bytes),), pieces)
        pieces += len(todo)
        mask = _mask(task)
        unit = next(unit for unit in units if unit.engine is engine and unit.mask & mask)
        power = engine.dynamic_mw * len(task.lanes) * scale // max(engine.lanes, 1)
        served = (unit, mask, todo, policies[engine.id], power)
        limits = (task.name, task.deadline_ns, task.queue, len(task.after))
        states.append(TaskState(len(states), task, *served, *limits, todo, todo[0]))
    sources = [_sensor(sensor, seed) for sensor in plan.sensors]
    sources += [_timer(state, seed) for state in states if state.task.timer]
    _connect(states, sources)
    return Model(plan, states, sources, units, scale, pieces)


def _mask(task: Task) -> int:
    return sum(1 << lane for lane in set(task.lanes))


def _check(task: Task, engines: Mapping[str, PlannedEngine]) -> None:
    where = f"plan: task {task.name!r}"
    if task.engine not in engines:
        raise UsageError(f"{where}: engine {task.engine!r} is not in the plan", hint=f"engines: {', '.join(engines)}")
    lanes = engines[task.engine].lanes
    if not task.lanes or not all(0 <= lane < lanes for lane in task.lanes):
        raise UsageError(f"{where}: lanes {list(task.lanes)} are not among the {lanes} of engine {task.engine!r}")
    if task.timer == bool(task.after):
        raise UsageError(f"{where}: exactly one of a timer and `after` must trigger it")
    if task.timer and task.period_ns <= 0:
        raise UsageError(f"{where}: a timer needs a period above 0, got {task.period_ns} ns")


def _units(plan: Plan, engines: Mapping[str, PlannedEngine]) -> list[Unit]:
    masks: list[tuple[str, int]] = []
    for task in plan.tasks:
        mask, kept = _mask(task), []
        for engine, other in masks:
            if engine == task.engine and other & mask:
                mask |= other
            else:
                kept.append((engine, other))
        masks = [*kept, (task.engine, mask)]
    units: list[Unit] = []
    for name, mask in sorted(masks, key=lambda pair: (list(engines).index(pair[0]), pair[1])):
        kind = engines[name].preemption
        units.append(Unit(len(units), engines[name], mask, kind == "full", kind == "segment"))
    return units


def _pieces(segments: tuple[Segment, ...] | list[Segment], first: int) -> tuple[Piece, ...]:
    return tuple(Piece(first + i, s, s.time_ns, _draw(s)) for i, s in enumerate(segments))


def _draw(segment: Segment) -> float:
    return demand(segment) if segment.bytes and segment.time_ns else 0.0


def _scaled(segment: Segment, factor: Fraction) -> Segment:
    time, fixed, size = (-(-value * factor // 1) for value in (segment.time_ns, segment.fixed_ns, segment.bytes))
    return Segment(segment.name, int(time), int(fixed), int(size))


def _sensor(sensor: PlannedSensor, seed: int) -> Source:
    if sensor.period_ns <= 0:
        raise UsageError(f"plan: sensor {sensor.name!r}: a period above 0 is needed, got {sensor.period_ns} ns")
    rng = Random(f"{seed}:release:{sensor.name}")
    return Source(sensor.name, sensor.period_ns, sensor.offset_ns, sensor.jitter_ns, False, rng)


def _timer(state: TaskState, seed: int) -> Source:
    task = state.task
    return Source(task.name, task.period_ns, task.offset_ns, 0, True, Random(f"{seed}:release:{task.name}"), [state])


def _connect(states: list[TaskState], sources: list[Source]) -> None:
    producers: dict[str, TaskState | Source] = {source.name: source for source in sources if not source.timer}
    producers.update({state.task.name: state for state in states})
    for state in states:
        for name in (*state.task.after, *state.task.reads):
            if name not in producers:
                problem = f"plan: task {state.task.name!r}: {name!r} is no task or sensor"
                raise UsageError(problem, hint=f"known: {', '.join(producers)}")
        for name in state.task.after:
            producers[name].followers.append(state)
        state.reads = [producers[name] for name in state.task.reads]
