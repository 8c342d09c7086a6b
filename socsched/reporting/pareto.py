"""The Pareto front over power modes as a table, plain data and figures: latency against power."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Group, RenderableType
from rich.text import Text

from socsched.descriptor.json_file import JsonFile
from socsched.descriptor.limits import Line, NonNegative, Ns, Positive, Rows, Verdict
from socsched.errors import UsageError, unwritable
from socsched.files import write_file
from socsched.planning.pareto import Point
from socsched.planning.plan import Plan
from socsched.reporting import view_model
from socsched.reporting.charts import WIDTH as CHART_WIDTH
from socsched.reporting.charts import Axes, Frame, free_place, plain_ticks
from socsched.reporting.markup import Markup, element, markup, picture, svg, text
from socsched.reporting.markup import table as html_table
from socsched.reporting.terminal import table
from socsched.units import format_duration, format_power

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 432, 64, 170, 52, 48
COLOURS = (
    "#1b6ca8",
    "#c8553d",
    "#2f7d4f",
    "#7b4ea3",
    "#b8860b",
    "#3d7f8c",
    "#8c3d5a",
    "#555555",
    "#00a0a0",
    "#d07f00",
    "#a0a000",
)


def view(points: Sequence[Point]) -> RenderableType:
    """Return the table, followed by the reasons for the placement and splitting of networks in each mode."""
    rows = [
        [
            "●" if point.on_front else "",
            point.mode,
            point.objective.split(",")[0],
            point.plan.verdict,
            _duration(point, point.latency_ns),
            _longest(point),
            format_power(point.power_mw),
            view_model.energy(point.energy_uj / 1000),
            ", ".join(f"{engine} {share:.0%}" for engine, share in point.shares),
            str(sum(len(points) for _, _, points in point.cuts)),
        ]
        for point in points
    ]
    first = points[0].plan if points else None
    title = f"{first.pipeline} on {first.platform}: every power mode" if first else "no power mode"
    columns = ["front", "mode", "for", "verdict", "latency", "longest", "power", "energy", "operations", "cuts"]
    period = format_duration(points[0].round_ns) if points else ""
    notes = [
        f"latency: expected, all chains summed; longest: the longest chain; energy: of {period}; "
        "operations: the networks' share by engine; cuts: points where networks change engine",
        *(f"{point.mode}, {_cut(*cut)}" for point in points for cut in point.cuts),
        # The last of several plans in a mode is the most informative: it is optimised for energy.
        *{note[:2]: ": ".join(note) for point in points for note in _against(point.plan)}.values(),
    ]
    return Group(
        table(title, columns, rows, (4, 5, 6, 7, 9), (5, 7, 8, 9)), Text(""), *(Text(note, "dim") for note in notes)
    )


def _duration(point: Point, value: int) -> str:
    return format_duration(value) if point.plan.tasks else "–"


def _longest(point: Point) -> str:
    chain = next((chain for chain in point.plan.chains if chain.name == point.longest), None)
    if chain is None:
        return "–"
    return format_duration(chain.expected_ns)


def _cut(stage: str, places: Sequence[str], cuts: Sequence[str]) -> str:
    parts = [places[0]]
    for cut, place in zip(cuts, places[1:], strict=True):
        parts += [f"| {cut} |", place]
    return f"{stage}: {' '.join(parts)}"


def _against(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield (mode, subject, reason): violations, and the reasons for the placement and splitting of networks."""
    for violation in plan.violations:
        show = view_model.formatter(violation.unit)
        yield plan.mode, violation.requirement, f"{show(violation.demand)} > {show(violation.bound)}"
    notes = plan.solver.notes or {}
    for task in plan.tasks:
        if task.name in notes:
            yield plan.mode, task.name, f"{task.why}; {notes[task.name]}"


