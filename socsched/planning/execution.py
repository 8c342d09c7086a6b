"""Execution times of jobs of a planned stage, on lanes beside others: drawn times, cheaper variants, worst cases.

The simulator scales all segments of a job alike to the drawn time and applies contention as planned.  The longest job
therefore takes the worst case of the planned segments times the largest factor drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from socsched.cost.contention import ContentionModel, Rival, draw
from socsched.cost.cost import Cost, Segment
from socsched.cost.model import CostModel
from socsched.descriptor.pipeline import PER_COST, Stage
from socsched.planning.plan import ExecutionTimes, PlannedEngine, Task
from socsched.planning.task import changed

_FEW_BITS = 1 << 31
"""From here on the simulator drops the last bits of factors, rounding up: an error of at most one part in 2**29."""


def execution_times(stage: Stage, cost: Cost, model: CostModel | None = None) -> ExecutionTimes | None:
    """Return the execution times (ns) of a stage where it is mapped, None if every job takes its cost.

    Times stated in the pipeline take precedence over those measured in `model`.
    """
    if stage.execution is None:
        known = model.measured_times(stage.name, cost.engine, cost.precision, cost.share) if model else ()
        return ExecutionTimes(known, len(known) > 1) if known else None
    values = tuple(max(value, 1) for value in stage.execution.times_ns(cost.time_ns))
    return ExecutionTimes(values, stage.execution.interpolate and len(values) > 1)


def degraded_segments(stage: Stage, cost: Cost, model: CostModel) -> tuple[Segment, ...]:
    """Return the segments that a late job runs instead; empty if there is no variant, or none that is shorter."""
    variant = stage.degraded
    if variant is None:
        return ()
    if variant.precision:
        found = model.variant(stage, cost, variant.precision)
        segments = found.segments if found else ()
    else:
        time = -(-variant.cost * cost.time_ns // PER_COST) if variant.relative else variant.cost
        segments = tuple(_part(segment, time, cost.time_ns) for segment in cost.segments)
    return segments if sum(segment.time_ns for segment in segments) < cost.time_ns else ()


def high_ns(stage: Stage, cost: Cost, times: ExecutionTimes | None) -> int:
    """Return the time (ns) of a stage at the high level of criticality where it is mapped, 0 if it has one time."""
    if stage.high is None:
        return 0
    return max(stage.high.time_ns(cost.time_ns), *(times.values_ns if times else (0,)))


def _part(segment: Segment, up: int, down: int) -> Segment:
    time, fixed, size = (value * up // down for value in (segment.time_ns, segment.fixed_ns, segment.bytes))
    return replace(segment, time_ns=time, fixed_ns=fixed, bytes=size)


def handing_over(task: Task, time_ns: int) -> Task:
    """Return a task whose jobs spend `time_ns` more on making their result visible, whatever their execution time."""
    extra = Segment("hand-over", time_ns, time_ns, 0)
    times = task.times and replace(task.times, values_ns=tuple(value + time_ns for value in task.times.values_ns))
    degraded = (*task.degraded, extra) if task.degraded else ()
    segments = (*task.segments, extra)
    high = task.high_ns and task.high_ns + time_ns
    return changed(
        task, segments=segments, degraded=degraded, times=times, cost_ns=task.cost_ns + time_ns, high_ns=high
    )


def longest_ns(task: Task, worst_ns: int) -> int:
    """Return a task's WCET (ns): the worst case of its planned work, times the largest factor drawn.

    Longer times than planned belong to the high level of criticality, if the task has one.
    """
    if task.high_ns:
        return worst_ns
    longest = max(task.times.values_ns) if task.times else task.cost_ns
    planned = sum(segment.time_ns for segment in task.segments)
    if longest <= planned or not planned:
        return worst_ns
    scaled = -(-worst_ns * longest // planned)
    lost = scaled >> 28 if longest >= _FEW_BITS else 0
    return scaled + max(len(task.segments), len(task.degraded)) + lost


Once = Callable[..., Any]
"""What was made of an object and some detail before, made now if it was not: `Workload.once`."""


def _anew(of: object, detail: Hashable, make: Callable[..., Any], *given: Any) -> Any:
    return make(*given)


def _on(task: Task, lanes: tuple[int, ...]) -> Task:
    return changed(task, lanes=lanes)


def slowed_by_lanes(tasks: Sequence[Task], engines: Sequence[PlannedEngine], once: Once = _anew) -> list[Task]:
    """Return the tasks with the WCET of their slowest lane; costs refer to lanes of capacity 1024."""
    capacities = {engine.id: engine.capacities for engine in engines}
    result = []
    for task in tasks:
        slowest = slowest_lane(task, capacities[task.engine])
        if slowest < 1024:
            wcet_ns = -(-task.wcet_ns * 1024 // slowest) + len(task.segments)
            task = once(task, wcet_ns, _taking, task, wcet_ns)
        result.append(task)
    return result


def slowest_lane(task: Task, capacities: Sequence[int]) -> int:
    """Return the speed of a task on its lanes, 1024 for the speed that costs refer to."""
    return min((capacities[lane] for lane in task.lanes), default=1024) if capacities else 1024


def assign_lanes(
    tasks: Sequence[Task],
    mapping: Mapping[str, Cost],
    lanes: Mapping[str, int],
    once: Once = _anew,
    portions: Mapping[str, range] = MappingProxyType({}),
) -> list[Task]:
    """Assign gangs the first lanes of their engine, then all other tasks the least loaded lane (worst fit decreasing).

    If there are enough lanes for every task to have its own, gangs get disjoint lanes.  `portions`: the lanes of the
    tasks that have their own part of an engine.
    """
    load = {engine: [0.0] * count for engine, count in lanes.items()}
    taken: dict[str, tuple[int, ...]] = {}
    demand, ranked = dict.fromkeys(lanes, 0), list[tuple[int, float, int]]()
    for place, task in enumerate(tasks):
        share = min(mapping[task.name].share, lanes[task.engine]) if task.kind == "stage" else 1
        demand[task.engine] += share
        ranked.append((-share, -task.cost_ns / task.period_ns, place))
    rounded = {engine: list(loads) for engine, loads in load.items()}
    for share, used, place in sorted(ranked):
        task = tasks[place]
        loads, near = load[task.engine], rounded[task.engine]
        if task.name in portions:
            chosen = tuple(portions[task.name])
        elif share < -1:
            first = sum(map(bool, loads)) if demand[task.engine] <= len(loads) else 0  # room for all: disjoint lanes
            chosen = tuple(range(first, first - share))
        else:
            chosen = (near.index(min(near)),)
        for lane in chosen:
            loads[lane] -= used
            near[lane] = round(loads[lane], 9)
        taken[task.name] = chosen
    return [once(task, chosen := taken[task.name], _on, task, chosen) for task in tasks]


def with_wcet(
    tasks: Sequence[Task],
    contention: ContentionModel,
    foreign: Sequence[Rival] = (),
    apart: Mapping[str, Set[str]] = MappingProxyType({}),
    once: Once = _anew,
) -> list[Task]:
    """Stretch every task by the worst slowdown from lanes outside its own that use the DRAM.

    `foreign`: other DRAM traffic, each source on a lane of its own; `apart`: tasks that never run with one; `once`
    returns what was made of the same task beside the same traffic before.
    """
    beside, result = _Beside.of(tasks, foreign, once, contention), []
    for task in tasks:
        others = beside.rivals(task, apart.get(task.name))
        result.append(once(task, others, _stretched, task, contention, others.lanes, once))
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Rivals:
    """The rivals on every other lane: all tasks of a lane have them, so that they are compared by identity."""

    lanes: tuple[tuple[Rival, ...], ...]


def _stretched(task: Task, contention: ContentionModel, others: Sequence[Sequence[Rival]], once: Once) -> Task:
    worst = contention.worst_pace(task.engine, task.segments, others)
    if task.degraded:
        worst = max(worst, contention.worst_pace(task.engine, task.degraded, others))
    wcet_ns = longest_ns(task, worst)  # beside other traffic it may take as long
    return task if wcet_ns == task.wcet_ns else once(task, wcet_ns, _taking, task, wcet_ns)


def _taking(task: Task, wcet_ns: int) -> Task:
    return changed(task, wcet_ns=wcet_ns)


_NOBODY: frozenset[str] = frozenset()
_Member = tuple[Rival, str, frozenset[tuple[str, int]]]


def _as_rival(task: Task) -> tuple[_Member, tuple[tuple[str, int], ...]]:
    """Return a task as a rival with its name and lanes, and its lanes in order."""
    most = max(map(draw, (*task.segments, *task.degraded)), default=0.0)
    lanes = tuple((task.engine, lane) for lane in task.lanes)
    return (Rival(task.engine, most, max(len(task.lanes), 1)), task.name, frozenset(lanes)), lanes


def _most_first(member: _Member) -> float:
    return -member[0].demand


@dataclass(slots=True)
class _Beside:
    """The tasks of every lane as rivals, most demanding first, with their lanes; `widths`: how many sizes these have.

    Of rivals of one lane, a model takes the worst; so of those with as many lanes, the most demanding one stands for
    all, and tasks of the same lanes have the same rivals.
    """

    lanes: Mapping[tuple[str, int], list[_Member]]
    foreign: list[tuple[Rival, ...]]
    widths: Mapping[tuple[str, int], int]
    once: Once
    kind: object
    known: dict[tuple[str, tuple[int, ...]], _Rivals] = field(default_factory=dict)

    @staticmethod
    def of(tasks: Sequence[Task], foreign: Sequence[Rival], once: Once, kind: object) -> _Beside:
        ordered: dict[tuple[str, int], list[_Member]] = {}
        for task in tasks:
            member, lanes = once(task, "rival", _as_rival, task)
            for lane in lanes:
                ordered.setdefault(lane, []).append(member)
        for members in ordered.values():
            members.sort(key=_most_first)
        widths = {lane: len({rival.lanes for rival, _, _ in members}) for lane, members in ordered.items()}
        return _Beside(ordered, [(rival,) for rival in foreign], widths, once, kind)

    def rivals(self, task: Task, apart: Set[str] | None) -> _Rivals:
        """Return the rivals on each lane that a task does not occupy, but for tasks that never run with it."""
        key = task.engine, task.lanes
        if not apart:
            if key not in self.known:
                self.known[key] = self._rivals(task, _NOBODY)
            return self.known[key]
        return self._rivals(task, apart)

    def _rivals(self, task: Task, apart: Set[str]) -> _Rivals:
        own, apart = {(task.engine, lane) for lane in task.lanes}, frozenset(apart)
        found = []
        for lane, members in self.lanes.items():
            if lane in own:
                continue
            worst: dict[int, Rival] = {}
            for rival, name, lanes in members:
                if rival.lanes not in worst and name not in apart and own.isdisjoint(lanes):
                    worst[rival.lanes] = rival
                    if len(worst) == self.widths[lane]:
                        break
            found.append(tuple(worst.values()))
        others = (*found, *self.foreign)
        return self.once(self.kind, others, _Rivals, others)  # type: ignore[no-any-return]
