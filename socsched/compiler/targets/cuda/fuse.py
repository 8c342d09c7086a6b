"""Fusion beyond bias and ReLU for GPUs: gates and activations merged into the operator that feeds only them.

The activation is kept in `Group.options["activation"]` (`cuda.activation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from socsched.compiler.targets.cuda.index_maps import scalar
from socsched.compiler.targets.llvm.fuse import fuse_activations, hard_gates
from socsched.graph.fusion import Graph, Group


def fuse(graph: Graph) -> Graph:
    """Return `graph` with activations inside the operators that feed only them."""
    return _gelus(fuse_activations(hard_gates(graph)))


def with_numbers(graph: Graph, weights: Mapping[str, Any]) -> Graph:
    """Return `graph` with the numbers of its GELUs in place of the parameters' names."""

    def resolved(group: Group) -> Group:
        found = group.options.get("activation")
        if not found or found[0] != "gelu":
            return group
        values = [
            1 / number if inverse else number
            for name, inverse in found[1:]
            for number in (float(np.asarray(weights[name]).reshape(-1)[0]),)
        ]
        return replace(group, options={**group.options, "activation": ("gelu", *values)})

    return replace(graph, groups=tuple(map(resolved, graph.groups)))


def _gelus(graph: Graph) -> Graph:
    """Replace x (erf(x / a) + b) c by one operator, within a dense layer that it follows."""
    for erf in graph.groups:
        found = _gelu(graph, erf) if erf.kind == "erf" else None
        if found is None:
            continue
        source, last, gone, numbers = found
        new = Group(last.name, "gelu", (source,), last.output, options={"activation": ("gelu", *numbers)})
        graph = _put(graph, last, new, gone)
        dense = _producer(graph, source)
        if dense is None or dense.kind != "dense" or dense.relu or "activation" in dense.options:
            continue
        if graph.used_once(source):
            graph = _put(
                graph, new, replace(dense, output=new.output, options={**dense.options, **new.options}), [dense]
            )
    return graph


def _gelu(graph: Graph, erf: Group) -> tuple[str, Group, list[Group], list[tuple[str, bool]]] | None:
    """Return the input of a GELU, its last operator, the others, and its numbers: parameters, and whether inverted."""
    inner, moved = _producer(graph, erf.inputs[0]), _reader(graph, erf.output)
    if inner is None or moved is None or not graph.used_once(inner.output):
        return None
    product = _reader(graph, moved.output)
    if moved.kind != "add" or product is None or product.kind != "multiply" or len(product.inputs) != 2:
        return None
    (source,), other = inner.inputs[:1], next(name for name in product.inputs if name != moved.output)
    outer = _reader(graph, product.output) if other == source else _producer(graph, other)
    if outer is None or outer.inputs != ((product.output,) if other == source else (source,)):
        return None
    if not graph.used_once(outer.inputs[0] if other == source else outer.output):
        return None
    names = [_factor(graph, inner), _factor(graph, outer), _number(graph, moved)]
    if None in names or (_number(graph, moved) is None):
        return None
    first, last, shift = (name for name in names if name is not None)
    end = outer if other == source else product
    gone = [group for group in (inner, erf, moved, product, outer) if group is not end]
    return source, end, gone, [first, shift, last]


def _factor(graph: Graph, group: Group) -> tuple[str, bool] | None:
    found = _number(graph, group)
    return (found[0], group.kind == "divide") if found and group.kind in ("multiply", "divide") else None


def _number(graph: Graph, group: Group) -> tuple[str, bool] | None:
    """Return the parameter of one number that an operator of one input combines it with, None if there is none."""
    return (next(iter(group.weights.values())), False) if scalar(graph, group) and not group.relu else None


def _producer(graph: Graph, value: str) -> Group | None:
    return next((group for group in graph.groups if group.output == value), None)


def _reader(graph: Graph, value: str) -> Group | None:
    return graph.consumers(value)[0] if graph.used_once(value) else None


def _put(graph: Graph, at: Group, new: Group, gone: list[Group]) -> Graph:
    kept = (new if group is at else group for group in graph.groups if group not in gone)
    return replace(graph, groups=tuple(kept))
