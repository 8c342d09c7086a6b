"""Resource needs of a network on an accelerator: latency by batch and share, and its load on caches and memory.

Latencies on the whole accelerator are measured, by batch; between two batches they are interpolated linearly, as in
gpulet's latency model.  Published measurements give occupancies but no latencies by share, so latencies on a share p
are reconstructed from f, the fraction of the accelerator that a batch fills (achieved over theoretical occupancy):

- `amdahl`  t (1 - f + f / p): some kernels need every unit, others few.
- `fixed`   t0 + (t - t0) (1 - f + f / p): the part that does not grow with the batch, t0 from the line through the
  smallest and the largest batch, is launching and waiting, which does not grow on fewer units either.
- `fill`    t max(1, f / p): all kernels fill the accelerator alike.

- `measured` the time of the network on shares of a GPU (`sharing.measured`), relative to the whole: linear in 1 / p
  between two shares, linear between two batches, in inverse proportion below the smallest share.

The first is the least favourable to sharing.  If times on shares are known, `known` uses them: pairs (share, factor on
the time on the whole), of which the next smaller share counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from socsched.errors import UsageError

ShareLaw = Literal["amdahl", "fixed", "fill", "known", "measured"]


@dataclass(frozen=True, slots=True)
class Sample:
    """A batch alone on the whole accelerator: its latency, and the shares (0 to 1) it fills and loads."""

    batch: int
    latency_ns: int
    fill: float
    l2: float = 0.0
    dram: float = 0.0


@dataclass(frozen=True, slots=True)
class Curve:
    """A measured batch on shares: by rising share (0 to 1, the last is 1), the factor on the time on the whole."""

    batch: int
    points: tuple[tuple[float, float], ...]

    def longer(self, part: float) -> float:
        """Return the factor on the time on the whole for a share."""
        index = bisect_left(self.points, part, key=lambda point: point[0])
        if index == 0:
            share, longer = self.points[0]
            return longer * share / part
        if index == len(self.points):
            return self.points[-1][1]
        (low, slow), (high, fast) = self.points[index - 1], self.points[index]
        return fast + (slow - fast) * (1 / part - 1 / high) / (1 / low - 1 / high)


@dataclass(frozen=True)
class Profile:
    """A served network; `samples` by rising batch, `slo_ns` from the arrival of a request to its answer.

    `longer`: for the law `known`, the slowdown factors by rising share in percent.  `curves`: for the law `measured`,
    by rising batch; UsageError if there are none.
    """

    name: str
    slo_ns: int
    samples: tuple[Sample, ...]
    law: ShareLaw = "amdahl"
    longer: tuple[tuple[int, float], ...] = ()
    curves: tuple[Curve, ...] = ()
    _known: dict[tuple[int, int], int] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        batches = [one.batch for one in self.samples]
        if not batches or batches != sorted(set(batches)) or batches[0] < 1:
            raise UsageError(f"profile {self.name!r}: expected batches in rising order, got {batches}")
        if self.law == "measured" and not self.curves:
            raise UsageError(
                f"{self.name!r} was not measured on shares", hint="choose another law for it, such as fixed"
            )

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


def _measured(profile: Profile, sample: Sample, part: float) -> float:
    curves = profile.curves
    index = bisect_left(curves, sample.batch, key=lambda curve: curve.batch)
    low, high = curves[max(index - 1, 0)], curves[min(index, len(curves) - 1)]
    where = (sample.batch - low.batch) / (high.batch - low.batch) if high.batch > low.batch else 0.0
    return sample.latency_ns * (low.longer(part) * (1 - where) + high.longer(part) * where)


_LAWS: dict[ShareLaw, Callable[[Profile, Sample, float], float]] = {
    "amdahl": _amdahl, "fixed": _fixed, "fill": _fill, "known": _known, "measured": _measured,
}  # fmt: skip
