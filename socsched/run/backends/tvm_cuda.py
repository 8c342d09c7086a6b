"""Stages on a CUDA device: compiled functions as recorded graphs, frames in slots, nothing waits but for the end.

A frame that enters the device takes a slot; every stage has a graph a slot, recorded over the very buffers the stage
before it writes, so that tensors stay where they are from stage to stage.  The slot is free again when nobody holds
anything of it, host copies included.  Streams differ by criticality; a stage on another stream than its producer waits
for the producer's event there.  Copies from and to the host are the plan's conversions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from socsched.compile.artifact import Artifact
from socsched.compile.layouts import NUMPY_DTYPES, physical_shape
from socsched.descriptor.pipeline import Stage
from socsched.errors import MachineError
from socsched.graph.operators import TensorType
from socsched.models.registry import get_model
from socsched.plan.plan import Task, Transition
from socsched.run.backends.base import Call, Outputs, Placed, Setting
from socsched.run.backends.conversion import wanted_types
from socsched.run.backends.device import Device, Program

ROWS = 4000
"""Rows a tensor of varying size is given room for, in multiples: frames of similar size share graphs."""
_RECORDING = threading.Lock()
"""Two threads that record at once break both recordings."""

Compile = Callable[[Task, Stage, Setting], Artifact]


class Lease:
    """A slot while anything in it is in use; gives it back when the last holder lets go."""

    __slots__ = ("_free", "number")

    def __init__(self, number: int, free: list[int]) -> None:
        self.number, self._free = number, free

    def __del__(self) -> None:
        self._free.append(self.number)


class Slots:
    """Slots in any number; those given back are used again first.  Beyond `limit` there is no `room` for new frames."""

    def __init__(self) -> None:
        self.made, self.limit = 0, 0
        self._free: list[int] = []

    @property
    def room(self) -> bool:
        """Whether a frame can enter without a slot beyond the limit (0: none), whose graphs would have to be made."""
        return bool(self._free) or not self.limit or self.made < self.limit

    def take(self) -> Lease:
        """Return a slot nobody uses."""
        try:
            return Lease(self._free.pop(), self._free)
        except IndexError:
            self.made += 1
            return Lease(self.made - 1, self._free)


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A tensor on the device: where and how it lies, the event after which it is there, and the slots it is part of.

    `rows` says how many rows count where there is room for more.
    """

    buffer: Any
    type: TensorType
    event: Any
    stream: Any
    leases: tuple[Lease, ...]
    rows: int | None
    device: Device

    def fetch(self) -> Placed:
        """Return a copy on the host, at once: for readers the plan has no conversion for."""
        shape = physical_shape(self.type)
        array = self.device.host(shape, NUMPY_DTYPES[self.type.dtype])
        start, end = self.device.event(), self.device.event()
        self.device.follow(self.stream, self.event)
        self.device.mark(start, self.stream)
        self.device.copy(array, self.buffer, prod(shape), self.stream)
        self.device.mark(end, self.stream)
        self.device.wait(start, end)
        return Placed(array[: self.rows].copy(), self.type)


@dataclass(slots=True)
class Queued:
    """A job on the device's queue (see `base.Pending`)."""

    outputs: Outputs
    device: Device
    start: Any
    end: Any

    def wait(self) -> tuple[int, int]:
        """Sleep until the job has ended; return when it began and ended."""
        return self.device.wait(self.start, self.end)


