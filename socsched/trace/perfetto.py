"""Export of a trace to Perfetto (ui.perfetto.dev): one process, a track per engine lane, flows along the data path.

A job is a slice on each lane it holds, from acquiring the lane to losing it; its segments are nested inside.  Arrows
lead from the sensor or job that delivers data to the job that uses it.  Misses, drops and faults are instants; power
of module, rails and engines, bandwidth, clocks, temperatures and queue depths are counters.  A plan (simulated for its
first hyperperiods), a simulation and a run use the same representation.

Packets are in order of time, each with the time since the one before (an incremental clock, ``clock_snapshot.proto``);
the typed events of GPUs follow.  Field numbers are those of Perfetto's
``perfetto_trace.proto``; names and texts are written once and referred to by number.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from socsched.files import GzipWriter, replacing
from socsched.planning.plan import Plan, PlannedEngine
from socsched.trace.columns import CLOCK
from socsched.trace.trace import Trace

if TYPE_CHECKING:
    from socsched.trace.columns import Columns, Floats, Ints


# Counters that a simulation does not record because they can be derived: power and clock of each engine.
#
# A run has measured rails and clocks; nothing is added to those.


_LEVEL = 6
"""Compression level: higher ones take several times as long for a few per cent."""
ENGINE_POWER = "engine_mw."
"""Prefix, before an engine's name, of counters of its power as computed by the simulator (without DRAM)."""


def complete_columns(trace: Trace, plan: Plan) -> Columns:
    """Return the columns of a trace; for a simulation, with the power and clock of every engine of `plan`."""
    columns = trace.columns.loaded()
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


def write_perfetto(trace: Trace, plan: Plan, path: str | Path, kind: str = "") -> None:
    """Write `trace` of `plan` to `path` (``.pftrace``), gzipped, as Perfetto reads it; equal traces give equal bytes.

    `kind` replaces "simulated" or "measured" in the title.

    Packets are encoded and written in blocks of bounded size; the index that links slices and data across blocks takes
    about as much memory as the columns of the trace themselves.
    """
    # imported here, so that numpy is loaded only when a trace is written
    from socsched.trace.perfetto_events import PROCESS, Events, descriptors, gpu_events, tracks_of

    columns = complete_columns(trace, plan)
    tracks = tracks_of(columns, plan)
    events = Events(columns, plan, {track: PROCESS + 1 + number for number, track in enumerate(tracks)})
    with replacing(path) as target:
        file = GzipWriter(target, _LEVEL)
        file.write(descriptors(tracks, f"{plan.platform} ({plan.mode}), {kind or trace.kind}"))
        for data in events.blocks():
            file.write(data)
        for typed in gpu_events(columns, plan):
            file.write(typed)
        file.finish()
