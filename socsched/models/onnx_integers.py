"""Operators on integers, and those that ONNX Runtime has fused, as operators on floats, node by node.

QLinearConv(x, ..., y) is Conv of dequantised inputs, quantised again, and so are ONNX Runtime's own operators of this
form (domain com.microsoft, docs/ContribOperators.md).  Bytes whose scale is computed at run time, by
DynamicQuantizeLinear, stay whole numbers in floats: products of bytes and sums of 500 of them are exact in fp32.
FusedConv and its like, which its optimiser writes, are taken apart, for engines know their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

_RUNTIME = "com.microsoft"
_MAGIC = 12582912.0
"""1.5 * 2^23: added to a small fp32 number and taken away again, it rounds halves to even."""
_TINY = 1e-30


class _Writer:
    """The nodes that stand for one: values have names below its own."""

    def __init__(self, proto: Any, name: str, ranks: Sequence[int]) -> None:
        self.proto, self.name, self.ranks = proto, name, ranks
        self.nodes: list[Any] = []
        self.attrs = {item.name: item for item in proto.attribute}

    def source(self, index: int) -> str:
        """Return the name of an input, "" for one that is left out."""
        return str(self.proto.input[index]) if index < len(self.proto.input) else ""

    def op(self, op: str, inputs: Sequence[str], output: str = "", **attrs: Any) -> str:
        from onnx import helper

        output = output or f"{self.proto.output[0]}/{len(self.nodes)}"
        named = self.name if not self.nodes else f"{self.name}/{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], named, **attrs))
        return output

    def number(self, value: float) -> str:
        from onnx import helper

        return self.op("Constant", (), value=helper.make_tensor("value", 1, [], [value]))

    def real(self, first: int, **attrs: Any) -> str:
        """Return the numbers of integers whose inputs are value, scale and zero point, from `first` on."""
        return self.op("DequantizeLinear", [self.source(first + place) for place in range(3)], **attrs)

    def bytes(self, value: str, scale: int, output: int = 0) -> None:
        """Quantise the result by the scale and zero point that are inputs from `scale` on."""
        self.op("QuantizeLinear", [value, self.source(scale), self.source(scale + 1)], self.proto.output[output])

    def same(self, op: str, inputs: Sequence[str], without: Sequence[str] = ()) -> str:
        """Return an operator with the attributes of the node."""
        result = self.op(op, inputs)
        self.nodes[-1].attribute.extend(item for name, item in self.attrs.items() if name not in without)
        return result

    def rounded(self, value: str) -> str:
        magic = self.number(_MAGIC)
        return self.op("Sub", [self.op("Add", [value, magic]), magic])


def on_floats(proto: Any, name: str, dynamic: set[str], ranks: Sequence[int] = ()) -> list[Any] | None:
    """Return the nodes that stand for such an operator, None for any other; ValueError for one not understood.

    `dynamic`: bytes with scales that are computed at run time; those of the node are added.  `ranks`: of its inputs.
    """
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    rule = _RULES.get((domain, proto.op_type)) or (_RULES.get(("", proto.op_type)) if domain == _RUNTIME else None)
    if rule is None:
        return None
    writer = _Writer(proto, name, ranks)
    rule(writer, dynamic)
    return writer.nodes


def _conv(w: _Writer, _: set[str]) -> None:
    inputs = [w.real(0), w.real(3, axis=0)]
    if w.source(8):
        step = w.op("Mul", [w.source(1), w.source(4)])
        inputs.append(w.op("DequantizeLinear", [w.source(8), step], axis=0))
    w.bytes(w.same("Conv", inputs, ("channels_last",)), 6)


def _gemm(w: _Writer, _: set[str]) -> None:
    """Write QGemm(A, sA, zA, B, sB, zB, C, sY, zY): C has the scale sA * sB, Y may stay a float."""
    flipped = "transB" in w.attrs and w.attrs["transB"].i
    inputs = [w.real(0), w.real(3, axis=0 if flipped else -1)]
    if w.source(6):
        step = w.op("Mul", [w.source(1), w.source(4)])
        inputs.append(w.op("DequantizeLinear", [w.source(6), step], axis=-1))
    result = w.same("Gemm", inputs)
    w.bytes(result, 7) if w.source(7) else w.op("Identity", [result], w.proto.output[0])


def _unary(op: str, **attrs: Any) -> Callable[[_Writer, set[str]], None]:
    def write(w: _Writer, _: set[str]) -> None:
        if "channels_last" in w.attrs and w.attrs["channels_last"].i:
            raise ValueError("channels_last is not known")
        result = w.same(op, [w.real(0)], ("channels_last", "opset"))
        from onnx import helper

        w.nodes[-1].attribute.extend(helper.make_attribute(name, value) for name, value in attrs.items())
        w.bytes(result, 3)

    return write


def _binary(op: str) -> Callable[[_Writer, set[str]], None]:
    return lambda w, _: w.bytes(w.op(op, [w.real(0), w.real(3)]), 6)


def _concat(w: _Writer, _: set[str]) -> None:
    parts = [w.real(first) for first in range(2, len(w.proto.input), 3)]
    w.bytes(w.same("Concat", parts), 0)


def _dynamic(w: _Writer, dynamic: set[str]) -> None:
    """Write DynamicQuantizeLinear: the range of the values with zero in it, in 255 steps."""
    y, scale, zero = w.proto.output
    x, nothing, last = w.source(0), w.number(0.0), w.number(255.0)
    most = w.op("Max", [w.op("ReduceMax", [x], keepdims=1), nothing])
    least = w.op("Max", [w.op("ReduceMax", [w.op("Neg", [x])], keepdims=1), nothing])  # its magnitude
    w.op("Max", [w.op("Div", [w.op("Add", [most, least]), last]), w.number(_TINY)], scale)
    w.op("Clip", [w.rounded(w.op("Div", [least, scale])), nothing, last], zero)
    stored = w.op("Add", [w.rounded(w.op("Div", [x, scale])), zero])
    w.op("Clip", [stored, nothing, last], y)
    dynamic |= {y, zero}


def _difference(w: _Writer, dynamic: set[str], value: int, zero: int) -> str:
    """Return bytes less their zero point, as floats."""
    from onnx import TensorProto

    name, point = w.source(value), w.source(zero)
    if name not in dynamic:
        name = w.op("Cast", [name], to=TensorProto.FLOAT)
    if not point:
        return name
    return w.op("Sub", [name, point if point in dynamic else w.op("Cast", [point], to=TensorProto.FLOAT)])


def _product(op: str) -> Callable[[_Writer, set[str]], None]:
    """Write ConvInteger and MatMulInteger(A, B, zA, zB), whose result is int32."""

    def write(w: _Writer, dynamic: set[str]) -> None:
        if w.source(0) not in dynamic:
            raise ValueError("integers that are not made by DynamicQuantizeLinear are not read")
        inputs = [_difference(w, dynamic, 0, 2), _difference(w, dynamic, 1, 3)]
        w.op("Identity", [w.same(op, inputs)], w.proto.output[0])
        dynamic.add(w.proto.output[0])

    return write


def _to_float(w: _Writer, dynamic: set[str]) -> None:
    """Write MatMulIntegerToFloat(A, B, sA, sB, zA, zB, bias)."""
    if w.source(0) not in dynamic:
        raise ValueError("integers that are not made by DynamicQuantizeLinear are not read")
    result = w.op("MatMul", [_difference(w, dynamic, 0, 4), _difference(w, dynamic, 1, 5)])
    result = w.op("Mul", [result, w.op("Mul", [w.source(2), w.source(3)])])
    if w.source(6):
        w.op("Add", [result, w.source(6)], w.proto.output[0])
    else:
        w.op("Identity", [result], w.proto.output[0])


def _fused(op: str) -> Callable[[_Writer, set[str]], None]:
    """Write FusedConv and FusedGemm: an operator, an optional addend as FusedConv's fourth input, an activation."""

    def write(w: _Writer, _: set[str]) -> None:
        own = ("activation", "activation_params", "activation_alpha", "activation_beta", "activation_gamma")
        result = w.same(op, [w.source(place) for place in range(3)], own)
        if w.source(3):
            result = w.op("Add", [result, w.source(3)])
        kind = w.attrs["activation"].s.decode() if "activation" in w.attrs else "Identity"
        numbers = list(w.attrs["activation_params"].floats) if "activation_params" in w.attrs else []
        numbers = numbers or [w.attrs[name].f for name in own[2:4] if name in w.attrs]
        if kind == "Clip":
            w.op("Clip", [result, *map(w.number, numbers)], w.proto.output[0])
        elif kind in _ACTIVATIONS and len(numbers) <= len(_ACTIVATIONS[kind]):
            w.op(kind, [result], w.proto.output[0], **dict(zip(_ACTIVATIONS[kind], numbers, strict=False)))
        else:
            raise ValueError(f"the activation {kind} is not known")

    return write


