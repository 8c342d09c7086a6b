"""Operations and bytes of fused operators, counted as the layer tables of published networks count them.

Counted: multiply-adds (two operations each) of convolutions, deconvolutions and dense layers; one operation per element
and window position of additions, pooling and maxima that stand alone.  Bias, ReLU and anything else fused are not
counted.  Traffic: each fused operator reads its inputs and weights once and writes its output once.

Operator rules may ask of an operator what the graph around it decides, beyond its own attributes: its `Facts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from socsched.errors import CompileError
from socsched.graph.epilogues import chained, merged
from socsched.graph.expand import COMPARISONS
from socsched.graph.fusion import Graph, Group
from socsched.graph.operators import DTYPE_BYTES, Operator, TensorType
from socsched.graph.weighted_sums import in_rows

# Recurrent operators (ONNX's GRU and LSTM) that have a kernel on tensor cores, though no layer computes them.
#
# Counting, operator rules and the compiler ask `steps_of`, so that a plan offers what is compiled.

GATES = {"GRU": 3, "LSTM": 4}
TILE = 16
"""Rows and columns of a product on tensor cores: hidden units come in as many."""
WIDEST = 256
"""Hidden units up to which a block of threads holds what it computes in registers."""
_KEPT = 112
"""Registers of a thread that weights may take."""
_KNOWN = {"hidden_size", "linear_before_reset", "direction"}
_ROLES = ("weight", "recurrent", "shift", "lengths", "state", "cell", "peepholes")
"""What the second and later inputs are."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The size of a recurrent layer."""

    steps: int
    batch: int
    hidden: int
    gates: int
    reversed: bool

    @property
    def kept(self) -> bool:
        """Return whether the weights stay in registers."""
        return self.gates * self.hidden // 4 <= _KEPT


def roles(group: Group) -> dict[str, str]:
    """Return role -> weight of a recurrent operator taken as it is, whose inputs but the first are constants."""
    names = iter(group.weights.values())
    operands = group.options["operands"][1:]
    return {role: next(names) for role, operand in zip(_ROLES, operands, strict=False) if operand}


def unread(graph: Graph, group: Group) -> bool:
    """Return whether nothing reads an operator's result."""
    return group.output not in graph.outputs and not graph.consumers(group.output)


def steps_of(graph: Graph, group: Group) -> Steps | None:
    """Return the size of a recurrent operator that has a kernel, None for any other operator or form."""
    options = group.options
    if group.kind != "onnx" or options["operator"] not in GATES or options["domain"] or options["stored"]:
        return None
    attributes, (first, *others) = options["attributes"], options["operands"]
    if set(attributes) - _KNOWN or first != 0 or len(group.inputs) != 1 or any(isinstance(one, int) for one in others):
        return None
    constants, gates = roles(group), GATES[options["operator"]]
    hidden, direction = int(attributes.get("hidden_size", 0)), attributes.get("direction", "forward")
    if not {"weight", "recurrent"} <= constants.keys() or {"lengths", "peepholes"} & constants.keys():
        return None
    if hidden % TILE or not 0 < hidden <= WIDEST or direction not in ("forward", "reverse"):
        return None
    if (gates == 3 and not attributes.get("linear_before_reset")) or (
        gates == 4 and ("state" in constants) != ("cell" in constants)
    ):
        return None
    steps, batch, width = graph.values[group.inputs[0]].shape
    if min(steps, batch, width) < 1 or (options["result"] > 1 and not unread(graph, group)):
        return None
    return Steps(steps, batch, hidden, gates, direction == "reverse")


