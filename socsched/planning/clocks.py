"""A steady clock or a race to idle: for each engine the operating point that spends least while every bound holds.

At a point f times slower than the planned one every job takes f times as long at most (what memory bounds, less), and
draws what the point draws.  The busy power of a point is its dynamic power times the utilisation there; idle power does
not depend on it.  So racing wins where power falls no faster than the clock, and a steady clock where voltage falls
too.  What is chosen is analysed anew from the plan alone (`recheck`), and holds where the clock is pinned.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from math import ceil

from socsched.cost.cost import Segment
from socsched.planning.plan import Plan, PlannedEngine, Power
from socsched.planning.recheck import recheck
from socsched.planning.task import ExecutionTimes, Task

LEAST_SAVED = 0.01
"""Part of an engine's busy power that a slower clock has to save."""


def with_steady_clocks(plan: Plan) -> Plan:
    """Return a feasible plan with the clocks that spend least, and a note for every engine with a choice."""
    for engine in plan.engines:
        if plan.verdict == "feasible" and len(engine.levels) > 1 and busy_mw(plan, engine) > 0:
            plan = _with_steady_clock(plan, engine)
    return plan


def _with_steady_clock(plan: Plan, engine: PlannedEngine) -> Plan:
    racing = busy_mw(plan, engine)
    best, spent = plan, racing * (1 - LEAST_SAVED)
    for number in range(len(engine.levels) - 1):
        slower = at_level(plan, engine, number)
        power = busy_mw(slower, next(one for one in slower.engines if one.id == engine.id))
        if power < spent:
            checked = recheck(slower)
            if checked.plan.verdict == "feasible" and not checked.outside:
                best, spent = checked.plan, power
    top = engine.levels[-1].clock_hz / 1e6
    if best is plan:
        note = f"races to idle at {top:g} MHz: no slower clock spends less and keeps every bound"
    else:
        chosen = next(one for one in best.engines if one.id == engine.id).levels[-1].clock_hz / 1e6
        saved = (racing - spent) / 1000
        note = f"{chosen:g} MHz, steady: {saved:.3g} W less than racing at {top:g} MHz; bounds hold where it is pinned"
    solver = replace(best.solver, notes={**(best.solver.notes or {}), engine.id: note})
    return replace(best, solver=solver, power=_power(best.power, engine.id, racing, busy_mw_of(best, engine.id)))


def busy_mw_of(plan: Plan, name: str) -> float:
    """Return the mean dynamic power (mW) of an engine by its name."""
    return busy_mw(plan, next(one for one in plan.engines if one.id == name))


def busy_mw(plan: Plan, engine: PlannedEngine) -> float:
    """Return the mean dynamic power (mW) of an engine under a plan."""
    own = (task for task in plan.tasks if task.engine == engine.id)
    return engine.dynamic_mw * sum(t.cost_ns / t.period_ns * len(t.lanes) / engine.lanes for t in own)


def _power(power: Power, name: str, before: float, after: float) -> Power:
    """Return the plan's power with the dynamic part of an engine replaced."""
    if power.expected_mw is None:
        return power
    term = f"{name} dynamic"
    terms = tuple((key, round(value * after / before) if key == term else value) for key, value in power.terms)
    return replace(power, expected_mw=sum(value for _, value in terms), terms=terms)


def at_level(plan: Plan, engine: PlannedEngine, number: int) -> Plan:
    """Return a plan with an engine's clock at one of its points, all times there as long as the clock is slower."""
    level, top = engine.levels[number], engine.levels[-1]
    factor = top.clock_hz / level.clock_hz
    pinned = replace(engine, levels=engine.levels[: number + 1], dynamic_mw=level.dynamic_mw)
    energy = factor * level.dynamic_mw / max(engine.dynamic_mw, 1)

    def slower(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        return tuple(
            replace(one, time_ns=ceil(one.time_ns * factor), fixed_ns=ceil(one.fixed_ns * factor)) for one in segments
        )

    def changed(task: Task) -> Task:
        if task.engine != engine.id:
            return task
        segments = slower(task.segments)
        times = task.times and ExecutionTimes(
            tuple(ceil(value * factor) for value in task.times.values_ns), task.times.interpolate
        )
        cost = sum(one.time_ns for one in segments) if segments else ceil(task.cost_ns * factor)
        longer = {name: ceil(getattr(task, name) * factor) for name in ("wcet_ns", "high_ns")}
        parts = task.shared and replace(
            task.shared, **{name: ceil(ns * factor) for name, ns in asdict(task.shared).items() if name != "by"}
        )
        return replace(
            task, segments=segments, degraded=slower(task.degraded), times=times, cost_ns=cost,
            energy_uj=round(task.energy_uj * energy), shared=parts, **longer,
        )  # fmt: skip

    engines = tuple(pinned if one.id == engine.id else one for one in plan.engines)
    return replace(plan, engines=engines, tasks=tuple(map(changed, plan.tasks)))
