"""The CUDA runtime calls needed to launch a stage as one graph, by ctypes: no compiler, no framework."""

from __future__ import annotations

import ctypes
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
