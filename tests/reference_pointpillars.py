"""PointPillars in plain numpy, slow and obvious: what stored oracles are computed with; uses nothing of socsched.

Lang et al., PointPillars, CVPR 2019; box coding of Yan et al., SECOND, Sensors 2018, section 3.2.3; configuration of
the public KITTI three-class networks.  Cells of points are found in fp32, as deployed networks do it; sums are float64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

LOW = (0.0, -39.68, -3.0)
CELL = (0.16, 0.16, 4.0)
CELLS = (432, 496, 1)
STRIDE = 2
"""Pillars along each side of a cell of the head's maps."""
CLASSES = ("Pedestrian", "Cyclist", "Car")
ANCHORS = tuple(
    (w, length, h, z, ry)
    for w, length, h, z in ((0.6, 0.8, 1.73, -0.6), (0.6, 1.76, 1.73, -0.6), (1.6, 3.9, 1.56, -1.78))
    for ry in (0.0, 1.57)
)
"""Width, length, height, z of the bottom (m) and angle (rad) of the six anchors of a cell."""
SCORE, IOU, CANDIDATES, MOST = 0.1, 0.01, 100, 50


def voxelise(
    points: Array, max_pillars: int = 16000, max_points: int = 32, low: Any = LOW, cells: Any = CELLS
) -> tuple[Array, Array, Array]:
    """Return voxels [P, max_points, 4], counts [P] and cells [P, 2] (x, y), pillars in order of first appearance."""
    pillars: dict[tuple[int, int], list[Array]] = {}
    for point in points:
        cell = [np.floor((point[i] - np.float32(low[i])) / np.float32(CELL[i])) for i in range(3)]
        if all(0 <= c < n for c, n in zip(cell, cells, strict=True)):
            pillars.setdefault((int(cell[0]), int(cell[1])), []).append(point)
    kept = list(pillars.items())[:max_pillars]
    voxels = np.zeros((len(kept), max_points, 4), np.float32)
    for row, (_, members) in enumerate(kept):
        voxels[row, : min(len(members), max_points)] = members[:max_points]
    counts = [min(len(members), max_points) for _, members in kept]
    return voxels, np.array(counts, np.int32), np.array([cell for cell, _ in kept], np.int32).reshape(-1, 2)


def decorate(voxels: Array, counts: Array, coords: Array) -> Array:
    """Return [P, S, 9]: x, y, z, r, offsets from the mean of the pillar's points, offsets from the pillar's centre."""
    features = np.zeros((*voxels.shape[:2], 9))
    for pillar, count in enumerate(counts):
        points = voxels[pillar, :count].astype(np.float64)
        centre = (coords[pillar] + 0.5) * CELL[:2] + LOW[:2]
        offsets = points[:, :3] - points[:, :3].mean(axis=0), points[:, :2] - centre
        features[pillar, :count] = np.concatenate([points, *offsets], axis=1)
    return features


def pillar_features(features: Array, weight: Array, bias: Array) -> Array:
    """Return [P, C]: linear, ReLU, maximum over all slots, empty ones (zeros, hence relu(bias)) included."""
    return np.maximum(features @ weight.T.astype(np.float64) + bias, 0).max(axis=1)


def scatter(features: Array, coords: Array) -> Array:
    """Return the canvas [C, ny, nx], zero where there is no pillar."""
    canvas = np.zeros((features.shape[1], CELLS[1], CELLS[0]))
    for feature, (x, y) in zip(features, coords, strict=True):
        canvas[:, y, x] = feature
    return canvas


