"""Executes OpenCL stages with pyopencl: reference for board programs, and how the kernels are tested.

pyopencl is no dependency of this package: `pip install pyopencl`, and a device of some vendor or PoCL (Debian:
pocl-opencl-icd), which runs kernels on the CPU.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compile.aligned import check
from socsched.compile.artifact import Artifact
from socsched.compile.store import read_json
from socsched.errors import InputError, MachineError

Array = np.ndarray[Any, Any]

_FORMAT = "socsched-opencl-1"
_OPERATIONS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_WITHOUT_HALF = """\
typedef _Float16 half_2 __attribute__((ext_vector_type(2)));
typedef _Float16 half_4 __attribute__((ext_vector_type(4)));
typedef _Float16 half_8 __attribute__((ext_vector_type(8)));
#define cl_khr_fp16
#define half _Float16
#define half2 half_2
#define half4 half_4
#define half8 half_8
#define convert_half(value) ((_Float16)(value))
#define convert_float(value) ((float)(value))
static _Float16 __attribute__((overloadable)) max(_Float16 a, _Float16 b) { return a > b ? a : b; }
static _Float16 __attribute__((overloadable)) min(_Float16 a, _Float16 b) { return a < b ? a : b; }
static _Float16 __attribute__((overloadable)) fmax(_Float16 a, _Float16 b) { return a > b ? a : b; }
static _Float16 __attribute__((overloadable)) fmin(_Float16 a, _Float16 b) { return a < b ? a : b; }
static _Float16 __attribute__((overloadable)) exp(_Float16 a) { return (_Float16)exp((float)a); }
static _Float16 __attribute__((overloadable)) tanh(_Float16 a) { return (_Float16)tanh((float)a); }
static _Float16 __attribute__((overloadable)) sqrt(_Float16 a) { return (_Float16)sqrt((float)a); }
static _Float16 __attribute__((overloadable)) floor(_Float16 a) { return (_Float16)floor((float)a); }
static _Float16 __attribute__((overloadable)) round(_Float16 a) { return (_Float16)round((float)a); }
"""
"""Put before fp16 sources on devices without half arithmetic whose compiler is clang (PoCL): it has _Float16."""


def evaluate(size: int | str, symbols: Mapping[str, int]) -> int:
    """Return the value of a size of a launch plan; InputError for anything but its arithmetic."""
    if isinstance(size, int):
        return size
    return _evaluate(ast.parse(size, mode="eval").body, symbols, size)


def _evaluate(node: ast.expr, symbols: Mapping[str, int], text: str) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and node.id in symbols:
        return symbols[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = (_evaluate(side, symbols, text) for side in (node.left, node.right))
        return int(_OPERATIONS[type(node.op)](left, right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        values = [_evaluate(argument, symbols, text) for argument in node.args]
        return min(values) if node.func.id == "min" else max(values)
    raise InputError(f"launch plan: {text!r} is no size", f"sizes are arithmetic on {', '.join(symbols) or 'numbers'}")


def pyopencl() -> Any:
    """Return the module pyopencl; MachineError when it is not installed or finds no device."""
    try:
        import pyopencl as module
    except ImportError:
        raise MachineError("pyopencl is not installed: OpenCL stages cannot run", "pip install pyopencl") from None
    try:
        found = [device for platform in module.get_platforms() for device in platform.get_devices()]
    except module.Error as error:
        raise MachineError(f"no OpenCL platform: {error}", "sudo apt-get install -y pocl-opencl-icd") from None
    if not found:
        raise MachineError("no OpenCL device", "sudo apt-get install -y pocl-opencl-icd")
    return module


class OpenClStage:
    """A stage ready to run on an OpenCL device (the first one there is): call it with one array per input.

    Inputs and outputs lie as the artefact's `inputs` and `outputs` say.  Memory is allocated a call, which a board's
    program would do once.  Raises MachineError without pyopencl, a device or half precision, InputError for a folder
    that holds no launch plan and for arrays that do not fit.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.cl = pyopencl()
        self.artifact = artifact
        self.plan = _read(artifact.path)
        platform = self.cl.get_platforms()[0]
        self.context = self.cl.Context(platform.get_devices()[:1])
        self.queue = self.cl.CommandQueue(self.context)
        folder = artifact.path.parent
        self.program = self._build((folder / self.plan["source"]).read_text())
        self.kernels = {k.function_name: k for k in self.program.all_kernels()}
        self.constants = self._constants((folder / self.plan["weights"]).read_bytes())

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the outputs for `arrays`; InputError when one has another dtype or shape than its input."""
        if len(arrays) != len(self.plan["inputs"]):
            raise InputError(f"{self.artifact.stage}: expected {len(self.plan['inputs'])} inputs, got {len(arrays)}")
        for array, tensor, name in zip(arrays, self.artifact.inputs, self.artifact.input_names, strict=True):
            check(array, tensor, f"{self.artifact.stage}: input {name!r}")
        symbols = {
            name: int(arrays[where["input"]].shape[where["axis"]]) for name, where in self.plan["symbols"].items()
        }
        memory = self._memory(arrays, symbols)
        for launch in self.plan["launches"]:
            self._launch(launch, memory, symbols)
        return tuple(self._fetch(index, memory, symbols) for index in self.plan["outputs"])

    def _build(self, source: str) -> Any:
        half = "cl_khr_fp16" in source
        if half and "cl_khr_fp16" not in self.context.devices[0].extensions:
            source = _WITHOUT_HALF + source
        try:
            return self.cl.Program(self.context, source).build()
        except self.cl.RuntimeError as error:
            name, problem = self.context.devices[0].name, str(error)[:2000]
            hint = "the device has no half precision: compile the stage in fp32" if half else "update the driver"
            raise MachineError(f"{self.artifact.stage}: {name} refuses the kernels: {problem}", hint) from error

    def _constants(self, data: bytes) -> dict[int, Any]:
        flags = self.cl.mem_flags.READ_ONLY | self.cl.mem_flags.COPY_HOST_PTR
        found = {}
        for index, buffer in enumerate(self.plan["buffers"]):
            if buffer["role"] == "constant":
                part = np.frombuffer(data, np.uint8, buffer["bytes"], buffer["offset"]).copy()
                found[index] = self.cl.Buffer(self.context, flags, hostbuf=part)
        return found

    def _memory(self, arrays: tuple[Array, ...], symbols: Mapping[str, int]) -> dict[int, Any]:
        """Device memory by buffer index; scratch buffers of one storage get the same."""
        memory, storages = dict(self.constants), dict[int, int]()
        for buffer in self.plan["buffers"]:
            if "storage" in buffer:
                size = evaluate(buffer["bytes"], symbols)
                storages[buffer["storage"]] = max(size, storages.get(buffer["storage"], 0))
        shared = {storage: self._buffer(size) for storage, size in storages.items()}
        for index, buffer in enumerate(self.plan["buffers"]):
            if "storage" in buffer:
                memory[index] = shared[buffer["storage"]]
            elif index not in memory:
                memory[index] = self._buffer(evaluate(buffer["bytes"], symbols))
        for index, array in zip(self.plan["inputs"], arrays, strict=True):
            if array.size:
                self.cl.enqueue_copy(self.queue, memory[index], np.ascontiguousarray(array))
        return memory

    def _buffer(self, size: int) -> Any:
        return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, max(size, 1))

    def _launch(self, launch: Mapping[str, Any], memory: Mapping[int, Any], symbols: Mapping[str, int]) -> None:
        groups = [evaluate(size, symbols) for size in launch["groups"]]
        items = [evaluate(size, symbols) for size in launch["items"]]
        if 0 in groups:
            return
        arguments = [
            memory[a["buffer"]] if "buffer" in a else np.dtype(a["dtype"]).type(evaluate(a["value"], symbols))
            for a in launch["arguments"]
        ]
        total = [count * size for count, size in zip(groups, items, strict=True)]
        self.kernels[launch["kernel"]](self.queue, total, items, *arguments)

    def _fetch(self, index: int, memory: Mapping[int, Any], symbols: Mapping[str, int]) -> Array:
        buffer = self.plan["buffers"][index]
        result = np.empty([evaluate(size, symbols) for size in buffer["shape"]], buffer["dtype"])
        if result.size:
            self.cl.enqueue_copy(self.queue, result, memory[index])
        return result


def _read(path: Path) -> Any:
    plan = read_json(path)
    if not isinstance(plan, dict) or plan.get("format") != _FORMAT:
        raise InputError(f"{path}: no launch plan of format {_FORMAT}", "compile the stage for an engine of kind opencl")
    return plan
