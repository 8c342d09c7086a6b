"""Acceptance ratio against utilisation, for schedulability tests that compete for the same systems.

Task sets by UUniFast (Bini & Buttazzo, RTS 30 2005), periods log-uniform from 10 to 100 ms; every test of a panel sees
the same sets.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

from rich.console import Group, RenderableType

from socsched.descriptor.taskset_model import PeriodicTask, Policy, TaskSet
from socsched.progress import tell
from socsched.reporting.markup import element, text, ticks
from socsched.reporting.terminal import table
from socsched.schedulability.published.choose import problems, tests
from socsched.schedulability.published.model import SchedulabilityTest

Tasks = Sequence[PeriodicTask]
Draw = Callable[[Random, float], list[PeriodicTask]]
SHORTEST, LONGEST, UNIT = 10_000, 100_000, 1_000
RED, ORANGE, GREEN, BLUE, VIOLET, GREY = "#c0392b", "#d68910", "#1e8449", "#1f618d", "#6c3483", "#626567"
WIDTH, HEIGHT, LEFT, TOP, LINE = 560, 250, 52, 34, 15
"""Of one panel of the figure, in pixels: what is drawn in, its margins, and a line of the legend."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A test or scheme that accepts task sets or not, and the style of its line."""

    label: str
    accepts: Callable[[Tasks], bool]
    colour: str
    dashes: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """Tests that compete for systems drawn alike, at each of the `loads` of the `axis`."""

    title: str
    axis: str
    loads: Sequence[float]
    draw: Draw
    curves: Sequence[Curve]


@dataclass(frozen=True, slots=True)
class Study:
    """Numbers of accepted task sets of `sets` drawn per load: by panel, by curve, one for each load."""

    name: str
    sets: int
    seed: int
    panels: Sequence[Panel]
    accepted: Sequence[Sequence[Sequence[int]]]


def uunifast(count: int, total: float, draw: Random) -> list[float]:
    """Return utilisations that sum to `total`, uniformly drawn (Bini & Buttazzo, RTS 30 2005)."""
    shares, left = [], total
    for index in range(1, count):
        rest = left * draw.random() ** (1 / (count - index))
        shares.append(left - rest)
        left = rest
    return [*shares, left]


