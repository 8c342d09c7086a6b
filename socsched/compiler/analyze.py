"""What a stage computes and moves, read from its Relax module.

Counted: multiply-adds (two operations each) of convolutions, deconvolutions and dense layers; one operation per element
and window position of additions, pooling and maxima that stand alone.  Bias, ReLU and whatever else is fused ride along
uncounted, as in the layer tables networks are published with.  Traffic: each fused operator reads its inputs and
weights once and writes its output once.
"""

from __future__ import annotations

from dataclasses import asdict
from math import prod
from typing import TYPE_CHECKING, Any

from socsched.cache import keep, recall
from socsched.compiler.store import digest
from socsched.compiler.values import value_types
from socsched.compiler.versions import rule_sources
from socsched.descriptor.pipeline import Stage
from socsched.errors import CompileError
from socsched.graph.network import Network
from socsched.graph.operators import DTYPE_BYTES, Operator, StageWork, TensorType
from socsched.graph.partition import Part, take
from socsched.models.registry import Model, get_model

if TYPE_CHECKING:
    from socsched.compiler.fusion import Graph, Group

_FLOATS = ("fp32", "fp16", "int8")
ELEMENTWISE = frozenset(
    (
        "add",
        "subtract",
        "multiply",
        "divide",
        "maximum",
        "minimum",
        "sigmoid",
        "tanh",
        "exp",
        "sqrt",
        "clip",
        "leaky_relu",
    )
)
"""Operators of one operation an element of their result."""
_UNTYPED = ("uint8", "int32", "int64", "bool")


def stage_work(stage: Stage, precision: str, part: Part | None = None) -> StageWork:
    """Return what one job of `stage` (or a part of it) computes and moves in `precision`, at its params' nominal size.

    A function's work is what its model states; a stage without model has none.  Analyses are kept in the cache, so that
    TVM is imported only for what was never seen.  Raises UsageError for an unknown model or parameter.
    """
    if stage.model is None:
        return StageWork(stage.name, precision, (), (), ())
    model = get_model(stage.model, stage.params)
    if model.network is None:
        return StageWork(stage.name, precision, model.operators, _types(model, 0), _types(model, 1))
    network = model.network()
    nominal = _dynamic(model, network)
    borders = (_types(model, 0), _types(model, 1))
    if part:
        network, borders = _part(network, part, nominal)
    key = digest("work", repr(network), nominal, precision, rule_sources())
    operators = _decode(recall("work", key))
    if operators is None:
        operators = _network_operators(network, precision, nominal)
        keep("work", key, [asdict(operator) for operator in operators])
    inputs, outputs = (tuple(_at(tensor, precision) for tensor in border) for border in borders)
    return StageWork(stage.name, precision, operators, inputs, outputs)


def _part(
    network: Network, part: Part, nominal: int
) -> tuple[Network, tuple[tuple[TensorType, ...], tuple[TensorType, ...]]]:
    types = value_types(network)
    taken = take(network, part, types)
    outputs = (types[name] for name in taken.outputs)
    inputs, results = (tuple(_nominal(tensor, nominal) for tensor in side) for side in (taken.inputs.values(), outputs))
    return taken, (inputs, results)


def _nominal(tensor: TensorType, nominal: int) -> TensorType:
    return TensorType(tuple(nominal if size < 0 else size for size in tensor.shape), tensor.dtype, tensor.layout)


def _types(model: Model, side: int) -> tuple[TensorType, ...]:
    return tuple(port.type for port in (model.inputs, model.outputs)[side])


def _at(tensor: TensorType, precision: str) -> TensorType:
    """A floating-point tensor in `precision`; indices and images keep their type."""
    return tensor if tensor.dtype in _UNTYPED else TensorType(tensor.shape, precision, tensor.layout)


def _decode(entries: Any) -> tuple[Operator, ...] | None:
    """Operators of a cache entry, None when it is absent or not what this version writes."""
    try:
        return tuple(
            Operator(**{**entry, "inputs": _tensors(entry["inputs"]), "outputs": _tensors(entry["outputs"])})
            for entry in entries
        )
    except (TypeError, KeyError, ValueError):
        return None


def _tensors(entries: Any) -> tuple[TensorType, ...]:
    return tuple(TensorType(tuple(entry["shape"]), entry["dtype"], entry["layout"]) for entry in entries)


def _network_operators(network: Network, precision: str, nominal: int) -> tuple[Operator, ...]:
    from socsched.compiler.fusion import read
    from socsched.compiler.relax_import import import_network

    if precision not in _FLOATS:
        raise CompileError(f"{network.name}: precision {precision!r} is not one of {', '.join(_FLOATS)}")
    return operators(read(import_network(network), network), precision, nominal)


def _dynamic(model: Model, network: Network) -> int:
    """The nominal size of the varying dimension: where a network input says -1, the port says how much."""
    for port, inside in zip(model.inputs, network.inputs.values(), strict=True):
        for size, nominal in zip(inside.shape, port.type.shape, strict=True):
            if size < 0:
                return nominal
    return 0


def operators(graph: Graph, precision: str, nominal: int = 0) -> tuple[Operator, ...]:
    """Return the operators of `graph` with its varying dimension set to `nominal`."""
    analysis = _Analysis(graph, precision, nominal)
    return tuple(analysis.operator(group) for group in graph.groups)


class _Analysis:
    def __init__(self, graph: Graph, precision: str, nominal: int) -> None:
        self.graph, self.precision, self.nominal = graph, precision, nominal
        self.pointwise: set[str] = set()

    def type(self, value: str) -> TensorType:
        tensor = self.graph.values[value]
        return _at(_nominal(tensor, self.nominal), self.precision)

    def operator(self, group: Group) -> Operator:
        inputs, output = tuple(map(self.type, group.inputs)), self.type(group.output)
        reads, writes = sum(map(_size, inputs)), _size(output)
        if self.graph.in_place(group) or group.kind == "reshape":
            reads = writes = 0
        elif self.shares_input(group):
            reads = 0
        params = self.graph.network.params
        weight_bytes = sum(prod(params[name]) for name in group.weights.values()) * DTYPE_BYTES[self.precision]
        flops = _flops(
            group, inputs, output, [params[name] for role, name in group.weights.items() if role == "weight"]
        )
        attrs = {**group.attrs, "relu": int(group.relu)}
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
        )

    def shares_input(self, group: Group) -> bool:
        """1x1 convolutions of one input (a head's) run as one kernel: the input is charged to the first of them."""
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
            # Every input element meets every output channel and tap, whatever the stride.
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
        case "concat" | "scatter" | "slice" | "reshape" | "transpose" | "pad":
            return 0
        case "softmax":
            return 4 * elements
        case "resize2d":
            return elements * (6 if group.attrs["bilinear"] else 0)
        case kind if kind in ELEMENTWISE:
            return elements
    raise CompileError(f"{group.name}: no operation count for {group.kind}")
