"""A device that queues work and executes it as late as possible, in any order its streams and events allow."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.layouts import convert
from socsched.compiler.loading.stages import load
from socsched.compiler.targets.gpu_functions.rows import is_function
from socsched.compiler.targets.opencl.run import OpenClStage
from socsched.graph.operators import TensorType


@dataclass(eq=False)
class Buffer:
    """Device memory; its initial contents are garbage."""

    array: np.ndarray[Any, Any]


@dataclass(eq=False)
class Operation:
    """Something queued: done after all it waits for."""

    what: str
    work: Callable[[], None]
    after: list[Operation]
    done: bool = False
    done_ns: int = 0


@dataclass(eq=False)
class Stream:
    """Works in order; `waits` are events everything queued from now on is behind."""

    criticality: str
    last: Operation | None = None
    waits: list[Operation] = field(default_factory=list)


@dataclass(eq=False)
class Event:
    """Happens with an operation."""

    operation: Operation | None = None


class FakeDevice:
    """Runs compiled stages on this machine's processor; `done` lists what was carried out, in order.

    Work is done only when a caller waits for it, preceded by a random choice of other work that may run first: a
    missing event or a slot used twice then causes wrong results.
    """

    def __init__(self, seed: int = 0, fails: str = "") -> None:
        self.done: list[str] = []
        self.launched = 0
        self.recording = self.most_recording = 0
        self.copied = 0
        self.streams: list[Stream] = []
        self._queue: list[Operation] = []
        self._places: dict[int, Buffer] = {}
        self._draw, self._lock = random.Random(seed), threading.RLock()
        self._fails = fails

    def stream(self, criticality: str) -> Stream:
        self.streams.append(Stream(criticality))
        return self.streams[-1]

    def memory(self, shape: tuple[int, ...], dtype: Any) -> Buffer:
        return Buffer(np.full(shape, 77, dtype))

    def host(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return np.full(shape, 99, dtype)

    def program(self, artifact: Artifact) -> Any:
        if artifact.stage == self._fails:
            raise RuntimeError("the device's code cannot be loaded")
        return artifact, OpenClStage(artifact) if is_function(artifact) else load(artifact)

    def record(self, stream: Stream, program: Any, inputs: Sequence[Buffer]) -> tuple[Any, tuple[Buffer, ...]]:
        artifact, stage = program
        with self._lock:
            self.recording += 1
            self.most_recording = max(self.most_recording, self.recording)
        time.sleep(0.002)
        outputs = tuple(Buffer(np.zeros(0)) for _ in artifact.outputs)

        def run() -> None:
            for buffer, array in zip(outputs, stage(*(b.array for b in inputs)), strict=True):
                buffer.array = array

        with self._lock:
            self.recording -= 1
        return (artifact.stage, run), outputs

    def address(self, buffer: Buffer) -> int:
        self._places[id(buffer)] = buffer
        return id(buffer)

    def at(self, address: int) -> Buffer:
        return self._places[address]

    def handle(self, stream: Stream) -> int:
        return self.streams.index(stream) + 1

    def queue(self, handle: int, what: str, work: Callable[[], None]) -> None:
        """Queue what a library does on a stream it was given the handle of."""
        self._put(self.streams[handle - 1], what, work)

    def launch(self, graph: Any, stream: Stream) -> None:
        self.launched += 1
        self._put(stream, *graph)

    def copy(self, target: Any, source: Any, count: int, stream: Stream) -> None:
        self.copied += 1

        def run() -> None:
            into, out = (m.array if isinstance(m, Buffer) else m for m in (target, source))
            np.ravel(into)[:count] = np.ravel(out)[:count]

        self._put(stream, "copy", run)

    def convert(
        self, target: Buffer, wanted: TensorType, source: Buffer, given: TensorType, rows: int | None, stream: Stream
    ) -> None:
        def run() -> None:
            if len(given.shape) == 4:
                target.array = convert(source.array, given, wanted)
            else:
                target.array[:rows] = source.array[:rows]

        self._put(stream, "convert", run)

    def event(self) -> Event:
        return Event()

    def mark(self, event: Event, stream: Stream) -> None:
        event.operation = self._put(stream, "mark", lambda: None)

    def follow(self, stream: Stream, event: Event) -> None:
        assert event.operation is not None, "an event that is never recorded"
        stream.waits.append(event.operation)

    def wait(self, start: Event, end: Event) -> tuple[int, int]:
        assert start.operation is not None and end.operation is not None
        with self._lock:
            while not end.operation.done:
                ready = [op for op in self._queue if all(other.done for other in op.after)]
                self._carry_out(self._draw.choice(ready))
        return start.operation.done_ns, end.operation.done_ns

    def _put(self, stream: Stream, what: str, work: Callable[[], None]) -> Operation:
        with self._lock:
            before = [stream.last] if stream.last else []
            operation = Operation(what, work, before + stream.waits)
            stream.last, stream.waits = operation, []
            self._queue.append(operation)
            return operation

    def _carry_out(self, operation: Operation) -> None:
        operation.work()
        operation.done, operation.done_ns, operation.after = True, time.monotonic_ns(), []
        self._queue.remove(operation)
        if operation.what != "mark":
            self.done.append(operation.what)
