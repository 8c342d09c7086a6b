"""Shapes and attributes of operators: a layer's attributes and the shapes of its inputs to those of its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, prod
from typing import Any

Shape = tuple[int, ...]


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _sides(padding: Any) -> tuple[int, int, int, int]:
    """Return padding as (top, left, bottom, right)."""
    if isinstance(padding, int):
        return (padding,) * 4
    sides = tuple(int(side) for side in padding)
    return (sides[0], sides[1], sides[0], sides[1]) if len(sides) == 2 else (sides[0], sides[1], sides[2], sides[3])


def _window(attrs: Mapping[str, Any], kernel: Shape) -> dict[str, float]:
    """Return the geometry common to sliding-window operators; `pad` is the largest of the four."""
    pads, (stride_h, stride_w) = _sides(attrs.get("padding", 0)), _pair(attrs.get("stride", 1))
    dilation = _pair(attrs.get("dilation", 1))
    found: dict[str, float] = {
        "kernel_h": kernel[0], "kernel_w": kernel[1], "stride_h": stride_h, "stride_w": stride_w,
        "pad": max(pads), "dilation": max(dilation),
    }  # fmt: skip
    if len(set(pads)) > 1:  # sides differ
        found |= {"pad_h": max(pads[0], pads[2]), "pad_w": max(pads[1], pads[3]), "uneven": 1}
        found |= {"pad_top": pads[0], "pad_left": pads[1]}
    if max(dilation) > 1:
        found |= {"dilation_h": dilation[0], "dilation_w": dilation[1]}
    return found


def _slid(attrs: Mapping[str, Any], size: Shape, kernel: Shape, up: bool = False) -> Shape:
    """Return height and width after sliding a window; `up`: rounded up, so a window may extend past the border."""
    pads, strides, dilation = _sides(attrs.get("padding", 0)), _pair(attrs.get("stride", 1)), attrs.get("dilation", 1)
    found = []
    for axis in (0, 1):
        span = size[axis] + pads[axis] + pads[axis + 2] - _pair(dilation)[axis] * (kernel[axis] - 1) - 1
        count = (ceil(span / strides[axis]) if up else span // strides[axis]) + 1
        # a window that would start in the padding after the image is omitted
        found.append(count - (up and (count - 1) * strides[axis] >= size[axis] + pads[axis]))
    return tuple(found)


def _conv2d(attrs: Mapping[str, Any], shape: Shape, weight: Shape) -> tuple[Shape, dict[str, float]]:
    out_channels, in_channels, *kernel = weight
    groups = int(attrs.get("groups", 1))
    channels = {"groups": groups, "in_channels": in_channels * groups, "out_channels": out_channels}
    result = (shape[0], out_channels, *_slid(attrs, shape[2:], tuple(kernel)))
    return result, {**_window(attrs, tuple(kernel)), **channels}


def _conv2d_transpose(attrs: Mapping[str, Any], shape: Shape, weight: Shape) -> tuple[Shape, dict[str, float]]:
    in_channels, out_channels, *kernel = weight
    groups = int(attrs.get("groups", 1))
    pads, strides = _sides(attrs.get("padding", 0)), _pair(attrs.get("stride", 1))
    dilation, more = _pair(attrs.get("dilation", 1)), _pair(attrs.get("output_padding", 0))
    sides = [
        (shape[2 + axis] - 1) * strides[axis]
        - pads[axis]
        - pads[axis + 2]
        + dilation[axis] * (kernel[axis] - 1)
        + 1
        + more[axis]
        for axis in (0, 1)
    ]
    channels = {"groups": groups, "in_channels": in_channels, "out_channels": out_channels * groups}
    return (shape[0], out_channels * groups, *sides), {**_window(attrs, tuple(kernel)), **channels}


def _dense(attrs: Mapping[str, Any], shape: Shape, weight: Shape) -> tuple[Shape, dict[str, float]]:
    return (*shape[:-1], weight[0]), {"in_channels": weight[1], "out_channels": weight[0]}


WEIGHTED = {"conv2d": _conv2d, "conv2d_transpose": _conv2d_transpose, "dense": _dense}
"""Shape and attributes of operators with a weight, from attributes, input shape and weight shape."""


def broadcast(one: Shape, other: Shape) -> Shape:
    """Return the shape of an element-wise operation on two shapes."""
    length = max(len(one), len(other))
    left, right = (1,) * (length - len(one)) + one, (1,) * (length - len(other)) + other
    return tuple(b if a == 1 else a if b == 1 else b if a < 0 else a for a, b in zip(left, right, strict=True))


def product(left: Shape, right: Shape) -> Shape:
    """Return the shape of a matrix product."""
    if len(left) == 1 or len(right) == 1:
        return (*left[:-1], *right[:-2], *right[len(right) - 1 :][: len(right) - 1])
    return (*broadcast(left[:-2], right[:-2]), left[-2], right[-1])


Found = tuple[Shape, dict[str, float], dict[str, Any]]


def _pool(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    kernel, (batch, channels, *size) = _pair(attrs["kernel"]), shapes[0]
    geometry = _window(attrs, kernel)
    result = (batch, channels, *_slid(attrs, tuple(size), kernel, bool(attrs.get("ceil", False))))
    return result, {**geometry, "window": geometry["kernel_h"], "in_channels": channels, "out_channels": channels}, {}


def _global_pool(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    batch, channels, height, width = shapes[0]
    geometry = {"kernel_h": height, "kernel_w": width, "window": max(height, width)}
    return (batch, channels, 1, 1), {**geometry, "in_channels": channels, "out_channels": channels}, {}


def _reduce(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    shape, axis = shapes[0], attrs["axis"]
    axes = [axis] if isinstance(axis, int) else list(axis)
    gone = {one % len(shape) for one in axes}
    kept = bool(attrs.get("keepdims", False))
    result = tuple(1 if n in gone else size for n, size in enumerate(shape) if kept or n not in gone)
    return result, reduction(shape, axes), {"axes": tuple(axes)}


def reduction(shape: Shape, axes: list[int]) -> dict[str, float]:
    """Return the attributes of a reduction: `spatial` is 1 where it is over height and width of an image, a pooling."""
    found: dict[str, float] = {"axis": axes[0], "window": prod(shape[one] for one in axes), "spatial": 0}
    if len(shape) == 4 and {one % 4 for one in axes} == {2, 3}:
        found |= {"spatial": 1, "kernel_h": shape[2], "kernel_w": shape[3]}
    return found


def _concat(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    axis = int(attrs["axis"]) % len(shapes[0])
    total = sum(shape[axis] for shape in shapes)
    return (*shapes[0][:axis], total, *shapes[0][axis + 1 :]), {"axis": int(attrs["axis"])}, {}


def _matmul(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    if len(shapes) < 2:
        return shapes[0], {}, {}
    left, right = reversed(shapes) if attrs.get("swapped") else shapes
    return product(left, right), {"in_channels": right[-2], "out_channels": right[-1]}, {}


def _slice(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    shape = list(shapes[0])
    for axis, begin, end, step in zip(attrs["axes"], attrs["begin"], attrs["end"], attrs["step"], strict=True):
        shape[axis] = len(range(*slice(begin, end, step).indices(shape[axis])))
    return tuple(shape), {}, {}


def _resize2d(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    height, width = (int(size) for size in attrs["size"])
    scales = {"scale_h": height / shapes[0][2], "scale_w": width / shapes[0][3]}
    found = {**scales, "scale": max(scales.values()), "bilinear": int(bool(attrs["bilinear"]))}
    return (*shapes[0][:2], height, width), found, {}


def _reshape(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    wanted = [shapes[0][n] if size == 0 else int(size) for n, size in enumerate(attrs["shape"])]
    if -1 in wanted and min(shapes[0], default=1) >= 0:
        wanted[wanted.index(-1)] = prod(shapes[0]) // max(-prod(wanted), 1)
    return tuple(wanted), {}, {}


def _transpose(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    return tuple(shapes[0][axis] for axis in attrs["order"]), {}, {}


def _softmax(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    axis = int(attrs["axis"]) % len(shapes[0])
    length = shapes[0][axis]
    return shapes[0], {"axis": axis, "axis_dim": length, "other_dims": prod(shapes[0]) // max(length, 1)}, {}


def _argmax(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    axis = int(attrs["axis"]) % len(shapes[0])
    kept = (1,) if attrs["keepdims"] else ()
    return (*shapes[0][:axis], *kept, *shapes[0][axis + 1 :]), {"axis": axis}, {}


def _topk(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    axis, kept = int(attrs["axis"]) % len(shapes[0]), int(attrs["k"])
    return (*shapes[0][:axis], kept, *shapes[0][axis + 1 :]), {"axis": axis, "kept": kept}, {}


def _pad(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    pads, half = attrs["pads"], len(attrs["pads"]) // 2
    return tuple(size + pads[n] + pads[n + half] for n, size in enumerate(shapes[0])), {}, {}


OTHERS: dict[str, Callable[[Mapping[str, Any], list[Shape]], Found]] = {
    "max_pool": _pool,
    "avg_pool": _pool,
    "global_avg_pool": _global_pool,
    "reduce_max": _reduce,
    "reduce_mean": _reduce,
    "reduce_sum": _reduce,
    "concat": _concat,
    "matmul": _matmul,
    "slice": _slice,
    "resize2d": _resize2d,
    "reshape": _reshape,
    "transpose": _transpose,
    "softmax": _softmax,
    "pad": _pad,
    "argmax": _argmax,
    "topk": _topk,
    "pillar_features": lambda attrs, shapes: ((shapes[0][0], shapes[0][1], 9), {}, {}),
    "scatter": lambda attrs, shapes: ((1, shapes[0][1], attrs["ny"], attrs["nx"]), {}, {}),
}
"""Shape, attributes and further fields of other operators, from attributes and input shapes."""
