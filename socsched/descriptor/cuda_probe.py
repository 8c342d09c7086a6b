"""What libcuda says of this machine's GPUs, and what short copies and launches on them take: a program of its own.

`python cuda_probe.py` prints a JSON list; it needs the standard library and the driver.  It runs apart from socsched
because a broken driver can crash or hang its process.  A figure that could not be measured is 0.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

_NAME = 256
_ATTRIBUTES = {"sms": 16, "clock_khz": 13, "l2_bytes": 38, "integrated": 18, "major": 75, "minor": 76}
"""Of `CUdevice_attribute`, cuda.h."""
_ATTRIBUTES |= {"bus_bits": 37, "memory_khz": 36, "shared_bytes": 97}
_NON_BLOCKING, _RELAXED, _NO_DEVICE = 1, 2, 100
_EMPTY = b".version 6.0\n.target sm_70\n.address_size 64\n.visible .entry empty()\n{\nret;\n}\n\0"
"""A kernel that does nothing, for the driver's own assembler (PTX ISA)."""
_COPIED, _PINNED, _KERNELS, _COPIES, _ROUNDS = 256 << 20, 32 << 20, 200, 50, 5
_PAUSES, _PAUSE_S = 25, 0.02


class _Driver:
    """Calls of libcuda; OSError for one that fails or is missing."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def __call__(self, name: str, *arguments: Any) -> None:
        function = getattr(self.library, name, None)
        if function is None:
            raise OSError(f"libcuda lacks {name}")
        if status := function(*arguments):
            raise OSError(f"{name} failed ({status})")


def devices() -> list[dict[str, Any]]:
    """Return a document for every GPU; OSError where there is no driver."""
    driver, count = _Driver(), ctypes.c_int()
    try:
        driver("cuInit", 0)
    except OSError as error:
        if f"({_NO_DEVICE})" in str(error):  # hidden by $CUDA_VISIBLE_DEVICES: an answer, no failure
            return []
        raise
    driver("cuDeviceGetCount", ctypes.byref(count))
    return [_device(driver, index) for index in range(count.value)]


def _device(driver: _Driver, index: int) -> dict[str, Any]:
    device, name, memory = ctypes.c_int(), ctypes.create_string_buffer(_NAME), ctypes.c_size_t()
    driver("cuDeviceGet", ctypes.byref(device), index)
    driver("cuDeviceGetName", name, _NAME, device)
    driver("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    found: dict[str, Any] = {"index": index, "name": name.value.decode(errors="replace"), "memory": memory.value}
    for key, number in _ATTRIBUTES.items():
        value = ctypes.c_int()
        driver("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        found[key] = value.value
    found |= dict.fromkeys(("copied", "uploaded", "downloaded", "launch_ns", "submit_ns", "copy_ns"), 0)
    context = ctypes.c_void_p()
    try:
        driver("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        driver("cuCtxSetCurrent", context)
        stream = ctypes.c_void_p()
        driver("cuStreamCreateWithPriority", ctypes.byref(stream), _NON_BLOCKING, 0)
    except OSError as error:
        return {**found, "problem": str(error)}
    for measure in (_memory, _link, _launches):
        try:
            found |= measure(driver, stream, memory.value)
        except OSError as error:
            found["problem"] = str(error)
    return found


def _memory(driver: _Driver, stream: Any, memory: int) -> dict[str, float]:
    """Return the bytes a second, read plus written, of copies within the GPU's memory."""
    size = min(_COPIED, memory // 16)
    one, other = _allocated(driver, size), _allocated(driver, size)
    try:
        length = ctypes.c_size_t(size)
        seconds = _shortest(driver, stream, lambda: driver("cuMemcpyDtoDAsync_v2", other, one, length, stream), 4)
    finally:
        for place in (one, other):
            driver("cuMemFree_v2", place)
    return {"copied": 2 * size / seconds}


def _link(driver: _Driver, stream: Any, memory: int) -> dict[str, float]:
    """Return the bytes a second of copies from and to locked host memory."""
    size, host = min(_PINNED, memory // 16), ctypes.c_void_p()
    place, length = _allocated(driver, size), ctypes.c_size_t(size)
    driver("cuMemAllocHost_v2", ctypes.byref(host), length)
    try:
        up = _shortest(driver, stream, lambda: driver("cuMemcpyHtoDAsync_v2", place, host, length, stream), 2)
        down = _shortest(driver, stream, lambda: driver("cuMemcpyDtoHAsync_v2", host, place, length, stream), 2)
        short = ctypes.c_size_t(4096)
        copy = "cuMemcpyHtoDAsync_v2", place, host, short, stream
        one, many = (_shortest(driver, stream, partial(_repeat, count, driver, *copy), 1) for count in (1, 1 + _COPIES))
    finally:
        driver("cuMemFree_v2", place)
        driver("cuMemFreeHost", host)
    return {"uploaded": size / up, "downloaded": size / down, "copy_ns": max(many - one, 0) / _COPIES * 1e9}


def _repeat(times: int, driver: _Driver, *call: Any) -> None:
    for _ in range(times):
        driver(*call)


def _launches(driver: _Driver, stream: Any, memory: int) -> dict[str, float]:
    """Return the nanoseconds from kernel to kernel of a graph, and those of a graph of one kernel on an idle GPU."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    driver("cuModuleLoadData", ctypes.byref(module), _EMPTY)
    driver("cuModuleGetFunction", ctypes.byref(function), module, b"empty")

    def graph(kernels: int) -> Callable[[], None]:
        captured, ready = ctypes.c_void_p(), ctypes.c_void_p()
        driver("cuStreamBeginCapture_v2", stream, _RELAXED)
        for _ in range(kernels):
            driver("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, stream, None, None)
        driver("cuStreamEndCapture", stream, ctypes.byref(captured))
        driver("cuGraphInstantiateWithFlags", ctypes.byref(ready), captured, ctypes.c_ulonglong(0))
        return lambda: driver("cuGraphLaunch", ready, stream)

    one = graph(1)
    few, many = (_shortest(driver, stream, work, 1) * 1e9 for work in (one, graph(1 + _KERNELS)))
    return {"launch_ns": max(many - few, 0) / _KERNELS, "submit_ns": _after_idling(driver, stream, one) * 1e9}


def _after_idling(driver: _Driver, stream: Any, work: Callable[[], None]) -> float:
    """Return the seconds of one call of `work`, the median of calls with pauses between, as frames come."""
    times = []
    for _ in range(_PAUSES):
        time.sleep(_PAUSE_S)
        start = time.perf_counter()
        work()
        driver("cuStreamSynchronize", stream)
        times.append(time.perf_counter() - start)
    return sorted(times)[_PAUSES // 2]


def _allocated(driver: _Driver, size: int) -> Any:
    place = ctypes.c_uint64()
    driver("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(size))
    return place


def _shortest(driver: _Driver, stream: Any, work: Callable[[], None], times: int) -> float:
    """Return the seconds of one call of `work`, the shortest of some rounds of `times`: load only delays."""
    work()
    driver("cuStreamSynchronize", stream)
    best = float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        for _ in range(times):
            work()
        driver("cuStreamSynchronize", stream)
        best = min(best, time.perf_counter() - start)
    return max(best / times, 1e-9)


if __name__ == "__main__":
    try:
        print(json.dumps(devices()))
    except OSError as error:
        sys.exit(str(error))