class TvmCudaBackend:
    """Stages and conversions on one CUDA device; one instance serves a run."""

    title = "TVM on CUDA"
    real = True
    queued = True

    def __init__(self, device: Device | None = None, compile_: Compile | None = None) -> None:
        self._device, self._compile = device, compile_ or _compiled
        self._slots: dict[str, Slots] = {}
        self._limit = 0
        self._local = threading.local()
        self._lock = threading.Lock()

    def room(self, task: str) -> bool:
        """Whether a slot is free for another frame that enters the device with `task`."""
        return self.slots(task).room

    def limit(self, frames: int) -> None:
        """Let no more than `frames` frames be on the device at once, for each task they enter with."""
        self._limit = frames
        for slots in self._slots.values():
            slots.limit = frames

    def slots(self, task: str) -> Slots:
        """Return the slots of frames that enter the device with `task`."""
        with self._lock:
            if task not in self._slots:
                self._slots[task] = Slots()
                self._slots[task].limit = self._limit
            return self._slots[task]

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        """Return a stage or conversion for the calling thread, on its stream for the task's criticality."""
        with self._lock:
            if self._device is None:
                from socsched.compile.gpu.device import CudaDevice

                self._device = CudaDevice(_arch(setting, task.engine))
        stream = self._stream(task.criticality)
        if stage is not None:
            artifact = self._compile(task, stage, setting)
            bound = setting.bound[stage.name]
            inputs = {name: bound[name] for name in artifact.input_names}
            return DeviceStage(self._device, stream, artifact, inputs, self.slots(task.name))
        move = next(t for t in setting.plan.transitions if t.task == task.name)
        engines = {t.name: t.engine for t in setting.plan.tasks}
        if engines[move.sink] == task.engine:
            return Upload(self._device, stream, move, setting, self.slots(task.name))
        return Download(self._device, stream, move, setting)

    def _stream(self, criticality: str) -> Any:
        streams: dict[str, Any] = self._local.__dict__.setdefault("streams", {})
        if criticality not in streams:
            assert self._device is not None
            streams[criticality] = self._device.stream(criticality)
        return streams[criticality]


class _Job:
    """What stages and conversions share: a stream, and events by slot."""

    def __init__(self, device: Device, stream: Any) -> None:
        self._device, self._stream = device, stream
        self._events: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def __call__(self, values: Mapping[str, Outputs]) -> Outputs:
        """Queue the job and wait for its end."""
        queued = self.launch(values)
        queued.wait()
        return queued.outputs

    def launch(self, values: Mapping[str, Outputs]) -> Queued:
        """Queue the job."""
        raise NotImplementedError

    def _begin(self, given: Sequence[Any], leases: Sequence[Lease]) -> tuple[Any, Any]:
        """Let the stream wait for tensors made on other ones; return the events around the job, which has begun."""
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

    def _end(self, start: Any, end: Any, outputs: Outputs) -> Queued:
        self._device.mark(end, self._stream)
        return Queued(outputs, self._device, start, end)


