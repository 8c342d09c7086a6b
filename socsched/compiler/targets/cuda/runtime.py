"""CUDA stages in this process, each run as one CUDA graph over its own buffers."""

from __future__ import annotations

import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.loading.aligned import check
from socsched.compiler.targets.cuda.cuda_api import Graph, Stream
from socsched.compiler.targets.cuda.nvcc import supply_cubins
from socsched.compiler.targets.cuda.sm_share import stream_for
from socsched.compiler.targets.cuda.tiles import round_up
from socsched.errors import InputError, MachineError
from socsched.graph.operators import TensorType

Array = np.ndarray[Any, Any]

BUCKET = 4000
"""Rows (pillars) that a stage's varying size is rounded up to."""

_WARM_UP = 2
_GO_ON = 0  # return value of a TVM virtual machine instrument that lets the call proceed


@dataclass(frozen=True, slots=True)
class Captured:
    """A graph with the device tensors it reads and writes; `held` keeps the memory between its kernels reserved."""

    graph: Graph
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    held: tuple[Any, ...]


class GpuStage:
    """A loaded CUDA stage: call it with one array per input, laid out as in `inputs`, to get one per output.

    It captures one graph per combination of input sizes, at the first call with them; a varying size (the number of
    pillars) is first rounded up to whole buckets to limit the number of graphs.  For work that stays on the GPU use
    `captured`, fill its inputs, `launch`, and read its outputs after `synchronize`.  A stage belongs to one thread;
    several stages may run concurrently, each on its own stream and, if the artefact has a share, on its own SMs.
    """

    def __init__(self, artifact: Artifact, priority: int = 0) -> None:
        self.artifact = artifact
        self.inputs, self.outputs = artifact.inputs, artifact.outputs
        self._machine, self._device = open_machine(artifact)
        self._stream = stream_for(artifact.share, priority)
        self._captured: dict[tuple[tuple[int, ...], ...], Captured] = {}

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the outputs for `arrays`; InputError when one has another dtype or shape than its input."""
        if len(arrays) != len(self.inputs):
            raise InputError(f"{self.artifact.stage}: expected {len(self.inputs)} inputs, got {len(arrays)}")
        for array, tensor, name in zip(arrays, self.inputs, self.artifact.input_names, strict=True):
            check(array, tensor, f"{self.artifact.stage}: input {name!r}")
        padded = [pad_to_bucket(array, tensor) for array, tensor in zip(arrays, self.inputs, strict=True)]
        rows = max((len(a) for a, t in zip(arrays, self.inputs, strict=True) if t.shape[0] < 0), default=0)
        ready = self.captured(*(array.shape for array in padded))
        for array, buffer in zip(padded, ready.inputs, strict=True):
            buffer.copyfrom(np.ascontiguousarray(array))
        self.launch(ready)
        self.synchronize()
        found = zip(ready.outputs, self.outputs, strict=True)
        return tuple(buffer.numpy()[: rows if t.shape[0] < 0 else None] for buffer, t in found)

    def captured(self, *shapes: tuple[int, ...]) -> Captured:
        """Return the graph for inputs of these physical shapes, captured on first use."""
        if shapes not in self._captured:
            self._captured[shapes] = self._capture(shapes)
        return self._captured[shapes]

    def launch(self, ready: Captured) -> None:
        """Start a graph and return immediately."""
        ready.graph.launch(self._stream)

    def synchronize(self) -> None:
        """Wait for all launches to finish."""
        self._stream.synchronize()

    def _capture(self, shapes: tuple[tuple[int, ...], ...]) -> Captured:
        from socsched.compiler.layouts import NUMPY_DTYPES
        from socsched.compiler.loading.tvm_runtime import tvm

        given = tuple(
            tvm.runtime.tensor(np.zeros(shape, NUMPY_DTYPES[tensor.dtype]), device=self._device)
            for shape, tensor in zip(shapes, self.inputs, strict=True)
        )
        return record(self._machine, self._device, self._stream, given)


def record(machine: Any, device: Any, stream: Stream, given: tuple[Any, ...]) -> Captured:
    """Run a machine on the tensors `given`, then record it, holding every buffer so that the pool cannot reuse it.

    The first runs load the code and fill the pool, neither of which may happen during recording.
    """
    held: list[Any] = []
    for _ in range(_WARM_UP):
        run_held(machine, device, stream, given, [])
    stream.synchronize()
    stream.begin_capture()
    results = run_held(machine, device, stream, given, held)
    return Captured(stream.end_capture(), given, results, tuple(held))


def run_held(machine: Any, device: Any, stream: Stream, given: tuple[Any, ...], held: list[Any]) -> tuple[Any, ...]:
    """Run a machine on `stream` and return its outputs; `held` receives the operands of every kernel.

    While they are referenced the pool cannot reuse their memory.
    """
    import tvm_ffi

    def hold(function: Any, name: str, before: bool, result: Any, *operands: Any) -> int:
        held.extend(operands)
        return _GO_ON

    with tvm_ffi.use_raw_stream(device, stream.handle.value or 0):
        machine.set_instrument(hold)
        try:
            return tuple(machine["main"](*given))
        finally:
            machine.set_instrument(lambda *arguments: _GO_ON)


def pad_to_bucket(array: Array, tensor: TensorType) -> Array:
    """Return `array` padded with rows to a whole bucket if the number of rows varies.

    Added rows are zero, or -1 for integers: a pillar outside the grid.  Rows are independent in every stage with a
    varying number of rows, so results of the added rows are simply cut off.
    """
    if tensor.shape[0] >= 0:
        return array
    filled = np.full(
        (round_up(max(len(array), 1), BUCKET), *array.shape[1:]), -1 if array.dtype.kind == "i" else 0, array.dtype
    )
    filled[: len(array)] = array
    return filled


def open_machine(artifact: Artifact) -> tuple[Any, Any]:
    """Return the virtual machine of an artefact and its device; MachineError if it cannot run on this machine."""
    from socsched.compiler.loading.tvm_runtime import VirtualMachine, tvm

    _load_cuda_runtime()
    device = tvm.cuda(0)
    library = next((artifact.folder / name for name in artifact.files if name.endswith(".so")), None)
    foreign = artifact.triple.split("-")[0] not in ("", platform.machine())
    if library is None or foreign or not device.exist:
        raise MachineError(
            f"{artifact.path.name} of stage {artifact.stage!r} is code for {artifact.triple or 'CUDA'}, which this "
            "machine cannot run",
            "deploy it to the board, or compile the stage for the host platform",
        )
    binary = artifact.path.read_bytes()
    try:
        with supply_cubins(lambda source: binary):
            module = tvm.runtime.load_module(str(library.resolve()))
            return VirtualMachine(module, device), device
    except (RuntimeError, OSError, AttributeError, ValueError) as error:
        raise MachineError(f"{library}: cannot be loaded: {error}", "delete it; it is built again") from error


def _load_cuda_runtime() -> None:
    """Load TVM's library for CUDA devices, which TVM itself loads only together with its compiler."""
    from socsched.compiler.loading.tvm_runtime import tvm

    if tvm.get_global_func("device_api.cuda", allow_missing=True) is not None:
        return
    from tvm_ffi.libinfo import load_lib_ctypes

    folder = Path(tvm.base._LOADED_LIBS["tvm_runtime"]._name).resolve().parent
    with suppress(OSError, RuntimeError):  # without it there is no device, which the caller reports
        load_lib_ctypes("tvm", "tvm_runtime_cuda", "RTLD_LOCAL", extra_lib_paths=[folder])
