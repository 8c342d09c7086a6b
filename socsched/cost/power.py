"""Power and energy: power of a mode at given utilisations, on rails, at the module and at the wall; energy of one job.

Model: base power of the mode, idle power of every powered engine, dynamic power in proportion to busy units (activity
times C·V²·f, given by the mode's `dynamic_mw`), DRAM energy per byte moved.  The wall adds the carrier board and the
losses of the adaptor, where a platform declares its supply.

Plans and caps are the module's, as vendors cap modules; most published power is measured at the wall.  Rejected: a
figure for each network or runtime (a plan does not know the runtime), energy per operation (rows of one board spread
more by the number of busy cores than by the network), the power of stress tests (networks draw 0.6 of it).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from socsched.descriptor.platform import Engine, Figure, Platform, PowerMode, Rail, Supply


@dataclass(frozen=True, slots=True)
class PowerTerm:
    """A part of the module's power (mW) and the figure it rests on; `load`: the engine or block that draws it.

    `idle`: drawn whatever the load.  `load` is "" for the base, which no rail is known to carry alone.
    """

    name: str
    mw: float
    figure: Figure
    load: str
    idle: bool


@dataclass(frozen=True, slots=True)
class Watts:
    """A power (mW) and its absolute uncertainty (mW)."""

    mw: float
    error_mw: float


def job_energy_uj(
    engine: Engine, mode: PowerMode, units: int, time_ns: int, size: int, picojoule_per_byte: float
) -> int:
    """Return the dynamic energy (uJ) of a job on `units` units for `time_ns`, moving `size` bytes."""
    state = mode.engines[engine.id]
    picojoule = state.dynamic_mw.value * units / max(state.units, 1) * time_ns + picojoule_per_byte * size
    return round(picojoule / 1e6)


def parts(
    platform: Platform, mode: PowerMode, utilisation: Mapping[str, float], bytes_per_s: float
) -> tuple[PowerTerm, ...]:
    """Return the parts of the mode's mean power at engine utilisations 0..1 and a DRAM traffic."""
    found = [_part("base", mode.base_mw, 1.0, "", idle=True)]
    for engine in platform.engines:
        state = mode.engines[engine.id]
        if state.units > 0:
            found.append(_part(f"{engine.id} idle", engine.idle_mw, 1.0, engine.id, idle=True))
            busy = utilisation.get(engine.id, 0.0)
            found.append(_part(f"{engine.id} dynamic", state.dynamic_mw, busy, engine.id, idle=False))
    found.append(_part("dram traffic", platform.dram.picojoule_per_byte, bytes_per_s / 1e9, "dram", idle=False))
    return tuple(found)


def _part(name: str, figure: Figure, factor: float, load: str, *, idle: bool) -> PowerTerm:
    return PowerTerm(name, figure.value * factor, figure, load, idle)


def power_terms(
    platform: Platform, mode: PowerMode, utilisation: Mapping[str, float], bytes_per_s: float
) -> tuple[tuple[str, int], ...]:
    """Return the terms (name, mW) of the mode's mean power at engine utilisations 0..1 and a DRAM traffic."""
    return tuple((part.name, round(part.mw)) for part in parts(platform, mode, utilisation, bytes_per_s))


def total(found: Iterable[PowerTerm]) -> Watts:
    """Return the sum of parts; parts of one figure err alike, those of different figures independently."""
    power, errors = 0.0, dict[Figure, float]()
    for part in found:
        power += part.mw
        errors[part.figure] = errors.get(part.figure, 0.0) + part.mw * part.figure.error
    return Watts(power, math.hypot(*errors.values()))


def at_wall(supply: Supply, module: Watts) -> Watts:
    """Return the power drawn at the wall: module and carrier, through the adaptor."""
    carrier, efficiency = supply.carrier_mw, supply.efficiency
    power = (module.mw + carrier.value) / efficiency.value
    load = math.hypot(module.error_mw, carrier.value * carrier.error) / efficiency.value
    return Watts(power, math.hypot(load, power * efficiency.error))


def on_rail(platform: Platform, rail: Rail, found: Iterable[PowerTerm]) -> Watts | None:
    """Return the power of a rail, None if the platform does not state enough of what it feeds.

    A rail that feeds engines alone carries their parts.  One that feeds other blocks too needs its idle power, which
    covers them all; the engines' dynamic power comes on top.
    """
    found = tuple(found)
    engines = {engine.id for engine in platform.engines}
    fed = {one for one in engines if any(_feeds(load, one) for load in rail.covers)}
    fed |= {"dram"} & set(rail.covers)
    if rail.idle_mw is None:
        if any(not any(_feeds(load, one) for one in engines) for load in rail.covers):
            return None
        return total(part for part in found if part.load in fed)
    idle = _part("rail idle", rail.idle_mw, 1.0, "", idle=True)
    return total((idle, *(part for part in found if part.load in fed and not part.idle)))


def _feeds(load: str, engine: str) -> bool:
    return engine == load or (engine.startswith(load) and engine[len(load) :].isdigit())


def dram_capacity(platform: Platform, mode: PowerMode) -> float:
    """Return the bytes/s all initiators together reach in a mode: its DRAM rate times the achievable share of peak."""
    dram = platform.dram
    return min(dram.achievable.value, mode.dram.value * dram.achievable.value / dram.peak.value)
