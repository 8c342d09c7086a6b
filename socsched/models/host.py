"""Host stages compiled as C functions: arrays aligned to 64 bytes as they require, and their interface.

numpy is the reference and the fallback.  A stage in numpy releases and reacquires the interpreter lock dozens of times
per frame while other threads contend for it, and passes over its data again and again; a compiled stage does neither.
Results are bit-identical.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64


def aligned(shape: tuple[int, ...], dtype: npt.DTypeLike, allocate: Any = np.empty) -> npt.NDArray[np.generic]:
    """Return a C-contiguous array of `shape` and `dtype` aligned to 64 bytes, uninitialised unless `allocate` does."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    raw: npt.NDArray[np.uint8] = allocate(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(kind).reshape(shape)


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """Return an array of zeros as `aligned`."""
    return aligned(shape, dtype, np.zeros)


def aligned_copy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of an array as `aligned`."""
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


CompiledStages = Callable[..., Any]
"""Takes the name of a stage of stages.h, the arrays that it reads, and what its params are made of; returns its
results in order and, of a decoder, the number of values that are not finite, or None for arrays that it does not take.
"""
