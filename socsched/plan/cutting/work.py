"""What a part of a stage computes and moves, sliced from what the whole stage does: no compiler is asked for a part."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from socsched.cost.model import WorkOf
from socsched.descriptor.pipeline import Stage
from socsched.errors import UsageError
from socsched.graph.network import Network
from socsched.graph.operators import DTYPE_BYTES, Operator, StageWork, TensorType
from socsched.models.parts import part_network, part_of, whole_stage
from socsched.models.registry import get_model

_UNTYPED = ("uint8", "int32", "int64", "bool")


@dataclass(slots=True)
class Sliced:
    """A `WorkOf` that knows parts: those of a stage share its operators as analysed whole."""

    work: WorkOf
    _networks: dict[str, Network] = field(default_factory=dict)

    def __call__(self, stage: Stage, precision: str) -> StageWork:
        """Return what a stage or a part of one computes and moves in a precision."""
        part, whole = part_of(stage.params), whole_stage(stage)
        if part is None or whole is None:
            return self.work(stage, precision)
        network = self._network(whole)
        taken = part_network(network, part)
        done = self.work(whole, precision)
        owner = owners(network, done.operators)
        if owner is None:
            raise UsageError(f"stage {whole.name!r}: its operators are not its layers'", "plan it whole")
        inside = {layer.name for layer in taken.layers}
        model = get_model(stage.model or "", stage.params)
        borders = [tuple(at(port.type, precision) for port in side) for side in (model.inputs, model.outputs)]
        return StageWork(stage.name, precision, tuple(slices(network, done.operators, owner, inside)), *borders)

    def _network(self, whole: Stage) -> Network:
        key = f"{whole.model} {sorted(whole.params.items(), key=str)}"
        if key not in self._networks:
            made = get_model(whole.model or "", whole.params).network
            assert made is not None
            self._networks[key] = made()
        return self._networks[key]


def at(tensor: TensorType, precision: str) -> TensorType:
    """Return a floating-point tensor in a precision; others keep their type."""
    return tensor if tensor.dtype in _UNTYPED else replace(tensor, dtype=precision)


def owners(network: Network, operators: Sequence[Operator]) -> list[str] | None:
    """Return the layer each operator is named after, None where names do not tell."""
    by_name = {_plain(layer.name): layer.name for layer in network.layers}
    if len(by_name) < len(network.layers):
        return None
    found = [by_name.get(_plain(operator.name)) for operator in operators]
    return None if None in found else [name for name in found if name]


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)


def slices(network: Network, operators: Sequence[Operator], owner: Sequence[str], inside: set[str]) -> list[Operator]:
    """Return the operators of the layers `inside`, with the traffic they have when nobody else is there.

    What an operator need not read or write because a neighbour does it, it reads and writes itself where that neighbour
    is in another part.
    """
    inputs = {layer.name: layer.inputs for layer in network.layers}
    charged: set[str] = set()
    found = []
    for operator, name in zip(operators, owner, strict=True):
        if name not in inside:
            continue
        sizes = sum(map(_size, operator.inputs)), sum(map(_size, operator.outputs))
        source = inputs[name][0] if inputs[name] else ""
        if operator.kind == "concat" and not operator.bytes and any(value not in inside for value in inputs[name]):
            operator = replace(operator, read_bytes=sizes[0], write_bytes=sizes[1])
        elif operator.kind == "conv2d" and not operator.read_bytes and source not in charged:
            operator = replace(operator, read_bytes=sizes[0])
        if operator.kind == "conv2d":
            charged.add(source)
        found.append(operator)
    return found


def _size(tensor: TensorType) -> int:
    size = DTYPE_BYTES[tensor.dtype]
    for dimension in tensor.shape:
        size *= dimension
    return size


def layer_types(network: Network, operators: Sequence[Operator], owner: Sequence[str]) -> Mapping[str, TensorType]:
    """Return the fp32 type of every layer's result that an operator leaves; fused followers leave their operator's."""
    types = {name: at(operator.outputs[0], "fp32") for operator, name in zip(operators, owner, strict=True)}
    for layer in network.layers:
        if layer.name not in types and layer.inputs and layer.inputs[0] in types:
            types[layer.name] = types[layer.inputs[0]]
    return types
