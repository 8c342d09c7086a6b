"""Fusion beyond bias and ReLU for GPUs: gates and activations merged into the operator that feeds only them.

The activation is kept in `Group.options["activation"]` (`cuda.activation`).
"""

from __future__ import annotations

from dataclasses import replace

from socsched.compiler.environment import tvm
from socsched.compiler.targets.cuda.activation import Activation
from socsched.compiler.targets.llvm import fuse as shared
from socsched.graph.fusion import Graph, Group

_SIXTH = 1 / 6


def fuse(graph: Graph) -> Graph:
    """Return `graph` with activations inside the operators that feed only them."""
    return shared.fuse_activations(_hard_gates(graph))


def activation(graph: Graph, group: Group) -> Activation:
    """Return the activation `group` applies to its result, or the function of an element-wise operator."""
    return shared.activation(graph, group)


def _hard_gates(graph: Graph) -> Graph:
    """Replace clip(x * a + b, 0, 1) by one operator, and its product with x where that is HardSwish."""
    for clip in graph.groups:
        found = _hard_sigmoid(graph, clip)
        if found is None:
            continue
        parts, factors = found
        source, gone, last = parts[0].inputs, list(parts), clip
        options: dict[str, Activation] = {"activation": ("hard_sigmoid", *factors)}
        product = next(iter(graph.consumers(clip.output)), None)
        if (
            product is not None
            and product.kind == "multiply"
            and sorted(product.inputs) == sorted((*source, clip.output))
            and graph.used_once(clip.output)
            and abs(factors[0] - _SIXTH) < 1e-6
            and factors[1] == 0.5
        ):
            options, last = {"activation": ("hard_swish",)}, product
            gone.append(clip)
        new = Group(last.name, options["activation"][0], source, last.output, options=options)
        kept = (new if group is last else group for group in graph.groups if group not in gone)
        graph = replace(graph, groups=tuple(kept))
    return graph


def _hard_sigmoid(graph: Graph, clip: Group) -> tuple[tuple[Group, Group], tuple[float, float]] | None:
    """Return the operators before a clip that make it a hard sigmoid, with slope and offset; None for other clips."""
    if clip.kind != "clip" or shared.unary(graph, clip)[1:] != (0.0, 1.0):
        return None
    moved = next((group for group in graph.groups if group.output == clip.inputs[0]), None)
    if moved is None or moved.kind != "add" or moved.relu or (beta := _scalar(graph, moved)) is None:
        return None
    scaled = next((group for group in graph.groups if group.output == moved.inputs[0]), None)
    if scaled is None or scaled.kind != "multiply" or (alpha := _scalar(graph, scaled)) is None:
        return None
    if not (graph.used_once(moved.output) and graph.used_once(scaled.output)):
        return None
    return (scaled, moved), (alpha, beta)


def _scalar(graph: Graph, group: Group) -> float | None:
    """Return the scalar that an operator of one input combines it with, None if there is none."""
    if len(group.inputs) != 1 or group.weights or group.output not in graph.calls:
        return None
    constant = graph.calls[group.output].args[1]
    array = constant.value.numpy() if isinstance(constant, tvm.ir.GenericConst) else None
    return float(array) if array is not None and array.ndim == 0 else None
