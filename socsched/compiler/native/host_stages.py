"""Host stages compiled from stages/*.c, called in this process, and how a model's function calls one."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

import numpy as np

from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.compiler.native.compilers import SOURCES, build_shared_object
from socsched.compiler.native.stage_params import CALLS, StageCall
from socsched.graph.operators import TensorType
from socsched.models.host import CompiledStages, aligned
from socsched.models.model import Model

_ROOM = 1 << 20
"""Granularity in bytes of the memory kept for results."""


@cache
def compiled_stages() -> CompiledStages | None:
    """Return the stages compiled for this machine, None if that is not possible."""
    found = build_shared_object(*SOURCES)
    return None if found is None else NativeStages(found)


class NativeStages:
    """Stages in C (`models.host.CompiledStages`); every thread has its own workspace.

    Memory for results is recycled: it is reused when no array refers to it any longer.
    """

    def __init__(self, code: ctypes.CDLL) -> None:
        self._free: dict[int, list[Any]] = {}
        self._local = threading.local()
        self._stages = {name: getattr(code, f"socsched_{name}") for name in CALLS}
        self._sizes = {name: getattr(code, f"socsched_{name}_workspace") for name in CALLS}
        for name in CALLS:
            self._stages[name].restype, self._sizes[name].restype = ctypes.c_int64, ctypes.c_size_t

    def __call__(self, name: str, arrays: Sequence[Any], *settings: Any) -> tuple[Any, ...] | None:
        """Return the results of a stage; None for arrays or settings that it does not take."""
        call = CALLS[name](arrays, *settings)
        size = self._sizes[name](ctypes.byref(call.params)) if call else 0
        if call is None or not size:
            return None
        results = [self._lent(shape, dtype) for dtype, shape in call.results]
        last, dropped = (call.last[:1], call.last[1:]) if call.rows else (call.last, ())
        given = [np.ascontiguousarray(array) for array in arrays]
        passed = (*map(_at, given), *call.inner, *map(_at, results), *last, _at(self._workspace(size)))
        count: int = self._stages[name](ctypes.byref(call.params), *passed, ctypes.c_size_t(size))
        if count < 0:
            return None
        return (*(array[:count] if call.rows else array for array in results), *(one.value for one in dropped))

    def _lent(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an aligned, uninitialised array in the recycled memory."""
        size = prod(shape) * np.dtype(dtype).itemsize
        room = -(-max(size, 1) // _ROOM) * _ROOM
        free = self._free.setdefault(room, [])
        try:
            raw = free.pop()
        except IndexError:
            raw = aligned((room,), np.uint8)
        return np.asarray(_Lent(raw, free))[:size].view(dtype).reshape(shape)

    def _workspace(self, size: int) -> Any:
        """Return memory of this thread for a stage's own use."""
        known = getattr(self._local, "workspace", None)
        if known is None or len(known) < size:
            known = self._local.workspace = aligned((size,), np.uint8)
        return known


class _Lent:
    """Memory in use by arrays; returns to `free` when the last one is gone."""

    def __init__(self, raw: Any, free: list[Any]) -> None:
        self._raw, self._free = raw, free
        self.__array_interface__ = raw.__array_interface__

    def __del__(self) -> None:
        self._free.append(self._raw)


def _at(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class _Asked(Exception):
    """Carries the call out of a model's function."""


def host_call(model: Model, inputs: Sequence[TensorType]) -> StageCall | None:
    """Return how a host function is called for inputs of these types, None if it has no compiled form for them.

    One row stands for any number of rows.
    """
    if model.function is None or not model.compiled:
        return None

    def ask(name: str, arrays: Sequence[Any], *settings: Any) -> None:
        raise _Asked(CALLS[name](arrays, *settings))

    fixed = (replace(kind, shape=tuple(max(size, 1) for size in kind.shape)) for kind in inputs)
    try:
        model.function(*(np.zeros(physical_shape(kind), NUMPY_DTYPES[kind.dtype]) for kind in fixed), compiled=ask)
    except _Asked as asked:
        found: StageCall | None = asked.args[0]
        return found
    return None
