"""Line charts of the report: response-time distributions against deadlines, power over time against the cap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from socsched.report.svg import element, picture, text, thin, ticks
from socsched.units import format_duration

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 640, 56, 16, 26, 36


@dataclass(frozen=True, slots=True)
class Frame:
    """The plot area: maps data x in [x0, x1] and y in [0, y1] to pixels."""

    x0: float
    x1: float
    y1: float
    height: float

    def x(self, value: float) -> float:
        """Return the pixel column of `value`."""
        return LEFT + (value - self.x0) / max(self.x1 - self.x0, 1e-12) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the pixel row of `value`."""
        return self.height - BOTTOM - value / max(self.y1, 1e-12) * (self.height - TOP - BOTTOM)

    def axes(self, x_label: str, y_label: str, y_suffix: str = "", y_scale: float = 1.0) -> str:
        """Return grid, tick labels and axis names; y labels are multiplied by `y_scale`."""
        parts = []
        for tick in ticks(self.x0, self.x1, 8):
            parts.append(text(f"{tick:g}", self.x(tick), self.height - 20, class_="axis mid"))
            parts.append(element("line", x1=self.x(tick), x2=self.x(tick), y1=TOP, y2=self.y(0), class_="grid"))
        for tick in ticks(0, self.y1, 5):
            parts.append(text(f"{tick * y_scale:g}{y_suffix}", LEFT - 6, self.y(tick) + 4, class_="axis end"))
            parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=self.y(tick), y2=self.y(tick), class_="grid"))
        parts.append(text(x_label, WIDTH - RIGHT, self.height - 5, class_="axis end"))
        parts.append(text(y_label, 4, 14, class_="axis"))
        return "".join(parts)

    def upright(self, value: float, name: str, style: str, row: int = 0) -> str:
        """Return a labelled vertical line at x = `value`; the label flips to the left near the right border."""
        x = self.x(value)
        left = x > WIDTH * 0.62
        return element("line", x1=x, x2=x, y1=TOP, y2=self.y(0), class_=style) + text(
            name, x + (-5 if left else 5), TOP + 52 + row * 15, class_=f"{style} {'end' if left else ''}"
        )


def distribution(samples_ns: Sequence[int], deadline_ns: int, bound_ns: int | None, name: str) -> str:
    """Return the cumulative distribution of response times (ns) with deadline and analysed bound as SVG."""
    values = sorted(samples_ns)
    limits = [deadline_ns, *([bound_ns] if bound_ns else []), *(values[-1:] or [0])]
    frame = Frame(0, max(limits) / 1e6 * 1.06, 1.0, 210)
    step = max(len(values) // 400, 1)
    points = [(0.0, 0.0)]
    for index in [*range(0, len(values), step), *([len(values) - 1] if values else [])]:
        points += [(values[index] / 1e6, points[-1][1]), (values[index] / 1e6, (index + 1) / len(values))]
    points.append((frame.x1, points[-1][1]))
    path = "M" + "L".join(f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in points)
    body = frame.axes("response time [ms]", "share of frames", "%", 100)
    body += element("path", d=path, class_="curve c1")
    body += frame.upright(deadline_ns / 1e6, f"deadline {format_duration(deadline_ns)}", "limit")
    if bound_ns:
        body += frame.upright(bound_ns / 1e6, f"bound {format_duration(bound_ns)}", "bound", 1)
    label = f"{name}: {len(values)} response times"
    if values:
        label += f" from {format_duration(values[0])} to {format_duration(values[-1])}"
    return picture(body, WIDTH, frame.height, f"{label}, deadline {format_duration(deadline_ns)}", "chart")


def power(steps: Sequence[tuple[int, float]], end_ns: int, cap_mw: float | None, title: str) -> str:
    """Return power (mW steps) over time as mean line and peak band against the cap, as SVG."""
    thinned = thin(steps, 0, end_ns, 300)
    top = max([cap_mw or 0, *(peak for _, _, peak in thinned)], default=1) / 1000 * 1.12
    frame = Frame(0, end_ns / 1e9, top, 190)
    body = frame.axes("time [s]", "power [W]")
    for style, pick in (("peak", 2), ("curve c1", 1)):
        path = "L".join(f"{frame.x(entry[0] / 1e9):.1f} {frame.y(entry[pick] / 1000):.1f}" for entry in thinned)
        if style == "peak":
            path += f"L{frame.x(frame.x1):.1f} {frame.y(0):.1f}L{frame.x(0):.1f} {frame.y(0):.1f}Z"
        body += element("path", d="M" + path, class_=style) if thinned else ""
    if cap_mw:
        y = frame.y(cap_mw / 1000)
        body += element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="limit")
        body += text(f"cap {cap_mw / 1000:g} W", WIDTH - RIGHT - 4, y - 5, class_="limit end")
    body += text("line: mean, area: peak", WIDTH - RIGHT, 14, class_="axis end")
    return picture(body, WIDTH, frame.height, title, "chart")


def shares(parts: Mapping[str, float], title: str) -> str:
    """Return one horizontal bar split by the (positive) values of `parts`, each labelled and styled by name, as SVG."""
    total = sum(parts.values()) or 1.0
    x, body, legend = 0.0, "", 0.0
    for name, value in parts.items():
        width = value / total * WIDTH
        label = f"{name} {value / total:.0%}"
        body += element("g", element("rect", x=x, y=4, width=max(width - 1, 0), height=22, rx=2), class_=f"part {name}")
        body += element("g", element("rect", x=legend, y=36, width=11, height=11), class_=f"part {name}")
        body += text(label, legend + 16, 46, class_="axis")
        x, legend = x + width, legend + 26 + 7 * len(label)
    return picture(body, WIDTH, 54, title, "chart")
