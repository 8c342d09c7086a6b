"""The interface to a device with streams: the few calls the executor makes, so that a fake can replace CUDA.

Buffers, streams, events and graphs are opaque here.  A stream runs in order; `follow` makes it wait for an event of
another stream; only `wait` blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from socsched.compiler.artifact import Artifact
from socsched.graph.operators import TensorType

R = TypeVar("R")
Program = Callable[[Sequence[Any]], tuple[Any, ...]]
"""A compiled stage: queues its kernels on the stream in whose recording it is called; buffers in, buffers out."""


class Device(Protocol):
    """A device; all calls but `wait` and `record` return at once."""

    def stream(self, criticality: str) -> Any:
        """Return a new stream; more critical stages get priority if the device supports stream priorities."""
        ...

    def memory(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an uninitialised buffer on the device."""
        ...

    def host(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an uninitialised numpy array that the device can copy to and from while the CPU works."""
        ...

    def program(self, artifact: Artifact) -> Program:
        """Return a compiled stage, loaded for the calling thread."""
        ...

    def record(self, stream: Any, program: Program, inputs: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
        """Run a program on `inputs` until it is warm, then record it; return the graph and the outputs it writes.

        The caller must ensure that no two threads record at once.
        """
        ...

    def address(self, buffer: Any) -> int:
        """Return a buffer's address, for an external library."""
        ...

    def handle(self, stream: Any) -> int:
        """Return a stream's native handle, for an external library that queues on it."""
        ...

    def launch(self, graph: Any, stream: Any) -> None:
        """Queue a recorded program."""
        ...

    def copy(self, target: Any, source: Any, count: int, stream: Any) -> None:
        """Queue a copy of the first `count` elements, between host and device or within it."""
        ...

    def convert(
        self, target: Any, wanted: TensorType, source: Any, given: TensorType, rows: int | None, stream: Any
    ) -> None:
        """Queue a conversion on the device, of the first `rows` rows unless `rows` is None."""
        ...

    def event(self) -> Any:
        """Return an event."""
        ...

    def mark(self, event: Any, stream: Any) -> None:
        """Make an event fire when the stream has completed all work queued so far."""
        ...

    def follow(self, stream: Any, event: Any) -> None:
        """Make all work queued from now on wait for an event."""
        ...

    def wait(self, start: Any, end: Any) -> tuple[int, int]:
        """Sleep until the event `end` has fired; return the times of both events (monotonic ns)."""
        ...
