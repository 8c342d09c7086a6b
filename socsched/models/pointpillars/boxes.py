"""Boxes: the head's anchors and their decoding with its offsets; overlap seen from above, and suppression with it.

Sizes, heights and box coding are the KITTI three-class network's (Lang et al., PointPillars, CVPR 2019, section 4.2;
coding of Yan et al., SECOND, Sensors 2018, section 3.2.3), in the order class, then rotation, within a cell.
A box is x, y, z_bottom, w, l, h, ry in metres and radians, LiDAR frame; its length lies along -ry - pi/2 from +x.  A
footprint is a row x, y, w, l, ry of it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from socsched.models.elementary import exponential, length_of, sine_cosine
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
    (left, step_x), (bottom, step_y) = (spacing(grid, axis, edges) for axis in range(2))
    xs, ys = np.arange(columns) * step_x + left, np.arange(rows) * step_y + bottom
    if edges and columns > 1:
        xs[-1] = grid.high[0]
    if edges and rows > 1:
        ys[-1] = grid.high[1]
    kinds = [(0.0, 0.0, z, width, length, height, ry) for width, length, height, z in SIZES for ry in ROTATIONS]
    return xs.astype(np.float32), ys.astype(np.float32), np.array(kinds, np.float32)


def spacing(grid: Grid, axis: int, edges: bool = False) -> tuple[float, float]:
    """Return the first anchor's place and the distance to the next (m) along `axis`."""
    step = STRIDE * grid.pillar[axis]
    count = map_shape(grid)[1 - axis]
    if edges:
        return grid.low[axis], (grid.high[axis] - grid.low[axis]) / max(count - 1, 1)
    return grid.low[axis] + step / 2, step


def decode_boxes(anchors: Floats, offsets: Floats) -> Floats:
    """Return the boxes [n, 7] decoded from `anchors` with the head's `offsets` [n, 7]; values may overflow to infinity.

    Centre offsets are in anchor diagonals (x, y) and heights (z, centre to centre), sizes logarithmic, angles added.
    """
    diagonal = length_of(anchors[:, 3], anchors[:, 4])
    boxes = np.empty_like(offsets)
    with np.errstate(over="ignore", invalid="ignore"):
        boxes[:, 0] = offsets[:, 0] * diagonal + anchors[:, 0]
        boxes[:, 1] = offsets[:, 1] * diagonal + anchors[:, 1]
        boxes[:, 3:6] = exponential(offsets[:, 3:6]).astype(np.float32) * anchors[:, 3:6]
        boxes[:, 2] = offsets[:, 2] * anchors[:, 5] + anchors[:, 2] + anchors[:, 5] / 2 - boxes[:, 5] / 2
        boxes[:, 6] = offsets[:, 6] + anchors[:, 6]
    return boxes


Doubles = npt.NDArray[np.float64]


def footprints(boxes: npt.NDArray[np.floating]) -> Doubles:
    """Return the footprints [n, 5] of boxes [n, 7] (x, y, z_bottom, w, l, h, ry)."""
    return boxes[:, [0, 1, 3, 4, 6]].astype(np.float64)


def corners(rects: npt.NDArray[np.floating]) -> Doubles:
    """Return the corners [n, 4, 2] of footprints [n, 5], counter-clockwise from front left."""
    rects = np.asarray(rects, np.float64)
    heading = -rects[:, 4] - np.pi / 2
    sin, cos = (part[:, None] for part in sine_cosine(heading))
    along = rects[:, 3:4] / 2 * np.array([1.0, -1.0, -1.0, 1.0])
    across = rects[:, 2:3] / 2 * np.array([1.0, 1.0, -1.0, -1.0])
    x, y = rects[:, 0:1] + along * cos - across * sin, rects[:, 1:2] + along * sin + across * cos
    return np.stack([x, y], axis=2)


def intersection(a: Doubles, b: Doubles) -> Doubles:
    """Return the areas in m² shared by footprints `a` [n, 5] and `b` [n, 5], row by row.

    In b's own frame b is |u| <= l/2, |v| <= w/2, and by Green's theorem the area is the sum over a's edges of the
    integral of v, held to that band, over the part of the edge within |u| <= l/2.  Each edge is a closed expression
    without case distinctions, so touching and equal boxes need no tolerance, unlike clipping vertex by vertex.
    """
    heading = -b[:, 4] - np.pi / 2
    sin, cos = (part[:, None] for part in sine_cosine(heading))
    # subtract before rotating: the differences keep their precision far from the origin
    local = corners(np.column_stack([a[:, :2] - b[:, :2], a[:, 2:]]))
    u, v = local[..., 0] * cos + local[..., 1] * sin, local[..., 1] * cos - local[..., 0] * sin
    half_l, half_w = b[:, 3:4] / 2, b[:, 2:3] / 2
    du, dv = np.roll(u, -1, axis=1) - u, np.roll(v, -1, axis=1) - v
    ends = [_fraction(bound - u, du) for bound in (-half_l, half_l)]
    start, stop = np.minimum(*ends), np.maximum(*ends)
    turns = [_fraction(bound - v, dv) for bound in (-half_w, half_w)]
    knots = np.stack([start, np.clip(np.minimum(*turns), start, stop), np.clip(np.maximum(*turns), start, stop), stop])
    height = np.clip(v + knots * dv, -half_w, half_w)
    integral = (np.diff(knots, axis=0) * (height[1:] + height[:-1])).sum(axis=0) / 2 * du
    # counter-clockwise edges run backwards along the top, hence the sign
    area: Doubles = np.maximum(-integral.sum(axis=1), 0.0)
    return area


def _fraction(distance: Doubles, step: Doubles) -> Doubles:
    """Return the fraction of an edge, 0 to 1, at which a bound `distance` away is reached; 0 or 1 if never."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # an edge parallel to the bound gives ±inf or 0/0; either end is valid then, as the edge has no extent there
        return np.clip(np.nan_to_num(distance / step, nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0)


def iou(a: Doubles, b: Doubles) -> Doubles:
    """Return intersection over union of footprints `a` [n, 5] and `b` [n, 5], row by row; 0 where both are empty."""
    shared = intersection(a, b)
    union = a[:, 2] * a[:, 3] + b[:, 2] * b[:, 3] - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def iou_matrix(rects: Doubles) -> Doubles:
    """Return the symmetric IoU matrix [n, n] of footprints; for distant pairs only one distance is computed."""
    count = len(rects)
    first, second = np.triu_indices(count, 1)
    radius = np.sqrt(rects[:, 2] * rects[:, 2] + rects[:, 3] * rects[:, 3]) / 2
    offset = rects[first, :2] - rects[second, :2]
    near = offset[:, 0] * offset[:, 0] + offset[:, 1] * offset[:, 1] <= (radius[first] + radius[second]) ** 2
    first, second = first[near], second[near]
    matrix = np.eye(count)
    matrix[first, second] = matrix[second, first] = iou(rects[first], rects[second])
    return matrix


def suppress(overlaps: npt.NDArray[np.bool_], order: npt.NDArray[np.intp]) -> list[int]:
    """Return the members of `order` (best first) that overlap no better kept member."""
    kept: list[int] = []
    blocked = np.zeros(len(overlaps), np.bool_)
    for candidate in order.tolist():
        if not blocked[candidate]:
            kept.append(candidate)
            blocked |= overlaps[candidate]
    return kept
