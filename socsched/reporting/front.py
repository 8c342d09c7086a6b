"""The Pareto front over power modes as a section: latency against power, from the document of `reporting.pareto`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Annotated, Any

from socsched.descriptor.json_file import JsonFile
from socsched.descriptor.limits import Line, NonNegative, Ns, Positive, Rows, Verdict
from socsched.reporting import view_model
from socsched.reporting.charts import WIDTH, Frame
from socsched.reporting.roofplot import free_place
from socsched.reporting.svg import element, picture, table, text
from socsched.units import format_duration, format_power

MOST_POINTS = 1000


@dataclass(frozen=True, slots=True)
class _Point:
    mode: Line
    objective: Line
    verdict: Verdict
    on_front: bool
    latency_ns: Ns
    power_mw: NonNegative
    energy_uj: NonNegative
    operations: Mapping[Line, Positive]


@dataclass(frozen=True, slots=True)
class _Front:
    """What is used of a front's file, as a schema."""

    points: Annotated[tuple[_Point, ...], Rows]


def read_front(file: Path) -> Mapping[str, Any]:
    """Return the document that `reporting.pareto` wrote to a file; DescriptorError lists its faults."""
    source = JsonFile.open(file, "Pareto front", "write it again with `socsched report DIR --pareto`")
    count = len(source.load(_Front).points)
    source.check([(("points",), f"expected at most {MOST_POINTS} points")] if count > MOST_POINTS else [])
    document: Mapping[str, Any] = source.data
    return document


def front(document: Mapping[str, Any], mode: str) -> str:
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
    body = frame.axes("expected power [W]", "latency, all chains summed [ms]")

    def place(point: Mapping[str, Any]) -> tuple[float, float]:
        return frame.x(point["power_mw"] / 1000), frame.y(point["latency_ns"] / 1e6)

    best = sorted((p for p in shown if p["on_front"]), key=lambda p: (p["power_mw"], p["latency_ns"]))
    if len(best) > 1:
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in map(place, best))
        body += element("path", d="M" + line, class_="edge reads")
    taken: list[tuple[float, float]] = []
    for number, point in enumerate(points, 1):
        if not point["latency_ns"] or not point["power_mw"]:
            continue
        taken.append(free_place(place(point), taken))
        (x, y), (u, v) = taken[-1], place(point)
        body += element("line", x1=x, x2=u, y1=y, y2=v, class_="edge") + element(
            "circle", cx=u, cy=v, r=2, class_="tip"
        )
        description = (
            f"{point['mode']} for {point['objective']}: {point['verdict']}, {format_duration(point['latency_ns'])}"
        )
        ring = element("circle", cx=x, cy=y, r=12, class_="edge") if point["on_front"] else ""
        full = point["verdict"] == "feasible"
        dot = element("circle", cx=x, cy=y, r=8.5, class_="dot" if full else "late-dot")
        label = text(number, x, y + 4, class_="mid small in" if full else "mid small")
        body += element(
            "g", element("title", escape(description)) + ring + dot + label, class_="slice c1" if full else None
        )
    caption = "Filled: feasible; hollow: a requirement is violated; ringed and connected: the Pareto front."
    rows = [
        [
            str(number),
            ("● " if point["on_front"] else "")
            + escape(point["mode"])
            + (" (this report)" if point["mode"] == mode else ""),
            escape(point["objective"].split(",")[0]),
            escape(point["verdict"]),
            format_duration(point["latency_ns"]) if point["latency_ns"] else "–",
            format_power(point["power_mw"]),
            view_model.energy(point["energy_uj"] / 1000),
            escape(", ".join(f"{engine} {share:.0%}" for engine, share in point["operations"].items())),
        ]
        for number, point in enumerate(points, 1)
    ]
    header = ["no.", "mode", "objective", "verdict", "latency", "power", "energy per round", "operations"]
    drawn = picture(body, WIDTH, frame.height, f"{len(shown)} plans: latency against power, {caption}", "chart")
    return drawn + element("p", escape(caption), class_="dim") + table(header, rows, (4, 5, 6))
