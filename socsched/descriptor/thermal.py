"""Thermal states of a module, and its power modes in each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from socsched.errors import UsageError

if TYPE_CHECKING:
    from socsched.descriptor.platform import Engine, EngineMode, Figure, Platform, PowerMode

NOMINAL = "nominal"
"""Name of the only state of a platform that declares none: full clocks."""


@dataclass(frozen=True, slots=True)
class ThermalState:
    """A thermal state: the share of a mode's clocks that engines keep, `engines` (id or kind) with another share.

    `above`: temperature (degrees Celsius) from which it is entered, None where none is stated.
    """

    name: str
    title: str
    clocks: Figure
    engines: Mapping[str, Figure] = field(default_factory=dict)
    above: float | None = None

    def share(self, engine: Engine) -> float:
        """Return the share of its clock that an engine keeps."""
        figure = self.engines.get(engine.id) or self.engines.get(engine.kind) or self.clocks
        return figure.value


def mode_in_state(platform: Platform, mode: PowerMode, state: str) -> PowerMode:
    """Return a power mode with the clocks of a thermal state; UsageError for an unknown state.

    Clocks fall to the highest operating point within the share, or to the share itself where no points are listed.
    Dynamic power follows the clock, the memory clock stays.  The name of a slower mode ends with the state's, since
    times known for the mode do not hold in it.
    """
    found = next((one for one in platform.thermal_states if one.name == state), None)
    if found is None and state != NOMINAL:
        names = ", ".join(one.name for one in platform.thermal_states) or NOMINAL
        raise UsageError(f"platform {platform.name!r} has no thermal state {state!r}", f"one of {names}")
    if found is None or all(found.share(engine) == 1.0 for engine in platform.engines):
        return mode
    engines = {e.id: _slower(e, mode.engines[e.id], found.share(e)) for e in platform.engines}
    return replace(mode, name=f"{mode.name}@{state}", aliases=(), default=False, engines=engines, stated_tops=None)


def _slower(engine: Engine, state: EngineMode, share: float) -> EngineMode:
    if state.units <= 0 or share == 1.0:
        return state
    from socsched.descriptor.operating_points import dynamic_power  # which imports the platform

    limit = round(state.clock_hz * share)
    points = [point.clock_hz for point in engine.points.points if point.clock_hz <= limit] if engine.points else []
    clock = max(points, default=limit)
    full = state.dynamic_mw
    linear = full.value * clock / state.clock_hz
    stated = dynamic_power(engine, state.units, clock).value
    note = f"{full.value / 1000:.3g} W x {clock / state.clock_hz:.3g} of the clock, or less by operating points"
    power = replace(full, value=round(min(linear, stated)), kind="derived", note=note, interval=None)
    return replace(state, clock_hz=clock, dynamic_mw=power)
