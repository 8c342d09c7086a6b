"""A trace written packet by packet with Perfetto's own classes: slow, as the reference for the fast writer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from socsched.planning.plan import Plan, Task
from socsched.trace.trace import Instant, Job, Slice, Trace
from socsched.units import format_duration

_UNITS = {"power_mw": "mW", "bandwidth_gbps": "GB/s", "engine_mw": "mW", "queue": "frames"}
_PROCESS, _PID, _SEQUENCE = 1, 1, 1


def write_perfetto(trace: Trace, plan: Plan, path: str | Path) -> None:
    """Write `trace` of `plan` to `path` (``.pftrace``); the same trace gives the same bytes."""
    from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

    events = list(_events(trace, plan))
    events.sort(key=lambda event: event.time_ns)
    tracks = _tracks(trace, plan)
    with open(path, "wb") as file:
        writer = _Writer(StreamingTraceProtoBuilder(file), tracks)
        writer.describe(f"{plan.platform} ({plan.mode}), {trace.kind}")
        writer.intern(events)
        for event in events:
            writer.write(event)


Track = tuple[str, str]
"""What a track shows: ("lane", "gpu.0"), ("source", sensor or timer), ("counter", name)."""

_BEGIN, _END, _INSTANT, _COUNTER = "TYPE_SLICE_BEGIN", "TYPE_SLICE_END", "TYPE_INSTANT", "TYPE_COUNTER"


@dataclass(slots=True)
class _Event:
    time_ns: int
    kind: str
    track: Track
    name: str = ""
    category: str = ""
    value: float = 0.0
    args: Mapping[str, Any] | None = None
    sends: Sequence[int] = ()
    receives: Sequence[int] = ()


@dataclass(slots=True)
class _Stay:
    """A job on its lanes without a break: consecutive slices."""

    job: int
    pieces: list[Slice]


def _tracks(trace: Trace, plan: Plan) -> list[Track]:
    lanes = [("lane", _lane(engine.id, lane)) for engine in plan.engines for lane in range(max(engine.lanes, 1))]
    used = [("lane", _lane(piece.engine, lane)) for piece in trace.slices for lane in piece.lanes]
    sources = [("source", name) for name in trace.releases]
    counters = [("counter", name) for name in trace.counters]
    return list(dict.fromkeys([*sources, *lanes, *used, *counters]))


def _lane(engine: str, lane: int) -> str:
    return f"{engine}.{lane}"


def _events(trace: Trace, plan: Plan) -> Iterator[_Event]:
    tasks = {task.name: task for task in plan.tasks}
    flows = _Flows(trace, tasks)
    for name, releases in trace.releases.items():
        for frame, release in enumerate(releases):
            sends = flows.sent_by_source.get((name, frame), ())
            yield _Event(release, _INSTANT, ("source", name), "input", "input", args={"frame": frame}, sends=sends)
    stays = _stays(trace)
    first = {stay.job: stay for stay in reversed(stays)}
    last = {stay.job: stay for stay in stays}
    for stay in stays:
        sends = flows.sent_by_job.get(stay.job, ()) if last[stay.job] is stay else ()
        receives = flows.received.get(stay.job, ()) if first[stay.job] is stay else ()
        yield from _stay_events(stay, trace.jobs[stay.job], tasks, sends, receives)
    for note in trace.instants:
        name, args = f"{note.kind} {note.subject}", {"frame": note.frame, "text": note.text}
        yield _Event(note.time_ns, _INSTANT, _home(note, tasks, plan), name, note.kind, args=args)
    for name, steps in trace.counters.items():
        for time, value in steps:
            yield _Event(time, _COUNTER, ("counter", name), value=value)


def _stays(trace: Trace) -> list[_Stay]:
    stays: list[_Stay] = []
    open_stays: dict[int, _Stay] = {}
    for piece in sorted(trace.slices, key=lambda piece: piece.start_ns):
        stay = open_stays.get(piece.job)
        if (
            stay is None
            or stay.pieces[-1].end_ns != piece.start_ns
            or ((stay.pieces[-1].engine, stay.pieces[-1].lanes) != (piece.engine, piece.lanes))
        ):
            stay = open_stays[piece.job] = _Stay(piece.job, [])
            stays.append(stay)
        stay.pieces.append(piece)
    return stays


def _stay_events(
    stay: _Stay, job: Job, tasks: Mapping[str, Task], sends: Sequence[int], receives: Sequence[int]
) -> Iterator[_Event]:
    begin, end = stay.pieces[0], stay.pieces[-1]
    task = tasks.get(job.task)
    category = task.kind if task else "job"
    nested = stay.pieces if len(stay.pieces) > 1 or begin.name != job.task else []
    args = _args(job, task, begin.lanes)
    for number, lane in enumerate(begin.lanes):
        track = ("lane", _lane(begin.engine, lane))
        arrows = (sends, receives) if number == 0 else ((), ())
        yield _Event(begin.start_ns, _BEGIN, track, job.task, category, 0.0, args, *arrows)
        for piece in nested:
            yield _Event(piece.start_ns, _BEGIN, track, piece.name, "segment")
            yield _Event(piece.end_ns, _END, track)
        yield _Event(end.end_ns, _END, track)


def _args(job: Job, task: Task | None, lanes: Sequence[int]) -> dict[str, Any]:
    args: dict[str, Any] = {"status": job.status, "deadline": format_duration(task.deadline_ns) if task else ""}
    if len(lanes) > 1:
        args["lanes"] = ",".join(map(str, lanes))
    args["frame"] = job.frame
    if job.finish_ns >= 0:
        args["slack_ns"] = job.deadline_ns - job.finish_ns
    else:
        args["deadline_ns"] = job.deadline_ns
    whole = job.finish_ns >= 0 and job.exec_ns == job.finish_ns - job.start_ns
    if not whole or job.preemptions or job.blocking_ns or job.migrations:
        args.update(exec_ns=job.exec_ns, blocking_ns=job.blocking_ns, preemptions=job.preemptions)
    return args


def _home(note: Instant, tasks: Mapping[str, Task], plan: Plan) -> Track:
    """Return the track an instant belongs on."""
    task = tasks.get(note.subject)
    if task is not None:
        return ("lane", _lane(task.engine, task.lanes[0]))
    if any(engine.id == note.subject for engine in plan.engines):
        return ("lane", _lane(note.subject, 0))
    return ("source", note.subject)


class _Flows:
    """Numbered arrows: from the deliverer of data (a job, or a sensor's or timer's release) to the job that uses it."""

    def __init__(self, trace: Trace, tasks: Mapping[str, Task]) -> None:
        self.trace = trace
        self.count = 0
        self.sent_by_job: dict[int, list[int]] = defaultdict(list)
        self.sent_by_source: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.received: dict[int, list[int]] = defaultdict(list)
        self.by_frame = {(job.task, job.frame): number for number, job in enumerate(trace.jobs)}
        for number, job in enumerate(trace.jobs):
            if job.start_ns >= 0 and job.task in tasks:
                self._connect(number, job, tasks[job.task])

    def _connect(self, number: int, job: Job, task: Task) -> None:
        for name, frame in (*((name, job.frame) for name in task.after), *job.sampled.items()):
            self._arrow(number, name, frame)

    def _arrow(self, user: int, name: str, frame: int) -> None:
        producer = self.by_frame.get((name, frame))
        if producer is not None:
            out = self.sent_by_job[producer]
        elif 0 <= frame < len(self.trace.releases.get(name, [])):
            out = self.sent_by_source[name, frame]
        else:
            return
        self.count += 1
        out.append(self.count)
        self.received[user].append(self.count)


class _Writer:
    """Turns events into Perfetto packets; names are written once and referred to by number."""

    def __init__(self, builder: Any, tracks: Sequence[Track]) -> None:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

        self.builder = builder
        self.types = {kind: TrackEvent.Type.Value(kind) for kind in (_BEGIN, _END, _INSTANT, _COUNTER)}
        self.uuids = {track: _PROCESS + 1 + number for number, track in enumerate(tracks)}
        self.names: dict[str, int] = {}
        self.categories: dict[str, int] = {}
        self.args: dict[str, int] = {}

    def describe(self, process: str) -> None:
        """Write the descriptors of the process and of every track, in the order they are to be shown."""
        packet = self._packet()
        packet.track_descriptor.uuid = _PROCESS
        packet.track_descriptor.process.pid = _PID
        packet.track_descriptor.process.process_name = process
        self.builder.write_packet(packet)
        for (kind, name), uuid in self.uuids.items():
            packet = self._packet()
            packet.track_descriptor.uuid = uuid
            packet.track_descriptor.sibling_order_rank = uuid
            getattr(self, f"_describe_{kind}")(packet.track_descriptor, name, uuid)
            self.builder.write_packet(packet)

    def _describe_lane(self, descriptor: Any, name: str, uuid: int) -> None:
        descriptor.thread.pid, descriptor.thread.tid, descriptor.thread.thread_name = _PID, _PID + uuid, name

    def _describe_source(self, descriptor: Any, name: str, uuid: int) -> None:
        descriptor.parent_uuid, descriptor.name = _PROCESS, name

    def _describe_counter(self, descriptor: Any, name: str, uuid: int) -> None:
        descriptor.parent_uuid, descriptor.name = _PROCESS, name
        descriptor.counter.unit_name = _UNITS.get(name.partition(".")[0], "")

    def intern(self, events: Sequence[_Event]) -> None:
        """Write the tables of names that `write` refers to."""
        packet = self._packet()
        packet.sequence_flags = 1  # SEQ_INCREMENTAL_STATE_CLEARED: the tables start here
        for table, entries, values in (
            (self.names, packet.interned_data.event_names, (event.name for event in events)),
            (self.categories, packet.interned_data.event_categories, (event.category for event in events)),
            (self.args, packet.interned_data.debug_annotation_names, (key for e in events for key in e.args or ())),
        ):
            for value in values:
                if value and value not in table:
                    table[value] = len(table) + 1
                    entries.add(iid=table[value], name=value)
        self.builder.write_packet(packet)

    def write(self, event: _Event) -> None:
        """Write one event."""
        packet = self._packet()
        packet.timestamp = event.time_ns
        packet.sequence_flags = 2  # SEQ_NEEDS_INCREMENTAL_STATE
        made = packet.track_event
        made.type, made.track_uuid = self.types[event.kind], self.uuids.get(event.track, _PROCESS)
        if event.name:
            made.name_iid = self.names[event.name]
            made.category_iids.append(self.categories[event.category])
        if event.kind == _COUNTER:
            made.double_counter_value = event.value
        made.flow_ids.extend(event.sends)
        made.terminating_flow_ids.extend(event.receives)
        for key, value in (event.args or {}).items():
            note = made.debug_annotations.add(name_iid=self.args[key])
            if isinstance(value, int):
                note.int_value = value
            else:
                note.string_value = str(value)
        self.builder.write_packet(packet)

    def _packet(self) -> Any:
        packet = self.builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet
