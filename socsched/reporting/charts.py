"""Charts of the pages as SVG: response times against deadlines, quantities over time, predicted and measured.

Thinning keeps extremes: late jobs, the highest and lowest point of every part, the tail of a distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from socsched.reporting.markup import Markup, element, markup, picture, text, ticks
from socsched.units import format_duration

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from socsched.trace.columns import Floats, Ints


Steps = Iterable[tuple["Ints", "Floats"]]
"""A step function in parts: times (ns), which ascend, and values; before the first step, its value is used."""


def mean_steps(steps: Steps, end: int, buckets: int) -> list[tuple[int, float, float, float]]:
    """Return a step function over `buckets` equal parts of [0, end) as (start ns, mean over time, min, max)."""
    if end <= 0:
        return []
    buckets = int(min(buckets, end))
    edges = (np.arange(buckets + 1, dtype=np.int64) * end) // buckets
    sums, least, most = np.zeros(buckets), np.full(buckets, np.inf), np.full(buckets, -np.inf)

    def add(times: Ints, values: Floats, until: int) -> None:
        points = np.concatenate((times, edges[(edges >= times[0]) & (edges < until)]))
        points.sort(kind="stable")  # two ascending runs are merged
        points = points[(points < until) & np.append(points[1:] != points[:-1], True)]
        if not len(points):
            return
        # of several steps at the same instant the last one applies
        held = values[np.searchsorted(times, points, side="right") - 1]
        place = np.searchsorted(edges, points, side="right") - 1
        begins = np.flatnonzero(np.diff(place, prepend=-1))
        own = place[begins]
        sums[own] += np.add.reduceat(held * np.diff(points, append=until), begins)
        least[own] = np.minimum(least[own], np.minimum.reduceat(held, begins))
        most[own] = np.maximum(most[own], np.maximum.reduceat(held, begins))

    last: tuple[Ints, Floats] | None = None
    for times, values in steps:
        inside = times < end
        times, values = times[inside], values[inside]
        if not len(times):
            continue
        before = (np.zeros(1, np.int64), values[:1]) if last is None else last
        times, values = (np.concatenate(pair) for pair in zip(before, (times, values), strict=True))
        add(times[:-1], values[:-1], int(times[-1]))
        last = times[-1:], values[-1:]
    if last is None:
        return []
    add(*last, end)
    mean = sums / np.diff(edges)
    return list(zip(edges[:-1].tolist(), mean.tolist(), least.tolist(), most.tolist(), strict=True))


def extremes(times: Ints, values: Ints, end: int, buckets: int) -> NDArray[np.intp]:
    """Return the indices of the points to keep, in order of time: the highest and lowest in every part of [0, end)."""
    if len(times) <= 2 * buckets:
        return np.argsort(times, kind="stable")
    place = np.minimum(times * buckets // max(end, 1), buckets - 1)
    order = np.lexsort((values, place))
    change = np.flatnonzero(np.diff(place[order]))
    ends = np.concatenate((change, [len(order) - 1]))
    begins = np.concatenate(([0], change + 1))
    kept: NDArray[np.intp] = np.unique(np.concatenate((order[ends], order[begins])))
    return kept[np.argsort(times[kept], kind="stable")]


def ranks(count: int, points: int) -> list[int]:
    """Return ranks (from 0) of `count` ordered values at which to draw a distribution: equal steps and the whole tail.

    The largest 1 % is drawn value by value up to `points` values, so that no late frame is lost.
    """
    if count <= points * 2:
        return list(range(count))
    tail = range(max(count - max(count // 100, 1), count - points), count)
    return sorted({*(i * (tail.start - 1) // points for i in range(points + 1)), *tail})


WIDTH, LEFT, RIGHT, TOP, BOTTOM = 520, 58, 18, 30, 44
POINTS = 240
"""Points of a curve, or of each edge of a band."""


@dataclass(frozen=True, slots=True)
class Axes:
    """A plot area of `width` x `height` pixels inside margins (left, right, top, bottom), and the ranges it shows.

    `log`: both axes are logarithmic, with their lower ends above zero.
    """

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    width: float
    height: float
    margins: tuple[float, float, float, float]
    log: bool = False

    def x(self, value: float) -> float:
        """Return the pixel column of a value."""
        left, right, _, _ = self.margins
        return left + self._share(value, self.x_range) * (self.width - left - right)

    def y(self, value: float) -> float:
        """Return the pixel row of a value."""
        _, _, top, bottom = self.margins
        return self.height - bottom - self._share(value, self.y_range) * (self.height - top - bottom)

    def _share(self, value: float, ends: tuple[float, float]) -> float:
        low, high = ends
        if self.log:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / max(high - low, 1e-12)

    def grid(
        self, xs: Iterable[tuple[float, str]], ys: Iterable[tuple[float, str]], x_label: str, y_label: str
    ) -> Markup:
        """Return grid lines with their labels at the given values, and the names of the axes."""
        left, right, top, bottom = self.margins
        base, end, parts = self.height - bottom, self.width - right, []
        for at, label in xs:
            x = self.x(at)
            parts.append(element("line", x1=x, x2=x, y1=top, y2=base, class_="grid"))
            parts.append(text(label, x, base + 17, class_="axis mid"))
        for at, label in ys:
            y = self.y(at)
            parts.append(element("line", x1=left, x2=end, y1=y, y2=y, class_="grid"))
            parts.append(text(label, left - 6, y + 4, class_="axis end"))
        names = text(x_label, end, self.height - 8, class_="axis end"), text(y_label, 4, 15, class_="axis")
        return markup(parts, names)


def plain_ticks(ends: tuple[float, float], count: int) -> list[tuple[float, str]]:
    """Return round values in a range, with their labels."""
    return [(tick, f"{tick:g}") for tick in ticks(*ends, count)]


def free_place(at: tuple[float, float], taken: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return a place (pixels) for a number at its point, or next to it if another number is there."""
    around = [(0, 0), (19, 0), (-19, 0), (0, 19), (19, 19), (-19, 19), (38, 0), (-38, 0), (0, 38), (38, 19), (-38, 19)]
    places = [(at[0] + dx, at[1] + dy) for dx, dy in around]
    return next((p for p in places if all(math.dist(p, other) > 18 for other in taken)), at)


class Frame(Axes):
    """The plot area of the report's charts: x in [x0, x1], y in [0, y1]."""

    def __init__(self, x0: float, x1: float, y1: float, height: float) -> None:
        super().__init__((x0, x1), (0, y1), WIDTH, height, (LEFT, RIGHT, TOP, BOTTOM))

    def axes(self, x_label: str, y_label: str, y_suffix: str = "", y_scale: float = 1.0) -> Markup:
        """Return grid, tick labels and axis names; y labels are multiplied by `y_scale`."""
        ys = [(tick, f"{tick * y_scale:g}{y_suffix}") for tick in ticks(*self.y_range, 4)]
        return self.grid(plain_ticks(self.x_range, 6), ys, x_label, y_label)

    def upright(self, value: float, name: str, style: str, row: int = 0) -> Markup:
        """Return a labelled vertical line at x = `value`; the label flips to the left near the right border."""
        x = self.x(value)
        left = x > WIDTH * 0.55
        return element("line", x1=x, x2=x, y1=TOP, y2=self.y(0), class_=style) + text(
            name, x + (-5 if left else 5), TOP + 42 + row * 21, class_=f"{style} {'end' if left else ''}".strip()
        )

    def level(self, value: float, name: str, style: str, below: bool = False) -> Markup:
        """Return a labelled horizontal line at y = `value`."""
        y = self.y(value)
        below = below and y + 18 < self.y(0)
        return element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_=style) + text(
            name, WIDTH - RIGHT - 4, y + (15 if below else -5), class_=f"{style} end"
        )


def distribution(samples_ns: Ints, deadline_ns: int, bound_ns: int | None, tail_ns: int | None, name: str) -> Markup:
    """Return the cumulative distribution of response times (ns) with deadline, bound and p99.9 as SVG."""
    ordered = np.sort(samples_ns)
    values = {rank: int(ordered[rank]) for rank in (*ranks(len(ordered), POINTS), 0, -1)} if len(ordered) else {}
    limits = [deadline_ns, *([bound_ns] if bound_ns else []), values.get(-1, 0)]
    frame = Frame(0, max(limits) / 1e6 * 1.06, 1.0, 250)
    points = [(0.0, 0.0)]
    for rank in ranks(len(ordered), POINTS):
        points += [(values[rank] / 1e6, points[-1][1]), (values[rank] / 1e6, (rank + 1) / len(ordered))]
    points.append((frame.x_range[1], points[-1][1]))
    body = frame.axes("response time [ms]", "share of the completed frames", "%", 100)
    body += frame.upright(deadline_ns / 1e6, f"deadline {format_duration(deadline_ns)}", "limit")
    if bound_ns:
        body += frame.upright(bound_ns / 1e6, f"bound {format_duration(bound_ns)}", "bound", 1)
    if tail_ns is not None:
        body += frame.upright(tail_ns / 1e6, f"p99.9 {format_duration(tail_ns)}", "tail", 2)
    body += element("path", d=_line(frame, points), class_="curve")
    label = f"{name}: distribution of {len(ordered)} response times"
    if values:
        label += f" from {format_duration(values[0])} to {format_duration(values[-1])}"
    return picture(body, WIDTH, frame.height, f"{label}, deadline {format_duration(deadline_ns)}", "chart")


def draw_responses(
    release_ns: Ints, response_ns: Ints, deadline_ns: int, lost_ns: Sequence[int], end_ns: int, name: str
) -> Markup:
    """Return response times (ns) by release, late ones as ✗, as SVG; frames without one are marked above the plot.

    If there are too many for the picture, only the longest and the shortest of each interval are shown.
    """
    longest = int(response_ns.max(initial=0))
    frame = Frame(0, max(end_ns, 1) / 1e9, max(longest, deadline_ns) / 1e6 * 1.15, 250)
    body = frame.axes("released at [s]", "response time [ms]")
    dots: list[tuple[float, float]] = []
    crosses: list[tuple[float, float]] = []
    for at in extremes(release_ns, response_ns, end_ns, POINTS).tolist():
        x, y = frame.x(int(release_ns[at]) / 1e9), frame.y(int(response_ns[at]) / 1e6)
        (crosses if response_ns[at] > deadline_ns else dots).append((x, y))
    places = dict.fromkeys((round(x * 2) / 2 - 1.5, round(y * 2) / 2 - 1.5) for x, y in dots)
    body += element("path", d="".join(f"M{x:g} {y:g}h3v3h-3z" for x, y in places), class_="dot")
    ticks_ = "".join(f"M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6" for x, y in crosses)
    body += element("path", d=ticks_, class_="late-dot") if crosses else ""
    body += frame.level(deadline_ns / 1e6, f"deadline {format_duration(deadline_ns)}", "limit")
    label = f"{name}: response times over time, the longest {format_duration(longest)}"
    if lost_ns:
        marks = "".join(f"M{frame.x(at / 1e9) - 4:.1f} {TOP - 9}h8l-4 7z" for at in thin_out(lost_ns, end_ns))
        body += element("path", d=marks, class_="lost-mark")
        note = f"▼ {len(lost_ns)} without a response"
        body += text(note, WIDTH - RIGHT, 14, class_="limit end")
        label += f", {len(lost_ns)} frames without a response"
    return picture(body, WIDTH, frame.height, label, "chart")


def thin_out(times_ns: Sequence[int], end_ns: int) -> list[int]:
    """Return one moment (ns) for each group that falls into the same part of the picture."""
    return list({at * POINTS // max(end_ns, 1): at for at in reversed(times_ns)}.values())


def quantity(
    steps: Steps,
    end_ns: int,
    scale: float,
    y_label: str,
    levels: Sequence[tuple[float, str, str]],
    name: str,
) -> Markup:
    """Return a step function over time, multiplied by `scale`, as mean line and min-max band, as SVG.

    `levels`: (value, name, style) of horizontal lines.
    """
    buckets = mean_steps(steps, end_ns, POINTS)
    top = max([value for value, _, _ in levels] + [most * scale for *_, most in buckets], default=1.0)
    frame = Frame(0, max(end_ns, 1) / 1e9, (top or 1.0) * 1.14, 210)
    body = frame.axes("time [s]", y_label)
    if buckets:
        ends = [*(begin for begin, *_ in buckets[1:]), end_ns]
        upper = [(x / 1e9, b[3] * scale) for b, end in zip(buckets, ends, strict=True) for x in (b[0], end)]
        lower = [(x / 1e9, b[2] * scale) for b, end in zip(buckets, ends, strict=True) for x in (b[0], end)]
        body += element("path", d=_line(frame, upper + lower[::-1]) + "Z", class_="peak")
        means = [((b[0] + end) / 2e9, b[1] * scale) for b, end in zip(buckets, ends, strict=True)]
        body += element("path", d=_line(frame, means), class_="curve")
    for row, (value, label_text, style) in enumerate(levels):
        body += frame.level(value, label_text, style, below=row > 0)
    return picture(body, WIDTH, frame.height, f"{name}; line: mean, area: from smallest to largest", "chart")


def bars(rows: Sequence[tuple[str, float, str, int]], name: str) -> Markup:
    """Return horizontal bars of (name, value, label, colour) as SVG; each label is next to its bar."""
    top = max((value for _, value, _, _ in rows), default=1) or 1
    parts, step, left, room = [], 30, 118, 110
    for row, (title, value, label, colour) in enumerate(rows):
        y, width = row * step + 6, value / top * (WIDTH - left - room)
        parts.append(text(title, left - 8, y + 15, class_="axis end"))
        bar = element("rect", x=left, y=y, width=max(width, 1), height=20, rx=2, class_="fill")
        parts.append(element("g", bar, class_=f"c{colour}"))
        parts.append(text(label, left + width + 7, y + 15))
    description = ", ".join(f"{title} {label}" for title, _, label, _ in rows)
    return picture(markup(parts), WIDTH, len(rows) * step + 8, f"{name}: {description}", "chart")


def draw_prediction_errors(rows: Sequence[tuple[str, float, float, float | None]], name: str) -> Markup:
    """Return (name, measured p50 and max relative to predicted, stated error) as marks on a log axis, as SVG."""
    values = [value for _, p50, most, _ in rows for value in (p50, most) if value > 0]
    low, high = min([0.5, *values]) / 1.15, max([2.0, *values]) * 1.15
    left, step = 150, 28
    height = len(rows) * step + 56

    def x(value: float) -> float:
        return left + math.log(value / low) / math.log(high / low) * (WIDTH - left - RIGHT)

    parts = []
    for tick in (v * 10.0**e for e in range(-3, 4) for v in (1, 2, 5)):
        if low <= tick <= high:
            style = "bound" if tick == 1 else "grid"
            parts.append(element("line", x1=x(tick), x2=x(tick), y1=8, y2=height - 44, class_=style))
            parts.append(text(f"{tick:g}×", x(tick), height - 28, class_="axis mid"))
    for row, (title, p50, most, error) in enumerate(rows):
        y = row * step + 22.0
        parts.append(text(title, left - 8, y + 4, class_="axis end"))
        if error:
            a, b = x(max(1 / (1 + error), low)), x(min(1 + error, high))
            parts.append(element("rect", x=a, y=y - 8, width=b - a, height=16, class_="peak"))
        parts.append(element("line", x1=x(p50), x2=x(most), y1=y, y2=y, class_="edge"))
        parts.append(element("circle", cx=x(p50), cy=y, r=5, class_="dot"))
        parts.append(element("path", d=f"M{x(most):.1f} {y - 6:.1f}v12", class_="late-dot" if most > 1 else "edge"))
    parts.append(text("measured / predicted", WIDTH - RIGHT, height - 8, class_="axis end"))
    return picture(markup(parts), WIDTH, height, name, "chart")


_FILLS = {"measured": 3, "published": 1, "fitted": 4, "vendor model": 6, "derived": 5, "assumed": 2}
_HATCHES = {"published": "M0 6l6-6", "fitted": "M0 3h6", "derived": "M0 3h6M3 0v6", "assumed": "M0 0l6 6M6 0l-6 6"}


def shares(parts: Mapping[str, float], name: str) -> Markup:
    """Return one bar split by the (positive) values of `parts`, kinds of evidence, with hatches and a key, as SVG."""
    total = sum(parts.values()) or 1.0
    x, bar, key = 0.0, [], []
    for kind, value in parts.items():
        width = value / total * WIDTH
        bar.append(_part(kind, x, width, 30))
        sample = element("svg", _part(kind, 0, 14, 14), width=14, height=14, viewBox="0 0 14 14", aria_hidden="true")
        key.append(element("li", sample, f"{kind} {value / total:.0%}"))
        x += width
    tile = {"width": 6, "height": 6, "patternUnits": "userSpaceOnUse"}
    hatches = (
        element("pattern", element("path", d=path, class_="hatch"), id=f"of-{kind}", **tile)
        for kind, path in _HATCHES.items()
    )
    return picture([element("defs", hatches), bar], WIDTH, 32, name, "chart") + element("ul", key, class_="key")


def _part(kind: str, x: float, width: float, height: float) -> Markup:
    style = {"x": x, "y": 1, "width": max(width - 1, 0.5), "height": height - 2}
    body = element("rect", **style, class_="fill")
    if kind in _HATCHES:
        body += element("rect", **style, fill=f"url(#of-{kind})")
    return element("g", body, class_=f"part c{_FILLS.get(kind, 0)}")


def _line(frame: Frame, points: Sequence[tuple[float, float]]) -> str:
    """Return a path through points, omitting those on a horizontal or vertical line between their neighbours."""
    places = [(f"{frame.x(x):.1f}", f"{frame.y(y):.1f}") for x, y in points]
    kept: list[tuple[str, str]] = []
    for place in places:
        while len(kept) > 1 and any(kept[-2][axis] == kept[-1][axis] == place[axis] for axis in (0, 1)):
            kept.pop()
        kept.append(place)
    return "M" + "L".join(f"{x} {y}" for x, y in kept)


SIZE = 420


@dataclass(frozen=True, slots=True)
class Dot:
    """A point at (x, y), both above zero, in one of the eight colours of the report, with the label shown on hover."""

    x: float
    y: float
    colour: int
    label: str


def draw_scatter(points: Sequence[Dot], x_label: str, y_label: str, name: str) -> Markup:
    """Return points on log axes with the diagonal and the lines of half and double; dots at one place are one."""
    values = [value for point in points for value in (point.x, point.y)] or [1.0]
    low, high = ends = min(values) / 1.4, max(values) * 1.4
    axes = Axes(ends, ends, SIZE, SIZE, (62, 16, 24, 44), log=True)
    marks = [(tick, f"{tick:g}") for tick in _log_ticks(low, high)]
    body = [axes.grid(marks, marks, x_label, y_label)]
    for factor, style in ((1.0, "rule"), (2.0, "bound"), (0.5, "bound")):
        a, b = max(low, low / factor), min(high, high / factor)
        if a < b:
            places = {"x1": axes.x(a), "y1": axes.y(a * factor), "x2": axes.x(b), "y2": axes.y(b * factor)}
            body.append(element("line", **places, class_=style))
    dots = {(round(axes.x(point.x), 1), round(axes.y(point.y), 1), point.colour): point for point in points}
    for (x, y, colour), point in dots.items():
        dot = element("circle", element("title", point.label), cx=x, cy=y, r=4, class_="point full")
        body.append(element("g", dot, class_=f"c{colour}"))
    return picture(body, SIZE, SIZE, name, "chart")


def _log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten in a range, with 2 and 5 between them where it spans less than three of them."""
    steps = (1, 2, 5) if math.log10(high / low) < 3 else (1,)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**exponent for exponent in exponents for step in steps if low <= step * 10.0**exponent <= high]
