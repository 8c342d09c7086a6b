"""A camera detector: image preprocessing on the host, and a ResNet-18 with a dense anchor head.

Trunk: ResNet-18 (He et al., Deep Residual Learning, CVPR 2016, table 1) at 384 x 640, batch norm folded.  Head: one 1x1
convolution on the stride-32 map with five anchors per cell, each with four box terms, objectness and three class
scores, as in YOLO9000 (Redmon & Farhadi, CVPR 2017, section 2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from socsched.errors import UsageError
from socsched.graph.network import Layer, Network
from socsched.graph.operators import Operator, TensorType
from socsched.models.camera_frames import FITS, FRAMES, PADDING, frame_planes, frame_shape, frame_taps, inner_size
from socsched.models.model import Model, Port

HEIGHT, WIDTH = 384, 640
STAGES = ((2, 64), (2, 128), (2, 256), (2, 512))
"""Basic blocks and channels of each ResNet-18 stage; every stage but the first halves the resolution."""
ANCHORS, CLASSES = 5, 3
OUTPUTS = ANCHORS * (5 + CLASSES)
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
"""Channel statistics (RGB, 0..1) of ImageNet, with which published ResNet weights are trained."""

_PARAMS = {"height": 1080, "width": 1920, "input_height": HEIGHT, "input_width": WIDTH}


def _checked(params: Mapping[str, Any]) -> dict[str, int]:
    unknown = sorted(set(params) - set(_PARAMS))
    if unknown:
        raise UsageError(f"camera: unknown parameter {unknown[0]!r}", f"parameters: {', '.join(sorted(_PARAMS))}")
    merged = {**_PARAMS, **params}
    for name, value in merged.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(f"camera: {name} must be a positive integer, got {value!r}")
    for name in ("input_height", "input_width"):
        if merged[name] % 32:
            raise UsageError(f"camera: {name} must be a multiple of 32, got {merged[name]}")
    return merged


def preprocess(params: Mapping[str, Any]) -> Model:
    """Return the stage that converts a frame to RGB, resizes it bilinearly and normalises it.

    `format` is the frame's colour format, `fit` how it fills the input (`camera_frames`), RGB stretched by default.
    """
    settings = dict(params)
    colour, fit = settings.pop("format", FRAMES[0]), settings.pop("fit", FITS[0])
    chosen = _checked(settings)
    height, width = chosen["input_height"], chosen["input_width"]
    size = chosen["height"], chosen["width"]
    shape = frame_shape(colour, *size)
    inner_size(size, (height, width), fit)
    source = TensorType(shape, "uint8", "NCHW" if len(shape) == 4 else "")
    target = TensorType((1, 3, height, width), "fp32", "NCHW")
    # Rows first, then columns, three operations each; two for the normalisation.
    flops = 3 * (3 * height * chosen["width"] + 3 * height * width + 2 * height * width)
    work = Operator(
        "preprocess",
        "function",
        "fp32",
        (source,),
        (target,),
        flops,
        read_bytes=math.prod(shape),
        write_bytes=4 * 3 * height * width,
    )

    return Model(
        "camera.preprocess",
        (Port("image", source),),
        (Port("camera_input", target),),
        function=partial(_preprocess, height=height, width=width, source=size, colour=colour, fit=fit),
        operators=(work,),
        device="camera-preprocess",
    )


def _preprocess(
    image: np.ndarray[Any, Any], height: int, width: int, source: tuple[int, int], colour: str, fit: str
) -> tuple[np.ndarray[Any, Any], ...]:
    """Return the network's input; `source` is the size that frames have on engines that need to know it in advance."""
    return (resize_normalise(image, height, width, colour, fit),)


def resize_normalise(
    image: np.ndarray[Any, Any],
    height: int = HEIGHT,
    width: int = WIDTH,
    colour: str = FRAMES[0],
    fit: str = FITS[0],
) -> np.ndarray[Any, Any]:
    """Return `image` as fp32 [1, 3, height, width], resized bilinearly with pixel centres at half integers.

    Raises InputError unless it is a frame of the colour format with at least one pixel (`camera_frames`).
    """
    planes = frame_planes(image, colour)
    (top, bottom, y), (left, right, x) = frame_taps(planes.shape[1:], (height, width), fit)
    result = np.empty((1, 3, height, width), np.float32)
    border = np.add.outer(top < 0, left < 0) if fit != FITS[0] else None
    for plane, target, mean, std in zip(planes, result[0], MEAN, STD, strict=True):
        # Pixels are gathered as 8-bit values, so that only those needed are converted.
        target[:] = _blend_columns(plane[top], left, right, x)
        below = _blend_columns(plane[bottom], left, right, x)
        below -= target
        below *= y[:, None]
        target += below
        if border is not None:
            target[border] = PADDING
        target *= 1 / (255 * std)
        target -= mean / std
    return result


def _blend_columns(
    rows: np.ndarray[Any, Any], left: np.ndarray[Any, Any], right: np.ndarray[Any, Any], x: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    near, far = (rows.take(columns, 1).astype(np.float32) for columns in (left, right))
    far -= near
    far *= x[None, :]
    near += far
    return near


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
    build = _Builder()
    previous = build.conv("stem", "camera_input", 3, 64, 7, 2, relu=True)
    build.layers.append(Layer("pool", "max_pool", (previous,), attrs={"kernel": 3, "stride": 2, "padding": 1}))
    previous, width_in = "pool", 64
    for stage, (count, channels) in enumerate(STAGES):
        for index in range(count):
            stride = 2 if stage and index == 0 else 1
            previous = build.block(f"layer{stage + 1}.{index}", previous, width_in, channels, stride)
            width_in = channels
    build.conv("camera_output", previous, width_in, OUTPUTS, 1, 1, relu=False)
    inputs = {"camera_input": TensorType((1, 3, height, width), "fp32", "NCHW")}
    return Network("camera.detector", inputs, tuple(build.layers), ("camera_output",), build.params)


class _Builder:
    """Accumulates layers and parameter shapes."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.params: dict[str, tuple[int, ...]] = {}

    def conv(self, name: str, source: str, inputs: int, outputs: int, kernel: int, stride: int, relu: bool) -> str:
        weights = {"weight": f"{name}.weight", "bias": f"{name}.bias"}
        self.params |= {weights["weight"]: (outputs, inputs, kernel, kernel), weights["bias"]: (outputs,)}
        attrs = {"stride": stride, "padding": kernel // 2}
        self.layers.append(Layer(name, "conv2d", (source,), weights, attrs))
        if relu:
            self.layers.append(Layer(f"{name}.relu", "relu", (name,)))
        return f"{name}.relu" if relu else name

    def block(self, name: str, source: str, inputs: int, outputs: int, stride: int) -> str:
        """Add a basic block: two 3x3 convolutions and the identity, or a 1x1 projection where the shape changes."""
        first = self.conv(f"{name}.conv1", source, inputs, outputs, 3, stride, relu=True)
        second = self.conv(f"{name}.conv2", first, outputs, outputs, 3, 1, relu=False)
        if stride != 1 or inputs != outputs:
            source = self.conv(f"{name}.downsample", source, inputs, outputs, 1, stride, relu=False)
        self.layers += [Layer(f"{name}.add", "add", (second, source)), Layer(name, "relu", (f"{name}.add",))]
        return name
