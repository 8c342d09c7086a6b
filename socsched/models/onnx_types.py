"""Types of results that ONNX's shape inference leaves open (sizes that depend on values, other domains), and work.

A size that depends on computed values (how many boxes are left, how many elements are not zero) is taken to be the
largest that it can be: plans hold for that, runs stay below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from socsched.models.onnx_graph import Node

VARYING = frozenset(("NonZero", "NonMaxSuppression", "Compress", "Unique", "Slice", "TopK"))
"""Operators whose results may be smaller than stated here."""
Shape = tuple[int, ...]
Result = tuple[Shape, str]
"""Shape and data type, "" for that of the first input."""
Constants = Mapping[str, np.ndarray[Any, Any]]


def bounds(node: Node, shapes: Sequence[Shape], constants: Constants) -> dict[str, Result]:
    """Return the types of a node's results by name, none where no rule knows the operator or an input's shape."""
    rule = _RULES.get((node.domain, node.op)) or _RULES.get(("", node.op) if node.domain == _MICROSOFT else ("", ""))
    if rule is None or any(min(shape, default=1) < 0 for shape in shapes):
        return {}
    try:
        results = rule(node, shapes, constants)
    except (IndexError, KeyError, ValueError, TypeError):  # inputs of other ranks than the operator has
        return {}
    return {name: result for name, result in zip(node.outputs, results, strict=False) if name}


Rule = Callable[["Node", Sequence[Shape], Constants], list[Result]]


def _value(node: Node, place: int, constants: Constants) -> int | None:
    """Return a constant input of one value; None where it is left out or computed."""
    array = constants.get(node.inputs[place]) if place < len(node.inputs) else None
    return int(array.reshape(-1)[0]) if array is not None and array.size else None


def _suppressed(node: Node, shapes: Sequence[Shape], constants: Constants) -> list[Result]:
    """Boxes [batch, boxes, 4] and scores [batch, classes, boxes]: at most so many boxes of each class."""
    batch, boxes, _ = shapes[0]
    most = _value(node, 2, constants)
    return [((max(batch * shapes[1][1] * min(boxes if most is None else most, boxes), 1), 3), "int64")]


def _compressed(node: Node, shapes: Sequence[Shape], constants: Constants) -> list[Result]:
    chosen, shape = constants.get(node.inputs[1]), shapes[0]
    axis = node.attrs.get("axis")
    if axis is None:
        shape, axis = (prod(shape),), 0
    most = int(chosen.sum()) if chosen is not None else min(shapes[1][0], shape[axis])
    axis %= len(shape)
    return [((*shape[:axis], most, *shape[axis + 1 :]), "")]


def _unique(node: Node, shapes: Sequence[Shape], constants: Constants) -> list[Result]:
    axis, shape = node.attrs.get("axis"), shapes[0]
    count = prod(shape) if axis is None else shape[axis]
    return [(shape if axis is not None else (count,), ""), *[((count,), "int64")] * 3]


def _efficient_nms(node: Node, shapes: Sequence[Shape], constants: Constants) -> list[Result]:
    """TensorRT's plugins: boxes and scores of a fixed number of detections, and how many of them count."""
    batch, most = shapes[0][0], int(node.attrs.get("max_output_boxes", node.attrs.get("keepTopK", 100)))
    count = [((batch, 1), "int32"), ((batch, most, 4), ""), ((batch, most), "")]
    kind = "int32" if node.op == "EfficientNMS_TRT" else ""
    return [*count, ((batch, most), kind)]


def _slid(node: Node, shapes: Sequence[Shape], constants: Constants) -> list[Result]:
    """Return the result of a convolution of another domain, whose attributes are those of Conv."""
    data, weight = shapes[0], shapes[{"MMCVModulatedDeformConv2d": 3, "MMCVDeformConv2d": 2}.get(node.op, 1)]
    rank = len(data) - 2
    strides, dilations = (
        list(node.attrs.get(name) or node.attrs.get(short) or [1] * rank)
        for name, short in (("strides", "stride"), ("dilations", "dilation"))
    )
    pads = list(node.attrs.get("pads") or [*(node.attrs.get("padding") or [0] * rank)] * 2)
    sides = [
        (data[2 + n] + pads[n] + pads[n + rank] - dilations[n] * (weight[2 + n] - 1) - 1) // strides[n] + 1
        for n in range(rank)
    ]
    return [((data[0], weight[0], *sides), "")]


def _deformable_attention(node: Node, shapes: Sequence[Shape], constants: Constants) -> list[Result]:
    """Values [batch, keys, heads, width], places [batch, queries, heads, levels, points, 2]."""
    values, places = shapes[0], next(shape for shape in shapes if len(shape) == 6)
    return [((values[0], places[1], values[2] * values[3]), "")]


