"""The mapping as a diagram: one swimlane per engine, stages from left to right in data-flow order.

Conversions are separate dashed boxes, sampled data dashed arrows; where a network was split between engines, the cut
is named between its parts.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from socsched.models.parts import PartOf, part_of
from socsched.planning.plan import Plan, Task
from socsched.reporting.markup import Markup, element, fit, markup, picture, text
from socsched.reporting.timeline import colours
from socsched.units import format_duration

BOX_H, GAP_Y, LEFT, TOP = 66, 12, 96, 26
STAGE_W, CONVERSION_W, SENSOR_W, GAP_X = 112, 96, 84, 20
PAGE = 1060
"""The page's text width; wider pictures are drawn narrower, down to `NARROW`, and scroll beyond."""
NARROW = 0.62
SENSORS = "sensors"

Place = tuple[float, float, float]
"""Left and upper edge of a box, and its width."""


@dataclass(frozen=True, slots=True)
class _Box:
    """Content of a box: name, lines below, class, tooltip."""

    name: str
    lines: tuple[str, ...]
    style: str
    hover: str


def depths(plan: Plan) -> dict[str, int]:
    """Return the number of hand-overs before each sensor and task (0 for sensors and independent timers)."""
    depth_of = {sensor.name: 0 for sensor in plan.sensors}
    tasks = {task.name: task for task in plan.tasks}

    def visit(name: str, seen: frozenset[str]) -> int:
        if name in depth_of or name not in tasks or name in seen:
            return depth_of.get(name, 0)
        before = [visit(other, seen | {name}) for other in (*tasks[name].after, *tasks[name].reads)]
        depth_of[name] = 1 + max(before, default=0)
        return depth_of[name]

    for task in plan.tasks:
        visit(task.name, frozenset())
    return depth_of


def mapping(plan: Plan) -> Markup:
    """Return the mapping diagram as SVG."""
    column = depths(plan)
    lanes = [
        *([SENSORS] if plan.sensors else []),
        *(engine.id for engine in plan.engines if any(t.engine == engine.id for t in plan.tasks)),
    ]
    cells: dict[tuple[str, int], list[str]] = defaultdict(list)
    for sensor in plan.sensors:
        cells[SENSORS, 0].append(sensor.name)
    for task in plan.tasks:
        cells[task.engine, column[task.name]].append(task.name)
    edges, widths = _columns(plan, column)
    width = edges[-1]
    place: dict[str, Place] = {}
    bands, y = [], float(TOP)
    for number, lane in enumerate(lanes):
        rows = max((len(names) for (owner, _), names in cells.items() if owner == lane), default=1)
        height = rows * (BOX_H + GAP_Y) + GAP_Y
        bands.append(_band(plan, lane, number, y, width, height))
        for (owner, depth), names in cells.items():
            for row, name in enumerate(names if owner == lane else ()):
                place[name] = (edges[depth], y + GAP_Y + row * (BOX_H + GAP_Y), widths[depth])
        y += height
    colour = colours(plan)
    boxes = markup(_draw(_stage(plan, task, colour[task.engine]), place[task.name]) for task in plan.tasks)
    for sensor in plan.sensors:
        lines = ("every", format_duration(sensor.period_ns))
        boxes += _draw(_Box(sensor.name, lines, "sensor c0", f"{sensor.name}, a sensor"), place[sensor.name])
    label = f"Mapping of {plan.pipeline} onto {plan.platform}: " + ", ".join(
        f"{task.name} on {task.engine}" for task in plan.tasks if task.kind == "stage"
    )
    head = text(
        "data flows to the right; dashed arrows: the latest output is sampled; ⇄: a conversion; ✂: a cut after a layer",
        LEFT,
        15,
        class_="axis",
    )
    body = _ARROW + head + markup(bands) + _edges(plan, place) + boxes + _cuts(plan, place)
    return picture(body, width, y + 4, label, "mapping")


def _columns(plan: Plan, column: dict[str, int]) -> tuple[list[float], list[float]]:
    """Return the left edge of every column and of the one after the last, and the width of every column."""
    widths = [float(CONVERSION_W)] * (max(column.values(), default=0) + 1)
    for sensor in plan.sensors:
        widths[column[sensor.name]] = max(widths[column[sensor.name]], SENSOR_W)
    for task in plan.tasks:
        if task.kind == "stage":
            widths[column[task.name]] = STAGE_W
    gap, whole = float(GAP_X), sum(widths) + GAP_X * len(widths)
    scale = min(1.0, max((PAGE - LEFT) / whole, NARROW))
    edges = [float(LEFT)]
    for width in widths:
        edges.append(edges[-1] + (width + gap) * scale)
    return edges, [width * scale for width in widths]


