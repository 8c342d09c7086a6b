"""A CUDA device as the executor sees it: streams, events, memory, recorded stages (`runtime.backends.device`)."""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.compiler.targets.cuda.convert import Converter
from socsched.compiler.targets.cuda.cuda_api import Stream, check_status, cudart, quick
from socsched.compiler.targets.cuda.function_run import GpuFunction
from socsched.compiler.targets.cuda.runtime import Captured, open_machine, record
from socsched.compiler.targets.gpu_functions.program import is_function
from socsched.graph.operators import TensorType

_BLOCKING_SYNC = 1  # cudaEventBlockingSync: a waiting thread sleeps
_DEFAULT_KIND = 4  # cudaMemcpyDefault: the direction follows from the addresses
_RANKS = {"hard": 2, "firm": 1, "soft": 0}
_REBASE_NS = 5_000_000_000
_DRIFT = 20_000
"""Allowed drift between the device's clock and the host's: one part in this many."""


class Event:
    """A moment on a stream."""

    def __init__(self) -> None:
        self.handle = ctypes.c_void_p()
        status = cudart().cudaEventCreateWithFlags(ctypes.byref(self.handle), _BLOCKING_SYNC)
        check_status(status, "creating an event")

    def __del__(self) -> None:
        cudart().cudaEventDestroy(self.handle)


