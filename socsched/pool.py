"""A pool of processes that survives its workers' deaths and does not outlive its owner.

Processes, not threads: neither the planner nor the simulation kernel releases the interpreter lock (two simulations in
two threads take 1.51 s, in sequence 1.18 s).  Each worker has a separate pipe; the standard library's
`ProcessPoolExecutor` breaks at one death, and its orphans survive `kill -9`.  The pipe closes when the owner ends for
any reason, which ends the worker; and when a worker dies, its pipe identifies the job it had.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from socsched.cache import check
from socsched.errors import MachineError
from socsched.progress import speaking

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS")
_AHEAD = 2
"""Jobs per worker: the current and the next one, so that it never waits for the owner."""
ATTEMPTS = 4


@dataclass(slots=True)
class _Worker:
    process: Any
    pipe: Connection
    jobs: deque[Any] = field(default_factory=deque)


class Pool:
    """`workers` processes that run `call(setup(*arguments), job)`; the job of a worker that died is given to another.

    After `ATTEMPTS` MachineError is raised.
    """

    def __init__(self, setup: Callable[..., Any], arguments: tuple[Any, ...], workers: int) -> None:
        self.workers, self.restarts = workers, 0
        self._setup, self._arguments = setup, arguments
        self._context = multiprocessing.get_context("spawn")
        self._team: list[_Worker] = []
        self._waiting: deque[Any] = deque()
        self._attempts: dict[Any, int] = {}

    def __enter__(self) -> Pool:
        check()
        before = {name: os.environ.get(name) for name in _THREADS}
        os.environ.update((name, "1") for name in _THREADS if before[name] is None)
        try:
            self._team = [self._hire() for _ in range(self.workers)]
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self._team:
            worker.pipe.close()
        for worker in self._team:
            if kind is not None or worker.jobs:  # these results are not needed any more
                worker.process.terminate()
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._team = []

    def _hire(self) -> _Worker:
        own_end, worker_end = self._context.Pipe()
        process = self._context.Process(target=_work, args=(worker_end, self._setup, self._arguments), daemon=True)
        # Only the owner handles Ctrl-C: workers start with it blocked, as blocking it themselves would be too late
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        worker_end.close()
        return _Worker(process, own_end)

    @property
    def outstanding(self) -> int:
        """Return the number of jobs running or waiting."""
        return len(self._waiting) + sum(len(worker.jobs) for worker in self._team)

    @property
    def room(self) -> int:
        """Return the number of further jobs that keep all workers busy without piling up."""
        return max(self.workers * _AHEAD - self.outstanding, 0)

    def submit(self, job: Any) -> None:
        """Queue a job (a hashable object that can be pickled)."""
        self._waiting.append(job)
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting:
            worker = min(self._team, key=lambda w: len(w.jobs))
            if len(worker.jobs) >= _AHEAD:
                return
            job = self._waiting.popleft()
            with suppress(OSError):  # the worker is gone; the job counts as assigned to it
                worker.pipe.send(job)
            worker.jobs.append(job)

    def finished(self, timeout_s: float) -> list[tuple[Any, Any]]:
        """Return (job, result) of finished jobs, waiting for one; an exception in a worker is raised here."""
        finished_jobs: list[tuple[Any, Any]] = []
        ready = wait([worker.pipe for worker in self._team if worker.jobs], timeout_s)
        for worker in list(self._team):
            if worker.pipe in ready:
                finished_jobs += self._heard(worker)
        self._hand_out()
        return finished_jobs

    def _heard(self, worker: _Worker) -> list[tuple[Any, Any]]:
        try:
            good, result = worker.pipe.recv()
        except (EOFError, OSError):
            self._replace(worker)
            return []
        job = worker.jobs.popleft()
        if not good:
            raise result
        self._attempts.pop(job, None)
        return [(job, result)]

    def _replace(self, worker: _Worker) -> None:
        """Replace a worker; its current job counts as tried, the one queued behind it does not."""
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        self.restarts += 1
        first, *behind = worker.jobs
        self._waiting.extendleft(reversed(behind))
        self._team[self._team.index(worker)] = self._hire()
        self._attempts[first] = self._attempts.get(first, 0) + 1
        if self._attempts[first] == ATTEMPTS:
            raise MachineError(
                f"{first} failed {ATTEMPTS} times: its worker died", "is there enough memory for this many workers?"
            )
        self._waiting.append(first)
        self._hand_out()


def _work(pipe: Connection, setup: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Execute jobs until the pipe closes; notices are left to the owner, which prints each once."""
    with suppress(EOFError, BrokenPipeError, ConnectionResetError), speaking(lambda text: None):
        call = setup(*arguments)
        while True:
            job = pipe.recv()
            try:
                answer = (True, call(job))
            except Exception as error:
                answer = (False, error)
            pipe.send(answer)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
