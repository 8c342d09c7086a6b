"""The range image: points and boxes where the LiDAR sees them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from socsched.reporting.pictures import BACKGROUND, BRIGHT, CLASS_COLOURS, RangeView, draw_range, stack

CAR = np.array([20.0, 3.0, -1.7, 1.6, 4.0, 1.5, -np.pi / 2])


def near(image: np.ndarray, at: np.ndarray, colour: tuple[int, int, int], reach: int = 2) -> bool:
    """Whether a pixel near a place is close to a colour."""
    x, y = at.round().astype(int)
    patch = image[max(y - reach, 0) : y + reach + 1, max(x - reach, 0) : x + reach + 1].reshape(-1, 3).astype(int)
    return bool((np.abs(patch - colour).max(1) < 85).any())


def test_left_is_left_up_is_up_and_boxes_stand_where_their_corners_are(tmp_path: Path) -> None:
    view = RangeView()
    points = np.array([[20.0, 3.0, 0.0, 0.5], [20.0, -10.0, -1.0, 0.5]])
    path = draw_range(points, CAR[None], [2], [0.9], None, tmp_path / "a.png", view)
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
    behind = CAR * [-1, 1, 1, 1, 1, 1, 1]
    path = draw_range(np.zeros((0, 4)), np.zeros((0, 7)), [], [], np.stack([CAR, behind]), tmp_path / "a.png", view)
    image = np.asarray(Image.open(path))
    assert near(image, view.place(np.array([18.0, 3.8, -1.0])) / view.oversample, tuple(c * 2 // 3 for c in BRIGHT))
    columns = np.flatnonzero((image[view.margin + 4 :] != BACKGROUND).any((0, 2)))
    middle = view.place(CAR[:3]) / view.oversample
    assert np.abs(columns - middle[0]).max() < 100


def test_stacking_keeps_both_pictures(tmp_path: Path) -> None:
    for name, size in (("a", (30, 10)), ("b", (40, 20))):
        Image.new("RGB", size, (255, 0, 0)).save(tmp_path / f"{name}.png")
    assert Image.open(stack(tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.png")).size == (40, 30)
