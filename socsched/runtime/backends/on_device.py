"""Tensors on a device, and the staging of host tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.compiler.targets.gpu_functions.rows import used_rows
from socsched.errors import MachineError
from socsched.graph.operators import TensorType
from socsched.runtime.backends.base import Outputs, Placed
from socsched.runtime.backends.device import Device
from socsched.runtime.backends.slots import Lease

ROWS = 4000
"""Allocation granularity, in rows, of tensors of variable size: frames of similar size share graphs."""


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A tensor on the device: its buffer and type, the event after which it is valid, and the slots it belongs to.

    `rows` is the number of valid rows if the buffer has room for more.  `mark` names and holds the tensor that marks
    them if only the device knows how many there are (`gpu_functions.rows`).
    """

    buffer: Any
    type: TensorType
    event: Any
    stream: Any
    leases: tuple[Lease, ...]
    rows: int | None
    device: Device
    mark: tuple[str, Any] | None = None

    def fetch(self) -> Placed:
        """Return a host copy synchronously, for readers without a planned conversion."""
        shape = physical_shape(self.type)
        array = self.device.host(shape, NUMPY_DTYPES[self.type.dtype])
        marks = self.device.host(shape[:1] if self.mark else (0,), np.int32)
        start, end = self.device.event(), self.device.event()
        self.device.follow(self.stream, self.event)
        self.device.mark(start, self.stream)
        self.device.copy(array, self.buffer, prod(shape), self.stream)
        if self.mark:
            self.device.copy(marks, self.mark[1], shape[0], self.stream)
        self.device.mark(end, self.stream)
        self.device.wait(start, end)
        rows = used_rows(self.mark[0], marks) if self.mark else self.rows
        return Placed(array[:rows].copy(), self.type)


@dataclass(slots=True)
class Queued:
    """A job on the device's queue (see `base.Pending`).

    `marks` holds, for outputs on the host with unused rows, name and content of the tensor that marks them: the end of
    the job cuts them off.
    """

    outputs: Outputs
    device: Device
    start: Any
    end: Any
    marks: Mapping[str, tuple[str, Any]] = field(default_factory=dict)

    def wait(self) -> tuple[int, int]:
        """Sleep until the job has ended; return its start and end."""
        times = self.device.wait(self.start, self.end)
        if self.marks:
            rows = {port: used_rows(*mark) for port, mark in self.marks.items()}
            cut = {
                port: Placed(self.outputs[port].array[:count], self.outputs[port].type) for port, count in rows.items()
            }
            self.outputs, self.marks = {**self.outputs, **cut}, {}
        return times


class Staging:
    """Copies host tensors to the device, through memory both can access, into buffers of a slot.

    `nominal` gives the minimum number of rows allocated for each port.  `fill` is the value of unused rows of
    floating-point tensors, None where they may have any.
    """

    def __init__(
        self, device: Device, stream: Any, nominal: Mapping[str, int] | None = None, fill: float | None = None
    ) -> None:
        self._device, self._stream, self._nominal, self._fill = device, stream, nominal or {}, fill
        self._buffers: dict[tuple[Any, ...], tuple[Any, Any, Any]] = {}

    def brought(
        self, value: Any, kind: TensorType, port: str, leases: tuple[Lease, ...], event: Any = None
    ) -> OnDevice:
        """Return `value` on the device in the layout and type of `kind`; return it unchanged if it already has them."""
        if isinstance(value, OnDevice):
            if (value.type.dtype, value.type.layout) == (kind.dtype, kind.layout):
                return value
            raise MachineError(
                f"tensor {port!r} is {value.type} on the device, expected {kind}; the plan has no conversion",
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
            if array.dtype.kind == "i":  # padding rows: a count of zero, a position outside the grid
                staged[rows:] = 0 if array.ndim == 1 else -1
            elif self._fill is not None:
                staged[rows:] = self._fill
        whole = rows is None or array.dtype.kind == "i" or self._fill is not None
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


def held_slots(tensors: Sequence[Any]) -> tuple[Lease, ...]:
    """Return the slots that the tensors on the device belong to, each once."""
    return tuple(dict.fromkeys(lease for t in tensors if isinstance(t, OnDevice) for lease in t.leases))


def room_for(kind: TensorType, rows: int | None) -> tuple[int, ...]:
    shape = physical_shape(kind)
    return shape if rows is None else (-(-max(rows, 1) // ROWS) * ROWS, *shape[1:])


def _plain(array: Any, kind: TensorType) -> TensorType:
    dtype = next(name for name, known in NUMPY_DTYPES.items() if known == array.dtype)
    return TensorType(tuple(array.shape), dtype, "NCHW" if array.ndim == 4 else "")
