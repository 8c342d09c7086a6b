"""GSLICE: shares and batches adapted to measurements.

Dhakal, Kulkarni & Ramakrishnan, "GSLICE: controlled spatial sharing of GPUs for a scalable inference platform", SoCC
2020.  Computed every period for each network: residual latency (SLO - latency) / SLO and residual throughput (capacity
- rate) / rate.  If both lie between 0 and a threshold, the share stays.  Otherwise it changes by the larger magnitude
of the two: up if either is not positive, down if both are; the batch changes by the residual latency.  A new share
needs a new process: a standby is started and takes over, with less than 100 us of downtime (`mechanisms`,
`Simulation.change`).

Reconstructed from the loop in gpulet's code (self_tuning.cpp), as the paper was not available.  Options for open
points: whether latency is the mean (as there) or the 99th percentile; `threshold`; `largest_change` at a time.
Capacity is requests answered per busy second.  As written the rule oscillates: a network with little spare time but
much spare capacity shrinks by the larger residual and is late next time; a barely late network also grows by the larger
one.  With `careful`, our addition and the default, only the smaller residual decides, and the target is half the
threshold.  For batches the latency is twice the execution of a batch (including the wait for the previous one): with
the whole latency an overloaded network would shrink its batch, and with it its capacity.  If shares exceed the total,
the smallest are granted first (max-min fair, as there).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from typing import Literal

from socsched_literature.sharing.deployment import Demand, Deployment, ModelOutcome, Part, Served
from socsched_literature.sharing.serving import Simulation


@dataclass(frozen=True, slots=True)
class Options:
    """Constants: shares are multiples of `grain` percent and at least `least`; all other values are fractions of 1.

    `margin`: a careful residual latency below it counts as zero, since one period is only a sample of the tail.
    """

    threshold: float = 0.2
    largest_change: float = 0.5
    grain: int = 5
    least: int = 5
    latency: Literal["mean", "p99"] = "p99"
    careful: bool = True
    margin: float = 0.05


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of a network in a period: latency and execution of a batch (ns), capacity and rate (1/s)."""

    latency_ns: float
    batch_ns: float
    capacity: float
    rate: float

    def residuals(self, slo_ns: int) -> tuple[float, float]:
        """Return residual latency and residual throughput."""
        return (slo_ns - self.latency_ns) / slo_ns, (self.capacity - self.rate) / self.rate


def next_share(share: float, measured: Measured, slo_ns: int, options: Options = Options()) -> float:
    """Return the share required by the measurement, not yet rounded or balanced against others."""
    latency, throughput = measured.residuals(slo_ns)
    if options.careful:
        latency -= options.margin
    scarce = min(latency, throughput)
    if 0 < latency < options.threshold and 0 < throughput < options.threshold:
        return share
    change = max(abs(latency), abs(throughput))
    if options.careful:
        # Aim at the middle of the band: grow by the deficit, shrink by what both residuals can spare.
        change = abs(scarce - options.threshold / 2) if not 0 < scarce <= options.threshold else 0.0
    change = min(options.largest_change, change) * share
    return share - change if scarce > 0 else share + change


def next_batch(batch: int, largest: int, measured: Measured, slo_ns: int) -> int:
    """Return the batch required by the residual latency of batches, within 1 and `largest`."""
    residual = max(-1.0, (slo_ns - 2 * measured.batch_ns) / slo_ns)
    wanted = batch + residual * batch
    return max(1, min(largest, ceil(wanted) if residual > 0 else floor(wanted)))


def fair(wanted: Mapping[str, float], options: Options = Options()) -> dict[str, int]:
    """Return shares in percent that fit together, the smallest requests granted in full first (max-min fair)."""
    room = 100 // options.grain
    granted: dict[str, int] = {}
    for left, (name, wish) in enumerate(sorted(wanted.items(), key=lambda one: (one[1], one[0]))):
        even = room // (len(wanted) - left)
        cells = max(ceil(options.least / options.grain), ceil(wish / options.grain - 1e-9))
        granted[name] = min(cells, even) * options.grain
        room -= granted[name] // options.grain
    return granted


@dataclass(slots=True)
class Gslice:
    """The controller of one accelerator, to be called every period; `trail` records its decisions with their times."""

    demands: Sequence[Demand]
    device: int = 0
    options: Options = field(default_factory=Options)
    trail: list[tuple[int, dict[str, int], dict[str, int]]] = field(default_factory=list)
    shares: dict[str, int] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    _busy_until: int = 0

    def start(self) -> Deployment:
        """Return the first deployment: equal shares, single requests."""
        even = 100 // len(self.demands) // self.options.grain * self.options.grain
        self.shares = {one.profile.name: even for one in self.demands}
        self.batches = {one.profile.name: 1 for one in self.demands}
        self.trail = [(0, dict(self.shares), dict(self.batches))]
        return Deployment(self._parts())

    def _parts(self) -> tuple[Part, ...]:
        return tuple(
            Part(self.device, self.shares[name], (Served(one.profile, self.batches[name], one.rate),))
            for one in self.demands
            for name in [one.profile.name]
        )

    def __call__(self, now: int, simulation: Simulation) -> None:
        """Update shares and batches from the period that ends at `now`."""
        if now < self._busy_until:
            # A standby is starting: the measurements still belong to the old share.
            return
        period = now - self.trail[-1][0] if len(self.trail) == 1 else simulation.period_ns
        wanted: dict[str, float] = {}
        for one in self.demands:
            name, slo = one.profile.name, one.profile.slo_ns
            seen = measure(simulation.window[name], period, slo, self.options)
            share = float(self.shares[name])
            wanted[name] = next_share(share, seen, slo, self.options) if seen else share
            if seen:
                self.batches[name] = next_batch(self.batches[name], one.profile.largest, seen, slo)
        shares = fair(wanted, self.options)
        if shares != self.shares:
            self.shares = shares
            self._busy_until = simulation.change(now, self.device, self._parts())
        for name, batch in self.batches.items():
            simulation.limit(self.device, name, batch)
        self.trail.append((now, dict(self.shares), dict(self.batches)))


def measure(window: ModelOutcome, period_ns: int, slo_ns: int, options: Options) -> Measured | None:
    """Return the measurements of a network in a window, None if no request arrived."""
    if not window.arrived:
        return None
    latency = window.mean_ns if options.latency == "mean" else float(window.percentile(0.99))
    if window.dropped > 0.01 * window.arrived:
        # Dropped requests waited longer than the objective but are missing from the latencies.
        latency = max(latency, 1.1 * slo_ns)
    capacity = len(window.latencies) * 1e9 / window.busy_ns if window.busy_ns else 0.0
    execution = window.busy_ns / window.batches if window.batches else 0.0
    return Measured(latency, execution, capacity, window.arrived * 1e9 / period_ns)
