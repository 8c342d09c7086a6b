"""Stage `centerpoint.decode`: turn the head's maps into boxes, best first, with one box per object.

The algebra, thresholds and both suppressions are Autoware's (autowarefoundation/autoware.universe at 02ee90f,
perception/autoware_lidar_centerpoint/lib/postprocess/postprocess_kernel.cu, circle_nms_kernel.cu and
non_maximum_suppression.cpp; values of config/centerpoint.param.yaml at 1c96fe4).  Autoware bounds neither the cells
that pass the threshold nor the boxes; here both are bounded as in the network's training configuration (max_num 500,
post_max_size 100: tier4/AWML, projects/CenterPoint/configs/default/second_secfpn_base.py at 997e5cf).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.graph.operators import TensorType
from socsched.models.centerpoint.network import AUTOWARE, CLASSES, MAPS, settle
from socsched.models.elementary import angle_of, exponential, kth_largest, length_of, logit, sigmoid
from socsched.models.host import CompiledStages
from socsched.models.model import Model, Port, detections, host_function, told
from socsched.models.pointpillars.boxes import footprints, iou_matrix, suppress
from socsched.models.pointpillars.grid import Grid

NAME = "centerpoint.decode"
DEVICE = "center-decode"
PARAMS: dict[str, Any] = {"score": 0.35, "circle": 0.5, "iou": 0.1, "candidates": 500, "max_boxes": 100}
HEADING_NORM = np.array([0.3, 0.3, 0.3, 0.3, 0.0], np.float32)
"""Least length of the heading vector (sine, cosine) by class: shorter vectors are unreliable, but a pedestrian's
heading does not matter."""
SEARCH_M = 10.0
"""Boxes whose centres are farther apart are not compared (iou_nms_search_distance_2d)."""
OPS_PER_CELL, OPS_PER_CANDIDATE, OPS_PER_CIRCLE, OPS_PER_PAIR = 6, 40, 5, 400
"""Counted from the code: per cell four comparisons for the best class, one with the threshold and one for finiteness;
per candidate sigmoid, exponentials, angle and norm; per pair of candidates a squared distance and its comparison; per
pair of boxes four edges of about 100 operations."""
GATHER_BYTES = 64
"""Each value of a candidate occupies its own cache line, as the maps are channel-major."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Settings:
    """Least score, least distance of centres (m), greatest IoU, maximum cells considered and boxes returned."""

    score: float = 0.35
    circle: float = 0.5
    iou: float = 0.1
    candidates: int = 500
    max_boxes: int = 100
    grid: Grid = AUTOWARE


@dataclass(frozen=True, slots=True)
class Detections:
    """Boxes [K, 7] (x, y, z_bottom, w, l, h, ry), scores [K], labels [K], velocities [K, 2] (m/s), best first.

    Angles and positions follow the PointPillars convention; labels index `network.CLASSES`.  `dropped` counts cells
    discarded because the network output was not finite.
    """

    boxes: Floats
    scores: Floats
    labels: Ints
    velocities: Floats
    dropped: int = 0


def detect(
    heatmap: Floats,
    reg: Floats,
    height: Floats,
    dim: Floats,
    rot: Floats,
    vel: Floats,
    settings: Settings | None = None,
    compiled: CompiledStages | None = None,
) -> Detections:
    """Return the detections in the head's maps [C, ny, nx], C as in `network.MAPS`; a batch axis of 1 is allowed.

    Every cell takes its best class.  Of the `candidates` best cells, those within `circle` of a better kept one are
    dropped; of the `max_boxes` best remaining, those that overlap any better one by more than `iou`, kept or not,
    whatever their classes.  Ties are broken in cell order, so the result depends on the maps alone.
    """
    settings = settings or Settings()
    logits, *values = (
        np.asarray(array, np.float32).reshape(channels, -1)
        for array, (_, channels) in zip((heatmap, reg, height, dim, rot, vel), MAPS, strict=True)
    )
    if compiled is not None and (found := compiled("decode_centres", [logits, *values], settings)) is not None:
        return Detections(*found)
    cells, label, scores, broken = _candidates(logits, values[3], settings)
    boxes = _boxes(cells, [value[:, cells] for value in values[:4]], settings.grid)
    velocity = np.ascontiguousarray(values[4][:, cells].T)
    usable = np.isfinite(boxes).all(axis=1) & np.isfinite(velocity).all(axis=1)
    kept = np.flatnonzero(usable)
    kept = kept[_apart(boxes[kept, :2], settings.circle)][: settings.max_boxes]
    kept = kept[_clear(boxes[kept], settings.iou)]
    return Detections(
        boxes[kept],
        scores[kept].astype(np.float32),
        label[kept].astype(np.int32),
        velocity[kept],
        broken + int(np.count_nonzero(~usable)),
    )