def document(points: Sequence[Point]) -> dict[str, Any]:
    """Return the points as plain data, without the plans."""
    return {
        "points": [
            {
                "mode": point.mode,
                "objective": point.objective,
                "verdict": point.plan.verdict,
                "on_front": point.on_front,
                "latency_ns": point.latency_ns,
                "chains": [
                    {"name": chain.name, "expected_ns": chain.expected_ns, "bound_ns": chain.bound_ns}
                    for chain in point.plan.chains
                ],
                "power_mw": point.power_mw,
                "energy_uj": point.energy_uj,
                "round_ns": point.round_ns,
                "operations": dict(point.shares),
                "cuts": [
                    {"stage": stage, "parts": list(places), "after": list(cuts)} for stage, places, cuts in point.cuts
                ],
                "notes": [": ".join(note) for note in _against(point.plan)],
            }
            for point in points
        ]
    }


def draw(path: Path, points: Sequence[Point]) -> None:
    """Write the figure to `path` (.svg); UsageError for another suffix, and if it cannot be written."""
    if path.suffix.lower() != ".svg":
        raise UsageError(f"{path}: the front can only be drawn as SVG", "use -o FILE.svg")
    try:
        write_file(path, figure(points))
    except OSError as error:
        raise unwritable(path, error) from None


def figure(points: Sequence[Point]) -> str:
    """Return latency against power as a complete SVG; infeasible points are hollow, the front is a line."""
    shown = [point for point in points if point.plan.tasks]
    right = max((point.power_mw for point in shown), default=1) / 1000 * 1.08
    top = max((point.latency_ns for point in shown), default=1) / 1e6 * 1.08
    axes = Axes((0, right), (0, top), WIDTH, HEIGHT, (LEFT, RIGHT, TOP, BOTTOM))

    def place(point: Point) -> tuple[float, float]:
        return axes.x(point.power_mw / 1000), axes.y(point.latency_ns / 1e6)

    body = [axes.grid(plain_ticks(axes.x_range, 8), plain_ticks(axes.y_range, 6), "expected power [W]", "")]
    front = sorted((p for p in shown if p.on_front), key=lambda p: (p.power_mw, p.latency_ns))
    if len(front) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, front))
        body.append(element("polyline", points=path, fill="none", stroke="#888888", stroke_dasharray="4 3"))
    modes = list(dict.fromkeys(point.mode for point in points))
    colours = {mode: COLOURS[number % len(COLOURS)] for number, mode in enumerate(modes)}
    for point in shown:
        (x, y), colour = place(point), colours[point.mode]
        figures = f"{format_duration(point.latency_ns)}, {format_power(point.power_mw)}"
        told = element("title", f"{point.mode}, {point.objective}: {figures}")
        fill = colour if point.plan.verdict == "feasible" else "none"
        body.append(element("circle", told, cx=x, cy=y, r=6, fill=fill, stroke=colour, stroke_width=2))
    for row, (mode, colour) in enumerate(colours.items()):
        height = TOP + 14 + 20 * row
        body.append(element("rect", x=WIDTH - RIGHT + 16, y=height - 10, width=12, height=12, fill=colour))
        body.append(text(mode, WIDTH - RIGHT + 34, height))
    first = points[0].plan if points else None
    title = f"{first.pipeline} on {first.platform}" if first else ""
    return svg(
        title,
        element("style", ".grid{stroke:#ddd}.mid{text-anchor:middle}.end{text-anchor:end}"),
        element("rect", width=WIDTH, height=HEIGHT, fill="white"),
        body,
        text("latency of all chains [ms]", 6, TOP - 8),
        text(title, LEFT, 20, font_weight="bold"),
        text("dashed: the front; hollow: not feasible", LEFT, HEIGHT - 4, fill="#555555", font_size=10),
        width=WIDTH,
        height=HEIGHT,
        font_family="sans-serif",
        font_size=12,
    )


MOST_POINTS = 1000


@dataclass(frozen=True, slots=True)
class _PointFile:
    mode: Line
    objective: Line
    verdict: Verdict
    on_front: bool
    latency_ns: Ns
    power_mw: NonNegative
    energy_uj: NonNegative
    operations: Mapping[Line, Positive]


