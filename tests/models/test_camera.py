"""Camera preprocessing against Pillow, and the models' ports."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.errors import InputError, UsageError
from socsched.models.camera_image import MEAN, STD, Target, prepare
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
