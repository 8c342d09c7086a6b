"""A camera detector: image preprocessing on the host, and a ResNet-18 with a dense anchor head.

Trunk: ResNet-18 (He et al., Deep Residual Learning, CVPR 2016, table 1) at 384 x 640, batch norm folded.  Head: one 1x1
convolution on the stride-32 map with five anchors per cell, each with four box terms, objectness and three class
scores, as in YOLO9000 (Redmon & Farhadi, CVPR 2017, section 2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from socsched.errors import InputError, UsageError
from socsched.graph.network import Network
from socsched.graph.operators import DTYPE_BYTES, Operator, TensorType
from socsched.models.camera_image import (
    FITS,
    FORMATS,
    LAYOUTS,
    MEAN,
    PRECISIONS,
    STD,
    Image,
    Target,
    blend_columns,
    checked_planes,
    prepare,
    taps,
)
from socsched.models.host import CompiledStages
from socsched.models.layers import Layers
from socsched.models.model import Model, Port

HEIGHT, WIDTH = 384, 640
STAGES = ((2, 64), (2, 128), (2, 256), (2, 512))
"""Basic blocks and channels of each ResNet-18 stage; every stage but the first halves the resolution."""
ANCHORS, CLASSES = 5, 3
OUTPUTS = ANCHORS * (5 + CLASSES)

_PARAMS = {"height": 1080, "width": 1920, "input_height": HEIGHT, "input_width": WIDTH}
_CHOICES = {"format": FORMATS, "fit": FITS, "precision": tuple(PRECISIONS), "layout": LAYOUTS}
"""Params of preprocessing with their values, the first of each by default."""


def _checked(params: Mapping[str, Any], others: Iterable[str] = ()) -> dict[str, int]:
    """Return the sizes, checked; `others` are params that the stage also has."""
    unknown = sorted(set(params) - set(_PARAMS))
    if unknown:
        names = ", ".join(sorted([*_PARAMS, *others]))
        raise UsageError(f"camera: unknown parameter {unknown[0]!r}", f"parameters: {names}")
    merged = {**_PARAMS, **params}
    for name, value in merged.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(f"camera: {name} must be a positive integer, got {value!r}")
    for name in ("input_height", "input_width"):
        if merged[name] % 32:
            raise UsageError(f"camera: {name} must be a multiple of 32, got {merged[name]}")
    return merged


def preprocess(params: Mapping[str, Any]) -> Model:
    """Return the stage that resizes a camera image bilinearly and normalises it.

    `format` is "rgb" (uint8 [1, 3, H, W] or [H, W, 3]), "bgr" (the same) or "nv12" ([H * 3 / 2, W]), `fit` "stretch" or
    "letterbox", `precision` "fp32" or "fp16" and `layout` "NCHW" or "NHWC".  The param `steps` selects one of the two
    steps of an RGB image as a stage of its own (`STEPS`).
    """
    if "steps" in params:
        return _step(params["steps"], _checked({name: value for name, value in params.items() if name != "steps"}))
    chosen = _checked({name: value for name, value in params.items() if name not in _CHOICES}, _CHOICES)
    options = {name: _choice(name, params.get(name, values[0])) for name, values in _CHOICES.items()}
    height, width = chosen["input_height"], chosen["input_width"]
    source = _source(options["format"], chosen["height"], chosen["width"])
    target = Target(height, width, **options)
    shape = (1, 3, height, width) if target.layout == "NCHW" else (1, height, width, 3)
    output = TensorType(shape, target.precision, target.layout if target.layout == "NCHW" else "")
    # Rows first, then columns, three operations each; two for the normalisation.
    flops = 3 * (3 * height * chosen["width"] + 3 * height * width + 2 * height * width)
    work = _work("preprocess", source, output, flops, (chosen["height"], chosen["width"]), (height, width))
    return Model(
        "camera.preprocess",
        (Port("image", source),),
        (Port("camera_input", output),),
        function=partial(_prepared, target=target),
        operators=(work,),
        compiled=True,
        device="camera-preprocess",
    )


def _prepared(image: Image, target: Target, compiled: CompiledStages | None = None) -> tuple[Any, ...]:
    return (prepare(image, target, compiled),)


def _choice(name: str, value: object) -> str:
    if value not in _CHOICES[name]:
        raise UsageError(f"camera: {name} is {value!r}", f"one of {', '.join(_CHOICES[name])}")
    return str(value)


def _source(form: str, height: int, width: int) -> TensorType:
    """Return the type of an image; only "rgb" is an image file's, and so the only one that files are read as."""
    if form == "nv12":
        if height % 2 or width % 2:
            raise UsageError(f"camera: an nv12 image of {height} x {width}", "give an even height and width")
        return TensorType((height * 3 // 2, width), "uint8")
    if form == "bgr":
        return TensorType((height, width, 3), "uint8")
    return TensorType((1, 3, height, width), "uint8", "NCHW")


def detector(params: Mapping[str, Any]) -> Model:
    """Return the stage of the ResNet-18 trunk and dense anchor head."""
    chosen = _checked(params)
    height, width = chosen["input_height"], chosen["input_width"]
    return Model(
        "camera.detector",
        (Port("camera_input", TensorType((1, 3, height, width), "fp32", "NCHW")),),
        (Port("camera_output", TensorType((1, OUTPUTS, height // 32, width // 32), "fp32", "NCHW")),),
        network=lambda: detector_network(height, width),
    )


def detector_network(height: int = HEIGHT, width: int = WIDTH) -> Network:
    """Return the detector for an input of `height` x `width` (multiples of 32)."""
    build = Layers()
    stem = build.relu(build.conv("stem", "camera_input", 3, 64, 7, 2))
    previous, width_in = build.add("pool", "max_pool", stem, kernel=3, stride=2, padding=1), 64
    for stage, (count, channels) in enumerate(STAGES):
        for index in range(count):
            stride = 2 if stage and index == 0 else 1
            previous = _block(build, f"layer{stage + 1}.{index}", previous, width_in, channels, stride)
            width_in = channels
    build.conv("camera_output", previous, width_in, OUTPUTS, 1)
    inputs = {"camera_input": TensorType((1, 3, height, width), "fp32", "NCHW")}
    return build.network("camera.detector", inputs, "camera_output")


def _block(build: Layers, name: str, source: str, inputs: int, outputs: int, stride: int) -> str:
    """Add a basic block: two 3x3 convolutions and the identity, or a 1x1 projection where the shape changes."""
    first = build.relu(build.conv(f"{name}.conv1", source, inputs, outputs, 3, stride))
    second = build.conv(f"{name}.conv2", first, outputs, outputs, 3)
    if stride != 1 or inputs != outputs:
        source = build.conv(f"{name}.downsample", source, inputs, outputs, 1, stride)
    return build.add(name, "relu", build.add(f"{name}.add", "add", second, source))


STEPS = ("resize", "normalise")
"""The steps of preprocessing as stages of their own.

Fixed-function engines such as Jetson's VIC and Rockchip's RGA resize images but produce no floating-point numbers, so
only the first step can run there.  Rounding in between moves a value by at most half of one of 255 levels.
"""


def _step(steps: object, sizes: dict[str, int]) -> Model:
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
    before, after = source.type.shape[2:], target.type.shape[2:]
    work = _work(name, source.type, target.type, flops * math.prod(target.type.shape), before, after)
    ports = ((source,), (target,))
    return Model("camera.preprocess", *ports, function=function, operators=(work,), device=f"camera-{name}")


def _work(
    name: str, source: TensorType, target: TensorType, flops: int, before: tuple[int, ...], after: tuple[int, ...]
) -> Operator:
    """Return the work of making an image of `after` rows and columns from one of `before`."""
    (tall, wide), (height, width) = before, after
    # of an odd ratio no row or column lies between two
    odd = (size % made == 0 and size // made % 2 for size, made in zip(before, after, strict=True))
    between = math.prod(1 if one else 2 for one in odd)
    sizes = {"input_pixels": tall * wide, "output_pixels": height * width, "neighbours": between * height * width}
    return Operator(
        name,
        "function",
        "fp32",
        (source,),
        (target,),
        flops,
        read_bytes=math.prod(source.shape),
        write_bytes=DTYPE_BYTES[target.dtype] * math.prod(target.shape),
        attrs={**sizes, "scale_h": height / tall, "scale_w": width / wide},
    )
