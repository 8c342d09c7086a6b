"""Columns and lists hold the same data, in both directions, and codes map to their texts and lanes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_traces import recorded

from socsched.planning.plan import Plan
from socsched.trace import blocks, io, stored
from socsched.trace import columns as c
from socsched.trace.trace import Instant, Job, Slice, Trace


@given(recorded())
def test_lists_survive_as_columns(drawn: tuple[Plan, Trace]) -> None:
    _, trace = drawn
    folded = Trace.from_columns(trace.kind, trace.duration_ns, trace.seed, trace.columns)
    assert folded == trace
    assert folded.columns is folded.columns
    arrays = [getattr(folded.columns.jobs, name) for name in c.JobColumns.__slots__]
    assert {array.dtype for array in arrays} == {np.dtype(np.int64)}


def test_lists_assigned_to_a_trace_replace_its_columns() -> None:
    trace = Trace("simulated", 5, 0, [Job("t", 0, 0, 5)], releases={"s": [0]})
    folded = Trace.from_columns("simulated", 5, 0, trace.columns)
    folded.releases = {"s": [0, 3]}
    folded.jobs.append(Job("t", 1, 3, 8))
    assert len(folded.columns.jobs) == 2
    assert folded.columns.releases["s"].tolist() == [0, 3]
    assert folded != trace


def test_what_was_taken_while_nothing_was_there_is_left_out() -> None:
    jobs = [Job("t", 0, 0, 5, sampled={"a": 0, "b": 2}), Job("t", 1, 0, 5, sampled={"b": 3}), Job("t", 2, 0, 5)]
    columns = Trace("simulated", 5, 0, jobs).columns
    assert columns.reads == (("a", "b"),)
    assert columns.jobs.sampled.tolist() == [0, 2, -1]
    assert columns.jobs.frames.tolist() == [0, 2, -1, 3]


@given(st.integers(1, (1 << 63) - 1))
def test_a_mask_is_its_lanes(mask: int) -> None:
    columns = Trace("simulated", 5, 0).columns
    assert sum(1 << lane for lane in columns.lanes(mask)) == mask
    assert list(columns.lanes(mask)) == sorted(set(columns.lanes(mask)))


def test_lanes_no_mask_can_say_are_kept() -> None:
    lanes = [(0, 2), (62,), (63,), (2, 0), (), (100, 101)]
    slices = [Slice("cpu", held, 0, "t", 0, 1) for held in lanes]
    columns = Trace("measured", 5, 0, [Job("t", 0, 0, 5)], slices).columns
    assert columns.slices.lanes.tolist() == [5, 1 << 62, -1, -2, 0, -3]
    assert [columns.lanes(code) for code in columns.slices.lanes.tolist()] == lanes


@pytest.mark.parametrize(
    ("code", "value", "kind", "text"),
    [
        (c.MISS_LATE, 1_500_000, "miss", "1.5 ms late"),
        (c.MISS_OPEN, 0, "miss", "unfinished at its deadline"),
        (c.DROP_QUEUE, 2, "drop", "2 frames wait already"),
        (c.DROP_QUEUE, 0, "drop", "busy, and no frame may wait"),
        (c.FAULT_SLOW, 2_500_000, "fault", "everything takes 2.5 times as long"),
        (c.FAULT_OVERRUN, 3_000_000, "fault", "takes 3 times its planned work"),
        (c.THROTTLE, 800_000, "throttle", "slowed to 80 % of its speed"),
    ],
)
def test_codes_become_words_when_asked_for(code: int, value: int, kind: str, text: str) -> None:
    empty = Trace("simulated", 9, 0).columns
    one = [np.array([number], np.int64) for number in (7, code, 0, 4, value)]
    columns = c.Columns((), (), (), (), ("t",), empty.jobs, empty.slices, c.InstantColumns(*one), {}, {})
    trace = Trace.from_columns("simulated", 9, 0, columns)
    assert trace.instants == [Instant(7, kind, "t", 4, text)]


def test_a_column_that_is_read_when_asked_for_is_indexed_as_an_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 5)
    monkeypatch.setattr(stored, "SMALL", 0)
    plain = np.arange(100, 200)
    io.save(Trace("simulated", 5, 0, [Job("t", frame, 0, 5) for frame in plain.tolist()]), tmp_path / "t")
    column = io.load(tmp_path / "t").columns.jobs.frame
    for rows in ([0, 99], [-1, 3], [*range(-50, 50)], plain % 2 == 0, 7, -2, slice(3, 90), slice(None, None, -1)):
        np.testing.assert_array_equal(column[rows], plain[rows])
    for rows in ([0, 100], [-101]):
        with pytest.raises(IndexError):
            column[rows]
