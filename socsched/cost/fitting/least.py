"""Least squares of log ratios over an engine family's parameters, with a log-normal prior on every one.

Cells (an engine in a precision and mode) of a family share its medians: the unknowns are the family's logarithms, terms
that some boards share, and a deviation of each board.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from socsched.cost.fitting.families import Family
from socsched.cost.timing import NAMES, Array, Nominal, Parameters, Table, from_logs, padded, slopes

BEND = 2.0
"""Residual, in spreads, beyond which a measurement counts less (an outlier)."""
ALONE = 0.4
"""Share of a board's own spread that remains where its core and its precision have terms as well."""
MANY = 5
"""Networks of a cell from which its family's noise holds; fewer (anchors) are believed no better than `LOOSE`."""
LOOSE = 0.12
"""Spread (log) of a few measurements: an error of the model must not be taken for a property of the board."""
SIZE = len(NAMES)


@dataclass(frozen=True, slots=True)
class Cell:
    """Measured times (us) of networks on an engine in a precision, mode and share.

    `board` names the engine and precision whose parameters are sought: modes and hosts differ in their nominal figures
    only.  `shares` names the terms that boards have in common beyond the family's (a core, a precision): in logarithms
    parameters are the sum of the family's, of these and of the board's own.
    """

    name: str
    board: str
    engine: Nominal
    work: Table
    measured_us: Array
    networks: tuple[str, ...]
    shares: tuple[str, ...] = ()

    @property
    def terms(self) -> tuple[str, ...]:
        """Return the names of the terms whose sum is this cell's parameters."""
        return ("family", *self.shares, f"board {self.board}")


@dataclass(frozen=True, slots=True)
class Fitted:
    """Terms by name (logarithms in the order of `timing.NAMES`); `solution` starts a fit of other data nearby."""

    terms: Mapping[str, Array]
    solution: Array

    @property
    def family(self) -> Parameters:
        """Return the family's medians."""
        return from_logs(self.terms["family"])

    def parameters(self, cell: Cell) -> Parameters:
        """Return a cell's parameters; terms that were not fitted are those of an average board."""
        return from_logs(np.sum([self.terms[name] for name in cell.terms if name in self.terms], axis=0))


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
        self.macs = [padded(cell.work, cell.engine.block) for cell in cells]
        at = {name: slice(SIZE * n, SIZE * (n + 1)) for n, name in enumerate(self.blocks)}
        self.places = [[at[name] for name in cell.terms] for cell in cells]

    def linear(self, x: Array) -> tuple[float, Array, Array]:
        """Return the cost, the residuals weighted as soft L1 (2 b^2 (sqrt(1 + (r/b)^2) - 1)), and their Jacobian."""
        pulled = (x - self.centre) / self.spread
        rows, columns, cost = [pulled], [np.diag(1 / self.spread)], float(pulled @ pulled)
        for cell, places, keep, macs, noise in zip(
            self.cells, self.places, self.keep, self.macs, self.noises, strict=True
        ):
            if not keep.any():
                continue
            parameters = from_logs(np.sum([x[place] for place in places], axis=0))
            times, change = slopes(cell.work, cell.engine, parameters, macs)
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
        return Fitted({name: x[SIZE * n : SIZE * (n + 1)] for n, name in enumerate(self.blocks)}, x)