class DeviceStage(_Job):
    """A compiled stage with one graph for every set of input buffers it is given."""

    def __init__(
        self, device: Device, stream: Any, artifact: Artifact, inputs: Mapping[str, str], slots: Slots
    ) -> None:
        super().__init__(device, stream)
        self._artifact, self._inputs, self._slots = artifact, inputs, slots
        self._program: Program = device.program(artifact)
        self._graphs: dict[tuple[int, ...], tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = {}
        self._staging = Staging(device, stream)

    def launch(self, values: Mapping[str, Outputs]) -> Queued:
        """Queue the stage's graph for the buffers its inputs lie in."""
        given = [values[provider][port] for port, provider in self._inputs.items()]
        leases = held(given) or (self._slots.take(),)
        start, end = self._begin(given, leases)
        lying = [
            self._staging.brought(tensor, kind, name, leases)
            for tensor, kind, name in zip(given, self._artifact.inputs, self._inputs, strict=True)
        ]
        graph, outputs = self._recorded([tensor.buffer for tensor in lying])
        self._device.launch(graph, self._stream)
        rows = next((tensor.rows for tensor in lying if tensor.rows is not None), None)
        made = {
            name: OnDevice(buffer, kind, end, self._stream, leases, rows if kind.shape[0] < 0 else None, self._device)
            for name, buffer, kind in zip(self._artifact.output_names, outputs, self._artifact.outputs, strict=True)
        }
        return self._end(start, end, made)

    def _recorded(self, buffers: list[Any]) -> tuple[Any, tuple[Any, ...]]:
        key = tuple(id(buffer) for buffer in buffers)
        if key not in self._graphs:
            with _RECORDING:
                graph, outputs = self._device.record(self._stream, self._program, buffers)
            self._graphs[key] = (graph, outputs, tuple(buffers))  # the buffers stay, or their identity would not
        graph, outputs, _ = self._graphs[key]
        return graph, outputs


class Upload(_Job):
    """A conversion whose sink is on the device: tensors are brought there as the sink wants them."""

    def __init__(self, device: Device, stream: Any, move: Transition, setting: Setting, slots: Slots) -> None:
        super().__init__(device, stream)
        self._source, self._slots = move.source, slots
        self._wanted = wanted_types(move, setting)
        self._staging = Staging(device, stream, _nominal(move, setting))

    def launch(self, values: Mapping[str, Outputs]) -> Queued:
        """Queue the copies, and the conversions where the device does them."""
        given = values[self._source]
        tensors = [given[port] for port in self._wanted]
        leases = held(tensors) or (self._slots.take(),)
        start, end = self._begin(tensors, leases)
        made = {
            port: self._staging.brought(given[port], kind, port, leases, end) for port, kind in self._wanted.items()
        }
        return self._end(start, end, made)


class Download(_Job):
    """A conversion whose sink is on the host: tensors are converted on the device and copied into memory it can read.

    The arrays handed on lie in that memory and keep the frame's slot.
    """

    def __init__(self, device: Device, stream: Any, move: Transition, setting: Setting) -> None:
        super().__init__(device, stream)
        self._source = move.source
        self._wanted = wanted_types(move, setting)
        self._buffers: dict[tuple[str, tuple[int, ...]], tuple[Any, Any]] = {}

    def launch(self, values: Mapping[str, Outputs]) -> Queued:
        """Queue conversions and copies."""
        given: dict[str, OnDevice] = {port: values[self._source][port] for port in self._wanted}
        leases = held(list(given.values()))
        start, end = self._begin(list(given.values()), leases)
        made: dict[str, Any] = {}
        for port, kind in self._wanted.items():
            tensor = given[port]
            kind = TensorType(tensor.type.shape, kind.dtype, kind.layout)
            array = self._copied(port, tensor, kind, leases)
            made[port] = Placed(leased(array, leases)[: tensor.rows], kind)
        return self._end(start, end, made)

    def _copied(self, port: str, tensor: OnDevice, kind: TensorType, leases: Sequence[Lease]) -> Any:
        shape = _room(kind, tensor.rows)
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


class Staging:
    """Brings tensors from the host to the device, through memory both can reach, into buffers of a slot.

    `nominal` says for how many rows each port is given room at least.
    """

    def __init__(self, device: Device, stream: Any, nominal: Mapping[str, int] | None = None) -> None:
        self._device, self._stream, self._nominal = device, stream, nominal or {}
        self._buffers: dict[tuple[Any, ...], tuple[Any, Any, Any]] = {}

    def brought(
        self, value: Any, kind: TensorType, port: str, leases: tuple[Lease, ...], event: Any = None
    ) -> OnDevice:
        """Return `value` on the device as `kind` says it is to lie; what lies so already is returned as it is."""
        if isinstance(value, OnDevice):
            if (value.type.dtype, value.type.layout) == (kind.dtype, kind.layout):
                return value
            raise MachineError(
                f"tensor {port!r} lies as {value.type} on the device, {kind} is wanted and the plan has no conversion",
                "plan again",
            )
        array, given = (value.array, value.type) if isinstance(value, Placed) else (value, _plain(value, kind))
        varies = len(kind.shape) != 4 and (kind.shape[0] < 0 or port in self._nominal)
        rows = len(array) if varies else None
        room = -(-max(len(array), self._nominal.get(port, 1)) // ROWS) * ROWS if varies else 0
        shape = (room, *array.shape[1:]) if varies else physical_shape(TensorType(given.shape, kind.dtype, kind.layout))
        staged, raw, buffer = self._slot(port, array, given, kind, shape, leases)
        if rows is None:
            staged[...] = array
        else:
            staged[:rows] = array
            if array.dtype.kind == "i":  # rows nobody computes with: a count of none, a place outside of the grid
                staged[rows:] = 0 if array.ndim == 1 else -1
        whole = rows is None or array.dtype.kind == "i"
        count = staged.size if whole else array.size
        self._device.copy(raw if raw is not None else buffer, staged, count, self._stream)
        if raw is not None:
            self._device.convert(buffer, kind, raw, given, rows, self._stream)
        lying = TensorType((-1, *array.shape[1:]) if varies else given.shape, kind.dtype, kind.layout)
        return OnDevice(buffer, lying, event, self._stream, leases, rows, self._device)

    def _slot(
        self,
        port: str,
        array: Any,
        given: TensorType,
        kind: TensorType,
        shape: tuple[int, ...],
        leases: Sequence[Lease],
    ) -> tuple[Any, Any, Any]:
        key = (port, array.dtype, shape, *(lease.number for lease in leases))
        if key not in self._buffers:
            device = self._device
            before = (shape[0], *array.shape[1:]) if len(kind.shape) != 4 and shape[0] != len(array) else array.shape
            same = (given.dtype, given.layout or "NCHW") == (kind.dtype, kind.layout or "NCHW") or array.ndim == 1
            same = same or (array.ndim != 4 and given.dtype == kind.dtype)
            self._buffers[key] = (
                device.host(before, array.dtype),
                None if same else device.memory(before, array.dtype),
                device.memory(shape, NUMPY_DTYPES[kind.dtype]),
            )
        return self._buffers[key]


class _Leased:
    """Memory that is handed out as an array: who holds a view of it holds the slots."""

    def __init__(self, array: Any, leases: tuple[Lease, ...]) -> None:
        self._array, self._leases = array, leases
        self.__array_interface__ = array.__array_interface__


def leased(array: Any, leases: tuple[Lease, ...]) -> Any:
    """Return a view of `array` that keeps `leases` as long as it, or any view of it, is held."""
    import numpy

    return numpy.asarray(_Leased(array, leases))


def held(tensors: Sequence[Any]) -> tuple[Lease, ...]:
    """Return the slots the tensors on the device are part of, each once."""
    return tuple(dict.fromkeys(lease for t in tensors if isinstance(t, OnDevice) for lease in t.leases))


def _room(kind: TensorType, rows: int | None) -> tuple[int, ...]:
    shape = physical_shape(kind)
    return shape if rows is None else (-(-max(rows, 1) // ROWS) * ROWS, *shape[1:])


def _plain(array: Any, kind: TensorType) -> TensorType:
    dtype = next(name for name, known in NUMPY_DTYPES.items() if known == array.dtype)
    return TensorType(tuple(array.shape), dtype, "NCHW" if array.ndim == 4 else "")


def _nominal(move: Transition, setting: Setting) -> dict[str, int]:
    """Return the nominal rows of the tensors of varying size that cross: those whose sink takes any number."""
    sink = setting.pipeline.stage(move.sink)
    source = setting.pipeline.stage(move.source)
    ports = {port.name: port.type for port in get_model(source.model or "", source.params).outputs}
    taken = {port.name: port.type for port in get_model(sink.model or "", sink.params).inputs}
    return {
        name: ports[name].shape[0]
        for name, provider in setting.bound[sink.name].items()
        if provider == move.source and len(taken[name].shape) != 4 and ports[name].shape[0] > 1
    }


def _arch(setting: Setting, engine: str) -> str:
    return str(setting.platform.engine(engine).target.get("arch", ""))


def _compiled(task: Task, stage: Stage, setting: Setting) -> Artifact:
    from socsched.compile.builder import compile_stage
    from socsched.run.backends.tvm_cpu import weights_of

    return compile_stage(stage, setting.platform.engine(task.engine), task.precision, weights_of(setting))
