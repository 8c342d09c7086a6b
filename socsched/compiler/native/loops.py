"""The compiled loops of host functions, as `models.loops` describes them."""

from __future__ import annotations

import ctypes
import threading
from ctypes import POINTER, c_double, c_float, c_int32, c_int64, c_uint8
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.compiler.native.shared_object import build_shared_object
from socsched.models.loops import Floats, Ints, Loops

_ALIGNMENT = 64
_ROOM = 1 << 20
"""Granularity in bytes of the memory kept for voxels, whose number varies from frame to frame."""


@cache
def loops() -> Loops | None:
    """Return the loops compiled for this machine, None if that is not possible."""
    found = build_shared_object(Path(__file__).with_name("loops.c"))
    return None if found is None else CompiledLoops(found)


class CompiledLoops:
    """Loops in C; every thread has its own scratch memory.

    Memory for voxels is recycled: it is reused when no array refers to it any longer.
    """

    def __init__(self, code: ctypes.CDLL) -> None:
        self._free: dict[int, list[Any]] = {}
        self._code = code
        self._local = threading.local()
        code.number_pillars.restype = code.best_anchors.restype = code.suppress.restype = c_int64
        code.fill_pillars.restype = code.overlapping.restype = None

    def voxelise(self, points: Floats, max_pillars: int, max_points: int, grid: Any) -> tuple[Floats, Ints, Ints]:
        """Return voxels, counts and coords of points[N, 4] in float32, C-contiguous."""
        columns, rows, _ = grid.cells
        table = self._scratch("table", columns * rows, np.int32, -1)
        most = min(max_pillars, len(points), columns * rows)
        pillar, cell = self._scratch("pillar", len(points), np.int32), self._scratch("cell", most, np.int32)
        low, size = np.asarray(grid.low, np.float32), np.asarray(grid.pillar, np.float32)
        cells = np.asarray(grid.cells, np.int32)
        scan, pillars, places = _at(points, c_float), _at(pillar, c_int32), _at(cell, c_int32)
        count = self._code.number_pillars(
            scan, c_int64(len(points)), _at(low, c_float), _at(size, c_float), _at(cells, c_int32), c_int64(most),
            _at(table, c_int32), pillars, places,
        )  # fmt: skip
        counts, coords = _aligned((count,), np.int32), _aligned((count, 2), np.int32)
        voxels = self._lent(count * max_points * 16).view(np.float32).reshape(count, max_points, 4)
        self._code.fill_pillars(
            scan, c_int64(len(points)), pillars, places, c_int64(count), c_int64(max_points), c_int32(columns),
            _at(voxels, c_float), _at(counts, c_int32), _at(coords, c_int32),
        )  # fmt: skip
        return voxels, counts, coords

    def candidates(self, logits: Floats, floor: float, most: int) -> tuple[Ints, int]:
        """Return the indices of anchors of logits[kinds, classes, cells] that pass, and the number of broken ones."""
        kinds, classes, cells = logits.shape
        index = self._scratch("index", kinds * cells, np.int32)
        values, spare = (self._scratch(name, kinds * cells, np.float32) for name in ("values", "spare"))
        broken = c_int64()
        count = self._code.best_anchors(
            _at(logits, c_float), c_int64(kinds), c_int64(classes), c_int64(cells), c_double(floor), c_int64(most),
            _at(index, c_int32), _at(values, c_float), _at(spare, c_float), ctypes.byref(broken),
        )  # fmt: skip
        return index[:count].copy(), broken.value

    def overlaps(self, rects: npt.NDArray[np.float64], least: float) -> npt.NDArray[np.bool_]:
        """Return the matrix of pairs of footprints[n, 5] that overlap with an IoU above `least`."""
        rects = np.ascontiguousarray(rects, np.float64)
        heading = -rects[:, 4] - np.pi / 2
        cosines, sines = np.cos(heading), np.sin(heading)
        radius = np.hypot(rects[:, 2], rects[:, 3]) / 2
        found = np.empty((len(rects), len(rects)), np.bool_)
        self._code.overlapping(
            *(_at(array, c_double) for array in (rects, cosines, sines, radius)), c_int64(len(rects)),
            c_double(least), _at(found, c_uint8),
        )  # fmt: skip
        return found

    def suppress(self, overlaps: npt.NDArray[np.bool_], order: npt.NDArray[np.intp]) -> list[int]:
        """Return the members of `order` that overlap no better member kept before."""
        order = np.ascontiguousarray(order, np.int64)
        kept = np.empty(len(order), np.int64)
        count = self._code.suppress(
            _at(overlaps, c_uint8), c_int64(len(overlaps)), _at(order, c_int64), c_int64(len(order)),
            _at(kept, c_int64),
        )  # fmt: skip
        found: list[int] = kept[:count].tolist()
        return found

    def _lent(self, size: int) -> Any:
        """Return an aligned, uninitialised array of bytes from the recycled memory."""
        room = -(-max(size, 1) // _ROOM) * _ROOM
        free = self._free.setdefault(room, [])
        try:
            raw = free.pop()
        except IndexError:
            raw = _aligned((room,), np.uint8)
        return np.asarray(_Lent(raw, free))[:size]

    def _scratch(self, name: str, count: int, kind: Any, value: int | None = None) -> Any:
        """Return at least `count` elements of thread-local memory, filled once."""
        known: dict[str, Any] = self._local.__dict__
        if name not in known or len(known[name]) < count:
            known[name] = np.empty(count, kind) if value is None else np.full(count, value, kind)
        return known[name]


class _Lent:
    """Memory in use by arrays; returns to `free` when the last one is gone."""

    def __init__(self, raw: Any, free: list[Any]) -> None:
        self._raw, self._free = raw, free
        self.__array_interface__ = raw.__array_interface__

    def __del__(self) -> None:
        self._free.append(self._raw)


def _aligned(shape: tuple[int, ...], kind: Any) -> Any:
    """Return an uninitialised array with the alignment that compiled stages require."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(kind).reshape(shape)


def _at(array: Any, kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, POINTER(kind))
