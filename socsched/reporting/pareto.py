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
from socsched.reporting import markup as html
from socsched.reporting import view_model
from socsched.reporting.charts import WIDTH, Frame, free_place
from socsched.reporting.markup import Markup, element, markup, text
from socsched.reporting.terminal import table
from socsched.units import format_duration, format_power

HEIGHT = 300
CAPTION = "Filled: feasible; hollow: a requirement is violated; ringed and connected: the Pareto front."


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
    """Return the front as a complete SVG, with a line for each number."""
    listed: Sequence[Mapping[str, Any]] = document(points)["points"]
    title = f"{points[0].plan.pipeline} on {points[0].plan.platform}" if points else ""
    names = [
        f"{number}: {point['mode']} for {point['objective'].split(',')[0]}" for number, point in enumerate(listed, 1)
    ]
    return html.figure(title, _drawing(listed), WIDTH, HEIGHT, [CAPTION, *names])


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
    if not any(map(_is_placed, points)):
        return element("p", "No mode has a mapping of all stages.")
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
    label = f"{sum(map(_is_placed, points))} plans: latency against power, {CAPTION}"
    drawn = html.picture(_drawing(points), WIDTH, HEIGHT, label, "chart")
    return markup(drawn, element("p", CAPTION, class_="dim"), html.table(header, rows, (4, 5, 6)))


def _is_placed(point: Mapping[str, Any]) -> bool:
    return bool(point["latency_ns"] and point["power_mw"])


def _drawing(points: Sequence[Mapping[str, Any]]) -> Markup:
    """Return latency against power: points numbered, filled if feasible, ringed and connected on the front."""
    shown = [point for point in points if _is_placed(point)]
    powers, latest = [point["power_mw"] for point in shown] or [1000], max((p["latency_ns"] for p in shown), default=1)
    frame = Frame(min(powers) / 1000 * 0.88, max(powers) / 1000 * 1.12, latest / 1e6 * 1.12, HEIGHT)
    body = [frame.axes("expected power [W]", "latency, all chains summed [ms]")]

    def place(point: Mapping[str, Any]) -> tuple[float, float]:
        return frame.x(point["power_mw"] / 1000), frame.y(point["latency_ns"] / 1e6)

    best = sorted((p for p in shown if p["on_front"]), key=lambda p: (p["power_mw"], p["latency_ns"]))
    if len(best) > 1:
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in map(place, best))
        body.append(element("path", d="M" + line, class_="edge reads"))
    taken: list[tuple[float, float]] = []
    for number, point in enumerate(points, 1):
        if not _is_placed(point):
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
    return markup(body)
