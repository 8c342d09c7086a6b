"""Executes OpenCL stages on the first device of the machine: reference for board programs and test of kernels.

PoCL (Debian: pocl-opencl-icd) provides a device that runs kernels on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.launch_list import OPENCL, evaluate
from socsched.compiler.loading.aligned import check
from socsched.compiler.store import read_json
from socsched.errors import InputError
from tools.verify.opencl_device import Device

Array = np.ndarray[Any, Any]


class OpenClStage:
    """A stage ready to run on the first OpenCL device: call it with one array per input and get one per output.

    Inputs and outputs have the layouts of the artefact's `inputs` and `outputs`.  Memory is allocated on every call; a
    board program would do so once.  Raises MachineError without a device or if it rejects the kernels, InputError for a
    folder without launch plan and for arrays that do not fit.
    """

    def __init__(self, artifact: Artifact, device: Device | None = None) -> None:
        self.artifact, self.device = artifact, device or Device()
        self.plan = _read(artifact.path)
        folder = artifact.path.parent
        source = (folder / self.plan["source"]).read_text()
        self.kernels = self.device.build(source) if self.plan["launches"] else {}
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
        memory = self._memory(symbols)
        try:
            for index, array in zip(self.plan["inputs"], arrays, strict=True):
                self.device.write(memory[index], np.ascontiguousarray(array))
            for launch in self.plan["launches"]:
                self._launch(launch, {**self.constants, **memory}, symbols)
            return tuple(self._fetch(index, memory, symbols) for index in self.plan["outputs"])
        finally:
            for part in {id(part): part for part in memory.values()}.values():
                self.device.release(part)

    def _constants(self, data: bytes) -> dict[int, Any]:
        found = {}
        for index, buffer in enumerate(self.plan["buffers"]):
            if buffer["role"] == "constant":
                found[index] = self.device.allocate(buffer["bytes"])
                self.device.write(found[index], np.frombuffer(data, np.uint8, buffer["bytes"], buffer["offset"]))
        return found

    def _memory(self, symbols: Mapping[str, int]) -> dict[int, Any]:
        """Return device memory by index for all buffers except constants; scratch buffers of one storage share it."""
        sizes = [evaluate(buffer["bytes"], symbols) for buffer in self.plan["buffers"]]
        storages: dict[int, int] = {}
        for buffer, size in zip(self.plan["buffers"], sizes, strict=True):
            if "storage" in buffer:
                storages[buffer["storage"]] = max(size, storages.get(buffer["storage"], 0))
        shared = {storage: self.device.allocate(size) for storage, size in storages.items()}
        memory = {
            index: shared[buffer["storage"]] if "storage" in buffer else self.device.allocate(sizes[index])
            for index, buffer in enumerate(self.plan["buffers"])
            if buffer["role"] not in ("constant", "part")
        }
        parts = {
            index: self.device.part(memory[buffer["within"]], buffer["offset"], sizes[index])
            for index, buffer in enumerate(self.plan["buffers"])
            if buffer["role"] == "part"
        }
        return {**parts, **memory}

    def _launch(self, launch: Mapping[str, Any], memory: Mapping[int, Any], symbols: Mapping[str, int]) -> None:
        groups = [evaluate(size, symbols) for size in launch["groups"]]
        if 0 in groups:
            return
        arguments = [
            memory[a["buffer"]] if "buffer" in a else np.dtype(a["dtype"]).type(evaluate(a["value"], symbols))
            for a in launch["arguments"]
        ]
        items = [evaluate(size, symbols) for size in launch["items"]]
        self.device.launch(self.kernels[launch["kernel"]], groups, items, arguments)

    def _fetch(self, index: int, memory: Mapping[int, Any], symbols: Mapping[str, int]) -> Array:
        buffer = self.plan["buffers"][index]
        result = np.empty([evaluate(size, symbols) for size in buffer["shape"]], buffer["dtype"])
        self.device.read(memory[index], result)
        return result


def _read(path: Path) -> Any:
    plan = read_json(path)
    if not isinstance(plan, dict) or plan.get("format") != OPENCL.version:
        raise InputError(
            f"{path}: not a launch plan of format {OPENCL.version}", "compile the stage for an engine of kind opencl"
        )
    return plan
