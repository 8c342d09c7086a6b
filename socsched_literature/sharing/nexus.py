"""Squishy bin packing: whole accelerators shared in time (Nexus; Shen et al., SOSP 2019, section 6.1, algorithm 1).

A network whose rate fills accelerators gets them exclusively, at the largest batch b with 2 L(b) <= SLO
(ScheduleSaturate).  The rest of each is a residue: batches are gathered for a duty cycle d = b / rate, L(b) + d <= SLO,
and occupy L(b) / d of an accelerator.  Residues are merged, best fit by falling occupancy: the merged duty cycle is the
shorter one, every batch shrinks to the requests that arrive in it, all batches together must fit into it, and all
objectives must still hold (ScheduleResidue): a request waits for the duty cycle and all batches, or, as parts do not
idle until a batch is full, twice for all batches.  This is the baseline of gpulet ("SBP"), and gpulet's way to share a
part in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from socsched_literature.sharing.deployment import Demand, Deployment, Part, Served
from socsched_literature.sharing.profile import Profile


@dataclass(frozen=True, slots=True)
class Options:
    """`slack` multiplies latencies in planning (gpulet: "latency ratio" 1.1); `most` networks share a part."""

    slack: float = 1.1
    most: int = 3


@dataclass(frozen=True, slots=True)
class Turn:
    """Networks that take turns on `share` percent, each once in `duty_ns`."""

    share: int
    duty_ns: float
    served: tuple[Served, ...]

    def occupancy(self, slack: float) -> float:
        """Return the share of the duty cycle that is used."""
        return sum(one.profile.latency(one.batch, self.share) for one in self.served) * slack / self.duty_ns


def residue(profile: Profile, rate: float, share: int, slack: float) -> Turn | None:
    """Return the turn with the largest batch that gathers `rate` requests per second in time, None if there is none."""
    for batch in range(profile.largest, 0, -1):
        taken, duty = profile.latency(batch, share) * slack, batch * 1e9 / rate
        if taken <= duty and taken + duty <= profile.slo_ns:
            return Turn(share, duty, (Served(profile, batch, rate),))
    # Less than one request per permitted wait: each is served on arrival.
    duty = 1e9 / rate
    if profile.latency(1, share) * slack <= min(duty, profile.slo_ns):
        return Turn(share, duty, (Served(profile, 1, rate),))
    # No duty cycle fits: dedicate the part, with back-to-back batches of the requests that have arrived.
    batch, most = profile.saturated(share, slack)
    return Turn(share, batch * 1e9 / most, (Served(profile, batch, rate),)) if most >= rate > 0 else None


def merge(one: Turn, other: Turn, options: Options) -> Turn | None:
    """Return both as turns on the share of `one`, None if the load is too high or a network would be late."""
    served = (*one.served, *other.served)
    if len(served) > options.most or len({each.profile.name for each in served}) < len(served):
        return None
    duty = min(one.duty_ns, other.duty_ns)
    fitted = tuple(replace(each, batch=max(1, ceil(each.rate * duty / 1e9 - 1e-9))) for each in served)
    if any(each.batch > each.profile.largest for each in fitted):
        return None
    busy = sum(each.profile.latency(each.batch, one.share) for each in fitted) * options.slack
    # A request that just missed its turn waits for a duty cycle and, at worst, for all batches.
    if busy > duty or any(duty + busy > each.profile.slo_ns and busy * 2 > each.profile.slo_ns for each in fitted):
        return None
    return Turn(one.share, duty, fitted)


def schedule(demands: Sequence[Demand], devices: int, options: Options = Options()) -> Deployment:
    """Return whole accelerators shared in time; unplaced demand is `unserved`."""
    full: list[Turn] = []
    left: list[Turn] = []
    unserved: list[Demand] = []
    for demand in demands:
        batch, most = demand.profile.saturated(100, options.slack)
        rate = demand.rate
        while batch and rate >= most:
            full.append(Turn(100, batch * 1e9 / most, (Served(demand.profile, batch, most),)))
            rate -= most
        if rate > 1e-9:
            turn = residue(demand.profile, rate, 100, options.slack)
            if turn:
                left.append(turn)
            else:
                unserved.append(Demand(demand.profile, rate))
    bins: list[Turn] = []
    for turn in sorted(left, key=lambda one: (-one.occupancy(options.slack), one.served[0].profile.name)):
        fits = [(merged, i) for i, bin in enumerate(bins) if (merged := merge(bin, turn, options))]
        if fits:
            best, index = max(fits, key=lambda fit: (fit[0].occupancy(options.slack), -fit[1]))
            bins[index] = best
        else:
            bins.append(turn)
    turns = [*full, *bins]
    placed = tuple(Part(i, 100, turn.served) for i, turn in enumerate(turns[:devices]))
    for turn in turns[devices:]:
        unserved += [Demand(one.profile, one.rate) for one in turn.served]
    return Deployment(placed, tuple(unserved))
