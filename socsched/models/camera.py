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

from socsched.errors import UsageError
from socsched.graph.network import Layer, Network
from socsched.graph.operators import Operator, TensorType
from socsched.models.camera_image import FITS, FORMATS, LAYOUTS, PRECISIONS, Image, Target, prepare
from socsched.models.compiled import CompiledStages
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
        known = ", ".join(sorted([*_PARAMS, *others]))
        raise UsageError(f"camera: unknown parameter {unknown[0]!r}", f"parameters: {known}")
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
    steps of an RGB image as a stage of its own (`models.camera_steps`).
    """
    if "steps" in params:
        from socsched.models.camera_steps import step

        return step(params["steps"], _checked({name: value for name, value in params.items() if name != "steps"}))
    chosen = _checked({name: value for name, value in params.items() if name not in _CHOICES}, _CHOICES)
    options = {name: _choice(name, params.get(name, values[0])) for name, values in _CHOICES.items()}
    height, width = chosen["input_height"], chosen["input_width"]
    source = _source(options["format"], chosen["height"], chosen["width"])
    target = Target(height, width, **options)
    size = {"fp32": 4, "fp16": 2}[target.precision]
    shape = (1, 3, height, width) if target.layout == "NCHW" else (1, height, width, 3)
    output = TensorType(shape, target.precision, target.layout if target.layout == "NCHW" else "")
    # Rows first, then columns, three operations each; two for the normalisation.
    flops = 3 * (3 * height * chosen["width"] + 3 * height * width + 2 * height * width)
    work = Operator(
        "preprocess",
        "function",
        "fp32",
        (source,),
        (output,),
        flops,
        read_bytes=math.prod(source.shape),
        write_bytes=size * 3 * height * width,
        attrs={
            "input_pixels": chosen["height"] * chosen["width"],
            "output_pixels": height * width,
            "scale_h": height / chosen["height"],
            "scale_w": width / chosen["width"],
        },
    )
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
