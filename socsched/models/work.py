"""Computation and memory traffic of a stage, counted from its network or stated by its model."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache

from socsched.descriptor.fields import PRECISIONS
from socsched.descriptor.pipeline import Stage
from socsched.errors import CompileError
from socsched.graph.accelerator_kernels import passes, place
from socsched.graph.batches import one_by_one
from socsched.graph.counting import at_nominal, at_precision, operators
from socsched.graph.enlargements import before_resizing
from socsched.graph.expand import fuse_network, layer_types
from socsched.graph.integers import in_kernels, integers_of
from socsched.graph.network import Network
from socsched.graph.operators import Operator, Place, StageWork, TensorType
from socsched.graph.partition import Part, take
from socsched.models.model import Model
from socsched.models.parts import PART, without_part
from socsched.models.registry import get_model

Border = tuple[TensorType, ...]


def stage_work(stage: Stage, precision: str, part: Part | None = None) -> StageWork:
    """Return the operations and traffic of one job of `stage` (or a part) in `precision`, at its params' nominal size.

    A function's work is stated by its model; a stage without model has none.  Raises UsageError for an unknown model or
    parameter, CompileError for an unknown layer.
    """
    if stage.model is None:
        return StageWork(stage.name, precision, (), (), ())
    model = get_model(stage.model, stage.params)
    borders = tuple(port.type for port in model.inputs), tuple(port.type for port in model.outputs)
    if model.network is None:
        counted = tuple(replace(operator, device=model.device) for operator in model.operators)
        return StageWork(stage.name, precision, counted, *borders)
    network = model.network()
    nominal = _nominal(model, network)
    if precision not in PRECISIONS:
        raise CompileError(f"{network.name}: precision {precision!r} is not one of {', '.join(PRECISIONS)}")
    if part:
        network, borders = _part(network, part, nominal)
    inputs, outputs = (tuple(at_precision(tensor, precision) for tensor in border) for border in borders)
    graph = fuse_network(network)
    counted = operators(graph, precision, nominal)
    if part or PART in stage.params:
        counted = tuple(
            replace(one, attrs={**one.attrs, "cut": 1}) if one.attrs.get("varies") else one for one in counted
        )
    integers, kernels = None, tuple[Operator, ...]()
    if precision == "int8":
        stated = model.quantised() if model.quantised is not None else None
        integers = integers_of(graph, stated.values if stated else None, stated.weights if stated else ())
        kernels = in_kernels(graph, integers, counted, operators(graph, "fp32", nominal))
    elif (moved := before_resizing(one_by_one(graph))[0]) is not graph:
        kernels = operators(moved, precision, nominal)
    own = passes(graph, nominal)
    where = place(own) if own else ()
    if own and PART in stage.params:
        where = _whole_place(stage.model, json.dumps(without_part(stage.params), sort_keys=True))
    return StageWork(stage.name, precision, counted, inputs, outputs, own, integers, kernels, where)


@lru_cache(maxsize=256)
def _whole_place(name: str, params: str) -> Place:
    """Return the place of the network whose parts a stage's parts are."""
    network = get_model(name, json.loads(params)).network
    assert network is not None
    return place(passes(fuse_network(network())))


def _part(network: Network, part: Part, nominal: int) -> tuple[Network, tuple[Border, Border]]:
    types = layer_types(network)
    piece = take(network, part, types)
    outputs = (types[name] for name in piece.outputs)
    inputs, results = (
        tuple(at_nominal(tensor, nominal) for tensor in side) for side in (piece.inputs.values(), outputs)
    )
    return piece, (inputs, results)


def _nominal(model: Model, network: Network) -> int:
    """Return the nominal size of the varying dimension: where a network input has -1, the port gives the size."""
    for port, inside in zip(model.inputs, network.inputs.values(), strict=True):
        for size, nominal in zip(inside.shape, port.type.shape, strict=True):
            if size < 0:
                return nominal
    return 0
