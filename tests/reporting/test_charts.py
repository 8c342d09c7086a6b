"""Charts show their data: the tail of a distribution, every late frame, levels and bars to scale."""

from __future__ import annotations

import re

import numpy as np
import pytest

from socsched.cost.roofs import Point, Roof
from socsched.reporting import charts, roofplot
from socsched.reporting import pareto as front

MS = 1_000_000


def path(figure: str, style: str) -> list[tuple[float, float]]:
    """Return the corners of the path with a class."""
    found = re.search(rf'<path d="([^"]*)" class="{style}"', figure)
    assert found
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", found[1])]


def test_a_distribution_climbs_to_all_frames_and_marks_its_tail() -> None:
    times = [20 * MS] * 9990 + [90 * MS] * 10
    figure = charts.distribution(times, 66 * MS, 40 * MS, 90 * MS, "camera")
    for label in ("deadline 66 ms", "bound 40 ms", "p99.9 90 ms"):
        assert f">{label}</text>" in figure
    corners = path(figure, "curve")
    frame = charts.Frame(0, 90 * 1.06, 1.0, 250)
    assert corners[0] == pytest.approx((frame.x(0), frame.y(0)), abs=0.1)
    assert corners[-1] == pytest.approx((frame.x(frame.x1), frame.y(1)), abs=0.1)
    assert (round(frame.x(90), 1), round(frame.y(1), 1)) in corners  # the last ten climb at 90 ms
    assert len(corners) < 40
    xs, ys = zip(*corners, strict=True)
    assert list(xs) == sorted(xs) and list(ys) == sorted(ys, reverse=True)


def test_late_frames_keep_their_crosses_among_thousands() -> None:
    count, late = 20_000, [17, 9000, 19_999]
    responses = np.full(count, 30 * MS)
    responses[late] = 90 * MS
    releases = np.arange(count) * 33 * MS
    figure = charts.draw_responses(releases, responses, 66 * MS, [5 * MS], count * 33 * MS, "camera")
    crosses = re.search(r'<path d="([^"]*)" class="late-dot"', figure)
    assert crosses and crosses[1].count("M") == len(late)
    above = re.search(r'<path d="([^"]*)" class="lost-mark"', figure)  # the one that never arrived is no response
    assert above and above[1].count("M") == 1 and "1 without a response" in figure
    assert len(figure) < 20_000


def test_a_quantity_shows_its_peak_and_its_levels() -> None:
    steps = np.array([0, 500, 501]), np.array([1000.0, 60_000.0, 1000.0])
    figure = charts.quantity(steps, 1_000_000, 1e-3, "power [W]", [(15.0, "cap 15 W", "limit")], "Power")
    frame = charts.Frame(0, 1e-3, 60 * 1.14, 210)
    assert min(y for _, y in path(figure, "peak")) == pytest.approx(frame.y(60), abs=0.1)
    assert "cap 15 W" in figure
    assert "cap" not in charts.quantity((np.array([], np.int64), np.array([])), 100, 1, "y", [], "nothing")


def test_bars_are_to_scale_and_say_their_value() -> None:
    figure = charts.bars([("gpu", 200.0, "200 mJ", 1), ("cpu", 50.0, "50 mJ", 2)], "Energy")
    widths = [float(width) for width in re.findall(r'<rect[^>]*width="([\d.]+)"', figure)]
    assert widths[0] == pytest.approx(4 * widths[1], rel=1e-2)
    assert ">200 mJ</text>" in figure and 'aria-label="Energy: gpu 200 mJ, cpu 50 mJ"' in figure


def test_measured_beyond_prediction_is_marked_by_shape() -> None:
    figure = charts.draw_prediction_errors([("a", 0.8, 0.9, 0.2), ("b", 1.5, 3.0, None)], "all")
    assert figure.count('class="late-dot"') == 1
    assert figure.count('class="dot"') == 2 and figure.count('class="peak"') == 1


def test_kinds_of_evidence_differ_by_hatch() -> None:
    figure = charts.shares({"measured": 0.5, "published": 0.2, "derived": 0.2, "assumed": 0.1}, "evidence")
    for kind in ("published", "derived", "assumed"):
        assert f'fill="url(#of-{kind})"' in figure and f'id="of-{kind}"' in figure
    assert "measured 50%" in figure


def test_a_stage_lies_under_its_roof() -> None:
    roofs = (Roof(("gpu",), "fp16", 4e13, 2e13, 2e11), Roof(("cpu0", "cpu1"), "fp32", 1e11, 8e10, 3e10))
    points = [Point("net", "gpu", "fp16", 100.0, 2e13, 1e13), Point("same", "gpu", "fp16", 101.0, 2e13, 1e13)]
    figure = roofplot.rooflines(roofs, points, {"gpu": 1, "cpu0": 2})
    assert ">gpu fp16</text>" in figure and ">cpu0–cpu1 each fp32</text>" in figure
    lines = re.findall(r'<line x1="([\d.]+)" x2="([\d.]+)" y1="([\d.]+)" y2="([\d.]+)" class="drop"', figure)
    assert float(lines[0][2]) > float(lines[0][3])  # down the page is slower
    labels = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="8.5"', figure)
    assert len(set(labels)) == 2 and ">50.00%</td>" in figure
    distance = max(abs(float(a) - float(b)) for a, b in zip(*labels, strict=True))
    assert distance > 15  # numbers of points that lie on one another do not


def test_the_front_distinguishes_feasible_modes_by_shape() -> None:
    entry = {"objective": "latency,energy", "energy_uj": 10**6, "operations": {"gpu": 1.0}}
    fast = {**entry, "mode": "A", "verdict": "feasible", "on_front": True, "latency_ns": 10 * MS, "power_mw": 20_000}
    slow = {**entry, "mode": "B", "verdict": "infeasible", "on_front": False, "latency_ns": 90 * MS, "power_mw": 9_000}
    none = {**entry, "mode": "C", "verdict": "infeasible", "on_front": False, "latency_ns": 0, "power_mw": 0}
    figure = front.front({"points": [fast, slow, none]}, "A")
    assert figure.count('class="late-dot"') == 1 and figure.count('class="dot"') == 1
    assert "● A (this report)" in figure and "<td>C</td>" in figure
    assert "No mode has a mapping" in front.front({"points": [none]}, "A")
