"""Where a study's jobs are done: this machine's cores (`local`), or a Ray cluster (`ray`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from socsched.study.inputs import Inputs
from socsched.study.work import Done, Job

NAMES = ("local", "ray")


class Engine(Protocol):
    """Workers that do jobs in any order; at most `room` are handed over before one is taken back (back-pressure)."""

    @property
    def workers(self) -> int:
        """How many jobs are done at a time."""

    @property
    def restarts(self) -> int:
        """How many workers died and were replaced."""

    @property
    def room(self) -> int:
        """How many more jobs may be submitted now."""

    def share(self, packed: bytes) -> Any:
        """Return a handle of bytes that many jobs need: they go to each host once."""

    def submit(self, job: Job, handle: Any) -> None:
        """Hand a job over, with its plan where there is one."""

    def finished(self, timeout_s: float) -> Sequence[tuple[Job, Done]]:
        """Return jobs done since the last call, after waiting for one if there is none yet."""

    def __enter__(self) -> Any: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Give all workers up."""


def engine(name: str, inputs: Inputs, folder: Path, workers: int | None, address: str | None = None) -> Engine:
    """Return an engine by name; MachineError where it is not installed."""
    if name == "ray":
        from socsched.study.engines.ray import RayEngine

        return RayEngine(inputs, workers, address)
    from socsched.study.engines.local import LocalEngine

    return LocalEngine(inputs, folder, workers)
