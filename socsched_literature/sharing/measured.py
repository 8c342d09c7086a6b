"""Measured times of networks on shares of a GPU: the curves of the law `measured`, and their errors.

The data file in this folder was written by tools/literature/gpu_shares.py; it names command, device, date and
versions.  Times may rise a little with the share (other SMs, clocks); the curve is the least-squares fit that never
rises, by pooling adjacent violators (Ayer et al., Annals of Mathematical Statistics, 1955), and `fit_errors` gives its
error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from socsched.errors import InputError
from socsched_literature.sharing.interference import LinearInterference, Running
from socsched_literature.sharing.profile import Curve, Profile, Sample, ShareLaw

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