def _fused_matmul(w: _Writer, _: set[str]) -> None:
    """Write FusedMatMul: alpha times a product of operands whose last sides, or first and batch sides, are turned."""
    operands = []
    for place, side in enumerate("AB"):
        turned, batch = (f"trans{kind}{side}" in w.attrs and w.attrs[f"trans{kind}{side}"].i for kind in ("", "Batch"))
        rank, name = w.ranks[place], w.source(place)
        if (turned or batch) and rank < 2:
            raise ValueError("the rank of a turned operand is not known")
        order = [*range(1, rank - 1), 0, rank - 1] if batch else list(range(rank))
        order = [*order[:-2], *order[:-3:-1]] if turned else order
        operands.append(w.op("Transpose", [name], perm=order) if turned or batch else name)
    if "alpha" in w.attrs and w.attrs["alpha"].f != 1.0:
        operands[0] = w.op("Mul", [operands[0], w.number(w.attrs["alpha"].f)])
    w.op("MatMul", operands, w.proto.output[0])


def _gelu(w: _Writer, _: set[str]) -> None:
    """Write Gelu, BiasGelu (both by erf) and FastGelu (by tanh, with an optional bias)."""
    x = w.op("Add", [w.source(0), w.source(1)]) if w.source(1) else w.source(0)
    w.op("Gelu", [x], w.proto.output[0], approximate="tanh" if w.proto.op_type == "FastGelu" else "none")


