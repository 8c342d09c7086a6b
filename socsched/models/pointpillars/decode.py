"""Stage `pointpillars.decode`: turn the head's maps into boxes, best first, with one box per object."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.errors import UsageError
from socsched.graph.operators import TensorType
from socsched.models.elementary import kth_largest, logit, sigmoid
from socsched.models.host import CompiledStages
from socsched.models.model import Model, Port, detections, host_function, told
from socsched.models.pointpillars.boxes import (
    CLASSES,
    PER_CELL,
    anchors_at,
    decode_boxes,
    footprints,
    iou_matrix,
    map_shape,
    suppress,
)
from socsched.models.pointpillars.grid import KITTI, Grid, check_params, grid_of

NAME = "pointpillars.decode"
DEVICE = "anchor-decode"
PARAMS: dict[str, Any] = {
    "turn": 0.0,
    "anchors": "centres",
    "score": 0.1,
    "iou": 0.01,
    "candidates": 100,
    "max_boxes": 50,
    "range": None,
}
PLACES = ("centres", "edges")
OPS_PER_ANCHOR, OPS_PER_CANDIDATE, OPS_PER_PAIR = 4, 60, 400
"""Counted from the code: per anchor two comparisons for the best class, one with the threshold and one for
finiteness; per candidate the sigmoid of three classes, seven box terms and the angle; per pair four edges of about
100 operations."""
GATHER_BYTES = 64
"""Each offset or direction of a candidate occupies its own cache line, as the maps are channel-major."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Settings:
    """Least score kept, greatest IoU between two boxes of a class, maximum anchors considered and boxes returned.

    `turn` is the angle at which direction bin 0 begins, `edges` selects the anchor positions (`anchors.anchors_at`).
    """

    score: float = 0.1
    iou: float = 0.01
    candidates: int = 100
    max_boxes: int = 50
    grid: Grid = KITTI
    turn: float = 0.0
    edges: bool = False


@dataclass(frozen=True, slots=True)
class Detections:
    """Boxes [K, 7] (x, y, z_bottom, w, l, h, ry), scores [K], labels [K] (index into CLASSES), best first.

    `dropped` counts anchors discarded because the network output was not finite.
    """

    boxes: Floats
    scores: Floats
    labels: Ints
    dropped: int = 0


def detect(
    cls: Floats,
    reg: Floats,
    direction: Floats,
    settings: Settings | None = None,
    compiled: CompiledStages | None = None,
) -> Detections:
    """Return the detections in the head's maps: class logits [18, H, W], offsets [42, H, W], directions [12, H, W].

    A leading batch axis of 1 is allowed.  The `candidates` anchors with the best class score are decoded, suppressed
    class by class with rotated IoU seen from above, and the best `max_boxes` of all classes returned.  Ties are broken
    in anchor order, so the result depends only on the maps.
    """
    settings = settings or Settings()
    rows, columns = map_shape(settings.grid)
    shape = (PER_CELL, -1, rows * columns)
    logits, offsets, bins = (np.asarray(maps, np.float32).reshape(shape) for maps in (cls, reg, direction))
    if compiled and (found := compiled("decode_anchors", [logits, offsets, bins], settings)) is not None:
        return Detections(*found)
    kinds, cells, broken = _candidates(logits, settings)
    boxes = decode_boxes(anchors_at(cells * PER_CELL + kinds, settings.grid, settings.edges), offsets[kinds, :, cells])
    turns = bins[kinds, :, cells]
    usable = np.isfinite(boxes).all(axis=1) & np.isfinite(turns).all(axis=1)
    boxes, turns, scores = boxes[usable], turns[usable], sigmoid(logits[kinds[usable], :, cells[usable]])
    row, label = _best(boxes, scores, settings)
    best = boxes[row]
    best[:, 6] = _heading(best[:, 6], turns[row], settings.turn)
    chosen = scores[row, label].astype(np.float32)
    return Detections(best, chosen, label.astype(np.int32), broken + int(np.count_nonzero(~usable)))


