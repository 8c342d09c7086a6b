"""The inner loops of host functions, for whoever has them compiled; without them numpy does the same.

A loop of numpy calls gives the interpreter up and takes it back dozens of times a frame, and other threads wait for it
meanwhile; a compiled loop needs neither the interpreter nor temporary arrays.  Results are equal bit by bit.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


class Loops(Protocol):
    """What compiled loops offer; see the functions of the same purpose in `models.pointpillars`."""

    def voxelise(self, points: Floats, max_pillars: int, max_points: int, grid: Any) -> tuple[Floats, Ints, Ints]:
        """Return voxels, counts and coords of points[N, 4] in float32, C-contiguous."""
        ...

    def candidates(self, logits: Floats, floor: float, most: int) -> tuple[Ints, int]:
        """Return which anchors of logits[kinds, classes, cells] pass, as kind * cells + cell, and how many are broken.

        An anchor's value is its best logit.  Those not below `floor` pass, and with `most` > 0 not below the `most`-th
        largest of them, or 20 if that is less.
        """
        ...

    def overlaps(self, rects: npt.NDArray[np.float64], least: float) -> npt.NDArray[np.bool_]:
        """Return which of footprints[n, 5] overlap with an IoU above `least`, themselves included if it is below 1."""
        ...

    def suppress(self, overlaps: npt.NDArray[np.bool_], order: npt.NDArray[np.intp]) -> list[int]:
        """Return the members of `order` that overlap no better one that was kept."""
        ...
