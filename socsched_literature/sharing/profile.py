"""Resource needs of a network on an accelerator: latency by batch and share, and its load on caches and memory.

Latencies on the whole accelerator are measured, by batch; between two batches they are interpolated linearly, as in
gpulet's latency model.  Published measurements give occupancies but no latencies by share, so latencies on a share p
are reconstructed from f, the fraction of the accelerator that a batch fills (achieved over theoretical occupancy):

- `amdahl`  t (1 - f + f / p): some kernels need every unit, others few.
- `fixed`   t0 + (t - t0) (1 - f + f / p): the part that does not grow with the batch, t0 from the line through the
  smallest and the largest batch, is launching and waiting, which does not grow on fewer units either.
- `fill`    t max(1, f / p): all kernels fill the accelerator alike.

The first is the least favourable to sharing.  If times on shares are known, `known` uses them: pairs (share, factor on
the time on the whole), of which the next smaller share counts.
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from socsched.errors import InputError, UsageError

ShareLaw = Literal["amdahl", "fixed", "fill", "known"]


@dataclass(frozen=True, slots=True)
class Sample:
    """A batch alone on the whole accelerator: its latency, and the shares (0 to 1) it fills and loads."""

    batch: int
    latency_ns: int
    fill: float
    l2: float = 0.0
    dram: float = 0.0


@dataclass(frozen=True)
class Profile:
    """A served network; `samples` by rising batch, `slo_ns` from the arrival of a request to its answer.

    `longer`: for the law `known`, the slowdown factors by rising share in percent.
    """

    name: str
    slo_ns: int
    samples: tuple[Sample, ...]
    law: ShareLaw = "amdahl"
    longer: tuple[tuple[int, float], ...] = ()
    _known: dict[tuple[int, int], int] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        batches = [one.batch for one in self.samples]
        if not batches or batches != sorted(set(batches)) or batches[0] < 1:
            raise UsageError(f"profile {self.name!r}: expected batches in rising order, got {batches}")

    @property
    def largest(self) -> int:
        """Return the largest measured batch."""
        return self.samples[-1].batch

    def at(self, batch: int) -> Sample:
        """Return the batch on the whole accelerator, interpolated between measured ones; UsageError beyond them."""
        batches = [one.batch for one in self.samples]
        index = bisect_left(batches, batch)
        if batch < 1 or index == len(batches):
            raise UsageError(f"profile {self.name!r}: batch {batch} is not within 1 to {self.largest}")
        if batches[index] == batch or index == 0:
            return self.samples[index]
        low, high = self.samples[index - 1], self.samples[index]
        part = (batch - low.batch) / (high.batch - low.batch)

        def between(a: float, b: float) -> float:
            return a + (b - a) * part

        return Sample(
            batch,
            round(between(low.latency_ns, high.latency_ns)),
            between(low.fill, high.fill),
            between(low.l2, high.l2),
            between(low.dram, high.dram),
        )

    @property
    def fixed_ns(self) -> int:
        """Return the batch-independent part of the latency, from the line through the outer samples."""
        first, last = self.samples[0], self.samples[-1]
        if first is last:
            return 0
        slope = (last.latency_ns - first.latency_ns) / (last.batch - first.batch)
        return max(0, round(first.latency_ns - slope * first.batch))

    def latency(self, batch: int, share: int) -> int:
        """Return the time (ns) of a batch alone on `share` percent of the accelerator."""
        known = self._known.get((batch, share))
        if known is None:
            sample = self.at(batch)
            known = self._known[batch, share] = max(1, round(self.stretched(sample, share / 100)))
        return known

    def stretched(self, sample: Sample, part: float) -> float:
        """Return the time (ns) on a share (above 0 to 1) of a batch sampled on the whole accelerator, by the law."""
        return _LAWS[self.law](self, sample, part)

    def saturated(self, share: int, slack: float = 1.0) -> tuple[int, float]:
        """Return the largest batch b with 2 L(b) slack <= SLO on a share, and its requests per second, or (0, 0.0).

        In the worst case a request waits for the preceding batch, hence twice the latency (Nexus, SOSP 2019, section
        6.1).
        """
        for batch in range(self.largest, 0, -1):
            taken = self.latency(batch, share) * slack
            if 2 * taken <= self.slo_ns:
                return batch, batch * 1e9 / taken
        return 0, 0.0


def _amdahl(profile: Profile, sample: Sample, part: float) -> float:
    return sample.latency_ns * (1 - sample.fill + sample.fill / part)


def _fixed(profile: Profile, sample: Sample, part: float) -> float:
    still = min(profile.fixed_ns, sample.latency_ns)
    return still + (sample.latency_ns - still) * (1 - sample.fill + sample.fill / part)


def _fill(profile: Profile, sample: Sample, part: float) -> float:
    return sample.latency_ns * max(1.0, sample.fill / part)


def _known(profile: Profile, sample: Sample, part: float) -> float:
    below = [one for one in profile.longer if one[0] <= part * 100 + 1e-9]
    if below:
        return sample.latency_ns * below[-1][1]
    share, longer = profile.longer[0]
    return sample.latency_ns * longer * share / 100 / part


_LAWS: dict[ShareLaw, Callable[[Profile, Sample, float], float]] = {
    "amdahl": _amdahl, "fixed": _fixed, "fill": _fill, "known": _known,
}  # fmt: skip


# Slowdown of a part due to its neighbours: gpulet's linear model with published constants.
#
# Choi et al., "Serving heterogeneous machine learning models on multi-GPU servers with spatio-temporal sharing",
# USENIX ATC 2022, section 4.4: latency is multiplied by c0 l2_me + c1 l2_you + c2 dram_me + c3 dram_you + c4, where
# utilisations of the whole GPU are scaled by the share of the part.  A neighbour never speeds a part up, so the
# factor is at least 1. The model covers pairs; adding the loads of several neighbours is our extension.


@dataclass(frozen=True, slots=True)
class Running:
    """A batch of a network on a share (percent)."""

    profile: Profile
    batch: int
    share: int


class Interference(Protocol):
    """Interface of interference models."""

    def factor(self, me: Running, others: Sequence[Running]) -> float:
        """Return the factor by which `others` on the same accelerator stretch `me`, at least 1."""


@dataclass(frozen=True, slots=True)
class NoInterference:
    """Parts without mutual interference."""

    def factor(self, me: Running, others: Sequence[Running]) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True, slots=True)
class LinearInterference:
    """Constants of gpulet's model, in the order of its file: L2 of me and you, DRAM of me and you, intercept."""

    l2_me: float
    l2_you: float
    dram_me: float
    dram_you: float
    rest: float

    def predicted(self, me: Running, others: Sequence[Running]) -> float:
        """Return the factor of the published formula, which may be below 1."""
        mine = me.profile.at(me.batch)
        part = me.share / 100
        l2 = dram = 0.0
        for other in others:
            yours = other.profile.at(other.batch)
            l2 += yours.l2 * other.share / 100
            dram += yours.dram * other.share / 100
        return (
            self.l2_me * mine.l2 * part
            + self.l2_you * l2
            + self.dram_me * mine.dram * part
            + self.dram_you * dram
            + self.rest
        )

    def factor(self, me: Running, others: Sequence[Running]) -> float:
        """Return the factor by which `others` stretch `me`."""
        return max(1.0, self.predicted(me, others)) if others else 1.0


