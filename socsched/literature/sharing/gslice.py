"""GSLICE: shares and batches that learn from what was measured.

Dhakal, Kulkarni & Ramakrishnan, "GSLICE: controlled spatial sharing of GPUs for a scalable inference platform", SoCC
2020.  Every period, of each network: residual latency (SLO - latency) / SLO and residual throughput (capacity - rate)
/ rate.  Both between 0 and a threshold: the share stays.  Otherwise it changes by the larger magnitude of the two, up
where one is not positive, down where both are; the batch changes by the residual latency.  A new share needs a new
process: a standby one is started and takes over, with less than 100 us of downtime (`mechanisms`,
`Simulation.change`).

Reconstructed after the loop in gpulet's code (self_tuning.cpp), where the paper was not at hand.  Options for what is
left open: whether latency is the mean (as there) or the 99th percentile; `threshold`; `largest_change` at a time;
capacity is requests answered in a busy second.  As written the rule swings: a network with little time but much
capacity to spare gives back by the larger of the two and is late next time, one that is hardly late takes by the
larger too.  With `careful`, ours and the default, the scarcer residual alone decides, and half the threshold is aimed
at.  For batches the latency is twice the execution of a batch (waiting for the one before): by the whole latency an
overloaded network would shrink its batch, and with it its capacity.  Where shares ask for more than there is, the
smallest are granted first (max-min fair, as there).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from typing import Literal

from socsched.literature.sharing.deployment import Demand, Deployment, Part, Served
from socsched.literature.sharing.outcome import ModelOutcome
from socsched.literature.sharing.serving import Simulation


@dataclass(frozen=True, slots=True)
class Options:
    """Constants: shares are multiples of `grain` percent and at least `least`; all in parts of 1 otherwise.

    `margin`: a careful residual latency below it counts as none, since what a period shows of the tail is a sample.
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
    """What a period showed of a network: latency and execution of a batch (ns), requests a second possible and come."""

    latency_ns: float
    batch_ns: float
    capacity: float
    rate: float

    def residuals(self, slo_ns: int) -> tuple[float, float]:
        """Return residual latency and residual throughput."""
        return (slo_ns - self.latency_ns) / slo_ns, (self.capacity - self.rate) / self.rate


def next_share(share: float, measured: Measured, slo_ns: int, options: Options = Options()) -> float:
    """Return the share that the measurement asks for, neither rounded nor fair yet."""
    latency, throughput = measured.residuals(slo_ns)
    if options.careful:
        latency -= options.margin
    scarce = min(latency, throughput)
    if 0 < latency < options.threshold and 0 < throughput < options.threshold:
        return share
    change = max(abs(latency), abs(throughput))
    if options.careful:
        # To the middle of the band: up from what is missing, down from what both can spare.
        change = abs(scarce - options.threshold / 2) if not 0 < scarce <= options.threshold else 0.0
    change = min(options.largest_change, change) * share
    return share - change if scarce > 0 else share + change


def next_batch(batch: int, largest: int, measured: Measured, slo_ns: int) -> int:
    """Return the batch that the residual latency of batches asks for, within 1 and `largest`."""
    residual = max(-1.0, (slo_ns - 2 * measured.batch_ns) / slo_ns)
    wanted = batch + residual * batch
    return max(1, min(largest, ceil(wanted) if residual > 0 else floor(wanted)))


def fair(wanted: Mapping[str, float], options: Options = Options()) -> dict[str, int]:
    """Return shares in percent that fit together, the smallest wishes granted in full first (max-min fair)."""
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
    """The controller of one accelerator: call it every period; `trail` is what it decided, with the time."""

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
        """Learn from the period that ends `now`."""
        if now < self._busy_until:
            # A standby is under way: what was measured is the old share's.
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
    """Return what a window shows of a network, None where nobody asked."""
    if not window.arrived:
        return None
    latency = window.mean_ns if options.latency == "mean" else float(window.percentile(0.99))
    if window.dropped > 0.01 * window.arrived:
        # Who was dropped waited longer than the objective, and is in no latency.
        latency = max(latency, 1.1 * slo_ns)
    capacity = len(window.latencies) * 1e9 / window.busy_ns if window.busy_ns else 0.0
    execution = window.busy_ns / window.batches if window.batches else 0.0
    return Measured(latency, execution, capacity, window.arrived * 1e9 / period_ns)
