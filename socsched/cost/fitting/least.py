"""Least squares of log ratios over an engine family's parameters, with a log-normal prior on every one.

Cells (an engine in a precision and mode) of a family share its medians: the unknowns are the family's logarithms, terms
that some boards share, and a deviation of each board.

Errors are those of what a fit has not seen: a network, all networks of a design, a board left out.  Intervals are
split conformal predictions from them (log ratios).
Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005: of n exchangeable scores the
ceil((n + 1) * level)-th smallest bounds a new one with probability `level` at least.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, expm1, log
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from socsched.cost.fitted import REACH, between, distance, kin
from socsched.cost.fitting.families import Family, design
from socsched.cost.fitting.table import Array, Table, from_logs, job_times, slopes
from socsched.cost.timing import Nominal
from socsched.descriptor.fit import NAMES, Parameters
from socsched.graph.operators import Place

# What a family's fit misses of measured networks, and so of networks near them: kriging of log ratios.
#
# Engines of one family miss the same networks alike, since one compiler treats their layers alike, so that a network
# measured on one board says more of another board than the family's parameters do.  Residuals are a Gaussian process
# over `fitted.between` with an exponential covariance, partly one over all precisions, plus noise of every cell
# (Rasmussen, Williams, "Gaussian Processes for Machine Learning", 2006, equations 2.25 and 2.30).

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


LEVEL = 0.88
"""Share of measurements that an interval is to hold."""
LEAST = log(1.25)
"""Half width (log) below which an interval from fewer networks than the level needs is not believed."""


@dataclass(frozen=True, slots=True)
class Score:
    """|log(predicted / measured)| of a network left out of the fit, and its distance to the nearest one left in."""

    cell: str
    network: str
    value: float
    distance: float

    @property
    def precision(self) -> str:
        """Return the precision of the cell."""
        return ".".join(self.cell.split(" ")[0].split(".")[2:3])


class Doubt(NamedTuple):
    """Half width (log) of the interval of a network as those measured, and what a distance of 1 adds to it."""

    near: float
    far: float

    def width(self, distance: float) -> float:
        """Return the half width (log) at a distance."""
        return self.near + self.far * distance


MANY_SCORES = 30
"""Scores of a precision from which its own quantile scales its widths; fewer take that of all precisions."""
AFAR = 2.5
"""Error of networks without a layer in common with the measured ones, over the mean: as Hexagons, measured most."""


def log_errors(predicted: Array, measured: Array) -> Array:
    """Return |log(predicted / measured)|."""
    return np.asarray(np.abs(np.log(predicted / measured)))


def quantile(scores: Sequence[float], level: float = LEVEL) -> float:
    """Return the conformal quantile of scores; the largest score where there are too few for the level."""
    ordered = sorted(scores)
    return ordered[min(ceil((len(ordered) + 1) * level), len(ordered)) - 1]


def doubt(scores: Sequence[Score], precision: str = "", level: float = LEVEL) -> Doubt:
    """Return the widths of intervals of networks in a precision.

    Least squares of the scores over a constant and the distance, none below zero (at a distance of 1 pulled to `AFAR`
    mean errors, since few networks are far), then scaled by the quantile of score over width (normalised conformal
    prediction: Papadopoulos, Gammerman, Vovk, "Normalized nonconformity measures", AIA 2008).  Scores of one
    network on several boards are not exchangeable with a new network's: with fewer networks
    than the level needs, no width is below `LEAST`.
    """
    values, away = (np.array([getattr(score, name) for score in scores]) for name in ("value", "distance"))
    columns = np.stack([np.ones(len(scores)), away], axis=1)
    pulled, mean = np.vstack([columns, [0.0, 1.0]]), float(np.mean(values))
    slope = np.full(2, mean / 2)
    for _ in range(500):  # multiplicative updates stay positive (Lee, Seung, 2001)
        slope *= (pulled.T @ [*values, AFAR * mean]) / np.maximum(pulled.T @ (pulled @ slope), 1e-12)
    ratios = values / np.maximum(columns @ slope, 1e-12)
    own = [float(one) for one, score in zip(ratios, scores, strict=True) if score.precision == precision]
    chosen = own if len(own) >= MANY_SCORES else ratios.tolist()
    scale = quantile(chosen, level)
    if len(chosen) < MANY_SCORES:  # the largest of few says little: no more than a normal distribution's
        scale = min(scale, NormalDist().inv_cdf((1 + level) / 2) * float(np.sqrt(np.mean(np.square(chosen)))))
    near, far = slope * scale
    networks = len({score.network for score in scores})
    least = LEAST if ceil((networks + 1) * level) > networks else 0.0
    return Doubt(max(float(near), least), float(far))


def judged(scores: Sequence[Score], part: Callable[[Score], str]) -> list[tuple[Score, float]]:
    """Return scores with half widths (log) that those of other parts give, the parts left out in ten groups."""
    found: list[tuple[Score, float]] = []
    names = sorted({part(score) for score in scores})
    groups = min(10, len(names))
    for group in range(groups if groups > 1 else 0):
        out = set(names[group::groups])
        others = [score for score in scores if part(score) not in out]
        known = {name: doubt(others, name) for name in {score.precision for score in scores}}
        found += [(one, known[one.precision].width(one.distance)) for one in scores if part(one) in out]
    return found


def relative(width: float) -> float:
    """Return a half width (log) as the share by which the upper limit exceeds the prediction."""
    return expm1(width)


BEND = 2.0
"""Residual, in spreads, beyond which a measurement counts less (an outlier)."""
ALONE = 0.4
"""Share of a board's own spread that remains where its core and its precision have terms as well."""
MANY = 5
"""Networks of a cell from which its family's noise holds; fewer (anchors) are believed no better than `LOOSE`."""
LOOSE = 0.2
"""Spread (log) of a few measurements: an error of the model must not be taken for a property of the board."""
SIZE = len(NAMES)


