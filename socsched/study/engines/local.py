"""The engine `local`: processes on this machine's cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from socsched.pool import Pool, cores
from socsched.study.inputs import Inputs
from socsched.study.work import Done, Job, open_inputs, perform

_Task = tuple[Job, "bytes | None"]


class LocalEngine:
    """`workers` processes (None: one per core) that read the inputs below `folder`."""

    def __init__(self, inputs: Inputs, folder: Path, workers: int | None = None) -> None:
        self.workers = workers or cores()
        self._pool = Pool(_setup, (inputs, folder), self.workers)

    @property
    def restarts(self) -> int:
        """Return the number of workers that died and were replaced."""
        return self._pool.restarts

    @property
    def room(self) -> int:
        """Return the number of further jobs that may be submitted now."""
        return self._pool.room

    def share(self, packed: bytes) -> bytes:
        """Return the bytes unchanged: a pipe is the fastest transport."""
        return packed

    def submit(self, job: Job, handle: bytes | None) -> None:
        """Submit a job to a process."""
        self._pool.submit((job, handle))

    def finished(self, timeout_s: float) -> Sequence[tuple[Job, Done]]:
        """Return the jobs finished since the last call."""
        return [(task[0], done) for task, done in self._pool.finished(timeout_s)]

    def __enter__(self) -> LocalEngine:
        self._pool.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.__exit__(kind, error, at)


def _setup(inputs: Inputs, folder: Path) -> Callable[[_Task], Done]:
    opened = open_inputs(inputs, folder)
    return lambda task: perform(opened, *task)
