"""Export of a trace to Perfetto (ui.perfetto.dev): one process, a track per engine lane, flows along the data path.

A job is a slice on each lane it holds, from acquiring the lane to losing it; its segments are nested inside.  Arrows
lead from the sensor or job that delivers data to the job that uses it, and through the slices of a job that was
preempted.  Misses, drops and faults are instants; power of module, rails and engines, bandwidth, clocks, temperatures
and queue depths are counters.  A plan (simulated for its first hyperperiods), a simulation and a run use the same
representation.

A lane is a packet sequence of its own, in order of time, so that what follows each other there is alike; so are
releases, instants, the steps of a table of counters and the typed events of a GPU.  Times are counted from the packet
before (an incremental clock, ``clock_snapshot.proto``); names and texts are written once and referred to by number.
The event that begins or ends a slice carries the counters that change then (``extra_counter_values``); a packet of its
own states a change in between.  Field numbers are those of Perfetto's ``perfetto_trace.proto``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from socsched.files import GzipWriter, replacing
from socsched.planning.plan import Plan

if TYPE_CHECKING:
    from socsched.trace.trace import Trace

_LEVEL = 7
"""Compression level: higher ones take two and a half times as long for three per cent."""


def write_perfetto(trace: Trace, plan: Plan, path: str | Path, kind: str = "") -> None:
    """Write `trace` of `plan` to `path` (``.pftrace``), gzipped, as Perfetto reads it; equal traces give equal bytes.

    `kind` replaces "simulated" or "measured" in the title.  A long trace is read and written in parts.
    """
    # imported here, so that numpy is loaded only when a trace is written
    from socsched.trace.perfetto_events import Events

    events = Events(trace.columns, plan, f"{plan.platform} ({plan.mode}), {kind or trace.kind}")
    with replacing(path) as target:
        file = GzipWriter(target, _LEVEL)
        for data in events.packets(derived=trace.kind == "simulated"):
            file.write(data)
        file.finish()
