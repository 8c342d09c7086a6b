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

import csv
import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from socsched.errors import InputError, UsageError

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


# Measured times of networks on shares of a GPU: the curves of the law `measured`, and their errors.
#
# The data file in this folder was written by tools/literature/gpu_shares.py; it names command, device, date and
# versions.  Times may rise a little with the share (other SMs, clocks); the curve is the least-squares fit that never
# rises, by pooling adjacent violators (Ayer et al., Annals of Mathematical Statistics, 1955), and `fit_errors` gives
# its error.


FILE = Path(__file__).with_name("shares_h100.json")
OTHERWISE: ShareLaw = "fixed"
"""The law of networks without measurements."""
_MS = 1_000_000


Times = tuple[float, float, float]
"""Median, 10th and 90th percentile in ms."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Occupancy and load of the kernels of a batch, in percent, averaged over time."""

    achieved: float
    achieved_of_all: float
    theoretical: float
    l2: float
    dram: float


@dataclass(frozen=True, slots=True)
class Pair:
    """A network and batch on a share (SMs), alone and co-running with another one."""

    me: tuple[str, int]
    share: int
    you: tuple[str, int]
    beside: int
    alone: Times
    together: Times


@dataclass(frozen=True, slots=True)
class Measurements:
    """The file: `ms` by network, batch and number of SMs (`N again`: repeat), `counters` by network and batch."""

    source: Mapping[str, str | int]
    whole: int
    ms: Mapping[str, Mapping[int, Mapping[str, Times]]]
    counters: Mapping[str, Mapping[int, Counters]]
    pairs: tuple[Pair, ...]

    def medians(self, network: str, batch: int) -> list[tuple[float, float]]:
        """Return (share from 0 to 1, ms) by rising share, using each share's first measurement."""
        times = self.ms[network][batch]
        return sorted((int(name) / self.whole, one[0]) for name, one in times.items() if name.isdecimal())


