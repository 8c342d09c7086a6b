"""Average precision as KITTI's object benchmark computes it: 40 recall positions, boxes seen from above or in 3D.

Matching is that of the benchmark's development kit (Geiger et al., CVPR 2012): objects harder than the level, and those
of a neighbouring class, count neither as found nor as missed; the same holds for detections too small in the image for
the level.  Precision is the best at recall of at least 1/40, 2/40, ..., 1 (Simonelli et al., Disentangling Monocular 3D
Object Detection, ICCV 2019, section 5).  The kit samples recall at its own scores and so cannot yield high figures for
few objects; here positions are exact for any number of objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from socsched.models.pointpillars.anchors import CLASSES
from socsched.models.pointpillars.nms import footprints, intersection
from socsched.models.pointpillars.truth import HEIGHT, Calibration, Truth, image_boxes

Array = npt.NDArray[np.float64]

THRESHOLDS = {"Pedestrian": 0.5, "Cyclist": 0.5, "Car": 0.7}
"""IoU from which a detection matches an object of a class."""
NEIGHBOURS = {"Car": ("Van",), "Pedestrian": ("Person_sitting",), "Cyclist": ()}
POSITIONS = 40
FOUND, SKIPPED, OTHER = 0, 1, -1
"""Role of an object or a detection in a question: relevant, ignored, of another class."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A frame's ground truth and its detections: boxes [K, 7], scores [K], labels [K] (index into CLASSES)."""

    truths: Sequence[Truth]
    boxes: npt.NDArray[np.float32]
    scores: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int32]
    calibration: Calibration


@dataclass(frozen=True, slots=True)
class Question:
    """A class at a level (index into truth.LEVELS), from above or in 3D, within a range of distances in metres."""

    kind: str
    level: int = 1
    solid: bool = False
    within: tuple[float, float] | None = None
    overlap: float | None = None

    @property
    def least(self) -> float:
        """Return the IoU from which a detection is correct."""
        return THRESHOLDS[self.kind] if self.overlap is None else self.overlap


def overlaps(a: npt.NDArray[np.floating], b: npt.NDArray[np.floating], solid: bool) -> Array:
    """Return the IoU [n, m] of boxes a [n, 7] and b [m, 7], from above or in 3D."""
    found = np.zeros((len(a), len(b)))
    if not len(a) or not len(b):
        return found
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    reach = np.hypot(a[:, 3], a[:, 4])[:, None] / 2 + np.hypot(b[:, 3], b[:, 4])[None] / 2
    rows, columns = np.nonzero(np.hypot(a[:, :1] - b[:, 0], a[:, 1:2] - b[:, 1]) <= reach)
    p, q = a[rows], b[columns]
    shared = intersection(footprints(p), footprints(q))
    sizes = p[:, 3] * p[:, 4], q[:, 3] * q[:, 4]
    if solid:
        high = np.minimum(p[:, 2] + p[:, 5], q[:, 2] + q[:, 5]) - np.maximum(p[:, 2], q[:, 2])
        shared = shared * np.maximum(high, 0)
        sizes = sizes[0] * p[:, 5], sizes[1] * q[:, 5]
    union = sizes[0] + sizes[1] - shared
    found[rows, columns] = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return found


@dataclass(slots=True)
class _Frame:
    """A frame evaluated for a question: roles of objects and detections, scores, and each object's candidates."""

    objects: npt.NDArray[np.int64]
    found: npt.NDArray[np.int64]
    scores: Array
    candidates: list[list[tuple[int, float]]]