@dataclass(frozen=True, slots=True)
class Cell:
    """Measured times (us) of networks on an engine in a precision, mode and share.

    `board` names the engine and precision whose parameters are sought: modes and hosts differ in their nominal figures
    only.  `shares` names the terms that boards have in common beyond the family's (a core, a precision): in logarithms
    parameters are the sum of the family's, of these and of the board's own.  `places`: those of the networks.
    """

    name: str
    board: str
    engine: Nominal
    work: Table
    measured_us: Array
    networks: tuple[str, ...]
    shares: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()

    @property
    def platform(self) -> str:
        """Return the platform's name."""
        return self.board.split(".")[0]

    @property
    def precision(self) -> str:
        """Return the precision."""
        return ".".join(self.board.split(".")[2:3])

    @property
    def terms(self) -> tuple[str, ...]:
        """Return the names of the terms whose sum is this cell's parameters."""
        return ("family", *self.shares, f"board {self.board}")


@dataclass(frozen=True, slots=True)
class Fitted:
    """Terms by name (logarithms in the order of `timing.NAMES`), and what they miss of the networks that count.

    `solution` starts a fit of other data nearby.
    """

    terms: Mapping[str, Array]
    solution: Array
    residuals: Residuals = field(default_factory=Residuals)

    @property
    def family(self) -> Parameters:
        """Return the family's medians."""
        return from_logs(self.terms["family"])

    def parameters(self, cell: Cell) -> Parameters:
        """Return a cell's parameters; terms that were not fitted are those of an average board."""
        return from_logs(np.sum([self.terms[name] for name in cell.terms if name in self.terms], axis=0))

    def times(self, cell: Cell) -> Array:
        """Return the times (us) predicted for a cell's networks."""
        missed = self.residuals.of(cell.precision, cell.networks, cell.places)
        return np.asarray(job_times(cell.work, self.parameters(cell)) * np.exp(missed))


def fit(
    cells: Sequence[Cell],
    family: Family,
    keep: Mapping[str, Array] | None = None,
    start: Array | None = None,
    rounds: int = 60,
) -> Fitted:
    """Return the parameters of least cost (Levenberg 1944, Marquardt 1963); deterministic.

    `keep` masks the networks that count, by cell; `start` is the solution of a fit of the same cells.
    """
    problem = _Problem(cells, family, keep)
    x, damping = problem.centre.copy() if start is None else start, 1e-2
    cost, residual, jacobian = problem.linear(x)
    for _ in range(rounds):
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ residual
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient)
        trial = x - np.clip(step, -1.0, 1.0)
        tried = problem.linear(trial)
        if tried[0] < cost:
            done = cost - tried[0] < 1e-5 * cost
            x, (cost, residual, jacobian), damping = trial, tried, damping * 0.3
            if done:
                break
        elif damping > 1e6:
            break
        else:
            damping *= 5
    return problem.fitted(x)


