"""Results of a sweep: the best configuration by each measure, and the Pareto-optimal ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from socsched.descriptor.study import Study
from socsched.study.sweep import rank

Row = Mapping[str, Any]
FRONTS = (
    ("latency_ns", "planned_power_mw"),
    ("latency_ns", "tdp_mw"),
    ("latency_ns", "energy_mj_per_round"),
)
"""Pairs of columns whose fronts are drawn; with prices, also latency against price."""


@dataclass(frozen=True, slots=True)
class Answers:
    """`best`: rows by the measure they are best at, among those that hold; `nearest`: the best of all if none holds.

    `fronts`: Pareto-optimal configurations by pair of columns, among those that hold (or all if none does).
    """

    best: Mapping[str, Row]
    nearest: Row | None
    fronts: Mapping[tuple[str, str], frozenset[int]]
    holding: int
    open: int
    failed: int


def answers(study: Study, rows: Sequence[Row]) -> Answers:
    """Return the answers from the rows of a study."""
    holding = [row for row in rows if row["holds"]]
    ordered = sorted(rows, key=lambda row: rank(study, row))
    shown = holding or [row for row in rows if row["verdict"] != "error"]
    pairs = [*FRONTS, ("latency_ns", "price")] if study.prices else list(FRONTS)
    return Answers(
        best=_best(study, holding),
        nearest=None if holding or not ordered else ordered[0],
        fronts={pair: frozenset(front(shown, pair)) for pair in pairs},
        holding=len(holding),
        open=sum(row["holds"] is None for row in rows),
        failed=sum(row["verdict"] == "error" for row in rows),
    )


def front(rows: Sequence[Row], axes: tuple[str, str]) -> set[int]:
    """Return the configurations not dominated in two columns (smaller is better), the first of equal ones."""
    first: dict[tuple[float, float], int] = {}
    for row in rows:
        if row[axes[0]] is not None and row[axes[1]] is not None:
            first.setdefault((row[axes[0]], row[axes[1]]), row["config"])
    members, least = set(), float("inf")
    for place in sorted(first):
        if place[1] < least:
            least = place[1]
            members.add(first[place])
    return members


def _best(study: Study, holding: Sequence[Row]) -> dict[str, Row]:
    if not holding:
        return {}
    best = {"smallest": min(holding, key=lambda row: rank(study, row))}
    for name, column, sign in (
        ("fastest", "latency_ns", 1),
        ("most frugal", "planned_power_mw", 1),
        ("most slack", "slack", -1),
    ):
        known = [row for row in holding if row[column] is not None]
        if known:
            best[name] = min(known, key=lambda row: (sign * row[column], rank(study, row)))
    return best


def select_rows(study: Study, rows: Sequence[Row], which: str) -> list[Row]:
    """Return the rows to be measured: the ``best`` ones, those on a ``front``, or ``all`` with a plan."""
    best = answers(study, rows)
    if which == "all":
        return [row for row in rows if row["verdict"] != "error"]
    configs = {row["config"] for row in best.best.values()}
    configs |= {best.nearest["config"]} if best.nearest else set()
    if which == "front":
        configs |= {config for configs_ in best.fronts.values() for config in configs_}
    return [row for row in rows if row["config"] in configs and row["verdict"] != "error"]
