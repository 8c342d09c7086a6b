"""Host stages compiled as C functions: arrays aligned to 64 bytes as they require, and their interface.

numpy is the reference and the fallback.  A stage in numpy releases and reacquires the interpreter lock dozens of times
per frame while other threads contend for it, and passes over its data again and again; a compiled stage does neither.
Results are bit-identical.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

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


Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


class CompiledStages(Protocol):
    """The compiled stages; arguments and results are those of the functions named.

    Every method returns None for arrays or settings that it does not take.
    """

    def voxelise(
        self, points: Floats, max_pillars: int, max_points: int, grid: Any, clear_fourth: bool = False
    ) -> tuple[Floats, Ints, Ints] | None:
        """Return voxels, counts and coords as `pointpillars.voxelise`; `clear_fourth`: as `centerpoint.voxelise`."""
        ...

    def decode_anchors(self, maps: Sequence[Floats], settings: Any) -> tuple[Floats, Floats, Ints, int] | None:
        """Return boxes, scores, labels and the dropped anchors as `pointpillars.decode.detect`.

        `maps` are logits, offsets and directions [kinds, values, cells].
        """
        ...

    def decode_centres(self, maps: Sequence[Floats], settings: Any) -> tuple[Floats, Floats, Ints, Floats, int] | None:
        """Return boxes, scores, labels, velocities and the dropped cells as `centerpoint.decode.detect`.

        `maps` are the head's six maps [channels, cells].
        """
        ...

    def decode_image_boxes(self, output: Floats, settings: Any) -> tuple[Floats, Floats, Ints, int] | None:
        """Return boxes, scores, labels and the dropped boxes as `camera_decode.detect`."""
        ...

    def preprocess(self, image: npt.NDArray[np.uint8], target: Any) -> npt.NDArray[Any] | None:
        """Return the network's input as `camera_image.prepare`."""
        ...
