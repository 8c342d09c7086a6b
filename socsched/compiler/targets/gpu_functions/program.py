"""A function on a GPU: kernels in the common dialect, buffers and launches (`compiler.launch_list`).

Sizes are fixed when the program is built, except the number of rows of an input, which is a symbol of the plan.  What
varies with the data stays on the device: later kernels read it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.launch_list import ALIGNMENT, OPENCL, Size
from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.errors import CompileError
from socsched.graph.operators import TensorType
from socsched.models.model import Model

FUNCTIONS = ("voxelise", "anchor-decode", "center-decode", "camera-preprocess", "camera-decode")
"""The host functions that have GPU kernels, by their names in `Model.device`."""
_KERNELS = Path(__file__).with_name("kernels")
_SIZES = {"real": 8, "uint64": 8, "int32": 4, "uint32": 4, "float32": 4, "float16": 2, "uint8": 1}
COUNT = "count"
"""Name of the buffer that holds the number of rows of the varying input; the kernel `set_count` writes it."""


@cache
def kernel_source(name: str) -> str:
    """Return a file of kernels."""
    return (_KERNELS / name).read_text()


@dataclass(frozen=True, slots=True)
class FunctionRequest:
    """A model to build in a precision; images at its border lie in `layout`.

    `items` is the number of items of a group, a power of two; `most_items` the most a group may have.
    """

    model: Model
    precision: str
    layout: str
    items: int = 256
    most_items: int = 256

    def keywords(self) -> Mapping[str, Any]:
        """Return the settings bound to the model's function; CompileError if it has none."""
        if not isinstance(self.model.function, partial):
            raise CompileError(f"{self.model.name}: its function has no settings to build a GPU program from")
        return self.model.function.keywords

    def image(self, tensor: TensorType) -> TensorType:
        """Return a border image in the request's precision and layout."""
        return TensorType(tensor.shape, self.precision, self.layout)


