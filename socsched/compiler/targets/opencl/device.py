"""The first OpenCL device of this machine, from the system's libOpenCL (no package needed)."""

from __future__ import annotations

import ctypes
import ctypes.util
from typing import Any

from socsched.errors import MachineError

_ANY, _NAME = 0xFFFFFFFF, 0x102B
_NOT_FOUND = {-1: "no device", -1001: "no driver is installed"}


def first_device() -> tuple[Any, Any, str]:
    """Return libOpenCL, the handle of the machine's first device and its name; MachineError if there is none."""
    library = _library()
    count = ctypes.c_uint()
    status = library.clGetPlatformIDs(0, None, ctypes.byref(count))
    if status or not count.value:
        raise _missing(_NOT_FOUND.get(status, f"clGetPlatformIDs returned {status}"))
    platforms, device = (ctypes.c_void_p * count.value)(), ctypes.c_void_p()
    library.clGetPlatformIDs(count, platforms, None)
    for platform in platforms:
        if not library.clGetDeviceIDs(ctypes.c_void_p(platform), ctypes.c_uint64(_ANY), 1, ctypes.byref(device), None):
            size = ctypes.c_size_t()
            library.clGetDeviceInfo(device, _NAME, ctypes.c_size_t(0), None, ctypes.byref(size))
            name = ctypes.create_string_buffer(size.value)
            library.clGetDeviceInfo(device, _NAME, size, name, None)
            return library, device, name.value.decode(errors="replace")
    raise _missing("no device")


def _library() -> Any:
    for name in (ctypes.util.find_library("OpenCL"), "libOpenCL.so.1", "libOpenCL.so"):
        if name:
            try:
                return ctypes.CDLL(name)
            except OSError:
                continue
    raise _missing("libOpenCL is not installed")


def _missing(problem: str) -> MachineError:
    return MachineError(
        f"no OpenCL: {problem}",
        "install the GPU's driver, or PoCL for the CPU: sudo apt-get install -y pocl-opencl-icd",
    )
