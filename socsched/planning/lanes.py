"""Assignment of tasks to lanes of their engines, and their slowdown by other tasks' traffic there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from socsched.cost.contention import ContentionModel, Rival, draw
from socsched.cost.cost import Cost
from socsched.planning.execution import longest_ns
from socsched.planning.plan import Task


def assign_lanes(tasks: Sequence[Task], mapping: Mapping[str, Cost], lanes: Mapping[str, int]) -> list[Task]:
    """Assign gangs the first lanes of their engine, then all other tasks the least loaded lane (worst fit decreasing).

    If there are enough lanes for every task to have its own, gangs get disjoint lanes.
    """
    load = {engine: [0.0] * count for engine, count in lanes.items()}
    taken: dict[str, tuple[int, ...]] = {}

    def share(task: Task) -> int:
        return min(mapping[task.name].share, lanes[task.engine]) if task.kind == "stage" else 1

    def utilisation(task: Task) -> float:
        return task.cost_ns / task.period_ns

    demand = {engine: sum(share(task) for task in tasks if task.engine == engine) for engine in lanes}
    for task in sorted(tasks, key=lambda t: (-share(t), -utilisation(t))):
        loads = load[task.engine]
        if share(task) > 1:
            first = sum(map(bool, loads)) if demand[task.engine] <= len(loads) else 0  # room for all: disjoint lanes
            chosen = tuple(range(first, first + share(task)))
        else:
            chosen = (min(range(len(loads)), key=lambda lane: (round(loads[lane], 9), lane)),)
        for lane in chosen:
            loads[lane] += utilisation(task)
        taken[task.name] = chosen
    return [replace(task, lanes=taken[task.name]) for task in tasks]


def with_wcet(
    tasks: Sequence[Task],
    contention: ContentionModel,
    foreign: Sequence[Rival] = (),
    apart: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> list[Task]:
    """Stretch every task by the worst slowdown from lanes outside its own that use the DRAM.

    `foreign`: other DRAM traffic, each source on a lane of its own; `apart`: tasks that never run with one.
    """
    rivals = {
        t.name: Rival(t.engine, max(map(draw, (*t.segments, *t.degraded)), default=0.0), max(len(t.lanes), 1))
        for t in tasks
    }
    lanes: dict[tuple[str, int], list[Task]] = {}
    for task in tasks:
        for lane in task.lanes:
            lanes.setdefault((task.engine, lane), []).append(task)
    result = []
    for task in tasks:
        own = {(task.engine, lane) for lane in task.lanes}
        others = [
            [
                rivals[t.name]
                for t in members
                if not own & {(t.engine, n) for n in t.lanes} and t.name not in apart.get(task.name, ())
            ]
            for lane, members in lanes.items()
            if lane not in own
        ]
        others += [[rival] for rival in foreign]
        variants = [segments for segments in (task.segments, task.degraded) if segments or segments is task.segments]
        worst = max(contention.worst_pace(task.engine, segments, others) for segments in variants)
        wcet_ns = longest_ns(task, worst)
        result.append(task if wcet_ns == task.wcet_ns else replace(task, wcet_ns=wcet_ns))
    return result
