"""The Perfetto file, parsed back with Perfetto's own schema."""

from __future__ import annotations

import gzip
import math
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto_example import absolute, example
from random_traces import recorded

from socsched.planning.plan import Level, Plan, Throttle
from socsched.sim.simulate import simulate
from socsched.trace import perfetto_events
from socsched.trace import protobuf as pb
from socsched.trace.columns import unit
from socsched.trace.perfetto import ENGINE_POWER, complete_columns, write_perfetto
from socsched.trace.trace import Trace
from tests.sim.builders import engine, plan, task

ENGINES = ("engine_mw.gpu", "engine_mw.cpu")


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Proto

    file = tmp_path_factory.mktemp("perfetto") / "trace.pftrace"
    made, trace = example()
    write_perfetto(trace, made, file)
    proto = Proto()
    proto.ParseFromString(gzip.decompress(file.read_bytes()))
    return absolute(proto.packet)


class Parsed:
    """Names, slices, instants, counters and flows of a Perfetto file, looked up as the viewer would."""

    def __init__(self, packets: Any) -> None:
        self.tracks: dict[int, str] = {}
        self.slices: list[dict[str, Any]] = []
        self.instants: list[dict[str, Any]] = []
        self.counters: dict[str, list[tuple[int, float]]] = defaultdict(list)
        tables: dict[str, dict[int, str]] = defaultdict(dict)
        stacks: dict[int, list[dict[str, Any]]] = defaultdict(list)
        last, defaults = dict[int, int](), dict[int, int]()
        for packet in packets:
            sequence = packet.trusted_packet_sequence_id
            if packet.HasField("trace_packet_defaults"):
                defaults[sequence] = packet.trace_packet_defaults.track_event_defaults.track_uuid
            if packet.HasField("track_descriptor"):
                d = packet.track_descriptor
                self.tracks[d.uuid] = d.thread.thread_name or d.process.process_name or d.name
            if packet.HasField("interned_data"):
                for field in ("event_names", "event_categories", "debug_annotation_names"):
                    tables[field].update((entry.iid, entry.name) for entry in getattr(packet.interned_data, field))
                strings = packet.interned_data.debug_annotation_string_values
                tables["strings"].update((entry.iid, entry.str.decode()) for entry in strings)
            if not packet.HasField("track_event"):
                continue
            assert packet.timestamp >= last.get(sequence, 0)
            last[sequence] = packet.timestamp
            event = packet.track_event
            track = self.tracks[event.track_uuid or defaults[sequence]]
            made = {"ts": packet.timestamp, "track": track, "sends": list(event.flow_ids)}
            if event.name_iid:
                made["name"] = tables["event_names"][event.name_iid]
                made["category"] = tables["event_categories"][event.category_iids[0]]
                made["receives"] = list(event.terminating_flow_ids)
                made["args"] = {
                    tables["debug_annotation_names"][a.name_iid]: tables["strings"].get(a.string_value_iid, a.int_value)
                    for a in event.debug_annotations
                }
            if event.type == event.TYPE_SLICE_BEGIN:
                made["depth"] = len(stacks[event.track_uuid])
                stacks[event.track_uuid].append(made)
                self.slices.append(made)
            elif event.type == event.TYPE_SLICE_END:
                begun = stacks[event.track_uuid].pop()
                begun["end"] = packet.timestamp
            elif event.type == event.TYPE_INSTANT:
                self.instants.append(made)
            else:
                self.counters[track].append((packet.timestamp, event.double_counter_value))
        assert not any(stacks.values())


@pytest.fixture(scope="module")
def parsed(packets: Any) -> Parsed:
    return Parsed(packets)


