"""Camera images as a network's input, against Pillow, OpenCV and the definitions of the formats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from socsched.compiler.native.host_stages import compiled_stages
from socsched.errors import InputError, UsageError
from socsched.models.camera_image import GREY, MEAN, STD, Target, prepare
from socsched.models.registry import get_model

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
