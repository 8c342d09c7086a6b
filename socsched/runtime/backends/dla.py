"""Stages that TensorRT runs, on a DLA core or the GPU: engines queued on CUDA streams, tensors in slots.

The stage is handed over as ONNX (`compiler.toolchains`), built without fallback and with the planned layouts at
its inputs and outputs, so that no reformatting runs anywhere.  Each slot has one TensorRT context bound to its buffers.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.compiler.toolchains.hand_over import hand_over
from socsched.compiler.toolchains.package import MODEL
from socsched.compiler.toolchains.tensorrt import FORMATS, GPU_FORMATS, PYTHON_FORMATS
from socsched.descriptor.pipeline import Stage
from socsched.errors import UsageError
from socsched.graph.operators import TensorType
from socsched.planning.plan import Task
from socsched.runtime.backends.base import Call, Outputs, Setting
from socsched.runtime.backends.device import Device
from socsched.runtime.backends.device_jobs import DeviceJob
from socsched.runtime.backends.on_device import OnDevice, Queued, Staging, held_slots
from socsched.runtime.backends.slots import Slots
from socsched.runtime.backends.tensorrt_dla import DlaBuilder, DlaStage, Package, tensorrt
from socsched.runtime.backends.tvm_cpu import weights_of
from socsched.runtime.backends.tvm_cuda import SlottedBackend

Tensors = Mapping[str, tuple[str, TensorType]]
"""TensorRT's name of a tensor -> the stage's port, and the tensor's type."""


class TensorrtDlaBackend(SlottedBackend):
    """Stages on DLA cores, and on GPUs where the plan chose TensorRT; `device`, `module` replace CUDA and TensorRT."""

    title = "TensorRT"

    def __init__(self, device: Device | None = None, module: Any = None) -> None:
        super().__init__(device)
        self._module = module

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        """Return the stage, built or from the cache, loaded on its core; raise UsageError for unsupported tasks."""
        if stage is None:
            raise UsageError(
                f"conversion {task.name!r} is planned on {task.engine}, which performs no conversions", "plan again"
            )
        engine = setting.platform.engine(task.engine)
        chosen = next((runtime.name for runtime in engine.runtimes if runtime.name == task.runtime), "")
        if task.precision not in (("fp16", "fp32") if chosen else ("fp16",)):
            which = "TensorRT on GPUs in fp16 and fp32" if chosen else "DLAs in fp16"
            raise UsageError(
                f"stage {task.name!r} is planned in {task.precision} on {task.engine}: the executor runs {which}",
                "list only fp16 under the stage's precisions and plan again",
            )
        trt = self._module or tensorrt(dla=not chosen)
        core = None if chosen else core_of(task.engine)
        with tempfile.TemporaryDirectory() as folder:
            document = hand_over(stage, engine, task.precision, Path(folder), weights_of(setting), runtime=chosen)
            inputs, outputs = _tensors(document["inputs"]), _tensors(document["outputs"])
            border = _gpu_border if chosen else _border
            borders = {name: border(kind) for name, (_, kind) in (*inputs.items(), *outputs.items())}
            data = DlaBuilder(trt).engine(Package(Path(folder) / MODEL, task.precision, borders=borders), core)
        device = self.device(_arch(setting))
        loaded = DlaStage(trt, data, core)
        bound = setting.bound[stage.name]
        return DlaJob(device, self.stream(task.criticality), loaded, inputs, outputs, bound, self.slots(task.name))


class DlaJob(DeviceJob):
    """A loaded stage with a context for every set of input buffers; `bound` maps a port to its provider."""

    def __init__(
        self,
        device: Device,
        stream: Any,
        stage: DlaStage,
        inputs: Tensors,
        outputs: Tensors,
        bound: Mapping[str, str],
        slots: Slots,
    ) -> None:
        super().__init__(device, stream)
        self._stage, self._inputs, self._outputs, self._bound, self._slots = stage, inputs, outputs, bound, slots
        self._staging = Staging(device, stream)
        self._contexts: dict[tuple[int, ...], tuple[DlaStage, dict[str, Any], list[Any]]] = {}

    def launch(self, values: Mapping[str, Outputs]) -> Queued:
        """Queue the stage on its input buffers."""
        inputs = [values[self._bound[port]][port] for port, _ in self._inputs.values()]
        leases = held_slots(inputs) or (self._slots.take(),)
        start, end = self._begin(inputs, leases)
        lying = [
            self._staging.brought(tensor, kind, port, leases)
            for tensor, (port, kind) in zip(inputs, self._inputs.values(), strict=True)
        ]
        context, buffers = self._context([tensor.buffer for tensor in lying])
        context.enqueue(self._device.handle(self._stream))
        outputs = {
            port: OnDevice(buffers[name], kind, end, self._stream, leases, None, self._device)
            for name, (port, kind) in self._outputs.items()
        }
        return self._end(start, end, outputs)

    def _context(self, inputs: list[Any]) -> tuple[DlaStage, dict[str, Any]]:
        key = tuple(id(buffer) for buffer in inputs)
        if key not in self._contexts:
            device, stage = self._device, self._stage.again()
            outputs = {
                name: device.memory(physical_shape(kind), NUMPY_DTYPES[kind.dtype])
                for name, (_, kind) in self._outputs.items()
            }
            places = {**dict(zip(self._inputs, inputs, strict=True)), **outputs}
            stage.bind({name: device.address(buffer) for name, buffer in places.items()})
            self._contexts[key] = (stage, outputs, inputs)  # keep the buffers alive: their ids are the key
        stage, outputs, _ = self._contexts[key]
        return stage, outputs


def core_of(engine: str) -> int:
    """Return the number of a DLA core from its engine name: dla1 is core 1, a name without a number core 0."""
    digits = re.search(r"\d+$", engine)
    return int(digits[0]) if digits else 0


def _tensors(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, TensorType]]:
    return {row["name"]: (row["port"], TensorType(tuple(row["shape"]), row["dtype"], row["layout"])) for row in rows}


def _border(kind: TensorType) -> tuple[str, str]:
    return kind.dtype, PYTHON_FORMATS[FORMATS[kind.layout]]


def _gpu_border(kind: TensorType) -> tuple[str, str]:
    return kind.dtype, PYTHON_FORMATS[GPU_FORMATS[kind.layout]]


def _arch(setting: Setting) -> str:
    """Return the architecture for on-device conversions: that of the GPU sharing memory and streams with the DLA."""
    found = (str(e.target.get("arch", "")) for e in setting.platform.engines if e.target.get("kind") == "cuda")
    return next(found, "")
