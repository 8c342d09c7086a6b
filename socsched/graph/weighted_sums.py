"""Weighted sums of samples of images, or of products whose weights repeat by channel, as rows of channels.

Decisions only: a target that has a kernel for them asks `pools`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from socsched.graph.fusion import Graph, Group
from socsched.graph.index_maps import KINDS, MOST, ROWS, Array, Moves

_VECTOR = 8
"""Channels that a kernel reads at once: they come in multiples."""
_ROOM = 1 << 27
"""Elements of all tables of a network, of which a file could ask for any number."""


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


def pools(graph: Graph, moves: Moves) -> dict[str, Pooled]:
    """Return the weighted sums of a graph by output, without those that are part of another.

    They are of images sampled at a grid, or of products whose weights repeat by channel.
    """
    made = {pool.output: pool for pool in _pools(graph, moves)}
    within = {name for pool in made.values() for name in pool.inside}
    return {name: pool for name, pool in made.items() if name not in within}


def _pools(graph: Graph, moves: Moves) -> Iterator[Pooled]:
    for group in graph.groups:
        if group.kind == "grid_sample" and not refused_samples(graph, group):
            shape = graph.values[group.output].shape
            numbers = np.arange(prod(shape), dtype=np.int32).reshape(1, -1)
            found = _sampled(graph, moves, (group.output,), numbers, "", np.zeros_like(numbers), numbers[0])
        elif group.kind == "reduce_sum" and not refused_sum(graph, group):
            found = _summed(graph, moves, group)
        else:
            continue
        if found is not None:
            yield replace(found, output=group.output)


def in_rows(graph: Graph, weights: Mapping[str, Any]) -> tuple[Moves, dict[str, Pooled]]:
    """Return the weighted sums whose images, and grids, lie in one tensor each: in rows of channels, and in pairs."""
    moves = Moves(graph, weights)
    if not any(group.kind in ("reduce_sum", "grid_sample") for group in graph.groups):
        return moves, {}
    room = _ROOM
    for group in graph.groups:
        if group.kind in (*KINDS, *ROWS, "multiply", "divide") and moves.add(group):
            room -= moves.found[group.output].index.size
            if room < 0:
                return moves, {}
    return moves, {name: pool for name, pool in pools(graph, moves).items() if _readable(graph, moves, pool)}


def _readable(graph: Graph, moves: Moves, pool: Pooled) -> bool:
    if not pool.places:
        return bool(len(graph.values[pool.values[0]].shape) > max(pool.options["axes"]))
    for names in (pool.values, pool.places):
        made = [moves.of(name) for name in names]
        if len({one.roots for one in made}) > 1 or len(made[0].roots) > 1:
            return False
        if any(one.factor != 1.0 or int(one.index.min()) < 0 for one in made):
            return False
    pairs = (pairs_of(moves, grid) for grid in dict.fromkeys(pool.places))
    together = all(bool((first + 1 == second).all()) for first, second in pairs)
    return together and all(pixels_of(moves, value) is not None for value in dict.fromkeys(pool.values))


def pixels_of(moves: Moves, value: str) -> tuple[Array, int] | None:
    """Return where each image of a batch begins in its root and how far apart pixels are; None if irregular."""
    index = moves.of(value).index
    count, channels = index.shape[:2]
    pixels = index.reshape(count, channels, -1)
    firsts, step = pixels[:, 0, 0], int(pixels[0, 0, -1] - pixels[0, 0, 0]) // max(pixels.shape[2] - 1, 1)
    regular = np.arange(channels)[:, None] + step * np.arange(pixels.shape[2])
    return (firsts, step) if bool((pixels == firsts[:, None, None] + regular).all()) else None


def pairs_of(moves: Moves, grid: str) -> Array:
    """Return where the coordinates of places are in their root [2, batch, places]."""
    index = moves.of(grid).index
    pairs: Array = index.reshape(index.shape[0], 2, -1).swapaxes(0, 1)
    return pairs


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
            and not refused_samples(graph, maker)
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
    if channels % _VECTOR or count % channels or not bool((channel == channel[0]).all()):
        return None
    order = np.argsort(channel[0], kind="stable").reshape(channels, -1)
    if not bool((channel[0][order] == np.arange(channels)[:, None]).all()):
        return None
    rows = [table[:, order[0]] for table in tables]
    if not all(bool((table[:, order] == own[:, None]).all()) for table, own in zip(tables, rows, strict=True)):
        return None
    turn = np.argsort(key[order[0]], kind="stable")
    return order[:, turn].T, [np.ascontiguousarray(own[:, turn].T) for own in rows]


def refused_samples(graph: Graph, group: Group) -> str:
    """Return the reason for which samples of an image at a grid have no kernel, empty if they have one."""
    options = group.options
    if options["mode"] != "bilinear" or options["padding"] not in ("zeros", "border"):
        return f"no rule for {group.kind} by {options['mode']}, with {options['padding']} around"
    shapes = [graph.values[name].shape for name in (*group.inputs, group.output)]
    plain = (
        not group.relu and "activation" not in options and all(len(shape) == 4 and min(shape) > 0 for shape in shapes)
    )
    if not plain or shapes[0][1] % _VECTOR or max(map(prod, shapes)) > MOST:
        return f"no rule for {group.kind} of volumes, or of other than multiples of {_VECTOR} channels"
    return ""


def refused_sum(graph: Graph, group: Group) -> str:
    """Return the reason for which an operator over a tensor has no kernel, empty if it has one."""
    if group.relu or "activation" in group.options or prod(graph.values[group.inputs[0]].shape) > MOST:
        return f"no rule for {group.kind} with an activation, or of so many numbers"
    return ""
