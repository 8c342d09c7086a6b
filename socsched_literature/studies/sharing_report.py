"""A sharing study as a table and as a figure: share of requests in time over load, one line per system."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from socsched.reporting.markup import element, text, ticks
from socsched.reporting.terminal import table
from socsched.units import format_duration
from socsched_literature.studies.sharing import Row
from socsched_literature.studies.sharing_sources import Source

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 64, 140, 36, 48
COLOURS = ("#1b6ca8", "#c8553d", "#2f7d4f", "#7b4ea3", "#b8860b", "#3d7f8c", "#8c3d5a")


def view(source: Source, rows: Sequence[Row]) -> RenderableType:
    """Return the networks and the table, followed by the omitted systems with their reasons."""
    networks = ", ".join(
        f"{one.name} {rate:.3g} {format_duration(one.slo_ns)} (alone {format_duration(one.latency(1, 100))})"
        for one, rate in source.networks
    )
    cells = [
        [
            row.system, f"{row.load:g}", f"{row.satisfaction:.1%}", f"{row.worst:.1%}", f"{row.goodput:.1f}",
            format_duration(row.p99_ns), f"{row.unserved:.0%}" if row.unserved else "–",
        ]
        for row in rows if not row.reason
    ]  # fmt: skip
    header = ["system", "load", "in time", "worst network", "in time 1/s", "worst p99", "unserved"]
    reasons = dict.fromkeys(f"{row.system}: {row.reason}" for row in rows if row.reason)
    return Group(
        table(source.title, header, cells, range(1, len(header))),
        Text(f"requests a second and deadline: {networks}"),
        *(Text(reason) for reason in reasons),
    )


def figure(source: Source, rows: Sequence[Row]) -> str:
    """Return the SVG: share of requests in time over load."""
    plotted = [row for row in rows if not row.reason]
    loads = sorted({row.load for row in plotted}) or [1.0]
    low, high = (loads[0], loads[-1]) if len(loads) > 1 else (0.0, loads[0] * 2)

    def x(load: float) -> float:
        return LEFT + (load - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(share: float) -> float:
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    body = element("rect", x=0, y=0, width=WIDTH, height=HEIGHT, fill="#ffffff")
    body += text(f"{source.title}: share of requests in time", LEFT, 20, font_size=13)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        body += element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(share), y2=y(share), stroke="#dddddd")
        body += text(f"{share:.0%}", LEFT - 6, y(share) + 4, text_anchor="end")
    for load in ticks(low, high):
        body += text(f"{load:g}", x(load), HEIGHT - BOTTOM + 18, text_anchor="middle")
    body += text("load", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, text_anchor="middle")
    for i, system in enumerate(dict.fromkeys(row.system for row in plotted)):
        colour = COLOURS[i % len(COLOURS)]
        points = sorted((row.load, row.satisfaction) for row in plotted if row.system == system)
        path = " ".join(f"{x(load):.1f},{y(share):.1f}" for load, share in points)
        body += element("polyline", points=path, fill="none", stroke=colour, stroke_width=2)
        for load, share in points:
            body += element("circle", cx=x(load), cy=y(share), r=3, fill=colour)
        body += element("line", x1=WIDTH - RIGHT + 12, x2=WIDTH - RIGHT + 32, y1=TOP + 18 * i, y2=TOP + 18 * i,
                        stroke=colour, stroke_width=2)  # fmt: skip
        body += text(system, WIDTH - RIGHT + 38, TOP + 4 + 18 * i)
    return element(
        "svg", body, viewBox=f"0 0 {WIDTH} {HEIGHT}", width=WIDTH, height=HEIGHT, font_family="sans-serif",
        font_size=11, xmlns="http://www.w3.org/2000/svg",
    )  # fmt: skip
