"""Charts as SVG: primitives, thinned records, curves and colours."""

from __future__ import annotations

import itertools
import re
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.reporting import charts
from socsched.reporting.markup import element, fit, text, ticks


def test_attributes_and_text_are_escaped() -> None:
    assert element("g", "x", class_='a"b') == '<g class="a&quot;b">x</g>'
    assert text("<b>", 1, 2) == '<text x="1" y="2">&lt;b&gt;</text>'
    assert element("rect", x=1.50, stroke_width=2, fill=None) == '<rect x="1.5" stroke-width="2"/>'


@given(st.floats(0, 1e6), st.floats(1e-3, 1e6), st.integers(2, 12))
def test_ticks_are_evenly_spaced_and_inside(low: float, span: float, count: int) -> None:
    found = ticks(low, low + span, count)
    tolerance = 1e-6 * (low + span)
    assert all(low - tolerance <= tick <= low + span + tolerance for tick in found)
    assert len(found) <= count + 1
    gaps = {round(b - a, 9) for a, b in itertools.pairwise(found)}
    assert not gaps or max(gaps) - min(gaps) <= tolerance


def test_ticks_of_nothing() -> None:
    assert ticks(3, 3) == [3]


@pytest.mark.parametrize(("width", "expected"), [(100, "backbone"), (40, "backb…"), (5, "")])
def test_labels_are_shortened_to_fit(width: float, expected: str) -> None:
    assert fit("backbone", width, 10.5) == expected


STEPS = st.lists(st.tuples(st.integers(0, 10_000), st.floats(0, 100)), min_size=1, max_size=60)
END = 10_001


@given(STEPS, st.integers(1, 50))
def test_a_step_function_keeps_its_area_and_its_extremes(steps: list[tuple[int, float]], buckets: int) -> None:
    points = [(0, 1.0), *sorted({time: value for time, value in steps if time > 0}.items())]
    times, values = np.array([time for time, _ in points]), np.array([value for _, value in points])
    found = charts.mean_steps([(times, values)], END, buckets)
    ends = [*(begin for begin, *_ in found[1:]), END]
    area = sum(value * (after - time) for (time, value), after in zip(points, [*times[1:].tolist(), END], strict=True))
    assert sum(b[1] * (end - b[0]) for b, end in zip(found, ends, strict=True)) == pytest.approx(area)
    assert max(b[3] for b in found) == values.max() and min(b[2] for b in found) == values.min()
    assert all(b[2] - 1e-9 <= b[1] <= b[3] + 1e-9 for b in found)


def test_what_is_recorded_late_counts_from_the_start_and_nothing_is_nothing() -> None:
    assert charts.mean_steps([(np.array([500]), np.array([3.0]))], 1000, 2) == [
        (0, 3.0, 3.0, 3.0),
        (500, 3.0, 3.0, 3.0),
    ]
    assert charts.mean_steps([(np.array([], np.int64), np.array([]))], 1000, 2) == []


@given(st.lists(st.tuples(st.integers(0, END - 1), st.integers(0, 1000)), min_size=1, max_size=200), st.integers(1, 20))
def test_the_highest_and_lowest_point_of_every_part_are_kept(points: list[tuple[int, int]], buckets: int) -> None:
    times, values = np.array([time for time, _ in points]), np.array([value for _, value in points])
    kept = charts.extremes(times, values, END, buckets)
    assert len(kept) <= 2 * buckets
    assert (np.diff(times[kept]) >= 0).all()
    parts = np.minimum(times * buckets // END, buckets - 1)
    for part in np.unique(parts):
        own, shown = values[parts == part], values[kept[parts[kept] == part]]
        assert (own.max(), own.min()) == (shown.max(), shown.min())


@given(st.integers(0, 100_000), st.integers(10, 300))
def test_ranks_ascend_and_hold_the_tail(count: int, points: int) -> None:
    found = charts.ranks(count, points)
    assert found == sorted(set(found))
    assert len(found) <= 2 * points + 1
    if count:
        assert (found[0], found[-1]) == (0, count - 1)
        tail = min(max(count // 100, 1), points)
        assert found[-tail:] == list(range(count - tail, count))


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
    assert corners[-1] == pytest.approx((frame.x(frame.x_range[1]), frame.y(1)), abs=0.1)
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
    figure = charts.quantity([steps], 1_000_000, 1e-3, "power [W]", [(15.0, "cap 15 W", "limit")], "Power")
    frame = charts.Frame(0, 1e-3, 60 * 1.14, 210)
    assert min(y for _, y in path(figure, "peak")) == pytest.approx(frame.y(60), abs=0.1)
    assert "cap 15 W" in figure
    assert "cap" not in charts.quantity([(np.array([], np.int64), np.array([]))], 100, 1, "y", [], "nothing")


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


CSS = (files("socsched.reporting") / "assets" / "report.css").read_text(encoding="utf-8")
PALER, DIMMED = 0.85, 0.35
"""Opacity of odd frames, and of jobs that the selected one has nothing to do with."""


def schemes() -> dict[str, dict[str, str]]:
    """Return the variables of both schemes: the second :root, for dark screens, overrides the first."""
    light, dark = (
        dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", block)) for block in re.findall(r":root\{([^}]*)\}", CSS)[:2]
    )
    return {"light": light, "dark": {**light, **dark}}


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.1."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    """Contrast ratio, WCAG 2.1."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def mixed(colour: str, below: str, share: float) -> str:
    """Return the colour of `colour` drawn with an opacity on another."""
    pairs = ((int(colour[at : at + 2], 16), int(below[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


def test_black_on_white_is_21() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_the_schemes_differ() -> None:
    found = schemes()
    assert luminance(found["light"]["bg"]) > 0.9 > 0.1 > luminance(found["dark"]["bg"])
    assert len(found["dark"]) == len(found["light"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(scheme: str) -> None:
    colours = schemes()[scheme]
    for ground in ("bg", "soft"):
        for ink in ("fg", "dim", "ok", "bad", "warn", *(f"c{i}" for i in range(8))):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (scheme, ink, ground)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_labels_on_bars_can_be_read_on_even_and_odd_frames(scheme: str) -> None:
    assert "opacity:.85" in CSS and "opacity:.35" in CSS
    colours = schemes()[scheme]
    for bar in (colours[f"c{i}"] for i in range(8)):
        assert contrast(colours["ink"], bar) >= 4.5
        assert contrast(colours["ink"], mixed(bar, colours["bg"], PALER)) >= 4.5
        assert contrast(colours["fg"], mixed(bar, colours["bg"], DIMMED)) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_and_borders_of_controls_can_be_seen(scheme: str) -> None:
    colours = schemes()[scheme]
    for ground in ("bg", "soft"):
        assert contrast(colours["edge"], colours[ground]) >= 3
        assert contrast(colours["bad"], colours[ground]) >= 3
