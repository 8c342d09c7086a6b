"""Calibration: parameters of a contention model from co-run measurements of whole networks on engines of one SoC.

Rows with times alone and together carry no information about traffic, so they fit ``pairwise``: one factor for every
unordered pair of engine kinds (few rows show both sides), least squares on the logarithm of the slowdown, so that
doubling and halving weigh the same.  Rows with utilisations fit ``linear``; a matrix of bandwidths fits ``pccs``
(`fit_pccs`).

PCCS parameters of an engine from a matrix of measurements, by the procedure of the authors' tool.

The matrix holds kernels of growing standalone bandwidth on the engine (rows), each under growing external demand from
the other engines (columns).  The procedure is that of ``model_construction`` in github.com/processorcentricmodel/PCCS,
thresholds included, so that parameters agree with published ones; arbitrary rules are marked in comments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from socsched.cost.contention.models import Curve
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


_GB = 1e9
_MINOR = 10.0
"""Largest loss (%) of the lightest kernel under the heaviest load for which a minor region exists."""

Matrix = Sequence[Sequence[float]]


def fit_pccs(standalone: Sequence[float], external: Sequence[float], achieved: Matrix) -> Curve:
    """Return the curve of an engine from standalone, external and achieved bandwidths (bytes/s, ascending).

    `achieved[i][j]` is the bandwidth of kernel i under external demand j.  Raises UsageError if the shapes disagree or
    if even the lightest kernel is slowed, as the procedure then finds no minor region to start from.
    """
    if len(achieved) != len(standalone) or any(len(row) != len(external) for row in achieved):
        raise UsageError("PCCS: expected one achieved bandwidth for every pair of standalone and external demand")
    loss = [[100.0 * (1 - got / own) for got in row] for own, row in zip(standalone, achieved, strict=True)]
    rows, least = len(standalone), min(loss[0][-1], 95.0)
    if least > _MINOR:
        raise UsageError(
            f"PCCS: the lightest kernel loses {least:.1f} %, so no minor region shows",
            hint="measure kernels of lower standalone bandwidth too",
        )
    first = next((i for i in range(rows) if loss[i][-1] > 2 * least), rows)
    end = next((i for i in range(first, rows) if loss[i][0] >= 2 * least), rows)
    if first in (0, rows) or end == first:
        raise UsageError("PCCS: no kernel of the matrix lies in the normal region", hint="measure kernels between")
    normal = range(first, end)
    onset = [next(j for j in range(len(external)) if loss[i][j] >= 2 * least) for i in normal]
    tbwdc = sum(standalone[i] + external[j] for i, j in zip(normal, onset, strict=True)) / len(normal)
    points = [external[j] for i in normal if (j := _balance(standalone[i], external, loss[i], tbwdc)) < len(external)]
    # As in the tool, which divides by one more than the number of rows it sums.
    cbp = sum(points) / (len(normal) + 1)
    slopes = [slope for i in normal for j, slope in _slopes(external, loss[i]) if external[j] <= cbp]
    if not slopes:
        raise UsageError("PCCS: no slope lies below the balance point", hint="measure more external demands")
    return Curve(
        normal=standalone[first - 1],
        intensive=standalone[end] if end < rows else max(map(max, achieved)),
        mrmc=loss[first - 1][-1],
        tbwdc=tbwdc,
        cbp=cbp,
        rate=sum(slopes) / len(slopes),
        peak=external[-1],
    )


def errors(curve: Curve, standalone: Sequence[float], external: Sequence[float], achieved: Matrix) -> list[list[float]]:
    """Return the relative error of the bandwidth a curve predicts, (predicted - achieved) / achieved, by row."""
    return [
        [own * curve.speed(own, other) / 100 / got - 1 for other, got in zip(external, row, strict=True)]
        for own, row in zip(standalone, achieved, strict=True)
    ]


def _slopes(external: Sequence[float], loss: Sequence[float]) -> list[tuple[int, float]]:
    """Return (column, loss in % per GB/s since the previous column) of a row."""
    return [(j, (loss[j] - loss[j - 1]) / (external[j] - external[j - 1]) * _GB) for j in range(1, len(external))]


def _balance(own: float, external: Sequence[float], loss: Sequence[float], tbwdc: float) -> int:
    """Return the column of a kernel's balance point: the second one after its loss stopped growing, if there is one.

    Growth has stopped when a slope falls below a third of the mean of the preceding ones.
    """
    seen: list[float] = []
    for j, slope in _slopes(external, loss):
        if own + external[j] >= tbwdc:
            if seen and 3 * slope < sum(seen) / len(seen):
                return j + 1
            seen.append(slope)
    return len(external)


def refine_pccs(curve: Curve, standalone: Sequence[float], external: Sequence[float], achieved: Matrix) -> Curve:
    """Return a curve with the same regions whose tbwdc, cbp and rate minimise the mean error over a matrix.

    The authors' rules read these off single points; a pattern search (Hooke & Jeeves, JACM 8(2) 1961) from there uses
    all of them.  The curve's `error` is the residual mean error.
    """

    def miss(candidate: Curve) -> float:
        found = [abs(e) for row in errors(candidate, standalone, external, achieved) for e in row]
        return sum(found) / len(found)

    best, least, step = curve, miss(curve), 0.5
    while step > 1e-3:
        moved = False
        for name in ("tbwdc", "cbp", "rate"):
            for factor in (1 + step, 1 / (1 + step)):
                other = replace(best, **{name: getattr(best, name) * factor})
                # Above this limit, contention would increase speed in the intensive region.
                if other.intensive + other.cbp >= other.tbwdc and miss(other) < least:
                    best, least, moved = other, miss(other), True
        if not moved:
            step /= 2
    return replace(best, error=least)
