"""The roofline figure: roofs of engines, memory ceilings, and the stages of a pipeline under them, as one SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from socsched.cost.roofs import Point, Roof
from socsched.errors import InputError, UsageError
from socsched.reporting.markup import element, text
from socsched.reporting.roofplot import rate

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1060, 680, 70, 20, 36, 80
COLOURS = ("#1b6ca8", "#c8553d", "#2f7d4f", "#7b4ea3", "#b8860b", "#3d7f8c", "#8c3d5a", "#555555")
DASHES = {"fp32": None, "fp16": "10 3", "int8": "3 2"}
FILLS = {"fp16": "#ffffff", "int8": "#f3e6c8"}
"""Fill colour of a stage's mark by precision; for other precisions it is the engine's colour."""
SHAPES = ((24, 0.0, 1.0), (4, 45.0, 1.0), (4, 0.0, 1.0), (3, -90.0, 1.0), (3, 90.0, 1.0), (10, -90.0, 0.45),
          (8, 0.0, 0.4), (5, -90.0, 1.0), (3, 0.0, 1.0), (3, 180.0, 1.0), (6, 0.0, 1.0))  # fmt: skip
"""Marks of stages: corners, angle of the first corner in degrees, radius of every other corner."""


@dataclass(frozen=True, slots=True)
class _Axes:
    """Logarithmic axes: intensities (operations/byte) to the right, rates (operations/s) upwards."""

    low: float
    high: float
    bottom: float
    top: float

    def x(self, value: float) -> float:
        return LEFT + math.log(value / self.low) / math.log(self.high / self.low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = math.log(value / self.bottom) / math.log(self.top / self.bottom)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def draw(path: Path, roofs: Sequence[Roof], points: Sequence[Point], title: str, notes: Sequence[str]) -> None:
    """Write the figure to `path` (.svg); the same input gives the same bytes.

    Raises UsageError for another suffix, InputError if the file cannot be written.
    """
    if path.suffix.lower() != ".svg":
        raise UsageError(f"{path}: rooflines are drawn as SVG", "use FILE.svg")
    try:
        path.write_text(figure(roofs, points, title, notes), encoding="utf-8")
    except OSError as error:
        problem = f"{path}: cannot be written: {error.strerror}"
        raise InputError(problem, "choose an existing, writable folder") from None


def figure(roofs: Sequence[Roof], points: Sequence[Point], title: str, notes: Sequence[str]) -> str:
    """Return the complete SVG: a colour for each group of engines, a dash and fill for each precision, marks of stages.

    `notes`: lines of text below the figure.
    """
    axes = _axes(roofs, points)
    groups = list(dict.fromkeys(roof.engines for roof in roofs))
    colour = {engine: COLOURS[i % len(COLOURS)] for i, group in enumerate(groups) for engine in group}
    stages = list(dict.fromkeys(point.stage for point in points))
    body = [_grid(axes), *(_roof(axes, roof, colour) for roof in roofs)]
    body += [_point(axes, point, SHAPES[stages.index(point.stage) % len(SHAPES)], colour) for point in points]
    body += [_legend(roofs, colour), _stages(stages) if stages else ""]
    body += [text(title, LEFT, 22, font_size=15)]
    body += [text(note, 12, HEIGHT - 24 + 14 * row, font_size=10, fill="#555555") for row, note in enumerate(notes)]
    return element(
        "svg",
        element("title", escape(title)) + element("rect", width=WIDTH, height=HEIGHT, fill="white") + "".join(body),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH,
        height=HEIGHT,
        xmlns="http://www.w3.org/2000/svg",
        font_family="sans-serif",
        font_size=12,
    )


def _axes(roofs: Sequence[Roof], points: Sequence[Point]) -> _Axes:
    """Return axes that show all ridges and stages."""
    shown = [roof.ridge for roof in roofs] + [point.intensity for point in points]
    low, high = min([*shown, 1.0]) / 4, max([*shown, 10.0]) * 6
    rates = [point.predicted for point in points]
    bottom = min(rates + [roof.attainable(low) for roof in roofs])
    return _Axes(low, high, bottom / 2, max(rates + [roof.peak for roof in roofs]) * 2.5)


def _grid(axes: _Axes) -> str:
    right, base, parts = WIDTH - RIGHT, HEIGHT - BOTTOM, []
    for at in _decades(axes.low, axes.high):
        x = axes.x(at)
        parts.append(element("line", x1=x, x2=x, y1=TOP, y2=base, stroke="#dddddd"))
        parts.append(text(f"{at:g}", x, base + 16, text_anchor="middle"))
    for at in _decades(axes.bottom, axes.top):
        y = axes.y(at)
        parts.append(element("line", x1=LEFT, x2=right, y1=y, y2=y, stroke="#dddddd"))
        parts.append(text(rate(at, ""), LEFT - 6, y + 4, text_anchor="end"))
    parts.append(element("rect", x=LEFT, y=TOP, width=right - LEFT, height=base - TOP, fill="none", stroke="black"))
    named = "arithmetic intensity [operations / byte of DRAM traffic]"
    parts.append(text(named, (LEFT + right) / 2, base + 36, text_anchor="middle"))
    upright = f"rotate(-90 14 {(TOP + base) / 2:g})"
    parts.append(text("operations / s", 14, (TOP + base) / 2, text_anchor="middle", transform=upright))
    return "".join(parts)


def _decades(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]


def _roof(axes: _Axes, roof: Roof, colour: Mapping[str, str]) -> str:
    """Return the roof of an engine and, as a thin line, the rate that convolutions reach."""

    def line(intensities: Sequence[float], height: Callable[[float], float], **style: object) -> str:
        places = " ".join(f"{axes.x(at):.1f},{axes.y(height(at)):.1f}" for at in intensities)
        return element("polyline", points=places, fill="none", **_stroke(roof, colour), **style)

    ridge = min(max(roof.ridge, axes.low), axes.high)
    reached = max(roof.reached / roof.bandwidth, axes.low)
    return line([axes.low, ridge, axes.high], roof.attainable, stroke_width=2.2) + line(
        [reached, axes.high], lambda _: roof.reached, stroke_width=0.8, opacity=0.55
    )


def _stroke(roof: Roof, colour: Mapping[str, str]) -> dict[str, object]:
    return {"stroke": colour[roof.engines[0]], "stroke_dasharray": DASHES[roof.precision]}


def _point(axes: _Axes, point: Point, shape: tuple[int, float, float], colour: Mapping[str, str]) -> str:
    x, tint = axes.x(point.intensity), colour[point.engine]
    description = (
        f"{point.stage} on {point.engine} {point.precision}: {rate(point.predicted)} of {rate(point.attainable)}"
    )
    line = element(
        "line", x1=x, x2=x, y1=axes.y(point.predicted), y2=axes.y(point.attainable), stroke=tint, opacity=0.5
    )
    mark = _mark(shape, x, axes.y(point.predicted), tint, FILLS.get(point.precision, tint))
    return element("g", element("title", escape(description)) + line + mark)


def _mark(shape: tuple[int, float, float], x: float, y: float, stroke: str, fill: str) -> str:
    corners, first, inner = shape
    places = []
    for corner in range(corners):
        angle, radius = math.radians(first + corner * 360 / corners), 6 * (inner if corner % 2 else 1)
        places.append(f"{x + radius * math.cos(angle):.1f},{y + radius * math.sin(angle):.1f}")
    return element("polygon", points=" ".join(places), stroke=stroke, stroke_width=1.2, fill=fill)


def _legend(roofs: Sequence[Roof], colour: Mapping[str, str]) -> str:
    parts, columns = [], 2 if len(roofs) > 8 else 1
    rows = math.ceil(len(roofs) / columns)
    names = [f"{_group(r.engines)} {r.precision}: {rate(r.peak)}, {r.bandwidth / 1e9:.3g} GB/s" for r in roofs]
    room = 56 + 6.2 * max(map(len, names))
    parts.append(_box(LEFT + 8, TOP + 8, room * columns, rows * 16 + 10))
    for number, (roof, name) in enumerate(zip(roofs, names, strict=True)):
        x, y = LEFT + 16 + number // rows * room, TOP + 22 + number % rows * 16
        parts.append(element("line", x1=x, x2=x + 30, y1=y, y2=y, stroke_width=2.2, **_stroke(roof, colour)))
        parts.append(text(name, x + 38, y + 4, font_size=11))
    return "".join(parts)


def _stages(stages: Sequence[str]) -> str:
    title, height = "stages, as predicted", 16 * len(stages) + 26
    room = 40 + 6.2 * max(len(name) for name in (*stages, title))
    x, y = WIDTH - RIGHT - 8 - room, HEIGHT - BOTTOM - 8 - height
    parts = [_box(x, y, room, height), text(title, x + 8, y + 15, font_size=11)]
    for row, name in enumerate(stages):
        parts.append(_mark(SHAPES[row % len(SHAPES)], x + 16, y + 30 + 16 * row, "#333333", "#333333"))
        parts.append(text(name, x + 32, y + 34 + 16 * row, font_size=11))
    return "".join(parts)


def _box(x: float, y: float, width: float, height: float) -> str:
    return element(
        "rect", x=x, y=y, width=width, height=height, fill="white", fill_opacity=0.92, stroke="#bbbbbb", rx=3
    )


def _group(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"each of {', '.join(ids)}"
