"""Physical layouts of image tensors: shapes and conversion (numpy only)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from socsched.errors import UsageError
from socsched.graph.operators import TensorType

NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    "fp32": np.dtype(np.float32),
    "fp16": np.dtype(np.float16),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "bool": np.dtype(np.bool_),
}
_LAYOUT = re.compile(r"(?:NCHW(?:(?P<block>[1-9]\d*)c)?|(?P<nhwc>NHWC))(?:\+(?P<border>\d+))?")


@dataclass(frozen=True, slots=True)
class Layout:
    """A parsed layout name: `channels_last` or channel blocks of `block` (0 = plain), and a zero `border` in pixels."""

    block: int = 0
    border: int = 0
    channels_last: bool = False


def parse_layout(name: str) -> Layout:
    """Return the parsed form of "NCHW", "NHWC", "NCHW16c", "NCHW16c+1" ("" means NCHW); UsageError for others."""
    match = _LAYOUT.fullmatch(name or "NCHW")
    if not match:
        raise UsageError(
            f"unknown layout {name!r}", 'layouts are "NCHW", "NHWC", "NCHW16c", each with "+1" for a border'
        )
    return Layout(int(match["block"] or 0), int(match["border"] or 0), bool(match["nhwc"]))


def native_layout(tensors: tuple[TensorType, ...], layout: str) -> tuple[TensorType, ...]:
    """Return `tensors` with images in an engine's `layout`; unchanged if the layout is unknown."""
    if not layout or not _LAYOUT.fullmatch(layout):
        return tensors
    return tuple(replace(t, layout=layout) if len(t.shape) == 4 else t for t in tensors)


def physical_shape(tensor: TensorType) -> tuple[int, ...]:
    """Return the shape of the array that holds `tensor`; for anything but a 4-D image this is the logical shape.

    Channels are rounded up to whole blocks: (N, ceil(C/b), H + 2 border, W + 2 border, b).
    """
    layout = parse_layout(tensor.layout)
    if len(tensor.shape) != 4:
        return tensor.shape
    n, c, h, w = tensor.shape
    h, w = h + 2 * layout.border, w + 2 * layout.border
    if layout.channels_last:
        return (n, h, w, c)
    return (n, -(-c // layout.block), h, w, layout.block) if layout.block else (n, c, h, w)


def convert(array: np.ndarray[Any, Any], source: TensorType, target: TensorType) -> np.ndarray[Any, Any]:
    """Return `array`, laid out as `source`, in the dtype and layout of `target`; the same array if they agree.

    Raises UsageError when the logical shapes differ or `array` does not have the physical shape of `source`.
    """
    if not _compatible(source.shape, target.shape):
        raise UsageError(f"cannot convert {list(source.shape)} to {list(target.shape)}: the logical shapes differ")
    if not _compatible(physical_shape(source), array.shape):
        raise UsageError(
            f"expected an array of {list(physical_shape(source))} ({source.layout}), got {list(array.shape)}"
        )
    dtype = NUMPY_DTYPES[target.dtype]
    if len(source.shape) != 4 or parse_layout(source.layout) == parse_layout(target.layout):
        return array if array.dtype == dtype else array.astype(dtype)
    return _lay(_plain(array, source), target, dtype)


def padded(array: np.ndarray[Any, Any], *sizes: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Return an array in fp32 with the given axes zero-padded to the given sizes."""
    widths = [(0, 0)] * array.ndim
    for axis, size in sizes:
        widths[axis] = (0, size - array.shape[axis])
    return np.pad(np.asarray(array, np.float32), widths)


def _compatible(expected: tuple[int, ...], found: tuple[int, ...]) -> bool:
    """Return whether shapes agree; -1 stands for any size."""
    return len(expected) == len(found) and all(a == b or -1 in (a, b) for a, b in zip(expected, found, strict=True))


def _plain(array: np.ndarray[Any, Any], source: TensorType) -> np.ndarray[Any, Any]:
    """Return a view of the logical pixels as (N, C, H, W); blocked channels need one copy."""
    layout, channels = parse_layout(source.layout), source.shape[1]
    edge = layout.border
    inner: np.ndarray[Any, Any]
    if layout.channels_last:
        inner = array[:, edge : array.shape[1] - edge, edge : array.shape[2] - edge].transpose(0, 3, 1, 2)
        return inner
    inner = array[:, :, edge : array.shape[2] - edge, edge : array.shape[3] - edge]
    if layout.block:
        n, _, h, w, _ = inner.shape
        inner = inner.transpose(0, 1, 4, 2, 3).reshape(n, -1, h, w)
    return inner[:, :channels]


def _lay(plain: np.ndarray[Any, Any], target: TensorType, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    layout = parse_layout(target.layout)
    _, c, h, w = plain.shape
    exact = not layout.border and (not layout.block or c % layout.block == 0)
    make = np.empty if exact else np.zeros
    result = make(physical_shape(TensorType(plain.shape, target.dtype, target.layout)), dtype)
    rows, columns = slice(layout.border, layout.border + h), slice(layout.border, layout.border + w)
    if layout.channels_last:
        result[:, rows, columns] = plain.transpose(0, 2, 3, 1)
    elif layout.block:
        for block in range(result.shape[1]):
            part = plain[:, block * layout.block : (block + 1) * layout.block]
            result[:, block, rows, columns, : part.shape[1]] = part.transpose(0, 2, 3, 1)
    else:
        result[:, :, rows, columns] = plain
    return result
