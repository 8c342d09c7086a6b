"""The camera detector: its image, its network, its boxes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from socsched.compiler.native.host_stages import compiled_stages
from socsched.errors import InputError, UsageError
from socsched.models.camera_decode import CLASS_NAMES, SIZES, Settings, decode, detect
from socsched.models.camera_image import GREY, MEAN, STD, Target, prepare
from socsched.models.registry import get_model

INPUT = Target(384, 640)


def by_definition(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear interpolation pixel by pixel, centres at half integers, edges held."""
    rows, columns = image.shape[:2]
    result = np.empty((1, 3, height, width))
    for i in range(height):
        for j in range(width):
            y = min(max((i + 0.5) * rows / height - 0.5, 0), rows - 1)
            x = min(max((j + 0.5) * columns / width - 0.5, 0), columns - 1)
            y0, x0 = int(y), int(x)
            y1, x1 = min(y0 + 1, rows - 1), min(x0 + 1, columns - 1)
            top = image[y0, x0] * (1 - (x - x0)) + image[y0, x1] * (x - x0)
            bottom = image[y1, x0] * (1 - (x - x0)) + image[y1, x1] * (x - x0)
            result[0, :, i, j] = ((top * (1 - (y - y0)) + bottom * (y - y0)) / 255 - MEAN) / STD
    return result


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 9), st.integers(1, 9))
def test_resize_equals_the_definition(rows: int, columns: int, height: int, width: int) -> None:
    image = np.random.default_rng(rows).integers(0, 256, (rows, columns, 3)).astype(np.uint8)
    found = prepare(image, Target(height, width))
    assert found.dtype == np.float32 and np.allclose(found, by_definition(image, height, width), atol=1e-5)


def test_both_image_forms_agree() -> None:
    image = np.random.default_rng(0).integers(0, 256, (30, 50, 3)).astype(np.uint8)
    planar = np.ascontiguousarray(image.transpose(2, 0, 1))[None]
    assert np.array_equal(prepare(image, INPUT), prepare(planar, INPUT))


@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 3, 4, 4), (4, 4), (0, 4, 3)])
def test_other_images_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="image: expected uint8"):
        prepare(np.zeros(shape, np.uint8), INPUT)
    with pytest.raises(InputError, match="got float32"):
        prepare(np.zeros((4, 4, 3), np.float32), INPUT)


def test_ports_fit_together() -> None:
    preprocess, detector = get_model("camera.preprocess"), get_model("camera.detector")
    assert preprocess.outputs == detector.inputs
    assert preprocess.function is not None
    result = preprocess.function(np.zeros((72, 128, 3), np.uint8))
    assert result[0].shape == detector.inputs[0].type.shape
    assert detector.outputs[0].type.shape == (1, 40, 12, 20)


@pytest.mark.parametrize("params", [{"input_height": 100}, {"width": 0}, {"widht": 4}, {"height": 1.5}])
def test_wrong_params(params: dict[str, object]) -> None:
    for model in ("camera.preprocess", "camera.detector"):
        with pytest.raises(UsageError, match="camera:"):
            get_model(model, params)


Array = np.ndarray[Any, Any]

WAYS = [pytest.param(None, id="numpy"), pytest.param(compiled_stages(), id="C")]


def pixels(prepared: Array) -> Array:
    """Return [H, W, 3] values from 0 to 255 of a normalised image [1, 3, H, W]."""
    return (prepared[0].transpose(1, 2, 0).astype(np.float64) * STD + MEAN) * 255


def smooth(rows: int, columns: int, seed: int = 0) -> Array:
    """Return an image without sharp edges or colours at the end of their range."""
    small = np.random.default_rng(seed).integers(70, 190, (6, 8, 3)).astype(np.uint8)
    return np.asarray(Pillow.fromarray(small).resize((columns, rows), Pillow.Resampling.BICUBIC))


@pytest.mark.parametrize("compiled", WAYS)
def test_enlarging_is_that_of_pillow(compiled: Any) -> None:
    """Within half a level: Pillow rounds to 8 bits, and between its two passes too."""
    image = np.random.default_rng(3).integers(0, 256, (31, 47, 3), np.uint8)
    expected = np.asarray(Pillow.fromarray(image).resize((160, 128), Pillow.Resampling.BILINEAR))
    assert np.abs(pixels(prepare(image, Target(128, 160), compiled)) - expected).max() < 1.01


