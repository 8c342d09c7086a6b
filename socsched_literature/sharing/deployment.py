"""Deployments: parts of accelerators and the networks in them."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Literal

from socsched.errors import UsageError
from socsched_literature.sharing.profile import Profile

# Ways to share an accelerator as data: the kind of partition and the isolation of parts.
#
# Table II of Yu et al., "A survey of multi-tenant deep learning inference on GPU", arXiv 2203.09040, distinguishes
# streams, MPS and MIG by exactly these properties; time slicing and green contexts are described by the same ones.
# Planners and the serving simulation depend on the properties only, not on names.


MS = 1_000_000

Partition = Literal["none", "time", "logical", "physical"]


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A way to share an accelerator.

    `partition`: nothing is partitioned, or time, or units by convention, or the hardware.  `most`: parts at a time, 0
    for any number.  `compute_isolated`: the compute speed of a part is independent of the others;
    `bandwidth_isolated`: so are caches and memory.  `switch_ns`: time lost when the engine switches between parts of a
    time-shared one, every `slice_ns`.
    """

    name: str
    partition: Partition
    most: int
    compute_isolated: bool
    bandwidth_isolated: bool
    slice_ns: int = 0
    switch_ns: int = 0
    source: str = ""

    @property
    def concurrent(self) -> bool:
        """Return whether several parts compute at the same instant."""
        return self.partition != "time"

    def admits(self, shares: tuple[int, ...]) -> bool:
        """Return whether parts of these percentages may exist on one accelerator at a time."""
        if self.most and len(shares) > self.most:
            return False
        if not self.compute_isolated:
            return all(share == 100 for share in shares)
        return sum(shares) <= 100 and all(share > 0 for share in shares)


_SURVEY = "Yu et al., arXiv 2203.09040, Table II"
MECHANISMS: dict[str, Mechanism] = {
    one.name: one
    for one in (
        Mechanism("streams", "none", 0, False, False, source=_SURVEY),
        Mechanism(
            "time-slicing", "time", 0, False, False, slice_ns=2 * MS, switch_ns=100_000,
            source="assumed: default time slice of the driver about 2 ms, a context switch some 0.1 ms",
        ),
        Mechanism("mps", "logical", 48, True, False, source=_SURVEY),
        Mechanism(
            "green-contexts", "logical", 0, True, False,
            source="assumed: CUDA 12.4 contexts of SMs; groups of SMs (8 on Hopper, 4 on Orin) are not modelled",
        ),
        Mechanism("mig", "physical", 7, True, True, source=_SURVEY),
    )
}  # fmt: skip


def mechanism(name: str) -> Mechanism:
    """Return the mechanism of this name; UsageError naming the known ones if there is none."""
    if name not in MECHANISMS:
        raise UsageError(f"unknown way to share {name!r}", hint=f"known: {', '.join(MECHANISMS)}")
    return MECHANISMS[name]


@dataclass(frozen=True, slots=True)
class Served:
    """A network in a part: batches of at most `batch`, planned for `rate` requests per second."""

    profile: Profile
    batch: int
    rate: float


@dataclass(frozen=True, slots=True)
class Part:
    """`share` percent of accelerator `device`, and the networks that take turns in it."""

    device: int
    share: int
    served: tuple[Served, ...]

    def __str__(self) -> str:
        inside = ", ".join(f"{one.profile.name} b{one.batch} {one.rate:.0f}/s" for one in self.served)
        return f"{self.device}:{self.share}% {inside or 'free'}"


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests per second of a network."""

    profile: Profile
    rate: float


@dataclass(frozen=True, slots=True)
class Deployment:
    """Parts in use, and the requests per second of networks left without a part."""

    parts: tuple[Part, ...]
    unserved: tuple[Demand, ...] = ()

    @property
    def devices(self) -> int:
        """Return the number of accelerators used."""
        return len({part.device for part in self.parts if part.served})

    @property
    def complete(self) -> bool:
        """Return whether all demands are served."""
        return not self.unserved


# Requests: arrival times by network, drawn from a seed.


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


# Outcome of requests, per network and in total.


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
