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

from socsched.descriptor.taskset import PeriodicTask, Policy, TaskSet
from socsched.progress import tell
from socsched.reporting.markup import element, text, ticks
from socsched.reporting.terminal import table
from socsched.schedulability.published.choose import problems, tests
from socsched.schedulability.published.mixed_criticality import (
    Over,
    adaptive_response,
    audsley_order,
    over_any_overrun,
    over_each_overrun,
    scaling,
)
from socsched.schedulability.published.model import Problem, SchedulabilityTest, fixed_point
from socsched.schedulability.tasks import ceil_div

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
        drawn = []
        for index, share in enumerate(shares):
            period = round(math.exp(random.uniform(math.log(SHORTEST), math.log(LONGEST)))) * UNIT
            wcet = max(int(share * period), 1)
            due = random.randint(wcet + (period - wcet) // 2, period) if constrained else period
            wait = random.randint(0, (period - wcet) // 10) if suspending else 0
            drawn.append(
                PeriodicTask(index, f"t{index}", period, due, wcet, wcet, 0, 0, None, None, suspension_ns=wait)
            )
        return drawn

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
    accepted: list[list[list[int]]] = []
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
        accepted.append(counts)
    return Study(name, sets, seed, panels, accepted)


def document(results: Study) -> dict[str, Any]:
    """Return the study as data."""
    return {
        "study": results.name,
        "sets": results.sets,
        "seed": results.seed,
        "panels": [
            {
                "title": panel.title,
                "axis": panel.axis,
                "loads": list(panel.loads),
                "accepted": {curve.label: list(row) for curve, row in zip(panel.curves, counts, strict=True)},
            }
            for panel, counts in zip(results.panels, results.accepted, strict=True)
        ],
    }


def view(results: Study) -> RenderableType:
    """Return one table per panel: accepted shares at about eight of its loads."""
    parts: list[RenderableType] = []
    for panel, counts in zip(results.panels, results.accepted, strict=True):
        shown = range(0, len(panel.loads), max(len(panel.loads) // 8, 1))
        heads = [panel.axis, *(f"{panel.loads[at]:.2f}" for at in shown)]
        rows = [
            [curve.label, *(f"{row[at] / results.sets:.2f}" for at in shown)]
            for curve, row in zip(panel.curves, counts, strict=True)
        ]
        parts.append(table(panel.title, heads, rows, tuple(range(1, len(heads)))))
    return Group(*parts)


def lines(results: Study) -> str:
    """Return the study as CSV: a row per panel, curve and load."""
    written = io.StringIO()
    out = csv.writer(written, lineterminator="\n")
    out.writerow(("panel", "test", "load", "sets", "accepted"))
    for panel, counts in zip(results.panels, results.accepted, strict=True):
        for curve, row in zip(panel.curves, counts, strict=True):
            out.writerows(
                (panel.title, curve.label, load, results.sets, count)
                for load, count in zip(panel.loads, row, strict=True)
            )
    return written.getvalue()


def figure(results: Study) -> str:
    """Return the study as SVG: a panel for each group of competing tests, two in a row."""
    across = min(len(results.panels), 2)
    tall = TOP + HEIGHT + 44 + LINE * max(len(panel.curves) for panel in results.panels) + 20
    wide = LEFT + WIDTH + 20
    body = ""
    for number, (panel, counts) in enumerate(zip(results.panels, results.accepted, strict=True)):
        inner = _panel(panel, counts, results.sets)
        body += element("g", inner, transform=f"translate({number % across * wide} {number // across * tall})")
    height = tall * -(-len(results.panels) // across)
    title = f"share of {results.sets} task sets that each test accepts, against utilisation"
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


# Acceptance of mixed-criticality tests against utilisation, drawn as in the papers.
#
# As in Baruah, Burns, Davis, RTSS 2011, section V: `tasks` tasks, UUniFast utilisations at low criticality, periods
# log-uniform over a factor of 100, D = T, C(HI) = `factor` C(LO), a task is of high criticality with probability
# `share`. Fixed priorities are assigned by Audsley's algorithm.  UB-H&L is the paper's upper bound for AMC:
# schedulable at each level by itself; SMC is the static scheme with run-time monitoring, CrMPO criticality-monotonic
# priorities.  EDF-VD (Baruah et al., ECRTS 2012) is compared with EDF that reserves every task's own bound.


LOADS = tuple(x / 100 for x in range(30, 100, 5))


def draw(count: int, load: float, factor: float, share: float, random: Random) -> list[PeriodicTask]:
    """Return a drawn task set; times in us."""
    tasks = []
    for index, part in enumerate(uunifast(count, load, random)):
        period = round(math.exp(random.uniform(math.log(10_000), math.log(1_000_000))))
        low = max(round(part * period), 1)
        levels = (low, max(round(low * factor), low)) if random.random() < share else (low,)
        tasks.append(
            PeriodicTask(
                index, f"t{index}", period, period, levels[-1], low, 0, 0, 0, None,
                wcets_ns=levels if len(levels) > 1 else (),
            )
        )  # fmt: skip
    return tasks


def _by_deadline(tasks: Tasks, wcet: Callable[[PeriodicTask], int]) -> bool:
    order = sorted(tasks, key=lambda task: task.deadline_ns)
    return all(_plain(task, order[:index], wcet) for index, task in enumerate(order))


def _plain(task: PeriodicTask, above: Tasks, wcet: Callable[[PeriodicTask], int]) -> bool:
    own = wcet(task)
    found = fixed_point(
        own, lambda length: own + sum(ceil_div(length, o.period_ns) * wcet(o) for o in above), task.deadline_ns
    )
    return found is not None


def upper_bound(tasks: Tasks) -> bool:
    """Return whether each level is schedulable by itself: necessary for every scheme of fixed priorities."""
    high = [task for task in tasks if task.level]
    return _by_deadline(tasks, lambda task: task.wcet_at(0)) and _by_deadline(high, lambda task: task.wcet_ns)


def static(tasks: Tasks) -> bool:
    """Return whether SMC accepts: each task at its own level, no job exceeds the bound of its task's level."""

    def fits(task: PeriodicTask, above: Tasks) -> bool:
        return _plain(task, above, lambda other: other.wcet_at(task.level))

    return audsley_order(tasks, fits) is not None


def monotonic(tasks: Tasks) -> bool:
    """Return whether priorities by criticality, then by deadline, are accepted."""
    order = sorted(tasks, key=lambda task: (-task.level, task.deadline_ns))
    return all(
        _plain(task, order[:index], lambda other, level=task.level: other.wcet_at(level))  # type: ignore[misc]
        for index, task in enumerate(order)
    )


def adaptive(over: Over) -> Callable[[Tasks], bool]:
    """Return the acceptance by an AMC test with the best priorities."""
    return lambda tasks: (
        audsley_order(tasks, lambda task, above: adaptive_response(task, above, over) is not None) is not None
    )


def virtual(tasks: Tasks) -> bool:
    """Return whether EDF-VD accepts."""
    return scaling(_problem(tasks)) is not None


def reserved(tasks: Tasks) -> bool:
    """Return whether plain EDF accepts with every task's own bound."""
    return sum(task.utilisation for task in tasks) <= 1


def _problem(tasks: Tasks) -> Problem:
    made = TaskSet("drawn", 1, Policy("edf", "partitioned", True), 1, None, tuple(tasks), ())
    return Problem(made, made.tasks, made.ranks, 1)


CURVES = (
    Curve("UB-H&L", upper_bound, GREY, "2 3"),
    Curve("AMC-max", adaptive(over_each_overrun), GREEN),
    Curve("AMC-rtb", adaptive(over_any_overrun), BLUE),
    Curve("SMC", static, ORANGE),
    Curve("CrMPO", monotonic, RED),
    Curve("EDF-VD", virtual, VIOLET),
    Curve("EDF, reserved", reserved, VIOLET, "6 4"),
)


def mixed_criticality_panel(tasks: int, factor: float, share: float) -> Panel:
    """Return the panel of sets of `tasks` tasks, C(HI) = `factor` C(LO), of high criticality with chance `share`."""
    return Panel(
        f"{tasks} tasks, C(HI) = {factor:g} C(LO), {share:.0%} of high criticality",
        "utilisation at low criticality",
        LOADS,
        lambda random, load: draw(tasks, load, factor, share, random),
        CURVES,
    )
