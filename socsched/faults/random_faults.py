"""Faults drawn from a seed: the same on every machine, since drawing and arithmetic use only whole numbers.

The total is `rate` faults per minute until `until` (a fractional fault occurs with that probability).  Kind and instant
are drawn uniformly, as for the events of a Poisson process given their number.  Windows last 20 ms to 1 s.  Factors
range from 1.25 to 4 in quarters, delays up to the sensor's period less its jitter, bursts up to five frames, foreign
traffic from 5 to 50 % of the achievable DRAM bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from socsched.faults.model import SECTIONS, Burst, Delay, Dropout, Faults, Hog, Slowdown, Stall, by_field
from socsched.planning.plan import Plan, PlannedSensor

KINDS = tuple(name for name, section in SECTIONS.items() if section.drawn)
"""Sections of a faults file that can be drawn."""

_SHORTEST, _LONGEST = 20_000_000, 1_000_000_000
_OF_SENSORS = ("dropouts", "delays", "bursts")
_MINUTE = 60 * 10**9


def random_faults(plan: Plan, seed: int, rate: Fraction, until_ns: int, kinds: Sequence[str] = ()) -> Faults:
    """Return faults drawn from a seed, `rate` per minute, of the given `kinds` (empty: all that can be drawn)."""
    return by_field(draw(plan, seed, rate, until_ns, tuple(kinds) or KINDS).items())


def draw(plan: Plan, seed: int, rate: Fraction, until_ns: int, kinds: tuple[str, ...] = KINDS) -> dict[str, list[Any]]:
    """Return faults by section of a faults file, in time order; kinds that cannot affect `plan` are left out."""
    rng = Random(f"{seed}:faults")
    possible = [kind for kind in kinds if _suffers(plan, kind)]
    expected = rate * until_ns / _MINUTE
    count = expected.numerator // expected.denominator
    count += _below(rng, expected.denominator) < expected.numerator % expected.denominator
    found: dict[str, list[Any]] = {}
    for at in sorted(_below(rng, until_ns) for _ in range(count if possible else 0)):
        kind = possible[_below(rng, len(possible))]
        found.setdefault(kind, []).append(_fault(rng, plan, kind, at))
    return found


def _below(rng: Random, limit: int) -> int:
    """Return a whole number from 0 to `limit` - 1 (from bits alone: other draws may differ between Python versions)."""
    return rng.getrandbits(limit.bit_length() + 64) * limit >> (limit.bit_length() + 64)


def _suffers(plan: Plan, kind: str) -> bool:
    if kind in _OF_SENSORS:
        return bool(_sensors(plan, kind))
    return bool(plan.engines) and (kind != "hogs" or plan.dram_bandwidth > 0)


def _sensors(plan: Plan, kind: str) -> list[PlannedSensor]:
    """Return the sensors that can be affected: one whose jitter is its period cannot be delayed further."""
    return [sensor for sensor in plan.sensors if kind != "delays" or sensor.jitter_ns < sensor.period_ns]


def _fault(rng: Random, plan: Plan, kind: str, at: int) -> Any:
    until = at + _SHORTEST + _below(rng, _LONGEST - _SHORTEST + 1)
    if kind in _OF_SENSORS:
        sensors = _sensors(plan, kind)
        sensor = sensors[_below(rng, len(sensors))]
        if kind == "dropouts":
            return Dropout(sensor.name, at, until)
        if kind == "delays":
            return Delay(sensor.name, at, until, 1 + _below(rng, sensor.period_ns - sensor.jitter_ns))
        return Burst(sensor.name, at, 1 + _below(rng, 5))
    engine = plan.engines[_below(rng, len(plan.engines))].id
    if kind in ("stalls", "deaths"):
        return Stall(engine, at, until, kind == "deaths")
    if kind == "hogs":
        return Hog(engine, at, until, max(plan.dram_bandwidth * (5 + _below(rng, 46)) // 100, 1))
    return Slowdown(engine, at, until, Fraction(5 + _below(rng, 12), 4), kind == "throttles")
