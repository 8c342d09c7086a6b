"""What two programs that compute at once on two cores cost each other: networks alone, and beside a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from socsched.cost.kernel_times import nonnegative
from socsched.executor.probe.calls import Calls, copy
from socsched.executor.probe.own import Program

SLICE_S, TURNS = 0.04, 2
_STREAM = 1 << 26
"""Bytes of a copy that no cache holds."""


class Pair(NamedTuple):
    """Demands (bytes/s) alone of a victim and of what runs beside it, and the factor by which the victim slows down."""

    mine: float
    other: float
    factor: float


def time_pairs(programs: Sequence[Program], cpus: Sequence[int]) -> list[Pair]:
    """Return the pairs of networks with a copy that no cache holds."""
    beside = copy(_STREAM)
    demand, found = _rate(beside, 2.0 * _STREAM, cpus), []
    for one in programs:
        alone = _time(one.launches, cpus)
        found.append(Pair(one.moved / alone * 1e9, demand, max(_time(one.launches, cpus, beside) / alone, 1.0)))
    return found


def contention(pairs: Sequence[Pair], capacity: float) -> dict[str, float]:
    """Return the parameters of the linear model that pairs show under a bandwidth of `capacity` (bytes/s).

    Only what runs beside a network counts: most of what its own kernels move stays in caches.
    """
    others = [min(pair.other / capacity, 1.0) for pair in pairs]
    slower = [pair.factor for pair in pairs]
    (you,) = nonnegative([*((other,) for other in others), (1e-3,)], [*(factor - 1 + 1e-2 for factor in slower), 1e-2])
    off = [abs(1 + you * other - factor) / factor for other, factor in zip(others, slower, strict=True)]
    found = {"l2_me": 0.0, "l2_you": 0.0, "dram_me": 0.0, "dram_you": you, "constant": 1.0}
    return {name: round(value, 3) for name, value in {**found, "error": sum(off) / max(len(off), 1)}.items()}


def _rate(calls: Calls, moved: float, cpus: Sequence[int]) -> float:
    return moved / _time(calls, cpus) * 1e9


def _time(calls: Calls, cpus: Sequence[int], beside: Calls | None = None) -> float:
    """Return the time (ns) of all calls, one after another, on the first processor; the least of some turns."""
    some = cpus if beside else cpus[:1]
    return min(float(calls.times(some, SLICE_S / TURNS, beside, least=3, most=60).low.sum()) for _ in range(TURNS))
