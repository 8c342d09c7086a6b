"""Whole-nanosecond periods for inexact rates: 30 Hz fits three times into 100 ms, 33,333,333 ns do not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema

from socsched import units
from socsched.descriptor.fields import Quantity

NEAR = 1e-6
"""Largest relative change of a stated period made so that all rates share a hyperperiod."""
LONG = 1000
"""Number of longest periods in a hyperperiod above which a warning is given."""


@dataclass(frozen=True, slots=True)
class Cycle(Quantity):
    """Annotation of a period written as a duration or as a rate: 100 ms, 10 Hz."""

    def read(self, text: object) -> Any:
        """Return the period (ns), a fraction if the rate has no whole one; raise ValueError with the expected form."""
        try:
            rate = units.parse_exact(text, "frequency")
        except ValueError:
            return Quantity.read(self, text)
        if rate <= 0 or rate > 10**9:
            raise ValueError(f"expected a rate above zero, of 1 GHz at most, got {str(text)!r}")
        period = 10**9 / rate
        return int(period) if period.denominator == 1 else period

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        names = "|".join([*units.UNITS["duration"], *units.UNITS["frequency"]])
        number = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
        examples = [units.EXAMPLES["duration"], "30 Hz"]
        return {"type": "string", "pattern": rf"^\s*\+?{number}\s*(?:{names})\s*$", "examples": examples}


def whole_periods(stated: Sequence[Fraction | int]) -> list[int]:
    """Return periods in whole nanoseconds that repeat together as the stated ones do.

    Whole periods stay unchanged unless another period is fractional: then all become divisors of one hyperperiod,
    provided that changes each by at most a millionth.
    """
    exact = [Fraction(period) for period in stated]
    if all(period.denominator == 1 for period in exact):
        return [int(period) for period in exact]
    hyper = Fraction(math.lcm(*(p.numerator for p in exact)), math.gcd(*(p.denominator for p in exact)))
    counts = [int(hyper / period) for period in exact]
    step = math.lcm(*counts)
    length = round(hyper / step) * step
    found = [length // count for count in counts]
    if all(abs(new - old) <= NEAR * old for new, old in zip(found, exact, strict=True)):
        return found
    return [max(round(period), 1) for period in exact]


def seldom_repeats(periods: Sequence[int]) -> str:
    """Return a warning if the hyperperiod of all periods is very long, "" otherwise."""
    length = math.lcm(*periods) if periods else 0
    if length <= LONG * max(periods, default=0):
        return ""
    return (
        f"the schedule repeats after {units.format_duration(length)} only, longer than a simulation or timeline "
        "shows: write rates in Hz (30 Hz), or periods that divide each other"
    )