@pytest.mark.parametrize("compiled", WAYS)
@pytest.mark.parametrize("shape", [(120, 90, 3), (40, 200, 3), (64, 64, 3)])
def test_a_letterboxed_image_keeps_its_shape_between_grey_bars(compiled: Any, shape: tuple[int, ...]) -> None:
    target = Target(64, 96, fit="letterbox")
    image = np.full(shape, 200, np.uint8)
    found = pixels(prepare(image, target, compiled))
    top, left, height, width = target.rectangle(*shape[:2])
    assert height == 64 or width == 96
    assert abs(height / width - shape[0] / shape[1]) < 0.03
    inside = np.zeros((64, 96), bool)
    inside[top : top + height, left : left + width] = True
    np.testing.assert_allclose(found[inside], 200, atol=1e-3)
    np.testing.assert_allclose(found[~inside], GREY, atol=1e-3)
    assert abs(top - (64 - height - top)) <= 1 and abs(left - (96 - width - left)) <= 1


@pytest.mark.parametrize("compiled", WAYS)
def test_bgr_is_rgb_in_another_order(compiled: Any) -> None:
    image = np.random.default_rng(1).integers(0, 256, (20, 30, 3), np.uint8)
    swapped = prepare(np.ascontiguousarray(image[..., ::-1]), Target(32, 32, "bgr"), compiled)
    assert np.array_equal(swapped, prepare(image, Target(32, 32), compiled))


@pytest.mark.parametrize("compiled", WAYS)
def test_precision_and_layout_change_nothing_else(compiled: Any) -> None:
    image = np.random.default_rng(1).integers(0, 256, (20, 30, 3), np.uint8)
    plain = prepare(image, Target(32, 64), compiled)
    half = prepare(image, Target(32, 64, precision="fp16", layout="NHWC"), compiled)
    assert half.dtype == np.float16 and np.array_equal(half.transpose(0, 3, 1, 2), plain.astype(np.float16))


COLOURS = [
    ((16, 128, 128), (0, 0, 0)), ((235, 128, 128), (255, 255, 255)), ((81, 90, 240), (255, 0, 0)),
    ((145, 54, 34), (0, 255, 0)), ((41, 240, 110), (0, 0, 255)), ((126, 128, 128), (128, 128, 128)),
]  # fmt: skip


@pytest.mark.parametrize("compiled", WAYS)
@pytest.mark.parametrize(("yuv", "rgb"), COLOURS)
def test_nv12_colours_are_those_of_bt601(compiled: Any, yuv: tuple[int, ...], rgb: tuple[int, ...]) -> None:
    """The 100 % colour bars in 8 bits: footroom 16, white 235."""
    image = np.empty((12, 8), np.uint8)
    image[:8], image[8:, ::2], image[8:, 1::2] = yuv
    found = pixels(prepare(image, Target(32, 32, "nv12"), compiled))
    assert np.abs(found - rgb).max() < 1.3


