"""PCCS on the matrix its authors publish: their procedure's parameters, and parameters that use every point."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from socsched.cost.contention.models import Curve
from tools.generate.contention_fits import errors, fit_pccs, refine_pccs

Table = tuple[list[float], list[float], list[list[float]]]


@dataclass(frozen=True, slots=True)
class Fit:
    """A curve and its relative errors over the points it was tried on."""

    curve: Curve
    mean: float
    largest: float


def load(file: Path) -> Table:
    """Return standalone, external and achieved bandwidths in bytes/s."""
    matrix = json.loads(file.read_text(encoding="utf-8"))["measured_matrix"]
    scaled = [[value * 1e9 for value in row] for row in matrix["achieved_GBps"]]
    own, other = ([value * 1e9 for value in matrix[f"{name}_GBps"]] for name in ("standalone", "external_demand"))
    return own, other, scaled


def tried(curve: Curve, table: Table) -> Fit:
    """Return a curve with its errors over a table."""
    found = [abs(error) for row in errors(curve, *table) for error in row]
    return Fit(curve, sum(found) / len(found), max(found))


def columns(table: Table, start: int) -> Table:
    """Return every other column of a table."""
    own, other, achieved = table
    return own, other[start::2], [row[start::2] for row in achieved]


def compare(file: Path) -> dict[str, Fit]:
    """Return the authors' parameters, refined ones, and ones refined on half of the columns and tried on the others."""
    table = load(file)
    theirs = fit_pccs(*table)
    result = {"the authors' procedure": tried(theirs, table), "refined": tried(refine_pccs(theirs, *table), table)}
    for start, name in ((0, "odd"), (1, "even")):
        refined = refine_pccs(theirs, *columns(table, start))
        result[f"refined on {name} columns, tried on the others"] = tried(refined, columns(table, 1 - start))
    return result