ELEMENTWISE = frozenset(
    ("add", "subtract", "multiply", "divide", "maximum", "minimum", "sigmoid", "tanh", "exp", "sqrt", "erf", "clip",
     "leaky_relu", "log", "abs", "cast", "sin", "cos", "floor", "ceil", "round", "sign", "power", "floor_mod", "where",
     *COMPARISONS)
)  # fmt: skip
"""Operators with one operation per element of their result."""
_PER_ELEMENT = {
    **dict.fromkeys(ELEMENTWISE, 1),
    "softmax": 4,
    "layer_norm": 6,  # sum, sum of squares, scale, shift
    "group_norm": 6,
    "grid_sample": 8,  # four products and the weights of the four neighbours
}
"""Operations per element of a result."""
_WHOLE = {"bool": 1, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64, "uint64": 64}
"""Bits of values that are no floats; those in int8 are floats that were rounded."""
_UNTYPED = ("uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool", "fp64")


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
        self.merged = merged(graph)
        self.merged |= chained(graph, self.merged)
        self.merged |= {name for pool in in_rows(graph, {})[1].values() for name in pool.inside}

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
        if group.output in self.merged:
            attrs["merged"] = 1
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
            unlayered=str(group.options["reason"]) if group.kind == "onnx" else "",
            tensor_cores=steps_of(self.graph, group) is not None,
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
        case "onnx":
            return int(group.options["flops"])
        case "conv2d":
            return 2 * elements * prod(weights[0][1:])
        case "conv2d_transpose":
            # Every input element is multiplied for every output channel and tap, regardless of the stride.
            return 2 * prod(inputs[0].shape) * prod(weights[0][1:])
        case "dense":
            return 2 * elements * int(group.attrs["in_channels"])
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
        case "constant" | "concat" | "scatter" | "scatter_nd" | "slice" | "gather" | "reshape" | "transpose" | "pad":
            return 0
        case "argmax" | "topk":  # comparisons: one per element for every place that is kept
            return prod(inputs[0].shape) * max(int(group.attrs.get("kept", 1)).bit_length(), 1)
        case "resize2d":
            return elements * (6 if group.attrs["bilinear"] else 0)
        case kind if kind in _PER_ELEMENT:
            return _PER_ELEMENT[kind] * elements
    raise CompileError(f"{group.name}: no operation count for {group.kind}")


EQUAL, ONE_VALUE, BY_CHANNEL, OTHERWISE = range(4)
"""How the second operand of an element-wise operator is broadcast to the first."""


