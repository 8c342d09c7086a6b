"""Outcome of requests, per network and in total."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil


@dataclass(slots=True)
class ModelOutcome:
    """Counts of a network's requests, the latencies (ns) of those answered, and the time their batches ran."""

    name: str
    slo_ns: int
    arrived: int = 0
    dropped: int = 0
    within: int = 0
    batches: int = 0
    busy_ns: int = 0
    latencies: list[int] = field(default_factory=list)

    def answer(self, latency_ns: int) -> None:
        """Count an answer."""
        self.latencies.append(latency_ns)
        self.within += latency_ns <= self.slo_ns

    @property
    def mean_ns(self) -> float:
        """Return the mean latency, 0 without answers."""
        return sum(self.latencies) / len(self.latencies) if self.latencies else 0.0

    def percentile(self, share: float) -> int:
        """Return the smallest latency that `share` (0 to 1) of the answers do not exceed, 0 without answers."""
        ranked = sorted(self.latencies)
        return ranked[max(0, ceil(share * len(ranked)) - 1)] if ranked else 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run: time in which requests arrived, time of the last answer; busy ns by accelerator and part."""

    duration_ns: int
    end_ns: int
    models: tuple[ModelOutcome, ...]
    busy_ns: Mapping[tuple[int, int], int]
    changes: int = 0

    @property
    def arrived(self) -> int:
        """Return the number of requests that arrived."""
        return sum(one.arrived for one in self.models)

    @property
    def within(self) -> int:
        """Return the number of requests answered within their objective."""
        return sum(one.within for one in self.models)

    @property
    def satisfaction(self) -> float:
        """Return the share of requests answered within their objective, 1 if none arrived."""
        return self.within / self.arrived if self.arrived else 1.0

    @property
    def worst(self) -> float:
        """Return the lowest satisfaction of any network."""
        return min((one.within / one.arrived for one in self.models if one.arrived), default=1.0)

    @property
    def goodput(self) -> float:
        """Return requests per second answered within their objective."""
        return self.within * 1e9 / self.duration_ns
