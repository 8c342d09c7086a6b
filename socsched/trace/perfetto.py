"""Export of a trace to Perfetto (ui.perfetto.dev): one process, a track per engine lane, flows along the data path.

A job is a slice on each lane it holds, from acquiring the lane to losing it; its segments are nested inside.  Arrows
lead from the sensor or job that delivers data to the job that uses it.  Misses, drops and faults are instants; power
of module, rails and engines, bandwidth, clocks, temperatures and queue depths are counters.  A plan (simulated for its
first hyperperiods), a simulation and a run use the same representation.

Packets are in order of time; the typed events of GPUs follow (`perfetto_gpu`).  Field numbers are those of Perfetto's
``perfetto_trace.proto``; names and texts are written once and referred to by number.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from socsched.files import replacing
from socsched.planning.plan import Plan
from socsched.trace.derived import complete_columns, unit
from socsched.trace.trace import Trace

if TYPE_CHECKING:
    from socsched.trace.columns import Columns

Track = tuple[str, str]
"""The subject of a track: ("lane", "gpu.0"), ("source", sensor or timer), ("counter", name)."""

PROCESS = 1
"""Identity of the process's own track; the other tracks are numbered upwards from it."""
_PID, _SEQUENCE = 1, 1


def write_perfetto(trace: Trace, plan: Plan, path: str | Path, kind: str = "") -> None:
    """Write `trace` of `plan` to `path` (``.pftrace``); the same trace gives the same bytes.

    `kind` replaces "simulated" or "measured" in the title.

    Packets are encoded and written in blocks of bounded size; the index that links slices and data across blocks takes
    about as much memory as the columns of the trace themselves.
    """
    # imported here, so that numpy is loaded only when a trace is written
    from socsched.trace.perfetto_events import Events
    from socsched.trace.perfetto_gpu import gpu_events

    columns = complete_columns(trace, plan)
    tracks = _tracks(columns, plan)
    events = Events(columns, plan, {track: PROCESS + 1 + number for number, track in enumerate(tracks)})
    with replacing(path) as file:
        file.write(_descriptors(tracks, f"{plan.platform} ({plan.mode}), {kind or trace.kind}"))
        for data in events.blocks():
            file.write(data)
        for typed in gpu_events(columns, plan):
            file.write(typed)


def lane_track(engine: str, lane: int) -> Track:
    """Return the track of a lane of an engine."""
    return ("lane", f"{engine}.{lane}")


def _tracks(columns: Columns, plan: Plan) -> list[Track]:
    from socsched.trace.execution_intervals import used_lanes

    lanes = [lane_track(engine.id, lane) for engine in plan.engines for lane in range(max(engine.lanes, 1))]
    used = [lane_track(engine, lane) for engine, held in used_lanes(columns) for lane in held]
    sources = [("source", name) for name in columns.releases]
    counters = [("counter", name) for name in columns.counters]
    return list(dict.fromkeys([*sources, *lanes, *used, *counters]))


def packet(*parts: bytes, flags: int = 0) -> bytes:
    """Return a packet of the trace's one sequence; `flags` are its ``sequence_flags``."""
    from socsched.trace.protobuf import message, number, plain

    own = [*number(10, _SEQUENCE), *(number(13, flags) if flags else [])]
    return plain(message(1, [*own, *parts]))


def _descriptors(tracks: list[Track], process: str) -> bytes:
    """Return the descriptors of the process and of every track, in display order."""
    from socsched.trace.protobuf import message, number, plain, text

    named = [*number(1, _PID), *text(6, process)]
    packets = [packet(plain(message(60, [*number(1, PROCESS), *message(3, named)])))]
    for uuid, (kind, name) in enumerate(tracks, PROCESS + 1):
        described = [*number(1, uuid), *number(12, uuid)]  # sibling_order_rank
        if kind == "lane":
            described += message(4, [*number(1, _PID), *number(2, _PID + uuid), *text(5, name)])
        else:
            described += [*number(5, PROCESS), *text(2, name)]
        if kind == "counter":
            described += message(8, text(6, unit(name)))
        packets.append(packet(plain(message(60, described))))
    return b"".join(packets)
