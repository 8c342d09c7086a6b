"""Periods written as rates: whole nanoseconds that repeat together as the rates do."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.descriptor.fields import Cycle, seldom_repeats, whole_periods
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.errors import DescriptorError

CYCLE = Cycle("duration", positive=True)


def pipeline(camera: str, lidar: str) -> dict[str, object]:
    time = {"value": "1 ms", "kind": "assumed", "note": "a"}
    cost = {"platform": "x", "mode": "y", "engine": "cpu", "precision": "fp32", "time": time}
    stage = {"title": "t", "after": ["camera"], "reads": ["lidar"], "assumed": "a", "costs": [cost]}
    sensors = {"camera": {"kind": "camera", "period": camera}, "lidar": {"kind": "lidar", "period": lidar}}
    return {"schema_version": "1", "name": "p", "title": "t", "sensors": sensors, "stages": {"work": stage}}


def test_a_rate_is_a_period() -> None:
    assert CYCLE.read("50 Hz") == CYCLE.read("20 ms") == 20_000_000
    assert CYCLE.read("30 Hz") == Fraction(10**9, 30)
    assert whole_periods([CYCLE.read("30 Hz")]) == [33_333_333]


@pytest.mark.parametrize("text", ["0 Hz", "-5 Hz", "2 GHz", "30", "30 fps", "", "1e-999 Hz"])
def test_what_is_no_rate_and_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        CYCLE.read(text)


def test_rates_that_fit_into_each_other_still_do_in_nanoseconds() -> None:
    made = pipeline_from_mapping(pipeline("30 Hz", "10 Hz"), "p.yaml")
    camera, lidar = (sensor.period_ns for sensor in made.sensors)
    assert lidar == 3 * camera and abs(lidar - 10**8) < 100
    assert math.lcm(camera, lidar) == lidar


def test_periods_that_are_whole_stay_as_they_are_written() -> None:
    made = pipeline_from_mapping(pipeline("33.333 ms", "100 ms"), "p.yaml")
    assert [sensor.period_ns for sensor in made.sensors] == [33_333_000, 10**8]
    assert "3333 s" in seldom_repeats([33_333_000, 10**8])
    assert not seldom_repeats([33_333_333, 99_999_999]) and not seldom_repeats([])


def test_a_period_that_is_no_quantity_is_named_with_its_place() -> None:
    with pytest.raises(DescriptorError, match=r"sensors\.camera\.period.*expected"):
        pipeline_from_mapping(pipeline("30 fps", "10 Hz"), "p.yaml")


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=6))
def test_periods_stay_within_a_millionth_or_a_nanosecond_of_the_rates(rates: list[int]) -> None:
    exact = [Fraction(10**9, rate) for rate in rates]
    for stated, found in zip(exact, whole_periods(exact), strict=True):
        assert abs(found - stated) <= max(Fraction(1, 2), stated / 10**6)
