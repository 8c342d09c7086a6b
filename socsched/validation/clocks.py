"""Clocks of a measured board that none of its power modes has: `gpu=625MHz cpu1=off cpu0=576MHz*2 dram=136.5GB/s`."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from socsched.descriptor.fields import Quantity
from socsched.descriptor.operating_points import dynamic_power
from socsched.descriptor.platform import Engine, EngineMode, Figure, Platform, PowerMode

_CLOCK = Quantity("frequency", positive=True).read
_RATE = Quantity("bandwidth", positive=True).read
_ERROR = 0.5
"""Relative error of a power between the measured ones of two modes."""
MOST = 32


def with_clocks(platform: Platform, mode: PowerMode, text: str) -> PowerMode:
    """Return a mode with some engines at other clocks or off; ValueError names what is wrong with the text."""
    engines, dram = dict(mode.engines), mode.dram
    settings = text.split()
    if len(settings) > MOST:
        raise ValueError(f"clocks: expected at most {MOST} settings, got {len(settings)}")
    for setting in settings:
        name, _, value = setting.partition("=")
        if name == "dram":
            dram = replace(dram, value=_read(_RATE, setting, value))
            continue
        engine = next((one for one in platform.engines if one.id == name), None)
        if engine is None or not value:
            raise ValueError(
                f"clocks: expected ENGINE=CLOCK, ENGINE=CLOCK*UNITS, ENGINE=off or dram=RATE, got {setting[:60]!r}"
            )
        engines[name] = _setting(platform, engine, mode, setting, value)
    return replace(mode, name=f"{mode.name} {' '.join(settings)}", engines=engines, dram=dram)


def _setting(platform: Platform, engine: Engine, mode: PowerMode, setting: str, value: str) -> EngineMode:
    if value == "off":
        return EngineMode(0, 0, Figure(0, "derived", note="the engine is off"))
    clock, _, count = value.partition("*")
    if count and not (count.isascii() and count.isdigit() and 1 <= int(count[:9]) <= engine.units):
        raise ValueError(f"clocks: expected 1 to {engine.units} units of {engine.id}, got {setting[:60]!r}")
    units = int(count) if count else mode.engines[engine.id].units or engine.units
    hertz = round(_read(_CLOCK, setting, clock))
    if hertz > engine.clock_hz.value * 1.2:
        raise ValueError(f"clocks: {setting[:60]!r} is beyond the clock of {engine.id}")
    return EngineMode(units, hertz, power_between_modes(platform, engine, units, hertz))


def _read(reader: object, setting: str, value: str) -> float:
    try:
        return float(reader(value))  # type: ignore[operator]
    except ValueError as error:
        raise ValueError(f"clocks: {setting[:60]!r}: {error}") from None


def power_between_modes(platform: Platform, engine: Engine, units: int, clock_hz: int) -> Figure:
    """Return the dynamic power (mW) of units at a clock: of its operating points, else between those of the modes.

    Between two modes the power of one unit follows a power law of the clock; outside of them it is that of the nearest
    mode, in proportion to the clock.
    """
    point = engine.points.at(clock_hz) if engine.points else None
    if point and (point.dynamic_mw is not None or (point.microvolt and engine.coefficient)):
        return dynamic_power(engine, units, clock_hz)
    states = [mode.engines[engine.id] for mode in platform.modes]
    known = {engine.clock_hz.value: engine.dynamic_mw.value / engine.units}
    known |= {float(state.clock_hz): state.dynamic_mw.value / state.units for state in states if state.units}
    powers = sorted(item for item in known.items() if item[1] > 0)
    if not powers:
        return dynamic_power(engine, units, clock_hz)
    below, above = powers[0], powers[-1]
    for one, other in pairwise(powers):
        if one[0] <= clock_hz <= other[0]:
            slope = math.log(other[1] / one[1]) / math.log(other[0] / one[0])
            return _figure(engine, units * one[1] * (clock_hz / one[0]) ** slope)
    nearest = below if clock_hz < below[0] else above
    return _figure(engine, units * nearest[1] * clock_hz / nearest[0])


def _figure(engine: Engine, power: float) -> Figure:
    error = max(engine.dynamic_mw.error, _ERROR)
    return Figure(round(power), "derived", engine.dynamic_mw.source, "between the powers of the modes", error)
