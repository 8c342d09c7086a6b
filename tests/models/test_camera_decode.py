import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.errors import UsageError
from socsched.models.camera_decode import CLASS_NAMES, SIZES, Settings, decode, detect
from socsched.models.registry import get_model

ROWS, COLUMNS = 12, 20


def quiet_map():
    output = np.zeros((5, 8, ROWS, COLUMNS), np.float32)
    output[:, 4] = -9
    return output


def put(output, anchor, row, column, label, objectness=3.0, terms=(0, 0, 0, 0)):
    output[anchor, :4, row, column] = terms
    output[anchor, 4, row, column] = objectness
    output[anchor, 5 + label, row, column] = 8


def detections(output, options=None):
    return detect(output.reshape(1, 40, ROWS, COLUMNS), options)


def overlap(a, b):
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return shared / union if union else 0.0


def test_known_boxes_are_decoded_in_pixels_of_the_image():
    output = quiet_map()
    put(output, 1, 5, 10, 2, terms=(0, 0, math.log(2), 0))
    put(output, 0, 2, 3, 0, objectness=1.0, terms=(2.0, -2.0, 0, 0))
    found = detections(output, Settings(height=768, width=1280))  # twice the network's input: a cell is 64 pixels
    sure = math.exp(8) / (math.exp(8) + 2)
    np.testing.assert_allclose(found.scores, [sure / (1 + math.exp(-3)), sure / (1 + math.exp(-1))], rtol=1e-6)
    assert [CLASS_NAMES[label] for label in found.labels] == ["Car", "Pedestrian"]
    (w, h), (u, v) = SIZES[1], SIZES[0]
    right, left = 1 / (1 + math.exp(-2)), 1 / (1 + math.exp(2))
    expected = [[10.5 - w, 5.5 - h / 2, 10.5 + w, 5.5 + h / 2]]
    expected += [[3 + right - u / 2, 2 + left - v / 2, 3 + right + u / 2, 2 + left + v / 2]]
    np.testing.assert_allclose(found.boxes, np.array(expected) * 64, rtol=1e-5)


def test_width_and_height_are_scaled_apart_and_boxes_end_at_the_image():
    output = quiet_map()
    put(output, 4, 0, 0, 1)
    (box,) = detections(output, Settings(height=1080, width=1920)).boxes
    w, h = SIZES[4]
    np.testing.assert_allclose(box, [0, 0, (0.5 + w / 2) * 96, (0.5 + h / 2) * 90], rtol=1e-6)


def test_only_boxes_of_one_class_suppress_each_other():
    output = quiet_map()
    put(output, 2, 6, 10, 0, 3.0)
    put(output, 2, 6, 11, 0, 2.0)
    put(output, 3, 6, 10, 1, 1.0)
    assert detections(output).labels.tolist() == [0, 1]
    assert detections(output, Settings(iou=0.99)).labels.tolist() == [0, 0, 1]


