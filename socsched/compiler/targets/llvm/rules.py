"""Rules for operators other than convolutions, on blocked images where channels fill whole blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from socsched.compiler.layouts import padded
from socsched.compiler.targets.llvm import fuse, kernels
from socsched.compiler.targets.llvm.fuse import activation as activation_of
from socsched.compiler.targets.llvm.fuse import unary
from socsched.compiler.targets.llvm.images import Array, Image
from socsched.compiler.targets.llvm.vector import Product, Tile, Window, tile, window_of
from socsched.errors import CompileError
from socsched.graph.enlargements import resizes
from socsched.graph.fusion import Group

if TYPE_CHECKING:
    from socsched.compiler.targets.llvm.images import Images

Emitter = Callable[[Group], None]
_BINARY = ("add", "subtract", "multiply", "maximum", "minimum")


def find(images: Images, group: Group) -> Emitter | None:
    """Return the emitter of `group` in blocks, None if it has no rule."""
    rule = _RULES.get(group.kind)
    return rule(images, group) if rule else None


def _result(images: Images, group: Group) -> Image:
    _, channels, height, width = images.graph.values[group.output].shape
    return Image(None, channels, height, width, images.c, images.border(group.output), images.dtype)


def _blocked(images: Images, group: Group) -> bool:
    """Return whether an operand lies in blocks already: tensors of four axes that are no images never do."""
    return any(name in images.images for name in group.inputs)


def _mapped(images: Images, group: Group) -> Emitter | None:
    function = activation_of(group) or unary(group)
    if len(group.inputs) != 1 or not images.is_image(group.inputs[0]) or not fuse.is_known(function):
        return None
    if not _blocked(images, group):
        return None

    def emit(group: Group) -> None:
        source, target = images.image_of(group.inputs[0]), _result(images, group)
        args = (source.lying, target.lying, function)
        images.images[group.output] = images.image(target, kernels.map_kernel, args, [source.var])

    return emit


def _combined(images: Images, group: Group) -> Emitter | None:
    if not images.is_image(*group.inputs, group.output) or not _blocked(images, group):
        return None
    whole = images.graph.values[group.output].shape
    shapes = [images.graph.values[name].shape for name in group.inputs]
    constant = images.weights[group.weights["weight"]] if "weight" in group.weights else None
    if any(s[1] != whole[1] or s[2:] not in (whole[2:], (1, 1)) for s in shapes):
        return None
    if constant is None and len(shapes) != 2:
        return None
    if constant is not None:  # a factor or an addend a channel, which no convolution has taken up
        shape = (1, 1, 1, 1, *constant.shape)[-4:]
        if group.kind == "subtract" or shapes != [whole] or shape[1] not in (1, whole[1]) or shape[2:] != (1, 1):
            return None

    def emit(group: Group) -> None:
        operands = [images.image_of(value) for value in group.inputs]
        target = _result(images, group)
        if constant is not None:
            channels = np.broadcast_to(constant.reshape(-1), (whole[1],))
            blocked = padded(channels, (0, target.blocks * target.block)).reshape(target.blocks, 1, 1, target.block)
            operands.append(replace(target, var=images.constant(blocked, images.dtype), height=1, width=1, border=0))
        left, right = operands
        args = (left.lying, right.lying, target.lying, group.kind, activation_of(group))
        images.images[group.output] = images.image(target, kernels.binary_kernel, args, [left.var, right.var])

    return emit


def _concat(images: Images, group: Group) -> Emitter | None:
    if group.output in images.partial:
        return lambda group: _finish_concat(images, group)
    if group.attrs["axis"] != 1 or not images.is_image(*group.inputs) or not _blocked(images, group):
        return None
    if any(images.graph.values[name].shape[1] % images.c for name in group.inputs):
        return None

    def emit(group: Group) -> None:
        target, first = _result(images, group), 0
        for name in group.inputs:
            source = images.image_of(name)
            place = replace(source.lying, border=target.border, total=target.blocks, first=first)
            first += source.blocks
            args = (source.lying, place, ())
            images.into(group.output, target, kernels.map_kernel, args, [source.var])
        _finish_concat(images, group)

    return emit


def _finish_concat(images: Images, group: Group) -> None:
    images.images[group.output] = replace(_result(images, group), var=images.partial[group.output])


def _slice(images: Images, group: Group) -> Emitter | None:
    axes, begin, end, steps = ([int(v) for v in group.options[name]] for name in ("axes", "begin", "end", "step"))
    if axes != [1] or steps != [1] or not images.is_image(group.inputs[0]) or not _blocked(images, group):
        return None
    channels = images.graph.values[group.inputs[0]].shape[1]
    start, stop = (min(v + channels if v < 0 else v, channels) for v in (begin[0], end[0]))
    if start % images.c or stop % images.c:
        return None

    def emit(group: Group) -> None:
        source, target = images.image_of(group.inputs[0]), _result(images, group)
        total, first = source.blocks, start // images.c
        part = replace(source.lying, blocks=target.blocks, total=total, first=first)
        args = (part, target.lying, ())
        images.images[group.output] = images.image(target, kernels.map_kernel, args, [source.var])

    return emit


def _pool(images: Images, group: Group) -> Emitter | None:
    if not images.is_image(group.inputs[0]):
        return None
    if group.kind == "reduce_mean" and not (
        group.attrs["spatial"] and images.is_image(group.output) and _blocked(images, group)
    ):
        return None
    if group.kind in ("global_avg_pool", "reduce_mean"):
        window, average = Window((int(group.attrs["kernel_h"]), int(group.attrs["kernel_w"]))), "all"
    else:
        window, counted = window_of(group), group.options.get("count_padding", False)
        average = "" if group.kind == "max_pool" else "all" if counted else "inside"
        if window.dilation != (1, 1) or (average and group.options.get("ceil", False)):
            return None

    def emit(group: Group) -> None:
        source, target = images.image_of(group.inputs[0]), _result(images, group)
        args = (source.lying, target.lying, window, average)
        images.images[group.output] = images.image(target, kernels.pool, args, [source.var])

    return emit


def _resize(images: Images, group: Group) -> Emitter | None:
    if not resizes(images.graph, group):
        return None

    def emit(group: Group) -> None:
        source, target = images.image_of(group.inputs[0]), _result(images, group)
        residual = images.image_of(group.inputs[1]) if len(group.inputs) > 1 else None
        extra = residual.var if residual else images.constant(np.zeros((1, 1, 1, 1)), images.dtype)
        linear, mode = bool(group.options["bilinear"]), str(group.options["coordinates"])
        sides = [
            _between(*sizes, mode, linear) for sizes in ((source.height, target.height), (source.width, target.width))
        ]
        at, share = (np.concatenate([side[number] for side in sides]) for number in (0, 1))
        border = residual.border if residual else -1
        args = (source.lying, target.lying, linear, activation_of(group), border)
        operands = [source.var, images.constant(at, "int32"), images.constant(share), extra]
        images.images[group.output] = images.image(target, kernels.resize, args, operands)

    return emit


def _grid_sample(images: Images, group: Group) -> Emitter | None:
    options, (image, grid) = group.options, (images.graph.values[name].shape for name in group.inputs)
    if options["mode"] != "bilinear" or options["padding"] not in ("zeros", "border") or not _whole(images, group):
        return None

    def emit(group: Group) -> None:
        batch, channels, height, width = image
        places = grid[2] * grid[3]
        shapes = (batch, channels, height * width), (batch, 2, places)
        operands = [_rows(images, name, shape) for name, shape in zip(group.inputs, shapes, strict=True)]
        args = (image, places, bool(options["align"]), options["padding"] == "border", images.dtype)
        _leave(images, group, kernels.grid_sample, args, operands, (batch, channels, places))

    return emit


def _between(given: int, made: int, mode: str, linear: bool) -> tuple[Array, Array]:
    """Return the two old pixels that each new one lies between along an axis [made, 2], and the share of the second."""
    at, scale = np.arange(made, dtype=np.float64), given / made
    if not linear:  # by whole factors only
        return np.repeat((at * scale).astype(np.int64)[:, None], 2, 1), np.zeros(made)
    if mode == "align_corners":
        place = at * ((given - 1) / (made - 1)) if made > 1 else at * 0.0
    elif mode == "asymmetric" or (mode == "pytorch_half_pixel" and made == 1):
        place = at * scale
    else:
        place = (at + 0.5) * scale - 0.5
    place = np.clip(place, 0, given - 1)
    first = np.floor(place).astype(np.int64)
    return np.stack([first, np.minimum(first + 1, given - 1)], 1), place - first


def _rows_to_image(images: Images, group: Group) -> Emitter | None:
    _, channels, height, width = images.graph.values[group.output].shape
    if channels % images.c:
        return None

    def emit(group: Group) -> None:
        target, rows = _result(images, group), (height * width, channels)
        operands = [_rows(images, group.inputs[0], rows)]
        images.images[group.output] = images.image(target, kernels.rows_to_image, (target.lying,), operands)

    return emit


def _image_to_rows(images: Images, group: Group) -> Emitter | None:
    _, channels, height, width = images.graph.values[group.inputs[0]].shape
    if channels % images.c or not _blocked(images, group):
        return None

    def emit(group: Group) -> None:
        source = images.image_of(group.inputs[0])
        _leave(images, group, kernels.image_to_rows, (source.lying,), [source.var], (height * width, channels))

    return emit


_PARTS = 4
"""Tasks that the rows of a group of columns are divided into at most."""
_ROWS = 64
"""Rows of a task at least."""


def _dense(images: Images, group: Group) -> Emitter | None:
    graph = images.graph
    given, made = (graph.values[name].shape for name in (group.inputs[0], group.output))
    first = graph.operations[group.output].weight_first if group.output in graph.operations else False
    if len(group.inputs) != 1 or first or min((*given, *made), default=0) < 1 or len(given) != len(made):
        return None
    size = images.weights[group.weights["weight"]].shape
    if prod(size) != prod(size[-2:]):  # a matrix for each of the batch
        return None

    def emit(group: Group) -> None:
        weight = images.weights[group.weights["weight"]].reshape(size[-2:])
        weight = weight if "untransposed" in group.options else weight.T
        rows, (inputs, columns) = prod(given[:-1]), weight.shape
        lanes = _lanes(images, columns)
        chosen = _tile(images, lanes, columns, rows)
        sizes = Product(1, rows, inputs, columns, lanes, packed=True, biased="bias" in group.weights)
        n = lanes * chosen.blocks
        starts = [min(g * n, columns - n) for g in range(-(-columns // n))]
        packed = np.stack([weight[:, start : start + n] for start in starts])
        bias = images.raw_bias(group) if sizes.biased else np.zeros(1, np.float32)
        operands = [_rows(images, group.inputs[0], (1, rows, inputs)), images.constant(packed, images.dtype)]
        args = (sizes, chosen, _parts(rows), activation_of(group), images.dtype)
        _leave(images, group, kernels.product, args, [*operands, images.constant(bias)], (1, rows, columns))

    return emit


def _matmul(images: Images, group: Group) -> Emitter | None:
    shapes = [images.graph.values[name].shape for name in (*group.inputs, group.output)]
    if len(group.inputs) != 2 or any(len(shape) < 2 or min(shape) < 1 for shape in shapes):
        return None
    left, right, made = shapes
    ranks = len(left) == len(right) == len(made)
    if not ranks or left[:-2] != made[:-2] or not _whole(images, group):
        return None
    # Matrices on the right may serve several on the left, along the last axes of the batch.
    kept = next((n for n in range(len(right) - 2, -1, -1) if right[:n] == left[:n]), 0)
    if any(size != 1 for size in right[kept:-2]):
        return None

    def emit(group: Group) -> None:
        (rows, inputs), columns = left[-2:], right[-1]
        batch, lanes = prod(left[:-2]), _lanes(images, columns)
        sizes = Product(batch, rows, inputs, columns, lanes, shared=prod(left[kept:-2]))
        operands = [
            _rows(images, group.inputs[0], (batch, rows, inputs)),
            _rows(images, group.inputs[1], (prod(right[:-2]), inputs, columns)),
            images.constant(np.zeros(1, np.float32)),
        ]
        parts = 1 if batch >= _PARTS else _parts(rows)
        args = (sizes, _tile(images, lanes, columns, rows), parts, activation_of(group), images.dtype)
        _leave(images, group, kernels.product, args, operands, (batch, rows, columns))

    return emit


def _lanes(images: Images, columns: int) -> int:
    """Return the columns in a register: a block of channels, or the largest power of two that there are columns for."""
    return min(images.c, 1 << (columns.bit_length() - 1))


def _tile(images: Images, lanes: int, columns: int, rows: int) -> Tile:
    blocks = columns // lanes
    return tile(images.vector, blocks + blocks % 2 * (blocks > 1 and columns % lanes > 0), rows)


def _parts(rows: int) -> int:
    return max(1, min(_PARTS, rows // _ROWS))


def _rows(images: Images, value: str, shape: tuple[int, ...]) -> Any:
    return images.reshaped(images.plain_of(value), shape)


def _leave(images: Images, group: Group, make: Any, args: Any, operands: Any, shape: tuple[int, ...]) -> None:
    made = images.call(make, args, operands, images.type(shape))
    images.plain[group.output] = images.reshaped(made, images.graph.values[group.output].shape)


def _whole(images: Images, group: Group) -> bool:
    """Return whether all tensors of an operator are numbers of known sizes."""
    kinds = [images.graph.values[name] for name in (*group.inputs, group.output)]
    return all(kind.dtype == "fp32" and min(kind.shape, default=0) > 0 for kind in kinds)


def _softmax(images: Images, group: Group) -> Emitter | None:
    shape = images.graph.values[group.output].shape
    if int(group.attrs["axis"]) % len(shape) != len(shape) - 1 or not _whole(images, group):
        return None

    def emit(group: Group) -> None:
        flat = (prod(shape[:-1]), shape[-1])
        operands = [_rows(images, group.inputs[0], flat)]
        _leave(images, group, kernels.softmax, (*flat, images.c, images.dtype), operands, flat)

    return emit


def _layer_norm(images: Images, group: Group) -> Emitter | None:
    shape = images.graph.values[group.output].shape
    if set(group.weights) != {"weight", "bias"} or not _whole(images, group):
        return None

    def emit(group: Group) -> None:
        axis = int(group.attrs["axis"]) % len(shape)
        flat = (prod(shape[:axis]), prod(shape[axis:]))
        operands = [_rows(images, group.inputs[0], flat)]
        operands += [images.constant(images.weights[group.weights[role]].reshape(-1)) for role in ("weight", "bias")]
        args = (*flat, float(group.options["epsilon"]), images.c, images.dtype)
        _leave(images, group, kernels.layer_norm, args, operands, flat)

    return emit


def _pillar_features(images: Images, group: Group) -> Emitter | None:
    if "weight" not in group.weights:
        return None

    def emit(group: Group) -> None:
        slots = images.graph.values[group.inputs[0]].shape[1]
        channels = int(group.attrs["out_channels"])
        lanes = next(n for n in (images.vector.lanes, 4, 1) if channels % n == 0)
        weight = images.weights[group.weights["weight"]].T
        args = (slots, channels, lanes, group.options["pillar"], *group.options["origin"], images.dtype)
        operands = [images.plain[value] for value in group.inputs]
        operands += [images.constant(weight, images.dtype), images.constant(images.raw_bias(group), images.dtype)]
        result = images.type([images.dynamic, channels])
        images.plain[group.output] = images.call(kernels.pillar_net, args, operands, result)

    return emit


def _scatter(images: Images, group: Group) -> Emitter | None:
    def emit(group: Group) -> None:
        channels = images.graph.values[group.output].shape[1]
        if channels % images.c:
            raise CompileError(f"{group.name}: {channels} channels do not fill blocks of {images.c}")
        target = _result(images, group)
        args = (target.lying,)
        operands = [images.plain[value] for value in group.inputs]
        images.images[group.output] = images.image(target, kernels.scatter, args, operands)

    return emit


_RULES: dict[str, Callable[[Any, Group], Emitter | None]] = {
    **dict.fromkeys(
        ("relu", "sigmoid", "tanh", "clip", "leaky_relu", "silu", "gelu", "exp", "sqrt", *fuse.GATES), _mapped
    ),
    **dict.fromkeys(_BINARY, _combined),
    **dict.fromkeys(("max_pool", "avg_pool", "global_avg_pool", "reduce_mean"), _pool),
    "concat": _concat,
    "slice": _slice,
    "resize2d": _resize,
    "grid_sample": _grid_sample,
    "rows_to_image": _rows_to_image,
    "image_to_rows": _image_to_rows,
    "dense": _dense,
    "matmul": _matmul,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "pillar_features": _pillar_features,
    "scatter": _scatter,
}
