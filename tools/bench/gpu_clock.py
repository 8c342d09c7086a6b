"""CUDA's runtime by ctypes, for tools that time kernels within TVM's context: streams, graphs and a clock of events."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable
from functools import cache
from typing import Any

from socsched.errors import MachineError

_NON_BLOCKING = 1
_THREAD_LOCAL = 1
"""Capture mode: other threads may continue to allocate while this one captures."""


@cache
def cudart() -> Any:
    """Return the CUDA runtime library; MachineError if it is not installed."""
    for name in ("libcudart.so.13", "libcudart.so.12", "libcudart.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise MachineError("libcudart.so is not installed: stages cannot run on the GPU", "install the CUDA runtime")


def quick() -> Any:
    """Return the same library for calls that return immediately and keep the interpreter lock.

    A thread that releases the lock for a microsecond may wait for it as long as another thread computes in Python; a
    frame makes dozens of such calls.
    """
    library = cudart()
    return _keeping(library._name) if isinstance(library, ctypes.CDLL) else library


@cache
def _keeping(name: str) -> Any:
    return ctypes.PyDLL(name)


def check_status(status: int, what: str) -> None:
    """Raise MachineError with CUDA's message unless `status` is 0."""
    if status:
        text = cudart().cudaGetErrorString
        text.restype = ctypes.c_char_p
        raise MachineError(f"CUDA: {what} failed: {text(status).decode()} ({status})", "see nvidia-smi and dmesg")


class Stream:
    """A separate stream; `priority` in CUDA's convention: 0 is lowest, negative numbers are higher."""

    def __init__(self, priority: int = 0) -> None:
        handle = ctypes.c_void_p()
        status = cudart().cudaStreamCreateWithPriority(ctypes.byref(handle), _NON_BLOCKING, priority)
        check_status(status, "creating a stream")
        self.handle = handle

    def synchronize(self) -> None:
        """Wait for everything launched so far."""
        check_status(cudart().cudaStreamSynchronize(self.handle), "a stage")

    def begin_capture(self) -> None:
        """Record subsequent launches instead of running them."""
        check_status(cudart().cudaStreamBeginCapture(self.handle, _THREAD_LOCAL), "capturing a stage")

    def end_capture(self) -> Graph:
        """Return the launches since `begin_capture` as a graph."""
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        api = cudart()
        check_status(api.cudaStreamEndCapture(self.handle, ctypes.byref(graph)), "capturing a stage")
        status = api.cudaGraphInstantiate(ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        api.cudaGraphDestroy(graph)
        check_status(status, "making a stage's graph executable")
        return Graph(executable)


class Graph:
    """A stage's kernels as one launch."""

    def __init__(self, executable: Any) -> None:
        self._executable, self._launch = executable, quick().cudaGraphLaunch

    def launch(self, stream: Stream) -> None:
        """Start the graph on `stream` and return immediately."""
        status = self._launch(self._executable, stream.handle)
        if status:
            check_status(status, "launching a stage")

    def __del__(self) -> None:
        cudart().cudaGraphExecDestroy(self._executable)


class Clock:
    """Times on a stream by CUDA events."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in self.events:
            assert not cudart().cudaEventCreate(ctypes.byref(event))

    def milliseconds(self, launch: Callable[[], None], repeats: int = 40, warm_up: int = 5, inner: int = 1) -> float:
        """Return the median time of `launch` over `repeats` measurements of `inner` launches each."""
        for _ in range(warm_up):
            launch()
        found = []
        for _ in range(repeats):
            cudart().cudaEventRecord(self.events[0], self.stream.handle)
            for _ in range(inner):
                launch()
            cudart().cudaEventRecord(self.events[1], self.stream.handle)
            self.stream.synchronize()
            elapsed = ctypes.c_float()
            assert not cudart().cudaEventElapsedTime(ctypes.byref(elapsed), *self.events)
            found.append(elapsed.value / inner)
        return statistics.median(found)
