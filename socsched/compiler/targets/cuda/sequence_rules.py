"""Which operators on plain tensors have a GPU rule, as transformers use them: decisions only, no code generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from socsched.compiler.targets.cuda.kernels import BINARY
from socsched.compiler.targets.cuda.tiles import VECTOR
from socsched.graph.expand import broadcast
from socsched.graph.fusion import Graph, Group
from socsched.graph.index_maps import MOST, Moves
from socsched.graph.weighted_sums import refused_sum

WIDEST = 128
"""Columns of a head up to which attention is one kernel."""


@dataclass(frozen=True, slots=True)
class Bias:
    """A parameter added to the scores where these have `shape`, and the factor that then multiplies it."""

    weight: str
    shape: tuple[int, ...]
    factor: float


@dataclass(frozen=True, slots=True)
class Attention:
    """softmax(factor Q K + biases) V in the batch that the leading dimensions of `output` make.

    `keys` is turned: its columns are the keys.  `inside`: the operators computed within.
    """

    query: str
    keys: str
    values: str
    output: str
    factor: float
    biases: tuple[Bias, ...]
    inside: tuple[str, ...]


def attentions(graph: Graph, moves: Moves) -> Iterator[Attention]:
    """Yield the attentions of a graph: two products with a softmax between them, and what scales or masks scores."""
    makers = {group.output: group for group in graph.groups}
    for group in graph.groups:
        if group.kind == "matmul" and len(group.inputs) == 2 and not _matmul(graph, group):
            found = _attention(graph, moves, makers, group)
            if found is not None:
                yield found


def _attention(graph: Graph, moves: Moves, makers: dict[str, Group], last: Group) -> Attention | None:
    value, factor = last.inputs[0], 1.0
    biases: list[Bias] = []
    inside: list[str] = []
    softmax = None
    while True:
        group = makers.get(value)
        if group is None or not graph.used_once(value) or group.relu or "activation" in group.options:
            return None
        inside.append(value)
        if group.kind == "softmax" and softmax is None and not _last(graph, group):
            softmax = group
        elif group.kind == "matmul" and softmax is not None:
            break
        elif softmax is not None and group.kind in ("multiply", "divide") and value in moves.found:
            number = moves.number(group) or 1.0
            factor *= number if group.kind == "multiply" else 1 / number
        elif softmax is not None and group.kind == "add" and len(group.inputs) == len(group.weights) == 1:
            biases.append(Bias(next(iter(group.weights.values())), graph.values[value].shape, factor))
        elif group.kind != "reshape":
            return None
        value = group.inputs[0]
    query, keys = group.inputs if len(group.inputs) == 2 else ("", "")
    shapes = [graph.values[name].shape for name in (query, keys, last.inputs[1], last.output)] if query else []
    if not shapes or min(map(len, shapes)) < 2 or any(min(shape) < 1 for shape in shapes):
        return None
    (*batch, rows, width), (_, length) = shapes[0], shapes[1][-2:]
    whole = [(*batch, rows, width), (*batch, width, length), (*batch, length, width), (*batch, rows, width)]
    if not batch or shapes != whole or width % VECTOR or width > WIDEST or prod(batch) * rows * length > MOST:
        return None
    return Attention(query, keys, last.inputs[1], last.output, factor, tuple(biases), tuple(inside))


def plain_reason(graph: Graph, group: Group) -> str:
    """Return the reason for which an operator on plain tensors has no rule, empty if it has one."""
    if group.kind not in _RULES:
        return f"no rule for {group.kind}"
    names = (*group.inputs, group.output)
    if any(min(graph.values[name].shape, default=0) < 1 or graph.values[name].dtype != "fp32" for name in names):
        return f"no rule for {group.kind} of sizes that vary, or of integers"
    return _RULES[group.kind](graph, group)


def _last(graph: Graph, group: Group) -> str:
    rank = len(graph.values[group.inputs[0]].shape)
    if int(group.attrs["axis"]) not in (-1, rank - 1):
        return f"no rule for {group.kind} over other than the last axis"
    return ""


def _layer_norm(graph: Graph, group: Group) -> str:
    if set(group.weights) != {"weight", "bias"}:
        return "no rule for layer_norm without scale and shift"
    return _last(graph, group)


def _matmul(graph: Graph, group: Group) -> str:
    shapes = [graph.values[name].shape for name in group.inputs]
    if len(shapes) != 2 or min(map(len, shapes)) < 2:
        return "no rule for products of vectors"
    lead = broadcast(shapes[0][:-2], shapes[1][:-2])
    if max(prod((*lead, *shape[-2:])) for shape in shapes) > MOST:
        return "no rule for products of tensors repeated so often"
    return ""


def _joined(graph: Graph, group: Group) -> str:
    size = prod(graph.values[group.output].shape)
    if size % VECTOR or size > MOST:
        return f"no rule for {group.kind} of other than multiples of {VECTOR} numbers"
    return "" if len(group.inputs) + len(group.weights) == 2 else f"no rule for {group.kind} of several tensors"


def _whole(graph: Graph, group: Group) -> str:
    return "" if prod(graph.values[group.output].shape) % VECTOR == 0 else f"no rule for {group.kind} of odd sizes"


def _constant(graph: Graph, group: Group) -> str:
    whole = "untransposed" in group.options and set(group.weights) == {"weight"} and not group.relu
    shapes = [graph.network.params[group.weights["weight"]], graph.values[group.inputs[0]].shape] if whole else []
    if not whole or "activation" in group.options or min(map(len, shapes)) < 2:
        return "no rule for products with a constant and more"
    lead = graph.values[group.output].shape[:-2]
    return f"no rule for {group.kind} of so many numbers" if max(prod((*lead, *s[-2:])) for s in shapes) > MOST else ""


UNARY = ("gelu", "erf", "sigmoid", "tanh", "clip", "leaky_relu", "relu", "silu", "hard_sigmoid", "hard_swish")
_RULES: dict[str, Callable[[Graph, Group], str]] = {
    **dict.fromkeys(("softmax", "reduce_sum"), refused_sum),
    "layer_norm": _layer_norm,
    "matmul": _matmul,
    "dense": _constant,
    "recurrent": lambda graph, group: "",
    **dict.fromkeys(BINARY, _joined),
    **dict.fromkeys(UNARY, _whole),
}
KINDS = (*(kind for kind in _RULES if kind not in ("gelu", "recurrent")), "grid_sample")
"""Operators of networks with a rule on plain tensors, or as one of `pools`."""
