"""Operators that only move elements, as tables of where each element of a value comes from: no kernel of their own.

A transpose, reshape, slice, gather by constants, padding by zeros, concatenation, a window partition or a roll made of
these, and a product with one number: whoever reads their result reads the roots instead.  Tables are numpy arrays,
composed by numpy's own indexing; what a reader needs is in one piece of memory more often than not, which a comparison
of two tables finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from socsched.graph.epilogues import scalar
from socsched.graph.fusion import Graph, Group

Array = np.ndarray[Any, Any]

MOST = 1 << 23
"""Elements of a value beyond which a table takes too much memory and time."""
_MOVED = 1 << 24
"""The same of a value that only moves elements: what is lifted from images to depths has more than those that a kernel
writes."""
_ROOTS = 4
NOTHING = -1
"""Place of an element that is zero."""
KINDS = ("reshape", "transpose", "slice", "pad", "gather", "concat")
ROWS = {"image_to_rows": (0, 2, 3, 1), "rows_to_image": (0, 3, 1, 2)}
"""How moves between images and rows of channels, which CPUs have as one operator, turn an image or rows of pixels."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Where a value's elements are: `index` has its shape and counts through the elements of all `roots` in a row.

    The elements are multiplied by `factor`.
    """

    roots: tuple[str, ...]
    index: Array
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers that multiply the columns of a dense layer: elements `order` of the parameter `weight`."""

    weight: str
    order: Array


class Moves:
    """The values of a graph that are moved, as far as their operators have been added; `weights` where known."""

    def __init__(self, graph: Graph, weights: Mapping[str, Any] | None = None) -> None:
        self.graph, self.weights = graph, weights or {}
        self.found: dict[str, Moved] = {}
        self.scales: dict[str, Scale] = {}
        self.makers = {group.output: group for group in graph.groups}

    def add(self, group: Group) -> bool:
        """Take an operator; return whether its result only moves elements."""
        shapes = [self.graph.values[name] for name in (*group.inputs, group.output)]
        sizes = [size for tensor in shapes for size in tensor.shape]
        if not group.inputs or any(tensor.dtype != "fp32" for tensor in shapes) or min(sizes, default=1) < 1:
            return False
        if max(prod(tensor.shape) for tensor in shapes) > _MOVED or group.relu or "activation" in group.options:
            return False
        made = self._made(group)
        if made is None or made.index.shape != self.graph.values[group.output].shape:
            return False
        self.found[group.output] = made
        return True

    def of(self, name: str) -> Moved:
        """Return a value's table, its own elements in order if it is not moved."""
        return self.found.get(name) or self.itself(name)

    def _made(self, group: Group) -> Moved | None:
        if group.kind == "concat":
            return self._joined(group)
        if len(group.inputs) != 1:
            return None
        if group.kind in ("multiply", "divide"):
            number = self.number(group)
            own = self.of(group.inputs[0])
            if number is None and group.kind == "multiply":
                return self._scaled(group, own)
            if number is None or (group.kind == "divide" and not number):
                return None
            return replace(own, factor=own.factor * (number if group.kind == "multiply" else 1 / number))
        if group.kind not in (*KINDS, *ROWS) or group.weights:
            return None
        own = self.of(group.inputs[0])
        index = _index(group, own.index, self.graph.values[group.output].shape)
        return None if index is None else replace(own, index=index)

    def _scaled(self, group: Group, own: Moved) -> Moved | None:
        """Take a product with a parameter of one number for each column of a dense layer, whose weights it scales."""
        shape, root = self.graph.values[group.output].shape, own.roots[0]
        dense, names = self.makers.get(root), list(group.weights.values())
        if dense is None or len(own.roots) > 1 or root in self.scales or not self.alone(group.inputs[0], root):
            return None
        if dense.kind != "dense" or dense.relu or "activation" in dense.options or len(names) != 1:
            return None
        size = self.graph.network.params[names[0]]
        columns = self.graph.values[root].shape[-1]
        if prod(size) != columns or own.index.shape != shape or int(own.index.min(initial=0)) < 0:
            return None
        numbers = np.broadcast_to(np.arange(columns).reshape(size), shape).reshape(-1)
        order, at = np.zeros(columns, np.int64), own.index.reshape(-1) % columns
        order[at] = numbers
        if not bool((order[at] == numbers).all()):
            return None
        self.scales[root] = Scale(names[0], order)
        return own

    def alone(self, name: str, root: str) -> bool:
        """Return whether a moved value of one root, and all between them, have one reader each."""
        while name != root:
            group = self.makers[name]
            if not self.graph.used_once(name) or len(group.inputs) != 1:
                return False
            (name,) = group.inputs
        return self.graph.used_once(root)

    def number(self, group: Group) -> float | None:
        """Return the one number that an operator of one input combines it with, None if there is none.

        Without weights it is 1.
        """
        stated = group.options.get("number")
        if isinstance(stated, int | float) and not group.weights:
            return float(stated)
        if not scalar(self.graph, group):
            return None
        (name,) = group.weights.values()
        return float(np.asarray(self.weights[name]).reshape(-1)[0]) if name in self.weights else 1.0

    def _joined(self, group: Group) -> Moved | None:
        parts = [self.of(name) for name in group.inputs]
        parts = [
            part if len(part.roots) < _ROOTS and part.factor == 1.0 else self.itself(name)
            for name, part in zip(group.inputs, parts, strict=True)
        ]
        roots = tuple(dict.fromkeys(root for part in parts for root in part.roots))
        if len(roots) > 2 * _ROOTS:
            return None
        starts = dict(zip(roots, np.cumsum([0, *(self._size(root) for root in roots)]), strict=False))
        tables = []
        for part in parts:
            table, first = np.full(part.index.shape, NOTHING, np.int32), 0
            for root in part.roots:
                inside = (part.index >= first) & (part.index < first + self._size(root))
                table[inside] = part.index[inside] - first + starts[root]
                first += self._size(root)
            tables.append(table)
        return Moved(roots, np.concatenate(tables, int(group.attrs["axis"])))

    def itself(self, name: str) -> Moved:
        """Return the table of a value that has memory of its own."""
        shape = self.graph.values[name].shape
        return Moved((name,), np.arange(prod(shape), dtype=np.int32).reshape(shape))

    def _size(self, name: str) -> int:
        return prod(self.graph.values[name].shape)


