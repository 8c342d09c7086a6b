"""Small networks of the usual families as ONNX files, with seeded weights; the oracle runs the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """Nodes and weights as they accumulate; every method returns the name of its output."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def constant(self, array: np.ndarray[Any, Any]) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=f"{kind}_{len(self.nodes)}", **attrs))
        return names[0] if outputs == 1 else names

    def normal(self, *shape: int) -> np.ndarray[Any, Any]:
        fan_in = int(np.prod(shape[1:])) or 1
        return (self.random.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)

    def conv(
        self, x: str, cin: int, cout: int, k: int = 3, stride: int = 1, groups: int = 1, norm: bool = True, **attrs: Any
    ) -> str:
        attrs = {"pads": [k // 2] * 4, "strides": [stride] * 2, "group": groups, **attrs}
        weight = self.constant(self.normal(cout, cin // groups, k, k))
        if not norm:
            return str(self.op("Conv", x, weight, self.constant(self.normal(cout)), **attrs))
        x = self.op("Conv", x, weight, **attrs)
        statistics = [
            self.random.uniform(0.5, 1.5, cout),
            self.random.normal(0, 0.1, cout),
            self.random.normal(0, 0.1, cout),
        ]
        statistics.append(self.random.uniform(0.5, 1.5, cout))
        return str(
            self.op("BatchNormalization", x, *(self.constant(s.astype(np.float32)) for s in statistics), epsilon=1e-5)
        )

    def save(self, path: Path, shape: list[Any], outputs: list[str], name: str = "image") -> Path:
        infos = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in outputs]
        source = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "net", [source], infos, self.weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
        return path


def resnet(path: Path) -> Path:
    """Stem, max pool, two residual stages, global pool, classifier."""
    b = Builder(1)
    x = b.op("Relu", b.conv("image", 3, 32, 7, 2))
    x = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for cin, cout, stride in ((32, 32, 1), (32, 64, 2)):
        y = b.conv(b.op("Relu", b.conv(x, cin, cout, 3, stride)), cout, cout)
        skip = x if stride == 1 else b.conv(x, cin, cout, 1, stride)
        x = b.op("Relu", b.op("Add", y, skip))
    x = b.op("Flatten", b.op("GlobalAveragePool", x))
    x = b.op("Gemm", x, b.constant(b.normal(10, 64)), b.constant(b.normal(10)), transB=1)
    return b.save(path, ["N", 3, 64, 96], [b.op("Softmax", x, axis=-1)])


def trunk(path: Path) -> Path:
    """Convolutions, pooling and residual additions only: what the own rules cover."""
    b = Builder(2)
    x = b.op("Relu", b.conv("image", 3, 32, 3, 2))
    x = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = b.conv(b.op("Relu", b.conv(x, 32, 32)), 32, 32)
    return b.save(path, [1, 3, 64, 96], [b.op("Relu", b.op("Add", y, x))])


def mobilenet(path: Path) -> Path:
    """Inverted residuals: depthwise convolutions, ReLU6, hard swish, squeeze and excitation."""
    b = Builder(3)
    zero, six = b.constant(np.float32(0)), b.constant(np.float32(6))
    x = b.op("Clip", b.conv("image", 3, 16, 3, 2), zero, six)
    for cin, cout, stride in ((16, 24, 2), (24, 24, 1)):
        y = b.op("Clip", b.conv(x, cin, 3 * cin, 1), zero, six)
        y = b.op("HardSwish", b.conv(y, 3 * cin, 3 * cin, 3, stride, groups=3 * cin))
        gate = b.op("GlobalAveragePool", y)
        gate = b.op("HardSigmoid", b.conv(gate, 3 * cin, 3 * cin, 1, norm=False), alpha=0.2, beta=0.5)
        y = b.conv(b.op("Mul", y, gate), 3 * cin, cout, 1)
        x = b.op("Add", x, y) if cin == cout and stride == 1 else y
    x = b.op("ReduceMean", x, axes=[2, 3], keepdims=0)
    return b.save(path, [1, 3, 64, 64], [b.op("MatMul", x, b.constant(b.normal(24, 7)))])


def yolo(path: Path) -> Path:
    """SiLU, split, spatial pyramid pooling, upsampling, concatenation, a box head with softmax over bins."""
    b = Builder(4)

    def silu(x: str) -> str:
        return str(b.op("Mul", x, b.op("Sigmoid", x)))

    x = silu(b.conv("image", 3, 16, 6, 2, pads=[2] * 4))
    deep = silu(b.conv(x, 16, 32, 3, 2))
    first, second = b.op("Split", deep, b.constant(np.array([12, 20])), axis=1, outputs=2)
    deep = b.op("Concat", first, silu(b.conv(second, 20, 20)), second, axis=1)
    pools = [deep, *(b.op("MaxPool", deep, kernel_shape=[k] * 2, strides=[1, 1], pads=[k // 2] * 4) for k in (5, 9))]
    deep = silu(b.conv(b.op("Concat", *pools, axis=1), 156, 32, 1))
    scales = b.constant(np.array([1, 1, 2, 2], np.float32))
    up = b.op(
        "Resize", deep, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    both = b.op("Concat", up, x, axis=1)
    shifted = b.op("Slice", both, *(b.constant(np.array(v)) for v in ([1, 0], [2**31, 30], [2, 3], [1, 2])))
    box = b.op("Reshape", b.conv(both, 48, 64, 1, norm=False), b.constant(np.array([1, 4, 16, -1])))
    bins = b.op("Softmax", b.op("Transpose", box, perm=[0, 2, 1, 3]), axis=1)
    smooth = b.op(
        "Resize",
        both,
        "",
        b.constant(np.array([1, 1, 2, 2], np.float32)),
        mode="linear",
        coordinate_transformation_mode="half_pixel",
    )
    return b.save(path, [1, 3, 64, 64], [bins, b.op("LeakyRelu", shifted, alpha=0.1), b.op("Tanh", smooth)])


def odd(path: Path) -> Path:
    """Dilation, uneven padding, transposed convolution, average pooling, constants on either side."""
    b = Builder(5)
    x = b.op("Relu", b.conv("image", 4, 8, 3, pads=[2] * 4, dilations=[2, 2]))
    x = b.conv(x, 8, 8, 3, 2, pads=[0, 0, 1, 1])
    x = b.op("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, count_include_pad=1)
    x = b.op("ConvTranspose", x, b.constant(b.normal(8, 6, 2, 2)), b.constant(b.normal(6)), strides=[2, 2])
    x = b.op("Sub", b.constant(np.float32(1)), b.op("Div", x, b.constant(np.full((1, 6, 1, 1), 3, np.float32))))
    x = b.op("Pad", x, b.constant(np.array([0, 0, 1, 0, 0, 0, 0, 2])), b.constant(np.float32(0.5)))
    return b.save(path, [1, 4, 31, 37], [x, b.op("ReduceMax", x, axes=[1], keepdims=1)])


def pillar_net(path: Path) -> Path:
    """Pillar Feature Net as older exporters write it: IR 3, where every weight is an input of the graph too."""
    b = Builder(6)
    x = b.op("Relu", b.conv("features", 10, 64, 1))
    for window in (4, 4, 2):
        x = b.op("MaxPool", x, kernel_shape=[1, window], strides=[1, window], pads=[0] * 4)
    sources = [helper.make_tensor_value_info("features", TensorProto.FLOAT, [1, 10, 120, 32])]
    sources += [helper.make_tensor_value_info(w.name, TensorProto.FLOAT, list(w.dims)) for w in b.weights]
    output = helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, 64, 120, 1])
    graph = helper.make_graph(b.nodes, "pfn", sources, [output], b.weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=3), str(path))
    return path


def transformer(path: Path) -> Path:
    """A block of a vision transformer as plain exports write it: shapes computed, GELU with Erf, norms old and new."""
    b = Builder(7)

    def norm(x: str) -> str:
        scale, shift = (b.constant(b.random.uniform(0.5, 1.5, 32).astype(np.float32)) for _ in range(2))
        return str(b.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-6))

    def spelt_out(x: str) -> str:
        centred = b.op("Sub", x, b.op("ReduceMean", x, axes=[-1]))
        spread = b.op("ReduceMean", b.op("Pow", centred, b.constant(np.float32(2))), axes=[-1])
        moved = b.op("Add", spread, b.constant(np.float32(1e-6)))
        scale = b.constant(b.random.uniform(0.5, 1.5, 32).astype(np.float32))
        return str(b.op("Mul", b.op("Div", centred, b.op("Pow", moved, b.constant(np.float32(0.5)))), scale))

    def linear(x: str, inputs: int, outputs: int) -> str:
        return str(b.op("Add", b.op("MatMul", x, b.constant(b.normal(inputs, outputs))), b.constant(b.normal(outputs))))

    x = b.conv("image", 3, 32, 4, 4, pads=[0] * 4, norm=False)
    first, axis = b.constant(np.array(0)), b.constant(np.array([0]))
    batch = b.op("Unsqueeze", b.op("Gather", b.op("Shape", x), first, axis=0), axis)
    x = b.op("Reshape", x, b.op("Concat", batch, b.constant(np.array([32, -1])), axis=0))
    x = b.op("Transpose", x, perm=[0, 2, 1])
    sizes = b.op("Concat", batch, *(b.constant(np.array([n])) for n in (24, 3, 4, 8)), axis=0)
    heads = b.op("Transpose", b.op("Reshape", linear(norm(x), 32, 96), sizes), perm=[2, 0, 3, 1, 4])
    query, key, value = (b.op("Gather", heads, b.constant(np.array(i)), axis=0) for i in range(3))
    scores = b.op("MatMul", query, b.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = b.op("Softmax", b.op("Div", scores, b.constant(np.float32(8**0.5))), axis=-1)
    mixed = b.op("Transpose", b.op("MatMul", scores, value), perm=[0, 2, 1, 3])
    x = b.op("Add", x, b.op("Reshape", mixed, b.constant(np.array([0, -1, 32]))))
    y = linear(spelt_out(x), 32, 64)
    gate = b.op("Add", b.op("Erf", b.op("Div", y, b.constant(np.float32(2**0.5)))), b.constant(np.float32(1)))
    y = b.op("Mul", b.op("Mul", y, gate), b.constant(np.float32(0.5)))
    x = norm(b.op("Add", x, linear(y, 64, 32)))
    some = b.op("Gather", x, b.constant(np.array([[5, 2], [-1, 7]])), axis=1)
    return b.save(path, ["n", 3, 16, 24], [x, some])


def padded(path: Path) -> Path:
    """TensorFlow's padding: more at the end where a size asks for an odd number, or more at the beginning."""
    b = Builder(8)

    def conv(x: str, inputs: int, outputs: int, groups: int = 1, side: str = "SAME_UPPER", stride: int = 2) -> str:
        weight = b.constant(b.normal(outputs, inputs // groups, 3, 3))
        return str(b.op("Conv", x, weight, auto_pad=side, strides=[stride] * 2, group=groups))

    x = b.op("Relu", conv("image", 3, 16))
    x = b.op("Clip", conv(x, 16, 16, 16), b.constant(np.float32(0)), b.constant(np.float32(6)))
    x = b.op("MaxPool", conv(x, 16, 16, stride=1), kernel_shape=[2, 2], auto_pad="SAME_LOWER", strides=[1, 1])
    x = b.op("AveragePool", x, kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2])
    return b.save(path, [1, 3, 42, 60], [conv(x, 16, 8, side="SAME_LOWER")])


def odd_activations(path: Path) -> Path:
    """Elu, Softplus, Log, Abs, group and instance norms, a transposed convolution with output padding."""
    b = Builder(10)
    x = b.op("Elu", b.conv("image", 3, 8, 3, 2), alpha=0.8)
    x = b.op("Log", b.op("Add", b.op("Abs", b.op("Softplus", x)), b.constant(np.float32(0.1))))
    scale, shift = (b.constant(b.random.uniform(0.5, 1.5, 8).astype(np.float32)) for _ in range(2))
    x = b.op("InstanceNormalization", x, scale, shift, epsilon=1e-3)
    weight = b.constant(b.normal(8, 4, 3, 3))
    x = b.op("ConvTranspose", x, weight, strides=[2, 2], pads=[1] * 4, output_padding=[1, 1])
    x = b.op("Neg", b.op("Reciprocal", b.op("Add", b.op("Abs", x), b.constant(np.float32(1)))))
    return b.save(path, [1, 3, 24, 32], [x])


def composed(path: Path) -> Path:
    """Operators that become several layers: moved pixels, PRelu, LRN, norms, Einsum, convolutions of rows."""
    b = Builder(11)
    x = b.op("PRelu", b.conv("image", 4, 8, 3), b.constant(np.linspace(-0.5, 0.5, 8, dtype=np.float32)[:, None, None]))
    x = b.op("DepthToSpace", b.op("SpaceToDepth", x, blocksize=2), blocksize=2, mode="CRD")
    x = b.op("DepthToSpace", b.conv(b.op("LRN", x, size=5, alpha=0.3), 8, 16, 3), blocksize=2)
    x = b.op("PRelu", b.conv(x, 4, 8, 3, 4), b.constant(np.full((1, 1, 1), 0.2, np.float32)))
    soft = b.op("Mul", x, b.op("Tanh", b.op("Softplus", x)))
    shape = b.constant(np.array([2, 4, 8 * 12]))
    queries, keys = b.op("Reshape", soft, shape), b.op("Reshape", b.op("LpNormalization", x, axis=1, p=2), shape)
    scores = b.op("Softmax", b.op("Einsum", queries, keys, equation="hcq,hck->hqk"), axis=-1)
    seen = b.op("Einsum", scores, keys, equation="hqk,hck->qhc")
    line = b.op("Reshape", seen, b.constant(np.array([1, 8, 8 * 12])))
    line = b.op("Conv", line, b.constant(b.normal(8, 4, 3)), b.constant(b.normal(8)), pads=[2, 1], strides=[2], group=2)
    length = b.op("ReduceL2", line, axes=[2], keepdims=1)
    repeated = b.op("Expand", b.op("Reshape", length, b.constant(np.array([1, 8, 1]))), b.constant(np.array([1, 8, 5])))
    return b.save(path, [1, 4, 16, 24], [repeated, line])


def same_padding(path: Path) -> Path:
    """TensorFlow's padding as PyTorch exports compute it from shapes, and a weight that two layers share."""
    b = Builder(12)

    def before(x: str, place: int) -> str:
        one = b.constant(np.float32(1))
        size = b.op("Cast", b.op("Gather", b.op("Shape", x), b.constant(np.int64(place)), axis=0), to=1)
        outputs = b.op("Ceil", b.op("Div", size, b.constant(np.float32(2))))
        reach = b.op(
            "Add", b.op("Mul", b.op("Sub", outputs, one), b.constant(np.float32(2))), b.constant(np.float32(3))
        )
        more = b.op("Clip", b.op("Sub", reach, size), b.constant(np.float32(0)))
        return str(b.op("Unsqueeze", b.op("Cast", more, to=7), b.constant(np.array([0]))))

    zeros, weight = b.constant(np.zeros(2, np.int64)), b.constant(b.normal(4, 4, 3, 3))
    x = "image"
    for kernel in (weight, b.op("Identity", weight)):
        pads = b.op("Concat", zeros, zeros, zeros, before(x, 2), before(x, 3), axis=0)
        x = b.op("Conv", b.op("Pad", x, pads), kernel, strides=[2, 2])
    return b.save(path, [1, 4, 17, 24], [x])


FILES = {
    "resnet": resnet, "trunk": trunk, "mobilenet": mobilenet, "yolo": yolo, "odd": odd, "transformer": transformer,
    "padded": padded, "odd_activations": odd_activations, "composed": composed, "same_padding": same_padding,
}  # fmt: skip
