"""A chain of stages as one CUDA graph per frame: one copy in, one launch, one copy out.

The stages' tensors stay on the device, sizes that vary included: a scan's number of points lies before its points, and
decoders write their boxes into rows of fixed number.  Several frames, each with its own buffers and graph, can be in
flight at once.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.compiler.targets.cuda.cuda_api import Graph, Stream, check_status, cudart, quick
from socsched.compiler.targets.cuda.driver import Memory, queue_copy
from socsched.compiler.targets.cuda.function_run import GpuFunction, size_of
from socsched.compiler.targets.cuda.runtime import open_machine, run_held
from socsched.compiler.targets.gpu_functions.program import is_function, valid_rows
from socsched.errors import InputError

Array = np.ndarray[Any, Any]

_HEADER = 16
"""Bytes before the first input: the number of its rows, if that varies, and padding."""
_ALIGNMENT = 256
_WARM_UP = 2
_BLOCKING_SYNC = 1


class Chain:
    """Loaded stages, in order; an input of a stage is the output of that name of an earlier one.

    The first stage is a function with one input, the last a function; `room` is the most rows of an input that varies.
    """

    def __init__(self, artifacts: Sequence[Artifact], room: int = 0) -> None:
        self.artifacts, self.room = tuple(artifacts), room
        self.stages = [GpuFunction(a) if is_function(a) else open_machine(a) for a in self.artifacts]
        self.input, self.outputs = self.artifacts[0].inputs[0], self.artifacts[-1].outputs
        self.names = self.artifacts[-1].output_names
        shape = physical_shape(self.input)
        self.shape = (room, *shape[1:]) if shape[0] < 0 else shape
        self.dtype = NUMPY_DTYPES[self.input.dtype]
        self.input_bytes = _HEADER + prod(self.shape) * self.dtype.itemsize


class Frame:
    """One set of buffers of a chain with its graph and stream.

    A thread that waits for the frame's end sleeps, or keeps its processor if the frame `spins`: results come sooner.
    """

    def __init__(self, chain: Chain, priority: int = 0, spins: bool = False) -> None:
        self.chain, self.stream = chain, Stream(priority)
        self._given = Memory(chain.input_bytes)
        self._offsets, total = [], 0
        for tensor in chain.outputs:
            self._offsets.append(total)
            total += -(-size_of(tensor) // _ALIGNMENT) * _ALIGNMENT
        self._made, self._staged, self._found = Memory(total), _locked(chain.input_bytes), _locked(total)
        self._event = ctypes.c_void_p()
        status = cudart().cudaEventCreateWithFlags(ctypes.byref(self._event), 0 if spins else _BLOCKING_SYNC)
        check_status(status, "creating an event")
        self._held: list[Any] = []
        self.steps = [self._step(number) for number in range(len(chain.stages))]
        self.graph = self._captured()

    def submit(self, array: Array) -> None:
        """Start the frame: copy `array` in, launch, copy the results out; returns immediately.

        InputError when the array has another dtype or shape than the chain's input, or more rows than it has room for.
        """
        chain, size = self.chain, array.nbytes
        if array.dtype != chain.dtype or array.shape[1:] != chain.shape[1:] or len(array) > chain.shape[0]:
            raise InputError(f"expected up to {list(chain.shape)} of {chain.dtype}, got {list(array.shape)}")
        self._staged[:4].view(np.int32)[0] = len(array)
        self._staged[_HEADER : _HEADER + size] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.start(_HEADER + size)

    def start(self, size: int) -> None:
        """Start the frame on what lies in its page-locked memory, of which `size` bytes are copied."""
        queue_copy(self._given.address, self._staged.ctypes.data, size, self.stream)
        self.graph.launch(self.stream)
        check_status(quick().cudaEventRecord(self._event, self.stream.handle), "marking an event")

    def wait(self) -> None:
        """Return once the frame has ended."""
        check_status(cudart().cudaEventSynchronize(self._event), "a frame")

    def results(self) -> tuple[Array, ...]:
        """Return copies of the last stage's outputs, unused rows cut off, once the frame has ended."""
        self.wait()
        found = [
            self._found[offset : offset + size_of(tensor)]
            .view(NUMPY_DTYPES[tensor.dtype])
            .reshape(physical_shape(tensor))
            for offset, tensor in zip(self._offsets, self.chain.outputs, strict=True)
        ]
        rows = valid_rows(dict(zip(self.chain.names, found, strict=True)))
        return tuple(array[:rows].copy() for array in found)

    def run(self, held: list[Any], steps: slice = slice(None)) -> None:
        """Queue every stage once; `held` receives what must stay reserved while the launches may run."""
        for step in self.steps[steps]:
            given = [self._values[name] for name in step.artifact.input_names]
            made: Sequence[Any] = step.outputs
            if isinstance(step.stage, GpuFunction):
                places = [_address(value) for value in given], [_address(value) for value in made]
                step.stage.bind(*places, step.scratch, self.chain.room, step.count).launch(self.stream)
            else:
                machine, device = step.stage
                made = run_held(machine, device, self.stream, tuple(given), held)
            self._values |= dict(zip(step.artifact.output_names, made, strict=True))

    def _step(self, number: int) -> Step:
        """Return a stage over this frame's buffers; networks allocate theirs as they run."""
        chain, artifact, stage = self.chain, self.chain.artifacts[number], self.chain.stages[number]
        if number == 0:
            self._values: dict[str, Any] = {artifact.input_names[0]: self._given.address + _HEADER}
        if not isinstance(stage, GpuFunction):
            return Step(artifact, stage, (), {}, 0)
        last = artifact is chain.artifacts[-1]
        outputs: list[Any] = [self._made.address + offset for offset in self._offsets] if last else []
        for tensor in () if last else artifact.outputs:
            outputs.append(device_tensor(physical_shape(tensor), NUMPY_DTYPES[tensor.dtype]))
        count = self._given.address if number == 0 and artifact.inputs[0].shape[0] < 0 else 0
        return Step(artifact, stage, tuple(outputs), stage.reserve(chain.room), count)

    def _captured(self) -> Graph:
        """Run the chain until it is warm, then record it; the first runs fill TVM's memory pool."""
        for _ in range(_WARM_UP):
            held: list[Any] = []
            self.run(held)
            self.stream.synchronize()
            del held
        self.stream.begin_capture()
        self.run(self._held)
        queue_copy(self._found.ctypes.data, self._made.address, self._made.size, self.stream)
        return self.stream.end_capture()