def average_precision(frames: Sequence[Judged], question: Question) -> float | None:
    """Return the average precision, 0 to 1, None if no frame holds a relevant object."""
    evaluated = [_asked(frame, question) for frame in frames]
    total = sum(int(np.count_nonzero(frame.objects == FOUND)) for frame in evaluated)
    if not total:
        return None
    hits = np.sort(np.concatenate([_hits(frame) for frame in evaluated]))[::-1]
    # the rank of the hit that brings recall to 1/40, 2/40, ...; several positions may share one
    ranks = [-(-position * total // POSITIONS) - 1 for position in range(1, POSITIONS + 1)]
    ranks = [rank for rank in ranks if rank < len(hits)]
    at = {rank: _precision(evaluated, float(hits[rank])) for rank in set(ranks)}
    precision = np.array([at[rank] for rank in ranks])
    return float(np.maximum.accumulate(precision[::-1]).sum()) / POSITIONS


def recall(frames: Sequence[Judged], question: Question, score: float) -> tuple[int, int]:
    """Return the number of relevant objects found with at least `score`, and their total number."""
    evaluated = [_asked(frame, question) for frame in frames]
    total = sum(int(np.count_nonzero(frame.objects == FOUND)) for frame in evaluated)
    return sum(_count(frame, score)[0] for frame in evaluated), total


def _asked(frame: Judged, question: Question) -> _Frame:
    """Return the roles of a frame's objects and detections in a question; those of other classes are `OTHER`."""
    near, far = question.within or (0.0, np.inf)
    objects = np.array([_role(truth, question, near, far) for truth in frame.truths], np.int64)
    mine = np.flatnonzero(np.asarray(frame.labels) == CLASSES.index(question.kind))
    boxes = np.asarray(frame.boxes, np.float64).reshape(-1, 7)[mine]
    distance = np.hypot(boxes[:, 0], boxes[:, 1])
    image, _ = image_boxes(boxes, frame.calibration)
    small = image[:, 3] - image[:, 1] < HEIGHT[question.level]
    found = np.where(small | (distance < near) | (distance >= far), SKIPPED, FOUND)
    truths = np.array([truth.box for truth in frame.truths], np.float64).reshape(-1, 7)
    iou = overlaps(truths, boxes, question.solid)
    candidates = [[(int(j), float(row[j])) for j in np.flatnonzero(row > question.least)] for row in iou]
    return _Frame(objects, found, np.asarray(frame.scores, np.float64)[mine], candidates)


def _role(truth: Truth, question: Question, near: float, far: float) -> int:
    if truth.kind in NEIGHBOURS[question.kind]:
        return SKIPPED
    if truth.kind != question.kind:
        return OTHER
    return FOUND if truth.level <= question.level and near <= truth.distance < far else SKIPPED


def _hits(frame: _Frame) -> Array:
    """Return the scores at which objects would be found, each by the best-scored detection not yet taken."""
    taken: set[int] = set()
    scores = []
    for role, candidates in zip(frame.objects.tolist(), frame.candidates, strict=True):
        free = [j for j, _ in candidates if j not in taken]
        if role == OTHER or not free:
            continue
        best = max(free, key=lambda j: frame.scores[j])
        taken.add(best)
        if role == FOUND and frame.found[best] == FOUND:
            scores.append(float(frame.scores[best]))
    return np.array(scores)


def _precision(frames: Sequence[_Frame], threshold: float) -> float:
    """Return the share of correct detections among those of at least a score."""
    counts = [_count(frame, threshold) for frame in frames]
    right, wrong = sum(r for r, _ in counts), sum(w for _, w in counts)
    return right / max(right + wrong, 1)


def _count(frame: _Frame, threshold: float) -> tuple[int, int]:
    """Return the numbers of correct and wrong detections of at least a score."""
    taken: set[int] = set()
    right = 0
    for role, candidates in zip(frame.objects.tolist(), frame.candidates, strict=True):
        free = [(j, iou) for j, iou in candidates if j not in taken and frame.scores[j] >= threshold]
        if role == OTHER or not free:
            continue
        sound = [(iou, -j) for j, iou in free if frame.found[j] == FOUND]
        chosen = -max(sound)[1] if sound else free[0][0]
        taken.add(chosen)
        right += role == FOUND and bool(sound)
    usable = np.flatnonzero((frame.found == FOUND) & (frame.scores >= threshold))
    return right, len(usable) - sum(1 for j in usable.tolist() if j in taken)
