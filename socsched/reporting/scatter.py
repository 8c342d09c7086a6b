"""A scatter plot on two logarithmic axes of equal range, as plain SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from socsched.reporting.svg import element, picture, text

SIZE, LEFT, RIGHT, TOP, BOTTOM = 420, 62, 16, 24, 44


@dataclass(frozen=True, slots=True)
class Point:
    """A point at (x, y), both above zero, in one of the eight colours of the report, with the label shown on hover."""

    x: float
    y: float
    colour: int
    label: str


def draw_scatter(points: Sequence[Point], x_label: str, y_label: str, name: str) -> str:
    """Return points on log axes with the diagonal and the lines of half and double; dots at one place are one."""
    values = [value for point in points for value in (point.x, point.y)] or [1.0]
    low, high = min(values) / 1.4, max(values) * 1.4

    def at(value: float) -> float:
        return math.log(value / low) / math.log(high / low)

    def x(value: float) -> float:
        return LEFT + at(value) * (SIZE - LEFT - RIGHT)

    def y(value: float) -> float:
        return SIZE - BOTTOM - at(value) * (SIZE - TOP - BOTTOM)

    body = ""
    for tick in _ticks(low, high):
        body += element("line", x1=x(tick), x2=x(tick), y1=TOP, y2=SIZE - BOTTOM, class_="grid")
        body += element("line", x1=LEFT, x2=SIZE - RIGHT, y1=y(tick), y2=y(tick), class_="grid")
        body += text(f"{tick:g}", x(tick), SIZE - BOTTOM + 17, class_="axis mid")
        body += text(f"{tick:g}", LEFT - 6, y(tick) + 4, class_="axis end")
    for factor, style in ((1.0, "rule"), (2.0, "bound"), (0.5, "bound")):
        start, end = max(low, low / factor), min(high, high / factor)
        if start < end:
            ends = {"x1": x(start), "y1": y(start * factor), "x2": x(end), "y2": y(end * factor)}
            body += element("line", **ends, class_=style)
    body += text(x_label, SIZE - RIGHT, SIZE - 8, class_="axis end") + text(y_label, 4, 14, class_="axis")
    places = {(round(x(point.x), 1), round(y(point.y), 1), point.colour): point for point in points}
    for (left, top, colour), point in places.items():
        dot = element("circle", element("title", escape(point.label)), cx=left, cy=top, r=4, class_="point full")
        body += element("g", dot, class_=f"c{colour}")
    return picture(body, SIZE, SIZE, name, "chart")


def _ticks(low: float, high: float) -> list[float]:
    """Return powers of ten in a range, with 2 and 5 between them where it spans less than three of them."""
    steps = (1, 2, 5) if math.log10(high / low) < 3 else (1,)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**exponent for exponent in exponents for step in steps if low <= step * 10.0**exponent <= high]
