"""Arrays aligned to 64 bytes, as compiled stages require."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """Return a C-contiguous zeroed array of `shape` and `dtype` aligned to 64 bytes."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(kind).reshape(shape)
