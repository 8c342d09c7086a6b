"""The file has the same content and order as one written packet by packet with Perfetto's own classes."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import reference_perfetto
from hypothesis import given, settings
from perfetto_example import absolute, example
from random_traces import recorded

from socsched.planning.plan import Plan
from socsched.trace import perfetto, perfetto_events
from socsched.trace.perfetto import complete_columns
from socsched.trace.trace import Trace

TABLES = ("event_names", "event_categories", "debug_annotation_names")


def events(file: Path) -> list[Any]:
    """Return descriptors and events in order, every number replaced by its meaning; then the steps of each counter."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Proto

    proto = Proto()
    content = file.read_bytes()
    proto.ParseFromString(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
    tables: dict[str, dict[int, str]] = {name: {} for name in (*TABLES, "strings")}
    found: list[Any] = []
    counters, defaults = dict[int, list[Any]](), dict[int, int]()
    for packet in absolute(proto.packet):
        if packet.trusted_packet_sequence_id == 2:  # typed events of GPUs: test_perfetto_events.py
            continue
        sequence, event = packet.trusted_packet_sequence_id, packet.track_event
        if packet.HasField("trace_packet_defaults"):
            defaults[sequence] = packet.trace_packet_defaults.track_event_defaults.track_uuid
        if event.HasField("double_counter_value"):
            steps = counters.setdefault(event.track_uuid or defaults[sequence], [])
            steps.append((packet.timestamp, event.double_counter_value))
            continue
        assert sequence == 1 or not packet.HasField("track_event")
        for name in TABLES:
            tables[name].update((entry.iid, entry.name) for entry in getattr(packet.interned_data, name))
        strings = packet.interned_data.debug_annotation_string_values
        tables["strings"].update((entry.iid, entry.str.decode()) for entry in strings)
        if packet.HasField("track_descriptor"):
            found.append(packet.track_descriptor.SerializeToString(deterministic=True))
        if packet.HasField("track_event"):
            found.append((packet.timestamp, packet.sequence_flags, *_event(event, tables)))
    return [*found, counters]


def _event(event: Any, tables: dict[str, dict[int, str]]) -> tuple[Any, ...]:
    args = []
    for note in event.debug_annotations:
        if note.HasField("int_value"):
            value: Any = note.int_value
        elif note.HasField("string_value_iid"):
            value = tables["strings"][note.string_value_iid]
        else:
            value = note.string_value
        args.append((tables["debug_annotation_names"][note.name_iid], value))
    name = tables["event_names"][event.name_iid] if event.name_iid else ""
    categories = [tables["event_categories"][iid] for iid in event.category_iids]
    flows = (list(event.flow_ids), list(event.terminating_flow_ids))
    return (event.type, event.track_uuid, name, categories, flows, args)


def same(trace: Trace, made: Plan, folder: Path) -> None:
    files = folder / "fast.pftrace", folder / "plain.pftrace"
    perfetto.write_perfetto(trace, made, files[0])
    # counters that follow from the slices have a test of their own
    known = Trace.from_columns(trace.kind, trace.duration_ns, trace.seed, complete_columns(trace, made))
    reference_perfetto.write_perfetto(known, made, files[1])
    assert events(files[0]) == events(files[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("perfetto")


@pytest.mark.parametrize("block", [1, 2, 7, 1 << 15])
def test_a_simulation_in_blocks_of_any_size(block: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto_events, "BLOCK", block)
    made, trace = example()
    same(trace, made, folder)


def clean(trace: Trace) -> Trace:
    """Return the trace without migrations, and with what jobs sampled in the same order in all jobs of a task."""
    for job in trace.jobs:
        job.migrations = 0
    return Trace.from_columns(trace.kind, trace.duration_ns, trace.seed, trace.columns)


@settings(max_examples=80, deadline=None)
@given(recorded())
def test_random_traces(folder: Path, drawn: tuple[Plan, Trace]) -> None:
    made, trace = drawn
    for block in (3, 1 << 15):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(perfetto_events, "BLOCK", block)
            same(clean(trace), made, folder)


def test_migrations_are_reported_where_there_are_any(folder: Path) -> None:
    made, trace = example()
    jobs = trace.jobs
    jobs[3].migrations = 2
    trace.jobs = jobs
    perfetto.write_perfetto(trace, made, folder / "t.pftrace")
    reported = [dict(event[-1]) for event in events(folder / "t.pftrace") if isinstance(event, tuple) and event[0] >= 0]
    assert {args["migrations"] for args in reported if "migrations" in args} == {0, 2}