class CudaDevice:
    """The first CUDA device; `arch` is the architecture conversions are built for."""

    def __init__(self, arch: str) -> None:
        self._arch = arch
        self._local = threading.local()
        self._lock = threading.Lock()
        low, high = ctypes.c_int(), ctypes.c_int()
        status = cudart().cudaDeviceGetStreamPriorityRange(ctypes.byref(low), ctypes.byref(high))
        check_status(status, "asking for stream priorities")
        self._priorities = (low.value, high.value)
        self._clock, self._base = Stream(), Event()
        self._seen_ns = self._offset_ns = 0
        self._rebase()

    def stream(self, criticality: str) -> Stream:
        """Return a new stream: hard stages have the highest priority, soft ones the lowest."""
        low, high = self._priorities
        return Stream(low + (high - low) * _RANKS.get(criticality, 0) // max(_RANKS.values()))

    def memory(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an uninitialised tensor on the device."""
        from socsched.compiler.loading.tvm_runtime import tvm

        return tvm.runtime.empty(shape, str(np.dtype(dtype)), tvm.cuda(0))

    def host(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an uninitialised array in page-locked memory."""
        size = max(prod(shape) * np.dtype(dtype).itemsize, 1)
        address = ctypes.c_void_p()
        check_status(cudart().cudaHostAlloc(ctypes.byref(address), ctypes.c_size_t(size), 0), "locking memory")
        block = (ctypes.c_uint8 * size).from_address(address.value or 0)
        weakref.finalize(block, cudart().cudaFreeHost, address)
        return np.frombuffer(block, dtype, prod(shape)).reshape(shape)

    def program(self, artifact: Artifact) -> Any:
        """Return a stage's virtual machine or a function, loaded for the calling thread."""
        return _Function(GpuFunction(artifact), self.memory) if is_function(artifact) else _Program(artifact)

    def record(self, stream: Stream, program: Any, inputs: Sequence[Any]) -> tuple[Captured, tuple[Any, ...]]:
        """Warm up a program on `inputs` and record it; see `Device.record`."""
        captured: Captured = program.captured(stream, tuple(inputs))
        return captured, captured.outputs

    def address(self, buffer: Any) -> int:
        """Return the address of a tensor."""
        return _address(buffer)

    def handle(self, stream: Stream) -> int:
        """Return a cudaStream_t."""
        return int(stream.handle.value or 0)

    def launch(self, graph: Captured, stream: Stream) -> None:
        """Queue a recorded stage."""
        graph.graph.launch(stream)

    def copy(self, target: Any, source: Any, count: int, stream: Stream) -> None:
        """Queue a copy of `count` elements between tensors and page-locked arrays."""
        size = count * np.dtype(str(target.dtype)).itemsize
        places = (ctypes.c_void_p(_address(target)), ctypes.c_void_p(_address(source)))
        status = quick().cudaMemcpyAsync(*places, ctypes.c_size_t(size), _DEFAULT_KIND, stream.handle)
        if status:
            check_status(status, "copying a tensor")

    def convert(
        self, target: Any, wanted: TensorType, source: Any, given: TensorType, rows: int | None, stream: Stream
    ) -> None:
        """Queue a conversion on the device."""
        found = getattr(self._local, "converter", None)
        if found is None:
            found = self._local.converter = Converter(self._arch)
        found.launch(_address(target), wanted, _address(source), given, rows, stream)

    def event(self) -> Event:
        """Return an event."""
        return Event()

    def mark(self, event: Event, stream: Stream) -> None:
        """Record an event at the current position of the stream."""
        check_status(quick().cudaEventRecord(event.handle, stream.handle), "marking an event")

    def follow(self, stream: Stream, event: Event) -> None:
        """Make the stream wait for an event."""
        check_status(quick().cudaStreamWaitEvent(stream.handle, event.handle, 0), "waiting for an event")

    def wait(self, start: Event, end: Event) -> tuple[int, int]:
        """Sleep until `end`; return both times on the host's clock.

        The device's clock is mapped to the host's by the smallest delay seen between an event and its observation.
        """
        check_status(cudart().cudaEventSynchronize(end.handle), "a stage")
        now = time.monotonic_ns()
        with self._lock:
            since, lasted = _elapsed_ns(self._base, end), _elapsed_ns(start, end)
            drift = (now - self._seen_ns) // _DRIFT
            self._offset_ns = min(self._offset_ns + drift, now - since)
            self._seen_ns = now
            moment = self._offset_ns + since
            if since > _REBASE_NS:
                self._rebase()
        return moment - lasted, moment

    def _rebase(self) -> None:
        """Take a new base event: differences are single-precision ms, whose resolution degrades with time."""
        self._base = Event()
        self.mark(self._base, self._clock)
        self._clock.synchronize()
        self._seen_ns = self._offset_ns = time.monotonic_ns()


class _Program:
    """A loaded stage; it is recorded, never called."""

    def __init__(self, artifact: Artifact) -> None:
        self.machine, self.device = open_machine(artifact)

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Run on the current stream."""
        return tuple(self.machine["main"](*inputs))

    def captured(self, stream: Stream, inputs: tuple[Any, ...]) -> Captured:
        """Return the stage recorded over `inputs`."""
        return record(self.machine, self.device, stream, inputs)


class _Function:
    """A loaded function; its graph takes all rows of an input whose number varies."""

    def __init__(self, function: GpuFunction, memory: Callable[[tuple[int, ...], Any], Any]) -> None:
        self._function, self._memory = function, memory

    def captured(self, stream: Stream, inputs: tuple[Any, ...]) -> Captured:
        """Return the function recorded over `inputs`, once it has run: the first run loads its code."""
        function = self._function
        outputs = tuple(self._memory(physical_shape(t), NUMPY_DTYPES[t.dtype]) for t in function.outputs)
        varying = (array for array, kind in zip(inputs, function.inputs, strict=True) if kind.shape[0] < 0)
        rows = next((int(array.shape[0]) for array in varying), 0)
        scratch = function.reserve(rows)
        bound = function.bind([_address(i) for i in inputs], [_address(o) for o in outputs], scratch, rows)
        bound.launch(stream)
        stream.synchronize()
        stream.begin_capture()
        bound.launch(stream)
        return Captured(stream.end_capture(), inputs, outputs, (bound, scratch, function))


def _address(memory: Any) -> int:
    return int(memory.ctypes.data if isinstance(memory, np.ndarray) else memory.data_ptr())


def _elapsed_ns(first: Event, last: Event) -> int:
    found = ctypes.c_float()
    check_status(quick().cudaEventElapsedTime(ctypes.byref(found), first.handle, last.handle), "timing a stage")
    return round(found.value * 1e6)
