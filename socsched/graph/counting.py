"""Operations and bytes of fused operators, counted as the layer tables of published networks count them.

Counted: multiply-adds (two operations each) of convolutions, deconvolutions and dense layers; one operation per element
and window position of additions, pooling and maxima that stand alone.  Bias, ReLU and anything else fused are not
counted.  Traffic: each fused operator reads its inputs and weights once and writes its output once.
"""

from __future__ import annotations

from math import prod

from socsched.errors import CompileError
from socsched.graph.facts import Facts
from socsched.graph.fusion import Graph, Group
from socsched.graph.operators import DTYPE_BYTES, Operator, TensorType

ELEMENTWISE = frozenset(
    ("add", "subtract", "multiply", "divide", "maximum", "minimum", "sigmoid", "tanh", "exp", "sqrt", "erf", "clip",
     "leaky_relu", "log", "abs", "cast")
)  # fmt: skip
"""Operators with one operation per element of their result."""
_UNTYPED = ("uint8", "int32", "int64", "bool")


def at_precision(tensor: TensorType, precision: str) -> TensorType:
    """Return a floating-point tensor in `precision`; indices and images keep their type."""
    return tensor if tensor.dtype in _UNTYPED else TensorType(tensor.shape, precision, tensor.layout)


def at_nominal(tensor: TensorType, nominal: int) -> TensorType:
    """Return a tensor with its varying dimension set to `nominal`."""
    return TensorType(tuple(nominal if size < 0 else size for size in tensor.shape), tensor.dtype, tensor.layout)


def operators(graph: Graph, precision: str, nominal: int = 0) -> tuple[Operator, ...]:
    """Return the operators of `graph` with its varying dimension set to `nominal`."""
    analysis = _Analysis(graph, precision, nominal)
    return tuple(analysis.operator(group) for group in graph.groups)


class _Analysis:
    def __init__(self, graph: Graph, precision: str, nominal: int) -> None:
        self.graph, self.precision, self.nominal = graph, precision, nominal
        self.facts = Facts(graph)
        self.pointwise: set[str] = set()

    def type(self, value: str) -> TensorType:
        tensor = self.graph.values[value]
        return at_precision(at_nominal(tensor, self.nominal), self.precision)

    def operator(self, group: Group) -> Operator:
        inputs, output = tuple(map(self.type, group.inputs)), self.type(group.output)
        reads, writes = sum(map(_size, inputs)), _size(output)
        if self.graph.in_place(group) or group.kind == "reshape":
            reads = writes = 0
        elif self.shares_input(group):
            reads = 0
        params = self.graph.network.params
        weight_bytes = sum(prod(params[name]) for name in group.weights.values()) * DTYPE_BYTES[self.precision]
        if group.kind == "gather":  # of a table only the rows that are looked up
            reads, weight_bytes = (writes, 0) if not weight_bytes else (reads, writes)
        flops = _flops(
            group, inputs, output, [params[name] for role, name in group.weights.items() if role == "weight"]
        )
        attrs = {**self.facts.of(group, inputs, output), **group.attrs, "relu": int(group.relu)}
        layer = self.facts.layers.get(group.layer)
        return Operator(
            group.name,
            group.kind,
            self.precision,
            inputs,
            (output,),
            flops,
            reads,
            writes,
            weight_bytes,
            attrs,
            whole=group.whole,
            node=layer.node if layer is not None else "",
        )

    def shares_input(self, group: Group) -> bool:
        """Return whether the input is already charged: 1x1 convolutions of one input (a head's) run as one kernel."""
        if group.kind != "conv2d" or group.attrs["kernel_h"] != 1 or group.attrs["stride_h"] != 1:
            return False
        seen = group.inputs[0] in self.pointwise
        self.pointwise.add(group.inputs[0])
        return seen


def _size(tensor: TensorType) -> int:
    return prod(tensor.shape) * DTYPE_BYTES[tensor.dtype]


def _flops(group: Group, inputs: tuple[TensorType, ...], output: TensorType, weights: list[tuple[int, ...]]) -> int:
    elements = prod(output.shape)
    match group.kind:
        case "conv2d":
            return 2 * elements * prod(weights[0][1:])
        case "conv2d_transpose":
            # Every input element is multiplied for every output channel and tap, regardless of the stride.
            return 2 * prod(inputs[0].shape) * prod(weights[0][1:])
        case "dense":
            return 2 * elements * weights[0][1]
        case "pillar_features" if weights:
            return 2 * int(group.attrs["window"]) * elements * weights[0][1]
        case "pillar_features":
            return 8 * prod(inputs[0].shape[:2])
        case "matmul":
            return 2 * elements * int(group.attrs["in_channels"])
        case "max_pool" | "avg_pool" | "global_avg_pool":
            return elements * int(group.attrs["kernel_h"] * group.attrs["kernel_w"])
        case "reduce_max" | "reduce_mean" | "reduce_sum" | "relu":
            return prod(inputs[0].shape)
        case "concat" | "scatter" | "scatter_nd" | "slice" | "gather" | "reshape" | "transpose" | "pad":
            return 0
        case "softmax":
            return 4 * elements
        case "layer_norm" | "group_norm":  # sum, sum of squares, scale, shift
            return 6 * elements
        case "argmax" | "topk":  # comparisons: one per element for every place that is kept
            return prod(inputs[0].shape) * max(int(group.attrs.get("kept", 1)).bit_length(), 1)
        case "grid_sample":  # four products and the weights of the four neighbours
            return elements * 8
        case "resize2d":
            return elements * (6 if group.attrs["bilinear"] else 0)
        case kind if kind in ELEMENTWISE:
            return elements
    raise CompileError(f"{group.name}: no operation count for {group.kind}")