def unknown(message: Any) -> int:
    """Return the number of fields of a message and its submessages that are not in its schema."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type is not None:
            count += sum(unknown(item) for item in (value if field.is_repeated else (value,)))
    return count


def test_no_packet_is_malformed(packets: Any) -> None:
    assert sum(unknown(packet) for packet in packets) == 0
    kinds = Counter(packet.WhichOneof("data") for packet in packets)
    assert set(kinds) <= {"track_event", "track_descriptor", "clock_snapshot", "gpu_render_stage_event", None}
    bare = [packet for packet in packets if packet.WhichOneof("data") is None]
    assert all(packet.HasField("interned_data") or packet.HasField("trace_packet_defaults") for packet in bare)


def test_names_and_tracks_are_declared_before_they_are_used(packets: Any) -> None:
    tracks, names = set(), set()
    for packet in packets:
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in tracks
            tracks.add(packet.track_descriptor.uuid)
        names.update(entry.iid for entry in packet.interned_data.event_names)
        if packet.HasField("track_event"):
            assert packet.track_event.track_uuid in tracks or packet.trusted_packet_sequence_id > 2
            assert not packet.track_event.name_iid or packet.track_event.name_iid in names


def test_there_is_a_track_for_every_lane_sensor_and_counter(parsed: Parsed) -> None:
    _, trace = example()
    lanes = ["gpu.0", "gpu.1", "cpu.0", "cpu.1", "cpu.2"]
    sources = ["lidar", "urgent", "control"]
    assert list(parsed.tracks.values()) == ["test (test), simulated", *sources, *lanes, *trace.counters, *ENGINES]


def test_a_gang_is_shown_on_its_lanes_with_segments_inside(parsed: Parsed) -> None:
    first = [s for s in parsed.slices if s["ts"] < 100 and s["track"].startswith("gpu")]
    shape = [(s["track"], s["name"], s["category"], s["depth"], s["ts"], s["end"]) for s in first]
    lane = [
        ("net", "stage", 0, 0, 15),
        ("k0", "segment", 1, 0, 10),
        ("k1", "segment", 1, 10, 15),
        ("net", "stage", 0, 19, 26),
        ("switch", "segment", 1, 19, 21),
        ("k1", "segment", 1, 21, 26),
    ]
    urgent = ("gpu.0", "urgent", "stage", 0, 15, 19)
    assert sorted(shape) == sorted([*(("gpu.0", *row) for row in lane), *(("gpu.1", *row) for row in lane), urgent])


def test_slices_say_what_the_job_was(parsed: Parsed) -> None:
    job = next(s for s in parsed.slices if s["name"] == "net")
    assert job["args"] == {
        "frame": 0,
        "status": "done",
        "deadline": "100 ns",
        "slack_ns": 74,
        "exec_ns": 22,
        "blocking_ns": 0,
        "preemptions": 1,
        "lanes": "0,1",
    }
    # what ran undisturbed on one lane needs no more than its slice shows
    plain = next(s for s in parsed.slices if s["name"] == "net->post")
    assert plain["category"] == "conversion" and plain["args"].keys() == {"frame", "status", "deadline", "slack_ns"}


def test_arrows_follow_the_data(parsed: Parsed) -> None:
    begins = {flow: event for event in (*parsed.slices, *parsed.instants) for flow in event["sends"]}
    ends = {flow: event for event in parsed.slices for flow in event.get("receives", ())}
    assert begins.keys() == ends.keys() and begins

    def label(event: dict[str, Any]) -> tuple[str, int]:
        name = event["track"] if event["name"] == "input" else event["name"]
        return name, event["args"]["frame"]

    arrows = {(label(begins[flow]), label(ends[flow])) for flow in begins}
    assert {(("lidar", 0), ("net", 0)), (("net", 0), ("net->post", 0)), (("net->post", 0), ("post", 0))} <= arrows
    # The controller's job at 90 samples net's frame 0 and the sensor's; that at 140 the next of both.
    assert {(("net", 0), ("control", 1)), (("lidar", 0), ("control", 1)), (("net", 1), ("control", 2))} <= arrows
    assert all(begins[flow]["ts"] <= ends[flow]["ts"] for flow in begins)


def test_drops_misses_and_inputs_are_instants(parsed: Parsed) -> None:
    _, trace = example()
    found = [i for i in parsed.instants if i["category"] != "input"]
    assert [(i["ts"], i["name"]) for i in found] == [(n.time_ns, f"{n.kind} {n.subject}") for n in trace.instants]
    assert {i["category"] for i in found} == {"miss", "drop"}
    assert {i["track"] for i in found} == {"cpu.1"}
    inputs = [(i["ts"], i["args"]["frame"]) for i in parsed.instants if i["track"] == "lidar"]
    assert inputs == [(release, frame) for frame, release in enumerate(trace.releases["lidar"])]


def shown(steps: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The last step of each time, with 16 bits of its value, where this changes."""
    found: list[tuple[int, float]] = []
    for time, value in dict(sorted(steps, key=lambda step: step[0])).items():
        fraction, power = math.frexp(value)
        rounded = math.ldexp(round(fraction * 2**16), power - 16)
        if not found or rounded != found[-1][1]:
            found.append((time, rounded))
    return found


