"""Typed GPU events, read with Perfetto's own schema: every slice of a GPU once, and none of other engines."""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from perfetto_example import absolute, example
from random_traces import recorded

from socsched.planning.plan import Plan
from socsched.trace.perfetto import write_perfetto
from socsched.trace.trace import Trace

Row = tuple[int, int, int, str, str, int]
"""GPU, begin, duration, queue, stage, frame."""


def typed(data: bytes) -> list[Row]:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import InternedGpuRenderStageSpecification as Specification
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Proto

    proto = Proto()
    proto.ParseFromString(data)
    known: dict[tuple[int, int], Any] = {}
    rows = list[Row]()
    for packet in absolute(proto.packet):
        sequence = packet.trusted_packet_sequence_id
        specified = packet.interned_data.gpu_specifications
        known.update(((sequence, one.iid), one) for one in specified)
        if packet.HasField("gpu_render_stage_event"):
            event = packet.gpu_render_stage_event
            queue, stage = known[sequence, event.hw_queue_iid], known[sequence, event.stage_iid]
            assert stage.category == Specification.COMPUTE and queue.category == Specification.OTHER
            place = (event.gpu_id, packet.timestamp, event.duration)
            rows.append((*place, queue.name, stage.name, event.submission_id))
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
def test_drawn_traces(tmp_path_factory: Any, drawn: tuple[Plan, Trace]) -> None:
    plan, trace = with_gpus(drawn[0]), drawn[1]
    file = tmp_path_factory.mktemp("gpu") / "t"
    write_perfetto(trace, plan, file)
    assert Counter(typed(gzip.decompress(file.read_bytes()))) == expected(trace, plan)
