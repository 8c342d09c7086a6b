"""Intervals from errors on networks left out: split conformal prediction on log ratios.

Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005: of n exchangeable scores the
ceil((n + 1) * level)-th smallest bounds a new one with probability `level` at least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, expm1, log

import numpy as np

from socsched.cost.timing import Array

LEVEL = 0.88
"""Share of measurements that an interval is to hold."""
ENOUGH = 100
"""Scores of a cell from which its own suffice; below, those of its family are used as well."""
LEAST = log(1.25)
"""Half width (log) below which an interval from fewer networks than the level needs is not believed."""


@dataclass(frozen=True, slots=True)
class Score:
    """|log(predicted / measured)| of a network left out of the fit, by cell and network."""

    cell: str
    network: str
    value: float


def log_errors(predicted: Array, measured: Array) -> Array:
    """Return |log(predicted / measured)|."""
    return np.asarray(np.abs(np.log(predicted / measured)))


def quantile(scores: Sequence[float], level: float = LEVEL) -> float:
    """Return the conformal quantile of scores; the largest score where there are too few for the level."""
    ordered = sorted(scores)
    return ordered[min(ceil((len(ordered) + 1) * level), len(ordered)) - 1]


def half_width(scores: Sequence[Score], cell: str, level: float = LEVEL) -> float:
    """Return the half width (log) of a cell's interval from its own scores and those of its family.

    Scores of one network on several boards are not exchangeable with a new network's: with fewer networks than the
    level needs, the width is at least `LEAST`.
    """
    own = [score.value for score in scores if score.cell == cell]
    used = own if len(own) >= ENOUGH else [score.value for score in scores]
    few = ceil((len({score.network for score in scores}) + 1) * level) > len({score.network for score in scores})
    return max(quantile(used, level), LEAST if few else 0.0)


def coverage(scores: Sequence[Score], level: float = LEVEL) -> dict[str, float]:
    """Return the share of networks inside by cell, every network judged by the scores of all others."""
    inside: dict[str, list[bool]] = {}
    for score in scores:
        others = [other for other in scores if other.network != score.network]
        if others:
            inside.setdefault(score.cell, []).append(score.value <= half_width(others, score.cell, level))
    return {cell: float(np.mean(values)) for cell, values in inside.items()}


def relative(width: float) -> float:
    """Return a half width (log) as the share by which the upper limit exceeds the prediction."""
    return expm1(width)
