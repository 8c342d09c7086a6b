"""Pictures of a run's detections in one frame: the scan from above, and as a range image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from socsched.models.pointpillars.boxes import CLASSES, corners, footprints

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

    from socsched.trace.trace import Trace


Array = npt.NDArray[Any]
Colour = tuple[int, int, int]

BACKGROUND, GRID, TEXT, BRIGHT = (15, 20, 27), (46, 58, 72), (150, 166, 184), (236, 241, 246)
HEIGHTS = (-2.0, 1.5)
"""Height range (m, LiDAR frame) of the shading: from below the road to above a car's roof."""
RAMP = np.array([(58, 88, 132), (88, 130, 172), (140, 176, 202), (214, 226, 234)], np.float64)
"""Dark to light with height, one hue: readable in grey and with any colour vision; warm colours are for boxes."""
CLASS_COLOURS: tuple[Colour, ...] = ((240, 228, 66), (225, 130, 190), (230, 140, 0))
"""Pedestrian, cyclist, car: yellow, pink and orange after Okabe and Ito's palette, far apart in lightness as well."""
SURE = 0.3
"""Boxes with a lower score are drawn thin."""


@dataclass(frozen=True, slots=True)
class View:
    """Visible area and its position: metres (x forward is up, y left is left), pixels, oversampling."""

    ahead: float = 70.0
    behind: float = 4.0
    aside: float = 40.0
    scale: float = 12.0
    margin: int = 44
    header: int = 62
    footer: int = 84
    oversample: int = 2

    @property
    def size(self) -> tuple[int, int]:
        """Return the width and height of the picture in pixels."""
        width = round(2 * self.aside * self.scale) + 2 * self.margin
        return width, round((self.ahead + self.behind) * self.scale) + self.header + self.footer + self.margin // 2

    @property
    def frame(self) -> tuple[int, int, int, int]:
        """Return the left, top, right and bottom of the plotted area in oversampled pixels."""
        left, top = self.margin, self.header
        right = left + round(2 * self.aside * self.scale)
        bottom = top + round((self.ahead + self.behind) * self.scale)
        return left * self.oversample, top * self.oversample, right * self.oversample, bottom * self.oversample

    def place(self, xy: Array) -> Array:
        """Return oversampled pixel positions [..., 2] of places [..., 2] in metres."""
        left, top, _, _ = self.frame
        pixels = self.scale * self.oversample
        return np.stack([left + (self.aside - xy[..., 1]) * pixels, top + (self.ahead - xy[..., 0]) * pixels], axis=-1)

    def shows(self, xy: Array) -> npt.NDArray[np.bool_]:
        """Return a mask of the places [..., 2] in metres that lie in the plotted area."""
        x, y = xy[..., 0], xy[..., 1]
        inside: npt.NDArray[np.bool_] = (x >= -self.behind) & (x <= self.ahead) & (np.abs(y) <= self.aside)
        return inside


