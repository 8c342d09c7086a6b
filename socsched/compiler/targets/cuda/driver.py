"""Machine code in the calling thread's context: loading, launching, and plain device memory, by ctypes."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from socsched.compiler.targets.cuda.cuda_api import Stream, check_status, cudart
from socsched.errors import MachineError

_DEFAULT_KIND = 4  # cudaMemcpyDefault: the direction follows from the addresses


@cache
def _driver() -> Any:
    try:
        return ctypes.PyDLL("libcuda.so.1")  # its calls return at once, see `cuda_api.quick`
    except OSError:
        raise MachineError("libcuda.so.1 is not installed: nothing can run on the GPU", "install the driver") from None


def _call(name: str, *arguments: Any) -> None:
    status = getattr(_driver(), name)(*arguments)
    if status:
        raise MachineError(f"CUDA: {name} failed ({status})", "see nvidia-smi and dmesg")


class Code:
    """Kernels of a cubin, loaded into the calling thread's context."""

    def __init__(self, cubin: bytes) -> None:
        cudart().cudaFree(None)  # makes the device's primary context, shared with TVM, current in this thread
        self._module = ctypes.c_void_p()
        _call("cuModuleLoadData", ctypes.byref(self._module), cubin)
        self._functions: dict[str, ctypes.c_void_p] = {}

    def launch(
        self, name: str, grid: tuple[int, int], block: tuple[int, int], stream: Stream, values: Sequence[Any]
    ) -> None:
        """Queue a kernel; `values` are ctypes objects."""
        if name not in self._functions:
            function = ctypes.c_void_p()
            _call("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
            self._functions[name] = function
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        size = (*grid, 1, *block, 1)
        _call("cuLaunchKernel", self._functions[name], *size, 0, stream.handle, pointers, None)


class Memory:
    """`size` bytes on the device, freed with the object."""

    def __init__(self, size: int) -> None:
        place = ctypes.c_void_p()
        status = cudart().cudaMalloc(ctypes.byref(place), ctypes.c_size_t(max(size, 1)))
        check_status(status, f"allocating {size} bytes")
        self.address, self.size = int(place.value or 0), size
        weakref.finalize(self, cudart().cudaFree, place)

    def write(self, array: np.ndarray[Any, Any]) -> None:
        """Copy a contiguous array to the start of the memory and wait."""
        copy(self.address, array.ctypes.data, array.nbytes)

    def read(self, array: np.ndarray[Any, Any]) -> None:
        """Copy the start of the memory into a contiguous array and wait."""
        copy(array.ctypes.data, self.address, array.nbytes)


def copy(target: int, source: int, size: int) -> None:
    """Copy bytes between addresses, on the device or the host, and wait.

    A small copy from pageable memory returns before it has reached the device, hence the second call: other streams do
    not wait for the default one.
    """
    places = (ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_size_t(size))
    check_status(cudart().cudaMemcpy(*places, _DEFAULT_KIND), "copying")
    check_status(cudart().cudaStreamSynchronize(None), "copying")
