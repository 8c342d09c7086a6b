"""Element-wise operators that kernels of CPUs compute along with the convolution or product before them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import gcd, lcm, prod

import numpy as np

from socsched.graph.fusion import Graph, Group

LINEAR = ("conv2d", "conv2d_transpose", "dense", "add")
"""Operators that apply an activation to their sums."""
SKIPPED = 0.75
"""Share of a window's positions inside of the image below which a kernel leaves out those outside."""
_EITHER_WAY = ("add", "multiply", "maximum", "minimum")
IN_CHAINS = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "sigmoid", "tanh", "exp", "log", "abs", "sqrt"),
    *("erf", "relu", "clip", "leaky_relu", "hard_sigmoid", "hard_swish", "softplus", "elu", "transpose", "slice"),
)
_IMAGE = 4
ACTIVATIONS = ("sigmoid", "tanh", "clip", "leaky_relu", "relu")


def merged(graph: Graph) -> frozenset[str]:
    """Return the results of operators that have no kernel of their own, as `compiler.targets.llvm.fuse` merges them.

    These are a bias of a product that stands alone, x * sigmoid(x), a GELU, a residual sum and an activation, where
    nothing else reads the operand.
    """
    return frozenset(_Merging(graph).gone)


def chained(graph: Graph, gone: Collection[str]) -> frozenset[str]:
    """Return the results of operators on tokens that one kernel computes along with the one before, none of `gone`.

    General schedules fuse element-wise operators and moves, where nothing else reads what is between them.
    """
    going: set[str] = set()
    found = set()
    for group in graph.groups:
        before = any(value in going and graph.used_once(value) for value in group.inputs)
        if group.kind == "reshape":
            going |= {group.output} if before else set()
        elif group.kind in IN_CHAINS and group.output not in gone and len(graph.values[group.output].shape) != _IMAGE:
            going.add(group.output)
            found |= {group.output} if before else set()
    return frozenset(found)


def inside(attrs: Mapping[str, float], given: Sequence[int], made: Sequence[int]) -> float:
    """Return the share of a convolution's positions that lie inside of an image; both shapes are of images."""
    share = 1.0
    for side, axis in (("h", 2), ("w", 3)):
        taps, stride = int(attrs[f"kernel_{side}"]), int(attrs[f"stride_{side}"])
        pad = int(attrs.get("pad_top" if side == "h" else "pad_left", attrs["pad"]))
        step, results = int(attrs.get(f"dilation_{side}", attrs["dilation"])), made[axis]
        first = (np.arange(results) * stride - pad)[:, None] + np.arange(taps) * step
        share *= float(((first >= 0) & (first < given[axis])).mean()) if first.size else 1.0
    return share


