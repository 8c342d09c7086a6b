"""Fusion of a network's operations into operators, the unit of analysis and of lowering to kernels.

Bias and ReLU are folded into the preceding convolution, deconvolution, dense layer or addition if it feeds nothing
else; the Pillar Feature Net (decorate, dense, ReLU, maximum over slots) becomes one operator, since its [P, slots,
channels] intermediate must never reach memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from socsched.graph.network import Network
from socsched.graph.operators import TensorType

_BIASED = ("conv2d", "conv2d_transpose", "dense")
_RECTIFIED = (*_BIASED, "add")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation before fusion: `inputs` name values, `weights` keys of `Network.params`; `type` is the result's.

    `attrs`, `whole`, `layer` as of `Group`; `options`: its parameters as of the network's layer, `number` instead of a
    second operand; `axes`: the axes of a reduction; `weight_first`: the weight is the left operand.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    type: TensorType
    weights: tuple[str, ...] = ()
    attrs: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    axes: tuple[int, ...] = ()
    weight_first: bool = False
    whole: str = ""
    layer: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """One fused operator: `inputs` and `output` name values, `weights` maps role -> key of `Network.params`.

    `attrs` and `whole` are those of `graph.operators.Operator`; `options` holds data only for lowering, the parameters
    of its first operation (pillar size, grid, ...); `layer` names the network's layer that it begins with.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    output: str
    weights: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    relu: bool = False
    whole: str = ""
    layer: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """Fused operators in topological order; `values` gives every value's logical type (-1 where it varies).

    `operations` are those before fusion, by name and in topological order.
    """

    network: Network
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    groups: tuple[Group, ...]
    values: Mapping[str, TensorType]
    operations: Mapping[str, Operation] = field(default_factory=dict, compare=False)

    def consumers(self, value: str) -> list[Group]:
        """Return the operators that read `value`."""
        return [group for group in self.groups if value in group.inputs]

    def used_once(self, value: str) -> bool:
        """Return whether `value` has exactly one reader and does not leave the graph."""
        return value not in self.outputs and sum(group.inputs.count(value) for group in self.groups) == 1

    def maker(self, value: str) -> Group | None:
        """Return the operator that makes a value, None for an input."""
        return next((group for group in self.groups if group.output == value), None)

    def is_image(self, *names: str) -> bool:
        """Return whether all these values are images of one frame, which can be stored in blocks of channels."""
        kinds = [self.values[name] for name in names]
        return all(len(t.shape) == 4 and t.shape[0] == 1 and min(t.shape) > 0 and t.dtype == "fp32" for t in kinds)

    def in_place(self, group: Group) -> bool:
        """Return whether a concatenation costs nothing because every input can be written directly into its slice."""
        by_output = {other.output: other for other in self.groups}
        return (
            group.kind == "concat"
            and group.attrs["axis"] == 1
            and all(
                self.used_once(value)
                and value in by_output
                and by_output[value].kind in ("conv2d", "conv2d_transpose")
                and len(self.values[value].shape) == 4
                for value in group.inputs
            )
        )


def fuse(
    network: Network, inputs: Mapping[str, TensorType], operations: Sequence[Operation], outputs: tuple[str, ...]
) -> Graph:
    """Return the fused operators of `operations`, which are in topological order."""
    fusion = _Fusion(network, operations, outputs)
    for operation in operations:
        fusion.add(operation)
    values = {**inputs, **{operation.name: operation.type for operation in operations}}
    by_name = {operation.name: operation for operation in operations}
    return Graph(network, tuple(inputs), outputs, tuple(fusion.groups), values, by_name)


class _Fusion:
    def __init__(self, network: Network, operations: Sequence[Operation], outputs: tuple[str, ...]) -> None:
        self.groups: list[Group] = []
        self.types = {operation.name: operation.type for operation in operations}
        self.biases = {layer.weights["bias"] for layer in network.layers if "bias" in layer.weights}
        self.uses = Counter([*outputs, *(name for operation in operations for name in operation.inputs)])

    def add(self, op: Operation) -> None:
        producer = self.producer(op.inputs[0]) if op.inputs and not op.weight_first else None
        if op.kind == "add" and producer is not None and self.is_bias(producer, op):
            self.fold(producer, op.name, weights={**producer.weights, "bias": op.weights[0]})
        elif op.kind == "relu" and producer and producer.kind in _RECTIFIED and self.uses[op.inputs[0]] == 1:
            self.fold(producer, op.name, relu=True)
        elif op.kind == "reduce_max" and producer and self.fuse_pillars(producer, op):
            return
        else:
            roles = ("weight", "bias", *map(str, range(2, len(op.weights))))
            weights = dict(zip(roles, op.weights, strict=False))
            name = op.name.removesuffix("_linear")
            made = Group(
                name, op.kind, op.inputs, op.name, weights, op.attrs, op.options, whole=op.whole, layer=op.layer
            )
            self.groups.append(made)

    def is_bias(self, producer: Group, op: Operation) -> bool:
        """Return whether an addition is its layer's bias, the last operation that can be fused into the layer."""
        if producer.kind not in _BIASED or not op.weights:
            return False
        return "bias" not in producer.weights and not producer.relu and op.weights[0] in self.biases

    def producer(self, value: str) -> Group | None:
        return next((group for group in reversed(self.groups) if group.output == value), None)

    def fold(self, producer: Group, output: str, **changes: Any) -> None:
        index = self.groups.index(producer)
        self.groups[index] = replace(producer, output=output, **changes)

    def fuse_pillars(self, dense: Group, op: Operation) -> bool:
        decorate = self.producer(dense.inputs[0]) if dense.kind == "dense" and dense.relu else None
        if decorate is None or decorate.kind != "pillar_features" or op.axes != (1,):
            return False
        if self.uses[dense.inputs[0]] != 1 or self.uses[dense.output] != 1:
            return False
        self.groups.remove(dense)
        attrs = {**dense.attrs, "window": self.types[decorate.output].shape[1]}
        self.fold(decorate, op.name, name=op.name, attrs=attrs, weights=dense.weights, relu=True)
        return True