@dataclass(frozen=True, slots=True)
class SharedBandwidth:
    """Memory shared in proportion to demand: the memory time of a part stretches once the total exceeds the bandwidth.

    A sample's `dram` is the share of the bandwidth it uses on the whole accelerator; on a part its demand is lower, as
    it takes longer.  Equivalent to max-min sharing among equals (`cost.contention`), without its rounds.
    """

    def factor(self, me: Running, others: Sequence[Running]) -> float:
        """Return the factor by which `others` stretch `me`."""
        mine = _asked(me)
        total = mine + sum(map(_asked, others))
        return 1.0 + mine * (total - 1.0) if total > 1 else 1.0


def _asked(one: Running) -> float:
    return (
        one.profile.at(one.batch).dram * one.profile.latency(one.batch, 100) / one.profile.latency(one.batch, one.share)
    )


# Profiles in the format gpulet's authors published: a CSV of networks by batch, a CSV of interference constants.
#
# Columns: network, batch, duration (ms), utilisation of SMs, L2 and DRAM, achieved and theoretical occupancy (percent);
# github.com/casys-kaist/glet, resource/GPU/UTIL.CSV and INT_MODEL_CONSTANT.CSV.


MS = 1_000_000


def read_profiles(file: Path, law: ShareLaw = "amdahl") -> list[Profile]:
    """Return the networks of a CSV file by name; InputError gives file, line and the expected format.

    The objective of each is twice the latency of its largest batch, the rule of gpulet's authors.
    """
    rows: dict[str, list[Sample]] = {}
    for line, cells in _lines(file):
        name, *numbers = cells
        values = _numbers(file, line, numbers[:7], 7)
        batch, duration, _, l2, dram, achieved, theoretical = values
        if batch < 1 or batch != int(batch) or duration <= 0 or not 0 < achieved <= theoretical:
            raise InputError(f"{file}:{line}: expected a batch of at least 1, a duration above 0, an occupancy reached")
        sample = Sample(int(batch), round(duration * MS), achieved / theoretical, l2 / 100, dram / 100)
        rows.setdefault(name, []).append(sample)
    found = []
    for name in sorted(rows):
        samples = sorted(rows[name], key=lambda one: one.batch)
        if len({one.batch for one in samples}) < len(samples):
            raise InputError(f"{file}: {name} has a batch twice")
        found.append(Profile(name, 2 * samples[-1].latency_ns, tuple(samples), law))
    if not found:
        raise InputError(f"{file}: no networks", hint="expected lines NETWORK,BATCH,MS,SM%,L2%,DRAM%,OCCUPANCY%,LIMIT%")
    return found


def read_constants(file: Path) -> LinearInterference:
    """Return the interference model of a CSV file with a header and five constants; InputError otherwise."""
    for line, cells in _lines(file):
        return LinearInterference(*_numbers(file, line, cells, 5))
    raise InputError(f"{file}: expected five constants in the second line")


def _lines(file: Path) -> Iterator[tuple[int, list[str]]]:
    with file.open(encoding="utf-8", newline="") as stream:
        for number, row in enumerate(csv.reader(stream), 1):
            if number > 1 and row:
                yield number, row


def _numbers(file: Path, line: int, fields: list[str], count: int) -> list[float]:
    try:
        values = [float(value) for value in fields]
    except ValueError as error:
        raise InputError(f"{file}:{line}: {error}") from None
    if len(values) != count:
        raise InputError(f"{file}:{line}: expected {count} numbers, got {len(values)}")
    return values