def random_map(seed, spread=1.5):
    rng = np.random.default_rng(seed)
    output = rng.normal(0, spread, (5, 8, ROWS, COLUMNS)).astype(np.float32)
    output[:, 4] -= 1
    return output


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    score=st.sampled_from([0.0, 0.25, 0.6]),
    iou=st.sampled_from([0.0, 0.3, 0.45, 1.0]),
    candidates=st.integers(1, 200),
    most=st.integers(1, 60),
)
def test_what_is_left_is_sorted_sure_inside_and_apart(seed, score, iou, candidates, most):
    found = detections(random_map(seed), Settings(score, iou, candidates, most))
    assert len(found.boxes) <= min(candidates, most) and (found.scores > score).all()
    assert (np.diff(found.scores) <= 0).all()
    assert (found.boxes[:, :2] <= found.boxes[:, 2:]).all()
    assert (found.boxes >= 0).all() and (found.boxes <= [1920, 1080, 1920, 1080]).all()
    for i, box in enumerate(found.boxes):
        for other, label in zip(found.boxes[:i], found.labels[:i], strict=True):
            assert label != found.labels[i] or overlap(box, other) <= iou + 1e-6


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), iou=st.sampled_from([0.2, 0.45]))
def test_equals_a_plain_greedy_search(seed, iou):
    output = random_map(seed)
    found = []
    for row in range(ROWS):
        for column in range(COLUMNS):
            for anchor in range(5):
                x, y, w, h, sure, *classes = output[anchor, :, row, column].astype(float)
                odds = np.exp(np.array(classes))
                score = odds.max() / odds.sum() / (1 + math.exp(-sure))
                cx, cy = column + 1 / (1 + math.exp(-x)), row + 1 / (1 + math.exp(-y))
                half_w, half_h = math.exp(w) * SIZES[anchor][0] / 2, math.exp(h) * SIZES[anchor][1] / 2
                box = np.clip([cx - half_w, cy - half_h, cx + half_w, cy + half_h], 0, [20, 12, 20, 12])
                found.append((score, int(odds.argmax()), box * [96, 90, 96, 90]))
    found.sort(key=lambda entry: -entry[0])
    kept = []
    for score, label, box in found[:100]:
        if score > 0.25 and all(other != label or overlap(box, b) <= iou for _, other, b in kept):
            kept.append((score, label, box))
    result = detections(output, Settings(iou=iou))
    assert result.labels.tolist() == [label for _, label, _ in kept[:50]]
    np.testing.assert_allclose(result.scores, [score for score, _, _ in kept[:50]], rtol=1e-5)
    np.testing.assert_allclose(
        result.boxes, np.array([b for _, _, b in kept[:50]]).reshape(-1, 4), rtol=1e-4, atol=1e-3
    )


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_naming_the_classes_otherwise_changes_their_names_only(seed):
    output, order = random_map(seed), np.random.default_rng(seed).permutation(3)
    plain = detections(output)
    renamed = output.copy()
    renamed[:, 5:] = output[:, 5:][:, order]
    other = detections(renamed)
    np.testing.assert_array_equal(order[other.labels], plain.labels)
    np.testing.assert_allclose(other.boxes, plain.boxes)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_turning_the_image_over_turns_the_boxes_over(seed):
    output = random_map(seed)
    mirrored = output[:, :, :, ::-1].copy()
    mirrored[:, 0] *= -1
    plain, other = detections(output), detections(mirrored)
    np.testing.assert_array_equal(other.labels, plain.labels)
    np.testing.assert_allclose(1920 - other.boxes[:, [2, 0]], plain.boxes[:, [0, 2]], atol=1e-2)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_boxes_without_finite_values_are_left_out_and_counted(value):
    output = quiet_map()
    put(output, 1, 3, 4, 0)
    put(output, 1, 9, 9, 1)
    output[1, 6, 3, 4] = value
    found = detections(output)
    assert (found.labels.tolist(), found.dropped) == ([1], 1)
    with pytest.warns(RuntimeWarning, match="1 boxes with non-finite values"):
        decode(output.reshape(40, ROWS, COLUMNS))


@pytest.mark.parametrize("value", [np.nan, 3e38, -3e38, 80.0])
def test_maps_of_one_extreme_value_do_not_crash(value):
    found = detect(np.full((40, ROWS, COLUMNS), value, np.float32), Settings(score=0.0))
    assert np.isfinite(found.boxes).all() and found.dropped == (1200 if np.isnan(value) else 0)


def test_stage_ports_and_work():
    model = get_model("camera.decode", {"input_height": 64, "input_width": 96, "max_boxes": 7, "candidates": 3})
    detector = get_model("camera.detector", {"input_height": 64, "input_width": 96})
    assert model.inputs == detector.outputs and model.classes == CLASS_NAMES
    arrays = model.function(np.zeros((1, 40, 2, 3), np.float32))
    for array, port in zip(arrays, model.outputs, strict=True):
        assert array.shape[1:] == port.type.shape[1:] and len(array) <= port.type.shape[0]
        assert array.dtype == (np.int32 if port.name == "image_labels" else np.float32)
    assert model.operators[0].read_bytes == 40 * 2 * 3 * 4


@pytest.mark.parametrize("params", [{"score": 2}, {"candidates": 0}, {"input_width": 100}, {"anchors": 3}])
def test_wrong_params_are_usage_errors(params):
    with pytest.raises(UsageError, match=next(iter(params))):
        get_model("camera.decode", params)
