"""Rules for operators other than convolutions, on blocked images where channels fill whole blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from socsched.compiler.layouts import padded
from socsched.compiler.targets.llvm import fuse, kernels
from socsched.compiler.targets.llvm.fuse import activation as activation_of
from socsched.compiler.targets.llvm.fuse import unary
from socsched.compiler.targets.llvm.images import Image
from socsched.compiler.targets.llvm.vector import Window, window_of
from socsched.errors import CompileError
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


def _mapped(images: Images, group: Group) -> Emitter | None:
    function = activation_of(group) or unary(group)
    if len(group.inputs) != 1 or not images.is_image(group.inputs[0]) or not fuse.is_known(function):
        return None

    def emit(group: Group) -> None:
        source, target = images.image_of(group.inputs[0]), _result(images, group)
        args = (source.lying, target.lying, function)
        images.images[group.output] = images.image(target, kernels.map_kernel, args, [source.var])

    return emit


def _combined(images: Images, group: Group) -> Emitter | None:
    if len(group.inputs) != 2 or not images.is_image(*group.inputs, group.output):
        return None
    shapes = [images.graph.values[name].shape for name in (*group.inputs, group.output)]
    if any(s[1] != shapes[2][1] or s[2:] not in (shapes[2][2:], (1, 1)) for s in shapes[:2]):
        return None

    def emit(group: Group) -> None:
        left, right = (images.image_of(value) for value in group.inputs)
        target = _result(images, group)
        args = (left.lying, right.lying, target.lying, group.kind, activation_of(group))
        images.images[group.output] = images.image(target, kernels.binary_kernel, args, [left.var, right.var])

    return emit


def _concat(images: Images, group: Group) -> Emitter | None:
    if group.output in images.partial:
        return lambda group: _finish_concat(images, group)
    if group.attrs["axis"] != 1 or not images.is_image(*group.inputs):
        return None
    if any(images.graph.values[name].shape[1] % images.c for name in group.inputs):
        return None

    def emit(group: Group) -> None:
        target, first, tensor = _result(images, group), 0, None
        for name in group.inputs:
            source = images.image_of(name)
            place = replace(source.lying, border=target.border, total=target.blocks, first=first)
            first += source.blocks
            args = (source.lying, place, ())
            tensor = images.into(tensor, target.lying.shape, kernels.map_kernel, args, [source.var])
        images.partial[group.output] = tensor
        _finish_concat(images, group)

    return emit


def _finish_concat(images: Images, group: Group) -> None:
    images.images[group.output] = replace(_result(images, group), var=images.partial[group.output])


def _slice(images: Images, group: Group) -> Emitter | None:
    axes, begin, end, steps = ([int(v) for v in group.options[name]] for name in ("axes", "begin", "end", "step"))
    channels = images.graph.values[group.inputs[0]].shape[1]
    if axes != [1] or steps != [1] or not images.is_image(group.inputs[0]):
        return None
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
    if group.kind == "global_avg_pool":
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
    if not images.is_image(group.inputs[0]):
        return None
    scale = (group.attrs["scale_h"], group.attrs["scale_w"])
    whole = all(s == int(s) and s >= 1 for s in scale)
    # For integer scale factors, these map every new pixel to the old pixel that contains it.
    options = group.options
    nearest = not options["bilinear"] and (options["coordinates"], options["rounding"]) in _ENLARGING
    if not (whole and nearest):
        return None

    def emit(group: Group) -> None:
        source, target = images.image_of(group.inputs[0]), _result(images, group)
        args = (source.lying, target.lying, (int(scale[0]), int(scale[1])))
        images.images[group.output] = images.image(target, kernels.resize_kernel, args, [source.var])

    return emit


_ENLARGING = (("asymmetric", "floor"), ("half_pixel", "round"), ("half_pixel", "round_prefer_floor"))


def _dense(images: Images, group: Group) -> Emitter | None:
    shapes = [images.graph.values[name].shape for name in (group.inputs[0], group.output)]
    if any(len(shape) != 2 or min(shape) < 1 for shape in shapes):
        return None

    def emit(group: Group) -> None:
        (rows, inputs), (_, outputs) = shapes
        blocks = -(-outputs // images.c)
        weight = padded(images.weights[group.weights["weight"]], (0, blocks * images.c))
        packed = weight.reshape(blocks, images.c, inputs).transpose(0, 2, 1)
        operands = [images.plain_of(group.inputs[0]), images.constant(packed, images.dtype)]
        operands.append(images.bias([group], blocks * images.c))
        args = (rows, inputs, outputs, images.c, activation_of(group), images.dtype)
        images.plain[group.output] = images.call(kernels.dense, args, operands, images.type(shapes[1]))

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
    **dict.fromkeys(("relu", "sigmoid", "tanh", "clip", "leaky_relu", "silu", "exp", "sqrt"), _mapped),
    **dict.fromkeys(_BINARY, _combined),
    **dict.fromkeys(("max_pool", "avg_pool", "global_avg_pool"), _pool),
    "concat": _concat,
    "slice": _slice,
    "resize2d": _resize,
    "dense": _dense,
    "pillar_features": _pillar_features,
    "scatter": _scatter,
}
