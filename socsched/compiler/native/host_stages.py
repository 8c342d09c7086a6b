"""Host stages compiled from stages/*.c, as `models.host` describes them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.compiler.native import stage_params
from socsched.compiler.native.compilers import SOURCES, build_shared_object
from socsched.models.camera import CLASSES, OUTPUTS
from socsched.models.camera_image import PRECISIONS
from socsched.models.centerpoint.network import MAPS
from socsched.models.host import CompiledStages, Floats, Ints, aligned, aligned_copy
from socsched.models.pointpillars.boxes import PER_CELL, map_shape

STAGES = ("voxelise", "decode_anchors", "decode_centres", "decode_image_boxes", "preprocess")
_ROOM = 1 << 20
"""Granularity in bytes of the memory kept for voxels."""
_ANCHORS = ((PER_CELL, 3), (PER_CELL, 7), (PER_CELL, 2))


@cache
def compiled_stages() -> CompiledStages | None:
    """Return the stages compiled for this machine, None if that is not possible."""
    found = build_shared_object(*SOURCES)
    return None if found is None else NativeStages(found)


class NativeStages:
    """Stages in C; every thread has its own workspace.

    Memory for voxels is recycled: it is reused when no array refers to it any longer.
    """

    def __init__(self, code: ctypes.CDLL) -> None:
        self._free: dict[int, list[Any]] = {}
        self._local = threading.local()
        self._stages = {name: getattr(code, f"socsched_{name}") for name in STAGES}
        self._sizes = {name: getattr(code, f"socsched_{name}_workspace") for name in STAGES}
        for name in STAGES:
            self._stages[name].restype, self._sizes[name].restype = ctypes.c_int64, ctypes.c_size_t

    def voxelise(
        self, points: Floats, max_pillars: int, max_points: int, grid: Any, clear_fourth: bool = False
    ) -> tuple[Floats, Ints, Ints] | None:
        """Return voxels, counts and coords of points[N, 4]; None unless they are float32 and C-contiguous."""
        if points.dtype != np.float32 or not points.flags.c_contiguous or points.shape[1:] != (4,):
            return None
        params = stage_params.voxelise(grid, max_pillars, max_points, clear_fourth)
        most = min(max_pillars, len(points), grid.cells[0] * grid.cells[1])
        voxels = self._lent(most * max_points * 16).view(np.float32).reshape(most, max_points, 4)
        counts, coords = self._scratch("counts", (most,), np.int32), self._scratch("coords", (most, 2), np.int32)
        count = self._run("voxelise", params, points, ctypes.c_int64(len(points)), voxels, counts, coords)
        return None if count is None else (voxels[:count], aligned_copy(counts[:count]), aligned_copy(coords[:count]))

    def decode_anchors(self, maps: Sequence[Floats], settings: Any) -> tuple[Floats, Floats, Ints, int] | None:
        """Return boxes, scores, labels and the number of dropped anchors."""
        rows, columns = map_shape(settings.grid)
        if [array.shape for array in maps] != [(*shape, rows * columns) for shape in _ANCHORS]:
            return None
        most = min(settings.max_boxes, 3 * settings.candidates, 3 * PER_CELL * rows * columns)
        return self._decode("decode_anchors", stage_params.decode_anchors(settings), maps, most, 7)

    def decode_centres(self, maps: Sequence[Floats], settings: Any) -> tuple[Floats, Floats, Ints, Floats, int] | None:
        """Return boxes, scores, labels, velocities and the number of dropped cells."""
        cells = settings.grid.cells[0] * settings.grid.cells[1]
        if [array.shape for array in maps] != [(channels, cells) for _, channels in MAPS]:
            return None
        most = min(settings.max_boxes, settings.candidates, cells)
        return self._decode("decode_centres", stage_params.decode_centres(settings), maps, most, 7, 2)

    def decode_image_boxes(self, output: Floats, settings: Any) -> tuple[Floats, Floats, Ints, int] | None:
        """Return boxes, scores, labels and the number of dropped boxes of a map [40, rows, columns] in float32."""
        rows, columns = output.shape[-2:]
        if output.dtype != np.float32 or output.size != OUTPUTS * rows * columns:
            return None
        most = min(settings.max_boxes, settings.candidates, OUTPUTS // (5 + CLASSES) * rows * columns)
        params = stage_params.decode_image_boxes(settings, rows, columns)
        return self._decode("decode_image_boxes", params, [output], most, 4)

    def preprocess(self, image: npt.NDArray[np.uint8], target: Any) -> npt.NDArray[Any] | None:
        """Return the network's input; None for an image that is not of the target's format or not C-contiguous."""
        form = stage_params.image_form(image, target) if image.flags.c_contiguous else None
        if form is None:
            return None
        shape = (1, 3, target.height, target.width) if target.layout == "NCHW" else (1, target.height, target.width, 3)
        result = aligned(shape, PRECISIONS[target.precision])
        params = stage_params.preprocess(target, *form)
        rows = (ctypes.c_int32(0), ctypes.c_int32(target.height))
        return None if self._run("preprocess", params, image, result, *rows) is None else result

    def _decode(
        self, name: str, params: Any, maps: Sequence[Floats], most: int, *columns: int
    ) -> tuple[Any, ...] | None:
        """Return boxes, scores, labels, further outputs (of `columns` values each) and the dropped number."""
        arrays = [np.ascontiguousarray(array, np.float32) for array in maps]
        boxes, *others = (np.empty((most, width), np.float32) for width in columns)
        scores, labels, dropped = np.empty(most, np.float32), np.empty(most, np.int32), ctypes.c_int64()
        results = [boxes, scores, labels, *others]
        count = self._run(name, params, *arrays, *results, ctypes.byref(dropped))
        return None if count is None else (*(array[:count] for array in results), dropped.value)

    def _run(self, name: str, params: Any, *arguments: Any) -> int | None:
        """Return the count of a stage; None if it refuses its params."""
        size = self._sizes[name](ctypes.byref(params))
        if not size:
            return None
        workspace = self._scratch(name, (size,), np.uint8)
        passed = (_at(value) if isinstance(value, np.ndarray) else value for value in arguments)
        count: int = self._stages[name](ctypes.byref(params), *passed, _at(workspace), ctypes.c_size_t(size))
        return None if count < 0 else count

    def _lent(self, size: int) -> Any:
        """Return an aligned, uninitialised array of bytes from the recycled memory."""
        room = -(-max(size, 1) // _ROOM) * _ROOM
        free = self._free.setdefault(room, [])
        try:
            raw = free.pop()
        except IndexError:
            raw = aligned((room,), np.uint8)
        return np.asarray(_Lent(raw, free))[:size]

    def _scratch(self, name: str, shape: tuple[int, ...], kind: Any) -> Any:
        """Return an uninitialised array in memory of this thread."""
        known: dict[str, Any] = self._local.__dict__
        size = prod(shape) * np.dtype(kind).itemsize
        if name not in known or len(known[name]) < size:
            known[name] = aligned((size,), np.uint8)
        return known[name][:size].view(kind).reshape(shape)


class _Lent:
    """Memory in use by arrays; returns to `free` when the last one is gone."""

    def __init__(self, raw: Any, free: list[Any]) -> None:
        self._raw, self._free = raw, free
        self.__array_interface__ = raw.__array_interface__

    def __del__(self) -> None:
        self._free.append(self._raw)


def _at(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