def _candidates(logits: Floats, settings: Settings) -> tuple[Indices, Indices, int]:
    """Return kind and cell of the best anchors in order of score, and the number of non-finite anchors.

    The sigmoid is monotone, so anchors are compared by logit and scores are computed only for those that could pass.
    """
    floor = logit(settings.score) - 1e-3
    best = logits.max(axis=1)
    finite = np.isfinite(best)
    broken = int(best.size - np.count_nonzero(finite))
    if broken:
        best = np.where(finite, best, np.float32(-np.inf))
    if settings.candidates < best.size:
        # above 20, different logits may round to the same score; anchor order then decides
        floor = max(floor, min(float(kth_largest(best, floor, settings.candidates)), 20.0))
    kinds, cells = np.nonzero(best >= floor)
    # by score, equal ones by number
    order = np.lexsort((cells * PER_CELL + kinds, -sigmoid(best[kinds, cells])))[: settings.candidates]
    return kinds[order], cells[order], broken


def _best(boxes: Floats, scores: npt.NDArray[np.float64], settings: Settings) -> tuple[Indices, Indices]:
    """Return row and class of the boxes that survive suppression, best first."""
    overlaps = iou_matrix(footprints(boxes)) > settings.iou
    kept: list[tuple[int, int]] = []
    for label in range(len(CLASSES)):
        rows = np.flatnonzero(scores[:, label] > settings.score)
        rows = rows[np.argsort(-scores[rows, label], kind="stable")]
        kept += [(row, label) for row in suppress(overlaps, rows)]
    row, label_of = np.array(kept, np.intp).reshape(-1, 2).T
    order = np.argsort(-scores[row, label_of], kind="stable")[: settings.max_boxes]
    return row[order], label_of[order]


def _heading(angle: Floats, turns: Floats, start: float = 0.0) -> Floats:
    """Return angles moved by whole half turns into [start - pi, start) or, where the direction bin is 0, [start, start
    + pi)."""
    forward = turns[:, 1] <= turns[:, 0]
    angle = angle - np.float32(start) if start else angle
    turned: Floats = (angle - np.floor(angle / np.pi + 1) * np.pi + forward * np.pi).astype(np.float32)
    turned = turned + np.float32(start) if start else turned
    return turned


decode = partial(told, detect, "anchors")
"""Boxes, scores and labels of `detect`, which warns of output that is not finite."""


def model(params: Mapping[str, Any]) -> Model:
    """Return the stage for `params`: `score`, `iou`, `candidates`, `max_boxes` as in Settings, `range` as voxelise.

    `turn` (0 to 1, rad) and `anchors` ("centres" or "edges") are conventions of imported weights.
    """
    chosen = check_params(NAME, params, PARAMS)
    if chosen["anchors"] not in PLACES:
        raise UsageError(f"{NAME}: param 'anchors' is {chosen['anchors']!r}", f"one of {', '.join(PLACES)}")
    settings = Settings(
        chosen["score"],
        chosen["iou"],
        chosen["candidates"],
        chosen["max_boxes"],
        grid_of(NAME, chosen["range"]),
        chosen["turn"],
        chosen["anchors"] == "edges",
    )
    rows, columns = map_shape(settings.grid)
    inputs = tuple(
        Port(name, TensorType((1, channels * PER_CELL, rows, columns), "fp32"))
        for name, channels in (("cls", len(CLASSES)), ("reg", 7), ("dir", 2))
    )
    anchors, most = rows * columns * PER_CELL, settings.candidates  # all class logits, the rest of candidates only
    model = Model(NAME, inputs, detections(settings.max_boxes, 7), classes=CLASSES, device=DEVICE)
    return host_function(
        model,
        "decode",
        OPS_PER_ANCHOR * anchors + OPS_PER_CANDIDATE * most + OPS_PER_PAIR * (most * (most - 1) // 2),
        math.prod(inputs[0].type.shape) * 4 + most * (7 + 2) * GATHER_BYTES,
        {"anchors": anchors, "candidates": most},
        partial(decode, settings=settings),
    )
