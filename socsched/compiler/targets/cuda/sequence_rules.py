"""Which operators on plain tensors have a GPU rule, as transformers use them: decisions only, no code generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from socsched.compiler.targets.cuda.index_maps import MOST, Array, Moves
from socsched.compiler.targets.cuda.kernels import BINARY
from socsched.compiler.targets.cuda.tiles import VECTOR
from socsched.graph.expand import broadcast
from socsched.graph.fusion import Graph, Group

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


@dataclass(frozen=True, slots=True, eq=False)
class Pooled:
    """Rows of channels, each a weighted sum over points of what lies in a tensor, there or between pixels of images.

    `values`: for every point of a sum the image that `grid_sample` reads, or the one factor of a product that has
    channels; `places`: the grids of these images, else nothing; `weights`: the other factor, "" for none.  By row and
    point, `at`: the number of a place in its grid, or of the first channel; `image`: that of the image in its batch;
    `by`: the number of its weight.  `order`: the number of each element [rows, channels] in `output`.
    """

    output: str
    values: tuple[str, ...]
    places: tuple[str, ...]
    weights: str
    order: Array
    at: Array
    image: Array
    by: Array
    options: Mapping[str, Any]
    inside: tuple[str, ...] = ()


def pools(graph: Graph, moves: Moves) -> Iterator[Pooled]:
    """Yield the weighted sums of a graph: of images sampled at a grid, of products whose weights repeat by channel."""
    for group in graph.groups:
        if group.kind == "grid_sample" and not _grid_sample(graph, group):
            shape = graph.values[group.output].shape
            numbers = np.arange(prod(shape), dtype=np.int32).reshape(1, -1)
            found = _sampled(graph, moves, (group.output,), numbers, "", np.zeros_like(numbers), numbers[0])
        elif group.kind == "reduce_sum" and not _turned(graph, group):
            found = _summed(graph, moves, group)
        else:
            continue
        if found is not None:
            yield replace(found, output=group.output)


def in_front(shape: tuple[int, ...], axes: Sequence[int]) -> Array:
    """Return the numbers of a tensor's elements [those along some axes, the others]."""
    numbers = np.moveaxis(np.arange(prod(shape), dtype=np.int32).reshape(shape), axes, range(len(axes)))
    return numbers.reshape(prod(shape[axis] for axis in axes), -1)


def _summed(graph: Graph, moves: Moves, group: Group) -> Pooled | None:
    (value,), shape = group.inputs, graph.values[group.inputs[0]].shape
    moved = moves.of(value)
    product = moves.makers.get(moved.roots[0])
    if product is None or product.kind != "multiply" or len(product.inputs) != 2 or len(moved.roots) > 1:
        return None
    between = _between(graph, moves, value, moved.roots)
    if between is None or moved.factor != 1.0 or product.relu or "activation" in product.options:
        return None
    numbers = moved.index.reshape(-1)[in_front(shape, graph.operations[group.output].axes)]
    whole = graph.values[product.output].shape
    if not graph.used_once(product.output) or int(numbers.min()) < 0:
        return None
    for one, other in (product.inputs, product.inputs[::-1]):
        sides = [
            np.broadcast_to(np.arange(prod(side), dtype=np.int32).reshape(side), whole).reshape(-1)[numbers]
            for side in (graph.values[one].shape, graph.values[other].shape)
        ]
        roots = moves.of(one).roots
        makers = [moves.makers.get(root) for root in roots]
        within = _between(graph, moves, one, roots)
        sampled = within is not None and all(
            maker is not None
            and maker.kind == "grid_sample"
            and not _grid_sample(graph, maker)
            and graph.used_once(root)
            for maker, root in zip(makers, roots, strict=True)
        )
        if sampled and within is not None and moves.of(one).factor == 1.0:
            places = moves.of(one).index.reshape(-1)[sides[0]]
            found = _sampled(
                graph, moves, roots, places, other, sides[1], moves.of(other).index.reshape(-1)[sides[1][0]]
            )
            inside = (*between, *within, product.output, *roots)
        else:
            found, inside = _repeated(graph, one, other, sides, len(whole)), (*between, product.output)
        if found is not None:
            return replace(found, inside=inside)
    return None


def _between(graph: Graph, moves: Moves, name: str, roots: Sequence[str]) -> tuple[str, ...] | None:
    """Return the values between a moved one and its roots, itself included; None if something else reads one."""
    inside: list[str] = []
    left = [name]
    while left:
        if (value := left.pop()) in roots:
            continue
        if not graph.used_once(value) or value not in moves.makers:
            return None
        inside.append(value)
        left += moves.makers[value].inputs
    return tuple(inside)


