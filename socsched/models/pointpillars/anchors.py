"""Anchor boxes of the detection head, and their decoding with its offsets.

Sizes, heights and box coding are the KITTI three-class network's (Lang et al., PointPillars, CVPR 2019, section 4.2;
coding of Yan et al., SECOND, Sensors 2018, section 3.2.3), in the order class, then rotation, within a cell.
A box is x, y, z_bottom, w, l, h, ry in metres and radians, LiDAR frame; its length lies along -ry - pi/2 from +x.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from socsched.models.pointpillars.grid import KITTI, Grid

CLASSES = ("Pedestrian", "Cyclist", "Car")
SIZES = ((0.6, 0.8, 1.73, -0.6), (0.6, 1.76, 1.73, -0.6), (1.6, 3.9, 1.56, -1.78))
"""Width, length, height and z of the bottom, in metres, by class."""
ROTATIONS = (0.0, 1.57)
"""The second is the 1.57 the published networks were trained with, not pi/2."""
PER_CELL = len(SIZES) * len(ROTATIONS)
STRIDE = 2
"""Pillars along each side of one cell of the head's maps."""

Floats = npt.NDArray[np.float32]


def map_shape(grid: Grid = KITTI) -> tuple[int, int]:
    """Return rows (along y) and columns (along x) of the head's maps."""
    nx, ny, _ = grid.cells
    return ny // STRIDE, nx // STRIDE


def anchors_at(index: npt.NDArray[np.intp], grid: Grid = KITTI, edges: bool = False) -> Floats:
    """Return the anchors [n, 7] numbered `index` = (row * columns + column) * PER_CELL + class * 2 + rotation.

    They stand at the middle of cells or, with `edges`, spread evenly from edge to edge of the range.
    """
    cell, kind = np.divmod(index, PER_CELL)
    row, column = np.divmod(cell, map_shape(grid)[1])
    xs, ys, kinds = anchor_tables(grid, edges)
    boxes = kinds[kind]
    boxes[:, 0], boxes[:, 1] = xs[column], ys[row]
    return boxes


@lru_cache(maxsize=8)
def anchor_tables(grid: Grid, edges: bool = False) -> tuple[Floats, Floats, Floats]:
    """Return cell centres along x and y, and the anchors of a cell at the origin."""
    rows, columns = map_shape(grid)
    step_x, step_y = (STRIDE * size for size in grid.pillar[:2])
    xs = np.arange(columns) * step_x + (grid.low[0] + step_x / 2)
    ys = np.arange(rows) * step_y + (grid.low[1] + step_y / 2)
    if edges:
        xs = np.linspace(grid.low[0], grid.high[0], columns)
        ys = np.linspace(grid.low[1], grid.high[1], rows)
    kinds = [(0.0, 0.0, z, width, length, height, ry) for width, length, height, z in SIZES for ry in ROTATIONS]
    return xs.astype(np.float32), ys.astype(np.float32), np.array(kinds, np.float32)


def decode_boxes(anchors: Floats, offsets: Floats) -> Floats:
    """Return the boxes [n, 7] decoded from `anchors` with the head's `offsets` [n, 7]; values may overflow to infinity.

    Centre offsets are in anchor diagonals (x, y) and heights (z, centre to centre), sizes logarithmic, angles added.
    """
    diagonal = np.hypot(anchors[:, 3], anchors[:, 4])
    boxes = np.empty_like(offsets)
    with np.errstate(over="ignore", invalid="ignore"):
        boxes[:, 0] = offsets[:, 0] * diagonal + anchors[:, 0]
        boxes[:, 1] = offsets[:, 1] * diagonal + anchors[:, 1]
        boxes[:, 3:6] = np.exp(offsets[:, 3:6]) * anchors[:, 3:6]
        boxes[:, 2] = offsets[:, 2] * anchors[:, 5] + anchors[:, 2] + anchors[:, 5] / 2 - boxes[:, 5] / 2
        boxes[:, 6] = offsets[:, 6] + anchors[:, 6]
    return boxes
