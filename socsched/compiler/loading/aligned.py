"""The only module that passes numpy memory to compiled code and back.

Compiled kernels use aligned vector loads: memory not aligned to 64 bytes, which numpy does not guarantee, causes a
segmentation fault.  Every input is checked here and copied only when necessary.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.errors import InputError
from socsched.graph.operators import TensorType
from socsched.models.host import ALIGNMENT, aligned_copy

Array = np.ndarray[Any, Any]


def align(array: Array) -> Array:
    """Return `array` itself if it is contiguous, 64-byte aligned and writable (DLPack insists), else such a copy."""
    if array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % ALIGNMENT == 0:
        return array
    return aligned_copy(array)


def check(array: Any, tensor: TensorType, name: str) -> None:
    """Raise InputError unless `array` has the dtype and physical shape of `tensor` (-1 stands for any size)."""
    expected, dtype = physical_shape(tensor), NUMPY_DTYPES[tensor.dtype]
    found = getattr(array, "shape", None)
    fits = (
        isinstance(array, np.ndarray)
        and array.dtype == dtype
        and len(array.shape) == len(expected)
        and all(size in (want, -1) or want == -1 for size, want in zip(array.shape, expected, strict=True))
    )
    if not fits:
        layout = f" {tensor.layout}" if tensor.layout else ""
        got = (
            f"{array.dtype} {list(found)}"
            if isinstance(array, np.ndarray) and found is not None
            else type(array).__name__
        )
        raise InputError(
            f"{name}: expected {dtype} {list(expected)}{layout}, got {got}",
            "bring it into this layout with compiler.layouts.convert",
        )


def to_tvm(array: Array, tensor: TensorType, name: str) -> Any:
    """Return `array` as a TVM tensor, sharing its memory where `align` can; see `check` for errors."""
    check(array, tensor, name)
    return shared(array)


def shared(array: Array) -> Any:
    """Return `array` as a TVM tensor, sharing its memory where `align` can."""
    from socsched.compiler.loading.tvm_runtime import tvm

    if array.size == 0:  # numpy does not align empty arrays
        return tvm.runtime.empty(array.shape, str(array.dtype))
    return tvm.runtime.from_dlpack(align(array))


def from_tvm(tensor: Any) -> Array:
    """Return a numpy view of a CPU tensor's memory, which it keeps alive."""
    return np.from_dlpack(tensor)