def _quick_gelu(w: _Writer, _: set[str]) -> None:
    alpha = w.number(w.attrs["alpha"].f if "alpha" in w.attrs else 1.702)
    gate = w.op("Sigmoid", [w.op("Mul", [w.source(0), alpha])])
    w.op("Mul", [w.source(0), gate], w.proto.output[0])


def _bias_softmax(w: _Writer, _: set[str]) -> None:
    axis = w.attrs["axis"].i if "axis" in w.attrs else 1
    if axis not in (-1, w.ranks[0] - 1):
        raise ValueError("a softmax over more than the last side is not known")
    w.op("Softmax", [w.op("Add", [w.source(0), w.source(1)])], w.proto.output[0], axis=-1)


def _skip_norm(w: _Writer, _: set[str]) -> None:
    """Write SkipLayerNormalization(x, skip, gamma, beta, bias); its fourth output is the sum."""
    if any(w.proto.output[1:3]):
        raise ValueError("mean and deviation as results are not known")
    total = w.op("Add", [w.source(0), w.source(1)])
    if w.source(4):
        total = w.op("Add", [total, w.source(4)])
    if len(w.proto.output) > 3 and w.proto.output[3]:
        total = w.op("Identity", [total], w.proto.output[3])
    epsilon = w.attrs["epsilon"].f if "epsilon" in w.attrs else 1e-12
    inputs = [total, *(w.source(place) for place in (2, 3) if w.source(place))]
    w.op("LayerNormalization", inputs, w.proto.output[0], axis=-1, epsilon=epsilon)


_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "Identity": (), "Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
}  # fmt: skip
_RULES: dict[tuple[str, str], Callable[[_Writer, set[str]], None]] = {
    ("", "QLinearConv"): _conv,
    ("", "QLinearMatMul"): lambda w, _: w.bytes(w.op("MatMul", [w.real(0), w.real(3, axis=-1)]), 6),
    ("", "DynamicQuantizeLinear"): _dynamic,
    ("", "ConvInteger"): _product("Conv"),
    ("", "MatMulInteger"): _product("MatMul"),
    (_RUNTIME, "QGemm"): _gemm,
    (_RUNTIME, "QLinearAdd"): _binary("Add"),
    (_RUNTIME, "QLinearMul"): _binary("Mul"),
    (_RUNTIME, "QLinearConcat"): _concat,
    (_RUNTIME, "QLinearSigmoid"): _unary("Sigmoid"),
    (_RUNTIME, "QLinearLeakyRelu"): _unary("LeakyRelu"),
    (_RUNTIME, "QLinearSoftmax"): _unary("Softmax"),
    (_RUNTIME, "QLinearAveragePool"): _unary("AveragePool"),
    (_RUNTIME, "QLinearGlobalAveragePool"): _unary("GlobalAveragePool"),
    (_RUNTIME, "MatMulIntegerToFloat"): _to_float,
    (_RUNTIME, "FusedConv"): _fused("Conv"),
    (_RUNTIME, "FusedGemm"): _fused("Gemm"),
    (_RUNTIME, "FusedMatMul"): _fused_matmul,
    **dict.fromkeys(((_RUNTIME, name) for name in ("Gelu", "BiasGelu", "FastGelu")), _gelu),
    (_RUNTIME, "QuickGelu"): _quick_gelu,
    (_RUNTIME, "BiasSoftmax"): _bias_softmax,
    (_RUNTIME, "SkipLayerNormalization"): _skip_norm,
}
"""Domain and operator -> the nodes that stand for it."""