def test_counters_are_the_trace_s(parsed: Parsed) -> None:
    _, trace = example()
    own = {name: steps for name, steps in parsed.counters.items() if name not in ENGINES}
    assert own == {name: shown(steps) for name, steps in trace.counters.items()}
    # the gang on both lanes of the GPU until 15, one lane for the urgent job, both again from 19
    assert parsed.counters["engine_mw.gpu"][:3] == [(0, 50.0), (15, 25.0), (19, 50.0)]


@settings(max_examples=60, deadline=None)
@given(recorded())
def test_random_traces_are_read_back_whatever_the_blocks(tmp_path_factory: Any, drawn: tuple[Plan, Trace]) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Proto

    made, trace = drawn
    read = []
    for block in (3, 1 << 15):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(perfetto_events, "BLOCK", block)
            file = tmp_path_factory.mktemp("random") / "t.pftrace"
            write_perfetto(trace, made, file)
        proto, data = Proto(), file.read_bytes()
        proto.ParseFromString(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
        read.append(Parsed(absolute(proto.packet)))
    assert vars(read[0]) == vars(read[1])
    told = Counter((one["ts"], one["args"]["text"]) for one in read[0].instants if "text" in one["args"])
    assert told == Counter((note.time_ns, note.text) for note in trace.instants)
    jobs = {(job.task, job.frame, job.deadline_ns): job for job in trace.jobs}
    for one in read[0].slices:
        if "deadline_ns" in one["args"]:
            job = jobs[one["name"], one["args"]["frame"], one["args"]["deadline_ns"]]
            assert job.finish_ns < 0 or one["args"]["slack_ns"] == job.deadline_ns - job.finish_ns
    lanes = Counter((f"{p.engine}.{lane}", p.start_ns, p.end_ns) for p in trace.slices for lane in p.lanes)
    spans = {(one["track"], one["ts"], one["end"]) for one in read[0].slices}
    for track, begin, end in lanes:
        assert any(on == track and first <= begin and end <= last for on, first, last in spans), (track, begin, end)


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        made, trace = example()
        write_perfetto(trace, made, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_perfetto_is_loaded_only_to_write() -> None:
    code = "import sys, socsched.trace.perfetto, socsched.trace.io, socsched.trace.metrics, socsched.sim.simulate\n"
    code += "print(sorted(m for m in sys.modules if m.split('.')[0] in {'perfetto', 'google', 'numpy', 'yaml'}))"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Power of engines from what they did: together with base and DRAM it is the module's, which the simulator metered.


LEVELS = (Level(500, 3000), Level(800, 6000), Level(1000, 10_000))


def made(**changes: object) -> Plan:
    """Return a plan of a CPU with two lanes and a GPU that the board slows down when it draws too much."""
    tasks = [
        task("net", 400, engine="gpu", period_ns=1000, bytes=2000),
        task("post", 300, after=("net",), period_ns=1000, lanes=(0, 1), bytes=500),
        task("control", 20, period_ns=250, offset_ns=40, lanes=(1,), priority=0),
    ]
    engines = [
        engine("gpu", idle_mw=300, dynamic_mw=10_000, levels=LEVELS),
        engine(lanes=2, idle_mw=90, dynamic_mw=800),
    ]
    return replace(plan(tasks, engines, dram_bandwidth=10**10), base_mw=1500, dram_picojoule_per_byte=20.0, **changes)


@pytest.mark.parametrize("throttle", [None, Throttle(period_ns=900, cap_mw=3500)])
def test_engines_base_and_dram_add_up_to_the_module(throttle: Throttle | None) -> None:
    deployment = made(throttle=throttle)
    trace = simulate(deployment, 40_000)
    columns = complete_columns(trace, deployment)
    if throttle:
        assert len(set(columns.counters["clock_hz.gpu"][1].tolist())) > 1
    instants = np.unique(np.concatenate([times for times, _ in columns.counters.values()]))
    instants = instants[instants < 40_000]  # where the record ends, what runs ends with it

    def at(name: str) -> np.ndarray:
        times, values = columns.counters[name]
        return values[np.maximum(np.searchsorted(times, instants, side="right") - 1, 0)]

    engines = sum(at(ENGINE_POWER + e.id) for e in deployment.engines)
    dram = at("bandwidth_gbps") * deployment.dram_picojoule_per_byte
    assert np.ptp(engines) > 5000
    np.testing.assert_allclose(deployment.base_mw + engines + dram, at("power_mw"), rtol=1e-9)


def test_constant_clocks_are_recorded_once() -> None:
    deployment = made()
    columns = complete_columns(simulate(deployment, 5000), deployment)
    times, clocks = columns.counters["clock_hz.gpu"]
    assert (times.tolist(), clocks.tolist()) == ([0], [1000.0])
    assert "clock_hz.cpu" not in columns.counters


def test_nothing_is_added_to_a_measurement() -> None:
    deployment = made()
    trace = simulate(deployment, 5000)
    measured = Trace("measured", 5000, 0, trace.jobs, trace.slices, [], trace.releases, {"rail_mw.VDD": [(0, 1.0)]})
    assert list(complete_columns(measured, deployment).counters) == ["rail_mw.VDD"]


def test_units() -> None:
    wanted = {
        "power_mw": "mW",
        "rail_mw.VDD_GPU": "mW",
        "engine_mw.gpu": "mW",
        "gpu_power_mw": "mW",
        "bandwidth_gbps": "GB/s",
        "clock_hz.gpu": "Hz",
        "emc_hz": "Hz",
        "celsius.gpu": "°C",
        "temperature_c": "°C",
        "queue.head": "frames",
        "release_late_ns.lidar": "ns",
        "overruns.head": "",
    }
    assert {name: unit(name) for name in wanted} == wanted


# Protocol Buffers' own parser reads padded numbers correctly, and blocks keep their order.


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NUMBERS = st.one_of(INT64, st.integers(0, 300), st.integers(0, 63).map(lambda e: (1 << e) - 1))


@given(st.lists(NUMBERS, min_size=1, max_size=40), st.integers(0, 10))
def test_numbers_survive_at_any_width(values: list[int], wider: int) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation

    column = np.array(values, np.int64)
    least = pb.width(column)
    width = least if least == pb.LONGEST else min(least + wider, 8)
    shape = pb.Shape([*pb.number(1, 7), *pb.number(4, pb.Slot("value", width))])
    rows = shape.fill(shape.blank(len(values)), {"value": pb.varints(column, width)})
    assert rows.dtype.itemsize == shape.size == 3 + width
    read = [DebugAnnotation.FromString(bytes(row)) for row in rows]
    assert [(note.name_iid, note.int_value) for note in read] == [(7, value) for value in values]
    assert [pb.varint(value) for value in values] == [_shortest(value) for value in values]


def _shortest(value: int) -> bytes:
    from google.protobuf.internal.encoder import _VarintBytes

    return bytes(_VarintBytes(value & (1 << 64) - 1))


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 3)), max_size=40), st.lists(st.integers(0, 22), max_size=4)
)
def test_a_block_gives_messages_in_order_of_time_and_place_with_the_time_between_them(
    rows: list[tuple[int, int]], cuts: list[int]
) -> None:
    times = np.array([time for time, _ in rows], np.int64)
    block, buffer, found = pb.Block(times, 1), pb.Buffer(), b""
    for size in (1, 2, 3):
        places = np.flatnonzero(np.array([row[1] for row in rows], np.int64) == size)
        texts = np.array([bytes([65 + place]) * (size + 1) for place in places.tolist()], f"S{size + 1}")
        block.put(places, texts.view(f"V{size + 1}"), size - 1)
    for cut in [*sorted(cuts), 1 << 40]:
        data, block = block.take(cut, buffer)
        found += data.tobytes()
    order = sorted(range(len(rows)), key=lambda place: rows[place][0])
    expected, last = b"", 0
    for place in order:
        time, size = rows[place]
        expected += bytes([65 + place]) * (size - 1) + bytes([time - last]) + bytes([65 + place])
        last = time
    assert found == expected
    assert not len(block.time)
