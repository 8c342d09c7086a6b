import numpy as np
import pytest
import reference_pointpillars
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.models.pointpillars.boxes import corners, footprints, intersection, iou, iou_matrix, suppress

SIZE = st.floats(0.3, 12)
PLACE = st.floats(-8, 8)
RECT = st.builds(lambda *v: np.array([v]), PLACE, PLACE, SIZE, SIZE, st.floats(-7, 7))


def clipped_area(a, b):
    """The shared area of two footprints by polygon clipping."""
    boxes = (np.array([x, y, 0, w, length, 1, ry]) for x, y, w, length, ry in (a[0], b[0]))
    return reference_pointpillars.clipped_area(*(reference_pointpillars.corners(box) for box in boxes))


@settings(max_examples=300, deadline=None)
@given(a=RECT, b=RECT)
def test_area_equals_polygon_clipping(a, b):
    assert intersection(a, b)[0] == pytest.approx(clipped_area(a, b), abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(a=RECT, b=RECT)
def test_iou_is_symmetric_and_between_0_and_1(a, b):
    forth, back = iou(a, b)[0], iou(b, a)[0]
    assert forth == pytest.approx(back, abs=1e-10) and 0 <= forth <= 1 + 1e-12


@settings(max_examples=200, deadline=None)
@given(a=RECT, turns=st.integers(-4, 4))
def test_a_box_overlaps_itself_wholly_also_when_turned_half_way(a, turns):
    turned = a + np.array([[0, 0, 0, 0, turns * np.pi]])
    assert iou(a, turned)[0] == pytest.approx(1, abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(a=RECT, b=RECT, angle=st.floats(-4, 4), dx=st.floats(-70, 70), dy=st.floats(-70, 70))
def test_moving_both_boxes_together_changes_nothing(a, b, angle, dx, dy):
    cos, sin = np.cos(angle), np.sin(angle)

    def move(r):
        x, y = r[:, 0], r[:, 1]
        return np.column_stack([x * cos - y * sin + dx, x * sin + y * cos + dy, r[:, 2], r[:, 3], r[:, 4] - angle])

    assert iou(move(a), move(b))[0] == pytest.approx(iou(a, b)[0], abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(a=RECT, b=RECT)
def test_axis_aligned_boxes_follow_the_closed_form(a, b):
    a, b = a.copy(), b.copy()
    a[0, 4] = b[0, 4] = 0.0  # length along -y, width along x

    def shared(axis, size):
        low = max(r[0, axis] - r[0, size] / 2 for r in (a, b))
        return max(0.0, min(r[0, axis] + r[0, size] / 2 for r in (a, b)) - low)

    assert intersection(a, b)[0] == pytest.approx(shared(0, 2) * shared(1, 3), abs=1e-9)


@pytest.mark.parametrize(
    ("b", "expected"),
    [
        ((2, 0, 2, 2, 0), 0.0),  # touch along an edge
        ((2, 2, 2, 2, 0), 0.0),  # touch at a corner
        ((0, 0, 1, 1, 0), 1.0),  # inside
        ((0, 0, 2, 2, np.pi / 2), 4.0),  # same square, edges coincide after a quarter turn
        ((0, 0, 2, 2, np.pi / 4), 8 * (np.sqrt(2) - 1)),  # regular octagon
        ((0, 0, 0, 5, 0.3), 0.0),  # a line
    ],
)
def test_known_overlaps_of_a_two_metre_square(b, expected):
    assert intersection(np.array([[0, 0, 2, 2, 0.0]]), np.array([b], float))[0] == pytest.approx(expected, abs=1e-12)


def test_length_lies_along_the_heading():
    car = np.array([[10.0, 2.0, 1.6, 4.0, -np.pi / 2]])  # heading 0: nose towards +x
    np.testing.assert_allclose(corners(car)[0], [[12, 2.8], [8, 2.8], [8, 1.2], [12, 1.2]], atol=1e-12)


def test_footprints_take_width_length_and_angle_of_boxes():
    assert footprints(np.array([[1, 2, 3, 4, 5, 6, 7]], np.float32)).tolist() == [[1, 2, 4, 5, 7]]


def test_matrix_equals_all_pairs():
    rng = np.random.default_rng(3)
    rects = np.column_stack([rng.uniform(-6, 6, (40, 2)), rng.uniform(0.5, 4, (40, 2)), rng.uniform(-4, 4, 40)])
    i, j = np.divmod(np.arange(1600), 40)
    np.testing.assert_allclose(iou_matrix(rects), iou(rects[i], rects[j]).reshape(40, 40), atol=1e-9)
    assert iou_matrix(rects[:0]).shape == (0, 0)


def test_suppression_keeps_what_only_suppressed_boxes_overlap():
    chain = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], bool)
    assert suppress(chain, np.array([0, 1, 2])) == [0, 2]
    assert suppress(chain, np.array([1, 0, 2])) == [1]
    assert suppress(chain, np.array([], int)) == []