def _band(plan: Plan, lane: str, number: int, y: float, width: float, height: float) -> Markup:
    engine = next((e for e in plan.engines if e.id == lane), None)
    below = f"{engine.lanes} lane{'s' if engine.lanes != 1 else ''}, {engine.policy}" if engine else ""
    return (
        element("rect", x=0, y=y, width=width, height=height, class_=f"band {'odd' if number % 2 else ''}")
        + text(fit(lane, LEFT - 12), 8, y + height / 2 - 2, class_="lane")
        + text(fit(below, LEFT - 12, 10.5), 8, y + height / 2 + 14, class_="axis small")
    )


def _stage(plan: Plan, task: Task, colour: int) -> _Box:
    share = f" ×{len(task.lanes)}" if len(task.lanes) > 1 else ""
    cost, precision = format_duration(task.cost_ns, 3), task.precision + share
    hover = f"{task.name} on {task.engine}: {cost}, {precision}; {task.provenance}. {task.why}"
    if task.kind == "stage":
        return _Box(task.name, (cost, precision), f"stage c{colour}", hover)
    change = next(((t.dtype_from, t.dtype_to) for t in plan.transitions if t.task == task.name), ("", ""))
    conversion = f"to {change[1]}" if change[0] != change[1] else "layout"
    return _Box("⇄", (cost, conversion), f"{task.kind} c{colour}", hover)


def _draw(box: _Box, at: Place) -> Markup:
    x, y, width = at
    title = _wrapped(box.name, width - 12)
    lines = markup(
        text(fit(line, width - 8, 10.5), x + 7, y + 33 + 14 * (len(title) - 1) + 14 * i, class_="axis small")
        for i, line in enumerate(box.lines)
    )
    return element(
        "g",
        element("title", box.hover)
        + element("rect", x=x, y=y, width=width, height=BOX_H, rx=5, class_="box")
        + markup(text(line, x + 7, y + 17 + 14 * i, class_="name") for i, line in enumerate(title))
        + lines,
        class_=f"node {box.style}",
    )


def _wrapped(name: str, width: float) -> list[str]:
    """Return a name on one line, or on two if it does not fit, broken after a hyphen or dot if it contains one."""
    size = 11.5
    room = int(width / (size * 0.58))
    if len(name) <= room:
        return [name]
    places = [i + 1 for i, sign in enumerate(name) if sign in "-._/ " and i < room]
    at = places[-1] if places else room
    return [name[:at], fit(name[at:], width, size)]


def _edges(plan: Plan, place: dict[str, Place]) -> Markup:
    drawn = []
    for task in plan.tasks:
        for source, style in [*((s, "edge") for s in task.after), *((s, "edge reads") for s in task.reads)]:
            if source in place:
                drawn.append(_edge(place[source], place[task.name], style))
    return markup(drawn)


def _edge(start: Place, end: Place, style: str) -> Markup:
    x0, y0 = start[0] + start[2], start[1] + BOX_H / 2
    x1, y1 = end[0] - 3, end[1] + BOX_H / 2
    if x1 < x0:  # a loop back: leave below, arrive below
        y0, y1, x0, x1 = start[1] + BOX_H, end[1] + BOX_H + 3, start[0] + start[2] / 2, end[0] + end[2] / 2
        curve = f"M{x0:.1f} {y0:.1f}C{x0:.1f} {y0 + 26:.1f} {x1:.1f} {y1 + 26:.1f} {x1:.1f} {y1:.1f}"
    else:
        bend = max((x1 - x0) / 2, 8)
        curve = f"M{x0:.1f} {y0:.1f}C{x0 + bend:.1f} {y0:.1f} {x1 - bend:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
    return element("path", d=curve, class_=style, marker_end="url(#arrow)")


def parts_of(plan: Plan) -> dict[str, PartOf]:
    """Return the tasks that are parts of a network, by name."""
    parts = {task.name: part_of(task.params) for task in plan.tasks if task.kind == "stage"}
    return {name: part for name, part in parts.items() if part is not None}


def _cuts(plan: Plan, place: dict[str, Place]) -> Markup:
    """Return a mark before every part that begins at a cut, named by the layers before the cut."""
    drawn = []
    for name, part in parts_of(plan).items():
        begin = part.cut.partition(":")[0]
        if begin:
            x, y, _ = place[name]
            description = f"{part.stage} is cut after {begin}"
            drawn.append(
                element(
                    "g",
                    element("title", description)
                    + element("line", x1=x - 8, x2=x - 8, y1=y - 4, y2=y + BOX_H + 4, class_="cut")
                    + text(f"✂ {begin}", x - 4, y - 2, class_="cut small"),
                )
            )
    return markup(drawn)


_ARROW = Markup(
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M0 0.5L8 4L0 7.5z" class="tip"/></marker></defs>'
)