# TensorRT's plugins for detections, written as ONNX's own operators: what they compute is then known everywhere.
#
# EfficientNMS_TRT and BatchedNMS_TRT (NVIDIA/TensorRT, plugin/efficientNMSPlugin and plugin/batchedNMSPlugin, README of
# each) suppress boxes and leave a fixed number of detections in the order of their scores, with zeros behind the last.


_EFFICIENT, _BATCHED = "EfficientNMS_TRT", ("BatchedNMS_TRT", "BatchedNMSDynamic_TRT")
_OLDEST = 11
"""Opset from which ONNX has all operators that are needed."""
_REDUCED = {"ReduceSum": 13, "ReduceMin": 18}
"""Opset from which the axes of a reduction are an input."""


def without_plugins(model: Any) -> Any:
    """Return a model with the plugins that can be written as other operators written so; the others remain."""
    opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 0)
    nodes = list(model.graph.node)
    if opset < _OLDEST or not any(_is_known(node) for node in nodes):
        return model
    written = type(model)()
    written.CopyFrom(model)
    del written.graph.node[:]
    for place, node in enumerate(nodes):
        if _is_known(node):
            written.graph.node.extend(_Written(node, f"{node.name or node.op_type}.{place}", opset).nodes)
        else:
            written.graph.node.append(node)
    return written


def _is_known(node: Any) -> bool:
    """Return whether a node is such a plugin, in a form that is written out: boxes that all classes share."""
    attrs = {item.name: item for item in node.attribute}
    if len(node.input) != 2 or len(node.output) != 4:
        return False
    if node.op_type == _EFFICIENT:
        return True
    return node.op_type in _BATCHED and "shareLocation" in attrs and attrs["shareLocation"].i == 1