class _Problem:
    """Residuals over x = the family's logarithms, then those of every shared term and of every board."""

    def __init__(self, cells: Sequence[Cell], family: Family, keep: Mapping[str, Array] | None) -> None:
        self.cells = list(cells)
        shared = dict.fromkeys(name for cell in cells for name in cell.shares)
        boards = {cell.terms[-1]: ALONE if cell.shares else 1.0 for cell in cells}
        self.blocks = ["family", *shared, *boards]
        own = np.array([family.own[name] for name in NAMES])
        medians = np.log([family.prior[name][0] for name in NAMES])
        self.centre = np.concatenate([medians, np.zeros(SIZE * (len(self.blocks) - 1))])
        spread = np.array([family.prior[name][1] for name in NAMES])
        self.spread = np.concatenate([spread, *(own for _ in shared), *(own * share for share in boards.values())])
        self.keep = [np.ones(cell.work.count, bool) if keep is None else keep[cell.name] for cell in cells]
        self.noises = [family.noise if keep.sum() >= MANY else max(LOOSE, family.noise) for keep in self.keep]
        at = {name: slice(SIZE * n, SIZE * (n + 1)) for n, name in enumerate(self.blocks)}
        self.places = [[at[name] for name in cell.terms] for cell in cells]

    def linear(self, x: Array) -> tuple[float, Array, Array]:
        """Return the cost, the residuals weighted as soft L1 (2 b^2 (sqrt(1 + (r/b)^2) - 1)), and their Jacobian."""
        pulled = (x - self.centre) / self.spread
        rows, columns, cost = [pulled], [np.diag(1 / self.spread)], float(pulled @ pulled)
        for cell, places, keep, noise in zip(self.cells, self.places, self.keep, self.noises, strict=True):
            if not keep.any():
                continue
            parameters = from_logs(np.sum([x[place] for place in places], axis=0))
            times, change = slopes(cell.work, parameters)
            scaled = np.log(times / cell.measured_us)[keep] / noise
            root = np.sqrt(1 + (scaled / BEND) ** 2)
            weight = np.sqrt(1 / root)
            block = np.zeros((len(scaled), len(x)))
            for place in places:
                block[:, place] = (change / times[:, None])[keep] / noise * weight[:, None]
            rows.append(scaled * weight)
            columns.append(block)
            cost += float(np.sum(2 * BEND**2 * (root - 1)))
        return cost, np.concatenate(rows), np.vstack(columns)

    def fitted(self, x: Array) -> Fitted:
        plain = Fitted({name: x[SIZE * n : SIZE * (n + 1)] for n, name in enumerate(self.blocks)}, x)
        points = []
        for cell, keep in zip(self.cells, self.keep, strict=True):
            missed = np.log(cell.measured_us / job_times(cell.work, plain.parameters(cell)))
            rows = zip(cell.networks, cell.places, missed, keep, strict=True) if cell.places else ()
            points += [(cell.precision, name, place, float(value)) for name, place, value, kept in rows if kept]
        return replace(plain, residuals=residuals(points))


Group = Callable[[Cell, str], str]
"""Names the group of a cell's network; groups are left out one at a time."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Predictions (us) by cell: of the fit itself, with the network, its design, the board, and both left out."""

    fitted: dict[str, Array]
    network: dict[str, Array]
    design: dict[str, Array]
    board: dict[str, Array]
    both: dict[str, Array]


FOLDS = 6
"""Parts that groups are left out in at most: one fit each."""


