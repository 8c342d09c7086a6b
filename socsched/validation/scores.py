"""Scores of predictions, and whether they keep a bar."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from socsched.cost.measurements import Row
from socsched.descriptor.fields import PRECISIONS
from socsched.descriptor.small_files import LIMITS, BarFile, GroupLimitsFile, LimitsFile
from socsched.validation.document import GroupDocument, ScoresDocument, UnitsDocument
from socsched.validation.predict import Predicted, Prediction

FEWEST_RANKED = 3
"""Cells below which a rank correlation says nothing."""
Group = tuple[str, str, str]
"""Platform, engine and precision, or platform, meter and engines."""
R = TypeVar("R")
P = TypeVar("P", bound=Predicted)


@dataclass(frozen=True, slots=True)
class Cell(Generic[R, P]):
    """One configuration of a network: the row that counts, the prediction for it, what was measured, and its group."""

    row: R
    prediction: P
    measured: float
    group: Group

    @property
    def predicted(self) -> float:
        """Return the predicted figure."""
        return self.prediction.predicted

    @property
    def ratio(self) -> float:
        """Return predicted over measured."""
        return self.predicted / self.measured

    @property
    def inside(self) -> bool:
        """Return whether the measurement lies inside the predicted interval."""
        return self.prediction.holds(self.measured)


TimeCell = Cell[Row, Prediction]


def comparable(cells: Sequence[TimeCell]) -> list[TimeCell]:
    """Return the cells whose measurement the prediction stands for."""
    return [cell for cell in cells if not cell.prediction.apart]


def cells_of(rows: Sequence[Row], predictions: Sequence[Prediction]) -> tuple[list[TimeCell], list[TimeCell]]:
    """Return the cells of the unflagged rows: those with a prediction, and those refused; unusable rows are neither.

    Rows that differ in the measurement only are one cell, of which the fastest counts.
    """
    fastest: dict[tuple[object, ...], TimeCell] = {}
    for row, prediction in zip(rows, predictions, strict=True):
        if row.flag or row.problem:
            continue
        group = (row.platform, row.engine, row.precision)
        key = (*group, prediction.mode, prediction.share, row.network)
        if key not in fastest or row.measured_ms < fastest[key].measured:
            fastest[key] = Cell(row, prediction, row.measured_ms, group)
    return parted(fastest.values())


def parted(cells: Collection[Cell[R, P]]) -> tuple[list[Cell[R, P]], list[Cell[R, P]]]:
    """Return the cells with a prediction, and those refused."""
    return [c for c in cells if not c.prediction.refused], [c for c in cells if c.prediction.refused]


def groups(
    scored: Sequence[TimeCell], refused: Sequence[TimeCell], engines: set[tuple[str, str]]
) -> list[GroupDocument]:
    """Return the scores of every engine and precision; `engines` are those that exist, by platform.

    Cells apart (`comparable`) are counted, not scored.
    """
    names = sorted(
        {cell.group for cell in (*scored, *refused) if cell.group[:2] in engines and cell.group[2] in PRECISIONS}
    )
    return [
        {
            "platform": name[0],
            "engine": name[1],
            "precision": name[2],
            "apart": sum(bool(c.prediction.apart) for c in scored if c.group == name),
            **scores(comparable([c for c in scored if c.group == name]), sum(c.group == name for c in refused)),
        }
        for name in names
    ]


def scores(cells: Sequence[Cell[R, P]], refused: int) -> ScoresDocument:
    """Return the scores of cells with predictions; `refused`: number of those without."""
    ratios = [cell.predicted / cell.measured for cell in cells]
    errors = [abs(ratio - 1) for ratio in ratios]
    return {
        "cells": len(cells),
        "refused": refused,
        "median_ratio": _rounded(np.median(ratios)) if cells else None,
        "mape": _rounded(np.mean(errors)) if cells else None,
        "p90": _rounded(np.quantile(errors, 0.9)) if cells else None,
        "spearman": spearman([cell.predicted for cell in cells], [cell.measured for cell in cells]),
        "inside": _rounded(np.mean([cell.inside for cell in cells])) if cells else None,
    }


def unit_scores(rows: Sequence[Row], predictions: Sequence[Prediction]) -> UnitsDocument | None:
    """Return the scores of predicted units, None where no row names them."""
    pairs = [
        (row, one.falls_back)
        for row, one in zip(rows, predictions, strict=True)
        if row.unit and row.strays is not None and one.falls_back is not None
    ]
    if not pairs:
        return None
    fallen = [(bool(row.strays), bool(left.elsewhere)) for row, left in pairs if row.unit == "npu"]
    units = [(row.unit, left.unit) for row, left in pairs]
    names = dict.fromkeys(unit for unit, _ in units)
    weighted = sum(
        f1([(actual == name, said == name) for actual, said in units]) * sum(actual == name for actual, _ in units)
        for name in names
    )
    return {
        "rows": len(pairs),
        "unit": _rounded(weighted / len(pairs)),
        "unit_right": _rounded(np.mean([actual == said for actual, said in units])),
        "fallen": sum(actual for actual, _ in fallen),
        "hits": sum(actual and said for actual, said in fallen),
        "false": sum(said and not actual for actual, said in fallen),
        "some": _rounded(f1(fallen)) if any(actual for actual, _ in fallen) else None,
    }


def f1(pairs: Sequence[tuple[bool, bool]]) -> float:
    """Return the harmonic mean of precision and recall of (actual, said) pairs."""
    hits, wrong = sum(a and s for a, s in pairs), sum(a != s for a, s in pairs)
    return 2 * hits / (2 * hits + wrong) if hits else 0.0


def spearman(one: Iterable[float], other: Iterable[float]) -> float | None:
    """Return the rank correlation of paired values, ties at their mean rank; None for few values or equal ones."""
    a, b = _ranks(one), _ranks(other)
    if len(a) < FEWEST_RANKED or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return _rounded(np.corrcoef(a, b)[0, 1])


def _ranks(values: Iterable[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    array = np.fromiter(values, np.float64)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    upto = np.cumsum(counts)
    return (upto - (counts - 1) / 2)[inverse]


def _rounded(value: Any) -> float:
    return round(float(value), 6)


_AT_MOST = ("mape", "p90")
_PERCENT = ("mape", "p90", "inside")
_KEYS = ("platform", "engine", "precision", "meter")


def failures(bar: BarFile, overall: ScoresDocument, groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for every limit that is not kept; limits for groups without cells are not kept either.

    `groups`: scores with the fields that name a group (platform, engine, and precision or meter).
    """
    sentences = list(_broken("overall", bar.overall, overall)) if bar.overall else []
    for number, limits in enumerate(bar.groups, 1):
        matching = [one for one in groups if all(getattr(limits, key) in (None, one.get(key)) for key in _KEYS)]
        if not matching:
            sentences.append(f"groups[{number - 1}]: no cell of {_name(limits)} is measured")
        for group in matching:
            name = " ".join(str(group[key]) for key in _KEYS if key in group)
            sentences += _broken(name, limits, group)
    return sentences


def _name(limits: GroupLimitsFile) -> str:
    return " ".join(filter(None, (getattr(limits, key) for key in _KEYS))) or "any engine"


def _broken(name: str, limits: LimitsFile, scores: Mapping[str, Any]) -> Iterator[str]:
    values = dict(scores)
    for key in LIMITS:
        limit, value = getattr(limits, key), values[key]
        if limit is None:
            continue
        bound = f"{'at most' if key in _AT_MOST else 'at least'} {_shown(key, limit)}"
        if not isinstance(value, (int, float)):
            yield f"{name}: {key} is unknown with {scores['cells']} cells, expected {bound}"
        elif value > limit if key in _AT_MOST else value < limit:
            yield f"{name}: {key} is {_shown(key, value)}, expected {bound}"


def _shown(key: str, value: float) -> str:
    return f"{value:.1%}" if key in _PERCENT else f"{value:g}"
