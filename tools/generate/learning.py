"""Print how predictions for a board improve with networks measured on it, as a table of docs/fitting.md.

Usage: python -m tools.generate.learning CORPUS... --family htp [--samples 0 1 5 20]

Every board in turn is left out of its family's fit, but for some of its networks; errors and the share inside of
intervals are over its other networks.  Widths are conformal from the other boards, each left out in the same way.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from socsched.cost.fitting.cells import Choice, Networks, make_cells, pattern, read_pairs
from socsched.cost.fitting.families import get_family
from socsched.cost.fitting.least import Cell, Score, doubt, fit, half_width, learned, relative, scores_of
from socsched.descriptor.catalog import find_platform
from tools.generate.fits import EXCLUDED


def cells_of(corpora: Sequence[Path], family: str) -> tuple[Cell, ...]:
    """Return a family's cells from some folders."""
    rows = [row for folder in corpora for row in read_pairs(folder / "pairs.csv.gz")]
    choice = Choice(tuple(pattern(text) for text in EXCLUDED))
    networks = Networks(*(folder / "networks" for folder in corpora))
    return tuple(make_cells(rows, networks, choice, find_platform, [get_family(family)]).cells[family])


Row = tuple[str, int, int, float, float, float]


def curve(cells: Sequence[Cell], family: str, samples: Sequence[int]) -> Iterator[Row]:
    """Yield board, networks measured, predictions scored, mean error, share inside and median half width."""
    whole = fit(cells, get_family(family))
    scored: dict[int, dict[str, list[Score]]] = {}
    errors: dict[tuple[str, int], np.ndarray] = {}
    for board in sorted({cell.platform for cell in cells}):
        ours = [cell for cell in cells if cell.platform == board]
        for count, predicted in learned(cells, get_family(family), board, samples).items():
            known = [one for one in scores_of(ours, predicted, whole) if np.isfinite(one.value)]
            scored.setdefault(count, {})[board] = known
            off = np.concatenate([predicted[cell.name] / cell.measured_us - 1 for cell in ours])
            errors[board, count] = np.abs(off[np.isfinite(off)])
    for (board, count), off in errors.items():
        others = [one for name, own in scored[count].items() if name != board for one in own]
        widths = doubt(others) if others else None
        own = scored[count][board]
        limits = [half_width(widths, one) for one in own] if widths else [np.nan]
        inside = np.mean([one.value <= limit for one, limit in zip(own, limits, strict=True)]) if widths else np.nan
        yield board, count, len(off), float(off.mean()), float(inside), relative(float(np.median(limits)))


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", type=Path, nargs="+", help="folders with pairs.csv.gz and networks/")
    parser.add_argument("--family", default="htp", help="family of engines (socsched/cost/fitting/families.yaml)")
    parser.add_argument("--samples", type=int, nargs="+", default=[0, 1, 5, 20], help="networks measured, ascending")
    given = parser.parse_args()
    print("| board | measured | scored | error, % | inside, % | median ± % |\n|---|---|---|---|---|---|")
    for board, count, scored, error, inside, width in curve(
        cells_of(given.corpora, given.family), given.family, given.samples
    ):
        print(f"| {board} | {count} | {scored} | {100 * error:.1f} | {100 * inside:.0f} | {100 * width:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
