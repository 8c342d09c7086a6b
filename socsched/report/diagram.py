"""The mapping as a picture: one swimlane per engine, stages from left to right in the order data flows."""

from __future__ import annotations

from collections import defaultdict
from html import escape

from socsched.plan.plan import Plan, Task
from socsched.report.svg import element, fit, picture, text
from socsched.units import format_duration

BOX_W, BOX_H, GAP_X, GAP_Y, LEFT, TOP = 126, 58, 30, 12, 106, 26
PAGE = 1018  # the page's text width; more columns are drawn narrower, down to NARROW
NARROW = 0.62
SENSORS = "sensors"


def depths(plan: Plan) -> dict[str, int]:
    """Return how many hand-overs lie before each sensor and task (sensors and independent timers at 0)."""
    found = {sensor.name: 0 for sensor in plan.sensors}
    tasks = {task.name: task for task in plan.tasks}

    def visit(name: str, seen: frozenset[str]) -> int:
        if name in found or name not in tasks or name in seen:
            return found.get(name, 0)
        before = [visit(other, seen | {name}) for other in (*tasks[name].after, *tasks[name].reads)]
        found[name] = 1 + max(before, default=0)
        return found[name]

    for task in plan.tasks:
        visit(task.name, frozenset())
    return found


def mapping(plan: Plan) -> str:
    """Return the mapping diagram as SVG."""
    column = depths(plan)
    lanes = [SENSORS, *(engine.id for engine in plan.engines if any(t.engine == engine.id for t in plan.tasks))]
    cells: dict[tuple[str, int], list[str]] = defaultdict(list)
    for sensor in plan.sensors:
        cells[SENSORS, 0].append(sensor.name)
    for task in plan.tasks:
        cells[task.engine, column[task.name]].append(task.name)
    count = max(column.values(), default=0) + 1
    step = max(min(BOX_W + GAP_X, (PAGE - LEFT) / count), (BOX_W + GAP_X) * NARROW)
    box = step * BOX_W / (BOX_W + GAP_X)
    width = LEFT + count * step
    place, bands, y = {}, [], float(TOP)
    for number, lane in enumerate(lanes):
        rows = max((len(names) for (owner, _), names in cells.items() if owner == lane), default=1)
        height = rows * (BOX_H + GAP_Y) + GAP_Y
        bands.append(_band(plan, lane, number, y, width, height))
        for (owner, depth), names in cells.items():
            for row, name in enumerate(names if owner == lane else ()):
                place[name] = (LEFT + depth * step, y + GAP_Y + row * (BOX_H + GAP_Y))
        y += height
    boxes = "".join(_stage(task, place[task.name], box, lanes.index(task.engine)) for task in plan.tasks)
    boxes += "".join(
        _box(
            sensor.name, ("every", format_duration(sensor.period_ns)), place[sensor.name], box, 0, "sensor", sensor.name
        )
        for sensor in plan.sensors
    )
    label = f"Mapping of {plan.pipeline} onto {plan.platform}: " + ", ".join(
        f"{task.name} on {task.engine}" for task in plan.tasks if task.kind == "stage"
    )
    head = text("data flows to the right", LEFT, 15, class_="axis")
    return picture(_ARROW + head + "".join(bands) + _edges(plan, place, box) + boxes, width, y + 4, label, "mapping")


def _band(plan: Plan, lane: str, number: int, y: float, width: float, height: float) -> str:
    engine = next((e for e in plan.engines if e.id == lane), None)
    below = f"{engine.lanes} lane{'s' if engine.lanes != 1 else ''}, {engine.policy}" if engine else ""
    return (
        element("rect", x=0, y=y, width=width, height=height, class_=f"band {'odd' if number % 2 else ''}")
        + text(fit(lane, LEFT - 12), 8, y + height / 2 - 2, class_="lane")
        + text(fit(below, LEFT - 12, 10), 8, y + height / 2 + 13, class_="axis")
    )


def _stage(task: Task, at: tuple[float, float], width: float, colour: int) -> str:
    share = f" ×{len(task.lanes)} lanes" if len(task.lanes) > 1 else ""
    cost, precision = format_duration(task.cost_ns, 3), task.precision + share
    hover = f"{task.name} on {task.engine}: {cost}, {precision}; {task.provenance}. {task.why}"
    name = task.name if task.kind == "stage" else "convert"
    return _box(name, (cost, precision), at, width, colour, task.kind, hover)


def _box(
    name: str, details: tuple[str, str], at: tuple[float, float], width: float, colour: int, kind: str, hover: str
) -> str:
    x, y = at
    return element(
        "g",
        element("title", escape(hover))
        + element("rect", x=x, y=y, width=width, height=BOX_H, rx=5, class_="box")
        + text(fit(name, width - 12, 12), x + 7, y + 19, class_="name")
        + "".join(text(fit(d, width - 8, 10), x + 7, y + 35 + 15 * i, class_="axis") for i, d in enumerate(details)),
        class_=f"node {kind} c{colour % 8}",
    )


def _edges(plan: Plan, place: dict[str, tuple[float, float]], width: float) -> str:
    drawn = []
    for task in plan.tasks:
        for source, style in [*((s, "edge") for s in task.after), *((s, "edge reads") for s in task.reads)]:
            if source in place:
                drawn.append(_edge(place[source], place[task.name], width, style))
    return "".join(drawn)


def _edge(start: tuple[float, float], end: tuple[float, float], width: float, style: str) -> str:
    x0, y0 = start[0] + width, start[1] + BOX_H / 2
    x1, y1 = end[0] - 3, end[1] + BOX_H / 2
    if x1 < x0:  # a loop back: leave below, arrive below
        y0, y1, x0, x1 = start[1] + BOX_H, end[1] + BOX_H + 3, start[0] + width / 2, end[0] + width / 2
        curve = f"M{x0:g} {y0:g}C{x0:g} {y0 + 26:g} {x1:g} {y1 + 26:g} {x1:g} {y1:g}"
    else:
        bend = max((x1 - x0) / 2, 8)
        curve = f"M{x0:g} {y0:g}C{x0 + bend:g} {y0:g} {x1 - bend:g} {y1:g} {x1:g} {y1:g}"
    return element("path", d=curve, class_=style, marker_end="url(#arrow)")


_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M0 0.5L8 4L0 7.5z" class="tip"/></marker></defs>'
)
