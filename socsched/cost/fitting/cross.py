"""Errors of predictions for what a fit has not seen: a network, all networks of a design, a board left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from socsched.cost.fitting.conformal import Score, log_errors
from socsched.cost.fitting.families import Family, design
from socsched.cost.fitting.least import Cell, Fitted, fit
from socsched.cost.timing import Array, job_times

Group = Callable[[Cell, str], str]
"""Names the group of a cell's network; groups are left out one at a time."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Predictions (us) by cell: of the fit itself, with the network, its design and the board left out."""

    fitted: dict[str, Array]
    network: dict[str, Array]
    design: dict[str, Array]
    board: dict[str, Array]


def predict_left_out(cells: Sequence[Cell], family: Family, group: Group, start: Fitted) -> dict[str, Array]:
    """Return predictions (us) by cell, those of a group from a fit of all other groups."""
    labels = {cell.name: np.array([group(cell, network) for network in cell.networks]) for cell in cells}
    found = {cell.name: np.zeros(len(cell.networks)) for cell in cells}
    for label in sorted({str(one) for names in labels.values() for one in names}):
        keep = {name: names != label for name, names in labels.items()}
        fitted = fit(cells, family, keep, start.solution)
        for cell in cells:
            out = ~keep[cell.name]
            if out.any():
                found[cell.name][out] = job_times(cell.work, cell.engine, fitted.parameters(cell))[out]
    return found


def cross_validate(cells: Sequence[Cell], family: Family, fitted: Fitted) -> Errors:
    """Return the predictions of a family's cells that measure how well its fit generalises."""
    return Errors(
        {cell.name: job_times(cell.work, cell.engine, fitted.parameters(cell)) for cell in cells},
        predict_left_out(cells, family, lambda _, network: network, fitted),
        predict_left_out(cells, family, lambda _, network: design(network), fitted),
        predict_left_out(cells, family, lambda cell, _: cell.board.split(".")[0], fitted),
    )


def mean_error(cells: Sequence[Cell], predicted: dict[str, Array]) -> float:
    """Return the mean absolute relative error over the networks of cells."""
    return float(np.mean(np.concatenate([np.abs(predicted[cell.name] / cell.measured_us - 1) for cell in cells])))


def scores_of(cells: Sequence[Cell], predicted: dict[str, Array]) -> tuple[Score, ...]:
    """Return the conformal scores of predictions with the network left out."""
    return tuple(
        Score(cell.name, network, float(value))
        for cell in cells
        for network, value in zip(cell.networks, log_errors(predicted[cell.name], cell.measured_us), strict=True)
    )
