"""Stage `camera.decode`: turn the camera detector's map into boxes in the image, best first, one box per object.

Box algebra of YOLO9000 (Redmon & Farhadi, CVPR 2017, section 2): a box's centre lies in its cell, at the sigmoid of its
offsets; its size is its anchor times the exponential of its size terms; its score is the sigmoid of the objectness
times the softmax of its class scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.errors import UsageError
from socsched.graph.operators import TensorType
from socsched.models.camera import ANCHORS, CLASSES, HEIGHT, OUTPUTS, WIDTH
from socsched.models.camera_image import FITS, Target
from socsched.models.elementary import exponential, sigmoid
from socsched.models.host import CompiledStages
from socsched.models.model import Model, Port, detections, host_function, told
from socsched.models.pointpillars.boxes import suppress
from socsched.models.pointpillars.grid import check_params

NAME = "camera.decode"
SIZES = ((0.57273, 0.677385), (1.87446, 2.06253), (3.33843, 5.47434), (7.88282, 3.52778), (9.77052, 9.16828))
"""Width and height of the anchors in cells of 32 pixels (COCO; pjreddie/darknet, cfg/yolov2.cfg at 6df701b)."""
CLASS_NAMES = ("Pedestrian", "Cyclist", "Car")
CELL = 32
"""Pixels along each side of one cell."""
PARAMS: dict[str, Any] = {
    "score": 0.25,
    "iou": 0.45,
    "candidates": 100,
    "max_boxes": 50,
    "height": 1080,
    "width": 1920,
    "input_height": HEIGHT,
    "input_width": WIDTH,
    "fit": "stretch",
}
"""Thresholds are chosen here; sizes are those of the camera's image and of the network's input."""
OPS_PER_BOX, OPS_PER_CANDIDATE, OPS_PER_PAIR = 20, 30, 14
"""Counted from the code: per anchor a sigmoid and a softmax of three; per candidate four box terms, two of them
exponentials, scaling and clipping; per pair an intersection over union."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Settings:
    """Least score, greatest IoU between two boxes of a class, maximum boxes considered and returned, image size.

    The image size, in pixels, is the camera's: the network received the image fitted to its own input size, as
    preprocessing did (`camera_image.FITS`).
    """

    score: float = 0.25
    iou: float = 0.45
    candidates: int = 100
    max_boxes: int = 50
    height: int = 1080
    width: int = 1920
    fit: str = "stretch"


@dataclass(frozen=True, slots=True)
class Detections:
    """Boxes [K, 4] (left, top, right, bottom in pixels), scores [K], labels [K] (index into CLASS_NAMES), best first.

    `dropped` counts boxes discarded because the network output was not finite.
    """

    boxes: Floats
    scores: Floats
    labels: Ints
    dropped: int = 0


def detect(output: Floats, settings: Settings | None = None, compiled: CompiledStages | None = None) -> Detections:
    """Return the detections in the detector's map [40, rows, columns]; a batch axis of 1 is allowed.

    Channels are grouped by anchor: x, y, width, height, objectness, class scores.  Every anchor box takes its best
    class.  Of the `candidates` best boxes, those that overlap a better kept box of their class by more than `iou` are
    dropped, and the best `max_boxes` returned.  Ties are broken in the order row, column, anchor.
    """
    settings = settings or Settings()
    if compiled is not None and (found := compiled("decode_image_boxes", [output], settings)) is not None:
        return Detections(*found)
    rows, columns = output.shape[-2:]
    maps = np.asarray(output, np.float32).reshape(ANCHORS, 5 + CLASSES, rows, columns)
    terms = maps.transpose(2, 3, 0, 1).reshape(-1, 5 + CLASSES)
    finite = np.isfinite(terms).all(axis=1)
    classes = _softmax(np.where(finite[:, None], terms[:, 5:], 0))
    label = classes.argmax(axis=1)
    scores = np.where(finite, sigmoid(np.where(finite, terms[:, 4], 0)) * classes.max(axis=1), -1.0)
    order = np.argsort(-scores, kind="stable")[: settings.candidates]
    order = order[scores[order] > settings.score]
    boxes = _boxes(order, terms[order, :4], rows, columns, settings)
    label, scores = label[order], scores[order]
    clash = (_iou_matrix(boxes) > settings.iou) & (label[:, None] == label[None, :])
    kept = np.array(suppress(clash, np.arange(len(order))), np.intp)[: settings.max_boxes]
    dropped = int(np.count_nonzero(~finite))
    return Detections(boxes[kept], scores[kept].astype(np.float32), label[kept].astype(np.int32), dropped)


