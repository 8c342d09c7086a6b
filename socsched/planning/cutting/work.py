"""Work and traffic of a part of a stage, sliced from those of the whole stage: no part is compiled for analysis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from socsched.cost.model import WorkOf
from socsched.descriptor.pipeline import Stage
from socsched.errors import UsageError
from socsched.graph.expand import fuse_network
from socsched.graph.fusion import Graph
from socsched.graph.network import Network
from socsched.graph.operators import DTYPE_BYTES, Operator, Pass, StageWork, TensorType
from socsched.graph.passes import passes, restricted
from socsched.models.model import Model
from socsched.models.parts import part_of, whole_stage, without_part
from socsched.models.registry import get_model

_UNTYPED = ("uint8", "int32", "int64", "bool")


@dataclass(slots=True)
class Sliced:
    """A `WorkOf` that supports parts: those of a stage share its operators as analysed whole."""

    work: WorkOf
    _wholes: dict[tuple[str, str], _Whole] = field(default_factory=dict)
    _models: dict[str, Model] = field(default_factory=dict)
    _graphs: dict[str, Graph] = field(default_factory=dict)
    _passes: dict[tuple[str, frozenset[str]], tuple[Pass, ...]] = field(default_factory=dict)

    def __call__(self, stage: Stage, precision: str) -> StageWork:
        """Return the work and traffic of a stage, or of a part of one, in a precision."""
        part = part_of(stage.params)
        if part is None:
            return self.work(stage, precision)
        whole = self._whole(stage, precision)
        model = self._model(stage, part.cut)
        assert model.network is not None
        inside = {layer.name for layer in model.network().layers}
        inputs, outputs = (
            tuple(at_precision(port.type, precision) for port in side) for side in (model.inputs, model.outputs)
        )
        own = self._own(stage, whole.graph, whole.groups(inside)) if whole.graph else ()
        return StageWork(stage.name, precision, tuple(slices(whole, inside)), inputs, outputs, own)

    def _whole(self, part: Stage, precision: str) -> _Whole:
        key = (_key(part), precision)
        if key not in self._wholes:
            stage = whole_stage(part)
            assert stage is not None
            build_network = get_model(stage.model or "", stage.params).network
            assert build_network is not None
            network, done = build_network(), self.work(stage, precision)
            owner = owners(network, done.operators)
            if owner is None:
                raise UsageError(f"stage {stage.name!r}: its operators do not match its layers", "plan it uncut")
            self._wholes[key] = _Whole(
                network, done.operators, tuple(owner), self._graph(part) if done.passes else None
            )
        return self._wholes[key]

    def _own(self, part: Stage, graph: Graph, groups: set[str]) -> tuple[Pass, ...]:
        """Return the passes of a part, which are the same in every precision."""
        key = (_key(part), frozenset(groups))
        if key not in self._passes:
            self._passes[key] = passes(restricted(graph, groups))
        return self._passes[key]

    def _graph(self, part: Stage) -> Graph:
        key = _key(part)
        if key not in self._graphs:
            made = get_model(part.model or "", without_part(part.params)).network
            assert made is not None
            self._graphs[key] = fuse_network(made())
        return self._graphs[key]

    def _model(self, part: Stage, cut: str) -> Model:
        key = f"{_key(part)} {cut}"
        if key not in self._models:
            self._models[key] = get_model(part.model or "", part.params)
        return self._models[key]


@dataclass(frozen=True, slots=True)
class _Whole:
    """A network with its operators in a precision, the layer of each operator, and its graph where passes are known."""

    network: Network
    operators: tuple[Operator, ...]
    owner: tuple[str, ...]
    graph: Graph | None = None

    def groups(self, inside: set[str]) -> set[str]:
        """Return the names of the operators of some layers."""
        return {op.name for op, name in zip(self.operators, self.owner, strict=True) if name in inside}


def _key(part: Stage) -> str:
    return f"{part.model} {sorted(without_part(part.params).items(), key=str)}"


def at_precision(tensor: TensorType, precision: str) -> TensorType:
    """Return a floating-point tensor in a precision; others keep their type."""
    return tensor if tensor.dtype in _UNTYPED else replace(tensor, dtype=precision)


def owners(network: Network, operators: Sequence[Operator]) -> list[str] | None:
    """Return the layer each operator is named after, None if the names do not identify layers."""
    by_name = {_plain(layer.name): layer.name for layer in network.layers}
    if len(by_name) < len(network.layers):
        return None
    found = [by_name.get(_plain(operator.name)) for operator in operators]
    return None if None in found else [name for name in found if name]


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)


def slices(whole: _Whole, inside: set[str]) -> list[Operator]:
    """Return the operators of the layers `inside`, with their traffic when no other layers run with them.

    Reads or writes that an operator is spared by a neighbour are its own again if that neighbour is in another part.
    """
    inputs = {layer.name: layer.inputs for layer in whole.network.layers if layer.name in inside}
    charged: set[str] = set()
    found = []
    for operator, name in zip(whole.operators, whole.owner, strict=True):
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
