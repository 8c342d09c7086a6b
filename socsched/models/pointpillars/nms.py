"""Overlap of rotated boxes seen from above, and non-maximum suppression with it.

A footprint is a row x, y, w, l, ry: centre and size in metres, length along the heading -ry - pi/2 from +x.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from socsched.models.elementary import sine_cosine

Floats = npt.NDArray[np.float64]


def footprints(boxes: npt.NDArray[np.floating]) -> Floats:
    """Return the footprints [n, 5] of boxes [n, 7] (x, y, z_bottom, w, l, h, ry)."""
    return boxes[:, [0, 1, 3, 4, 6]].astype(np.float64)


def corners(rects: npt.NDArray[np.floating]) -> Floats:
    """Return the corners [n, 4, 2] of footprints [n, 5], counter-clockwise from front left."""
    rects = np.asarray(rects, np.float64)
    heading = -rects[:, 4] - np.pi / 2
    sin, cos = (part[:, None] for part in sine_cosine(heading))
    along = rects[:, 3:4] / 2 * np.array([1.0, -1.0, -1.0, 1.0])
    across = rects[:, 2:3] / 2 * np.array([1.0, 1.0, -1.0, -1.0])
    x, y = rects[:, 0:1] + along * cos - across * sin, rects[:, 1:2] + along * sin + across * cos
    return np.stack([x, y], axis=2)


def intersection(a: Floats, b: Floats) -> Floats:
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
    area: Floats = np.maximum(-integral.sum(axis=1), 0.0)
    return area


def _fraction(distance: Floats, step: Floats) -> Floats:
    """Return the fraction of an edge, 0 to 1, at which a bound `distance` away is reached; 0 or 1 if never."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # an edge parallel to the bound gives ±inf or 0/0; either end is valid then, as the edge has no extent there
        return np.clip(np.nan_to_num(distance / step, nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0)


def iou(a: Floats, b: Floats) -> Floats:
    """Return intersection over union of footprints `a` [n, 5] and `b` [n, 5], row by row; 0 where both are empty."""
    shared = intersection(a, b)
    union = a[:, 2] * a[:, 3] + b[:, 2] * b[:, 3] - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def iou_matrix(rects: Floats) -> Floats:
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
