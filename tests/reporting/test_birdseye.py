import numpy as np
import pytest
from PIL import Image

from socsched.reporting.pictures import BACKGROUND, BRIGHT, CLASS_COLOURS, View, draw, shade

VIEW = View()
CAR = [20.0, 5.0, -1.7, 1.6, 3.9, 1.5, -np.pi / 2]  # nose ahead
NOTHING = (np.zeros((0, 4)), np.zeros((0, 7)), [], [], None)


def picture(path):
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def boxed(tmp_path, boxes, score=0.9, label=2, truth=None):
    """The picture of boxes of one class and score, without points."""
    count = len(boxes)
    return picture(draw(np.zeros((0, 4)), boxes, [label] * count, [score] * count, truth, tmp_path / "a.png"))


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
    pixels = picture(draw(points, [], [], [], None, tmp_path / "a.png"))
    places = [(VIEW.place(p[:2].astype(float)) / VIEW.oversample).round().astype(int) for p in points[:2]]
    low, high = (pixels[y, x].sum() for x, y in places)
    assert sum(BACKGROUND) + 60 < low < high


def test_shades_grow_monotonically_lighter():
    lightness = shade(np.linspace(-4, 4, 50)).astype(int) @ [299, 587, 114]
    assert (np.diff(lightness) >= 0).all() and lightness[-1] > 2 * lightness[0]


def test_boxes_outside_the_view_and_extreme_values_do_no_harm(tmp_path):
    far = [[500.0, 0, 0, 2, 4, 1.5, 0], [-30.0, 0, 0, 2, 4, 1.5, 0], [35.0, 39.0, 0, 1e4, 1e4, 1.5, 0.2]]
    points = np.array([[1e6, 0, 0, 0], [10, 0, 1e6, 0]], np.float32)
    pixels = picture(draw(points, far, [0, 1, 2], [0.5, 0.5, 0.99], far, tmp_path / "a.png", title="x" * 300))
    assert pixels.shape[0] == VIEW.size[1]


def test_the_same_input_gives_the_same_file(tmp_path):
    points = np.random.default_rng(0).uniform(-40, 70, (500, 4))
    a, b = (draw(points, [CAR], [2], [0.5], [CAR], tmp_path / name).read_bytes() for name in ("a.png", "b.png"))
    assert a == b
