"""Calibration: parameters of a contention model from co-run measurements of whole networks on engines of one SoC.

Rows with times alone and together carry no information about traffic, so they fit ``pairwise``: one factor for every
unordered pair of engine kinds (few rows show both sides), least squares on the logarithm of the slowdown, so that
doubling and halving weigh the same.  Rows with utilisations fit ``linear``; a matrix of bandwidths fits ``pccs``
(`fit_pccs`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from socsched.errors import UsageError

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One measured slowdown: on `board`, `engine` (its kind) co-running with the engines `beside`, times in ns."""

    board: str
    run: str
    engine: str
    beside: tuple[str, ...]
    alone_ns: int
    together_ns: int

    @property
    def slowdown(self) -> float:
        """Return the time together divided by the time alone."""
        return self.together_ns / self.alone_ns


def fit_pairwise(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return the parameters of ``pairwise`` (kind -> co-running kind -> factor, symmetric) fitted to rows of one board.

    Non-negative least squares on logarithms by coordinate descent, as no factor may be below 1.  A pair absent from the
    rows gets no factor.  Raises UsageError without rows.
    """
    if not rows:
        raise UsageError("calibration: no co-run rows to fit factors to")
    pairs = sorted({_pair(row.engine, other) for row in rows for other in row.beside})
    logs = dict.fromkeys(pairs, 0.0)
    for _ in range(200):
        for pair in pairs:
            weight = wanted = 0.0
            for row in rows:
                count = sum(_pair(row.engine, other) == pair for other in row.beside)
                rest = sum(logs[_pair(row.engine, other)] for other in row.beside) - count * logs[pair]
                weight += count * count
                wanted += count * (math.log(row.slowdown) - rest)
            logs[pair] = max(wanted / weight, 0.0)
    factors: dict[str, dict[str, float]] = {}
    for (one, other), value in logs.items():
        factors.setdefault(one, {})[other] = factors.setdefault(other, {})[one] = math.exp(value)
    return factors


def fit_linear(rows: Sequence[tuple[float, float, float, float, float]]) -> dict[str, float]:
    """Return the coefficients of ``linear`` fitted to rows (own L2, others' L2, own DRAM, others' DRAM, slowdown).

    Ordinary least squares; `error` is the residual mean relative error.  Utilisations are shares of 1.  Raises
    UsageError with fewer rows than coefficients.
    """
    import numpy as np

    names = ("l2_me", "l2_you", "dram_me", "dram_you", "constant")
    if len(rows) < len(names):
        raise UsageError(f"calibration: {len(names)} coefficients need as many co-run rows, got {len(rows)}")
    table = np.array([[*row[:4], 1.0] for row in rows])
    slowdowns = np.array([row[4] for row in rows])
    found = np.linalg.lstsq(table, slowdowns, rcond=None)[0]
    error = float(np.mean(np.abs(table @ found / slowdowns - 1)))
    return {**{name: float(value) for name, value in zip(names, found, strict=True)}, "error": error}


def predict(factors: Mapping[str, Mapping[str, float]], row: Row) -> float:
    """Return the slowdown that factors predict for a row; UsageError for a pair without a factor."""
    try:
        return math.prod(factors[row.engine][other] for other in row.beside)
    except KeyError:
        raise UsageError(f"calibration: no row of the fit has the pair {row.engine} and {row.beside}") from None


def _pair(one: str, other: str) -> Pair:
    return (min(one, other), max(one, other))


@dataclass(frozen=True, slots=True)
class Half:
    """A split of rows: fitted to `fitted`, validated on `held`; relative errors (predicted / measured - 1) of both.

    `unknown` counts held rows with a pair absent from the fitted rows, which cannot be predicted.
    """

    fitted: tuple[Row, ...]
    held: tuple[Row, ...]
    errors_fitted: tuple[float, ...]
    errors_held: tuple[float, ...]
    unknown: int


def try_half(fitted: Sequence[Row], held: Sequence[Row]) -> Half:
    """Fit factors board by board to some rows and predict the others."""
    boards = {row.board for row in fitted}
    factors = {board: fit_pairwise([row for row in fitted if row.board == board]) for board in boards}

    def error(row: Row) -> float | None:
        known = factors.get(row.board, {})
        if any(other not in known.get(row.engine, {}) for other in row.beside):
            return None
        return predict(known, row) / row.slowdown - 1

    seen = [e for row in fitted if (e := error(row)) is not None]
    tried = [error(row) for row in held]
    found = tuple(e for e in tried if e is not None)
    return Half(tuple(fitted), tuple(held), tuple(seen), found, tried.count(None))


def all_halves(rows: Sequence[Row]) -> list[Half]:
    """Return every split of the rows into a half to fit (the larger one of an odd number) and a half to predict."""
    indices = range(len(rows))
    return [
        try_half([rows[i] for i in chosen], [rows[i] for i in indices if i not in chosen])
        for chosen in combinations(indices, (len(rows) + 1) // 2)
    ]
