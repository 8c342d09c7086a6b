"""Requests: arrival times by network, drawn from a seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

SECOND = 1_000_000_000
Arrivals = Literal["poisson", "periodic"]


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a network, at `arrival_ns`."""

    arrival_ns: int
    model: str


def one_source(rate: float, duration_ns: int, arrivals: Arrivals, seed: str) -> Iterator[int]:
    """Return the instants (ns) before `duration_ns` at which a source of `rate` requests per second issues requests.

    `periodic` starts at a random phase within the first period; each source draws from a separate stream.
    """
    if rate <= 0:
        return
    draw = random.Random(seed)
    now = draw.random() * SECOND / rate if arrivals == "periodic" else draw.expovariate(rate) * SECOND
    while now < duration_ns:
        yield round(now)
        now += SECOND / rate if arrivals == "periodic" else draw.expovariate(rate) * SECOND


def requests(
    rates: Mapping[str, float], duration_ns: int, arrivals: Arrivals = "poisson", seed: int = 0
) -> list[Request]:
    """Return all requests of networks with `rates` requests per second, in order of arrival."""
    sources = [
        [Request(at, name) for at in one_source(rate, duration_ns, arrivals, f"{seed}/{name}")]
        for name, rate in sorted(rates.items())
    ]
    return list(heapq.merge(*sources, key=lambda one: one.arrival_ns))


def merge_streams(streams: Sequence[Sequence[Request]]) -> list[Request]:
    """Return several streams of requests as one, in order of arrival."""
    return list(heapq.merge(*streams, key=lambda one: one.arrival_ns))