def _index(group: Group, index: Array, shape: tuple[int, ...]) -> Array | None:
    options = group.options
    if group.kind == "reshape":
        return index.reshape(shape) if index.size == prod(shape) else None
    if group.kind in ROWS:
        _, channels, height, width = shape if group.kind == "rows_to_image" else index.shape
        pixels = index.reshape((1, height, width, channels)) if group.kind == "rows_to_image" else index
        turned: Array = pixels.transpose(ROWS[group.kind]).reshape(shape)
        return turned
    if group.kind == "transpose":
        return np.transpose(index, [int(axis) for axis in options["order"]])
    if group.kind == "slice":
        chosen: list[Any] = [slice(None)] * index.ndim
        for axis, begin, end, step in zip(*(options[name] for name in ("axes", "begin", "end", "step")), strict=True):
            chosen[int(axis)] = slice(int(begin), int(end), int(step))
        cut: Array = index[tuple(chosen)]
        return cut
    if group.kind == "pad":
        pads, half = [int(pad) for pad in options["pads"]], len(options["pads"]) // 2
        if options.get("value", 0.0) or min(pads) < 0 or half != index.ndim:
            return None
        made: Array = np.pad(index, list(zip(pads[:half], pads[half:], strict=True)), constant_values=NOTHING)
        return made
    indices = options.get("indices")
    return None if indices is None else np.take(index, np.asarray(indices, np.int64), int(options["axis"]))


def rows(places: Array, columns: int) -> Array | None:
    """Return the row of each row of places, whole rows of `columns` in order; None where places are no such rows."""
    if places.size % columns:
        return None
    whole = places.reshape(-1, columns)
    firsts = whole[:, 0]
    ordered = bool((firsts >= 0).all() and (firsts % columns == 0).all())
    same = ordered and bool((whole == firsts[:, None] + np.arange(columns)).all())
    return (firsts // columns).astype(np.int32) if same else None


def piece(places: Array) -> int | None:
    """Return the first of places that follow each other without a gap, None for others."""
    flat = places.reshape(-1)
    first = int(flat[0])
    ordered = first >= 0 and flat[-1] - first == flat.size - 1 and bool((np.diff(flat) == 1).all())
    return first if ordered else None


def vectors(places: Array, widest: int = 8) -> tuple[Array, int]:
    """Return places of groups of elements, in groups, and the largest size of groups that lie in one piece each."""
    flat, width = places.reshape(-1), widest
    while width > 1:
        if flat.size % width == 0:
            rows = flat.reshape(-1, width)
            firsts = rows[:, :1]
            whole = (rows == firsts + np.arange(width)) & (firsts % width == 0)
            if bool((whole.all(1) | (rows == NOTHING).all(1)).all()):
                return np.where(firsts[:, 0] < 0, NOTHING, firsts[:, 0] // width).astype(np.int32), width
        width //= 2
    return flat.astype(np.int32), 1


def strides(places: Array) -> tuple[tuple[tuple[int, int], ...], int] | None:
    """Return (size, stride) from the outermost dimension to the innermost, and the first place; None where irregular.

    places[i] = first + the sum of digit times stride, the digits being those of i in the mixed base of the sizes.
    """
    flat = places.reshape(-1).astype(np.int64)
    found: list[tuple[int, int]] = []
    first = int(flat[0])
    while flat.size > 1:
        step = int(flat[1] - flat[0])
        differs = np.flatnonzero(np.diff(flat) != step)
        size = int(differs[0]) + 1 if differs.size else flat.size
        while flat.size % size:
            size -= 1
        if size < 2 or len(found) > 6:
            return None
        rows = flat.reshape(-1, size)
        if not bool((np.diff(rows, axis=1) == step).all()):
            return None
        found.append((size, step))
        flat = rows[:, 0]
    return (tuple(reversed(found)), first) if first >= 0 and bool((places >= 0).all()) else None