@dataclass(frozen=True, slots=True)
class Step:
    """A stage of a frame: a function with its outputs, scratch memory and the address of its count, or a machine."""

    artifact: Artifact
    stage: Any
    outputs: tuple[Any, ...]
    scratch: Mapping[int, Memory]
    count: int


class Frames:
    """A chain with up to `depth` frames in flight; results come in the order of submission."""

    def __init__(self, chain: Chain, depth: int = 3) -> None:
        self._free = deque(Frame(chain) for _ in range(depth))
        self._busy: deque[Frame] = deque()

    @property
    def room(self) -> bool:
        """Return whether another frame can be submitted."""
        return bool(self._free)

    def submit(self, array: Array) -> None:
        """Start a frame; `room` must be true."""
        frame = self._free.popleft()
        frame.submit(array)
        self._busy.append(frame)

    def results(self) -> tuple[Array, ...]:
        """Return the outputs of the oldest frame, after its end."""
        frame = self._busy.popleft()
        found = frame.results()
        self._free.append(frame)
        return found


def device_tensor(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an uninitialised tensor on the first device, in a form that compiled networks take."""
    from socsched.compiler.loading.tvm_runtime import tvm

    return tvm.runtime.empty(shape, str(np.dtype(dtype)), tvm.cuda(0))


def _address(value: Any) -> int:
    return int(value) if isinstance(value, int) else int(value.data_ptr())


def _locked(size: int) -> Array:
    """Return page-locked bytes on the host."""
    place = ctypes.c_void_p()
    check_status(cudart().cudaHostAlloc(ctypes.byref(place), ctypes.c_size_t(size), 0), "locking memory")
    block: Any = (ctypes.c_uint8 * size).from_address(place.value or 0)
    weakref.finalize(block, cudart().cudaFreeHost, place)
    found: Array = np.frombuffer(block, np.uint8, size)
    return found