def nv12_of(image: Array) -> Array:
    """Return an RGB image [H, W, 3] as NV12 by BT.601, each block's chroma that of its mean colour."""
    luma = 16 + image @ [65.481, 128.553, 24.966] / 255
    mean = image.reshape(image.shape[0] // 2, 2, -1, 2, 3).mean((1, 3))
    u = 128 + mean @ [-37.797, -74.203, 112.0] / 255
    v = 128 + mean @ [112.0, -93.786, -18.214] / 255
    chroma = np.stack([u, v], 2).reshape(u.shape[0], -1)
    return np.round(np.vstack([luma, chroma])).astype(np.uint8)


@pytest.mark.parametrize("compiled", WAYS)
def test_nv12_shows_the_image_it_was_made_of(compiled: Any) -> None:
    """Within six levels: chroma is rounded to 8 bits, which blue doubles, and four pixels share it."""
    image = smooth(120, 160)
    rgb = pixels(prepare(image, Target(96, 128), compiled))
    assert np.abs(pixels(prepare(nv12_of(image), Target(96, 128, "nv12"), compiled)) - rgb).max() < 6


@pytest.mark.parametrize("compiled", WAYS)
@pytest.mark.parametrize("shape", [(12, 7), (10, 8), (12, 8, 3), (0, 8)])
def test_what_cannot_be_nv12_is_refused(compiled: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="expected NV12"):
        prepare(np.zeros(shape, np.uint8), Target(32, 32, "nv12"), compiled)


@pytest.mark.parametrize(
    "params",
    [{"format": "yuyv"}, {"fit": "crop"}, {"precision": "int8"}, {"layout": 3}, {"format": "nv12", "width": 5}],
)
def test_wrong_choices(params: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="camera:"):
        get_model("camera.preprocess", params)


def test_ports_of_formats() -> None:
    nv12 = get_model("camera.preprocess", {"format": "nv12", "precision": "fp16"})
    assert nv12.inputs[0].type.shape == (1620, 1920) and nv12.outputs[0].type.dtype == "fp16"
    assert get_model("camera.preprocess", {"format": "bgr"}).inputs[0].type.shape == (1080, 1920, 3)


def test_boxes_of_a_letterboxed_image_are_in_the_image() -> None:
    """A box over the middle of the network's input is over the middle of the image, in its proportions."""
    output = np.full((1, 40, 12, 20), -9, np.float32)
    output[0, :4, 5, 9] = [9, 9, 0, 0]
    output[0, 4:6, 5, 9] = 9
    decode = get_model("camera.decode", {"fit": "letterbox", "height": 720, "width": 1280}).function
    stretched = get_model("camera.decode", {"height": 720, "width": 1280}).function
    assert decode is not None and stretched is not None
    left, top, right, bottom = decode(output)[0][0]
    assert abs((left + right) / 2 - 640) < 0.1 and abs((top + bottom) / 2 - 360) < 0.1
    assert abs((bottom - top) / (right - left) - 0.677385 / 0.57273) < 1e-4
    assert abs((stretched(output)[0][0][3] - stretched(output)[0][0][1]) / (bottom - top) - 360 / 384) < 1e-3


@pytest.mark.needs("OpenCV images")
@pytest.mark.parametrize("compiled", WAYS)
@pytest.mark.parametrize("shape", [(270, 480), (33, 47), (96, 160)])
def test_resizing_is_that_of_opencv(compiled: Any, shape: tuple[int, int]) -> None:
    """Within one level: OpenCV's weights have 11 bits, and it rounds to 8."""
    import cv2

    image = np.random.default_rng(7).integers(0, 256, (*shape, 3), np.uint8)
    expected = cv2.resize(image, (160, 96), interpolation=cv2.INTER_LINEAR)
    assert np.abs(pixels(prepare(image, Target(96, 160), compiled)) - expected).max() <= 1


@pytest.mark.needs("OpenCV images")
@pytest.mark.parametrize("compiled", WAYS)
def test_nv12_is_that_of_opencv(compiled: Any) -> None:
    """Within two levels: OpenCV rounds the colours and then the resized image."""
    import cv2

    image = nv12_of(smooth(180, 240))
    rgb = cv2.cvtColor(image, cv2.COLOR_YUV2RGB_NV12)
    expected = cv2.resize(rgb, (160, 128), interpolation=cv2.INTER_LINEAR)
    assert np.abs(pixels(prepare(image, Target(128, 160, "nv12"), compiled)) - expected).max() <= 2


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


def random_map(seed, spread=1.5):
    rng = np.random.default_rng(seed)
    output = rng.normal(0, spread, (5, 8, ROWS, COLUMNS)).astype(np.float32)
    output[:, 4] -= 1
    return output


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    score=st.sampled_from([0.0, 0.25, 0.6]),
    iou=st.sampled_from([0.0, 0.2, 0.45, 1.0]),
    candidates=st.integers(1, 200),
    most=st.integers(1, 60),
)
def test_equals_a_plain_greedy_search(seed, score, iou, candidates, most):
    output = random_map(seed)
    found = []
    for row in range(ROWS):
        for column in range(COLUMNS):
            for anchor in range(5):
                x, y, w, h, sure, *classes = output[anchor, :, row, column].astype(float)
                odds = np.exp(np.array(classes))
                value = odds.max() / odds.sum() / (1 + math.exp(-sure))
                cx, cy = column + 1 / (1 + math.exp(-x)), row + 1 / (1 + math.exp(-y))
                half_w, half_h = math.exp(w) * SIZES[anchor][0] / 2, math.exp(h) * SIZES[anchor][1] / 2
                box = np.clip([cx - half_w, cy - half_h, cx + half_w, cy + half_h], 0, [20, 12, 20, 12])
                found.append((value, int(odds.argmax()), box * [96, 90, 96, 90]))
    found.sort(key=lambda entry: -entry[0])
    kept = []
    for value, label, box in found[:candidates]:
        if value > score and all(other != label or overlap(box, b) <= iou for _, other, b in kept):
            kept.append((value, label, box))
    result = detections(output, Settings(score, iou, candidates, most))
    assert result.labels.tolist() == [label for _, label, _ in kept[:most]]
    np.testing.assert_allclose(result.scores, [value for value, _, _ in kept[:most]], rtol=1e-5)
    np.testing.assert_allclose(
        result.boxes, np.array([b for _, _, b in kept[:most]]).reshape(-1, 4), rtol=1e-4, atol=1e-3
    )


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