_MICROSOFT = "com.microsoft"
_ACTIVATIONS = (*("SkipSimplifiedLayerNormalization", "BiasAdd", "RotaryEmbedding", "MultiHeadAttention"),)
_AS_FIRST: Rule = lambda node, shapes, _: [(shapes[0], "")]  # noqa: E731
"""At most the whole of the first input: what a Slice with computed ends leaves, activations of other domains."""
_RULES: dict[tuple[str, str], Rule] = {
    **dict.fromkeys(
        (("", name) for name in ("Gelu", "GroupNormalization", "LayerNormalization", "MeanVarianceNormalization",
                                 "SimplifiedLayerNormalization")), _AS_FIRST,
    ),
    ("", "NonZero"): lambda node, shapes, _: [((len(shapes[0]), max(prod(shapes[0]), 1)), "int64")],
    ("", "NonMaxSuppression"): _suppressed,
    ("", "Compress"): _compressed,
    ("", "Unique"): _unique,
    ("", "Slice"): _AS_FIRST,
    ("", "TopK"): lambda node, shapes, _: [(shapes[0], ""), (shapes[0], "int64")],  # all places
    **dict.fromkeys(((_MICROSOFT, name) for name in _ACTIVATIONS), _AS_FIRST),
    (_MICROSOFT, "Attention"): lambda node, shapes, constants: [((*shapes[0][:2], shapes[1][1] // 3), "")],
    **dict.fromkeys(
        ((domain, name)
         for domain in ("", "TRT", "trt.plugins", "nvinfer1", "com.nvidia")
         for name in ("EfficientNMS_TRT", "BatchedNMS_TRT", "BatchedNMSDynamic_TRT")), _efficient_nms,
    ),
    **dict.fromkeys(
        ((domain, name)
         for domain in ("", "mmcv", "mmdeploy", "TRT", "custom")
         for name in ("MMCVModulatedDeformConv2d", "MMCVDeformConv2d")), _slid,
    ),
    **dict.fromkeys(
        ((domain, name)
         for domain in ("", "mmcv", "mmdeploy", "TRT", "custom", "torchvision")
         for name in ("MultiscaleDeformableAttnPlugin_TRT", "MultiScaleDeformableAttention",
                      "MMCVMultiScaleDeformableAttention")), _deformable_attention,
    ),
}  # fmt: skip


# Work of operators.


def operations(node: Node, shapes: Sequence[Shape], results: Sequence[Shape]) -> int:
    """Return the arithmetic operations of a node: multiply-adds where it has any, else one for each of its values."""
    rule = _WORK.get(node.op)
    try:
        if rule is not None:
            return int(rule(node.attrs, shapes, results[0]))
    except (IndexError, KeyError, ValueError, TypeError):  # inputs of other ranks than the operator has
        pass
    return max(sum(map(prod, shapes)), sum(map(prod, results)))


Work = Callable[[Mapping[str, Any], Sequence[Shape], Shape], float]


def _window_work(place: int) -> Work:
    """Return the work of a convolution whose weight [out, in, ...] is the input at a place."""
    return lambda attrs, shapes, out: 2 * prod(out) * prod(shapes[place][1:])


def _product(left: int, right: int) -> Work:
    def work(attrs: Mapping[str, Any], shapes: Sequence[Shape], out: Shape) -> float:
        turned = attrs.get("transA", 0)
        return 2 * prod(out) * shapes[left][-2 if turned and len(shapes[left]) > 1 else -1]

    return work


def _recurrent(gates: int) -> Work:
    """Return the work of a recurrent layer: every step multiplies the input and the state with every gate's weights."""

    def work(attrs: Mapping[str, Any], shapes: Sequence[Shape], out: Shape) -> float:
        (one, other, width), (directions, rows, _) = shapes[0], shapes[1]
        return 2 * one * other * directions * rows * (width + rows // gates)

    return work


def _einsum(attrs: Mapping[str, Any], shapes: Sequence[Shape], out: Shape) -> float:
    terms = str(attrs["equation"]).replace(" ", "").partition("->")[0].split(",")
    sides: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        sides |= zip(term, shape, strict=True)
    return len(terms) * prod(sides.values())


def _suppression(attrs: Mapping[str, Any], shapes: Sequence[Shape], out: Shape) -> float:
    """Sorting, and a comparison of areas for every box with every one that is kept before it."""
    boxes, classes = shapes[0][1], shapes[1][1]
    kept = max(out[0] // classes, 1)
    return shapes[0][0] * classes * boxes * (boxes.bit_length() + 10 * kept)


def _each(operations: int) -> Work:
    return lambda attrs, shapes, out: operations * prod(out)


_WORK: dict[str, Work] = {
    **dict.fromkeys(("Conv", "ConvInteger", "DeformConv"), _window_work(1)),
    "QLinearConv": _window_work(3),
    "ConvTranspose": lambda attrs, shapes, out: 2 * prod(shapes[0]) * prod(shapes[1][1:]),
    "MMCVModulatedDeformConv2d": _window_work(3),
    **dict.fromkeys(("MatMul", "Gemm", "MatMulInteger"), _product(0, 1)),
    "QLinearMatMul": _product(0, 3),
    "LSTM": _recurrent(4),
    "GRU": _recurrent(3),
    "RNN": _recurrent(1),
    "Einsum": _einsum,
    # queries, keys and values of the same width: two products with every key
    **dict.fromkeys(
        ("Attention", "MultiHeadAttention"), lambda attrs, shapes, out: 4 * prod(shapes[0]) * shapes[1][-2]
    ),
    "NonMaxSuppression": _suppression,
    **dict.fromkeys(
        ("MaxPool", "AveragePool", "LpPool"), lambda attrs, shapes, out: prod(out) * prod(attrs["kernel_shape"])
    ),
    # four products for each point of two dimensions, eight for each of three, and their weights
    "GridSample": lambda attrs, shapes, out: prod(out) << (len(out) - 1),
    "RoiAlign": _each(32),
    "TopK": lambda attrs, shapes, out: prod(shapes[0]) * max(out[-1].bit_length(), 1),
    "DFT": lambda attrs, shapes, out: 5 * prod(out) * max(prod(out).bit_length(), 1),
    **dict.fromkeys(
        ("LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization"), _each(6),
    ),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _each(4)),
    "BatchNormalization": _each(2),
}  # fmt: skip
"""Operator -> its operations, from attributes, shapes of inputs, and the shape of the first result."""