def _softmax(logits: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    exponentials = exponential(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    exponentials /= (exponentials[:, 0] + exponentials[:, 1] + exponentials[:, 2])[:, None]  # in this order
    return exponentials


def _boxes(index: npt.NDArray[np.intp], terms: Floats, rows: int, columns: int, settings: Settings) -> Floats:
    """Return the boxes [n, 4] numbered `index` = (row * columns + column) * ANCHORS + anchor, clipped to the image."""
    cell, anchor = np.divmod(index, ANCHORS)
    row, column = np.divmod(cell, columns)
    centre = sigmoid(terms[:, :2]) + np.column_stack([column, row])
    with np.errstate(over="ignore"):
        half = exponential(terms[:, 2:]) * np.array(SIZES)[anchor] / 2
    scale, shift = map(np.array, mapping(rows, columns, settings))
    low, high = (centre - half) * scale - shift, (centre + half) * scale - shift
    size = np.array([settings.width, settings.height])
    return np.hstack([np.clip(low, 0, size), np.clip(high, 0, size)]).astype(np.float32)


def mapping(rows: int, columns: int, settings: Settings) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the pixels of the image per cell, and the pixels that padding adds left and above, along x and y."""
    height, width = settings.height, settings.width
    if settings.fit == "stretch":
        return (width / columns, height / rows), (0.0, 0.0)
    top, left, *inner = Target(rows * CELL, columns * CELL, fit=settings.fit).rectangle(height, width)
    return (width * CELL / inner[1], height * CELL / inner[0]), (left * width / inner[1], top * height / inner[0])


def _iou_matrix(boxes: Floats) -> npt.NDArray[np.float64]:
    """Return the symmetric IoU matrix [n, n] of boxes [n, 4]; 0 where both are empty."""
    corners = boxes.astype(np.float64)
    low = np.maximum(corners[:, None, :2], corners[None, :, :2])
    high = np.minimum(corners[:, None, 2:], corners[None, :, 2:])
    shared = np.maximum(high - low, 0).prod(axis=2)
    area = (corners[:, 2:] - corners[:, :2]).prod(axis=1)
    union = area[:, None] + area[None, :] - shared
    overlap: npt.NDArray[np.float64] = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return overlap


decode = partial(told, detect, "boxes")
"""Boxes, scores and labels of `detect`, which warns of output that is not finite."""


def model(params: Mapping[str, Any]) -> Model:
    """Return the stage for `params`: those of Settings, and the detector's `input_height` and `input_width`."""
    chosen = check_params(NAME, params, PARAMS)
    if chosen["fit"] not in FITS:
        raise UsageError(f"{NAME}: param 'fit' is {chosen['fit']!r}", f"one of {', '.join(FITS)}")
    inputs = {name: chosen.pop(name) for name in ("input_height", "input_width")}
    for name, value in inputs.items():
        if value % CELL:
            raise UsageError(f"{NAME}: param {name!r} is {value}", f"give a multiple of {CELL}, as for the detector")
    settings = Settings(**chosen)
    rows, columns = (value // CELL for value in inputs.values())
    source = Port("camera_output", TensorType((1, OUTPUTS, rows, columns), "fp32", "NCHW"))
    boxes = rows * columns * ANCHORS
    looked_at = min(settings.candidates, boxes)
    outputs = detections(settings.max_boxes, 4, "image_")
    return host_function(
        Model(NAME, (source,), outputs, classes=CLASS_NAMES, device="camera-decode"),
        "decode",
        OPS_PER_BOX * boxes + OPS_PER_CANDIDATE * looked_at + OPS_PER_PAIR * looked_at**2,
        4 * OUTPUTS * rows * columns,
        {"anchors": boxes, "candidates": looked_at},
        partial(decode, settings=settings),
    )
