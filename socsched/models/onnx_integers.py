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
