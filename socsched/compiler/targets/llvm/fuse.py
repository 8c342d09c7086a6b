"""Fusion beyond bias and ReLU, for CPUs: residual additions and activations are merged into the preceding convolution.

The activation is kept in `Group.options["activation"]` (`llvm.activation`); a residual is a second input of the
convolution.  The fused group takes the position of its last part, after everything it reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from socsched.compiler.targets.llvm.activation import Activation
from socsched.graph.fusion import Graph, Group

_UNARY = ("sigmoid", "tanh", "clip", "leaky_relu", "relu")
_GATES = ("silu", "hard_sigmoid", "hard_swish")
_LEAST = -3.4e38
"""Lower bound of a clip that has only an upper one."""
_LINEAR = ("conv2d", "conv2d_transpose", "dense", "add")


def fuse(graph: Graph) -> Graph:
    """Return `graph` with activations and residual additions inside the operators that feed only them."""
    for step in (_gates, _residuals, _activations):
        graph = step(graph)
    return graph


def fuse_activations(graph: Graph) -> Graph:
    """Return `graph` with activations inside the operators that feed only them."""
    return _activations(_gates(graph))


def activation(group: Group) -> Activation:
    """Return the activation `group` applies to its sum, or the function of an element-wise operator."""
    if "activation" in group.options:
        return tuple(group.options["activation"])
    if group.relu:
        return ("relu",)
    return unary(group) if group.kind in _UNARY else ()


def unary(group: Group) -> Activation:
    """Return an element-wise operator of one input as an activation."""
    if group.kind == "clip":
        return ("clip", float(group.options.get("low", _LEAST)), float(group.options["high"]))
    if group.kind == "leaky_relu":
        return ("leaky_relu", float(group.options["alpha"]))
    return (group.kind,)


def _plain(group: Group | None) -> bool:
    return group is not None and group.kind in _LINEAR and not group.relu and "activation" not in group.options


def _without(groups: Iterable[Group], *gone: Group) -> list[Group]:
    return [group for group in groups if group not in gone]


def _put(graph: Graph, at: Group, new: Group, *gone: Group) -> Graph:
    groups = [new if group is at else group for group in graph.groups]
    return replace(graph, groups=tuple(_without(groups, *gone)))


def _producer(graph: Graph, value: str) -> Group | None:
    return next((group for group in graph.groups if group.output == value), None)


def _gates(graph: Graph) -> Graph:
    """Replace x * sigmoid(x) by one activation (SiLU)."""
    for product in graph.groups:
        if product.kind != "multiply" or len(product.inputs) != 2:
            continue
        for value, other in (product.inputs, product.inputs[::-1]):
            gate = _producer(graph, other)
            if gate is None or gate.kind != "sigmoid" or gate.inputs != (value,) or not graph.used_once(other):
                continue
            silu = Group(product.name, "silu", (value,), product.output, options={"activation": ("silu",)})
            graph = _put(graph, product, silu, gate)
            break
    return graph


def _residuals(graph: Graph) -> Graph:
    for total in graph.groups:
        if total.kind != "add" or len(total.inputs) != 2 or total.inputs[0] == total.inputs[1]:
            continue
        shapes = {graph.values[value].shape for value in (*total.inputs, total.output)}
        candidates = [
            group
            for group in graph.groups
            if group.output in total.inputs
            and group.kind == "conv2d"
            and _plain(group)
            and graph.used_once(group.output)
        ]
        if len(shapes) > 1 or not candidates:
            continue
        conv = candidates[-1]
        other = total.inputs[1 - total.inputs.index(conv.output)]
        joined = replace(conv, inputs=(*conv.inputs, other), output=total.output, relu=total.relu)
        graph = _put(graph, total, joined, conv)
    return graph


def _activations(graph: Graph) -> Graph:
    for group in graph.groups:
        if group.kind not in (*_UNARY, *_GATES) or len(group.inputs) != 1:
            continue
        source = _producer(graph, group.inputs[0])
        if source is None or not _plain(source) or not graph.used_once(source.output):
            continue
        options = {**source.options, "activation": activation(group)}
        graph = _put(graph, group, replace(source, output=group.output, options=options), source)
    return graph
