"""The seam to a device with streams: the few calls the executor makes, so that a fake can stand in for CUDA.

Buffers, streams, events and graphs are opaque here.  A stream works in order; `follow` lets it wait for an event of
another; nothing blocks but `wait`.
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
        """Return a new stream; that of a more critical stage goes first where the device can tell them apart."""
        ...

    def memory(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an uninitialised buffer on the device."""
        ...

    def host(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an uninitialised numpy array the device can copy to and from while the processor works."""
        ...

    def program(self, artifact: Artifact) -> Program:
        """Return a compiled stage, loaded for the calling thread."""
        ...

    def record(self, stream: Any, program: Program, inputs: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
        """Run a program on `inputs` until it is warm, then record it; return the graph and the outputs it writes.

        The caller sees to it that no two threads record at once.
        """
        ...

    def address(self, buffer: Any) -> int:
        """Return where a buffer lies, for a library that is told so."""
        ...

    def handle(self, stream: Any) -> int:
        """Return a stream as a library that queues on it wants it."""
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
        """Queue a conversion on the device, of the first `rows` rows where that is not None."""
        ...

    def event(self) -> Any:
        """Return an event."""
        ...

    def mark(self, event: Any, stream: Any) -> None:
        """Let an event happen when the stream has done all queued so far."""
        ...

    def follow(self, stream: Any, event: Any) -> None:
        """Let everything queued from now on wait for an event."""
        ...

    def wait(self, start: Any, end: Any) -> tuple[int, int]:
        """Sleep until the event `end` has happened; return when both did (monotonic ns)."""
        ...
