"""Stages and conversions as jobs on a device's streams: recorded graphs and copies, one set per slot.

Every stage has one graph per slot, recorded over the same buffers its predecessor writes, so that tensors stay in place
from stage to stage.  A stage on another stream than its producer waits there for the producer's event.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from socsched.compiler.artifact import Artifact
from socsched.compiler.layouts import NUMPY_DTYPES
from socsched.compiler.targets.gpu_functions.rows import is_function, marking
from socsched.graph.operators import TensorType
from socsched.models.registry import get_model
from socsched.planning.plan import Transition
from socsched.runtime.backends.base import Outputs, Placed, Setting
from socsched.runtime.backends.conversion import target_types
from socsched.runtime.backends.device import Device, Program
from socsched.runtime.backends.on_device import OnDevice, Queued, Staging, held_slots, room_for
from socsched.runtime.backends.slots import Lease, Slots, lease

_RECORDING = threading.Lock()
"""Two threads that record at once break both recordings."""


class DeviceJob(ABC):
    """The common part of stages and conversions: a stream, and events by slot."""

    def __init__(self, device: Device, stream: Any) -> None:
        self._device, self._stream = device, stream
        self._events: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def __call__(self, values: Mapping[str, Outputs]) -> Outputs:
        """Queue the job and wait for its end."""
        queued = self.launch(values)
        queued.wait()
        return queued.outputs

    @abstractmethod
    def launch(self, values: Mapping[str, Outputs]) -> Queued:
        """Queue the job."""

    def _begin(self, given: Sequence[Any], leases: Sequence[Lease]) -> tuple[Any, Any]:
        """Order the stream after tensors from other streams and mark the job's start; return its two events."""
        device, stream = self._device, self._stream
        key = tuple(lease.number for lease in leases)
        if key not in self._events:
            self._events[key] = (device.event(), device.event())
        for tensor in given:
            if isinstance(tensor, OnDevice) and tensor.stream is not stream:
                device.follow(stream, tensor.event)
        start, end = self._events[key]
        device.mark(start, stream)
        return start, end

    def _end(
        self, start: Any, end: Any, outputs: Outputs, marks: Mapping[str, tuple[str, Any]] | None = None
    ) -> Queued:
        self._device.mark(end, self._stream)
        return Queued(outputs, self._device, start, end, marks or {})


