"""Operating points available to a governor: those of the platform up to the planned clock, with their power."""

from __future__ import annotations

from dataclasses import replace

from socsched.descriptor.operating_points import dynamic_power
from socsched.descriptor.platform import Engine, EngineMode
from socsched.errors import UsageError
from socsched.planning.plan import Level, Plan, PlannedEngine

GOVERNORS = ("static", "ccedf")


def levels(engine: Engine, state: EngineMode) -> tuple[Level, ...]:
    """Return the operating points of an engine up to its planned clock, slowest first; () if there is no choice.

    Power is that of all online units by the mode's power model; a slower point that would draw more than the planned
    one is left out.
    """
    if engine.points is None or state.units <= 0:
        return ()
    top = round(state.dynamic_mw.value)
    slower = [point.clock_hz for point in engine.points.points if point.clock_hz < state.clock_hz]
    found = [Level(clock, round(dynamic_power(engine, state.units, clock).value)) for clock in slower]
    kept = [level for level in found if level.dynamic_mw <= top]
    return (*kept, Level(state.clock_hz, top)) if kept else ()


def governable(engine: PlannedEngine) -> bool:
    """Return whether a governor can serve an engine: it has a choice of clocks."""
    return len(engine.levels) > 1


def apply_governor(plan: Plan, governor: str) -> Plan:
    """Return the plan with a governor on every engine it can serve; UsageError if there is none."""
    if governor not in GOVERNORS:
        raise UsageError(f"unknown governor {governor!r}", f"one of {', '.join(GOVERNORS)}")
    if governor != "static" and not any(map(governable, plan.engines)):
        raise UsageError(
            f"governor {governor}: no engine of the plan has operating points to choose from",
            "give engines of the platform operating_points, and plan again",
        )
    engines = (replace(e, governor=governor) if governable(e) else e for e in plan.engines)
    return replace(plan, engines=tuple(engines))