def _candidates(
    logits: Floats, rot: Floats, settings: Settings
) -> tuple[Indices, Indices, npt.NDArray[np.float64], int]:
    """Return the best cells in order of score with class and score, and the number of non-finite cells.

    The sigmoid is monotone, so cells are compared by logit and scores are computed only for those that could pass.
    """
    best = logits.max(axis=0)
    finite = np.isfinite(best)
    broken = int(best.size - np.count_nonzero(finite))
    if broken:
        best = np.where(finite, best, np.float32(-np.inf))
    floor = logit(settings.score) - 1e-3
    cells = np.flatnonzero(best >= floor)
    label = logits[:, cells].argmax(axis=0)
    # a heading that is not a number fails later, with its box
    sure = ~(length_of(rot[0, cells], rot[1, cells]) < HEADING_NORM[label])
    cells, label = cells[sure], label[sure]
    if settings.candidates < len(cells):
        # above 20, different logits may round to the same score; cell order then decides
        enough = best[cells] >= min(kth_largest(best[cells], floor, settings.candidates), 20.0)
        cells, label = cells[enough], label[enough]
    scores = sigmoid(best[cells])
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > settings.score][: settings.candidates]
    return cells[order], label[order], scores[order], broken


def _boxes(cells: Indices, values: list[Floats], grid: Grid) -> Floats:
    """Return the boxes [n, 7] of `cells` from their offsets, heights, sizes and headings [C, n]."""
    offset, height, size, heading = values
    row, column = np.divmod(cells, grid.cells[0])
    boxes = np.empty((len(cells), 7), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        boxes[:, 0] = (column + offset[0]) * grid.pillar[0] + grid.low[0]
        boxes[:, 1] = (row + offset[1]) * grid.pillar[1] + grid.low[1]
        boxes[:, 3:6] = exponential(size).T
        # the network outputs the height of the centre
        boxes[:, 2] = height[0] - boxes[:, 5] / 2
        boxes[:, 6] = angle_of(heading[0], heading[1])
    return boxes


def _apart(centres: Floats, distance: float) -> Indices:
    """Return the centres [n, 2], best first, that are not within `distance` of a better kept one."""
    return np.array(suppress(_squared_gaps(centres) < distance * distance, np.arange(len(centres))), np.intp)


def _clear(boxes: Floats, most: float) -> Indices:
    """Return the boxes, best first, that overlap no better one with an IoU above `most`."""
    overlaps = np.tril(iou_matrix(footprints(boxes)) > most, -1)
    return np.flatnonzero(~(overlaps & (_squared_gaps(boxes[:, :2]) <= SEARCH_M**2)).any(axis=1))


def _squared_gaps(centres: Floats) -> Floats:
    """Return the matrix [n, n] of squared distances between centres [n, 2]."""
    x, y = (np.subtract.outer(axis, axis) for axis in centres.T)
    gaps: Floats = x * x + y * y
    return gaps


decode = partial(told, detect, "cells")
"""Boxes, scores and labels of `detect`, which warns of output that is not finite."""


def model(params: Mapping[str, Any]) -> Model:
    """Return the stage for `params`: those of Settings, `circle` up to 1 m, and the common ones."""
    chosen, grid = settle(NAME, params, PARAMS)
    settings = Settings(**{name: chosen[name] for name in PARAMS}, grid=grid)
    nx, ny, _ = grid.cells
    inputs = tuple(Port(name, TensorType((1, channels, ny, nx), "fp32")) for name, channels in MAPS)
    cells, most, boxes = nx * ny, settings.candidates, settings.max_boxes  # all class logits, the rest of candidates
    outputs = (*detections(boxes, 7), Port("velocities", TensorType((boxes, 2), "fp32")))
    pairs = OPS_PER_CIRCLE * most * most + OPS_PER_PAIR * boxes * (boxes - 1) // 2
    return host_function(
        Model(NAME, inputs, outputs, classes=CLASSES, device=DEVICE),
        "decode",
        OPS_PER_CELL * cells + OPS_PER_CANDIDATE * most + pairs,
        len(CLASSES) * cells * 4 + most * sum(channels for _, channels in MAPS[1:]) * GATHER_BYTES,
        {"cells": cells, "candidates": most, "boxes": boxes},
        partial(decode, settings=settings),
    )
