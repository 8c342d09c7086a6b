"""Which operators on plain tensors have a GPU rule, as transformers use them: decisions only, no code generation."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import prod

from socsched.compiler.targets.cuda.kernels import BINARY
from socsched.compiler.targets.cuda.tiles import EDGE, VECTOR
from socsched.graph.fusion import Graph, Group

_EITHER_WAY = ("add", "multiply", "maximum", "minimum")
_HEADS, _KEYS = (0, 2, 1, 3), (0, 2, 3, 1)
"""Orders that move the heads of attention, [1, length, heads, width], to the front; in the second they are turned."""


@dataclass(frozen=True, slots=True)
class Operand:
    """Matrices of a batch in a value: `inside` its rows [rows, batch * columns], else [batch * rows, columns].

    `turned`: rows and columns are exchanged.  `absorbed`: transposes that reading it so makes needless.
    """

    value: str
    inside: bool = False
    turned: bool = False
    absorbed: tuple[str, ...] = ()


def left(graph: Graph, group: Group) -> Operand:
    """Return the left operand [.., m, k] of a product."""
    return _rows(graph, group.inputs[0])


def right(graph: Graph, group: Group) -> Operand:
    """Return the right operand [.., k, n] of a product, which is read by columns."""
    value, rank = group.inputs[1], len(graph.values[group.inputs[1]].shape)
    order = _order(graph, value)
    if order == _KEYS and _fills(graph, value, -2):
        return Operand(_source(graph, value), inside=True, absorbed=(value,))
    if order == (*range(rank - 2), rank - 1, rank - 2):
        found = _rows(graph, _source(graph, value))
        return Operand(found.value, found.inside, absorbed=(value, *found.absorbed))
    found = _rows(graph, value)
    return Operand(found.value, found.inside, True, found.absorbed)


def back(graph: Graph, group: Group) -> str:
    """Return the transpose that moves the heads of a product's result behind its rows, empty if it has none."""
    value = group.output
    reader = graph.consumers(value)[0] if graph.used_once(value) else None
    if reader is None or reader.kind != "transpose" or graph.values[value].shape[-1] % EDGE:
        return ""
    return reader.output if _permutation(graph, reader.output) == _HEADS and graph.values[value].shape[0] == 1 else ""


def absorbed(graph: Graph, plain: Collection[str]) -> set[str]:
    """Return the outputs of transposes that products among `plain` read or write in another order instead."""
    found: set[str] = set()
    for group in graph.groups:
        if group.kind == "matmul" and group.output in plain:
            found |= {*left(graph, group).absorbed, *right(graph, group).absorbed, back(graph, group)}
    return found - {""}


def scalar(graph: Graph, group: Group) -> bool:
    """Return whether an operator combines one tensor with one number, on the right where that makes a difference."""
    shapes = [graph.network.params.get(name) for name in group.weights.values()]
    if len(group.inputs) != 1 or len(shapes) != 1 or shapes[0] is None or prod(shapes[0]) != 1:
        return False
    return group.kind in _EITHER_WAY or not graph.operations[group.output].weight_first


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
    if int(group.attrs["axis"]) != rank - 1:
        return f"no rule for {group.kind} over other than the last axis"
    return ""


def _layer_norm(graph: Graph, group: Group) -> str:
    if set(group.weights) != {"weight", "bias"}:
        return "no rule for layer_norm without scale and shift"
    return _last(graph, group)


def _matmul(graph: Graph, group: Group) -> str:
    shapes = [graph.values[name].shape for name in (*group.inputs, group.output)]
    if len(group.inputs) != 2 or len({shape[:-2] for shape in shapes}) > 1 or len(shapes[0]) < 2:
        return "no rule for products of tensors that are repeated"
    return ""


def scales_softmax(graph: Graph, group: Group) -> bool:
    """Return whether an operator multiplies what only a softmax reads by a number, which is then part of it."""
    if group.kind not in ("multiply", "divide") or not scalar(graph, group) or not graph.used_once(group.output):
        return False
    reader = graph.consumers(group.output)[0]
    return reader.kind == "softmax" and not _last(graph, reader)


def _joined(graph: Graph, group: Group) -> str:
    if scales_softmax(graph, group):
        return ""
    shapes = {graph.values[name].shape for name in (*group.inputs, group.output)}
    if prod(graph.values[group.output].shape) % VECTOR:
        return f"no rule for {group.kind} of other than multiples of {VECTOR} numbers"
    if len(shapes) > 1 or not (scalar(graph, group) or (len(group.inputs) == 2 and not group.weights)):
        return f"no rule for {group.kind} that broadcasts other than by channel"
    return ""


def _whole(graph: Graph, group: Group) -> str:
    return "" if prod(graph.values[group.output].shape) % VECTOR == 0 else f"no rule for {group.kind} of odd sizes"


def _slice(graph: Graph, group: Group) -> str:
    return "" if first_of(graph, group) is not None else "no rule for slices of anything but channels"


def first_of(graph: Graph, group: Group) -> int | None:
    """Return the first element of a slice that lies in one piece, None for others."""
    axes, begins, steps = ([int(v) for v in group.options[name]] for name in ("axes", "begin", "step"))
    given, made = graph.values[group.inputs[0]].shape, graph.values[group.output].shape
    if len(axes) != 1 or steps != [1] or prod(given[: axes[0]]) != 1 or prod(made) % VECTOR:
        return None
    begin = begins[0] + given[axes[0]] if begins[0] < 0 else begins[0]
    return int(min(begin, given[axes[0]])) * prod(given[axes[0] + 1 :])


def _rows(graph: Graph, value: str) -> Operand:
    if _order(graph, value) == _HEADS and _fills(graph, value, -1):
        return Operand(_source(graph, value), inside=True, absorbed=(value,))
    return Operand(value)


def _fills(graph: Graph, value: str, axis: int) -> bool:
    """Return whether the columns inside a row start at multiples of 16 bytes."""
    return graph.values[value].shape[axis] % VECTOR == 0


def _source(graph: Graph, value: str) -> str:
    return next(group for group in graph.groups if group.output == value).inputs[0]


def _order(graph: Graph, value: str) -> tuple[int, ...]:
    """Return the order of the transpose that only makes this operand, () if there is none."""
    shape = graph.values[value].shape
    moved = _permutation(graph, value) if graph.used_once(value) else ()
    heads = moved in (_HEADS, _KEYS) and shape[0] == 1
    return moved if heads or moved[:-2] == tuple(range(len(shape) - 2)) else ()


def _permutation(graph: Graph, value: str) -> tuple[int, ...]:
    moved = next((group for group in graph.groups if group.output == value and group.kind == "transpose"), None)
    rank = len(graph.values[value].shape)
    return tuple(int(axis) % rank for axis in moved.options["order"]) if moved is not None else ()


UNARY = ("gelu", "erf", "sigmoid", "tanh", "clip", "leaky_relu", "relu", "silu", "hard_sigmoid", "hard_swish")
_RULES: dict[str, Callable[[Graph, Group], str]] = {
    "softmax": _last,
    "layer_norm": _layer_norm,
    "matmul": _matmul,
    "slice": _slice,
    **dict.fromkeys(BINARY, _joined),
    **dict.fromkeys(UNARY, _whole),
}
KINDS = tuple(kind for kind in _RULES if kind != "gelu")
"""Operators of networks with a rule on plain tensors."""
