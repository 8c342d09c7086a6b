"""What this process does for the native executor while it runs: calls of stages, views of outputs, frames of sensors.

Each has a socket, whose other end the executor inherits, and a thread here.  A message is the length of a JSON header
(four bytes), the header, and the tensors it lists, as they lie in memory (`native/channel.hpp`).  A stage is prepared
in the thread that calls it, on the processors of its lanes: a TVM virtual machine and its thread pool belong to one.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.graph.operators import TensorType
from socsched.runtime.backends import Call, Outputs, Placed, pool_of

_LENGTH = struct.Struct("=I")
_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}
_NOTHING = np.zeros(0, np.float32)
"""Stands for a port that does not cross a conversion."""
_BUILD = threading.Lock()
"""Stages are prepared one at a time: TVM reads its thread settings from the process environment as a pool starts."""
_JOIN_S = 1.0
"""A stage that hangs keeps its thread, which ends with this process."""

Show = Callable[[int, Mapping[str, Any]], None]
"""Takes the number of a frame and the outputs of a stage by port."""


@dataclass(frozen=True, slots=True)
class Called:
    """A stage to call: `prepare` makes it callable, for jobs in time or (True) for those that would be late.

    `inputs` name provider and port of the tensors that come, `outputs` those that go, with the types that arrays of
    other data types are cast to.
    """

    stage: str
    prepare: Callable[[bool], Call]
    degrades: bool
    inputs: Sequence[tuple[str, str]]
    outputs: Mapping[str, TensorType]
    processors: frozenset[int] = frozenset()
    lanes: int = 1


@dataclass(slots=True)
class Callbacks:
    """The sockets and threads of one run; a context manager around it.

    `started` must be called once the executor runs.  `raised` holds what stages raised, by stage and frame (-1 while it
    was prepared or warmed up); `over` is set once no more frames are taken.
    """

    raised: dict[tuple[str, int], BaseException] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)
    _theirs: list[socket.socket] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def descriptors(self) -> list[int]:
        """Return what the executor inherits."""
        return [end.fileno() for end in self._theirs]

    def call(self, called: Called) -> int:
        """Return the descriptor over which the executor calls a stage."""
        return self._add(f"stage {called.stage}", lambda end: self._serve(end, called))

    def show(self, ports: Sequence[str], see: Show) -> int:
        """Return the descriptor over which the executor shows the outputs `ports` of a stage's jobs."""

        def run(end: socket.socket) -> None:
            while (message := receive(end)) is not None:
                header, tensors = message
                see(header["frame"], {ports[port]: t for port, t in zip(header["ports"], tensors, strict=True)})
                send(end, {})

        return self._add("results", run)

    def feed(self, frames: Iterable[tuple[Mapping[str, Any], Sequence[Any]]]) -> int:
        """Return the descriptor over which the executor takes frames, headers and arrays, once it begins."""

        def run(end: socket.socket) -> None:
            if receive(end) is not None:
                for header, arrays in frames:
                    send(end, header, [_typed(array, None) for array in arrays])
            end.shutdown(socket.SHUT_WR)

        return self._add("frames", run)

    def started(self) -> None:
        """Leave the executor's ends to it, so that its end is noticed."""
        for end in self._theirs:
            end.close()
        self._theirs.clear()

    def __enter__(self) -> Callbacks:
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.started()
        until = time.monotonic() + _JOIN_S
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0))

    def _add(self, name: str, run: Callable[[socket.socket], None]) -> int:
        ours, theirs = socket.socketpair()

        def work() -> None:
            with ours:
                try:
                    run(ours)
                except OSError:  # the executor has ended
                    return

        self._theirs.append(theirs)
        self._threads.append(threading.Thread(target=work, name=name, daemon=True))
        self._threads[-1].start()
        return theirs.fileno()

    def _serve(self, end: socket.socket, called: Called) -> None:
        if called.processors and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, called.processors)
        variants: dict[bool, Call] = {}
        warm: set[bool] = set()
        while (message := receive(end)) is not None:
            header, tensors = message
            frame, cheap = header.get("frame", -1), called.degrades and bool(header.get("cheap"))
            outputs: Outputs = {}
            try:
                if "prepare" in header:
                    with _BUILD, pool_of(called.lanes):
                        variants |= {which: called.prepare(which) for which in ({False, called.degrades})}
                    send(end, {})
                    continue
                values: dict[str, dict[str, Any]] = {}
                for (provider, port), tensor in zip(called.inputs, tensors, strict=True):
                    values.setdefault(provider, {})[port] = tensor
                if cheap in warm:
                    outputs = variants[cheap](values)
                else:  # a thread's TVM pool starts with its first call
                    warm.add(cheap)
                    with _BUILD, pool_of(called.lanes):
                        outputs = variants[cheap](values)
                arrays = [_typed(outputs.get(port, _NOTHING), kind) for port, kind in called.outputs.items()]
            except BaseException as error:
                self.raised[called.stage, frame] = error
                send(end, {"error": f"{type(error).__name__}: {error}"})
                continue
            send(end, {}, arrays)


def send(end: socket.socket, header: Mapping[str, Any], tensors: Sequence[Placed] = ()) -> None:
    """Send a header and tensors."""
    listed = [{"dtype": t.type.dtype, "layout": t.type.layout, "shape": list(t.type.shape)} for t in tensors]
    text = json.dumps({**header, "tensors": listed}).encode()
    end.sendall(_LENGTH.pack(len(text)) + text)
    for tensor in tensors:
        if tensor.array.size:
            end.sendall(np.ascontiguousarray(tensor.array).reshape(-1).view(np.uint8).data)


def receive(end: socket.socket) -> tuple[dict[str, Any], list[Placed]] | None:
    """Return the next header with its tensors, None at the end."""
    length = bytearray(_LENGTH.size)
    if not _read(end, length):
        return None
    text = bytearray(_LENGTH.unpack(length)[0])
    if not _read(end, text):
        return None
    header = json.loads(text)
    tensors: list[Placed] = []
    for entry in header.pop("tensors"):
        kind = TensorType(tuple(entry["shape"]), entry["dtype"], entry["layout"])
        array = np.empty(physical_shape(kind), NUMPY_DTYPES[kind.dtype])
        if array.size and not _read(end, array.reshape(-1).view(np.uint8)):
            return None
        tensors.append(Placed(array, kind))
    return header, tensors


def _read(end: socket.socket, into: Any) -> bool:
    left = memoryview(into)
    while left:
        if not (count := end.recv_into(left)):
            return False
        left = left[count:]
    return True


def _typed(value: Any, kind: TensorType | None) -> Placed:
    """Return an output with its own size; an array of a data type that no tensor has is cast to that of `kind`."""
    if isinstance(value, Placed):
        shape = value.type.shape
        if min(shape, default=0) < 0:
            shape = tuple(a if a >= 0 else b for a, b in zip(shape, value.array.shape, strict=True))
        if len(shape) != 4:
            shape = value.array.shape
        return Placed(value.array, TensorType(shape, value.type.dtype, value.type.layout))
    array = np.asarray(value)
    if array.dtype not in _NAMES:
        array = array.astype(NUMPY_DTYPES[kind.dtype] if kind is not None else np.float32)
    return Placed(array, TensorType(array.shape, _NAMES[array.dtype], "NCHW" if array.ndim == 4 else ""))
