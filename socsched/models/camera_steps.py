"""The two steps of camera preprocessing as stages of their own: resize in 8 bits, then normalise to fp32.

Fixed-function engines such as Jetson's VIC and Rockchip's RGA resize images but produce no floating-point numbers, so
only the first step can run there.  Rounding in between moves a value by at most half of one of 255 levels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from socsched.errors import InputError, UsageError
from socsched.graph.operators import Operator, TensorType
from socsched.models.camera_image import MEAN, STD, blend_columns, checked_planes, taps
from socsched.models.model import Model, Port

STEPS = ("resize", "normalise")
Image = np.ndarray[Any, Any]


def step(steps: object, sizes: dict[str, int]) -> Model:
    """Return the stage for one of `STEPS`; `sizes` as the params of camera.preprocess."""
    if steps not in STEPS:
        raise UsageError(f"camera: steps is {steps!r}", f"one of {', '.join(STEPS)}; omit it for both in one stage")
    height, width = sizes["input_height"], sizes["input_width"]
    small = TensorType((1, 3, height, width), "uint8", "NCHW")
    if steps == "normalise":
        whole = TensorType(small.shape, "fp32", "NCHW")
        return _stage("normalise", Port("camera_resized", small), Port("camera_input", whole), 2, normalise)
    source = TensorType((1, 3, sizes["height"], sizes["width"]), "uint8", "NCHW")

    def function(image: Image) -> tuple[Image, ...]:
        return (resize(image, height, width),)

    return _stage("resize", Port("image", source), Port("camera_resized", small), 7, function)


def resize(image: Image, height: int, width: int) -> Image:
    """Return `image` as uint8 [1, 3, height, width], resized bilinearly with pixel centres at half integers."""
    planes = checked_planes(image)
    top, bottom, y = taps(planes.shape[1], height)
    left, right, x = taps(planes.shape[2], width)
    result = np.empty((1, 3, height, width), np.uint8)
    for plane, target in zip(planes, result[0], strict=True):
        above = blend_columns(plane[top], left, right, x)
        below = blend_columns(plane[bottom], left, right, x)
        target[:] = above + (below - above) * y[:, None] + np.float32(0.5)
    return result


def normalise(image: Image) -> tuple[Image, ...]:
    """Return uint8 [1, 3, H, W] as fp32 with the mean and deviation of the network's training data."""
    if image.dtype != np.uint8 or image.ndim != 4 or image.shape[:2] != (1, 3):
        raise InputError(f"camera_resized: expected uint8 [1, 3, H, W], got {image.dtype} {list(image.shape)}")
    scale, shift = 1 / (255 * STD), MEAN / STD
    return (image * scale[:, None, None] - shift[:, None, None],)


def _stage(name: str, source: Port, target: Port, flops: int, function: Any) -> Model:
    """Return the stage; `flops` operations for every value of the result."""
    (*_, tall, wide), (*_, height, width) = source.type.shape, target.type.shape
    values, size = 3 * height * width, {"uint8": 1, "fp32": 4}[target.type.dtype]
    work = Operator(
        name,
        "function",
        "fp32",
        (source.type,),
        (target.type,),
        flops * values,
        read_bytes=3 * tall * wide,
        write_bytes=size * values,
        attrs={
            "input_pixels": tall * wide,
            "output_pixels": height * width,
            "scale_h": height / tall,
            "scale_w": width / wide,
        },
    )
    ports = ((source,), (target,))
    return Model("camera.preprocess", *ports, function=function, operators=(work,), device=f"camera-{name}")
