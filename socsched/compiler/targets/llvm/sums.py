"""Weighted sums on plain tensors as one kernel each: of samples of images, of products whose weights repeat."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from socsched.compiler.environment import relax
from socsched.compiler.targets.llvm import kernels
from socsched.compiler.targets.llvm.images import Array, Images
from socsched.graph.index_maps import strides
from socsched.graph.weighted_sums import Pooled, in_rows, pairs_of, pixels_of


class Sums:
    """The weighted sums of a network that have a kernel, `found` by output, and what is computed `inside` them."""

    def __init__(self, images: Images) -> None:
        self.images = images
        self.moves, made = in_rows(images.graph, images.weights)
        self.found = {
            name: pool for name, pool in made.items() if pool.order.shape[1] % images.c == 0 and strides(pool.order)
        }
        self.inside = {name for pool in self.found.values() for name in pool.inside}

    def emit(self, name: str) -> None:
        """Emit a sum as one kernel that reads its operands where they are."""
        images, pool = self.images, self.found[name]
        (rows, points), channels = pool.at.shape, pool.order.shape[1]
        weights, by = images.constant(np.ones(1), images.dtype), np.zeros_like(pool.at)
        if pool.weights:
            weights, by = self._flat(pool.weights, pool.by)
        sizes = rows, points, channels // images.c, images.c
        if pool.places:
            firsts, steps = zip(*(pixels_of(self.moves, value) for value in pool.values), strict=True)
            sides = [
                (*images.graph.values[image].shape[2:], step) for image, step in zip(pool.values, steps, strict=True)
            ]
            at = [first[pool.image[:, k]] for k, first in enumerate(firsts)]
            values, grids = (self._root(operands[0]) for operands in (pool.values, pool.places))
            pairs = [
                pairs_of(self.moves, grid)[0, pool.image[:, k], pool.at[:, k]] for k, grid in enumerate(pool.places)
            ]
            tables = [np.array(sides), np.stack(at, 1), np.stack(pairs, 1), by]
            shape = kernels.Points(*sizes, *(_size(var) for var in (values, weights, grids)))
            make: Any = kernels.weighted_samples
            args: tuple[Any, ...] = (
                shape,
                bool(pool.options["align"]),
                pool.options["padding"] == "border",
                images.dtype,
            )
            operands = [values, grids, weights]
        else:
            (value,), axes = pool.values, pool.options["axes"]
            given = images.graph.values[value].shape
            others = [axis for axis in range(len(given)) if axis not in axes]
            turned = relax.op.permute_dims(images.plain_of(value), [*others, *axes])
            values = images.reshaped(images.builder.emit(turned), (prod(given),))
            tables, make = [pool.at * channels, by], kernels.weighted_rows
            args = (kernels.Points(*sizes, prod(given), _size(weights)), images.dtype)
            operands = [values, weights]
        operands += [images.constant(table, "int32") for table in tables]
        made = images.call(make, args, operands, images.type((rows, channels)))
        images.plain[name] = self._ordered(made, pool)

    def _ordered(self, made: Any, pool: Pooled) -> Any:
        """Return rows of channels as the value that they are."""
        images, found = self.images, strides(pool.order)
        assert found is not None
        order = sorted(range(len(found[0])), key=lambda axis: -found[0][axis][1])
        if order != sorted(order):
            whole = images.reshaped(made, [size for size, _ in found[0]])
            made = images.builder.emit(relax.op.permute_dims(whole, order))
        return images.reshaped(made, images.graph.values[pool.output].shape)

    def _root(self, name: str) -> Any:
        (root,) = self.moves.of(name).roots
        return self.images.reshaped(self.images.plain_of(root), (prod(self.images.graph.values[root].shape),))

    def _flat(self, name: str, numbers: Array) -> tuple[Any, Array]:
        """Return a tensor, flat, that holds elements of a value, and where."""
        moved = self.moves.of(name)
        if len(moved.roots) == 1 and moved.factor == 1.0 and int(moved.index.min()) >= 0:
            return self._root(name), moved.index.reshape(-1)[numbers]
        return self.images.reshaped(self.images.plain_of(name), (moved.index.size,)), numbers


def _size(var: Any) -> int:
    return prod(int(size) for size in var.ty.shape)
