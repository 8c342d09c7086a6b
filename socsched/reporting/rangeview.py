"""A scan as the LiDAR sees it: azimuth across, elevation up, with the detected and the true boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.models.pointpillars.nms import corners, footprints
from socsched.reporting.birdseye import BACKGROUND, BRIGHT, CLASS_COLOURS, RAMP, SURE, TEXT, _font

Array = npt.NDArray[Any]
NEAR, FAR = 4.0, 70.0
"""Distances (m) between which points are shaded; near points are light."""
EDGES = ((0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4), (0, 4), (1, 5), (2, 6), (3, 7))


@dataclass(frozen=True, slots=True)
class RangeView:
    """Visible part of the view (degrees; azimuth to the left is positive) and its size (pixels)."""

    width: int = 1048
    height: int = 250
    azimuth: tuple[float, float] = (41.5, -41.5)
    elevation: tuple[float, float] = (4.0, -16.0)
    margin: int = 30
    oversample: int = 2

    def place(self, xyz: Array) -> Array:
        """Return oversampled pixel positions [..., 2] of points [..., 3] in the LiDAR's frame, metres."""
        azimuth = np.degrees(np.arctan2(xyz[..., 1], xyz[..., 0]))
        elevation = np.degrees(np.arctan2(xyz[..., 2], np.hypot(xyz[..., 0], xyz[..., 1])))
        (left, right), (top, bottom) = self.azimuth, self.elevation
        x = (azimuth - left) / (right - left) * self.width
        y = self.margin + (elevation - top) / (bottom - top) * (self.height - self.margin)
        return np.stack([x, y], -1) * self.oversample


def draw_range(
    points: Array,
    boxes: Array,
    labels: Sequence[int] | Array,
    scores: Sequence[float] | Array,
    truth: Array | None,
    path: str | Path,
    view: RangeView | None = None,
) -> Path:
    """Write a PNG of a scan as a range image and return its path; arguments as in `birdseye.draw`."""
    from PIL import Image, ImageDraw

    view = view or RangeView()
    k = view.oversample
    pixels = np.full((view.height * k, view.width * k, 3), BACKGROUND, np.uint8)
    points = np.asarray(points, np.float64)
    distance = np.hypot(points[:, 0], points[:, 1])
    order = np.argsort(-distance, kind="stable")  # near points over far ones
    place, colours = view.place(points[order, :3]).astype(int), _shade(distance[order])
    for dx in range(-1, 2):
        for dy in range(-2, 3):  # beams are further apart than firings
            x, y = place[:, 0] + dx, place[:, 1] + dy
            inside = (x >= 0) & (x < pixels.shape[1]) & (y >= view.margin * k) & (y < pixels.shape[0])
            pixels[y[inside], x[inside]] = colours[inside]
    image = Image.fromarray(pixels)
    pen = ImageDraw.Draw(image)
    for box in () if truth is None else np.asarray(truth, np.float64).reshape(-1, 7):
        _wires(pen, view, box, BRIGHT, 1)
    given = np.asarray(boxes, np.float64).reshape(-1, 7)
    for index in np.argsort(np.asarray(scores, float), kind="stable").tolist():
        sure = scores[index] >= SURE
        _wires(pen, view, given[index], CLASS_COLOURS[int(labels[index])], 2 if sure else 1)
    pen.rectangle((0, 0, image.width, view.margin * k), fill=BACKGROUND)
    text = "range image: as the LiDAR sees it, near points light; boxes as below, true ones white"
    pen.text((8 * k, view.margin * k / 2), text, fill=TEXT, font=_font(13 * k), anchor="lm")
    image.resize((view.width, view.height), Image.Resampling.LANCZOS).save(path, format="PNG", optimize=True)
    return Path(path)


def _shade(distance: Array) -> npt.NDArray[np.uint8]:
    at = np.clip((np.log(FAR) - np.log(np.maximum(distance, 1e-3))) / (np.log(FAR) - np.log(NEAR)), 0, 1)
    at, stops = at * (len(RAMP) - 1), np.arange(len(RAMP))
    return np.stack([np.interp(at, stops, RAMP[:, c]) for c in range(3)], axis=-1).astype(np.uint8)


def _wires(pen: Any, view: RangeView, box: Array, colour: tuple[int, int, int], width: int) -> None:
    """Draw the twelve edges of a box ahead of the LiDAR."""
    flat = corners(footprints(box[None]))[0]
    solid = np.concatenate([np.column_stack([flat, np.full(4, z)]) for z in (box[2], box[2] + box[5])])
    if (solid[:, 0] < 0.5).any():
        return
    place = view.place(solid)
    for a, b in EDGES:
        pen.line((*place[a].tolist(), *place[b].tolist()), fill=colour, width=width * view.oversample)


def stack(top: str | Path, below: str | Path, path: str | Path) -> Path:
    """Write a PNG with one picture above another, both as wide as the wider one."""
    from PIL import Image

    images = [Image.open(file).convert("RGB") for file in (top, below)]
    whole = Image.new("RGB", (max(i.width for i in images), sum(i.height for i in images)), BACKGROUND)
    whole.paste(images[0], (0, 0))
    whole.paste(images[1], (0, images[0].height))
    whole.save(path, format="PNG", optimize=True)
    return Path(path)
