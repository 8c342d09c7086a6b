"""Failover plans for the loss of lanes or engines, made before the run for the remaining hardware.

For every set of lanes the plan uses, the pipeline is planned again on a platform without them.  If no lanes remain, or
a stage has no other engine, there is no such plan, and its frames are aborted when the engine is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from socsched.cost.model import WorkOf
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Engine, EngineMode, Platform
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan

Lanes = frozenset[tuple[str, int]]
"""Pairs of engine and lane."""


def limp_home_plans(plan: Plan, pipeline: Pipeline, platform: Platform, work: WorkOf) -> tuple[Plan, ...]:
    """Return a plan for the loss of each lane set of `plan`, smaller losses first.

    `platform` is the plan's own; `work` is the argument its planner used.  A returned plan may miss deadlines: see its
    verdict.
    """
    each = {lanes_lost_with(task.engine, task.lanes) for task in plan.tasks}
    losses = sorted(each, key=lambda lost: (len(lost), sorted(lost)))
    found: list[Plan] = []
    for lost in losses:
        reduced = without(plan, lost, pipeline, platform, work)
        if reduced is not None and reduced not in found:
            found.append(reduced)
    return tuple(found)


def lanes_lost_with(engine: str, lanes: Iterable[int]) -> Lanes:
    """Return the lanes lost with a worker of these lanes."""
    return frozenset((engine, lane) for lane in lanes)


def without(plan: Plan, lost: Lanes, pipeline: Pipeline, platform: Platform, work: WorkOf) -> Plan | None:
    """Return a plan that uses none of the lanes `lost`, None if none exists."""
    missing: dict[str, set[int]] = {}
    for engine, lane in lost:
        missing.setdefault(engine, set()).add(lane)
    left = {e.id: [lane for lane in range(e.lanes) if lane not in missing.get(e.id, ())] for e in plan.engines}
    if not any(left.values()):
        return None
    reduced = make_plan(
        pipeline,
        _reduced(platform, left, missing),
        plan.mode,
        policy=plan.policy,
        work=work,
        explain=False,
    )
    if not reduced.tasks:
        return None
    lanes = {engine.id: engine.lanes for engine in plan.engines}
    engines = tuple(replace(engine, lanes=lanes[engine.id]) for engine in reduced.engines if engine.id in lanes)
    known = {engine.id for engine in engines}
    absent = tuple(engine for engine in plan.engines if engine.id not in known)
    tasks = tuple(replace(t, lanes=tuple(left[t.engine][lane] for lane in t.lanes)) for t in reduced.tasks)
    return replace(reduced, engines=(*engines, *absent), tasks=tasks)


def _reduced(platform: Platform, left: dict[str, list[int]], lost: dict[str, set[int]]) -> Platform:
    """Return the platform with fewer units in every mode; engines without lanes are off.

    Other modes and lost engines stay described: stated times and parameters of contention refer to them.
    """

    def state(engine: Engine, mode: EngineMode) -> EngineMode:
        if not left.get(engine.id, [0]):
            return replace(mode, units=0)
        return replace(
            mode, units=max(mode.units - len(lost.get(engine.id, ())), 0) if engine.shares == "unit" else mode.units
        )

    engines = {engine.id: engine for engine in platform.engines}
    modes = tuple(
        replace(mode, engines={name: state(engines[name], em) for name, em in mode.engines.items()})
        for mode in platform.modes
    )
    return replace(platform, modes=modes)
