"""Downsampling for drawing: area, extremes and the tail of a distribution are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.reporting import charts

STEPS = st.lists(st.tuples(st.integers(0, 10_000), st.floats(0, 100)), min_size=1, max_size=60)
END = 10_001


@given(STEPS, st.integers(1, 50))
def test_a_step_function_keeps_its_area_and_its_extremes(steps: list[tuple[int, float]], buckets: int) -> None:
    points = [(0, 1.0), *sorted({time: value for time, value in steps if time > 0}.items())]
    times, values = np.array([time for time, _ in points]), np.array([value for _, value in points])
    found = charts.mean_steps(times, values, END, buckets)
    ends = [*(begin for begin, *_ in found[1:]), END]
    area = sum(value * (after - time) for (time, value), after in zip(points, [*times[1:].tolist(), END], strict=True))
    assert sum(b[1] * (end - b[0]) for b, end in zip(found, ends, strict=True)) == pytest.approx(area)
    assert max(b[3] for b in found) == values.max() and min(b[2] for b in found) == values.min()
    assert all(b[2] - 1e-9 <= b[1] <= b[3] + 1e-9 for b in found)


def test_what_is_recorded_late_counts_from_the_start_and_nothing_is_nothing() -> None:
    assert charts.mean_steps(np.array([500]), np.array([3.0]), 1000, 2) == [(0, 3.0, 3.0, 3.0), (500, 3.0, 3.0, 3.0)]
    assert charts.mean_steps(np.array([], np.int64), np.array([]), 1000, 2) == []


@given(st.lists(st.tuples(st.integers(0, END - 1), st.integers(0, 1000)), min_size=1, max_size=200), st.integers(1, 20))
def test_the_highest_and_lowest_point_of_every_part_are_kept(points: list[tuple[int, int]], buckets: int) -> None:
    times, values = np.array([time for time, _ in points]), np.array([value for _, value in points])
    kept = charts.extremes(times, values, END, buckets)
    assert len(kept) <= 2 * buckets
    assert (np.diff(times[kept]) >= 0).all()
    parts = np.minimum(times * buckets // END, buckets - 1)
    for part in np.unique(parts):
        own, shown = values[parts == part], values[kept[parts[kept] == part]]
        assert (own.max(), own.min()) == (shown.max(), shown.min())


@given(st.integers(0, 100_000), st.integers(10, 300))
def test_ranks_ascend_and_hold_the_tail(count: int, points: int) -> None:
    found = charts.ranks(count, points)
    assert found == sorted(set(found))
    assert len(found) <= 2 * points + 1
    if count:
        assert (found[0], found[-1]) == (0, count - 1)
        tail = min(max(count // 100, 1), points)
        assert found[-tail:] == list(range(count - tail, count))