@dataclass(slots=True)
class _Canvas:
    """Drawing state: Pillow's pen, the view, and the label areas already taken."""

    pen: ImageDraw
    view: View
    taken: list[tuple[float, float, float, float]] = field(default_factory=list)

    def line(self, points: Array, colour: Colour, width: float) -> None:
        """Draw a polyline through places in metres."""
        pixels = [tuple(p) for p in self.view.place(np.asarray(points, float)).tolist()]
        self.pen.line(pixels, fill=colour, width=round(width * self.view.oversample), joint="curve")

    def dashes(self, points: Array, colour: Colour, width: float, dash: float = 0.5) -> None:
        """Draw a polyline as dashes of `dash` metres."""
        points = np.asarray(points, float)
        for start, stop in pairwise(points):
            count = max(int(np.hypot(*(stop - start)) / dash) // 2 * 2 + 1, 3)
            steps = start + np.linspace(0, 1, count + 1)[:, None] * (stop - start)
            for i in range(0, count, 2):
                self.line(steps[i : i + 2], colour, width)

    def text(self, x: float, y: float, text: str, colour: Colour, size: float = 13, anchor: str = "mm") -> None:
        """Write at a pixel position (not oversampled)."""
        k = self.view.oversample
        self.pen.text((x * k, y * k), text, fill=colour, font=_font(size * k), anchor=anchor)

    def write(self, xy: Array, text: str) -> None:
        """Write centred at a place in metres, in front of points, and keep the area free of tags."""
        k, (x, y) = self.view.oversample, self.view.place(xy).tolist()
        half = _font(12 * k).getlength(text) / 2
        self.taken.append((x - half, y - 7 * k, x + half, y + 7 * k))
        self.pen.text((x, y), text, TEXT, _font(12 * k), anchor="mm", stroke_width=2 * k, stroke_fill=BACKGROUND)

    def tag(self, text: str, around: Array, colour: Colour, needed: bool) -> None:
        """Write next to the outline `around` (metres) in the plotted area; if no space is free, only if `needed`."""
        font = _font(12 * self.view.oversample)
        pixels = self.view.place(around)
        (x0, y0), (x1, y1) = pixels.min(0), pixels.max(0)
        width, height, gap = font.getlength(text), 13 * self.view.oversample, 3 * self.view.oversample
        middle_x, middle_y = (x0 + x1 - width) / 2, (y0 + y1 - height) / 2
        after, before, above, below = x1 + gap, x0 - gap - width, y0 - gap - height, y1 + gap
        left, top, right, bottom = self.view.frame
        places = [(after, middle_y), (before, middle_y), (middle_x, above), (middle_x, below)]
        places += [(x, y) for x in (after, before) for y in (above, below)]
        areas = [(x, y, x + width, y + height) for x, y in places]
        inside = [a for a in areas if a[0] >= left and a[1] >= top and a[2] <= right and a[3] <= bottom]
        free = [a for a in inside if not any(_overlap(a, other) for other in self.taken)]
        if free or (inside and needed):
            area = (free or inside)[0]
            self.taken.append(area)
            halo = round(1.5 * self.view.oversample)
            self.pen.text(area[:2], text, fill=colour, font=font, stroke_width=halo, stroke_fill=BACKGROUND)


def _font(size: float) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


class Boxes:
    """Detected boxes [K, 7] (x, y, z_bottom, w, l, h, ry; metres, LiDAR frame) and the true ones, None where unknown.

    `labels`: index into CLASSES of each detected box; `scores`: how sure each is.
    """

    def __init__(self, boxes: Any, labels: Any, scores: Any, truth: Any = None) -> None:
        self.found = np.asarray(boxes, np.float64).reshape(-1, 7)
        self.labels, self.scores = np.asarray(labels, int), np.asarray(scores, float)
        self.truth = None if truth is None else np.asarray(truth, np.float64).reshape(-1, 7)


def draw(
    points: Array, boxes: Boxes, path: str | Path, title: str = "", note: str = "", view: View | None = None
) -> Path:
    """Write a PNG of a scan (points [N, 3+]) from above and return its path; `title` and `note` go above it."""
    from PIL import Image, ImageDraw

    view = view or View()
    full = tuple(side * view.oversample for side in view.size)
    image = Image.new("RGB", (full[0], full[1]), BACKGROUND)
    _grid(_Canvas(ImageDraw.Draw(image), view))
    image = _with_points(image, np.asarray(points), view)
    canvas = _Canvas(ImageDraw.Draw(image), view)
    _ring_labels(canvas)
    _ego(canvas)
    _draw_boxes(canvas, boxes)
    _border(canvas)
    canvas.text(view.margin, 20, title, BRIGHT, size=17, anchor="lm")
    canvas.text(view.size[0] - view.margin, 20, note, TEXT, anchor="rm")
    _legend(canvas, boxes, len(points))
    image.resize(view.size, Image.Resampling.LANCZOS).save(path, format="PNG", optimize=True)
    return Path(path)


def _with_points(image: Image, points: Array, view: View) -> Image:
    """Return the picture with a dot for every point in view, higher points over lower ones."""
    from PIL import Image as images

    pixels = np.asarray(image).copy()
    shown = points[view.shows(points[:, :2])]
    shown = shown[np.argsort(shown[:, 2], kind="stable")]
    place = view.place(shown[:, :2]).astype(int)
    colours = shade(shown[:, 2])
    for dx in range(view.oversample + 1):
        for dy in range(view.oversample + 1):
            x, y = np.minimum(place + np.array([dx, dy]), (pixels.shape[1] - 1, pixels.shape[0] - 1)).T
            pixels[y, x] = colours
    return images.fromarray(pixels)


def shade(z: Array) -> npt.NDArray[np.uint8]:
    """Return the colours [n, 3] of points at heights `z` in metres."""
    low, high = HEIGHTS
    at = np.clip((z - low) / (high - low), 0, 1) * (len(RAMP) - 1)
    stops = np.arange(len(RAMP))
    return np.stack([np.interp(at, stops, RAMP[:, c]) for c in range(3)], axis=-1).astype(np.uint8)


def _grid(canvas: _Canvas) -> None:
    """Draw range rings every 10 m with their labels, and the axes with ticks."""
    view = canvas.view
    bearing = np.linspace(-np.pi, np.pi, 721)
    for distance in range(10, 90, 10):
        ring = distance * np.stack([np.cos(bearing), np.sin(bearing)], axis=-1)
        shown = view.shows(ring)
        for run in np.split(np.arange(len(ring)), np.flatnonzero(np.diff(shown)) + 1):
            if shown[run[0]] and len(run) > 1:
                canvas.line(ring[run], GRID, 1)
    canvas.line(np.array([[-view.behind, 0], [view.ahead, 0]]), GRID, 1)
    canvas.line(np.array([[0, -view.aside], [0, view.aside]]), GRID, 1)


def _border(canvas: _Canvas) -> None:
    """Cover the overhang of the plotted area, frame it, and label the axes."""
    view, k = canvas.view, canvas.view.oversample
    left, top, right, bottom = view.frame
    width, height = (side * k for side in view.size)
    for area in ((0, 0, width, top), (0, bottom, width, height), (0, 0, left, height), (right, 0, width, height)):
        canvas.pen.rectangle(area, fill=BACKGROUND)
    canvas.pen.rectangle((left, top, right, bottom), outline=GRID, width=k)
    for metres in range(0, int(view.ahead) + 1, 10):
        canvas.text(left / k - 6, view.place(np.array([metres, 0.0]))[1] / k, f"{metres}", TEXT, anchor="rm")
    for metres in range(-int(view.aside), int(view.aside) + 1, 10):
        canvas.text(view.place(np.array([0.0, metres]))[0] / k, bottom / k + 11, f"{abs(metres)}", TEXT)
    canvas.text(left / k, bottom / k + 28, "m left", TEXT, anchor="lm")
    canvas.text(right / k, bottom / k + 28, "m right", TEXT, anchor="rm")
    canvas.text(left / k, top / k - 12, "m ahead", TEXT, anchor="lm")


def _ring_labels(canvas: _Canvas) -> None:
    """Write each ring's distance to the right, outside a camera's view if the picture is wide enough."""
    for distance in range(10, 80, 10):
        bearing = min(np.radians(62), np.arcsin(min((canvas.view.aside - 3) / distance, 1)))
        canvas.write(distance * np.array([np.cos(bearing), -np.sin(bearing)]), f"{distance} m")


def _ego(canvas: _Canvas) -> None:
    """Draw the vehicle with the LiDAR in its middle."""
    arrow = np.array([[2.2, 0], [-1.8, 1.0], [-1.0, 0], [-1.8, -1.0]])
    canvas.pen.polygon([tuple(p) for p in canvas.view.place(arrow).tolist()], fill=BRIGHT)


def _outline(box: Array) -> Array:
    outline = corners(footprints(box[None]))[0]
    return np.vstack([outline, outline[:1]])


def _draw_boxes(canvas: _Canvas, boxes: Boxes) -> None:
    """Draw the boxes, best on top, each with a tick at its front centre, the true boxes dashed, and names."""
    view, scores = canvas.view, boxes.scores
    shown = [i for i in np.argsort(scores, kind="stable").tolist() if view.shows(boxes.found[i, :2])]
    for i in shown:
        outline, colour = _outline(boxes.found[i]), CLASS_COLOURS[boxes.labels[i]]
        width = 2.2 if scores[i] >= SURE else 1.2
        canvas.line(np.vstack([outline, outline[1:2]]), colour, width)
        front = (outline[0] + outline[3]) / 2
        along = (outline[0] - outline[1]) / np.hypot(*(outline[0] - outline[1]))
        canvas.line(np.stack([front, front + 1.1 * along]), colour, width)
        canvas.taken.append((*view.place(outline).min(0).tolist(), *view.place(outline).max(0).tolist()))
    for box in () if boxes.truth is None else boxes.truth[view.shows(boxes.truth[:, :2])]:
        canvas.dashes(_outline(box), BRIGHT, 1.5)
    for i in reversed(shown):
        label = boxes.labels[i]
        text = f"{CLASSES[label][:3]} {scores[i]:.2f}"
        canvas.tag(text, _outline(boxes.found[i]), CLASS_COLOURS[label], needed=bool(scores[i] >= SURE))


def _legend(canvas: _Canvas, boxes: Boxes, points: int) -> None:
    """Draw the legend of boxes, dashes and shades below the picture, with the count of each."""
    view, k = canvas.view, canvas.view.oversample
    x, y = float(view.margin), view.size[1] - 34.0
    for label, colour in reversed(list(enumerate(CLASS_COLOURS))):
        text = f"{CLASSES[label]} ({np.count_nonzero(boxes.labels == label)} found)"
        canvas.pen.rectangle((x * k, (y - 6) * k, (x + 22) * k, (y + 6) * k), outline=colour, width=2 * k)
        canvas.text(x + 30, y, text, BRIGHT, anchor="lm")
        x += 46 + _font(13).getlength(text)
    if boxes.truth is not None:
        for step in range(0, 24, 8):
            canvas.pen.line(((x + step) * k, y * k, (x + step + 5) * k, y * k), fill=BRIGHT, width=2 * k)
        text = f"true object ({len(boxes.truth)})"
        canvas.text(x + 30, y, text, BRIGHT, anchor="lm")
        x += 46 + _font(13).getlength(text)
    text = f"{points} points; class and score at each box, thin line below {SURE}; tick: heading"
    canvas.text(view.margin, y + 20, text, TEXT, anchor="lm")
    _bar(canvas, view.size[0] - view.margin - 184, y, "height of points above the LiDAR, m")


def _bar(canvas: _Canvas, x: float, y: float, text: str) -> None:
    """Draw the colour bar of heights."""
    k, width = canvas.view.oversample, 150
    for i, colour in enumerate(shade(np.linspace(*HEIGHTS, width)).tolist()):
        canvas.pen.rectangle(((x + i) * k, (y - 5) * k, (x + i + 1) * k, (y + 5) * k), fill=tuple(colour))
    canvas.text(x - 8, y, f"{HEIGHTS[0]:+g}", TEXT, anchor="rm")
    canvas.text(x + width + 6, y, f"{HEIGHTS[1]:+g}", TEXT, anchor="lm")
    canvas.text(x + width + 34, y + 20, text, TEXT, anchor="rm")


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


def draw_range(points: Array, boxes: Boxes, path: str | Path, view: RangeView | None = None) -> Path:
    """Write a PNG of a scan as a range image and return its path; arguments as in `draw`."""
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
    for box in () if boxes.truth is None else boxes.truth:
        _wires(pen, view, box, BRIGHT, 1)
    for index in np.argsort(boxes.scores, kind="stable").tolist():
        width = 2 if boxes.scores[index] >= SURE else 1
        _wires(pen, view, boxes.found[index], CLASS_COLOURS[boxes.labels[index]], width)
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


def draw_detections(trace: Trace, files: Sequence[Path], target: Path, street: int | None) -> None:
    """Draw the first frame with detected boxes, as a range image and from above, with the true boxes where known.

    `street`: the shipped scan that is the first of `files`, None for other scans.
    """
    import tempfile

    from socsched.models.pointpillars.scan import read_scan
    from socsched.models.street import boxes as boxes_in

    numbers = {file.name: number for number, file in enumerate(files)}
    frame = next((f for f, d in sorted(trace.details.items()) if d.get("input") in numbers and "detections" in d), None)
    if frame is None:
        return
    name, detections = str(trace.details[frame]["input"]), trace.details[frame]["detections"]
    points = np.asarray(read_scan(files[numbers[name]], None))
    truth = boxes_in(street + numbers[name]) if street is not None else None
    placed, labels, scores = ([entry[key] for entry in detections] for key in ("box", "label", "score"))
    boxes = Boxes(placed, labels, scores, truth)
    with tempfile.TemporaryDirectory() as scratch:
        above = draw(points, boxes, Path(scratch) / "above.png", f"{name}, frame {frame}")
        ahead = draw_range(points, boxes, Path(scratch) / "ahead.png")
        stack(ahead, above, target)
