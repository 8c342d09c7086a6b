"""Interface of optional compiled inner loops for host functions; numpy is the fallback.

A loop of numpy calls releases and reacquires the interpreter lock dozens of times per frame while other threads contend
for it; a compiled loop needs neither the interpreter nor temporary arrays.  Results are bit-identical.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


class Loops(Protocol):
    """The compiled loops; see the corresponding functions in `models.pointpillars`."""

    def voxelise(self, points: Floats, max_pillars: int, max_points: int, grid: Any) -> tuple[Floats, Ints, Ints]:
        """Return voxels, counts and coords of points[N, 4] in float32, C-contiguous."""
        ...

    def candidates(self, logits: Floats, floor: float, most: int) -> tuple[Ints, int]:
        """Return the passing anchors of logits[kinds, classes, cells], as kind * cells + cell, and the non-finite
        count.

        An anchor's value is its best logit.  Anchors pass with a value not below `floor` and, if `most` > 0, not below
        the `most`-th largest such value or 20, whichever is less.
        """
        ...

    def overlaps(self, rects: npt.NDArray[np.float64], least: float) -> npt.NDArray[np.bool_]:
        """Return which pairs of footprints[n, 5] overlap with an IoU above `least`; self-pairs too if it is below 1."""
        ...

    def suppress(self, overlaps: npt.NDArray[np.bool_], order: npt.NDArray[np.intp]) -> list[int]:
        """Return the members of `order` that overlap no better kept one."""
        ...