class DeviceStage(DeviceJob):
    """A compiled stage with one graph for every set of input buffers."""

    def __init__(
        self, device: Device, stream: Any, artifact: Artifact, inputs: Mapping[str, str], slots: Slots
    ) -> None:
        super().__init__(device, stream)
        self._artifact, self._inputs, self._slots = artifact, inputs, slots
        self._program: Program = device.program(artifact)
        self._graphs: dict[tuple[int, ...], tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = {}
        # a function takes its number of points from the buffer's size, and drops those that are not numbers
        self._is_function = is_function(artifact)
        self._staging = Staging(device, stream, fill=float("nan") if self._is_function else None)

    def launch(self, values: Mapping[str, Outputs]) -> Queued:
        """Queue the stage's graph for its input buffers."""
        given = [values[provider][port] for port, provider in self._inputs.items()]
        leases = held_slots(given) or (self._slots.take(),)
        start, end = self._begin(given, leases)
        lying = [
            self._staging.brought(tensor, kind, name, leases)
            for tensor, kind, name in zip(given, self._artifact.inputs, self._inputs, strict=True)
        ]
        graph, outputs = self._recorded([tensor.buffer for tensor in lying])
        self._device.launch(graph, self._stream)
        return self._end(start, end, self._outputs(lying, outputs, end, leases))

    def _outputs(
        self, given: Sequence[OnDevice], buffers: Sequence[Any], end: Any, leases: tuple[Lease, ...]
    ) -> dict[str, OnDevice]:
        """Return the outputs; rows that vary are those of the inputs, or as many as a function marks as used."""
        names, kinds = self._artifact.output_names, self._artifact.outputs
        rows = next((tensor.rows for tensor in given if tensor.rows is not None), None)
        marked = next((tensor for tensor in given if tensor.mark), None)
        mark = marked.mark if marked else None
        if self._is_function:
            name = marking(names)
            rows, mark = None, (name, buffers[names.index(name)]) if name else None
        made = {}
        for name, buffer, kind in zip(names, buffers, kinds, strict=True):
            varies = kind.shape[0] < 0
            if varies and marked:
                kind = TensorType((marked.type.shape[0], *kind.shape[1:]), kind.dtype, kind.layout)
            known, marks = rows if varies else None, mark if varies or self._is_function else None
            made[name] = OnDevice(buffer, kind, end, self._stream, leases, known, self._device, marks)
        return made

    def _recorded(self, buffers: list[Any]) -> tuple[Any, tuple[Any, ...]]:
        key = tuple(id(buffer) for buffer in buffers)
        if key not in self._graphs:
            with _RECORDING:
                graph, outputs = self._device.record(self._stream, self._program, buffers)
            self._graphs[key] = (graph, outputs, tuple(buffers))  # keep the buffers alive: their ids are the key
        graph, outputs, _ = self._graphs[key]
        return graph, outputs


class Upload(DeviceJob):
    """A conversion whose sink is on the device: tensors are uploaded in the sink's layout and type."""

    def __init__(self, device: Device, stream: Any, move: Transition, setting: Setting, slots: Slots) -> None:
        super().__init__(device, stream)
        self._source, self._slots = move.source, slots
        self._wanted = target_types(move, setting)
        self._staging = Staging(device, stream, _nominal(move, setting))

    def launch(self, values: Mapping[str, Outputs]) -> Queued:
        """Queue the copies, and the conversions that the device does."""
        given = values[self._source]
        tensors = [given[port] for port in self._wanted]
        leases = held_slots(tensors) or (self._slots.take(),)
        start, end = self._begin(tensors, leases)
        made = {
            port: self._staging.brought(given[port], kind, port, leases, end) for port, kind in self._wanted.items()
        }
        return self._end(start, end, made)


class Reform(DeviceJob):
    """A conversion between engines that share the device's memory, without a copy to the host."""

    def __init__(self, device: Device, stream: Any, move: Transition, setting: Setting) -> None:
        super().__init__(device, stream)
        self._source = move.source
        self._wanted = target_types(move, setting)
        self._buffers: dict[tuple[Any, ...], Any] = {}

    def launch(self, values: Mapping[str, Outputs]) -> Queued:
        """Queue the conversions; tensors already in the wanted layout and type are passed on."""
        given: dict[str, OnDevice] = {port: values[self._source][port] for port in self._wanted}
        leases = held_slots(list(given.values()))
        start, end = self._begin(list(given.values()), leases)
        made = {port: self._reformed(port, given[port], kind, leases, end) for port, kind in self._wanted.items()}
        return self._end(start, end, made)

    def _reformed(self, port: str, tensor: OnDevice, kind: TensorType, leases: tuple[Lease, ...], end: Any) -> OnDevice:
        kind = TensorType(tensor.type.shape, kind.dtype, kind.layout)
        if (tensor.type.dtype, tensor.type.layout) == (kind.dtype, kind.layout):
            return tensor
        shape = room_for(kind, tensor.rows)
        key = (port, shape, *(lease.number for lease in leases))
        if key not in self._buffers:
            self._buffers[key] = self._device.memory(shape, NUMPY_DTYPES[kind.dtype])
        self._device.convert(self._buffers[key], kind, tensor.buffer, tensor.type, tensor.rows, self._stream)
        return OnDevice(self._buffers[key], kind, end, self._stream, leases, tensor.rows, self._device, tensor.mark)


class Download(DeviceJob):
    """A conversion whose sink is on the host: tensors are converted on the device and copied to host memory.

    The arrays handed on are views of that memory and keep the frame's slot.
    """

    def __init__(self, device: Device, stream: Any, move: Transition, setting: Setting) -> None:
        super().__init__(device, stream)
        self._source = move.source
        self._wanted = target_types(move, setting)
        self._buffers: dict[tuple[str, tuple[int, ...]], tuple[Any, Any]] = {}

    def launch(self, values: Mapping[str, Outputs]) -> Queued:
        """Queue conversions and copies."""
        given: dict[str, OnDevice] = {port: values[self._source][port] for port in self._wanted}
        leases = held_slots(list(given.values()))
        start, end = self._begin(list(given.values()), leases)
        made: dict[str, Any] = {}
        marks: dict[str, tuple[str, Any]] = {}
        for port, kind in self._wanted.items():
            tensor = given[port]
            kind = TensorType(tensor.type.shape, kind.dtype, kind.layout)
            array = self._copied(port, tensor, kind, leases)
            made[port] = Placed(lease(array, leases)[: tensor.rows], kind)
            if tensor.mark:
                name, buffer = tensor.mark
                flags = replace(tensor, buffer=buffer, type=TensorType(tensor.type.shape[:1], "int32"))
                marks[port] = (name, self._copied(f"{port}'s rows", flags, flags.type, leases))
        return self._end(start, end, made, marks)

    def _copied(self, port: str, tensor: OnDevice, kind: TensorType, leases: Sequence[Lease]) -> Any:
        shape = room_for(kind, tensor.rows)
        key = (port, (*shape, *(lease.number for lease in leases)))
        device, same = self._device, (tensor.type.dtype, tensor.type.layout) == (kind.dtype, kind.layout)
        if key not in self._buffers:
            dtype = NUMPY_DTYPES[kind.dtype]
            self._buffers[key] = (None if same else device.memory(shape, dtype), device.host(shape, dtype))
        between, array = self._buffers[key]
        if not same:
            device.convert(between, kind, tensor.buffer, tensor.type, tensor.rows, self._stream)
        count = prod(shape) if tensor.rows is None else prod(shape[1:]) * tensor.rows
        device.copy(array, tensor.buffer if same else between, count, self._stream)
        return array


def _nominal(move: Transition, setting: Setting) -> dict[str, int]:
    """Return the nominal row counts of the crossing tensors of variable size, whose sink takes any number of rows."""
    sink = setting.pipeline.stage(move.sink)
    source = setting.pipeline.stage(move.source)
    ports = {port.name: port.type for port in get_model(source.model or "", source.params).outputs}
    taken = {port.name: port.type for port in get_model(sink.model or "", sink.params).inputs}
    return {
        name: ports[name].shape[0]
        for name, provider in setting.bound[sink.name].items()
        if provider == move.source and len(taken[name].shape) != 4 and ports[name].shape[0] > 1
    }