class _Written:
    """The nodes of one plugin."""

    def __init__(self, node: Any, prefix: str, opset: int) -> None:
        from onnx import helper

        self.prefix, self.opset, self.nodes = prefix, opset, list[Any]()
        attrs = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        efficient = node.op_type == _EFFICIENT
        most = int(attrs.get("max_output_boxes" if efficient else "keepTopK", 100))
        agnostic, centres = bool(attrs.get("class_agnostic", 0)), int(attrs.get("box_coding", 0))
        background = int(attrs.get("background_class" if efficient else "backgroundLabelId", -1))
        scores = self.scores(node.input[1], bool(attrs.get("score_activation", 0)), background)
        boxes = self.op("Reshape", node.input[0], self.whole([0, -1, 4]))
        classes = self.size(scores, 2)
        if agnostic:  # every class of a box is a candidate of its own
            apart = self.op("Reshape", boxes, self.whole([0, -1, 1, 4]))
            shape = self.op("Concat", self.whole([1, 1]), classes, self.whole([1]), axis=0)
            boxes = self.op("Reshape", self.op("Expand", apart, shape), self.whole([0, -1, 4]))
            scores = self.op("Reshape", scores, self.whole([0, 1, -1]))
        else:
            scores = self.op("Transpose", scores, perm=[0, 2, 1])
            if "topK" in attrs:
                scores = self.best(scores, int(attrs["topK"]))
        limits = (float(attrs.get("iou_threshold" if efficient else "iouThreshold", 0.5)),
                  float(attrs.get("score_threshold" if efficient else "scoreThreshold", 0.0)))  # fmt: skip
        top, index, count = self.chosen(boxes, scores, most, limits, centres)
        places, valid = self.size(scores, 2), self.op("Cast", self.op("Greater", top, self.real([0.0])), to=1)
        found = self.boxes(boxes, self.op("Mod", index, places), centres, bool(attrs.get("clipBoxes", not efficient)))
        label = self.op("Mod", index, classes) if agnostic else self.op("Div", index, places)
        label = self.op("Mul", self.op("Cast", label, to=1), valid)
        if efficient:
            self.op("Cast", label, to=6, output=node.output[3])
        else:  # what is no detection is of class -1
            self.op("Add", label, self.op("Sub", valid, self.real([1.0])), output=node.output[3])
        self.op("Cast", count, to=6, output=node.output[0])
        self.op("Mul", found, self.op("Reshape", valid, self.whole([0, -1, 1])), output=node.output[1])
        self.op("Identity", top, output=node.output[2])

    def op(self, kind: str, *inputs: str, output: str = "", **attrs: Any) -> str:
        """Add a node; return the name of its first result."""
        from onnx import helper

        name = output or f"{self.prefix}.{len(self.nodes)}"
        outputs = [name, f"{name}.places"] if kind == "TopK" else [name]
        label = f"{self.prefix}.{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, name=label, **attrs))
        return name

    def whole(self, numbers: Sequence[int]) -> str:
        """Return a constant of whole numbers."""
        return self.constant(7, numbers)

    def real(self, numbers: Sequence[float]) -> str:
        """Return a constant of real numbers."""
        return self.constant(1, numbers)

    def constant(self, code: int, numbers: Sequence[float]) -> str:
        from onnx import helper

        return self.op("Constant", value=helper.make_tensor("value", code, [len(numbers)], numbers))

    def size(self, value: str, axis: int) -> str:
        """Return the size of a value along an axis, [1]."""
        return self.op("Gather", self.op("Shape", value), self.whole([axis]))

    def reduced(self, kind: str, value: str, axis: int) -> str:
        """Return a reduction along an axis, which is kept."""
        if self.opset >= _REDUCED[kind]:
            return self.op(kind, value, self.whole([axis]), keepdims=1)
        return self.op(kind, value, axes=[axis], keepdims=1)

    def scores(self, given: str, activated: bool, background: int) -> str:
        """Return the scores [batch, boxes, classes] with zeros for the background."""
        scores = self.op("Sigmoid", given) if activated else given
        if background < 0:
            return scores
        ones = self.op("ConstantOfShape", self.size(scores, 2))
        marked = self.op("ScatterElements", ones, self.whole([background]), self.real([1.0]), axis=0)
        return self.op("Mul", scores, self.op("Sub", self.real([1.0]), marked))

    def best(self, scores: str, most: int) -> str:
        """Return the scores with zeros for all but so many of each class."""
        floats = [self.op("Cast", one, to=1) for one in (self.whole([most]), self.size(scores, 2))]
        kept = self.op("Cast", self.op("Min", *floats), to=7)
        last = self.reduced("ReduceMin", self.op("TopK", scores, kept, axis=-1), 2)
        below = self.op("Cast", self.op("Less", scores, last), to=1)
        return self.op("Mul", scores, self.op("Sub", self.real([1.0]), below))

    def chosen(
        self, boxes: str, scores: str, most: int, limits: tuple[float, float], centres: int
    ) -> tuple[str, str, str]:
        """Return the scores of the detections and their places among all scores [batch, most], and their number."""
        bounds = (self.whole([most]), *(self.real([limit]) for limit in limits))
        kept = self.op("NonMaxSuppression", boxes, scores, *bounds, center_point_box=centres)
        none = self.op("ConstantOfShape", self.op("Shape", scores))
        alone = self.op("ScatterND", none, kept, self.op("GatherND", scores, kept))
        flat = self.op("Reshape", alone, self.whole([0, -1]))
        top = self.op("TopK", self.op("Pad", flat, self.whole([0, 0, 0, most])), self.whole([most]), axis=1)
        counted = self.op("Cast", self.op("Greater", top, self.real([0.0])), to=1)
        return top, f"{top}.places", self.reduced("ReduceSum", counted, 1)

    def boxes(self, boxes: str, places: str, centres: int, clipped: bool) -> str:
        """Return the boxes at places [batch, most] as corners."""
        if centres:
            middle, half = (self.op("Gather", boxes, self.whole(pair), axis=2) for pair in ((0, 1), (2, 3)))
            half = self.op("Mul", half, self.real([0.5]))
            boxes = self.op("Concat", self.op("Sub", middle, half), self.op("Add", middle, half), axis=2)
        if clipped:
            low, high = self.real([0.0]), self.real([1.0])
            boxes = self.op("Min", self.op("Max", boxes, low), high)
        rows = self.op("Expand", self.op("Reshape", places, self.whole([0, -1, 1])), self.whole([1, 1, 4]))
        return self.op("GatherElements", boxes, rows, axis=1)