def _sampled(
    graph: Graph, moves: Moves, roots: Sequence[str], numbers: Array, weights: str, by: Array, key: Array
) -> Pooled | None:
    """Return sums of the elements `numbers` [points, results] of sampled images, each times an element of `weights`.

    Rows are in the order of `key`: as the weights lie, which other results of the same layer often do.
    """
    makers = [moves.makers[root] for root in roots]
    shapes = [graph.values[root].shape for root in roots]
    channels = shapes[0][1]
    same = all(
        maker.options == makers[0].options and shape[1] == channels for maker, shape in zip(makers, shapes, strict=True)
    )
    if not same or int(numbers.min(initial=0)) < 0:
        return None
    starts = np.cumsum([0, *map(prod, shapes)])
    which = np.searchsorted(starts, numbers[:, 0], side="right") - 1  # by point
    channel, image, at = (np.empty(numbers.shape, np.int32) for _ in range(3))
    for point, root in enumerate(which):
        own = numbers[point] - starts[root]
        if int(own.min()) < 0 or int(own.max()) >= prod(shapes[root]):
            return None  # another image for every result
        image[point], channel[point], at[point] = (
            own // prod(shapes[root][1:]), own // prod(shapes[root][2:]) % channels, own % prod(shapes[root][2:])
        )  # fmt: skip
    tables = _by_channels(channel, channels, (at, image, by), key)
    if tables is None:
        return None
    order, (at, image, by) = tables
    images, grids = zip(*(makers[root].inputs for root in which), strict=True)
    return Pooled("", images, grids, weights, order, at, image, by, makers[0].options)


def _repeated(graph: Graph, values: str, weights: str, sides: Sequence[Array], rank: int) -> Pooled | None:
    """Return sums of products of two tensors where the weights repeat along the channels of the values."""
    shapes = [(1,) * (rank - len(shape)) + shape for shape in (graph.values[values].shape, graph.values[weights].shape)]
    axes = [axis for axis, (own, other) in enumerate(zip(*shapes, strict=True)) if other == 1 < own]
    channels = prod(shapes[0][axis] for axis in axes)
    numbers = np.empty(prod(shapes[0]), np.int32)
    numbers[in_front(shapes[0], axes).reshape(-1)] = np.arange(numbers.size, dtype=np.int32)
    among, count = numbers[sides[0]], numbers.size // channels
    tables = _by_channels(among // count, channels, (among % count, sides[1]), np.arange(among.shape[1]))
    if tables is None:
        return None
    order, (at, by) = tables
    return Pooled("", (values,), (), weights, order, at, np.zeros_like(at), by, {"axes": axes})


def _by_channels(
    channel: Array, channels: int, tables: Sequence[Array], key: Array
) -> tuple[Array, list[Array]] | None:
    """Return the results in rows of channels and the tables [rows, points] of their points; None if there are no rows.

    All are given [points, results]; rows are in the order of `key` [results].
    """
    count = channel.shape[1]
    if channels % VECTOR or count % channels or not bool((channel == channel[0]).all()):
        return None
    order = np.argsort(channel[0], kind="stable").reshape(channels, -1)
    if not bool((channel[0][order] == np.arange(channels)[:, None]).all()):
        return None
    rows = [table[:, order[0]] for table in tables]
    if not all(bool((table[:, order] == own[:, None]).all()) for table, own in zip(tables, rows, strict=True)):
        return None
    turn = np.argsort(key[order[0]], kind="stable")
    return order[:, turn].T, [np.ascontiguousarray(own[:, turn].T) for own in rows]


def _grid_sample(graph: Graph, group: Group) -> str:
    options = group.options
    if options["mode"] != "bilinear" or options["padding"] not in ("zeros", "border"):
        return f"no rule for {group.kind} by {options['mode']}, with {options['padding']} around"
    shapes = [graph.values[name].shape for name in (*group.inputs, group.output)]
    plain = (
        not group.relu and "activation" not in options and all(len(shape) == 4 and min(shape) > 0 for shape in shapes)
    )
    if not plain or shapes[0][1] % VECTOR or max(map(prod, shapes)) > MOST:
        return f"no rule for {group.kind} of volumes, or of other than multiples of {VECTOR} channels"
    return ""


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


def _turned(graph: Graph, group: Group) -> str:
    if group.relu or "activation" in group.options or prod(graph.values[group.inputs[0]].shape) > MOST:
        return f"no rule for {group.kind} with an activation, or of so many numbers"
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
    **dict.fromkeys(("softmax", "reduce_sum"), _turned),
    "layer_norm": _layer_norm,
    "matmul": _matmul,
    "dense": _constant,
    "recurrent": lambda graph, group: "",
    **dict.fromkeys(BINARY, _joined),
    **dict.fromkeys(UNARY, _whole),
}
KINDS = (*(kind for kind in _RULES if kind not in ("gelu", "recurrent")), "grid_sample")
"""Operators of networks with a rule on plain tensors, or as one of `pools`."""
