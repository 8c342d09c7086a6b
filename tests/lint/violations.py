"""Networks of one operator outside some accelerator's rules, and the rule files that refuse it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.models.onnx_files import Builder

PLATFORMS = {
    "nvdla-v1": "jetson-agx-xavier",
    "nvdla-v2": "jetson-agx-orin-64gb",
    "hexagon-htp-v68-integer": "qcs6490",
    "hexagon-htp-v73": "qcs8550",
    "hexagon-v66-hta": "qrb5165",
    "rknn-rk3588": "rk3588",
}
HTP = frozenset({"hexagon-htp-v68-integer", "hexagon-htp-v73"})
DLA, RKNN, HTA = frozenset({"nvdla-v1", "nvdla-v2"}), frozenset({"rknn-rk3588"}), frozenset({"hexagon-v66-hta"})


@dataclass(frozen=True)
class Violation:
    """A network after a convolution that all accelerators run, the operator reported, and the rules that refuse it."""

    name: str
    operator: str
    refused: frozenset[str]
    build: Callable[[Builder, str], Any]
    channels: int = 8
    size: int = 32

    def save(self, folder: Path) -> Path:
        builder = Builder()
        x = builder.conv("image", 3, self.channels)
        output = self.build(builder, x)
        return builder.save(folder / f"{self.name}.onnx", [1, 3, self.size, self.size], [output])


def conv(k: int = 3, cout: int = 8, **attrs: Any) -> Callable[[Builder, str], Any]:
    return lambda b, x: b.conv(x, 8, cout, k, norm=False, **attrs)


def deconv(k: int, stride: int, pad: int = 0, groups: int = 1, dilation: int = 1) -> Callable[[Builder, str], Any]:
    def build(b: Builder, x: str) -> Any:
        weight = b.constant(b.normal(8, 8 // groups, k, k))
        shape = {"pads": [pad] * 4, "strides": [stride] * 2, "group": groups, "dilations": [dilation] * 2}
        return b.op("ConvTranspose", x, weight, **shape)

    return build


def pool(kind: str, k: int, stride: int = 1, pad: int = 0) -> Callable[[Builder, str], Any]:
    return lambda b, x: b.op(kind, x, kernel_shape=[k, k], strides=[stride] * 2, pads=[pad] * 4)


def unary(kind: str, **attrs: Any) -> Callable[[Builder, str], Any]:
    return lambda b, x: b.op(kind, x, **attrs)


def resize(factor: float, mode: str) -> Callable[[Builder, str], Any]:
    def build(b: Builder, x: str) -> Any:
        sizes = b.constant(np.array([1, 1, factor, factor], np.float32))
        where = "half_pixel" if mode == "linear" else "asymmetric"
        return b.op("Resize", x, "", sizes, mode=mode, coordinate_transformation_mode=where, nearest_mode="floor")

    return build


def reduced(kind: str, axes: list[int]) -> Callable[[Builder, str], Any]:
    if kind == "ReduceSum":  # its axes are an input from opset 13 on
        return lambda b, x: b.op(kind, x, b.constant(np.array(axes, np.int64)), keepdims=1)
    return lambda b, x: b.op(kind, x, axes=axes, keepdims=1)


def squared(b: Builder, x: str) -> Any:
    return b.op("Sqrt", b.op("Relu", x))


def divided(b: Builder, x: str) -> Any:
    return b.op("Div", x, b.op("Sigmoid", x))


def sliced(axis: int, step: int) -> Callable[[Builder, str], Any]:
    return lambda b, x: b.op("Slice", x, *(b.constant(np.array([value])) for value in (0, 32, axis, step)))


def padded(b: Builder, x: str) -> Any:
    return b.op("Pad", x, b.constant(np.array([0, 0, 0, 0, 0, 8, 0, 0])))


VIOLATIONS = (
    Violation("conv-kernel-33", "conv2d", DLA, conv(33)),
    Violation("conv-stride-9", "conv2d", DLA, conv(9, strides=[9, 9])),
    Violation("conv-dilation-33", "conv2d", DLA, conv(2, dilations=[33, 33], pads=[1] * 4), size=64),
    Violation("conv-pad-3-of-3", "conv2d", DLA, conv(3, pads=[3] * 4)),
    Violation("conv-outputs-8200", "conv2d", DLA, conv(1, cout=8200), size=8),
    Violation("conv-stride-32", "conv2d", DLA | RKNN, conv(33, strides=[32, 32], pads=[8] * 4), size=64),
    Violation("deconv-stride-3", "conv2d_transpose", RKNN, deconv(3, 3)),
    Violation("deconv-pad-1", "conv2d_transpose", DLA, deconv(4, 2, pad=1)),
    Violation("deconv-groups", "conv2d_transpose", DLA, deconv(2, 2, groups=8)),
    Violation("deconv-kernel-33", "conv2d_transpose", DLA, deconv(33, 2)),
    Violation("deconv-dilation", "conv2d_transpose", DLA, deconv(3, 2, dilation=2)),
    Violation("max-pool-9", "max_pool", DLA, pool("MaxPool", 9)),
    Violation("max-pool-stride-17", "max_pool", DLA, pool("MaxPool", 8, 17), size=64),
    Violation("average-pool-9", "avg_pool", DLA, pool("AveragePool", 9)),
    Violation("global-average-16", "global_avg_pool", DLA, unary("GlobalAveragePool"), size=16),
    Violation("global-average-32", "global_avg_pool", DLA, unary("GlobalAveragePool")),
    Violation("mean-of-channels", "reduce_mean", DLA, reduced("ReduceMean", [1])),
    Violation("sum-of-pixels", "reduce_sum", DLA | HTA, reduced("ReduceSum", [2, 3])),
    Violation("maximum-of-pixels", "reduce_max", DLA | HTA | RKNN, reduced("ReduceMax", [2, 3])),
    Violation("bilinear-8", "resize2d", DLA, resize(8, "linear"), size=8),
    Violation("bilinear-16", "resize2d", DLA, resize(16, "linear"), size=8),
    Violation("nearest-40", "resize2d", DLA, resize(40, "nearest"), size=4),
    Violation("nearest-half", "resize2d", DLA, resize(0.5, "nearest")),
    Violation("softmax-of-channels", "softmax", DLA, unary("Softmax", axis=1)),
    Violation("exponential", "exp", DLA | HTA | RKNN, unary("Exp")),
    Violation("square-root", "sqrt", DLA | HTA | RKNN, squared),
    Violation("error-function", "erf", DLA | HTA | HTP | RKNN, unary("Erf")),
    Violation("quotient", "divide", DLA | HTA | RKNN, divided),
    Violation("hard-swish", "hard_swish", DLA, unary("HardSwish")),
    Violation("hard-sigmoid", "hard_sigmoid", DLA, unary("HardSigmoid")),
    Violation("elu", "elu", DLA | HTA, unary("Elu")),
    Violation("softplus", "softplus", DLA | HTA | RKNN, unary("Softplus")),
    Violation("product-of-activations", "matmul", DLA | HTA, lambda b, x: b.op("MatMul", x, b.op("Relu", x))),
    Violation("power", "pow", DLA, lambda b, x: b.op("Pow", x, b.constant(np.float32(2)))),
    Violation("bounded-by-128", "clip", DLA, lambda b, x: b.op("Clip", x, *map(b.constant, np.float32([0, 128])))),
    Violation("bounded-from-minus-1", "clip", DLA, lambda b, x: b.op("Clip", x, *map(b.constant, np.float32([-1, 6])))),
    Violation("nearest-3-halves", "resize2d", DLA, resize(1.5, "nearest")),
    Violation("folded-rows", "reshape", DLA, lambda b, x: b.op("Reshape", x, b.constant(np.array([1, 8, -1])))),
    Violation("every-second-row", "slice", DLA | RKNN, sliced(axis=2, step=2)),
    Violation("one-channel-added", "add", frozenset(), lambda b, x: b.op("Add", x, b.constant(b.normal(8, 1, 1)))),
    Violation("rows-multiplied", "multiply", RKNN, lambda b, x: b.op("Mul", x, b.constant(b.normal(32, 1)))),
    Violation("padded-channels", "pad", DLA | RKNN, padded),
    Violation("padding-left-out", "avg_pool", RKNN, pool("AveragePool", 3, 1, 1)),
)
