"""gpulet: elastic partitioning of GPUs into at most two parts, by the knee of the throughput curve.

Choi et al., "Serving heterogeneous machine learning models on multi-GPU servers with spatio-temporal sharing", USENIX
ATC 2022 (arXiv 2109.01611), section 4: a network's ideal part is the smaller of the most efficient one (the knee of its
throughput over part sizes) and the one its rate requires; it goes to the free part that fits best, a whole GPU is
split, and so on until the rate is served.  Interference of the pair is predicted for both sides, and a placement that
violates an objective is undone.  Demand that then finds no free part shares one in time.  Published code:
github.com/casys-kaist/glet.

Options cover the differences between paper and code: `order` of networks by rate x objective (falling by name, rising
in the code's behaviour), and whether the knee considers the last step to 100 % (the code does not).  Reconstructed: if
a neighbour loses throughput, the loss is returned to the queue as rate of its network, once (`retries`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from socsched_literature.sharing import nexus
from socsched_literature.sharing.deployment import Demand, Deployment, Part, Served
from socsched_literature.sharing.profile import Interference, NoInterference, Profile, Running


@dataclass(frozen=True, slots=True)
class Options:
    """Constants of the published configuration: part sizes in percent, `slack` on latencies ("latency ratio").

    `gain`: the minimum gain of a larger part (1.05); `most`: networks in a part; `negligible`: share of a network's
    rate that may be left unplaced (the code leaves 15 requests per second, whatever the rate).
    """

    sizes: tuple[int, ...] = (20, 40, 50, 60, 80, 100)
    slack: float = 1.1
    gain: float = 1.05
    most: int = 3
    order: Literal["falling", "rising"] = "rising"
    last_step: bool = True
    negligible: float = 0.01
    retries: int = 2


@dataclass(slots=True, eq=False)
class _Slot:
    device: int
    share: int
    duty_ns: float = 0.0
    served: list[Served] = field(default_factory=list)


def efficient_share(profile: Profile, options: Options = Options()) -> int:
    """Return the knee: the part size at the end of the steepest step of throughput with a gain of at least `gain`.

    If no step gains that much, the smallest part that serves the network at all is the most efficient.
    """
    points = [(size, profile.saturated(size, options.slack)[1]) for size in sorted(options.sizes)]
    points = [point for point in points if point[1] > 0]
    if not points:
        return max(options.sizes)
    best, steepest = points[0][0], 0.0
    steps = list(itertools.pairwise(points))
    for (small, low), (large, high) in steps if options.last_step else steps[:-1]:
        if high / low >= options.gain and (high - low) / (large - small) > steepest:
            best, steepest = large, (high - low) / (large - small)
    return best


def smallest_share(profile: Profile, rate: float, options: Options = Options()) -> int:
    """Return the smallest part that serves `rate` requests per second in time, the largest if none does."""
    for size in sorted(options.sizes):
        if profile.saturated(size, options.slack)[1] >= rate and nexus.residue(profile, rate, size, options.slack):
            return size
    return max(options.sizes)


class _Planner:
    def __init__(self, devices: int, interference: Interference, options: Options) -> None:
        self.options = options
        self.interference = interference
        self.slots = [_Slot(device, 100) for device in range(devices)]
        self.losses: dict[str, float] = {}

    def add(self, demand: Demand) -> float:
        """Place a network and return the rate left unplaced."""
        left, small = demand.rate, demand.rate * self.options.negligible
        while left > small:
            got = self._own(demand.profile, left)
            if not got:
                return self._shared(demand.profile, left, small)
            left -= got
        return 0.0

    def _own(self, profile: Profile, rate: float) -> float:
        """Give a network the best-fitting free part, and return the rate it serves there (0 if none fits)."""
        wanted = min(efficient_share(profile, self.options), smallest_share(profile, rate, self.options))
        free = [slot for slot in self.slots if not slot.served and slot.share >= wanted]
        # Only smaller parts are left: the largest of them is better than none.
        free = free or sorted((slot for slot in self.slots if not slot.served), key=lambda slot: -slot.share)[:1]
        for slot in sorted(free, key=lambda slot: (slot.share, slot.device)):
            share = self._size(slot, wanted)
            served = self._fits(slot, share, profile, rate)
            if served:
                if share < slot.share:
                    self.slots.append(_Slot(slot.device, slot.share - share))
                    slot.share = share
                slot.served, slot.duty_ns = [served], served.batch * 1e9 / served.rate
                self._warn(slot)
                return served.rate
        return 0.0

    def _size(self, slot: _Slot, wanted: int) -> int:
        """Return the size to take of a slot: only a whole GPU is split, and never into more than two parts."""
        rest = slot.share - wanted
        return wanted if slot.share == 100 and rest in self.options.sizes else slot.share

    def _fits(self, slot: _Slot, share: int, profile: Profile, rate: float) -> Served | None:
        """Return the largest batch in time with the current neighbours; None if a neighbour would be late."""
        company = [
            Running(one.profile, one.batch, other.share) for other in self._neighbours(slot) for one in other.served
        ]  # fmt: skip
        choice = self._batch(profile, share, rate, company)
        if choice and all(
            self._refitted(other, Running(profile, choice.batch, share)) for other in self._neighbours(slot)
        ):
            return choice
        return None

    def _batch(self, profile: Profile, share: int, rate: float, company: Sequence[Running]) -> Served | None:
        """Return the largest batch in time with any single co-runner of `company`, and the rate it serves."""
        for batch in range(profile.largest, 0, -1):
            me = Running(profile, batch, share)
            # Networks that take turns in one part run one at a time: the worst of them counts.
            factor = max((self.interference.factor(me, [one]) for one in company), default=1.0)
            latency = profile.latency(batch, share) * self.options.slack * factor
            most = batch * 1e9 / latency
            gathered = batch * 1e9 / rate
            # Either batches run back to back, or each starts once it is complete.
            if 2 * latency <= profile.slo_ns or (latency <= gathered and latency + gathered <= profile.slo_ns):
                return Served(profile, batch, min(rate, most))
        return None

    def _neighbours(self, slot: _Slot) -> list[_Slot]:
        return [other for other in self.slots if other is not slot and other.device == slot.device and other.served]

    def _refitted(self, other: _Slot, me: Running) -> list[Served]:
        """Return the adapted service of a neighbour next to `me`: smaller batches, a lower rate; empty if late."""
        if len(other.served) == 1:
            one = other.served[0]
            choice = self._batch(one.profile, other.share, one.rate, [me])
            return [choice] if choice else []
        for one in other.served:
            latency = one.profile.latency(one.batch, other.share) * self.options.slack
            latency *= self.interference.factor(Running(one.profile, one.batch, other.share), [me])
            if latency + other.duty_ns > one.profile.slo_ns:
                return []
        return other.served

    def _warn(self, slot: _Slot) -> None:
        """Adapt the neighbours to the network placed in `slot`, and record the throughput they lose."""
        newcomer = slot.served[0]
        me = Running(newcomer.profile, newcomer.batch, slot.share)
        for other in self._neighbours(slot):
            adapted = self._refitted(other, me)
            for before, after in zip(other.served, adapted, strict=True):
                if after.rate < before.rate:
                    name = before.profile.name
                    self.losses[name] = self.losses.get(name, 0.0) + before.rate - after.rate
            other.served = adapted
            if len(adapted) == 1:
                other.duty_ns = adapted[0].batch * 1e9 / adapted[0].rate

    def _shared(self, profile: Profile, rate: float, small: float) -> float:
        """Let a network take turns with others if all stay in time, and return its remaining rate."""
        turns = nexus.Options(self.options.slack, self.options.most)
        while rate > small:
            best: tuple[float, nexus.Turn, _Slot] | None = None
            for slot in self.slots:
                if not slot.served:
                    continue
                now = nexus.Turn(slot.share, slot.duty_ns, tuple(slot.served))
                # A fraction of the rate may fit where the whole does not.
                for part in (1.0, 0.75, 0.5, 0.25):
                    mine = nexus.residue(profile, rate * part, slot.share, self.options.slack)
                    merged = mine and nexus.merge(now, mine, turns)
                    if merged:
                        score = rate * part + merged.occupancy(turns.slack)
                        if best is None or score > best[0]:
                            best = (score, merged, slot)
                        break
            if best is None:
                return rate
            _, merged, slot = best
            slot.served, slot.duty_ns = list(merged.served), merged.duty_ns
            rate -= merged.served[-1].rate
        return 0.0


def schedule(
    demands: Sequence[Demand],
    devices: int,
    interference: Interference | None = None,
    options: Options = Options(),
) -> Deployment:
    """Return parts of `devices` equal GPUs for `demands`; unplaced demand is `unserved`."""
    planner = _Planner(devices, interference or NoInterference(), options)
    sign = -1 if options.order == "falling" else 1
    waiting = sorted(demands, key=lambda one: (sign * one.rate * one.profile.slo_ns, one.profile.name))
    profiles = {one.profile.name: one.profile for one in demands}
    missing: dict[str, float] = {}
    for _ in range(1 + options.retries):
        for demand in waiting:
            left = planner.add(demand)
            if left > 0:
                missing[demand.profile.name] = missing.get(demand.profile.name, 0.0) + left
        waiting = [Demand(profiles[name], rate) for name, rate in sorted(planner.losses.items())]
        planner.losses = {}
    parts = tuple(
        Part(slot.device, slot.share, tuple(slot.served))
        for slot in sorted(planner.slots, key=lambda slot: (slot.device, -slot.share))
    )
    for demand in waiting:
        missing[demand.profile.name] = missing.get(demand.profile.name, 0.0) + demand.rate
    return Deployment(parts, tuple(Demand(profiles[name], rate) for name, rate in sorted(missing.items())))
