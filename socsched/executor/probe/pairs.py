"""What two programs that compute at once on two cores cost each other: networks alone, and beside a copy."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from socsched.executor.probe.calls import Calls, copy
from socsched.executor.probe.own import Program

SLICE_S, TURNS = 0.04, 2
_STREAM = 1 << 26
"""Bytes of a copy that no cache holds."""


def time_pairs(programs: Sequence[Program], cpus: Sequence[int]) -> tuple[float, list[float]]:
    """Return the bandwidth (bytes/s) of a copy beyond every cache, and the slowdown of networks that run beside it."""
    beside = copy(_STREAM)
    slower = [_time(one.launches, cpus, beside) / _time(one.launches, cpus) for one in programs]
    return 2.0 * _STREAM / _time(beside, cpus) * 1e9, [max(factor, 1.0) for factor in slower]


def contention(demand: float, slower: Sequence[float], capacity: float) -> dict[str, float]:
    """Return the parameters of the linear model that factors show under a bandwidth of `capacity` (bytes/s).

    Only what runs beside a network counts: most of what its own kernels move stays in caches.
    """
    mean = statistics.mean(slower)
    error = statistics.mean(abs(mean - factor) / factor for factor in slower)
    found = {"dram_you": (mean - 1) / min(demand / capacity, 1.0), "constant": 1.0, "error": error}
    return {"l2_me": 0.0, "l2_you": 0.0, "dram_me": 0.0, **{name: round(value, 3) for name, value in found.items()}}


def _time(calls: Calls, cpus: Sequence[int], beside: Calls | None = None) -> float:
    """Return the time (ns) of all calls, one after another, on the first processor; the least of some turns."""
    some = cpus if beside else cpus[:1]
    return min(float(calls.times(some, SLICE_S / TURNS, beside, least=3, most=60).low.sum()) for _ in range(TURNS))
