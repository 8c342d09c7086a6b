"""The pillar grid shared by all stages of a pillar network, and the check of stage params."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from socsched.errors import UsageError


@dataclass(frozen=True, slots=True)
class Grid:
    """Detection range and pillar size in metres, LiDAR frame (x forward, y left, z up).

    `low` and `high` are the corners of the range (high excluded), `pillar` the size of one cell.  The defaults are the
    KITTI three-class network's: 432 x 496 x 1 cells (Lang et al., PointPillars, CVPR 2019, section 4.2).
    """

    low: tuple[float, float, float] = (0.0, -39.68, -3.0)
    high: tuple[float, float, float] = (69.12, 39.68, 1.0)
    pillar: tuple[float, float, float] = (0.16, 0.16, 4.0)

    @property
    def cells(self) -> tuple[int, int, int]:
        """Return the number of cells along x, y and z."""
        nx, ny, nz = (round((b - a) / s) for a, b, s in zip(self.low, self.high, self.pillar, strict=True))
        return nx, ny, nz


KITTI = Grid()


def check_params(stage: str, params: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return `known` (name -> default) overlaid with `params`; UsageError for an unknown name or an unusable value.

    A param whose default is an integer must be a positive integer, one whose default is a float a number in [0, 1].
    """
    for name, value in params.items():
        if name not in known:
            raise UsageError(f"{stage}: no param {name!r}", f"params of {stage}: {', '.join(sorted(known))}")
        if isinstance(known[name], int) and (type(value) is not int or value < 1):
            raise UsageError(f"{stage}: param {name!r} is {value!r}", "give a whole number of at least 1")
        if isinstance(known[name], float) and (type(value) not in (int, float) or not 0 <= value <= 1):
            raise UsageError(f"{stage}: param {name!r} is {value!r}", "give a number from 0 to 1")
    return {**known, **params}


def grid_of(stage: str, extent: object, base: Grid = KITTI, multiple: int = 1) -> Grid:
    """Return the grid of a `range` param (x0, y0, z0, x1, y1, z1 in metres; None for `base`), pillars as in `base`.

    Raises UsageError unless the range is six numbers that hold a whole number of pillars, one of them high, and a
    multiple of `multiple` of them along x and y.
    """
    if extent is None:
        return base
    step = f"{base.pillar[0] * multiple:g} m apart in x and y, {base.pillar[2]:g} m in z"
    hint = f"give six numbers in metres (x0, y0, z0, x1, y1, z1), whole multiples of {step}"
    try:
        x0, y0, z0, x1, y1, z1 = (float(value) for value in extent)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise UsageError(f"{stage}: param 'range' is {extent!r}", hint) from None
    grid = replace(base, low=(x0, y0, z0), high=(x1, y1, z1))
    spans = [b - a for a, b in zip(grid.low, grid.high, strict=True)]
    whole = all(abs(n * s - d) < 1e-3 for n, s, d in zip(grid.cells, grid.pillar, spans, strict=True))
    if not whole or min(grid.cells) < 1 or grid.cells[2] != 1 or any(n % multiple for n in grid.cells[:2]):
        raise UsageError(f"{stage}: param 'range' is {extent!r}", hint)
    return grid
