"""Engines that execute a study's jobs: this machine's cores (`local`), or a Ray cluster (`ray`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from socsched.study.inputs import Inputs
from socsched.study.work import Done, Job

NAMES = ("local", "ray")


class Engine(Protocol):
    """Workers that execute jobs in any order; at most `room` are submitted before one is collected (back-pressure)."""

    @property
    def workers(self) -> int:
        """Return the number of jobs executed at a time."""

    @property
    def restarts(self) -> int:
        """Return the number of workers that died and were replaced."""

    @property
    def room(self) -> int:
        """Return the number of further jobs that may be submitted now."""

    def share(self, packed: bytes) -> Any:
        """Return a handle to bytes that many jobs need; they are sent to each host once."""

    def submit(self, job: Job, handle: Any) -> None:
        """Submit a job, with its plan if available."""

    def finished(self, timeout_s: float) -> Sequence[tuple[Job, Done]]:
        """Return the jobs finished since the last call; wait for one if there is none yet."""

    def __enter__(self) -> Any: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Release all workers."""


def engine(name: str, inputs: Inputs, folder: Path, workers: int | None, address: str | None = None) -> Engine:
    """Return an engine by name; MachineError if it is not installed."""
    if name == "ray":
        from socsched.study.engines.ray import RayEngine

        return RayEngine(inputs, workers, address)
    from socsched.study.engines.local import LocalEngine

    return LocalEngine(inputs, folder, workers)
