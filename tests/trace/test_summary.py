"""Histograms have the stated resolution, and figures from totals equal those of the trace except percentiles."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto_example import example
from random_traces import recorded
from reference_totals import bins_of, histogram, totals

from socsched.planning.plan import Plan
from socsched.trace import metrics, summary
from socsched.trace.summary import BINS, EXACT, bin_of, highest
from socsched.trace.trace import Trace

LARGEST = (1 << 63) - 1
VALUES = st.one_of(st.integers(0, 5000), st.integers(0, LARGEST), st.integers(0, 62).map(lambda e: 1 << e))


def lowest(number: int) -> int:
    return highest(number - 1) + 1 if number else 0


@given(VALUES)
def test_a_value_lies_in_its_bin(value: int) -> None:
    number = bin_of(value)
    assert lowest(number) <= value <= highest(number)
    assert (highest(number) - value) * 1024 < max(value, 1)
    assert (highest(number) == value) or value >= EXACT


def test_bins_follow_one_another_without_a_gap() -> None:
    assert [bin_of(value) for value in (2047, 2048, 2049, 2050, 4095, 4096, 4099, 4100)] == [
        2047,
        2048,
        2048,
        2049,
        3071,
        3072,
        3072,
        3073,
    ]
    for number in range(BINS - 1):
        assert bin_of(highest(number)) == number
        assert bin_of(highest(number) + 1) == number + 1
    assert highest(BINS - 1) == LARGEST


@given(st.lists(VALUES, min_size=1, max_size=60))
def test_arrays_are_binned_as_numbers_are(values: list[int]) -> None:
    assert bins_of(np.array(values, np.int64)).tolist() == [bin_of(value) for value in values]


@given(st.lists(VALUES, max_size=80), st.lists(VALUES, max_size=80))
def test_a_histogram_sums_up(left: list[int], right: list[int]) -> None:
    values = left + right
    seen = histogram(np.array(left, np.int64)) + histogram(np.array(right, np.int64))
    assert (seen.count, seen.total, seen.counts.sum()) == (len(values), sum(values), len(values))
    assert (seen.least, seen.most) == (min(values, default=0), max(values, default=0))
    exact = metrics._summary(values, metrics.RESPONSE)
    found = seen.summary(metrics.RESPONSE)
    assert (found["mean"], found["max"]) == (exact["mean"], exact["max"])
    for name in metrics.PER_MILLE:
        near(found[name], exact[name])


def near(found: Any, exact: Any) -> None:
    if exact is None:
        assert found is None
    else:
        assert exact <= found and (found - exact) * 1024 <= exact


def close(trace: Trace, made: Plan) -> None:
    exact, found = metrics.result(trace, made), summary.result(totals(trace, made), made)
    assert found.pop("resolution") == "2^-10"
    rest = copy.deepcopy((exact, found))
    for figures in rest:
        for part in (*figures["chains"].values(), *figures["stages"].values()):
            for name in ("response_time_ns", "data_age_ns", "exec_ns"):
                for share in metrics.PER_MILLE if name in part else ():
                    part[name].pop(share, None)
    assert rest[0] == rest[1]
    assert list(found["stages"]) == list(exact["stages"])
    for group, names in (("chains", ("response_time_ns", "data_age_ns")), ("stages", ("exec_ns",))):
        for key, part in found[group].items():
            for name in names:
                for share, value in part[name].items():
                    near(value, exact[group][key][name][share])


def test_totals_of_a_simulation() -> None:
    made, trace = example()
    close(trace, made)
    long = Trace("simulated", 10**9, 0, releases={"lidar": []})
    for job in trace.jobs:
        job.exec_ns *= 123_457
        job.finish_ns *= 7_654_321 if job.finish_ns >= 0 else 1
    long.jobs, long.releases = trace.jobs, trace.releases
    close(long, made)


@settings(max_examples=200, deadline=None)
@given(recorded())
def test_totals_of_random_traces(drawn: tuple[Plan, Trace]) -> None:
    made, trace = drawn
    # jobs that end before the data they acted on was released make ages that no simulation has
    for job in trace.jobs:
        job.finish_ns += 1000 if job.finish_ns >= 0 else 0
    try:
        metrics.result(trace, made)
    except IndexError:
        with pytest.raises(IndexError):
            totals(trace, made)
        return
    close(trace, made)
