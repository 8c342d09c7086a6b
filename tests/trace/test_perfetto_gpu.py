"""Typed GPU events, read with Perfetto's own schema: every slice of a GPU once, and none of other engines."""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from perfetto_example import example
from random_traces import recorded

from socsched.planning.plan import Plan
from socsched.trace import perfetto_events
from socsched.trace.perfetto import complete_columns, write_perfetto
from socsched.trace.trace import Trace

Row = tuple[int, int, int, str, str, int]
"""GPU, begin, duration, queue, stage, frame."""


def typed(data: bytes) -> list[Row]:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import InternedGpuRenderStageSpecification as Specification
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Proto

    proto = Proto()
    proto.ParseFromString(data)
    known: dict[int, Any] = {}
    rows, numbers = list[Row](), set[int]()
    for packet in proto.packet:
        if packet.trusted_packet_sequence_id != 2:
            continue
        assert packet.sequence_flags == (1 if packet.HasField("interned_data") else 2)
        known.update((one.iid, one) for one in packet.interned_data.gpu_specifications)
        if packet.HasField("gpu_render_stage_event"):
            event = packet.gpu_render_stage_event
            queue, stage = known[event.hw_queue_iid], known[event.stage_iid]
            assert stage.category == Specification.COMPUTE and queue.category == Specification.OTHER
            numbers.add(event.event_id)
            place = (event.gpu_id, packet.timestamp, event.duration)
            rows.append((*place, queue.name, stage.name, event.submission_id))
    assert len(numbers) == len(rows)
    return rows


def with_gpus(plan: Plan) -> Plan:
    """Return a plan whose every other engine, the first one included, is a GPU."""
    return replace(plan, engines=tuple(replace(e, kind=("gpu", "cpu")[at % 2]) for at, e in enumerate(plan.engines)))


def expected(trace: Trace, plan: Plan) -> Counter[Row]:
    gpus = [e.id for e in plan.engines if e.kind == "gpu" and any(piece.engine == e.id for piece in trace.slices)]
    return Counter(
        (gpus.index(p.engine), p.start_ns, p.end_ns - p.start_ns, f"{p.engine}.{min(p.lanes)}", p.name,
         trace.jobs[p.job].frame)
        for p in trace.slices
        if p.engine in gpus
    )  # fmt: skip


def test_the_example_has_one_event_for_each_slice_of_its_gpu(tmp_path: Path) -> None:
    plan, trace = example()
    plan = with_gpus(plan)
    write_perfetto(trace, plan, tmp_path / "t.pftrace")
    rows = typed(gzip.decompress((tmp_path / "t.pftrace").read_bytes()))
    assert rows and Counter(rows) == expected(trace, plan)
    assert rows == sorted(rows, key=lambda row: row[:2])


@settings(max_examples=25, deadline=None)
@given(recorded())
def test_drawn_traces(drawn: tuple[Plan, Trace]) -> None:
    plan, trace = with_gpus(drawn[0]), drawn[1]
    data = b"".join(perfetto_events.gpu_events(complete_columns(trace, plan), plan))
    assert Counter(typed(data)) == expected(trace, plan)


def test_blocks_do_not_change_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, trace = example()
    plan = with_gpus(plan)
    columns = complete_columns(trace, plan)
    whole = typed(b"".join(perfetto_events.gpu_events(columns, plan)))
    assert len(whole) > 3
    monkeypatch.setattr(perfetto_events, "BLOCK", 3)
    assert typed(b"".join(perfetto_events.gpu_events(columns, plan))) == whole