def channels_read(inputs: int, outputs: int, groups: int, block: int) -> tuple[int, int]:
    """Return the input channels that a block of output channels of a convolution reads, and the groups that share them.

    So many groups fill whole blocks together, and the kernel computes zeros between them.  All channels and 0 without
    groups, and where that many do not divide them.
    """
    own = inputs // groups, outputs // groups
    several = lcm(*(block // gcd(block, channels) for channels in own))
    span = several * own[0]
    return (inputs, 0) if groups == 1 or groups % several or span >= inputs else (span, several)


class _Merging:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {group.output: group for group in graph.groups}
        self.readers: dict[str, list[Group]] = {}
        for group in graph.groups:
            for value in group.inputs:
                self.readers.setdefault(value, []).append(group)
        self.plain: dict[str, str] = {}
        """Results of sums without an activation yet -> the kind of the operator."""
        self.gone: set[str] = set()
        for group in graph.groups:
            self.see(group)

    def see(self, group: Group) -> None:
        found = gelu(self.graph, group) if group.kind == "erf" else None
        if found is not None:  # one kernel that computes its erf, or a part of that before it
            source, last, others, _ = found
            alone = self.plain.get(self.behind_moves(source), "") not in ("conv2d", "dense")
            self.gone |= {one.output for one in (*others, last) if not alone or one is not group}
            return
        host = self.host(group)
        if host:
            self.gone.add(group.output)
        kind = host or group.kind
        activated = group.relu or group.kind in ACTIVATIONS or group.kind == "multiply"
        if kind in LINEAR and not activated:
            self.plain[group.output] = kind

    def behind_moves(self, value: str) -> str:
        """Return the value that reshapes and transposes only move."""
        while (maker := self.makers.get(value)) is not None and maker.kind in ("reshape", "transpose"):
            (value,) = maker.inputs
        return value

    def host(self, group: Group) -> str:
        """Return the kind of the operator that computes this one along with its own, "" for none."""
        if group.kind == "multiply" and len(group.inputs) == 2:
            gate = self.gate(group)
            if gate is None:
                return ""
            self.gone.add(gate.output)
            return self.plain.get(gate.inputs[0], "") if self.read_by(gate.inputs[0]) == 2 else ""
        if group.kind in ACTIVATIONS and len(group.inputs) == 1 and self.read_by(group.inputs[0]) == 1:
            return self.plain.get(group.inputs[0], "")
        if group.kind == "add":
            return self.host_of_sum(group)
        return ""

    def gate(self, product: Group) -> Group | None:
        """Return the sigmoid of a product x * sigmoid(x)."""
        for value, other in (product.inputs, product.inputs[::-1]):
            maker = self.makers.get(other)
            if maker is not None and maker.kind == "sigmoid" and maker.inputs == (value,) and self.read_by(other) == 1:
                return maker
        return None

    def host_of_sum(self, total: Group) -> str:
        values = self.graph.values
        if len(total.inputs) == 1:
            shapes = [self.graph.network.params.get(name) for name in total.weights.values()]
            maker = self.makers.get(total.inputs[0])
            bias = maker is not None and maker.kind == "dense" and "bias" not in maker.weights
            alone = self.plain.get(total.inputs[0]) == "dense" and self.read_by(total.inputs[0]) == 1
            return "dense" if bias and alone and shapes == [values[total.output].shape[-1:]] else ""
        if len({values[value].shape for value in (*total.inputs, total.output)}) > 1 or len(set(total.inputs)) < 2:
            return ""
        sums = (self.plain.get(value) == "conv2d" and self.read_by(value) == 1 for value in total.inputs)
        return "conv2d" if any(sums) else ""

    def read_by(self, value: str) -> int:
        """Return the number of readers of a value, one more where it leaves the network."""
        return len(self.readers.get(value, ())) + (value in self.graph.outputs)


Number = tuple[str | float, bool]
"""A number, or the parameter that holds it, and whether its inverse is meant."""


def gelu(graph: Graph, erf: Group) -> tuple[str, Group, list[Group], list[Number]] | None:
    """Return the input of a GELU, its last operator, the others, and its numbers."""
    inner, moved = graph.maker(erf.inputs[0]), _reader(graph, erf.output)
    if inner is None or moved is None or not inner.inputs or not graph.used_once(inner.output):
        return None
    product = _reader(graph, moved.output)
    if moved.kind != "add" or product is None or product.kind != "multiply" or len(product.inputs) != 2:
        return None
    source, other = inner.inputs[0], next((n for n in product.inputs if n != moved.output), "")
    outer = _reader(graph, product.output) if other == source else graph.maker(other)
    if outer is None or outer.inputs != ((product.output,) if other == source else (source,)):
        return None
    if not graph.used_once(outer.inputs[0] if other == source else outer.output):
        return None
    first, last, shift = _factor(graph, inner), _factor(graph, outer), _constant(graph, moved)
    if first is None or last is None or shift is None:
        return None
    end = outer if other == source else product
    gone = [group for group in (inner, erf, moved, product, outer) if group is not end]
    return source, end, gone, [first, shift, last]


def _factor(graph: Graph, group: Group) -> Number | None:
    found = _constant(graph, group)
    return (found[0], group.kind == "divide") if found and group.kind in ("multiply", "divide") else None


def _constant(graph: Graph, group: Group) -> Number | None:
    """Return the one number that an operator of one input combines it with, None if there is none."""
    if (stated := number(group)) is not None and not graph.operations[group.output].weight_first:
        return stated, False
    return (next(iter(group.weights.values())), False) if scalar(graph, group) and not group.relu else None


def scalar(graph: Graph, group: Group) -> bool:
    """Return whether an operator combines one tensor with one number, on the right where that makes a difference."""
    shapes = [graph.network.params.get(name) for name in group.weights.values()]
    if len(group.inputs) != 1 or len(shapes) != 1 or shapes[0] is None or prod(shapes[0]) != 1:
        return False
    return group.kind in _EITHER_WAY or not graph.operations[group.output].weight_first


def number(group: Group) -> float | None:
    """Return the number that an operator of one input combines it with, None if there is none."""
    number = group.options.get("number")
    return float(np.float32(number)) if isinstance(number, float) and not group.weights else None


def _reader(graph: Graph, value: str) -> Group | None:
    return graph.consumers(value)[0] if graph.used_once(value) else None
