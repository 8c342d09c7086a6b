"""Every job and segment of a trace is in its Perfetto file once, and nothing else is: read with Perfetto's own classes.

Of a whole deployment with faults, so that jobs are preempted, dropped, killed, late and slowed down.
"""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from typing import Any

import pytest
from perfetto_example import absolute

from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.api.simulation import simulate
from socsched.planning.plan import Plan
from socsched.trace.perfetto import write_perfetto
from socsched.trace.trace import Slice, Trace

FAULTS = """
stalls:    [{engine: gpu, from: 200 ms, until: 260 ms}]
deaths:    [{engine: gpu, from: 500 ms, until: 520 ms}]
throttles: [{engine: gpu, from: 600 ms, until: 800 ms, factor: 1.5}]
dropouts:  [{sensor: lidar, from: 350 ms, until: 450 ms}]
overruns:  [{stage: head, probability: 0.2, factor: 2}]
"""
DURATION = 1_000_000_000


@pytest.fixture(scope="module")
def deployment() -> Plan:
    """Return the plan of a perception stack on a board in a mode that is too weak for it."""
    return plan_with(
        "perception-stack", "jetson-agx-orin-64gb", "15W", PlanOptions(refine=False, explain=False, cuts=False)
    )


@pytest.fixture(scope="module")
def trace(deployment: Plan, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Return a second of it, with faults."""
    faults = tmp_path_factory.mktemp("faults") / "faults.yaml"
    faults.write_text(FAULTS, encoding="utf-8")
    trace = simulate(deployment, DURATION, seed=3, faults=faults).trace
    assert trace is not None
    return trace


@pytest.fixture(scope="module")
def packets(deployment: Plan, trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the packets of its file."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Proto

    file = tmp_path_factory.mktemp("perfetto") / "trace.pftrace"
    write_perfetto(trace, deployment, file)
    proto = Proto()
    content = gzip.decompress(file.read_bytes())
    assert proto.ParseFromString(content) == len(content)  # read to its last byte
    return absolute(proto.packet)


def unknown(message: Any) -> int:
    """Return the number of fields of a message and its submessages that are not in its schema."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type is not None:
            count += sum(unknown(item) for item in (value if field.is_repeated else (value,)))
    return count


def test_no_packet_is_malformed(packets: Any) -> None:
    assert len(packets) > 2000
    assert sum(unknown(packet) for packet in packets) == 0
    kinds = Counter(packet.WhichOneof("data") for packet in packets)
    assert set(kinds) <= {"track_event", "track_descriptor", "clock_snapshot", "gpu_render_stage_event", None}
    assert all(packet.HasField("interned_data") for packet in packets if packet.WhichOneof("data") is None)


def test_names_and_tracks_are_declared_before_they_are_used(packets: Any) -> None:
    tracks, names = set(), set()
    for packet in packets:
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in tracks
            tracks.add(packet.track_descriptor.uuid)
        names.update(entry.iid for entry in packet.interned_data.event_names)
        if packet.HasField("track_event"):
            assert packet.track_event.track_uuid in tracks
            assert not packet.track_event.name_iid or packet.track_event.name_iid in names


def read(packets: Any) -> tuple[Counter[tuple[Any, ...]], dict[tuple[str, int], dict[str, Any]], Counter[str]]:
    """Return slices (track, name, category, begin, end), arguments of jobs by stage and frame, and instants by kind."""
    tracks: dict[int, str] = {}
    tables: dict[str, dict[int, str]] = defaultdict(dict)
    open_: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    last: dict[int, int] = defaultdict(int)
    slices: Counter[tuple[Any, ...]] = Counter()
    jobs: dict[tuple[str, int], dict[str, Any]] = {}
    instants: Counter[str] = Counter()
    for packet in packets:
        described = packet.track_descriptor
        if packet.HasField("track_descriptor"):
            tracks[described.uuid] = described.thread.thread_name or described.process.process_name or described.name
        for field in ("event_names", "event_categories", "debug_annotation_names"):
            tables[field].update((entry.iid, entry.name) for entry in getattr(packet.interned_data, field))
        strings = packet.interned_data.debug_annotation_string_values
        tables["strings"].update((entry.iid, entry.str.decode()) for entry in strings)
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert packet.timestamp >= last[event.track_uuid]
        last[event.track_uuid] = packet.timestamp
        category = tables["event_categories"][event.category_iids[0]] if event.category_iids else ""
        if event.type == event.TYPE_SLICE_BEGIN:
            name = tables["event_names"][event.name_iid]
            open_[event.track_uuid].append((tracks[event.track_uuid], name, category, packet.timestamp))
            if category != "segment":
                args = {
                    tables["debug_annotation_names"][a.name_iid]: tables["strings"].get(a.string_value_iid, a.int_value)
                    for a in event.debug_annotations
                }
                jobs[name, args["frame"]] = args
        elif event.type == event.TYPE_SLICE_END:
            slices[(*open_[event.track_uuid].pop(), packet.timestamp)] += 1
        elif event.type == event.TYPE_INSTANT:
            instants[category] += 1
    assert not any(open_.values())
    return slices, jobs, instants


def expected(trace: Trace, plan: Plan) -> Counter[tuple[Any, ...]]:
    """Return the slices of a trace, computed record by record."""
    kinds = {task.name: task.kind for task in plan.tasks}
    stays: list[list[Slice]] = []
    by_job: dict[int, list[Slice]] = defaultdict(list)
    for piece in trace.slices:
        by_job[piece.job].append(piece)
    for pieces in by_job.values():
        pieces.sort(key=lambda piece: piece.start_ns)
        for piece in pieces:
            before = stays[-1][-1] if stays and stays[-1][-1].job == piece.job else None
            place = (piece.engine, piece.lanes, piece.start_ns)
            if before is not None and (before.engine, before.lanes, before.end_ns) == place:
                stays[-1].append(piece)
            else:
                stays.append([piece])
    found: Counter[tuple[Any, ...]] = Counter()
    for stay in stays:
        name = trace.jobs[stay[0].job].task
        for lane in stay[0].lanes:
            track = f"{stay[0].engine}.{lane}"
            found[track, name, kinds[name], stay[0].start_ns, stay[-1].end_ns] += 1
            if len(stay) > 1 or stay[0].name != name:
                found.update((track, piece.name, "segment", piece.start_ns, piece.end_ns) for piece in stay)
    return found


def test_every_slice_is_accounted_for(packets: Any, trace: Trace, deployment: Plan) -> None:
    slices, jobs, _ = read(packets)
    wanted = expected(trace, deployment)
    assert slices == wanted
    assert set(slices.values()) == {1}
    assert "conversion" in {category for _, _, category, _, _ in slices}
    held = {piece.job for piece in trace.slices}
    assert set(jobs) == {(trace.jobs[job].task, trace.jobs[job].frame) for job in held}
    for job in (trace.jobs[number] for number in held):
        args = jobs[job.task, job.frame]
        assert (args["deadline_ns"], args["status"], args["stage"]) == (job.deadline_ns, job.status, job.task)
        if job.status == "done":
            assert args["slack_ns"] == job.deadline_ns - job.finish_ns
    assert any(args.get("slack_ns", 0) < 0 for args in jobs.values())


def test_every_mark_is_there(packets: Any, trace: Trace) -> None:
    _, _, instants = read(packets)
    marks = Counter(note.kind for note in trace.instants)
    assert {kind: instants[kind] for kind in marks} == marks
    assert {"miss", "drop", "fault", "throttle"} <= set(marks)
    sensors = sum(len(times) for times in trace.releases.values())
    assert instants["input"] == sensors