class Program:
    """Kernels of one function: `parts` are the files of kernels, `defines` the sizes they are compiled for.

    `items` is the usual number of items of a group, a power of two.
    """

    def __init__(self, name: str, parts: Sequence[str], defines: Mapping[str, object], items: int) -> None:
        self.name, self.items = name, items
        self.parts = parts
        self.defines = {"TILE": items, **defines}
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.buffers: list[dict[str, Any]] = []
        self.launches: list[dict[str, Any]] = []
        self.symbols: dict[str, dict[str, int]] = {}
        self.weights = bytearray()
        self.tensors: tuple[tuple[TensorType, ...], tuple[TensorType, ...]] = ((), ())

    def input(self, name: str, tensor: TensorType) -> int:
        """Add an input; a first dimension of -1 becomes the symbol `rows`."""
        shape: list[Size] = list(physical_shape(tensor))
        if shape[0] == -1:
            shape[0] = "rows"
            self.symbols["rows"] = {"input": len(self.inputs), "axis": 0}
        self.inputs.append(self._buffer(name, "input", NUMPY_DTYPES[tensor.dtype].name, shape))
        self.tensors = ((*self.tensors[0], tensor), self.tensors[1])
        return self.inputs[-1]

    def output(self, name: str, tensor: TensorType) -> int:
        """Add an output."""
        self.outputs.append(self._buffer(name, "output", NUMPY_DTYPES[tensor.dtype].name, list(physical_shape(tensor))))
        self.tensors = (self.tensors[0], (*self.tensors[1], tensor))
        return self.outputs[-1]

    def scratch(self, name: str, dtype: str, *shape: Size) -> int:
        """Add memory between kernels."""
        return self._buffer(name, "scratch", dtype, list(shape))

    def constant(self, name: str, array: np.ndarray[Any, Any]) -> int:
        """Add a table that the kernels read."""
        index = self._buffer(name, "constant", array.dtype.name, list(array.shape))
        self.weights += b"\0" * (-len(self.weights) % ALIGNMENT)
        self.buffers[index]["offset"] = len(self.weights)
        self.weights += np.ascontiguousarray(array).tobytes()
        return index

    def launch(self, kernel: str, count: Size, *buffers: int, items: int = 0, grouped: bool = False) -> None:
        """Add a launch with an item for each of `count` elements, or with `grouped` a group for each."""
        width = items or self.items
        groups: Size = count
        if not grouped:
            groups = -(-count // width) if isinstance(count, int) else f"({count} + {width - 1}) // {width}"
        arguments: list[dict[str, Any]] = [{"buffer": index} for index in buffers]
        if kernel == "set_count":
            arguments.append({"value": "rows", "dtype": "int32"})
        self.launches.append({"kernel": kernel, "arguments": arguments, "groups": [groups], "items": [width]})

    def plan(self) -> dict[str, Any]:
        """Return the launch list, without the names of its files."""
        return {
            "network": self.name,
            "symbols": self.symbols,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "buffers": self.buffers,
            "launches": self.launches,
        }

    def source(self, dialect: str) -> str:
        """Return the kernels in a dialect, "cuda" or "opencl"."""
        lines = [f"#define {name} {_literal(value)}" for name, value in sorted(self.defines.items())]
        parts = [kernel_source(f"dialect_{dialect}.h"), "\n".join(lines) + "\n", kernel_source("group.c")]
        return "\n".join([*parts, *map(kernel_source, self.parts)])

    def _buffer(self, name: str, role: str, dtype: str, shape: list[Size]) -> int:
        fixed = prod(size for size in shape if isinstance(size, int)) * _SIZES.get(dtype, 8)
        varying = [size for size in shape if isinstance(size, str)]
        size: Size = " * ".join([str(fixed), *varying]) if varying else fixed
        stored = "float64" if dtype == "real" else dtype
        self.buffers.append({"name": name, "role": role, "dtype": stored, "shape": shape, "bytes": size})
        return len(self.buffers) - 1


def map_defines(tensor: TensorType) -> dict[str, object]:
    """Return the defines for reading or writing an image: its data type and layout."""
    if tensor.dtype not in ("fp32", "fp16") or (tensor.layout or "NCHW") not in ("NCHW", "NHWC"):
        raise CompileError(f"no GPU kernel for a map of {tensor}", "plan the stage in fp16 or fp32")
    half = tensor.dtype == "fp16"
    return {
        "MAP": "half_t" if half else "float",
        "NHWC": int(tensor.layout == "NHWC"),
        "LOAD_MAP(array, index)": "LOAD_HALF(array, index)" if half else "((array)[index])",
        "STORE_MAP(array, index, value)": "STORE_HALF(array, index, value)" if half else "((array)[index] = (value))",
    }


def _literal(value: object) -> str:
    if isinstance(value, np.float32):
        return f"{float(value).hex()}f" if np.isfinite(value) else ("-INFINITY" if value < 0 else "INFINITY")
    if isinstance(value, float):
        return f"((real){value.hex()})" if np.isfinite(value) else ("-INFINITY" if value < 0 else "INFINITY")
    return f"({value})" if isinstance(value, int) and value < 0 else str(value)


def is_function(artifact: Artifact) -> bool:
    """Return whether an artefact is a function with a launch plan, as opposed to a network on CUDA."""
    return OPENCL.file in artifact.files


def marking(outputs: Iterable[str]) -> str | None:
    """Return the output that marks the rows in use, None if every row is: counts are 0 and labels -1 in the others."""
    return next((name for name in outputs if name == "counts" or name.endswith("labels")), None)


# Sources in half precision for devices with and without half arithmetic.

_WITHOUT_HALF = """\
#if !defined(cl_khr_fp16) && defined(__clang__)
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
#endif
"""


def portable(source: str) -> str:
    """Return an OpenCL source that also compiles where a device lacks half arithmetic: PoCL's clang has _Float16."""
    return _WITHOUT_HALF + source if "cl_khr_fp16" in source else source