@cache
def measurements(file: Path = FILE) -> Measurements:
    """Return the measurements of a file; InputError for an invalid file."""
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        return Measurements(
            raw["source"],
            int(raw["source"]["multiprocessors"]),
            {
                network: {int(batch): {sms: _times(one) for sms, one in each.items()} for batch, each in found.items()}
                for network, found in raw["ms"].items()
            },
            {
                network: {int(batch): _counters(one) for batch, one in found.items()}
                for network, found in raw.get("counters", {}).items()
            },
            tuple(_pair(one) for one in raw.get("pairs", ())),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{file}: {reason}", hint="tools/literature/gpu_shares.py writes such files") from None


def _times(values: Sequence[float]) -> Times:
    median, low, high = map(float, values)
    if not 0 < low <= median <= high:
        raise ValueError(f"expected median, 10th and 90th percentile in ms, got {values}")
    return median, low, high


def _counters(values: Mapping[str, float]) -> Counters:
    return Counters(*(float(values[one.name]) for one in fields(Counters)))


def _pair(row: Mapping[str, Any]) -> Pair:
    (me, mine), (you, yours) = row["me"], row["you"]
    alone, together = _times(row["alone"]), _times(row["together"])
    return Pair((str(me), int(mine)), int(row["share"]), (str(you), int(yours)), int(row["beside"]), alone, together)


def falling(values: Sequence[float]) -> list[float]:
    """Return the nearest non-increasing sequence in least squares."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        blocks.append((value, 1))
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            (b, m), (a, n) = blocks.pop(), blocks.pop()
            blocks.append(((a * n + b * m) / (n + m), n + m))
    return [value for value, count in blocks for _ in range(count)]


@cache
def curves(network: str, file: Path = FILE) -> tuple[Curve, ...]:
    """Return the curves of a network by rising batch, empty if it was not measured."""
    found = measurements(file)
    fitted = []
    for batch in sorted(found.ms.get(network, {})):
        points = found.medians(network, batch)
        times = falling([ms for _, ms in points])
        shares = [share for share, _ in points]
        fitted.append(Curve(batch, tuple((p, t / times[-1]) for p, t in zip(shares, times, strict=True))))
    return tuple(fitted)


def law_of(network: str, wanted: ShareLaw) -> ShareLaw:
    """Return the law for a network given the `wanted` one: OTHERWISE if that is `measured` and no curves exist."""
    usable: dict[ShareLaw, bool] = {"measured": bool(curves(network))}
    return wanted if usable.get(wanted, True) else OTHERWISE


def profiles(factor: float = 2.0, file: Path = FILE) -> list[Profile]:
    """Return the networks with counted memory loads, with latencies as measured.

    Objectives are `factor` times the latency of the largest batch, the rule of gpulet's authors.
    """
    found = measurements(file)
    measured = []
    for network, counted in sorted(found.counters.items()):
        samples = tuple(
            Sample(
                batch,
                round(found.medians(network, batch)[-1][1] * _MS),
                min(1.0, one.achieved / one.theoretical),
                one.l2 / 100,
                one.dram / 100,
            )
            for batch, one in sorted(counted.items())
        )
        objective = round(factor * samples[-1].latency_ns)
        measured.append(Profile(network, objective, samples, "measured", curves=curves(network, file)))
    return measured


def running(side: tuple[str, int], sms: int) -> Running:
    """Return a batch of a measured network on `sms` SMs; KeyError for a network whose loads were not counted."""
    network, batch = side
    return Running(_by_name()[network], batch, round(100 * sms / measurements().whole))


@cache
def _by_name() -> dict[str, Profile]:
    return {one.name: one for one in profiles()}


def neighbours(pairs: Sequence[Pair] | None = None) -> LinearInterference:
    """Return gpulet's linear model with least-squares constants for `pairs`, or for all measured pairs."""
    rows, slower = [], []
    for pair in measurements().pairs if pairs is None else pairs:
        me, you = running(pair.me, pair.share), running(pair.you, pair.beside)
        mine, yours = me.profile.at(me.batch), you.profile.at(you.batch)
        part, other = me.share / 100, you.share / 100
        rows.append([mine.l2 * part, yours.l2 * other, mine.dram * part, yours.dram * other, 1.0])
        slower.append(pair.together[0] / pair.alone[0])
    constants = np.linalg.lstsq(np.array(rows), np.array(slower), rcond=None)[0]
    return LinearInterference(*map(float, constants))


def fit_errors(file: Path = FILE) -> list[float]:
    """Return the relative errors of the curves against the measured times, for every point below the whole."""
    found = measurements(file)
    errors = []
    for network in found.ms:
        for curve in curves(network, file):
            points = found.medians(network, curve.batch)
            whole = points[-1][1]
            errors += [abs(curve.longer(share) * whole / ms - 1) for share, ms in points[:-1]]
    return errors


def left_out_errors(file: Path = FILE) -> list[float]:
    """Return the leave-one-out errors at each inner share: of a curve through all other points."""
    errors = []
    for network in measurements(file).ms:
        for curve in curves(network, file):
            for index in range(1, len(curve.points) - 1):
                share, longer = curve.points[index]
                rest = Curve(curve.batch, curve.points[:index] + curve.points[index + 1 :])
                errors.append(abs(rest.longer(share) / longer - 1))
    return errors


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
# github.com/casys-kaist/glet, resource/GPU/UTIL.CSV and INT_MODEL_CONSTANT.CSV.  Objectives are those of the file
# scripts/createSchedulingCases.py there: about twice the latency of a batch of 32 on their GPU.


MS = 1_000_000
OBJECTIVES_MS: Mapping[str, int] = {
    "lenet": 5,
    "googlenet": 66,
    "resnet50": 108,
    "ssd": 202,
    "ssd-mobilenetv1": 202,
    "vgg16": 142,
    "mnasnet1_0": 62,
    "mobilenet_v2": 64,
    "densenet161": 202,
    "bert": 22,
}
"""Network -> objective in ms, as published for a 2080 Ti."""


def read_profiles(
    file: Path, objectives_ns: Mapping[str, int] | None = None, factor: float = 2.0, law: ShareLaw = "amdahl"
) -> list[Profile]:
    """Return the networks of a CSV file by name.

    `objectives_ns` gives the objectives by network; any other network gets `factor` times the latency of its largest
    batch, the rule of gpulet's authors.  With the law `measured`, networks without measurements get the law
    `measured.OTHERWISE`.  InputError gives file, line and the expected format.
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
    given = objectives_ns or {}
    found = []
    for name in sorted(rows):
        samples = sorted(rows[name], key=lambda one: one.batch)
        if len({one.batch for one in samples}) < len(samples):
            raise InputError(f"{file}: {name} has a batch twice")
        objective = given.get(name) or round(factor * samples[-1].latency_ns)
        found.append(Profile(name, objective, tuple(samples), law_of(name, law), curves=curves(name)))
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
