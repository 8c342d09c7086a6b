"""Quantities: text with units as input, exact integers inside, readable text as output."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched import units


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("10 ms", "duration", 10_000_000),
        ("10ms", "duration", 10_000_000),
        (" 1.5 us ", "duration", 1500),
        ("3 µs", "duration", 3000),
        ("2 h", "duration", 7_200_000_000_000),
        ("0.4 ns", "duration", 0),
        ("204.8 GB/s", "bandwidth", 204_800_000_000),
        ("1 MiB", "size", 1048576),
        ("320 kB", "size", 320_000),
        ("1300.5 MHz", "frequency", 1_300_500_000),
        ("15 W", "power", 15_000),
        ("2 mJ", "energy", 2000),
        ("-5 C", "temperature", -5),
        ("5 pJ/bit", "energy per byte", 40),
        ("1e-3 s", "duration", 1_000_000),
        ("+.5 s", "duration", 500_000_000),
    ],
)
def test_parse(text: str, dimension: str, value: int) -> None:
    assert units.parse(text, dimension) == value


@pytest.mark.parametrize(
    ("value", "dimension", "message"),
    [
        (15, "power", "the unit is missing in '15'"),
        (1.5, "duration", "the unit is missing in '1.5'"),
        ("15", "power", "the unit is missing in '15'"),
        ("15 Watt", "power", "unit 'Watt' is not one of mW, W"),
        ("10 MS", "duration", "unit 'MS' is not one of"),
        ("10 m s", "duration", "expected a duration such as '10 ms', got '10 m s'"),
        ("", "size", "expected a size such as '64 KiB', got ''"),
        ("GB/s", "bandwidth", "expected a bandwidth such as '204.8 GB/s', got 'GB/s'"),
        (True, "duration", "expected a duration"),
        (None, "energy", "expected an energy such as '2 mJ'"),
        ([1], "duration", "expected a duration"),
        (float("nan"), "duration", "expected a duration"),
        pytest.param(2**20000, "duration", "expected a duration", id="huge"),
        ("1e999999999 s", "duration", "too large"),
        ("10000000000 s", "duration", "too large"),
        ("٣ ms", "duration", "expected a duration"),
        ("9" * 100 + " ns", "duration", "expected a duration"),
    ],
)
def test_what_is_no_quantity(value: object, dimension: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        units.parse(value, dimension)
    assert message in str(caught.value)


def test_tiny_exponents_cost_nothing() -> None:
    assert units.parse("1e-999999999 s", "duration") == 0


def test_tables_agree() -> None:
    assert set(units.UNITS) == set(units.BASE_UNIT) == set(units.EXAMPLES)
    for dimension, base in units.BASE_UNIT.items():
        assert units.UNITS[dimension][base] == 1
        assert units.parse(units.EXAMPLES[dimension], dimension) > 0


@given(st.sampled_from(sorted(units.UNITS)), st.integers(-(10**9), 10**9), st.data())
def test_parse_is_exact_for_every_unit(dimension: str, number: int, data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from(sorted(units.UNITS[dimension])))
    factor = units.UNITS[dimension][unit]
    assume_fits = abs(number * factor) < 2**63
    if assume_fits:
        assert units.parse_exact(f"{number} {unit}", dimension) == number * factor
        assert units.parse_exact(f"{number}e-2{unit}", dimension) == Fraction(number, 100) * factor


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_base_units_survive_a_round_trip(value: int) -> None:
    for dimension, base in units.BASE_UNIT.items():
        assert units.parse(f"{value} {base}", dimension) == value


FORMATS = {
    "duration": units.format_duration,
    "bandwidth": units.format_bandwidth,
    "power": units.format_power,
    "size": units.format_size,
    "frequency": units.format_frequency,
}


@given(st.sampled_from(sorted(FORMATS)), st.integers(0, 2**53), st.integers(2, 9))
def test_formatted_text_parses_back_within_its_digits(dimension: str, value: int, digits: int) -> None:
    text = FORMATS[dimension](value, digits)
    assert "e" not in text, "people do not read exponents"
    # Powers of two do not round in decimal digits: allow one more.
    slack = 1.1 if dimension == "size" else 0.51
    assert abs(units.parse(text, dimension) - value) <= slack * 10 ** (1 - digits) * max(value, 1) + 1


@given(st.sampled_from(sorted(FORMATS)), st.integers(1, 2**50))
def test_formatting_keeps_order(dimension: str, value: int) -> None:
    smaller, larger = (units.parse(FORMATS[dimension](v), dimension) for v in (value, value * 2))
    assert smaller < larger


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (units.format_duration, 4_870_000, "4.87 ms"),
        (units.format_duration, 999_999, "1 ms"),
        (units.format_duration, 999_949, "999.9 us"),
        (units.format_duration, 0, "0 ns"),
        (units.format_duration, -1500, "-1.5 us"),
        (units.format_duration, 0.25, "0.25 ns"),
        (units.format_duration, 1.5e13, "15000 s"),
        (units.format_bandwidth, 204_800_000_000, "204.8 GB/s"),
        (units.format_power, 15_000, "15 W"),
        (units.format_power, 380, "380 mW"),
        (units.format_size, 54_853_632, "52.31 MiB"),
        (units.format_frequency, 1_300_500_000, "1.3005 GHz"),
    ],
)
def test_text_for_people(function: object, value: float, text: str) -> None:
    assert callable(function) and function(value) == text
