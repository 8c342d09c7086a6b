"""GPU lowering of operators on plain tensors: softmax, layer norm, products of computed tensors, element-wise ones.

A result may be held with more columns than it has, which are zero (`Values.held`): the scores of attention, whose rows
would not start at multiples of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from socsched.compiler.environment import relax
from socsched.compiler.targets.cuda import kernels, sequence_kernels
from socsched.compiler.targets.cuda import sequence_rules as rules
from socsched.compiler.targets.cuda.schedule import schedule
from socsched.compiler.targets.cuda.sequence_kernels import PADDED, Product, tile_of
from socsched.compiler.targets.cuda.tiles import EDGE, VECTOR, round_up
from socsched.compiler.targets.llvm.fuse import activation
from socsched.graph.fusion import Group

_WIDE = 32
"""Columns of scores are rounded up to this, so that tiles of several widths fit."""


def emit(own: Any, group: Group) -> None:
    """Emit an operator on plain tensors that has a rule."""
    EMITTERS[group.kind](own, group)


def _softmax(own: Any, group: Group) -> None:
    name, factor = group.inputs[0], 1.0
    if name in own.scaled:
        name, factor = own.scaled[name]
    length = own.graph.values[name].shape[-1]
    var, source = _held(own, name)
    rows = prod(own.graph.values[name].shape[:-1])
    held = source if name in own.held else length
    args = (rows, length, source, held, factor)
    made = _by_rows(own, sequence_kernels.softmax, args, [var], (rows, held))
    _keep(own, group.output, made, held)


def _layer_norm(own: Any, group: Group) -> None:
    shape = own.graph.values[group.output].shape
    rows, length = prod(shape[:-1]), shape[-1]
    scale, shift = (np.asarray(own.weights[group.weights[role]], np.float32).reshape(-1) for role in ("weight", "bias"))
    epsilon = float(group.options["epsilon"])
    source = own.viewed(own.plain_of(group.inputs[0]), (rows, length))
    operands = [source, relax.const(scale, "float32"), relax.const(shift, "float32")]
    made = _by_rows(own, sequence_kernels.layer_norm, (rows, length, epsilon), operands, (rows, length))
    own.plain[group.output] = own.viewed(made, shape)


def _matmul(own: Any, group: Group) -> None:
    graph, result = own.graph, own.graph.values[group.output].shape
    *lead, m, n = result
    batch, k = prod(lead), graph.values[group.inputs[0]].shape[-1]
    one, other, target = rules.left(graph, group), rules.right(graph, group), rules.back(graph, group)
    if one.inside:
        left, x = k, own.viewed(own.plain_of(one.value), (m, batch * k))
    else:
        x, left = _aligned(own, one.value)
    if other.turned:
        right = round_up(max(k, left), EDGE)
        sides = (k, batch * n) if other.inside else (batch * k, n)
        args = (batch, k, n, right, other.inside)
        y = own.call(sequence_kernels.turned, args, [own.viewed(own.plain_of(other.value), sides)], (batch * n, right))
    elif other.inside:
        right, y = k, own.viewed(own.plain_of(other.value), (n, batch * k))
    else:
        y, right = _aligned(own, other.value)
    held = n if target else round_up(n, _WIDE if n > EDGE else EDGE)
    inside = other.inside and not other.turned
    shape = Product(batch, m, n, left, right, held, one.inside, inside, bool(target))
    var = own.builder.emit(
        relax.call_tir(
            _multiplying(own, shape), [x, y], relax.TensorType(shape.sides(m, held, shape.inside), "float16")
        )
    )
    if target:
        own.plain[target] = own.viewed(var, graph.values[target].shape)
    else:
        _keep(own, group.output, var, held)


def _multiplying(own: Any, shape: Product) -> Any:
    tile = tile_of(shape, own.arch)

    def make() -> Any:
        function = sequence_kernels.product(shape, tile)
        return schedule(function, tile, padded=PADDED) if own.bound else function

    return own.kernel((shape, tile), f"products_{shape.batch}x{shape.m}x{shape.n}x{shape.k}", make)


def _combined(own: Any, group: Group) -> None:
    if rules.scalar(own.graph, group):
        _by_number(own, group)
        return
    size = prod(own.graph.values[group.output].shape)
    operands = [own.viewed(own.plain_of(name), (size // VECTOR, VECTOR)) for name in group.inputs]
    pixels = size // VECTOR
    args = (pixels, pixels, pixels, VECTOR, group.kind, activation(group))
    _elementwise(own, group, own.call(kernels.combined, args, operands, (pixels, VECTOR)))


def _by_number(own: Any, group: Group) -> None:
    """Combine a tensor with one number; before a softmax a factor becomes part of it."""
    number = float(np.asarray(next(own.weights[name] for name in group.weights.values())).reshape(-1)[0])
    if rules.scales_softmax(own.graph, group):
        own.scaled[group.output] = group.inputs[0], number if group.kind == "multiply" else 1 / number
        return
    _mapped(own, group, (("by_number", group.kind, number), activation(group)))


def _unary(own: Any, group: Group) -> None:
    _mapped(own, group, (activation(group) or (group.kind,),))


def _mapped(own: Any, group: Group, steps: Any) -> None:
    size = prod(own.graph.values[group.output].shape)
    var = own.viewed(own.plain_of(group.inputs[0]), (size // VECTOR, VECTOR))
    for step in filter(None, steps):
        var = own.call(kernels.mapped, (size // VECTOR, VECTOR, step), [var], (size // VECTOR, VECTOR))
    _elementwise(own, group, var)


def _elementwise(own: Any, group: Group, var: Any) -> None:
    own.plain[group.output] = own.viewed(var, own.graph.values[group.output].shape)


def _slice(own: Any, group: Group) -> None:
    first = rules.first_of(own.graph, group)
    assert first is not None
    shape, size = own.graph.values[group.output].shape, prod(own.graph.values[group.inputs[0]].shape)
    var = own.viewed(own.plain_of(group.inputs[0]), (1, size))
    _elementwise(own, group, own.copied(var, 1, size, first, prod(shape), prod(shape)))


def _held(own: Any, name: str) -> tuple[Any, int]:
    """Return a value as rows, and its columns in memory."""
    if name in own.held:
        var, held = own.held[name]
        return var, int(held)
    *lead, columns = own.graph.values[name].shape
    return own.viewed(own.plain_of(name), (prod(lead), columns)), columns


def _aligned(own: Any, name: str) -> tuple[Any, int]:
    """Return a value as rows that start at multiples of 16 bytes, and its columns in memory."""
    var, columns = _held(own, name)
    wide = round_up(columns, VECTOR)
    if wide != columns:
        rows = prod(own.graph.values[name].shape[:-1])
        var = own.copied(var, rows, columns, 0, columns, wide)
    return var, wide


def _keep(own: Any, name: str, var: Any, held: int) -> None:
    shape = own.graph.values[name].shape
    if held == shape[-1]:
        own.plain[name] = own.viewed(var, shape)
    else:
        own.held[name] = (var, held)


def _by_rows(own: Any, make: Any, args: tuple[Any, ...], operands: list[Any], shape: tuple[int, ...]) -> Any:
    def bound() -> Any:
        function = make(*args)
        return sequence_kernels.by_rows(function, args[0]) if own.bound else function

    kernel = own.kernel((make, args), make.__name__, bound)
    return own.builder.emit(relax.call_tir(kernel, operands, relax.TensorType(shape, "float16")))


EMITTERS: dict[str, Callable[[Any, Group], None]] = {
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "matmul": _matmul,
    "slice": _slice,
    **dict.fromkeys(kernels.BINARY, _combined),
    **dict.fromkeys(rules.UNARY, _unary),
}
