"""Well-known networks as ONNX files with seeded dense weights, for benchmarks: the same file goes to every runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from socsched.models.weights import draw_weights
from tests.models.onnx_files import Builder
from tools.bench.gpu_common import pointpillars as dense_pointpillars


def resnet(path: Path, blocks: tuple[int, ...], bottleneck: bool) -> Path:
    """He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, table 1; stride in the 3x3 convolution."""
    b = Builder(50)
    x = b.op("Relu", b.conv("image", 3, 64, 7, 2))
    x = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    cin = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        cout = width * (4 if bottleneck else 1)
        for block in range(count):
            stride = 2 if stage and not block else 1
            y = b.op("Relu", b.conv(x, cin, width, 1)) if bottleneck else x
            y = b.op("Relu", b.conv(y, width if bottleneck else cin, width, 3, stride))
            y = b.conv(y, width, cout, 1 if bottleneck else 3)
            skip = x if stride == 1 and cin == cout else b.conv(x, cin, cout, 1, stride)
            x, cin = b.op("Relu", b.op("Add", y, skip)), cout
    return _classifier(b, x, cin, path)


def mobilenet_v2(path: Path) -> Path:
    """Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018, table 2."""
    b = Builder(2)
    zero, six = b.constant(np.float32(0)), b.constant(np.float32(6))

    def relu6(x: str) -> str:
        return str(b.op("Clip", x, zero, six))

    x, cin = relu6(b.conv("image", 3, 32, 3, 2)), 32
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, cout, count, first in table:
        for block in range(count):
            stride, wide = first if not block else 1, cin * expansion
            y = relu6(b.conv(x, cin, wide, 1)) if expansion > 1 else x
            y = relu6(b.conv(y, wide, wide, 3, stride, groups=wide))
            y = b.conv(y, wide, cout, 1)
            x, cin = (str(b.op("Add", x, y)) if stride == 1 and cin == cout else y), cout
    return _classifier(b, relu6(b.conv(x, 320, 1280, 1)), 1280, path)


def efficientnet_b0(path: Path) -> Path:
    """Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019, table 1.

    Squeeze-and-excitation divides a block's input channels by 4; padding is symmetric as in torchvision.
    """
    b = Builder(8)

    def silu(x: str) -> str:
        return str(b.op("Mul", x, b.op("Sigmoid", x)))

    x, cin = silu(b.conv("image", 3, 32, 3, 2)), 32
    table = (
        *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5)),
        *((6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
    )
    for expansion, cout, count, first, kernel in table:
        for block in range(count):
            stride, wide, few = first if not block else 1, cin * expansion, cin // 4
            y = silu(b.conv(x, cin, wide, 1)) if expansion > 1 else x
            y = silu(b.conv(y, wide, wide, kernel, stride, groups=wide))
            gate = silu(b.conv(b.op("GlobalAveragePool", y), wide, few, 1, norm=False))
            y = b.op("Mul", y, b.op("Sigmoid", b.conv(gate, few, wide, 1, norm=False)))
            y = b.conv(y, wide, cout, 1)
            x, cin = (str(b.op("Add", x, y)) if stride == 1 and cin == cout else y), cout
    return _classifier(b, silu(b.conv(x, 320, 1280, 1)), 1280, path)


def _classifier(b: Builder, x: str, channels: int, path: Path) -> Path:
    x = str(b.op("Flatten", b.op("GlobalAveragePool", x)))
    x = str(b.op("Gemm", x, b.constant(b.normal(1000, channels)), b.constant(b.normal(1000)), transB=1))
    return b.save(path, [1, 3, 224, 224], [x])


def yolo(path: Path) -> Path:
    """A YOLOv5-like detector (v6.0, small) at 320x320: CSP blocks, SPPF, feature pyramid, three plain heads."""
    b = Builder(5)

    def conv(x: str, cin: int, cout: int, k: int = 1, stride: int = 1) -> str:
        y = b.conv(x, cin, cout, k, stride, pads=[2 if k == 6 else k // 2] * 4)
        return str(b.op("Mul", y, b.op("Sigmoid", y)))

    def csp(x: str, cin: int, cout: int, count: int, shortcut: bool = True) -> str:
        half = cout // 2
        left, right = conv(x, cin, half), conv(x, cin, half)
        for _ in range(count):
            y = conv(conv(left, half, half), half, half, 3)
            left = str(b.op("Add", left, y)) if shortcut else y
        return conv(str(b.op("Concat", left, right, axis=1)), cout, cout)

    def up(x: str) -> str:
        scales = b.constant(np.array([1, 1, 2, 2], np.float32))
        modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return str(b.op("Resize", x, "", scales, mode="nearest", **modes))

    x = conv(conv("image", 3, 32, 6, 2), 32, 64, 3, 2)
    p3 = csp(conv(csp(x, 64, 64, 1), 64, 128, 3, 2), 128, 128, 2)
    p4 = csp(conv(p3, 128, 256, 3, 2), 256, 256, 3)
    x = conv(csp(conv(p4, 256, 512, 3, 2), 512, 512, 1), 512, 256)
    pools = [x]
    for _ in range(3):
        pools.append(str(b.op("MaxPool", pools[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4)))
    top = conv(conv(str(b.op("Concat", *pools, axis=1)), 1024, 512), 512, 256)
    middle = conv(csp(str(b.op("Concat", up(top), p4, axis=1)), 512, 256, 1, False), 256, 128)
    low = csp(str(b.op("Concat", up(middle), p3, axis=1)), 256, 128, 1, False)
    mid = csp(str(b.op("Concat", conv(low, 128, 128, 3, 2), middle, axis=1)), 256, 256, 1, False)
    high = csp(str(b.op("Concat", conv(mid, 256, 256, 3, 2), top, axis=1)), 512, 512, 1, False)
    heads = [b.conv(y, c, 255, 1, norm=False) for y, c in ((low, 128), (mid, 256), (high, 512))]
    return b.save(path, [1, 3, 320, 320], heads)


def yolov8n(path: Path) -> Path:
    """A YOLOv8n-like detector at 640x640: C2f blocks, SPPF, feature pyramid, split heads, distances by softmax.

    Channels and repeats are those of Ultralytics' yolov8.yaml with depth 0.33 and width 0.25; boxes are left as
    distances to the four sides, in cells.
    """
    b, bins, classes = Builder(9), 16, 80

    def conv(x: str, cin: int, cout: int, k: int = 1, stride: int = 1) -> str:
        y = b.conv(x, cin, cout, k, stride)
        return str(b.op("Mul", y, b.op("Sigmoid", y)))

    def c2f(x: str, cin: int, cout: int, count: int, shortcut: bool = True) -> str:
        half = cout // 2
        parts = b.op("Split", conv(x, cin, cout), b.constant(np.array([half, half])), outputs=2, axis=1)
        for _ in range(count):
            y = conv(conv(parts[-1], half, half, 3), half, half, 3)
            parts.append(str(b.op("Add", parts[-1], y)) if shortcut else y)
        return conv(str(b.op("Concat", *parts, axis=1)), half * len(parts), cout)

    def up(x: str) -> str:
        scales = b.constant(np.array([1, 1, 2, 2], np.float32))
        modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return str(b.op("Resize", x, "", scales, mode="nearest", **modes))

    def both(x: str, other: str) -> str:
        return str(b.op("Concat", x, other, axis=1))

    def head(x: str, channels: int, cells: int) -> list[str]:
        box = b.conv(conv(conv(x, channels, 64, 3), 64, 64, 3), 64, 4 * bins, 1, norm=False)
        score = b.conv(conv(conv(x, channels, 80, 3), 80, 80, 3), 80, classes, 1, norm=False)
        shapes = (b.constant(np.array([1, n, cells * cells])) for n in (4 * bins, classes))
        return [str(b.op("Reshape", y, shape)) for y, shape in zip((box, score), shapes, strict=True)]

    x = c2f(conv(conv("image", 3, 16, 3, 2), 16, 32, 3, 2), 32, 32, 1)
    p3 = c2f(conv(x, 32, 64, 3, 2), 64, 64, 2)
    p4 = c2f(conv(p3, 64, 128, 3, 2), 128, 128, 2)
    x = conv(c2f(conv(p4, 128, 256, 3, 2), 256, 256, 1), 256, 128)
    pools = [x]
    for _ in range(3):
        pools.append(str(b.op("MaxPool", pools[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4)))
    p5 = conv(str(b.op("Concat", *pools, axis=1)), 512, 256)
    middle = c2f(both(up(p5), p4), 384, 128, 1, False)
    low = c2f(both(up(middle), p3), 192, 64, 1, False)
    mid = c2f(both(conv(low, 64, 64, 3, 2), middle), 192, 128, 1, False)
    high = c2f(both(conv(mid, 128, 128, 3, 2), p5), 384, 256, 1, False)
    found = [head(low, 64, 80), head(mid, 128, 40), head(high, 256, 20)]
    boxes, scores = (str(b.op("Concat", *parts, axis=2)) for parts in zip(*found, strict=True))
    shape = b.constant(np.array([1, 4, bins, 8400]))
    shares = b.op("Softmax", b.op("Transpose", b.op("Reshape", boxes, shape), perm=[0, 2, 1, 3]), axis=1)
    weight = b.constant(np.arange(bins, dtype=np.float32).reshape(1, bins, 1, 1))
    sides = b.op("Reshape", b.op("Conv", shares, weight), b.constant(np.array([1, 4, 8400])))
    return b.save(path, [1, 3, 640, 640], [str(sides), str(b.op("Sigmoid", scores))])


def pointpillars(path: Path) -> Path:
    """Backbone, neck and heads of PointPillars on its grid of 496 x 432 cells, with the weights that stages draw."""
    network = dense_pointpillars()
    weights = draw_weights(network, 0)
    ((source, kind),) = network.inputs.items()
    graph = helper.make_graph(
        [_node(layer, weights) for layer in network.layers],
        "network",
        [helper.make_tensor_value_info(source, TensorProto.FLOAT, kind.shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in network.outputs],
        [numpy_helper.from_array(array, key) for key, array in weights.items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def _node(layer: Any, weights: dict[str, np.ndarray[Any, Any]]) -> Any:
    """Return the ONNX node of a layer of these networks."""
    inputs, attrs = [*layer.inputs, *layer.weights.values()], {}
    if layer.op in ("conv2d", "conv2d_transpose"):
        kernel = weights[layer.weights["weight"]].shape[2:]
        attrs = {"kernel_shape": kernel, "strides": [layer.attrs["stride"]] * 2}
        attrs["pads"] = [layer.attrs.get("padding", 0)] * 4
    elif layer.op == "concat":
        attrs = {"axis": layer.attrs["axis"]}
    name = {"conv2d": "Conv", "conv2d_transpose": "ConvTranspose", "relu": "Relu", "concat": "Concat"}[layer.op]
    return helper.make_node(name, inputs, [layer.name], **attrs)


NETWORKS: dict[str, Callable[[Path], Path]] = {
    "pointpillars": pointpillars,
    "resnet18": lambda path: resnet(path, (2, 2, 2, 2), False),
    "resnet50": lambda path: resnet(path, (3, 4, 6, 3), True),
    "mobilenetv2": mobilenet_v2,
    "efficientnetb0": efficientnet_b0,
    "yolo": yolo,
    "yolov8n": yolov8n,
}
