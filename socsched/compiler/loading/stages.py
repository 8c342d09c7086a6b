"""Compiled stages run in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.launch_list import CPU
from socsched.compiler.layouts import NUMPY_DTYPES, convert
from socsched.compiler.loading.aligned import from_tvm, shared, to_tvm
from socsched.compiler.native.compilers import SOURCES, build_shared_object
from socsched.compiler.store import read_json
from socsched.errors import InputError, MachineError
from socsched.graph.operators import TensorType

Array = np.ndarray[Any, Any]


@contextmanager
def small_as_zero() -> Iterator[None]:
    """Let numbers below the least normal one count as 0 for the calling thread and those it starts (`stages.h`)."""
    code = build_shared_object(*SOURCES)
    if code is None:  # slower where there are such numbers
        yield
        return
    before = code.socsched_flush_floats()
    try:
        yield
    finally:
        code.socsched_restore_floats(ctypes.c_uint64(before))


def load(artifact: Artifact) -> CompiledStage | RelaidStage:
    """Return `artifact` ready to run; MachineError if built for another machine or its file is unusable."""
    if artifact.target == "cuda":
        raise MachineError(
            f"{artifact.stage}: code for {artifact.engine} runs in the native executor only", "use `socsched run`"
        )
    return RelaidStage(artifact) if artifact.code_inputs or artifact.code_outputs else CompiledStage(artifact)


class CompiledStage:
    """A loaded stage: call it with one array per input and get one per output.

    It holds one virtual machine, which is not thread safe: load the artefact once per thread.  Inputs must have the
    layouts in `inputs` (see `layouts.convert`); 64-byte aligned C-contiguous ones are used in place, others are copied.
    Outputs are newly allocated on every call and belong to the caller.  The first call of a thread starts its worker
    threads (`artifact.threads`, 0 for the process's TVM_NUM_THREADS).
    """

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.inputs, self.outputs = artifact.inputs, artifact.outputs
        self._function, self._constants = _open(artifact), [shared(array) for array in constants(artifact)]
        self._inside = self.inputs if artifact.computes_half else tuple(_inside(tensor) for tensor in self.inputs)
        self._configured = False

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the outputs for `arrays`; InputError when one has another dtype or shape than its input."""
        if len(arrays) != len(self.inputs):
            raise InputError(f"{self.artifact.stage}: expected {len(self.inputs)} inputs, got {len(arrays)}")
        self._configure()
        operands = [
            self._operand(array, tensor, inside, name)
            for array, tensor, inside, name in zip(
                arrays, self.inputs, self._inside, self.artifact.input_names, strict=True
            )
        ]
        with small_as_zero():
            results = self._function(*operands, *self._constants)
        return tuple(
            from_tvm(result).astype(NUMPY_DTYPES[tensor.dtype], copy=False)
            for result, tensor in zip(results, self.outputs, strict=True)
        )

    def _operand(self, array: Array, tensor: TensorType, inside: TensorType, name: str) -> Any:
        """Return an input as a TVM tensor; where half precision is storage only, kernels take fp32 (see `builder`)."""
        if inside != tensor and isinstance(array, np.ndarray) and array.dtype == np.float16:
            array, tensor = array.astype(np.float32), inside
        return to_tvm(array, tensor, f"{self.artifact.stage}: input {name!r}")

    def _configure(self) -> None:
        """Set the size of the thread pool, which belongs to the calling thread, on the first call, not at loading."""
        if self.artifact.threads and not self._configured:
            from socsched.compiler.loading.tvm_runtime import tvm

            tvm.get_global_func("runtime.config_threadpool")(1, self.artifact.threads)
        self._configured = True


class RelaidStage:
    """A stage of a simulated engine: border tensors have the engine's layout, the code its own."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.inputs, self.outputs = artifact.inputs, artifact.outputs
        self._wanted = artifact.code_inputs or artifact.inputs
        self._left = artifact.code_outputs or artifact.outputs
        self._code = CompiledStage(replace(artifact, inputs=self._wanted, outputs=self._left))

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the outputs for `arrays`, all of them in the engine's layout; errors as `CompiledStage`."""
        if len(arrays) != len(self.inputs):
            raise InputError(f"{self.artifact.stage}: expected {len(self.inputs)} inputs, got {len(arrays)}")
        given = [convert(*entry) for entry in zip(arrays, self.inputs, self._wanted, strict=True)]
        return tuple(convert(*entry) for entry in zip(self._code(*given), self._left, self.outputs, strict=True))


def _inside(tensor: TensorType) -> TensorType:
    return TensorType(tensor.shape, "fp32", tensor.layout) if tensor.dtype == "fp16" else tensor


def constants(artifact: Artifact) -> list[Array]:
    """Return what the code of a CPU takes after its inputs: its constants, in the file beside its launch list."""
    if CPU.file not in artifact.files:
        return []
    plan = read_json(artifact.folder / CPU.file)
    file = artifact.folder / plan["weights"]
    return [
        np.memmap(file, buffer["dtype"], "c", buffer["offset"], tuple(buffer["shape"]))
        for buffer in plan["buffers"]
        if buffer["role"] == "constant"
    ]


def _open(artifact: Artifact) -> Any:
    if not artifact.loadable:
        where = artifact.triple or artifact.target
        raise MachineError(
            f"{artifact.path.name} of stage {artifact.stage!r} is code for {where}, which this machine cannot run",
            "deploy it to the board, or compile the stage for the host platform",
        )
    from socsched.compiler.loading.tvm_runtime import VirtualMachine, tvm

    try:
        module = tvm.runtime.load_module(str(artifact.path.resolve()))
        return VirtualMachine(module, tvm.cpu())["main"]
    except (RuntimeError, OSError, AttributeError, ValueError) as error:
        raise MachineError(f"{artifact.path}: cannot be loaded: {error}", "delete it; it is built again") from error
