"""Pictures of scans with boxes, from above and as range images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from socsched.reporting.pictures import (
    BACKGROUND,
    BRIGHT,
    CLASS_COLOURS,
    Boxes,
    RangeView,
    View,
    draw,
    draw_range,
    shade,
    stack,
)

CAR_AHEAD = np.array([20.0, 3.0, -1.7, 1.6, 4.0, 1.5, -np.pi / 2])


def near(image: np.ndarray, at: np.ndarray, colour: tuple[int, int, int], reach: int = 2) -> bool:
    """Whether a pixel near a place is close to a colour."""
    x, y = at.round().astype(int)
    patch = image[max(y - reach, 0) : y + reach + 1, max(x - reach, 0) : x + reach + 1].reshape(-1, 3).astype(int)
    return bool((np.abs(patch - colour).max(1) < 85).any())


def test_left_is_left_up_is_up_and_boxes_stand_where_their_corners_are(tmp_path: Path) -> None:
    view = RangeView()
    points = np.array([[20.0, 3.0, 0.0, 0.5], [20.0, -10.0, -1.0, 0.5]])
    path = draw_range(points, Boxes(CAR_AHEAD[None], [2], [0.9]), tmp_path / "a.png", view)
    image = np.asarray(Image.open(path))
    assert image.shape == (view.height, view.width, 3)
    left, right = view.place(points[:, :3]) / view.oversample
    assert left[0] < view.width / 2 < right[0] and left[1] < right[1]
    for place in (left, right):
        assert not near(image, place, BACKGROUND, reach=0)
    corner = np.array([18.0, 3.8, -1.7])
    assert near(image, view.place(corner) / view.oversample, CLASS_COLOURS[2])
    assert not near(image, view.place(np.array([18.0, 7.8, -1.7])) / view.oversample, CLASS_COLOURS[2])


def test_true_boxes_are_white_and_those_behind_are_left_out(tmp_path: Path) -> None:
    view = RangeView()
    behind = CAR_AHEAD * [-1, 1, 1, 1, 1, 1, 1]
    boxes = Boxes([], [], [], np.stack([CAR_AHEAD, behind]))
    path = draw_range(np.zeros((0, 4)), boxes, tmp_path / "a.png", view)
    image = np.asarray(Image.open(path))
    assert near(image, view.place(np.array([18.0, 3.8, -1.0])) / view.oversample, tuple(c * 2 // 3 for c in BRIGHT))
    columns = np.flatnonzero((image[view.margin + 4 :] != BACKGROUND).any((0, 2)))
    middle = view.place(CAR_AHEAD[:3]) / view.oversample
    assert np.abs(columns - middle[0]).max() < 100


def test_stacking_keeps_both_pictures(tmp_path: Path) -> None:
    for name, size in (("a", (30, 10)), ("b", (40, 20))):
        Image.new("RGB", size, (255, 0, 0)).save(tmp_path / f"{name}.png")
    assert Image.open(stack(tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.png")).size == (40, 30)


VIEW = View()
CAR = [20.0, 5.0, -1.7, 1.6, 3.9, 1.5, -np.pi / 2]  # nose ahead
NOTHING = (np.zeros((0, 4)), Boxes([], [], []))


def picture(path):
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def boxed(tmp_path, boxes, score=0.9, label=2, truth=None):
    """The picture of boxes of one class and score, without points."""
    count = len(boxes)
    return picture(draw(np.zeros((0, 4)), Boxes(boxes, [label] * count, [score] * count, truth), tmp_path / "a.png"))


def ink(pixels, around, reach):
    """Difference from the background, summed over the pixels within `reach` of a place in metres."""
    x, y = (VIEW.place(np.array(around, float)) / VIEW.oversample).astype(int)
    return float(np.abs(pixels[y - reach : y + reach, x - reach : x + reach] - BACKGROUND).sum())


def count(pixels, colour, around, reach=40, slack=60):
    """Pixels close to `colour` within `reach` pixels of a place in metres."""
    x, y = (VIEW.place(np.array(around, float)) / VIEW.oversample).astype(int)
    area = pixels[max(y - reach, 0) : y + reach, max(x - reach, 0) : x + reach]
    return int((np.abs(area - colour).sum(-1) < slack).sum())


def test_size_and_background(tmp_path):
    pixels = picture(draw(*NOTHING, tmp_path / "a.png", title="empty"))
    assert pixels.shape == (VIEW.size[1], VIEW.size[0], 3) and 1000 <= VIEW.size[0] <= 1100
    assert count(pixels, BACKGROUND, (35, 15)) > 5000


@pytest.mark.parametrize("label", [0, 1, 2])
def test_a_box_is_drawn_in_its_classs_colour_where_it_stands(tmp_path, label):
    pixels = boxed(tmp_path, [CAR], label=label)
    assert count(pixels, CLASS_COLOURS[label], CAR[:2]) > 40
    assert count(pixels, CLASS_COLOURS[label], (50, -20)) == 0


def test_the_heading_tick_points_ahead_of_the_box(tmp_path):
    pixels = boxed(tmp_path, [CAR])
    ahead, behind = (count(pixels, CLASS_COLOURS[2], (x, 5.0), reach=5) for x in (22.7, 17.3))
    assert ahead > 5 and behind == 0


def test_unsure_boxes_are_thinner(tmp_path):
    pictures = boxed(tmp_path, []), boxed(tmp_path, [CAR], 0.2), boxed(tmp_path, [CAR], 0.9)
    empty, unsure, sure = (ink(pixels, (20, 5), 12) for pixels in pictures)
    assert sure - empty > 1.5 * (unsure - empty) > 0


def test_true_boxes_are_dashed_and_absent_ones_leave_no_trace(tmp_path):
    without, with_truth = (count(boxed(tmp_path, [], truth=truth), BRIGHT, (20, 5), 30) for truth in (None, [CAR]))
    solid = ink(boxed(tmp_path, [CAR]), (20, 5), 12) / np.abs(np.subtract(CLASS_COLOURS[2], BACKGROUND)).sum()
    dashed = ink(boxed(tmp_path, [], truth=[CAR]), (20, 5), 12) / np.abs(np.subtract(BRIGHT, BACKGROUND)).sum()
    assert without == 0 and with_truth > 20 and 0.2 * solid < dashed < 0.8 * solid


def test_points_are_drawn_where_they_are_and_lighter_with_height(tmp_path):
    points = np.array([[30.0, -10.0, -1.7, 0.3], [60.0, 20.0, 1.4, 0.3], [-50.0, 0, 0, 0], [30, 90, 0, 0]], np.float32)
    pixels = picture(draw(points, Boxes([], [], []), tmp_path / "a.png"))
    places = [(VIEW.place(p[:2].astype(float)) / VIEW.oversample).round().astype(int) for p in points[:2]]
    low, high = (pixels[y, x].sum() for x, y in places)
    assert sum(BACKGROUND) + 60 < low < high


def test_shades_grow_monotonically_lighter():
    lightness = shade(np.linspace(-4, 4, 50)).astype(int) @ [299, 587, 114]
    assert (np.diff(lightness) >= 0).all() and lightness[-1] > 2 * lightness[0]


def test_boxes_outside_the_view_and_extreme_values_do_no_harm(tmp_path):
    far = [[500.0, 0, 0, 2, 4, 1.5, 0], [-30.0, 0, 0, 2, 4, 1.5, 0], [35.0, 39.0, 0, 1e4, 1e4, 1.5, 0.2]]
    points = np.array([[1e6, 0, 0, 0], [10, 0, 1e6, 0]], np.float32)
    pixels = picture(draw(points, Boxes(far, [0, 1, 2], [0.5, 0.5, 0.99], far), tmp_path / "a.png", title="x" * 300))
    assert pixels.shape[0] == VIEW.size[1]


def test_the_same_input_gives_the_same_file(tmp_path):
    points = np.random.default_rng(0).uniform(-40, 70, (500, 4))
    a, b = (draw(points, Boxes([CAR], [2], [0.5], [CAR]), tmp_path / n).read_bytes() for n in ("a.png", "b.png"))
    assert a == b