def predict_left_out(cells: Sequence[Cell], family: Family, group: Group, start: Fitted) -> dict[str, Array]:
    """Return predictions (us) by cell, those of a group from a fit without it (and the groups of its fold)."""
    labels = {cell.name: np.array([group(cell, network) for network in cell.networks]) for cell in cells}
    names = sorted({str(one) for own in labels.values() for one in own})
    found = {cell.name: np.zeros(len(cell.networks)) for cell in cells}
    for part in range(min(FOLDS, len(names))):
        keep = {name: ~np.isin(own, names[part :: min(FOLDS, len(names))]) for name, own in labels.items()}
        fitted = fit(cells, family, keep, start.solution)
        for cell in cells:
            out = ~keep[cell.name]
            if out.any():
                found[cell.name][out] = fitted.times(cell)[out]
    return found


def both_left_out(cells: Sequence[Cell], family: Family, start: Fitted) -> dict[str, Array]:
    """Return predictions (us) by cell with the board and the network's design left out together."""
    found: dict[str, Array] = {}
    for board in sorted({cell.platform for cell in cells}):

        def group(cell: Cell, network: str, board: str = board) -> str:
            return board if cell.platform == board else design(network)

        ours = [cell for cell in cells if cell.platform == board]
        labels = sorted({design(network) for cell in ours for network in cell.networks})
        for part in range(min(2, len(labels))):
            out = set(labels[part::2])
            keep = {
                c.name: np.array([group(c, n) != board and design(n) not in out for n in c.networks]) for c in cells
            }
            fitted = fit(cells, family, keep, start.solution)
            for cell in ours:
                place = np.array([design(network) in out for network in cell.networks])
                times = fitted.times(cell)
                found.setdefault(cell.name, np.zeros(len(times)))[place] = times[place]
    return found


def learned(cells: Sequence[Cell], family: Family, board: str, samples: Sequence[int]) -> dict[int, dict[str, Array]]:
    """Return predictions (us) for a board by how many networks of it were measured (ascending), then by cell.

    Networks are drawn from those that the board's cells have, the same whenever it is called; a prediction of one that
    was drawn is not a number.
    """
    ours = [cell for cell in cells if cell.platform == board]
    names = sorted({network for cell in ours for network in cell.networks})
    order = [names[n] for n in np.random.default_rng(0).permutation(len(names))]
    found: dict[int, dict[str, Array]] = {}
    start = None
    for count in samples:
        if count >= len(order):
            break
        drawn = set(order[:count])
        keep = {c.name: np.array([c.platform != board or n in drawn for n in c.networks]) for c in cells}
        fitted = fit(cells, family, keep, start)
        start = fitted.solution
        found[count] = {cell.name: np.where(keep[cell.name], np.nan, fitted.times(cell)) for cell in ours}
    return found


def cross_validate(cells: Sequence[Cell], family: Family, fitted: Fitted) -> Errors:
    """Return the predictions of a family's cells that measure how well its fit generalises."""
    return Errors(
        {cell.name: fitted.times(cell) for cell in cells},
        predict_left_out(cells, family, lambda _, network: network, fitted),
        predict_left_out(cells, family, lambda _, network: design(network), fitted),
        predict_left_out(cells, family, lambda cell, _: cell.platform, fitted),
        both_left_out(cells, family, fitted),
    )


def mean_error(cells: Sequence[Cell], predicted: Mapping[str, Array]) -> float:
    """Return the mean absolute relative error over the networks of cells."""
    return float(np.mean(np.concatenate([np.abs(predicted[cell.name] / cell.measured_us - 1) for cell in cells])))


def scores_of(
    cells: Sequence[Cell], predicted: Mapping[str, Array], alike: Callable[[str], str] | None = design
) -> tuple[Score, ...]:
    """Return the conformal scores of predictions, less those that are no numbers.

    Networks that are `alike` (have the same label) were left out together; None: no network was, only boards.
    """
    places = {name: one for cell in cells for name, one in zip(cell.networks, cell.places, strict=False)}

    def away(name: str) -> float:
        if alike is None or name not in places:
            return 0.0
        return distance(places[name], (other for one, other in places.items() if alike(one) != alike(name)))

    known = {name: away(name) for cell in cells for name in cell.networks}
    return tuple(
        Score(cell.name, network, float(value), known[network])
        for cell in cells
        for network, value in zip(cell.networks, log_errors(predicted[cell.name], cell.measured_us), strict=True)
        if np.isfinite(value)
    )
