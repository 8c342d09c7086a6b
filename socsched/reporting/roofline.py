"""Rooflines of engines with the stages of a pipeline under them: a figure of its own, and one of the report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from socsched.cost.roofs import Point, Roof
from socsched.errors import InputError, UsageError
from socsched.reporting.charts import Axes, free_place
from socsched.reporting.markup import Markup, element, markup, picture, svg, table, text

COLOURS = ("#1b6ca8", "#c8553d", "#2f7d4f", "#7b4ea3", "#b8860b", "#3d7f8c", "#8c3d5a", "#555555")
DASHES = {"fp32": None, "fp16": "10 3", "int8": "3 2"}
FILLS = {"fp16": "#ffffff", "int8": "#f3e6c8"}
"""Fill colour of a stage's mark by precision; for other precisions it is the engine's colour."""
SHAPES = ((24, 0.0, 1.0), (4, 45.0, 1.0), (4, 0.0, 1.0), (3, -90.0, 1.0), (3, 90.0, 1.0), (10, -90.0, 0.45),
          (8, 0.0, 0.4), (5, -90.0, 1.0), (3, 0.0, 1.0), (3, 180.0, 1.0), (6, 0.0, 1.0))  # fmt: skip
"""Marks of stages: corners, angle of the first corner in degrees, radius of every other corner."""


def rate(value: float, unit: str = "op/s") -> str:
    """Return a rate of operations as human-readable text."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def _axes(
    roofs: Sequence[Roof], points: Sequence[Point], size: tuple[float, float, tuple[float, float, float, float]],
    room: tuple[float, float, float],
) -> Axes:  # fmt: skip
    """Return log axes that show all ridges and stages, with `room` (factors) to the left, to the right and above."""
    shown = [roof.ridge for roof in roofs] + [point.intensity for point in points]
    low, high = min([*shown, 1.0]) / room[0], max([*shown, 10.0]) * room[1]
    rates = [point.predicted for point in points]
    bottom, top = min(rates + [roof.attainable(low) for roof in roofs]), max(rates + [roof.peak for roof in roofs])
    return Axes((low, high), (bottom / 2, top * room[2]), *size, log=True)


def _decades(ends: tuple[float, float]) -> Iterator[float]:
    low, high = ends
    yield from (10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1))


def _hover(point: Point) -> Markup:
    told = f"{rate(point.predicted)} of {rate(point.attainable)}"
    return element("title", f"{point.stage} on {point.engine} {point.precision}: {told}")


# -- the page of a report: a colour per engine, numbered stages with a table


def rooflines(roofs: Sequence[Roof], points: Sequence[Point], colours: Mapping[str, int]) -> Markup:
    """Return roofs (a colour per engine, a dash per precision) and numbered stages, and the table for the numbers."""
    axes = _axes(roofs, points, (720, 400, (66, 20, 30, 46)), (3, 4, 2))
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
        parts.append(text(f"{group} {roof.precision}", 720 - 20 - 4, height, class_="axis end"))
    taken: list[tuple[float, float]] = []
    for number, point in enumerate(points, 1):
        x, y = axes.x(point.intensity), axes.y(point.predicted)
        u, v = free_place((x, y), taken)
        taken.append((u, v))
        parts.append(
            element(
                "g",
                _hover(point),
                element("line", x1=x, x2=x, y1=y, y2=axes.y(point.attainable), class_="drop"),
                element("line", x1=x, x2=u, y1=y, y2=v, class_="drop"),
                element("circle", cx=x, cy=y, r=3.5, class_="point full"),
                element("circle", cx=u, cy=v, r=8.5, class_="point"),
                text(number, u, v + 4, class_="mid small point-no"),
                class_=f"c{colours.get(point.engine, 0)}",
            )
        )
    named = ", ".join(f"{number} {point.stage}" for number, point in enumerate(points, 1))
    name = f"Rooflines of the engines in use, and the stages: {named}"
    rows = [
        [
            number, point.stage, f"{point.engine} {point.precision}", f"{point.intensity:.3g}", rate(point.attainable),
            rate(point.predicted), f"{point.predicted / point.attainable:.2%}" if point.attainable else "–",
        ]
        for number, point in enumerate(points, 1)
    ]  # fmt: skip
    header = ["no.", "stage", "engine", "operations per byte", "attainable", "planned", "of attainable"]
    return picture(parts, 720, 400, name, "chart wide") + table(header, rows, (3, 4, 5, 6))


# -- the figure of `socsched platforms show --plot`: it stands alone, so colours are its own and a legend names all

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1060, 680, 70, 20, 36, 80


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
    axes = _axes(roofs, points, (WIDTH, HEIGHT, (LEFT, RIGHT, TOP, BOTTOM)), (4, 6, 2.5))
    groups = list(dict.fromkeys(roof.engines for roof in roofs))
    colour = {engine: COLOURS[i % len(COLOURS)] for i, group in enumerate(groups) for engine in group}
    stages = list(dict.fromkeys(point.stage for point in points))
    return svg(
        title,
        element("rect", width=WIDTH, height=HEIGHT, fill="white"),
        _grid(axes),
        (_roof(axes, roof, colour) for roof in roofs),
        (
            _point(axes, point, SHAPES[stages.index(point.stage) % len(SHAPES)], colour[point.engine])
            for point in points
        ),
        _legend(roofs, colour),
        _stages(stages) if stages else None,
        text(title, LEFT, 22, font_size=15),
        (text(note, 12, HEIGHT - 24 + 14 * row, font_size=10, fill="#555555") for row, note in enumerate(notes)),
        width=WIDTH,
        height=HEIGHT,
        font_family="sans-serif",
        font_size=12,
    )


