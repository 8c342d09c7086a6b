"""Protocol Buffers' own parser reads padded numbers correctly, and blocks keep their order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from socsched.trace import protobuf as pb

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
def test_a_block_gives_messages_in_order_of_time_and_place(rows: list[tuple[int, int]], cuts: list[int]) -> None:
    times = np.array([time for time, _ in rows], np.int64)
    block, buffer, found = pb.Block(times), pb.Buffer(), b""
    for size in (1, 2, 3):
        places = np.flatnonzero(np.array([row[1] for row in rows], np.int64) == size)
        texts = np.array([bytes([65 + place]) * size for place in places.tolist()], f"S{size}")
        block.put(places, texts.view(f"V{size}"))
    for cut in [*sorted(cuts), 1 << 40]:
        data, block = block.take(cut, buffer)
        found += data.tobytes()
    order = sorted(range(len(rows)), key=lambda place: rows[place][0])
    assert found == b"".join(bytes([65 + place]) * rows[place][1] for place in order)
    assert not len(block.time)