def tasks(count: int, constrained: bool = False, suspending: bool = False) -> Draw:
    """Return a draw of `count` tasks with a given total utilisation, no task over 1."""

    def draw(random: Random, total: float) -> list[PeriodicTask]:
        while True:
            shares = uunifast(count, total, random)
            if max(shares) <= 1:
                break
        made = []
        for index, share in enumerate(shares):
            period = round(math.exp(random.uniform(math.log(SHORTEST), math.log(LONGEST)))) * UNIT
            wcet = max(int(share * period), 1)
            due = random.randint(wcet + (period - wcet) // 2, period) if constrained else period
            wait = random.randint(0, (period - wcet) // 10) if suspending else 0
            made.append(PeriodicTask(index, f"t{index}", period, due, wcet, wcet, 0, 0, None, None, suspension_ns=wait))
        return made

    return draw


@cache
def _known() -> dict[str, SchedulabilityTest]:
    return {test.name: test for test in tests()}


def _fixed(rule: str, scheme: str = "partitioned", preemptive: bool = True) -> Policy:
    return Policy(rule, scheme, preemptive)  # type: ignore[arg-type]


def _curve(label: str, test: str, policy: Policy, colour: str, dashes: str = "") -> Curve:
    count = 4 if policy.scheme == "global" else 1

    def accepts(drawn: Tasks) -> bool:
        placed = tuple(replace(task, cpu=0 if policy.scheme == "partitioned" else None) for task in drawn)
        ((_, problem),) = problems(TaskSet("drawn", 1, policy, count, None, placed, ()))
        reason = _known()[test].unmet(problem)
        if reason:
            raise ValueError(f"{test} does not apply to {label}: {reason}")
        return _known()[test].run(problem).schedulable is True

    return Curve(label, accepts, colour, dashes)


ONE = tuple(x / 100 for x in range(20, 101, 4))
PANELS = (
    Panel(
        "One processor, 10 tasks, D = T",
        "utilisation",
        ONE,
        tasks(10),
        (
            _curve("RM: Liu & Layland", "Liu-Layland bound", _fixed("rm"), RED),
            _curve("RM: hyperbolic", "hyperbolic bound", _fixed("rm"), ORANGE),
            _curve("RM: response times", "response-time analysis", _fixed("rm"), GREEN),
            _curve("EDF: utilisation (exact)", "EDF utilisation", _fixed("edf"), BLUE),
            _curve("EDF, no preemption: Jeffay", "non-preemptive EDF", _fixed("edf", preemptive=False), BLUE, "6 4"),
            _curve(
                "RM, no preemption: Davis",
                "non-preemptive fixed priorities",
                _fixed("rm", preemptive=False),
                GREEN,
                "6 4",
            ),
        ),
    ),
    Panel(
        "One processor, 10 tasks, D in the upper half of [C, T]",
        "utilisation",
        ONE,
        tasks(10, constrained=True),
        (
            _curve("DM: response times", "response-time analysis", _fixed("dm"), GREEN),
            _curve("EDF: demand bound", "EDF demand bound (QPA)", _fixed("edf"), BLUE),
            _curve("EDF: response times", "EDF response times", _fixed("edf"), VIOLET, "2 3"),
            _curve(
                "EDF, no preemption: demand",
                "EDF demand bound with blocking",
                _fixed("edf", preemptive=False),
                BLUE,
                "6 4",
            ),
            _curve(
                "DM, no preemption: Davis",
                "non-preemptive fixed priorities",
                _fixed("dm", preemptive=False),
                GREEN,
                "6 4",
            ),
        ),
    ),
    Panel(
        "Four processors, global, 20 tasks, D = T",
        "utilisation of 4 processors",
        tuple(x / 10 for x in range(8, 41, 2)),
        tasks(20),
        (
            _curve("EDF: density (GFB)", "global EDF density (GFB)", _fixed("edf", "global"), RED),
            _curve("EDF: interference (BCL)", "global interference (BCL)", _fixed("edf", "global"), ORANGE),
            _curve("EDF: response times", "global response times", _fixed("edf", "global"), BLUE),
            _curve("DM: interference (BCL)", "global interference (BCL)", _fixed("dm", "global"), ORANGE, "6 4"),
            _curve("DM: response times", "global response times", _fixed("dm", "global"), GREEN),
            _curve("DM: limited carry-in", "global response times, limited carry-in", _fixed("dm", "global"), VIOLET),
            _curve(
                "DM, no preemption",
                "global non-preemptive fixed priorities",
                _fixed("dm", "global", preemptive=False),
                GREY,
                "6 4",
            ),
        ),
    ),
    Panel(
        "One processor, 10 tasks that suspend up to a tenth of their slack",
        "utilisation",
        tuple(x / 100 for x in range(10, 101, 5)),
        tasks(10, suspending=True),
        (
            _curve("RM: suspension as computation", "suspension as computation", _fixed("rm"), RED),
            _curve("RM: suspension as jitter R - C", "suspension as jitter R - C", _fixed("rm"), GREEN),
        ),
    ),
)


def study(name: str, panels: Sequence[Panel], sets: int, seed: int) -> Study:
    """Draw `sets` task sets per panel and load, and count those that each test accepts; equal seeds, equal counts."""
    found: list[list[list[int]]] = []
    whole, done = sum(len(panel.loads) for panel in panels), 0
    for panel in panels:
        counts = [[0] * len(panel.loads) for _ in panel.curves]
        for at, load in enumerate(panel.loads):
            tell(f"study {name}", done, whole, "loads")
            for number in range(sets):
                drawn = panel.draw(Random(f"{seed}/{panel.title}/{load}/{number}"), load)
                for row, curve in zip(counts, panel.curves, strict=True):
                    row[at] += curve.accepts(drawn)
            done += 1
        found.append(counts)
    return Study(name, sets, seed, panels, found)


def document(found: Study) -> dict[str, Any]:
    """Return the study as data."""
    return {
        "study": found.name,
        "sets": found.sets,
        "seed": found.seed,
        "panels": [
            {
                "title": panel.title,
                "axis": panel.axis,
                "loads": list(panel.loads),
                "accepted": {curve.label: list(row) for curve, row in zip(panel.curves, counts, strict=True)},
            }
            for panel, counts in zip(found.panels, found.accepted, strict=True)
        ],
    }


def view(found: Study) -> RenderableType:
    """Return one table per panel: accepted shares at about eight of its loads."""
    parts: list[RenderableType] = []
    for panel, counts in zip(found.panels, found.accepted, strict=True):
        shown = range(0, len(panel.loads), max(len(panel.loads) // 8, 1))
        heads = [panel.axis, *(f"{panel.loads[at]:.2f}" for at in shown)]
        rows = [
            [curve.label, *(f"{row[at] / found.sets:.2f}" for at in shown)]
            for curve, row in zip(panel.curves, counts, strict=True)
        ]
        parts.append(table(panel.title, heads, rows, tuple(range(1, len(heads)))))
    return Group(*parts)


def lines(found: Study) -> str:
    """Return the study as CSV: a row per panel, curve and load."""
    written = io.StringIO()
    out = csv.writer(written, lineterminator="\n")
    out.writerow(("panel", "test", "load", "sets", "accepted"))
    for panel, counts in zip(found.panels, found.accepted, strict=True):
        for curve, row in zip(panel.curves, counts, strict=True):
            out.writerows(
                (panel.title, curve.label, load, found.sets, count)
                for load, count in zip(panel.loads, row, strict=True)
            )
    return written.getvalue()


def figure(found: Study) -> str:
    """Return the study as SVG: a panel for each group of competing tests, two in a row."""
    across = min(len(found.panels), 2)
    tall = TOP + HEIGHT + 44 + LINE * max(len(panel.curves) for panel in found.panels) + 20
    wide = LEFT + WIDTH + 20
    body = ""
    for number, (panel, counts) in enumerate(zip(found.panels, found.accepted, strict=True)):
        inner = _panel(panel, counts, found.sets)
        body += element("g", inner, transform=f"translate({number % across * wide} {number // across * tall})")
    height = tall * -(-len(found.panels) // across)
    title = f"share of {found.sets} task sets that each test accepts, against utilisation"
    return element(
        "svg", element("title", title) + body, viewBox=f"0 0 {wide * across} {height}", width=wide * across,
        height=height, xmlns="http://www.w3.org/2000/svg", font_family="sans-serif",
    )  # fmt: skip


def _panel(panel: Panel, counts: Sequence[Sequence[int]], sets: int) -> str:
    low, high = panel.loads[0], panel.loads[-1]
    bottom = TOP + HEIGHT

    def across(load: float) -> float:
        return LEFT + (load - low) / (high - low) * WIDTH

    body = text(panel.title, LEFT, TOP - 12, font_size=13, font_weight="bold")
    for tick in ticks(0, 1, 5):
        y = bottom - tick * HEIGHT
        body += element("line", x1=LEFT, x2=LEFT + WIDTH, y1=y, y2=y, stroke="#dddddd")
        body += text(f"{tick:.0%}", LEFT - 6, y + 4, font_size=10, text_anchor="end")
    for tick in ticks(low, high, 8):
        body += element("line", x1=across(tick), x2=across(tick), y1=TOP, y2=bottom, stroke="#dddddd")
        body += text(f"{tick:g}", across(tick), bottom + 14, font_size=10, text_anchor="middle")
    body += text(panel.axis, LEFT + WIDTH / 2, bottom + 30, font_size=11, text_anchor="middle")
    for number, (curve, row) in enumerate(zip(panel.curves, counts, strict=True)):
        at = " ".join(
            f"{across(load):.1f},{bottom - count / sets * HEIGHT:.1f}"
            for load, count in zip(panel.loads, row, strict=True)
        )
        style = {"stroke": curve.colour, "stroke_width": 1.8, "stroke_dasharray": curve.dashes or None}
        body += element("polyline", points=at, fill="none", **style)
        y = bottom + 46 + LINE * number
        body += element("line", x1=LEFT, x2=LEFT + 28, y1=y - 4, y2=y - 4, **style)
        body += text(curve.label, LEFT + 34, y, font_size=11)
    return body