@dataclass(frozen=True, slots=True)
class _FrontFile:
    """What is used of a front's file, as a schema."""

    points: Annotated[tuple[_PointFile, ...], Rows]


def read_front(file: Path) -> Mapping[str, Any]:
    """Return the document that `reporting.pareto` wrote to a file; DescriptorError lists its faults."""
    source = JsonFile.open(file, "Pareto front", "write it again with `socsched report DIR --pareto`")
    count = len(source.load(_FrontFile).points)
    source.check([(("points",), f"expected at most {MOST_POINTS} points")] if count > MOST_POINTS else [])
    document: Mapping[str, Any] = source.data
    return document


def front(document: Mapping[str, Any], mode: str) -> Markup:
    """Return the figure and its table; points are numbered, filled if feasible, ringed if on the front.

    `mode`: the mode of this report, which is marked in the table.
    """
    points: Sequence[Mapping[str, Any]] = document.get("points", [])
    shown = [point for point in points if point["latency_ns"] and point["power_mw"]]
    if not shown:
        return element("p", "No mode has a mapping of all stages.")
    right = max(point["power_mw"] for point in shown) / 1000 * 1.12
    left = min(point["power_mw"] for point in shown) / 1000 * 0.88
    frame = Frame(left, right, max(point["latency_ns"] for point in shown) / 1e6 * 1.12, 300)
    body = [frame.axes("expected power [W]", "latency, all chains summed [ms]")]

    def place(point: Mapping[str, Any]) -> tuple[float, float]:
        return frame.x(point["power_mw"] / 1000), frame.y(point["latency_ns"] / 1e6)

    best = sorted((p for p in shown if p["on_front"]), key=lambda p: (p["power_mw"], p["latency_ns"]))
    if len(best) > 1:
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in map(place, best))
        body.append(element("path", d="M" + line, class_="edge reads"))
    taken: list[tuple[float, float]] = []
    for number, point in enumerate(points, 1):
        if not point["latency_ns"] or not point["power_mw"]:
            continue
        taken.append(free_place(place(point), taken))
        (x, y), (u, v) = taken[-1], place(point)
        full = point["verdict"] == "feasible"
        latency = format_duration(point["latency_ns"])
        body += [
            element("line", x1=x, x2=u, y1=y, y2=v, class_="edge"),
            element("circle", cx=u, cy=v, r=2, class_="tip"),
            element(
                "g",
                element("title", f"{point['mode']} for {point['objective']}: {point['verdict']}, {latency}"),
                element("circle", cx=x, cy=y, r=12, class_="edge") if point["on_front"] else None,
                element("circle", cx=x, cy=y, r=8.5, class_="dot" if full else "late-dot"),
                text(number, x, y + 4, class_="mid small in" if full else "mid small"),
                class_="slice c1" if full else None,
            ),
        ]
    caption = "Filled: feasible; hollow: a requirement is violated; ringed and connected: the Pareto front."
    rows = [
        [
            str(number),
            "● " * point["on_front"] + point["mode"] + " (this report)" * (point["mode"] == mode),
            point["objective"].split(",")[0],
            point["verdict"],
            format_duration(point["latency_ns"]) if point["latency_ns"] else "–",
            format_power(point["power_mw"]),
            view_model.energy(point["energy_uj"] / 1000),
            ", ".join(f"{engine} {share:.0%}" for engine, share in point["operations"].items()),
        ]
        for number, point in enumerate(points, 1)
    ]
    header = ["no.", "mode", "objective", "verdict", "latency", "power", "energy per round", "operations"]
    drawn = picture(body, CHART_WIDTH, frame.height, f"{len(shown)} plans: latency against power, {caption}", "chart")
    return markup(drawn, element("p", caption, class_="dim"), html_table(header, rows, (4, 5, 6)))
