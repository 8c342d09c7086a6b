"""The Perfetto file, parsed back with Perfetto's own schema."""

from __future__ import annotations

import gzip
import itertools
import subprocess
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
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
from socsched.trace import blocks, io, perfetto, stored
from socsched.trace import protobuf as pb
from socsched.trace.columns import unit
from socsched.trace.perfetto import ENGINE_POWER, EnginePower, write_perfetto
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
        self.multipliers: dict[int, int] = {}
        self.alone: set[int] = set()
        self.slices: list[dict[str, Any]] = []
        self.instants: list[dict[str, Any]] = []
        self.counters: dict[str, list[tuple[int, float]]] = defaultdict(list)
        tables: dict[str, dict[int, str]] = defaultdict(dict)
        stacks: dict[int, list[dict[str, Any]]] = defaultdict(list)
        last, defaults = dict[int, int](), dict[int, int]()
        flows: dict[int, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        for packet in packets:
            sequence = packet.trusted_packet_sequence_id
            if packet.HasField("trace_packet_defaults"):
                defaults[sequence] = packet.trace_packet_defaults.track_event_defaults.track_uuid
            if packet.HasField("track_descriptor"):
                d = packet.track_descriptor
                self.tracks[d.uuid] = d.thread.thread_name or d.process.process_name or d.name
                self.multipliers[d.uuid] = d.counter.unit_multiplier
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
            uuid = event.track_uuid or defaults[sequence]
            track = self.tracks[uuid]
            made: dict[str, Any] = {"ts": packet.timestamp, "track": track}
            told = [*zip(event.extra_counter_track_uuids, event.extra_counter_values, strict=True)]
            assert len(told) <= 8  # the viewer drops events with more
            if event.type == event.TYPE_COUNTER:
                told.append((uuid, event.double_counter_value))
                self.alone.add(packet.timestamp)
            for number, value in told:
                self.counters[self.tracks[number]].append((packet.timestamp, value * self.multipliers[number]))
            for flow in event.flow_ids:
                flows[flow].append((packet.timestamp, made))
            if event.name_iid:
                made["name"] = tables["event_names"][event.name_iid]
                made["category"] = tables["event_categories"][event.category_iids[0]]
                made["args"] = {
                    tables["debug_annotation_names"][a.name_iid]: tables["strings"].get(a.string_value_iid, a.int_value)
                    for a in event.debug_annotations
                }
            if event.type == event.TYPE_SLICE_BEGIN:
                made["depth"] = len(stacks[uuid])
                stacks[uuid].append(made)
                self.slices.append(made)
            elif event.type == event.TYPE_SLICE_END:
                begun = stacks[uuid].pop()
                begun["end"] = packet.timestamp
            elif event.type == event.TYPE_INSTANT:
                self.instants.append(made)
        for name, steps in self.counters.items():  # the viewer has them in order of time
            self.counters[name] = sorted(steps, key=lambda step: step[0])
        assert not any(stacks.values())
        # an event is joined with the next one, in order of time, that has the same flow
        ordered = [[event for _, event in sorted(found, key=lambda one: one[0])] for found in flows.values()]
        self.arrows = [pair for events in ordered for pair in itertools.pairwise(events)]


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
    tracks, names, defaults = set(), set(), dict[int, int]()
    for packet in packets:
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in tracks
            tracks.add(packet.track_descriptor.uuid)
        names.update(entry.iid for entry in packet.interned_data.event_names)
        if packet.HasField("trace_packet_defaults"):
            defaults[packet.trusted_packet_sequence_id] = packet.trace_packet_defaults.track_event_defaults.track_uuid
        if packet.HasField("track_event"):
            uuid = packet.track_event.track_uuid or defaults[packet.trusted_packet_sequence_id]
            assert uuid in tracks
            assert not packet.track_event.name_iid or packet.track_event.name_iid in names


def test_there_is_a_track_for_every_lane_sensor_and_counter(parsed: Parsed) -> None:
    _, trace = example()
    lanes = ["gpu.0", "gpu.1", "cpu.0", "cpu.1", "cpu.2"]
    sources = ["lidar", "urgent", "control"]
    assert [parsed.tracks[uuid] for uuid in sorted(parsed.tracks)] == [
        "test (test), simulated",
        *sources,
        *lanes,
        *("bandwidth" if name == "bandwidth_gbps" else name for name in trace.counters),
        *ENGINES,
    ]


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
    def label(event: dict[str, Any]) -> tuple[str, int]:
        name = event["track"] if event["name"] == "input" else event["name"]
        return name, event["args"]["frame"]

    arrows = {(label(begin), label(end)) for begin, end in parsed.arrows}
    assert {(("lidar", 0), ("net", 0)), (("net", 0), ("net->post", 0)), (("net->post", 0), ("post", 0))} <= arrows
    # The controller's job at 90 samples net's frame 0 and the sensor's; that at 140 the next of both.
    assert {(("net", 0), ("control", 1)), (("lidar", 0), ("control", 1)), (("net", 1), ("control", 2))} <= arrows
    tasks = {task.name: task for task in example()[0].tasks}
    for (sender, sent), (user, used) in arrows:
        same = sender == user and sent == used  # a job that was preempted
        assert same or sender in tasks[user].reads or (sender in tasks[user].after and sent == used)


def test_drops_misses_and_inputs_are_instants(parsed: Parsed) -> None:
    _, trace = example()
    found = [i for i in parsed.instants if i["category"] != "input"]
    assert [(i["ts"], i["name"]) for i in found] == [(n.time_ns, f"{n.kind} {n.subject}") for n in trace.instants]
    assert {i["category"] for i in found} == {"miss", "drop"}
    assert {i["track"] for i in found} == {"cpu.1"}
    inputs = [(i["ts"], i["args"]["frame"]) for i in parsed.instants if i["track"] == "lidar"]
    assert inputs == [(release, frame) for frame, release in enumerate(trace.releases["lidar"])]


def assert_shown(read: Parsed, counters: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    """Assert that each counter has at every time the value of the trace, within what its greatest value allows."""
    for name, steps in counters.items():
        scale = 1e9 if name == "bandwidth_gbps" else 1
        given = {time: value * scale for time, value in sorted(steps, key=lambda step: step[0])}
        seen = read.counters["bandwidth" if scale > 1 else name]
        times, values = [time for time, _ in seen], [value for _, value in seen]
        assert sorted(set(times)) == times and set(times) <= set(given), name
        assert all(one != other for one, other in itertools.pairwise(values)), name
        most = max(map(abs, given.values()))
        bound = most / (2**7 if name in ("power_mw", "bandwidth_gbps") else 2**16)
        bound = max(bound, 0.5) if most >= 2**9 else bound
        for time, value in given.items():
            assert abs(values[bisect_right(times, time) - 1] - value) <= bound, (name, time)


def test_counters_are_the_trace_s(parsed: Parsed) -> None:
    _, trace = example()
    assert_shown(parsed, trace.counters)
    assert not parsed.alone  # nothing changes but when slices begin or end
    # the gang on both lanes of the GPU until 15, one lane for the urgent job, both again from 19
    assert parsed.counters["engine_mw.gpu"][:3] == [(0, 50.0), (15, 25.0), (19, 50.0)]


def parsed_file(trace: Trace, made: Plan, file: Path) -> Parsed:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Proto

    write_perfetto(trace, made, file)
    proto = Proto()
    proto.ParseFromString(gzip.decompress(file.read_bytes()))
    return Parsed(absolute(proto.packet))


@pytest.mark.parametrize("throttle", [None, Throttle(period_ns=900, cap_mw=3500)])
def test_a_long_trace_is_written_in_parts(
    throttle: Throttle | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for deployment in (example()[0], made(throttle=throttle)):
        trace = simulate(deployment, 20_000)
        whole = parsed_file(trace, deployment, tmp_path / "whole")
        with monkeypatch.context() as patch:
            for module in (blocks, perfetto):
                patch.setattr(module, "BLOCK", 7)
            patch.setattr(stored, "SMALL", 0)
            io.save(trace, tmp_path / "trace.bin")
            long = io.load(tmp_path / "trace.bin")
            assert long.columns.stored is not None
            read = parsed_file(long, deployment, tmp_path / "long")
        assert (read.tracks, read.counters) == (whole.tracks, whole.counters)
        for name in ("slices", "instants"):
            assert sorted(map(str, getattr(read, name))) == sorted(map(str, getattr(whole, name)))
        assert sorted(map(str, read.arrows)) == sorted(map(str, whole.arrows))


@settings(max_examples=60, deadline=None)
@given(recorded())
def test_random_traces_are_read_back(tmp_path_factory: Any, drawn: tuple[Plan, Trace]) -> None:
    made, trace = drawn
    read = [parsed_file(trace, made, tmp_path_factory.mktemp("random") / "t.pftrace")]
    assert_shown(read[0], {name: steps for name, steps in trace.counters.items() if steps})
    told = Counter((one["ts"], one["args"]["text"]) for one in read[0].instants if "text" in one["args"])
    assert told == Counter((note.time_ns, note.text) for note in trace.instants)
    jobs = {(job.task, job.frame, job.deadline_ns): job for job in trace.jobs}
    for one in read[0].slices:
        if "deadline_ns" in one["args"]:
            job = jobs[one["name"], one["args"]["frame"], one["args"]["deadline_ns"]]
            slack = job.deadline_ns - job.finish_ns
            assert job.finish_ns < 0 or 0 <= slack - one["args"]["slack_ns"] <= abs(slack) / 2**10
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
    code = "import sys, socsched.api.export, socsched.api.renderers, socsched.trace.io, socsched.trace.metrics\n"
    code += "import socsched.sim.simulate\n"
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


def powers(trace: Trace, plan: Plan) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return what the writer adds for each engine, slices given in parts."""
    columns, found = trace.columns, {}
    order = np.argsort(columns.slices.start_ns, kind="stable")
    pieces = {name: getattr(columns.slices, name)[order] for name in type(columns.slices).__slots__}
    for one in plan.engines:
        power = EnginePower(columns, one)
        parts: dict[str, list[Any]] = {name: [] for name in power.counters}
        for at in range(0, len(order), 7):
            upto = pieces["start_ns"][at + 7] if at + 7 < len(order) else 1 << 62
            part = {name: column[at : at + 7] for name, column in pieces.items()}
            for name, steps in zip(parts, power.steps(part, upto), strict=True):
                parts[name].append(steps)
        for name, steps in parts.items():
            found[name] = tuple(np.concatenate(column) for column in zip(*steps, strict=True))
    return found


@pytest.mark.parametrize("throttle", [None, Throttle(period_ns=900, cap_mw=3500)])
def test_engines_base_and_dram_add_up_to_the_module(throttle: Throttle | None) -> None:
    deployment = made(throttle=throttle)
    trace = simulate(deployment, 40_000)
    counters = dict(trace.columns.counters) | powers(trace, deployment)
    if throttle:
        assert len(set(counters["clock_hz.gpu"][1].tolist())) > 1
    instants = np.unique(np.concatenate([times for times, _ in counters.values()]))
    instants = instants[instants < 40_000]  # where the record ends, what runs ends with it

    def at(name: str) -> np.ndarray:
        times, values = counters[name]
        return values[np.maximum(np.searchsorted(times, instants, side="right") - 1, 0)]

    engines = sum(at(ENGINE_POWER + e.id) for e in deployment.engines)
    dram = at("bandwidth_gbps") * deployment.dram_picojoule_per_byte
    assert np.ptp(engines) > 5000
    np.testing.assert_allclose(deployment.base_mw + engines + dram, at("power_mw"), rtol=1e-9)


def test_constant_clocks_are_recorded_once(tmp_path: Path) -> None:
    deployment = made()
    read = parsed_file(simulate(deployment, 5000), deployment, tmp_path / "t")
    assert read.counters["clock_hz.gpu"] == [(0, 1000.0)]
    assert "clock_hz.cpu" not in read.counters


def test_nothing_is_added_to_a_measurement(tmp_path: Path) -> None:
    deployment = made()
    trace = simulate(deployment, 5000)
    measured = Trace("measured", 5000, 0, trace.jobs, trace.slices, [], trace.releases)
    measured.counters = {"rail_mw.VDD": [(0, 1.0)]}
    assert list(parsed_file(measured, deployment, tmp_path / "t").counters) == ["rail_mw.VDD"]


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


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 3)), min_size=1, max_size=40), st.randoms())
def test_rows_give_messages_in_their_order_with_the_time_between_them(rows: list[tuple[int, int]], draw: Any) -> None:
    order = draw.sample(range(len(rows)), len(rows))
    packed = pb.Rows(np.array([rows[place][0] for place in order], np.int64), np.array(order, np.int64))
    for size in (1, 2, 3):
        places = np.flatnonzero(np.array([row[1] for row in rows], np.int64) == size)
        letters = pb.items(places + 65)
        packed.put(places, [*(pb.Slot(f"letter{i}", 1) for i in range(size)), pb.Slot("time", packed.gap)],
                   {f"letter{i}": letters for i in range(size)})  # fmt: skip
    times = pb.varints(np.array([rows[place][0] for place in order]), packed.gap).tolist()
    expected = b"".join(
        bytes([65 + place]) * rows[place][1] + bytes(time) for place, time in zip(order, times, strict=True)
    )
    assert packed.joined() == expected
