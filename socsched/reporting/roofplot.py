"""Rooflines with the stages of a plan, as SVG with a table of the values shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from socsched.cost.roofs import Point, Roof
from socsched.reporting.markup import element, picture, table, text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 66, 20, 30, 46


def rooflines(roofs: Sequence[Roof], points: Sequence[Point], colours: Mapping[str, int]) -> str:
    """Return roofs (a colour per engine, a dash per precision) and numbered stages, and the table for the numbers."""
    shown = [r.ridge for r in roofs] + [p.intensity for p in points]
    low, high = min([*shown, 1.0]) / 3, max([*shown, 10.0]) * 4
    rates = [p.predicted for p in points] + [r.attainable(low) for r in roofs]
    bottom, top = min(rates) / 2, max([r.peak for r in roofs] + [p.predicted for p in points]) * 2

    def x(value: float) -> float:
        return LEFT + math.log(value / low) / math.log(high / low) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - math.log(value / bottom) / math.log(top / bottom) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for exponent in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        at = 10.0**exponent
        parts.append(element("line", x1=x(at), x2=x(at), y1=TOP, y2=HEIGHT - BOTTOM, class_="grid"))
        parts.append(text(f"{at:g}", x(at), HEIGHT - BOTTOM + 17, class_="axis mid"))
    for exponent in range(math.ceil(math.log10(bottom)), math.floor(math.log10(top)) + 1):
        at = 10.0**exponent
        parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(at), y2=y(at), class_="grid"))
        parts.append(text(rate(at, ""), LEFT - 6, y(at) + 4, class_="axis end"))
    parts.append(text("operations per byte of DRAM traffic", WIDTH - RIGHT, HEIGHT - 8, class_="axis end"))
    parts.append(text("operations / s", 4, 16, class_="axis"))
    labels: list[float] = []
    for roof in sorted(roofs, key=lambda roof: -roof.peak):
        colour = next((colours[e] for e in roof.engines if e in colours), 0)
        path = f"M{x(low):.1f} {y(roof.attainable(low)):.1f}L{x(roof.ridge):.1f} {y(roof.peak):.1f}H{x(high):.1f}"
        parts.append(element("path", d=path, class_=f"roof {roof.precision} c{colour}"))
        above, below = y(roof.peak) - 5, y(roof.peak) + 14
        height = above if all(abs(above - other) > 15 for other in labels) else below
        labels.append(height)
        parts.append(text(f"{_group(roof.engines)} {roof.precision}", WIDTH - RIGHT - 4, height, class_="axis end"))
    taken: list[tuple[float, float]] = []
    for number, point in enumerate(points, 1):
        place = x(point.intensity), y(point.predicted)
        taken.append(free_place(place, taken))
        parts.append(_point(number, point, place, taken[-1], y(point.attainable), colours))
    named = ", ".join(f"{number} {point.stage}" for number, point in enumerate(points, 1))
    drawn = picture(
        "".join(parts), WIDTH, HEIGHT, f"Rooflines of the engines in use, and the stages: {named}", "chart wide"
    )
    return drawn + _table(points)


def free_place(at: tuple[float, float], taken: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return a place (pixels) for a number at its point, or next to it if another number is there."""
    around = [(0, 0), (19, 0), (-19, 0), (0, 19), (19, 19), (-19, 19), (38, 0), (-38, 0), (0, 38), (38, 19), (-38, 19)]
    places = [(at[0] + dx, at[1] + dy) for dx, dy in around]
    return next((p for p in places if all(math.dist(p, other) > 18 for other in taken)), at)


def _point(
    number: int,
    point: Point,
    at: tuple[float, float],
    label: tuple[float, float],
    roof: float,
    colours: Mapping[str, int],
) -> str:
    hover = f"{point.stage} on {point.engine} {point.precision}: {rate(point.predicted)} of {rate(point.attainable)}"
    (x, y), (u, v) = at, label
    return element(
        "g",
        element("title", escape(hover))
        + element("line", x1=x, x2=x, y1=y, y2=roof, class_="drop")
        + element("line", x1=x, x2=u, y1=y, y2=v, class_="drop")
        + element("circle", cx=x, cy=y, r=3.5, class_="point full")
        + element("circle", cx=u, cy=v, r=8.5, class_="point")
        + text(number, u, v + 4, class_="mid small point-no"),
        class_=f"c{colours.get(point.engine, 0)}",
    )


def _table(points: Sequence[Point]) -> str:
    rows = [
        [
            str(number),
            escape(point.stage),
            escape(f"{point.engine} {point.precision}"),
            f"{point.intensity:.3g}",
            rate(point.attainable),
            rate(point.predicted),
            f"{point.predicted / point.attainable:.2%}" if point.attainable else "–",
        ]
        for number, point in enumerate(points, 1)
    ]
    header = ["no.", "stage", "engine", "operations per byte", "attainable", "planned", "of attainable"]
    return table(header, rows, (3, 4, 5, 6))


def _group(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{ids[0]}–{ids[-1]} each"


def rate(value: float, unit: str = "op/s") -> str:
    """Return a rate of operations as human-readable text."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
