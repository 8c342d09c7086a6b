"""Functions on a CUDA device: a launch plan's kernels over buffers that are fixed when the plan is bound."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.launch_list import OPENCL, evaluate
from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.compiler.loading.aligned import check
from socsched.compiler.store import read_json
from socsched.compiler.targets.cuda.cuda_api import Stream
from socsched.compiler.targets.cuda.driver import Code, Memory
from socsched.errors import InputError, MachineError

Array = np.ndarray[Any, Any]

_COUNT, _SET_COUNT = "count", "set_count"


class GpuFunction:
    """A loaded function: `bind` it to buffers and launch, or call it with one array per input.

    Outputs have room for the most rows there can be; the implementation defines the content of unused ones.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.inputs, self.outputs = artifact.inputs, artifact.outputs
        self.plan = read_json(artifact.folder / OPENCL.file)
        if not isinstance(self.plan, dict) or self.plan.get("format") != OPENCL.version:
            raise MachineError(
                f"{artifact.folder / OPENCL.file}: not a launch plan of format {OPENCL.version}", "delete the artefact"
            )
        self._code = Code(artifact.path.read_bytes())
        self._constants = self._uploaded((artifact.folder / self.plan["weights"]).read_bytes())

    def reserve(self, rows: int = 0) -> dict[int, Memory]:
        """Return scratch memory for an input with up to `rows` rows, by buffer."""
        return {
            index: Memory(evaluate(buffer["bytes"], {"rows": rows}))
            for index, buffer in enumerate(self.plan["buffers"])
            if buffer["role"] == "scratch"
        }

    def bind(
        self,
        inputs: Sequence[int],
        outputs: Sequence[int],
        scratch: Mapping[int, Memory],
        rows: int = 0,
        count: int = 0,
    ) -> Bound:
        """Return the kernels over inputs, outputs and scratch memory at these addresses; allocates nothing.

        `rows` is the room of the input whose size varies.  Its number of rows is `rows`, or is read from the address
        `count` if that is given: an integer on the device.
        """
        sizes = {"rows": rows}
        memory = {**self._constants, **{index: place.address for index, place in scratch.items()}}
        memory |= dict(zip(self.plan["inputs"], inputs, strict=True))
        memory |= dict(zip(self.plan["outputs"], outputs, strict=True))
        for index, buffer in enumerate(self.plan["buffers"]):
            if buffer["name"] == _COUNT and count:
                memory[index] = count
        launches = []
        for launch in self.plan["launches"]:
            groups = evaluate(launch["groups"][0], sizes)
            if not groups or (launch["kernel"] == _SET_COUNT and count):
                continue
            values = [
                ctypes.c_void_p(memory[value["buffer"]])
                if "buffer" in value
                else ctypes.c_int(evaluate(value["value"], sizes))
                for value in launch["arguments"]
            ]
            launches.append(Launch(launch["kernel"], groups, int(launch["items"][0]), tuple(values)))
        return Bound(self._code, tuple(launches))

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the outputs for `arrays`; InputError when one has another dtype or shape than its input."""
        if len(arrays) != len(self.inputs):
            raise InputError(f"{self.artifact.stage}: expected {len(self.inputs)} inputs, got {len(arrays)}")
        for array, tensor, name in zip(arrays, self.inputs, self.artifact.input_names, strict=True):
            check(array, tensor, f"{self.artifact.stage}: input {name!r}")
        given = [Memory(array.nbytes) for array in arrays]
        for memory, array in zip(given, arrays, strict=True):
            memory.write(np.ascontiguousarray(array))
        found = [np.empty(physical_shape(tensor), NUMPY_DTYPES[tensor.dtype]) for tensor in self.outputs]
        results = [Memory(array.nbytes) for array in found]
        rows = next((len(a) for a, t in zip(arrays, self.inputs, strict=True) if t.shape[0] < 0), 0)
        stream = Stream()
        scratch, places = self.reserve(rows), ([m.address for m in given], [m.address for m in results])
        self.bind(*places, scratch, rows).launch(stream)
        stream.synchronize()
        for memory, array in zip(results, found, strict=True):
            memory.read(array)
        return tuple(found)

    def _uploaded(self, data: bytes) -> dict[int, int]:
        self._tables = Memory(len(data))
        if data:
            self._tables.write(np.frombuffer(data, np.uint8))
        return {
            index: self._tables.address + int(buffer["offset"])
            for index, buffer in enumerate(self.plan["buffers"])
            if buffer["role"] == "constant"
        }


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel with its groups, the items of each, and its arguments."""

    kernel: str
    groups: int
    items: int
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """A function's kernels over fixed buffers."""

    code: Code
    launches: tuple[Launch, ...]

    def launch(self, stream: Stream) -> None:
        """Queue all kernels."""
        for each in self.launches:
            self.code.launch(each.kernel, (each.groups, 1), (each.items, 1), stream, each.values)


def size_of(tensor: Any) -> int:
    """Return the bytes of a tensor of fixed size."""
    return prod(physical_shape(tensor)) * NUMPY_DTYPES[tensor.dtype].itemsize
