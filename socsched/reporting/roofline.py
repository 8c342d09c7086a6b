"""Rooflines of engines with the stages of a pipeline under them: a figure of its own, and one of the report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap

from socsched.cost.roofs import Point, Roof
from socsched.errors import InputError, UsageError
from socsched.reporting.charts import Axes, free_place
from socsched.reporting.markup import Markup, element, figure, markup, picture, table, text

WIDTH, HEIGHT = 720, 400


def rate(value: float, unit: str = "op/s") -> str:
    """Return a rate of operations as human-readable text."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def _axes(roofs: Sequence[Roof], points: Sequence[Point]) -> Axes:
    """Return log axes that show all ridges and stages."""
    shown = [roof.ridge for roof in roofs] + [point.intensity for point in points]
    low, high = min([*shown, 1.0]) / 3, max([*shown, 10.0]) * 4
    rates = [point.predicted for point in points]
    bottom, top = min(rates + [roof.attainable(low) for roof in roofs]), max(rates + [roof.peak for roof in roofs])
    return Axes((low, high), (bottom / 2, top * 2), WIDTH, HEIGHT, (66, 20, 30, 46), log=True)


def _decades(ends: tuple[float, float]) -> Iterator[float]:
    low, high = ends
    yield from (10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1))


def _drawing(roofs: Sequence[Roof], points: Sequence[Point], colours: Mapping[str, int]) -> Markup:
    """Return roofs (a colour per engine, a dash per precision) and numbered stages."""
    axes = _axes(roofs, points)
    parts = [
        axes.grid(
            [(at, f"{at:g}") for at in _decades(axes.x_range)],
            [(at, rate(at, "")) for at in _decades(axes.y_range)],
            "operations per byte of DRAM traffic",
            "operations / s",
        )
    ]
    labels: list[float] = []
    low, high = axes.x_range
    for roof in sorted(roofs, key=lambda roof: -roof.peak):
        colour = next((colours[e] for e in roof.engines if e in colours), 0)
        start, ridge = (axes.x(low), axes.y(roof.attainable(low))), (axes.x(roof.ridge), axes.y(roof.peak))
        path = f"M{start[0]:.1f} {start[1]:.1f}L{ridge[0]:.1f} {ridge[1]:.1f}H{axes.x(high):.1f}"
        parts.append(element("path", d=path, class_=f"roof {roof.precision} c{colour}"))
        above, below = ridge[1] - 5, ridge[1] + 14
        height = above if all(abs(above - other) > 15 for other in labels) else below
        labels.append(height)
        group = roof.engines[0] if len(roof.engines) == 1 else f"{roof.engines[0]}–{roof.engines[-1]} each"
        parts.append(text(f"{group} {roof.precision}", WIDTH - 20 - 4, height, class_="axis end"))
    taken: list[tuple[float, float]] = []
    for number, point in enumerate(points, 1):
        x, y = axes.x(point.intensity), axes.y(point.predicted)
        u, v = free_place((x, y), taken)
        taken.append((u, v))
        told = f"{rate(point.predicted)} of {rate(point.attainable)}"
        parts.append(
            element(
                "g",
                element("title", f"{point.stage} on {point.engine} {point.precision}: {told}"),
                element("line", x1=x, x2=x, y1=y, y2=axes.y(point.attainable), class_="drop"),
                element("line", x1=x, x2=u, y1=y, y2=v, class_="drop"),
                element("circle", cx=x, cy=y, r=3.5, class_="point full"),
                element("circle", cx=u, cy=v, r=8.5, class_="point"),
                text(number, u, v + 4, class_="mid small point-no"),
                class_=f"c{colours.get(point.engine, 0)}",
            )
        )
    return markup(parts)


def _named(points: Sequence[Point]) -> str:
    return ", ".join(f"{number} {point.stage}" for number, point in enumerate(points, 1))


def rooflines(roofs: Sequence[Roof], points: Sequence[Point], colours: Mapping[str, int]) -> Markup:
    """Return the drawing with the colours of the report's engines, and the table for its numbers."""
    name = f"Rooflines of the engines in use, and the stages: {_named(points)}"
    rows = [
        [
            number, point.stage, f"{point.engine} {point.precision}", f"{point.intensity:.3g}", rate(point.attainable),
            rate(point.predicted), f"{point.predicted / point.attainable:.2%}" if point.attainable else "–",
        ]
        for number, point in enumerate(points, 1)
    ]  # fmt: skip
    header = ["no.", "stage", "engine", "operations per byte", "attainable", "planned", "of attainable"]
    drawn = picture(_drawing(roofs, points, colours), WIDTH, HEIGHT, name, "chart wide")
    return drawn + table(header, rows, (3, 4, 5, 6))


def draw(path: Path, roofs: Sequence[Roof], points: Sequence[Point], title: str, notes: Sequence[str]) -> None:
    """Write the figure to `path` (.svg); the same input gives the same bytes.

    Raises UsageError for another suffix, InputError if the file cannot be written.
    """
    if path.suffix.lower() != ".svg":
        raise UsageError(f"{path}: rooflines are drawn as SVG", "use FILE.svg")
    try:
        path.write_text(standalone(roofs, points, title, notes), encoding="utf-8")
    except OSError as error:
        problem = f"{path}: cannot be written: {error.strerror}"
        raise InputError(problem, "choose an existing, writable folder") from None


def standalone(roofs: Sequence[Roof], points: Sequence[Point], title: str, notes: Sequence[str]) -> str:
    """Return the drawing as a complete SVG, with a colour for each group of engines; `notes`: lines below it."""
    groups = dict.fromkeys(roof.engines for roof in roofs)
    colours = {engine: 1 + number % 7 for number, group in enumerate(groups) for engine in group}
    stages = wrap(_named(points), 110)
    return figure(title, _drawing(roofs, points, colours), WIDTH, HEIGHT, [*notes, *stages])
