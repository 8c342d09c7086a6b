"""Figures of a simulation that keeps no trace: counts, exact extremes and sums, and histograms of bounded size.

A histogram has one bin for every value below 2048, and above that 1024 bins for every doubling:

    bin(v) = v                                              for v < 2048
    bin(v) = 2048 + (e - 1) * 1024 + ((v >> e) - 1024)      else, with e = bit_length(v) - 11

so bins are contiguous, and a bin above 2048 is 2**e wide and begins at 1024 * 2**e or above: any two values in it
differ by less than 2**-10 of the smaller.  All non-negative int64 need 55 296 bins (HdrHistogram's layout with 11 bits;
http://hdrhistogram.org).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np

from socsched.planning.plan import Plan
from socsched.trace import metrics

if TYPE_CHECKING:
    from socsched.trace.columns import Ints
    from socsched.trace.io import (
        Ages,
        ChainDocument,
        ExecutionTimes,
        Kind,
        Level,
        ResponseTimes,
        ResultDocument,
        StageDocument,
    )

RESOLUTION = "2^-10"
"""Maximum relative error of a percentile, as stated in ``result.json``."""
EXACT = 2048
BINS = EXACT + (63 - 11) * 1024
"""Number of bins that cover every non-negative int64."""


def bin_of(value: int) -> int:
    """Return the bin of a value of 0 or more."""
    if value < EXACT:
        return value
    e = value.bit_length() - 11
    return EXACT + (e - 1) * 1024 + ((value >> e) - 1024)


def highest(number: int) -> int:
    """Return the largest value in a bin."""
    if number < EXACT:
        return number
    e, place = divmod(number - EXACT, 1024)
    return ((place + 1025) << e + 1) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """A histogram of non-negative values: `counts` by bin (int64; bins beyond its end are empty).

    `count`, `total`, `least` and `most` are exact; the last two are 0 without values.
    """

    counts: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    count: int = 0
    total: int = 0
    least: int = 0
    most: int = 0

    def __add__(self, other: Histogram) -> Histogram:
        """Return the histogram of both sets of values together."""
        counts = np.zeros(max(len(self.counts), len(other.counts)), np.int64)
        counts[: len(self.counts)] += self.counts
        counts[: len(other.counts)] += other.counts
        least = min((h.least for h in (self, other) if h.count), default=0)
        return Histogram(counts, self.count + other.count, self.total + other.total, least, max(self.most, other.most))

    def percentile(self, per_mille: int) -> int:
        """Return the nearest-rank percentile: never below the true one, and above it by less than 2**-10 of it."""
        rank = -(-self.count * per_mille // 1000)
        found = int(np.searchsorted(np.cumsum(self.counts), rank))
        return max(min(highest(found), self.most), self.least)

    def summary(self, wanted: Sequence[str]) -> dict[str, int | None]:
        """Return the statistics named in `wanted`, as in ``result.json``; null without values."""
        if not self.count:
            return dict.fromkeys(wanted)
        found = {name: self.percentile(share) for name, share in metrics.PER_MILLE.items() if name in wanted}
        found |= {"mean": (2 * self.total + self.count) // (2 * self.count), "max": self.most}
        return {name: found[name] for name in wanted}


@dataclass(frozen=True, slots=True, eq=False)
class TaskTotals:
    """Outcomes of the jobs of a task; `exec_ns` of those done, `blocking_ns` the longest of one job."""

    done: int
    dropped: int
    aborted: int
    exec_ns: Histogram
    blocking_ns: int
    preemptions: int


@dataclass(frozen=True, slots=True, eq=False)
class ChainTotals:
    """Outcomes of the frames of a chain's source, as defined by `metrics.chain_figures`."""

    released: int
    completed: int
    missed: int
    dropped: int
    stale: int
    response_ns: Histogram
    age_ns: Histogram


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """The totals of a whole simulation.

    `busy_ns` is summed over an engine's lanes, for each of its operating points.  Power in mW and bandwidth in GB/s as
    (mean, peak), energy in mJ; None if not metered.
    """

    kind: str
    duration_ns: int
    seed: int
    tasks: Mapping[str, TaskTotals]
    chains: Mapping[str, ChainTotals]
    busy_ns: Mapping[str, Sequence[int]]
    power_mw: tuple[float, float] | None
    energy_mj: float | None
    bandwidth_gbps: tuple[float, float] | None


def result(totals: Totals, plan: Plan) -> ResultDocument:
    """Return the figures of `totals` under `plan` in the form of ``result.json``; see `metrics.result`.

    The fields are those of a trace's figures, plus `resolution`, the maximum relative error by which percentiles may
    exceed the true ones.  Counts, means and extremes are exact.  Tasks of the plan come first, in its order.
    """
    stages = {task.name: totals.tasks[task.name] for task in plan.tasks if task.name in totals.tasks}
    stages |= {name: task for name, task in totals.tasks.items() if name not in stages}
    return {
        "schema_version": metrics.SCHEMA_VERSION,
        "kind": cast("Kind", totals.kind),
        "duration_ns": totals.duration_ns,
        "chains": {chain.name: _chain(totals.chains[chain.name]) for chain in plan.chains},
        "stages": {name: _task(task) for name, task in stages.items()},
        "engines": metrics.engine_figures(plan, totals.duration_ns, totals.busy_ns),
        "power_mw": _level(totals.power_mw),
        "energy_mj": None if totals.energy_mj is None else round(totals.energy_mj, 6),
        "bandwidth_gbps": _level(totals.bandwidth_gbps),
        "seed": totals.seed,
        "resolution": RESOLUTION,
    }


def _chain(chain: ChainTotals) -> ChainDocument:
    return {
        "released": chain.released,
        "completed": chain.completed,
        "missed": chain.missed,
        "dropped": chain.dropped,
        "stale": chain.stale,
        "response_time_ns": cast("ResponseTimes", chain.response_ns.summary(metrics.RESPONSE)),
        "data_age_ns": cast("Ages", chain.age_ns.summary(metrics.AGE)),
    }


def _task(task: TaskTotals) -> StageDocument:
    return {
        "jobs": task.done,
        "exec_ns": cast("ExecutionTimes", task.exec_ns.summary(metrics.EXEC)),
        "blocking_ns": task.blocking_ns,
        "preemptions": task.preemptions,
    }


def _level(level: tuple[float, float] | None) -> Level:
    mean, peak = level or (None, None)
    return {"mean": mean if mean is None else round(mean, 6), "peak": peak if peak is None else round(peak, 6)}
