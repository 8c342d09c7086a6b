"""Counters that a simulation does not record because they can be derived: power and clock of each engine.

A run has measured rails and clocks; nothing is added to those.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from socsched.planning.plan import Plan, PlannedEngine
from socsched.trace.columns import CLOCK
from socsched.trace.trace import Trace

if TYPE_CHECKING:
    from socsched.trace.columns import Columns, Floats, Ints

ENGINE_POWER = "engine_mw."
"""Prefix, before an engine's name, of counters of its power as computed by the simulator (without DRAM)."""


def complete_columns(trace: Trace, plan: Plan) -> Columns:
    """Return the columns of a trace; for a simulation, with the power and clock of every engine of `plan`."""
    columns = trace.columns
    if trace.kind != "simulated" or not len(columns.slices):
        return columns
    counters = dict(columns.counters)
    for engine in plan.engines:
        if engine.levels and CLOCK + engine.id not in counters:
            counters[CLOCK + engine.id] = _constant(float(engine.levels[-1].clock_hz))
        counters[ENGINE_POWER + engine.id] = engine_power(columns, engine)
    return replace(columns, counters=counters)


def _constant(value: float) -> tuple[Ints, Floats]:
    import numpy as np

    return np.zeros(1, np.int64), np.full(1, value)


def engine_power(columns: Columns, engine: PlannedEngine) -> tuple[Ints, Floats]:
    """Return the power of an engine in mW as steps: idle power plus, per busy lane, dynamic power at its clock."""
    import numpy as np

    from socsched.trace.convert import encode_values

    slices = columns.slices
    if engine.id not in columns.engines:
        return _constant(float(engine.idle_mw))
    rows = slices.engine == columns.engines.index(engine.id)
    codes, which = encode_values(slices.lanes[rows])
    lanes = np.array([len(columns.lanes(code)) for code in codes.tolist()] or [0], np.int64)[which]
    times = np.concatenate((np.zeros(1, np.int64), slices.start_ns[rows], slices.end_ns[rows]))
    changes = np.concatenate((np.zeros(1, np.int64), lanes, -lanes))
    at, places = np.unique(times, return_inverse=True)
    busy = np.cumsum(np.bincount(places.reshape(-1), weights=changes, minlength=len(at)))
    dynamic = np.full(len(at), float(engine.dynamic_mw))
    if engine.levels and CLOCK + engine.id in columns.counters:
        moved, clocks = columns.counters[CLOCK + engine.id]
        every = np.union1d(at, moved)
        busy = busy[np.maximum(np.searchsorted(at, every, side="right") - 1, 0)]
        powers = {float(level.clock_hz): float(level.dynamic_mw) for level in engine.levels}
        own = np.array([powers.get(clock, float(engine.dynamic_mw)) for clock in clocks.tolist()])
        dynamic, at = own[np.maximum(np.searchsorted(moved, every, side="right") - 1, 0)], every
    power = engine.idle_mw + dynamic * busy / max(engine.lanes, 1)
    kept = np.concatenate(([True], power[1:] != power[:-1]))
    return at[kept], power[kept]


def unit(counter: str) -> str:
    """Return the unit of a counter's values, "" if it has none."""
    if counter.startswith("queue."):
        return "frames"
    if counter.startswith(("celsius.", "temperature_c")):
        return "°C"
    if counter.startswith(CLOCK) or counter.endswith("_hz"):
        return "Hz"
    if counter.startswith("release_late_ns."):
        return "ns"
    if counter == "bandwidth_gbps":
        return "GB/s"
    return "mW" if "_mw." in counter or counter.endswith("_mw") else ""
