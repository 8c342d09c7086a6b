"""Power and energy: power of a mode at given utilisations, and energy of one job.

Model: base power of the mode, idle power of every powered engine, dynamic power in proportion to busy units (activity
times C·V²·f, given by the mode's `dynamic_mw`), DRAM energy per byte moved.
"""

from __future__ import annotations

from collections.abc import Mapping

from socsched.descriptor.platform import Engine, Platform, PowerMode


def job_energy_uj(
    engine: Engine, mode: PowerMode, units: int, time_ns: int, size: int, picojoule_per_byte: float
) -> int:
    """Return the dynamic energy (uJ) of a job on `units` units for `time_ns`, moving `size` bytes."""
    state = mode.engines[engine.id]
    picojoule = state.dynamic_mw.value * units / max(state.units, 1) * time_ns + picojoule_per_byte * size
    return round(picojoule / 1e6)


def power_terms(
    platform: Platform, mode: PowerMode, utilisation: Mapping[str, float], bytes_per_s: float
) -> tuple[tuple[str, int], ...]:
    """Return the terms (name, mW) of the mode's mean power at engine utilisations 0..1 and a DRAM traffic."""
    terms = [("base", round(mode.base_mw.value))]
    for engine in platform.engines:
        state = mode.engines[engine.id]
        if state.units > 0:
            terms.append((f"{engine.id} idle", round(engine.idle_mw.value)))
            terms.append((f"{engine.id} dynamic", round(state.dynamic_mw.value * utilisation.get(engine.id, 0.0))))
    terms.append(("dram traffic", round(platform.dram.picojoule_per_byte.value * bytes_per_s / 1e9)))
    return tuple(terms)


def dram_capacity(platform: Platform, mode: PowerMode) -> float:
    """Return the bytes/s all initiators together reach in a mode: its DRAM rate times the achievable share of peak."""
    dram = platform.dram
    return min(dram.achievable.value, mode.dram.value * dram.achievable.value / dram.peak.value)
