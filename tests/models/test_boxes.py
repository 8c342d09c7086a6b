"""Overlaps, suppression and decoding of boxes."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import reference_pointpillars
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from socsched.errors import UsageError
from socsched.models.pointpillars.boxes import (
    anchors_at,
    corners,
    footprints,
    intersection,
    iou,
    iou_matrix,
    map_shape,
    suppress,
)
from socsched.models.pointpillars.decode import Settings, decode, detect
from socsched.models.pointpillars.grid import KITTI, Grid
from socsched.models.registry import get_model
from socsched.models.weights import load_weights
from tools.train.precision import truths_of
from tools.train.streets import look_at, make_scene

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
@given(a=RECT, turns=st.integers(-4, 4))
def test_a_box_overlaps_itself_wholly_also_when_turned_half_way(a, turns):
    turned = a + np.array([[0, 0, 0, 0, turns * np.pi]])
    assert iou(a, turned)[0] == pytest.approx(1, abs=1e-9)


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


SMALL = Grid((0.0, -1.6, -3.0), (3.2, 1.6, 1.0))  # 10 x 10 cells of the head's maps, 600 anchors


def random_maps(rng, grid, spread=1.5, mean=-2.0):
    rows, columns = map_shape(grid)
    # half-integer logits make many equal scores
    cls = (np.round(rng.normal(mean, spread, (18, rows, columns)) * 2) / 2).astype(np.float32)
    reg = rng.normal(0, 0.6, (42, rows, columns)).astype(np.float32)
    return cls, reg, rng.integers(-2, 3, (12, rows, columns)).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    mean=st.floats(-6, 6),
    candidates=st.integers(1, 60),
    score=st.sampled_from([0.0, 0.1, 0.4, 0.9]),
    overlap=st.sampled_from([0.01, 0.3, 1.0]),
    most=st.integers(1, 30),
)
def test_equals_the_definition(seed, mean, candidates, score, overlap, most):
    options = Settings(score, overlap, candidates, most, SMALL)
    maps = random_maps(np.random.default_rng(seed), SMALL, mean=mean)
    found = detect(*maps, options)
    expected, margin = reference_pointpillars.detections(*maps, score, overlap, candidates, most, SMALL.low)
    assume(margin.overlap > 1e-5)
    assert found.labels.tolist() == [label for _, label, _ in expected]
    np.testing.assert_allclose(found.scores, [value for value, _, _ in expected], atol=1e-6)
    boxes = np.array([box for *_, box in expected]).reshape(-1, 7)
    np.testing.assert_allclose(found.boxes[:, :6], boxes[:, :6], rtol=1e-5, atol=1e-5)
    # an angle within rounding of a half turn may land on either end
    np.testing.assert_allclose(np.cos(found.boxes[:, 6] - boxes[:, 6]), 1, atol=1e-5)


@pytest.mark.parametrize("logit", [25.0, 800.0])
def test_scores_that_round_to_the_same_value_keep_anchor_order(logit):
    rows, columns = map_shape(SMALL)
    cls = np.full((18, rows, columns), -9, np.float32)
    cls[8, 0, 0], cls[8, 9, 9] = logit, np.nextafter(np.float32(logit), np.float32(1e9))
    reg, direction = np.zeros((42, rows, columns), np.float32), np.zeros((12, rows, columns), np.float32)
    found = detect(cls, reg, direction, Settings(candidates=1, grid=SMALL))
    # the later logit is larger, yet the scores are equal in double precision
    first, second = (1 / (1 + np.exp(-np.float64(cls[8, cell, cell]))) for cell in (0, 9))
    assert first == second
    assert found.boxes[0, :2].tolist() == anchors_at(np.array([2]), SMALL)[0, :2].tolist()


def test_quiet_maps_give_no_boxes():
    rows, columns = map_shape(SMALL)
    maps = [np.full((channels, rows, columns), -8, np.float32) for channels in (18, 42, 12)]
    found = detect(*maps, Settings(grid=SMALL))
    assert (found.boxes.shape, found.scores.shape, found.labels.shape, found.dropped) == ((0, 7), (0,), (0,), 0)


def test_an_anchor_without_offset_is_the_box_with_its_heading_in_the_bins_half():
    rows, columns = map_shape(KITTI)
    cls, reg, direction = (np.full((n, rows, columns), v, np.float32) for n, v in ((18, -9), (42, 0), (12, 0)))
    cls[4 * 3 + 2, 100, 50] = cls[5 * 3 + 2, 10, 20] = 3  # car anchors, rotations 0 and 1.57
    direction[9, 100, 50] = 1  # bin 1: angle in [-pi, 0)
    boxes, scores, labels = decode(cls, reg, direction)
    assert labels.tolist() == [2, 2] and scores[0] == pytest.approx(1 / (1 + math.exp(-3)))
    expected = [[20 * 0.32 + 0.16, 10 * 0.32 - 39.52, -1.78, 1.6, 3.9, 1.56, 1.57]]
    expected += [[50 * 0.32 + 0.16, 100 * 0.32 - 39.52, -1.78, 1.6, 3.9, 1.56, -math.pi]]
    np.testing.assert_allclose(boxes, expected, atol=1e-5)


@pytest.mark.parametrize(("part", "value"), [(0, np.nan), (0, np.inf), (1, np.nan), (1, 1e9), (2, -np.inf)])
def test_anchors_without_finite_values_are_left_out_and_counted(part, value):
    maps = random_maps(np.random.default_rng(0), SMALL)
    maps[0][14, 3, 4] = 9.0  # class Car of kind 4
    clean = detect(*maps, Settings(grid=SMALL))
    channels = (3, 7, 2)[part]
    maps[part][4 * channels + channels - 2, 3, 4] = value
    found = detect(*maps, Settings(grid=SMALL))
    assert clean.scores[0] > 0.999 > found.scores[0] and (clean.dropped, found.dropped) == (0, 1)
    assert np.isfinite(found.boxes).all() and np.isfinite(found.scores).all()
    with pytest.warns(RuntimeWarning, match="1 anchors with non-finite values"):
        decode(*maps, Settings(grid=SMALL))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, -3e38])
def test_maps_of_one_extreme_value_do_not_crash(value):
    rows, columns = map_shape(SMALL)
    maps = [np.full((channels, rows, columns), value, np.float32) for channels in (18, 42, 12)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = detect(*maps, Settings(score=0.0, grid=SMALL))
    assert len(found.boxes) == 0 and (found.dropped > 0) == (value != -3e38)


def test_stage_ports_and_work():
    model = get_model("pointpillars.decode", {"max_boxes": 7, "candidates": 30})
    assert [port.type.shape for port in model.inputs] == [(1, 18, 248, 216), (1, 42, 248, 216), (1, 12, 248, 216)]
    maps = random_maps(np.random.default_rng(0), KITTI)
    boxes, scores, labels = model.function(*(m[None] for m in maps))
    assert [a.shape for a in (boxes, scores, labels)] == [port.type.shape for port in model.outputs]
    assert (boxes.dtype, scores.dtype, labels.dtype) == (np.float32, np.float32, np.int32)
    (work,) = model.operators
    assert work.read_bytes >= maps[0].nbytes and work.flops > 321408


@pytest.mark.parametrize("params", [{"score": 1.5}, {"iou": "x"}, {"candidates": 0}, {"topk": 5}])
def test_wrong_params_are_usage_errors(params):
    with pytest.raises(UsageError, match=next(iter(params))):
        get_model("pointpillars.decode", params)


@pytest.mark.slow
def test_a_trained_network_finds_the_cars_of_synthetic_streets(recorded):
    """To a network trained on real scans too: what it is sure of is a car or a van, and most near cars are found."""
    weights = load_weights(recorded.weights)
    right = sure = found = near = 0
    for seed in range(5):
        scene = make_scene(seed)
        seen = look_at(scene, seed)
        tensors = reference_pointpillars.network(seen.points, weights)
        boxes, scores, labels = decode(tensors["cls"], tensors["reg"], tensors["dir"])
        cars = footprints(boxes[(labels == 2) & (scores > 0.5)])
        true = footprints(scene.boxes[[label in ("Car", "Van") for label in scene.labels]])
        best = [iou(np.repeat(car[None], len(true), axis=0), true).max() for car in cars]
        sure, right = sure + len(best), right + sum(value > 0.5 for value in best)
        for truth in truths_of(scene, seen):
            if truth.kind == "Car" and truth.level <= 1 and len(cars):
                mine = np.repeat(footprints(truth.box[None]), len(cars), axis=0)
                near, found = near + 1, found + bool(iou(mine, cars).max() > 0.5)
    assert sure >= 10 and right / sure > 0.8
    assert near >= 8 and found / near > 0.6