class Facts:
    """The facts of every operator of one graph.

    `operands`: inputs that are computed, not constants; `rank` and `out_rank`: dimensions of the first input and of the
    result; `width`, `batch`: last size of the first input, and the first one of three and more; `broadcast`: 0 equal
    shapes, 1 one value, 2 a value a channel, 3 otherwise; `low`, `high`: bounds of a clip; `first_axis`, `step`: first
    axis that a slice, split or pad changes, largest step of a slice; `fraction`: 1 where a resize is by no whole
    factor; `moves`: 0 where a reshape drops or adds sizes of 1 alone; `counts_padding`: 1 where padding counts in an
    average, or there is none; `of_input`: 1 where a slice, gather or transpose reads an input of the network;
    `to_output`: 1 where the result of a cast is an output; `bits`, `out_bits`: of the whole numbers of its first input
    and result, 1 for truth values, 0 for floats; `in_gelu`, `in_norm`: 1 where an operator is a part of a written-out
    GELU, or layer norm.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.layers = {layer.name: layer for layer in graph.network.layers}
        self.makers = {group.output: group for group in graph.groups}
        self.readers: dict[str, list[Group]] = {}
        for group in graph.groups:
            for value in group.inputs:
                self.readers.setdefault(value, []).append(group)

    def of(self, group: Group, inputs: tuple[TensorType, ...], output: TensorType) -> dict[str, float]:
        """Return the facts of an operator whose tensors have these types."""
        first = inputs[0].shape if inputs else output.shape
        facts: dict[str, float] = {"operands": len(group.inputs), "rank": len(first), "out_rank": len(output.shape)}
        facts["bits"], facts["out_bits"] = _bits(inputs[0] if inputs else output), _bits(output)
        if first:
            facts["width"] = first[-1]
        if len(first) > 2:
            facts["batch"] = first[0]
        layer = self.layers.get(group.layer)
        attrs = layer.attrs if layer is not None and layer.op == group.kind else {}
        if group.kind == "cast":
            facts["to_output"] = int(group.output in self.graph.outputs)
        if group.kind in ("slice", "gather", "transpose"):
            facts["of_input"] = int(any(value in self.graph.inputs for value in group.inputs))
        match group.kind:
            case "add" | "subtract" | "multiply" | "divide" | "maximum" | "minimum":
                constant = group.weights.get("weight")
                second = self.graph.network.params[constant] if constant else inputs[-1].shape
                facts["broadcast"] = _broadcast(first, second)
            case "clip" if "low" in attrs:
                facts |= {"low": attrs["low"], "high": attrs["high"]}
            case "slice" if "axes" in attrs:
                changed = [
                    a for a, one, other in zip(range(len(first)), first, output.shape, strict=False) if one != other
                ]
                facts |= {"first_axis": min(changed, default=1), "step": max(attrs["step"])}
            case "pad" if "pads" in attrs:
                half = len(attrs["pads"]) // 2
                padded = [a for a in range(half) if attrs["pads"][a] or attrs["pads"][a + half]]
                facts["first_axis"] = min(padded, default=half)
            case "reshape":
                facts["moves"] = int([size for size in first if size != 1] != [s for s in output.shape if s != 1])
            case "avg_pool":
                facts["counts_padding"] = int(bool(attrs.get("count_padding")) or not group.attrs.get("pad"))
            case "resize2d":
                scales = (group.attrs["scale_h"], group.attrs["scale_w"])
                facts["fraction"] = int(any(scale != int(scale) for scale in scales))
            case "erf":
                facts["in_gelu"] = int(self.in_gelu(group))
        if group.kind in ("sqrt", "divide"):
            facts["in_norm"] = int(self.in_norm(group))
        return facts

    def in_gelu(self, erf: Group) -> bool:
        """Return whether an erf is that of x / 2 (1 + erf(x / sqrt 2)), in any order of its products."""
        scaled = self.makers.get(erf.inputs[0])
        if scaled is None or scaled.kind not in ("multiply", "divide") or len(scaled.inputs) > 1:
            return False
        x, moved = scaled.inputs[0], self.only_reader(erf.output, ("add",))
        if moved is None or len(moved.inputs) > 1:
            return False
        product = self.only_reader(moved.output, ("multiply",))
        if product is None:
            return False
        if len(product.inputs) == 1:  # halved before x joins
            product = self.only_reader(product.output, ("multiply",))
        joined = [value for value in product.inputs if value != moved.output] if product is not None else []
        return any(value == x or self.halved(value) == x for value in joined)

    def halved(self, value: str) -> str:
        """Return what a product with a constant scales, "" for any other value."""
        maker = self.makers.get(value)
        return maker.inputs[0] if maker is not None and maker.kind == "multiply" and len(maker.inputs) == 1 else ""

    def only_reader(self, value: str, kinds: tuple[str, ...]) -> Group | None:
        readers = self.readers.get(value, [])
        return readers[0] if len(readers) == 1 and readers[0].kind in kinds else None

    def in_norm(self, group: Group) -> bool:
        """Return whether a root or quotient is that of (x - mean) / sqrt(mean of squares + epsilon)."""
        if group.kind == "divide":
            root = self.makers.get(group.inputs[-1]) if len(group.inputs) == 2 else None
            return root is not None and root.kind == "sqrt" and self.in_norm(root)
        moved = self.makers.get(group.inputs[0])
        if moved is not None and moved.kind == "add" and len(moved.inputs) == 1:
            moved = self.makers.get(moved.inputs[0])
        reader = self.only_reader(group.output, ("divide",))
        return moved is not None and moved.kind == "reduce_mean" and reader is not None and len(reader.inputs) == 2


def _bits(tensor: TensorType) -> int:
    """Return the bits of whole numbers, 1 for truth values, 0 for floats and what is rounded to integers."""
    return _WHOLE.get(tensor.dtype, 0)


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    rank = max(len(first), len(second))
    one, other = (1,) * (rank - len(first)) + first, (1,) * (rank - len(second)) + second
    if one == other:
        return EQUAL
    small = other if prod(other) <= prod(one) else one
    if prod(small) == 1:
        return ONE_VALUE
    return BY_CHANNEL if rank > 1 and prod(small) == small[1] else OTHERWISE