def convolve(x: Array, weight: Array, bias: Array, stride: int) -> Array:
    """Return ReLU(3x3 convolution + bias) of x [C, H, W], padded by one zero: nine matrix products."""
    _, height, width = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    out = np.zeros((len(weight), height // stride * (width // stride)))
    for i in range(3):
        for j in range(3):
            tap = padded[:, i : i + height : stride, j : j + width : stride]
            out += weight[:, :, i, j].astype(np.float64) @ tap.reshape(len(x), -1)
    return np.maximum(out + bias[:, None], 0).reshape(-1, height // stride, width // stride)


def upsample(x: Array, weight: Array, bias: Array) -> Array:
    """Return ReLU(transposed convolution + bias) of x [C, H, W], kernel = stride, weights [C, O, k, k]."""
    channels, height, width = x.shape
    out, k = weight.shape[1], weight.shape[2]
    y = (weight.reshape(channels, -1).T.astype(np.float64) @ x.reshape(channels, -1)).reshape(out, k, k, height, width)
    y = y.transpose(0, 3, 1, 4, 2).reshape(out, height * k, width * k)
    return np.maximum(y + bias[:, None, None], 0)


def network(points: Array, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return every intermediate tensor by name, voxels to the head's maps, for a scan [N, 4]; as wide as `weights`."""
    voxels, counts, coords = voxelise(points)
    found = {"voxels": voxels, "counts": counts, "coords": coords}
    found["decorated"] = decorate(voxels, counts, coords)
    found["pfn"] = pillar_features(found["decorated"], weights["pfn.weight"], weights["pfn.bias"])
    x = found["bev"] = scatter(found["pfn"], coords)
    scales, block = [], 0
    while f"blocks.{block}.0.weight" in weights:
        index = 0
        while (name := f"blocks.{block}.{index}") + ".weight" in weights:
            x = convolve(x, weights[f"{name}.weight"], weights[f"{name}.bias"], 1 if index else 2)
            index += 1
        found[f"block{block + 1}"] = x
        scales.append(upsample(x, weights[f"de.{block}.weight"], weights[f"de.{block}.bias"]))
        block += 1
    found["neck"] = np.concatenate(scales)
    flat = found["neck"].reshape(len(found["neck"]), -1)
    for head in ("cls", "reg", "dir"):
        product = weights[f"{head}.weight"][:, :, 0, 0].astype(np.float64) @ flat + weights[f"{head}.bias"][:, None]
        found[head] = product.reshape(-1, *found["neck"].shape[1:])
    return found


def statistics(values: Array) -> dict[str, Any]:
    """Return shape, mean, standard deviation, extremes and Euclidean norm."""
    values = np.asarray(values, np.float64)
    numbers = {"mean": values.mean(), "std": values.std(), "min": values.min(), "max": values.max()}
    numbers["l2"] = np.sqrt((values * values).sum())
    return {"shape": list(values.shape), **{name: float(f"{value:.9g}") for name, value in numbers.items()}}


def corners(box: Array) -> list[tuple[float, float]]:
    """Return the footprint's corners of a box [7], counter-clockwise; its length lies along -ry - pi/2 from +x."""
    x, y, _, w, length, _, ry = (float(value) for value in box)
    cos, sin = math.cos(-ry - math.pi / 2), math.sin(-ry - math.pi / 2)
    ends = ((length / 2, w / 2), (-length / 2, w / 2), (-length / 2, -w / 2), (length / 2, -w / 2))
    return [(x + u * cos - v * sin, y + u * sin + v * cos) for u, v in ends]


def area(polygon: list[tuple[float, float]]) -> float:
    """Return the area of a simple polygon (shoelace formula)."""
    edges = zip(polygon, polygon[1:] + polygon[:1], strict=True)
    return abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in edges)) / 2


def clipped_area(polygon: list[tuple[float, float]], window: list[tuple[float, float]]) -> float:
    """Return the area shared by two convex polygons: Sutherland and Hodgman (CACM 17(1), 1974), vertex by vertex."""
    for (ax, ay), (bx, by) in zip(window, window[1:] + window[:1], strict=True):
        side = [(bx - ax) * (y - ay) - (by - ay) * (x - ax) for x, y in polygon]
        clipped = []
        for i, (x, y) in enumerate(polygon):
            j = (i + 1) % len(polygon)
            if side[i] >= 0:
                clipped.append((x, y))
            if (side[i] >= 0) != (side[j] >= 0):
                t = side[i] / (side[i] - side[j])
                clipped.append((x + t * (polygon[j][0] - x), y + t * (polygon[j][1] - y)))
        polygon = clipped
    return area(polygon) if len(polygon) > 2 else 0.0


def overlap(a: Array, b: Array) -> float:
    """Return the intersection over union of two boxes [7] seen from above."""
    first, second = corners(a), corners(b)
    shared = clipped_area(first, second)
    union = area(first) + area(second) - shared
    return shared / union if union > 0 else 0.0


def anchor(row: int, column: int, kind: int, low: Any = LOW) -> Array:
    """Return the anchor box [7] (x, y, z_bottom, w, l, h, ry) in the middle of a cell of the head's maps."""
    w, length, h, z, ry = ANCHORS[kind]
    x, y = ((index + 0.5) * STRIDE * CELL[axis] + low[axis] for axis, index in enumerate((column, row)))
    return np.array([x, y, z, w, length, h, ry])


def box_of(anchor: Array, offset: Array) -> Array:
    """Return the box that the head's offsets [7] make of an anchor."""
    x, y, z, w, length, h, ry = (float(value) for value in anchor)
    dx, dy, dz, dw, dl, dh, dry = (float(value) for value in offset)
    diagonal = math.sqrt(w * w + length * length)
    size = w * math.exp(dw), length * math.exp(dl), h * math.exp(dh)
    return np.array([x + dx * diagonal, y + dy * diagonal, z + h / 2 + dz * h - size[2] / 2, *size, ry + dry])


class Margin(NamedTuple):
    """How near the nearest score and the nearest overlap were to deciding otherwise."""

    score: float
    overlap: float


def detections(
    cls: Array,
    reg: Array,
    direction: Array,
    score: float = SCORE,
    iou: float = IOU,
    candidates: int = CANDIDATES,
    most: int = MOST,
    low: Any = LOW,
) -> tuple[list[tuple[float, int, Array]], Margin]:
    """Return (score, class, box [7]) best first, and how clear the decisions were.

    Every anchor is scored and sorted, the best `candidates` are kept; class by class, a box is dropped if it overlaps a
    better one by more than `iou`; the best `most` of all classes are returned.
    """
    _, rows, columns = cls.shape
    scores = 1 / (1 + np.exp(-cls.astype(np.float64).reshape(len(ANCHORS), len(CLASSES), rows, columns)))
    anchors = [(r, c, k) for r in range(rows) for c in range(columns) for k in range(len(ANCHORS))]
    ranks = scores.max(axis=1).transpose(1, 2, 0).reshape(-1)
    order = sorted(range(len(anchors)), key=lambda i: -ranks[i])
    best, clear, apart = order[:candidates], [math.inf], [math.inf]
    if len(order) > candidates and ranks[order[candidates]] > score:
        clear.append(float(ranks[best[-1]] - ranks[order[candidates]]))
    found: list[tuple[float, int, Array]] = []
    for label in range(len(CLASSES)):
        kept: list[Array] = []
        own = [(float(scores[anchors[i][2], label, anchors[i][0], anchors[i][1]]), anchors[i]) for i in best]
        clear += [abs(value - score) for value, _ in own]
        for value, (row, column, kind) in sorted((o for o in own if o[0] > score), key=lambda entry: -entry[0]):
            box = box_of(anchor(row, column, kind, low), reg[kind * 7 : kind * 7 + 7, row, column])
            shared = [overlap(box, other) for other in kept]
            apart += [abs(value - iou) for value in shared]
            if all(value <= iou for value in shared):
                kept.append(box)
                backward, forward = direction[kind * 2 : kind * 2 + 2, row, column][::-1]
                angle = box[6] - math.floor(box[6] / math.pi + 1) * math.pi + (math.pi if backward <= forward else 0)
                found.append((value, label, np.array([*box[:6], angle])))
    found.sort(key=lambda entry: -entry[0])
    clear += [better - worse for (better, *_), (worse, *_) in pairwise(found)]
    return found[:most], Margin(min(clear), min(apart))