def _grid(axes: Axes) -> Markup:
    right, base, parts = WIDTH - RIGHT, HEIGHT - BOTTOM, []
    for at in _decades(axes.x_range):
        parts.append(element("line", x1=axes.x(at), x2=axes.x(at), y1=TOP, y2=base, stroke="#dddddd"))
        parts.append(text(f"{at:g}", axes.x(at), base + 16, text_anchor="middle"))
    for at in _decades(axes.y_range):
        parts.append(element("line", x1=LEFT, x2=right, y1=axes.y(at), y2=axes.y(at), stroke="#dddddd"))
        parts.append(text(rate(at, ""), LEFT - 6, axes.y(at) + 4, text_anchor="end"))
    parts.append(element("rect", x=LEFT, y=TOP, width=right - LEFT, height=base - TOP, fill="none", stroke="black"))
    named = "arithmetic intensity [operations / byte of DRAM traffic]"
    parts.append(text(named, (LEFT + right) / 2, base + 36, text_anchor="middle"))
    upright = f"rotate(-90 14 {(TOP + base) / 2:g})"
    parts.append(text("operations / s", 14, (TOP + base) / 2, text_anchor="middle", transform=upright))
    return markup(parts)


def _roof(axes: Axes, roof: Roof, colour: Mapping[str, str]) -> Markup:
    """Return the roof of an engine and, as a thin line, the rate that convolutions reach."""
    low, high = axes.x_range

    def line(places: Sequence[tuple[float, float]], **style: object) -> Markup:
        joined = " ".join(f"{axes.x(at):.1f},{axes.y(height):.1f}" for at, height in places)
        return element("polyline", points=joined, fill="none", **_stroke(roof, colour), **style)

    ends = [(at, roof.attainable(at)) for at in (low, min(max(roof.ridge, low), high), high)]
    reached = max(roof.reached / roof.bandwidth, low)
    thin = [(reached, roof.reached), (high, roof.reached)]
    return line(ends, stroke_width=2.2) + line(thin, stroke_width=0.8, opacity=0.55)


def _stroke(roof: Roof, colour: Mapping[str, str]) -> dict[str, object]:
    return {"stroke": colour[roof.engines[0]], "stroke_dasharray": DASHES[roof.precision]}


def _point(axes: Axes, point: Point, shape: tuple[int, float, float], tint: str) -> Markup:
    x, y = axes.x(point.intensity), axes.y(point.predicted)
    line = element("line", x1=x, x2=x, y1=y, y2=axes.y(point.attainable), stroke=tint, opacity=0.5)
    return element("g", _hover(point), line, _mark(shape, x, y, tint, FILLS.get(point.precision, tint)))


def _mark(shape: tuple[int, float, float], x: float, y: float, stroke: str, fill: str) -> Markup:
    corners, first, inner = shape
    places = []
    for corner in range(corners):
        angle, radius = math.radians(first + corner * 360 / corners), 6 * (inner if corner % 2 else 1)
        places.append(f"{x + radius * math.cos(angle):.1f},{y + radius * math.sin(angle):.1f}")
    return element("polygon", points=" ".join(places), stroke=stroke, stroke_width=1.2, fill=fill)


def _legend(roofs: Sequence[Roof], colour: Mapping[str, str]) -> Markup:
    columns = 2 if len(roofs) > 8 else 1
    rows = math.ceil(len(roofs) / columns)
    names = []
    for roof in roofs:
        group = roof.engines[0] if len(roof.engines) == 1 else f"each of {', '.join(roof.engines)}"
        names.append(f"{group} {roof.precision}: {rate(roof.peak)}, {roof.bandwidth / 1e9:.3g} GB/s")
    room = 56 + 6.2 * max(map(len, names))
    parts = [_box(LEFT + 8, TOP + 8, room * columns, rows * 16 + 10)]
    for number, (roof, name) in enumerate(zip(roofs, names, strict=True)):
        x, y = LEFT + 16 + number // rows * room, TOP + 22 + number % rows * 16
        parts.append(element("line", x1=x, x2=x + 30, y1=y, y2=y, stroke_width=2.2, **_stroke(roof, colour)))
        parts.append(text(name, x + 38, y + 4, font_size=11))
    return markup(parts)


def _stages(stages: Sequence[str]) -> Markup:
    title, height = "stages, as predicted", 16 * len(stages) + 26
    room = 40 + 6.2 * max(len(name) for name in (*stages, title))
    x, y = WIDTH - RIGHT - 8 - room, HEIGHT - BOTTOM - 8 - height
    parts = [_box(x, y, room, height), text(title, x + 8, y + 15, font_size=11)]
    for row, name in enumerate(stages):
        parts.append(_mark(SHAPES[row % len(SHAPES)], x + 16, y + 30 + 16 * row, "#333333", "#333333"))
        parts.append(text(name, x + 32, y + 34 + 16 * row, font_size=11))
    return markup(parts)


def _box(x: float, y: float, width: float, height: float) -> Markup:
    style = {"fill": "white", "fill_opacity": 0.92, "stroke": "#bbbbbb", "rx": 3}
    return element("rect", x=x, y=y, width=width, height=height, **style)
