"""True objects of a scan: KITTI's label and calibration files, and the same facts of a synthetic scene.

A label file has one object per line: class, truncation (share outside the image), occlusion (0 to 3), observation
angle, image box (left, top, right, bottom), h, w, l, x, y, z of the bottom's centre in the rectified camera's frame (x
right, y down, z ahead), rotation about y (Geiger et al., CVPR 2012, object development kit).  That rotation equals the
detector's ry.  An object is easy, moderate or hard to find by its height in the image, occlusion and truncation.

Average precision as KITTI's object benchmark computes it: 40 recall positions, boxes seen from above or in 3D.

Matching is that of the benchmark's development kit (Geiger et al., CVPR 2012): objects harder than the level, and those
of a neighbouring class, count neither as found nor as missed; the same holds for detections too small in the image for
the level.  Precision is the best at recall of at least 1/40, 2/40, ..., 1 (Simonelli et al., Disentangling Monocular 3D
Object Detection, ICCV 2019, section 5).  The kit samples recall at its own scores and so cannot yield high figures for
few objects; here positions are exact for any number of objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from socsched.bounded import read_text
from socsched.errors import InputError
from socsched.files import write_file
from socsched.models.pointpillars.boxes import CLASSES, corners, footprints, intersection
from tools.train.lidar import KITTI_CAMERA, Camera, Survey
from tools.train.streets import Scene

_MOST_BYTES = 2**20
_CALIBRATION = "give P2, R0_rect and Tr_velo_to_cam"

Floats = npt.NDArray[np.float64]

LEVELS = ("easy", "moderate", "hard")
HEIGHT, OCCLUSION, TRUNCATION = (40.0, 25.0, 25.0), (0, 1, 2), (0.15, 0.30, 0.50)
"""Least height in the image (pixels), greatest occlusion and truncation of each level (KITTI's object benchmark)."""
HIDDEN = (0.15, 0.5, 0.85)
"""Upper limits on the blocked share of an object's rays for a synthetic object to count as occlusion 0, 1, 2."""
LEAST_POINTS = 5
"""A synthetic object with fewer points has occlusion 3: it belongs to no level, and detecting it is not an error."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """From the LiDAR's frame to a camera's: homogeneous matrix [4, 4] to rectified camera coordinates, projection
    [3, 4] to pixels, image size in pixels."""

    camera: Floats
    project: Floats
    size: tuple[int, int] = (1242, 375)


@dataclass(frozen=True, slots=True)
class Truth:
    """A labelled object: class, box [7] (x, y, z_bottom, w, l, h, ry in the LiDAR's frame), image box, truncation
    (share outside the image) and occlusion (0 to 3).  `points` is its number of LiDAR points, None if unknown."""

    kind: str
    box: npt.NDArray[np.float32]
    image: tuple[float, float, float, float]
    truncation: float
    occlusion: int
    points: int | None = None

    @property
    def level(self) -> int:
        """Return the index into LEVELS of the easiest level the object belongs to, 3 for none."""
        height = self.image[3] - self.image[1]
        for level, (least, hidden, cut) in enumerate(zip(HEIGHT, OCCLUSION, TRUNCATION, strict=True)):
            if height >= least and self.occlusion <= hidden and self.truncation <= cut:
                return level
        return len(LEVELS)

    @property
    def distance(self) -> float:
        """Return the horizontal distance (m) from the LiDAR."""
        return float(np.hypot(self.box[0], self.box[1]))


def calibration_of(camera: Camera = KITTI_CAMERA) -> Calibration:
    """Return the calibration of the synthetic camera."""
    turn = np.array([[0, -1, 0, 0], [0, 0, -1, -camera.below], [1, 0, 0, -camera.ahead], [0, 0, 0, 1]], np.float64)
    (column, row), focal = camera.centre, camera.focal
    project = np.array([[focal, 0, column, 0], [0, focal, row, 0], [0, 0, 1, 0]], np.float64)
    return Calibration(turn, project, camera.size)


def read_calibration(path: str | Path) -> Calibration:
    """Return the calibration of a KITTI file (P2, R0_rect, Tr_velo_to_cam); InputError if it cannot be read."""
    found: dict[str, Floats] = {}
    try:
        for line in read_text(path, "calibration", _CALIBRATION, _MOST_BYTES).splitlines():
            name, _, values = line.partition(":")
            if values.strip():
                found[name.strip()] = np.array(values.split(), np.float64)
        rectify, move = np.eye(4), np.eye(4)
        rectify[:3, :3] = found["R0_rect"].reshape(3, 3)
        move[:3] = found["Tr_velo_to_cam"].reshape(3, 4)
        return Calibration(rectify @ move, found["P2"].reshape(3, 4))
    except (ValueError, KeyError) as error:
        raise InputError(f"{path}: not a KITTI calibration: {error!r}", _CALIBRATION) from None


def write_calibration(path: str | Path, calibration: Calibration) -> None:
    """Write a calibration in KITTI's file format."""
    rows = {
        **{f"P{number}": calibration.project for number in range(4)},
        "R0_rect": np.eye(3),
        "Tr_velo_to_cam": calibration.camera[:3],
    }
    text = "".join(f"{name}: " + " ".join(f"{v:.12e}" for v in values.ravel()) + "\n" for name, values in rows.items())
    write_file(path, text)


def image_boxes(boxes: npt.NDArray[np.floating], calibration: Calibration) -> tuple[Floats, Floats]:
    """Return the image boxes [n, 4] (left, top, right, bottom in pixels) of boxes [n, 7], clipped and unclipped."""
    flat = corners(footprints(np.asarray(boxes).reshape(-1, 7)))
    low = np.asarray(boxes, np.float64).reshape(-1, 7)[:, 2]
    high = low + np.asarray(boxes, np.float64).reshape(-1, 7)[:, 5]
    levels = [np.concatenate([flat, np.broadcast_to(z[:, None, None], (len(flat), 4, 1))], 2) for z in (low, high)]
    places = np.concatenate(levels, 1)
    homogeneous = np.concatenate([places, np.ones((*places.shape[:2], 1))], 2) @ calibration.camera.T
    homogeneous[..., 2] = np.maximum(homogeneous[..., 2], 0.1)  # points level with or behind the camera
    pixels = homogeneous @ calibration.project.T
    pixels = pixels[..., :2] / pixels[..., 2:]
    whole = np.concatenate([pixels.min(1), pixels.max(1)], 1)
    width, height = calibration.size
    return np.clip(whole, 0, (width - 1, height - 1) * 2), whole


def truths_of(scene: Scene, seen: Survey, camera: Camera = KITTI_CAMERA) -> list[Truth]:
    """Return the road users with points in a survey and in the camera's view, as KITTI would label them."""
    counts = np.bincount(seen.owner[seen.owner >= 0], minlength=len(scene.users))
    boxes, calibration = scene.boxes, calibration_of(camera)
    clipped, whole = image_boxes(boxes, calibration)
    area = np.prod(clipped[:, 2:] - clipped[:, :2], axis=1) / np.maximum(
        np.prod(whole[:, 2:] - whole[:, :2], axis=1), 1
    )
    hidden = 1 - seen.hits / np.maximum(seen.rays, 1)
    occlusion = np.where(counts < LEAST_POINTS, 3, np.searchsorted(HIDDEN, hidden))
    kept = np.flatnonzero((counts > 0) & (area > 0) & (boxes[:, 0] > camera.ahead))
    labels = scene.labels
    return [
        Truth(
            labels[i],
            boxes[i],
            (float(clipped[i, 0]), float(clipped[i, 1]), float(clipped[i, 2]), float(clipped[i, 3])),
            float(1 - area[i]),
            int(occlusion[i]),
            int(counts[i]),
        )
        for i in kept
    ]


def read_labels(path: str | Path, calibration: Calibration) -> list[Truth]:
    """Return the objects of a KITTI label file without its DontCare regions; InputError if it cannot be read."""
    found = []
    back = np.linalg.inv(calibration.camera)
    text = read_text(path, "file of labels", "give a KITTI label file", _MOST_BYTES)
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0] == "DontCare":
            continue
        try:
            cut, hidden, _, *values = (float(word) for word in words[1:15])
            left, top, right, bottom, h, w, length, x, y, z, ry = values
        except ValueError:
            raise InputError(
                f"{path}:{number}: not a KITTI label: {line!r}", "expected a class and 14 numbers"
            ) from None
        place = back @ np.array([x, y, z, 1.0])
        box = np.array([*place[:3], w, length, h, ry], np.float32)
        found.append(Truth(words[0], box, (left, top, right, bottom), cut, int(hidden)))
    return found


def write_labels(path: str | Path, truths: Sequence[Truth], calibration: Calibration) -> None:
    """Write objects as a KITTI label file."""
    lines = []
    for truth in truths:
        x, y, z, _ = calibration.camera @ np.array([*truth.box[:3], 1.0])
        w, length, h, ry = (float(value) for value in truth.box[3:])
        alpha = (ry - np.arctan2(x, z) + np.pi) % (2 * np.pi) - np.pi
        numbers = (*truth.image, h, w, length, x, y, z, ry)
        text = " ".join(f"{value:.2f}" for value in numbers)
        lines.append(f"{truth.kind} {truth.truncation:.2f} {truth.occlusion} {alpha:.2f} {text}\n")
    write_file(path, "".join(lines))


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
