"""What a family's fit misses of measured networks, and so of networks near them: kriging of log ratios.

Engines of one family miss the same networks alike, since one compiler treats their layers alike, so that a network
measured on one board says more of another board than the family's parameters do.  Residuals are a Gaussian process over
`nearness.between` with an exponential covariance, partly one over all precisions, plus noise of every cell (Rasmussen,
Williams, "Gaussian Processes for Machine Learning", 2006, equations 2.25 and 2.30).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from socsched.cost.fitting.table import Array
from socsched.cost.nearness import REACH, between, kin
from socsched.graph.operators import Place

FARTHEST = 1.5
"""Residual (log) that counts at most: a factor of 4.5 is another program, not a property of the network."""
SPREADS = (0.03, 0.06, 0.1, 0.15, 0.2, 0.3)
NOISES = (0.05, 0.1, 0.15, 0.2, 0.3)
"""Standard deviations (log) that are tried."""
WORTH = 3.0
"""Logarithm of the odds from which residuals are held to have something in common (Jeffreys: strong evidence)."""


@dataclass(frozen=True, slots=True)
class Residuals:
    """Weights by precision and network, of which predictions nearby are the sum; none: residuals are noise."""

    weights: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)

    def of(self, precision: str, networks: Sequence[str], places: Sequence[Place]) -> Array:
        """Return log(measured / predicted) to be expected of networks."""
        names = [(other, name) for other, weights in self.weights.items() for name in weights]
        if not names or not places:
            return np.zeros(len(networks))
        weights = np.array([self.weights[other][name] * kin(precision, other) for other, name in names])
        away = [[between(place, self.places[name]) for _, name in names] for place in places]
        return np.asarray(np.exp(-np.array(away) / REACH) @ weights)


def residuals(points: Sequence[tuple[str, str, Place, float]]) -> Residuals:
    """Return the weights for the residuals (log) of networks, each with its precision, name, place and value.

    Several boards' residuals of one network and precision count by their mean.  Spread and noise are those of the
    greatest likelihood.
    """
    groups, places = defaultdict(list), {name: place for _, name, place, _ in points}
    for precision, name, _, value in points:
        groups[precision, name].append(min(max(value, -FARTHEST), FARTHEST))
    keys = sorted(groups)
    if len(keys) < 2:
        return Residuals()
    mean, count = np.array([np.mean(groups[key]) for key in keys]), np.array([len(groups[key]) for key in keys])
    within = sum(
        float(np.sum(np.square(np.array(groups[key]) - middle))) for key, middle in zip(keys, mean, strict=True)
    )
    names = sorted(places)
    apart = np.array([[between(places[a], places[b]) for b in names] for a in names])
    at = np.array([names.index(name) for _, name in keys])
    common = np.array([[kin(a, b) for b, _ in keys] for a, _ in keys]) * np.exp(-apart[np.ix_(at, at)] / REACH)

    def evidence(spread: float, noise: float) -> float:
        lower = np.linalg.cholesky(spread**2 * common + np.diag(noise**2 / count))
        white = np.linalg.solve(lower, mean)
        among = within / (2 * noise**2) + (count.sum() - len(keys)) * np.log(noise)  # boards around their mean
        return float(-white @ white / 2 - np.log(np.diag(lower)).sum() - among)

    alone = max(evidence(0.0, noise) for noise in NOISES)
    likely, spread, noise = max((evidence(spread, noise), spread, noise) for spread in SPREADS for noise in NOISES)
    if likely - alone < WORTH:
        return Residuals()
    weights = spread**2 * np.linalg.solve(spread**2 * common + np.diag(noise**2 / count), mean)
    found: dict[str, dict[str, float]] = {}
    for (precision, name), weight in zip(keys, weights, strict=True):
        found.setdefault(precision, {})[name] = float(weight)
    return Residuals(found, places)
