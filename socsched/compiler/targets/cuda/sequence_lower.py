"""GPU lowering of operators on plain tensors: attention, softmax, layer norm, products, element-wise ones.

A result may be held with more columns than it has, which are zero (`Values.held`): the scores of attention, whose rows
would not start at multiples of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from socsched.compiler.environment import relax
from socsched.compiler.targets.cuda import kernels, recurrent, sequence_kernels
from socsched.compiler.targets.cuda import sequence_rules as rules
from socsched.compiler.targets.cuda.attention import attention_kernel
from socsched.compiler.targets.cuda.schedule import schedule
from socsched.compiler.targets.cuda.sequence_kernels import PADDED, AttentionShape, Product, tile_of
from socsched.compiler.targets.cuda.tiles import EDGE, VECTOR, round_up
from socsched.compiler.targets.llvm.fuse import activation
from socsched.errors import CompileError
from socsched.graph import index_maps, weighted_sums
from socsched.graph.epilogues import scalar
from socsched.graph.fusion import Group
from socsched.graph.index_maps import NOTHING

_WIDE = 32
"""Columns of scores are rounded up to this, so that tiles of several widths fit."""


def emit(own: Any, group: Group) -> None:
    """Emit an operator on plain tensors that has a rule."""
    EMITTERS[group.kind](own, group)


def _softmax(own: Any, group: Group) -> None:
    shape = own.graph.values[group.output].shape
    if int(group.attrs["axis"]) not in (-1, len(shape) - 1):
        _softmax_across(own, group, int(group.attrs["axis"]))
        return
    name, factor = _unscaled(own, group.inputs[0])
    length = own.graph.values[name].shape[-1]
    var, source = _held(own, name)
    rows = prod(own.graph.values[name].shape[:-1])
    held = source if name in own.held else length
    args = (rows, length, source, held, factor)
    made = _by_rows(own, sequence_kernels.softmax, args, [var], (rows, held))
    _keep(own, group.output, made, held)


def _softmax_across(own: Any, group: Group, axis: int) -> None:
    """Emit a softmax over another than the last axis: a thread to each sum, neighbours read neighbours."""
    shape = own.graph.values[group.output].shape
    wanted = weighted_sums.in_front(shape, (axis,))
    length, count = wanted.shape
    var = own.call(sequence_kernels.softmax_across, wanted.shape, [own.arranged(group.inputs[0], wanted)], wanted.shape)
    order = np.empty(length * count, np.int32)
    order[wanted.reshape(-1)] = np.arange(length * count, dtype=np.int32)
    own.ordered[group.output] = var, order


def _reduce_sum(own: Any, group: Group) -> None:
    wanted = weighted_sums.in_front(own.graph.values[group.inputs[0]].shape, own.graph.operations[group.output].axes)
    var = own.call(sequence_kernels.sums, wanted.shape, [own.arranged(group.inputs[0], wanted)], wanted.shape[1:])
    _elementwise(own, group, var)


def _unscaled(own: Any, name: str) -> tuple[str, float]:
    """Return the value that this one is a multiple of, and the factor."""
    moved = own.moves.found.get(name)
    if moved is None or len(moved.roots) > 1 or moved.factor == 1.0 or index_maps.piece(moved.index) != 0:
        return name, 1.0
    root = moved.roots[0]
    same = own.graph.values[root].shape == own.graph.values[name].shape
    return (root, moved.factor) if same and root not in own.images else (name, 1.0)


def _layer_norm(own: Any, group: Group) -> None:
    shape = own.graph.values[group.output].shape
    rows, length = prod(shape[:-1]), shape[-1]
    scale, shift = (np.asarray(own.weights[group.weights[role]], np.float32).reshape(-1) for role in ("weight", "bias"))
    epsilon = float(group.options["epsilon"])

    def later(order: Any) -> Any:
        source = own.viewed(own.plain_of(group.inputs[0]), (rows, length))
        moved = order is not None and (len(order) != rows or bool((order != np.arange(rows)).any()))
        places = order if moved else np.zeros(1, np.int32)
        operands = [source, *(relax.const(one, "float32") for one in (scale, shift)), relax.const(places, "int32")]
        count = len(places) if moved else rows
        args = (count, length, epsilon, rows, moved)
        return _by_rows(own, sequence_kernels.layer_norm, args, operands, (count, length))

    own.deferred[group.output] = later


def _matmul(own: Any, group: Group) -> None:
    *lead, m, n = own.graph.values[group.output].shape
    held = round_up(n, _WIDE if n > EDGE else EDGE)
    first = own.graph.operations[group.output].weight_first
    sides: list[str | None] = [*group.inputs]
    if group.weights:
        sides.insert(0 if first else 1, None)

    def rows(turned: bool) -> tuple[Any, int]:
        name = sides[turned]
        if name is not None:
            return _rows_of(own, name, tuple(lead), turned)
        numbers = np.asarray(own.weights[group.weights["weight"]], np.float16)
        return _constant_rows(numbers.swapaxes(-1, -2) if turned else numbers, tuple(lead))

    (x, left), (y, right) = rows(False), rows(True)
    k = int(group.attrs["in_channels"]) if group.weights else own.graph.values[group.inputs[0]].shape[-1]
    batch = prod(lead)
    if min(left, right) < k or (left != right and min(left, right) != k):
        raise CompileError(f"{group.name}: rows of {left} and {right} columns do not meet", "report this network")
    shape = Product(batch, m, n, left, right, held)
    made = relax.TensorType((batch * m, held), "float16")
    var = own.builder.emit(relax.call_tir(_multiplying(own, shape), [x, y], made))
    _keep(own, group.output, var, held)


def _constant_rows(numbers: np.ndarray[Any, Any], lead: tuple[int, ...]) -> tuple[Any, int]:
    rows = np.zeros((*lead, numbers.shape[-2], round_up(numbers.shape[-1], VECTOR)), np.float16)
    rows[..., : numbers.shape[-1]] = numbers
    return relax.const(rows.reshape(-1, rows.shape[-1]), "float16"), rows.shape[-1]


def _rows_of(own: Any, name: str, lead: tuple[int, ...], turned: bool) -> tuple[Any, int]:
    """Return an operand of a product as rows along its sums, repeated for all of a batch, and their columns in memory.

    Further columns are zeros.
    """
    shape = own.graph.values[name].shape
    if name in own.held and not turned and shape[:-2] == lead:
        var, columns = own.held[name]
        return var, int(columns)
    numbers = np.arange(prod(shape), dtype=np.int32).reshape(shape)
    numbers = numbers.swapaxes(-1, -2) if turned else numbers
    rows, columns = numbers.shape[-2:]
    wanted = np.full((*lead, rows, round_up(columns, VECTOR)), NOTHING, np.int32)
    wanted[..., :columns] = numbers
    return own.arranged(name, wanted.reshape(-1, wanted.shape[-1])), wanted.shape[-1]


def attention(own: Any, found: rules.Attention) -> None:
    """Emit an attention as one kernel that reads its operands where they are; its result lies by rows, then heads."""
    graph, shape = own.graph, own.graph.values[found.output].shape
    *lead, rows, width = shape
    batch, length = prod(lead), graph.values[found.values].shape[-2]
    operands, factor = [], found.factor
    places: list[Any] = []
    for name, turned in ((found.query, False), (found.keys, True), (found.values, False)):
        var, where, own_factor = _heads_of(own, name, turned, width)
        factor *= own_factor if name != found.values else 1.0
        operands.append(var)
        places.append(where)
    bias = _bias(own, found, batch, rows, length)
    heads = lead[-1]
    size = AttentionShape(batch, heads, rows, length, width, 0 if bias is None else len(bias), factor)
    steps = tuple(where.step for where in places)
    tables = [relax.const(where.firsts, "int32") for where in places]
    bias = np.zeros(sequence_kernels.bias_table(size), np.float16) if bias is None else bias
    sizes = tuple(prod(int(side) for side in var.ty.shape) for var in operands)
    flat = [own.viewed(var, (count,)) for var, count in zip(operands, sizes, strict=True)]
    args = (size, steps, sizes)

    def make() -> Any:
        return attention_kernel(*args, own.arch, own.sms) if own.bound else sequence_kernels.attention(*args)

    kernel = own.kernel((attention, args), "attention", make)
    made = relax.TensorType((batch * rows, width), "float16")
    var = own.builder.emit(relax.call_tir(kernel, [*flat, *tables, relax.const(bias, "float16")], made))
    outer = batch // heads
    order = np.arange(batch * rows * width, dtype=np.int32).reshape(outer, rows, heads, width).transpose(0, 2, 1, 3)
    own.ordered[found.output] = var, order.reshape(-1)


def pooled(own: Any, found: weighted_sums.Pooled) -> None:
    """Emit a weighted sum as one kernel that reads tensors where they are; its result lies by rows of channels."""
    rows, points = found.at.shape
    channels, one = found.order.shape[1], np.zeros((rows, points), np.int32)
    (weights, size), (by,) = _in_one(own, (found.weights,), (found.by,)) if found.weights else (
        (relax.const(np.ones(1, np.float16), "float16"), 1), (one,)
    )  # fmt: skip
    if found.places:
        names, each = tuple(dict.fromkeys(found.values)), []
        shapes = {name: own.graph.values[name].shape for name in names}
        pixels = [
            np.arange(prod(shape), dtype=np.int32).reshape(shape[0], channels, -1).swapaxes(1, 2)
            for shape in shapes.values()
        ]
        (values, count), places = _in_one(own, names, pixels)
        heads: list[Any] = [_regular(place) for place in places]
        if not all(heads):
            (values, count), places = _in_one(own, names, pixels, copied=True)
            heads = [_regular(place) for place in places]
        firsts = dict(zip(names, heads, strict=True))
        sides = np.array([(*shapes[name][2:], firsts[name].step // VECTOR) for name in found.values], np.int32)
        at = np.stack([firsts[name].firsts[found.image[:, k]] for k, name in enumerate(found.values)], 1) // VECTOR
        for k, grid in enumerate(found.places):
            side = prod(own.graph.values[grid].shape[2:])
            each.append((found.image[:, k] * 2 * side + found.at[:, k])[:, None] + np.array((0, side)))
        (grids, length), pairs = _in_one(own, found.places, each)
        if not all(bool((pair[:, 1] == pair[:, 0] + 1).all()) for pair in pairs):
            (grids, length), pairs = _in_one(own, found.places, each, copied=True)
        tables = [sides, at, np.stack([pair[:, 0] for pair in pairs], 1), by]
        shape = sequence_kernels.Points(rows, points, channels, count, size, length)
        args: tuple[Any, ...] = (shape, bool(found.options["align"]), found.options["padding"] == "border")
        kernel: Any = sequence_kernels.sampled
        operands = [values, grids, weights]
    else:
        name = found.values[0]
        order = weighted_sums.in_front(own.graph.values[name].shape, found.options["axes"]).T
        (values, count), (places,) = _in_one(own, (name,), (order,))
        if _regular(places[None]) is None:
            (values, count), (places,) = _in_one(own, (name,), (order,), copied=True)
        tables = [places[:, 0][found.at] // VECTOR, by]
        args = (sequence_kernels.Points(rows, points, channels, count, size),)
        kernel, operands = sequence_kernels.pooled, [values, weights]
    operands += [relax.const(np.ascontiguousarray(table, np.int32), "int32") for table in tables]
    var = own.call(kernel, args, operands, (rows, channels))
    order = np.empty(found.order.size, np.int32)
    order[found.order.reshape(-1)] = np.arange(order.size, dtype=np.int32)
    own.ordered[found.output] = var, order


def _in_one(own: Any, names: Any, orders: Any, copied: bool = False) -> tuple[tuple[Any, int], list[Any]]:
    """Return a tensor that holds elements of several values, flat, and its size; the places of those there.

    `orders`: the numbers of the elements in each value.  It is the tensor that holds all of them, where there is one;
    otherwise, and where they shall be `copied`, they are copied, in this order.
    """
    if not copied:
        made = [own.placed(name) for name in names]
        sources = {id(var): (var, size) for held, _, _ in made for var, size in held}
        if len(sources) == 1 and all(factor == 1.0 for _, _, factor in made):
            ((var, size),) = sources.values()
            return (own.viewed(var, (size,)), size), [
                places.reshape(-1)[order] for (_, places, _), order in zip(made, orders, strict=True)
            ]
    parts = [own.arranged(name, np.ascontiguousarray(order)) for name, order in zip(names, orders, strict=True)]
    sizes, starts = tuple(order.size for order in orders), [0]
    for size in sizes:
        starts.append(round_up(starts[-1] + size, VECTOR))
    places = [start + np.arange(size, dtype=np.int32) for start, size in zip(starts, sizes, strict=False)]
    if len(parts) == 1:
        var = own.viewed(parts[0], sizes)
    else:
        whole = np.full(starts[-1], NOTHING, np.int32)
        for place in places:
            whole[place] = place
        groups, width = index_maps.vectors(whole)
        flat = [own.viewed(part, (size,)) for part, size in zip(parts, sizes, strict=True)]
        table = relax.const(groups, "int32")
        var = own.call(kernels.picked, (sizes, None, groups.size, width, 1.0), [*flat, table], (groups.size, 1, width))
        var = own.viewed(var, (starts[-1],))
    return (var, starts[-1] if len(parts) > 1 else sizes[0]), [
        place.reshape(order.shape) for place, order in zip(places, orders, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Heads:
    """Where matrices of a batch begin in a tensor, and the step from row to row."""

    firsts: np.ndarray[Any, Any]
    step: int


def _heads_of(own: Any, name: str, turned: bool, width: int) -> tuple[Any, _Heads, float]:
    """Return the tensor with matrices whose rows lie in one piece each, where they are, and a factor."""
    shape = own.graph.values[name].shape
    sources, places, factor = own.placed(name)
    if turned:
        places = places.swapaxes(-1, -2)
    places = places.reshape(-1, *places.shape[-2:])
    where = _regular(places)
    if len(sources) > 1 or where is None:
        numbers = np.arange(prod(shape), dtype=np.int32).reshape(shape)
        numbers = (numbers.swapaxes(-1, -2) if turned else numbers).reshape(-1, width)
        var, count = own.arranged(name, numbers), places.shape[1]
        firsts = np.arange(len(places), dtype=np.int32) * count * width
        return var, _Heads(firsts, width), 1.0
    return sources[0][0], where, factor


def _regular(places: np.ndarray[Any, Any]) -> _Heads | None:
    """Return where matrices [.., rows, columns] of places are, None if the kernel cannot read them so."""
    firsts = places[:, 0, 0]
    step = int(places[0, 1, 0] - firsts[0]) if places.shape[1] > 1 else places.shape[2]
    rows, columns = np.arange(places.shape[1]), np.arange(places.shape[2])
    regular = firsts[:, None, None] + rows[:, None] * step + columns
    whole = step > 0 and step % VECTOR == 0 and bool((firsts >= 0).all() and (firsts % VECTOR == 0).all())
    return _Heads(firsts.astype(np.int32), step) if whole and bool((places == regular).all()) else None


def _bias(own: Any, found: rules.Attention, batch: int, rows: int, length: int) -> Any:
    """Return what is added to the scores [some of the batch, rows, columns], which repeats along the batch; None if
    nothing is.
    """
    if not found.biases:
        return None
    total = np.zeros((batch, rows, length), np.float32)
    for bias in found.biases:
        weight = np.asarray(own.weights[bias.weight], np.float32)
        total += (np.broadcast_to(weight, bias.shape) * bias.factor).reshape(total.shape)
    period = next(count for count in range(1, batch + 1) if batch % count == 0 and _repeats(total, count))
    table = np.zeros((period, rows, round_up(length, VECTOR)), np.float16)
    table[:, :, :length] = np.clip(total[:period], -60000, 60000)
    return table


def _repeats(total: np.ndarray[Any, Any], count: int) -> bool:
    return bool((total.reshape(-1, count, *total.shape[1:]) == total[:count]).all())


def _multiplying(own: Any, shape: Product) -> Any:
    tile = tile_of(shape, own.arch)

    def make() -> Any:
        function = sequence_kernels.product(shape, tile)
        return schedule(function, tile, padded=PADDED) if own.bound else function

    return own.kernel((shape, tile), f"products_{shape.batch}x{shape.m}x{shape.n}x{shape.k}", make)


def _combined(own: Any, group: Group) -> None:
    if scalar(own.graph, group):
        number = float(np.asarray(next(own.weights[name] for name in group.weights.values())).reshape(-1)[0])
        _mapped(own, group, (("by_number", group.kind, number), activation(group)))
        return
    size = own.graph.values[group.output].shape
    pixels = prod(size) // VECTOR

    def operand(name: str) -> Any:
        shape = own.graph.values[name].shape
        if shape == size:
            return own.viewed(own.plain_of(name), (pixels, VECTOR))
        numbers = np.broadcast_to(np.arange(prod(shape), dtype=np.int32).reshape(shape), size)
        return own.arranged(name, numbers.reshape(pixels, VECTOR))

    def constant(name: str, shape: tuple[int, ...]) -> Any:
        whole = np.broadcast_to(own.weights[name], shape).astype(np.float16)
        return relax.const(np.ascontiguousarray(whole).reshape(pixels, VECTOR), "float16")

    operands = own.sides(group, [operand(name) for name in group.inputs], constant)
    args = (pixels, pixels, pixels, VECTOR, group.kind, activation(group))
    _elementwise(own, group, own.call(kernels.combined, args, operands, (pixels, VECTOR)))


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


def _recurrent(own: Any, group: Group) -> None:
    size = group.options["size"]
    given = own.viewed(own.plain_of(group.inputs[0]), (size.steps * size.batch * size.gates * size.hidden,))
    weights, bias, first = recurrent.constants(group, own.weights, size)
    operands = [given, relax.const(weights, "float16"), relax.const(bias, "float32"), relax.const(first, "float32")]

    def make() -> Any:
        return recurrent.recurrent_kernel(size) if own.bound else recurrent.loops(size)

    kernel = own.kernel((recurrent, size), "recurrent", make)
    made = relax.TensorType((size.steps * size.batch * size.hidden,), "float16")
    _elementwise(own, group, own.builder.emit(relax.call_tir(kernel, operands, made)))


def _held(own: Any, name: str) -> tuple[Any, int]:
    """Return a value as rows, and its columns in memory."""
    if name in own.held:
        var, held = own.held[name]
        return var, int(held)
    *lead, columns = own.graph.values[name].shape
    return own.viewed(own.plain_of(name), (prod(lead), columns)), columns


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
    "reduce_sum": _reduce_sum,
    "layer_norm": _layer_norm,
    **dict.fromkeys(("matmul", "dense"), _matmul),
    "recurrent": _recurrent,
    **dict.fromkeys(kernels.BINARY, _combined),
    **dict.fromkeys(rules.UNARY, _unary),
}
