"""Engines that execute a study's jobs: this machine's cores (`local`), or a Ray cluster (`ray`).

Ray is the only one across hosts, and inputs are shipped to each of them once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from socsched.errors import MachineError, extra
from socsched.pool import Pool, cores
from socsched.study.inputs import Inputs
from socsched.study.work import Done, Job, open_inputs, perform

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
        return RayEngine(inputs, workers, address)

    return LocalEngine(inputs, folder, workers)


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


_AHEAD = 2
RETRIES = 5
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray listens on the loopback interface only if this is 0, else on all interfaces; Ray reads it on import."""
_INSTALL = extra("cluster")


class RayEngine:
    """Tasks of one core each; `address` of a cluster (None: $RAY_ADDRESS, else `workers` cores of this machine)."""

    def __init__(self, inputs: Inputs, workers: int | None = None, address: str | None = None) -> None:
        self._inputs, self._wanted, self._address = inputs, workers, address or os.environ.get("RAY_ADDRESS")
        self.workers, self.restarts = workers or 1, 0
        self._shared: Any = None
        self._task: Any = None
        self._jobs: dict[Any, tuple[Job, Any]] = {}
        if self._address is None:
            os.environ.setdefault(_CLUSTERS, "0")
        self._ray = _ray()

    def __enter__(self) -> RayEngine:
        ray = self._ray
        options: dict[str, Any] = {"log_to_driver": False, "include_dashboard": False, "configure_logging": False}
        try:
            if self._address:
                ray.init(address=self._address, log_to_driver=False)
            else:
                ray.init(address="local", num_cpus=self._wanted, **options)
        except (ConnectionError, RuntimeError, OSError, ValueError) as error:
            where = self._address or "this machine"
            raise MachineError(f"Ray on {where} does not answer: {error}", "see `ray status`") from error
        cores = int(ray.cluster_resources().get("CPU", 1))
        self.workers = min(self._wanted or cores, cores)
        self._shared = ray.put(self._inputs)
        task = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=False)
        self._task = task(_perform)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for reference in self._jobs:
            self._ray.cancel(reference, force=True)
        self._jobs = {}
        self._ray.shutdown()

    @property
    def room(self) -> int:
        """Return the number of further tasks that keep all cores busy without piling up."""
        return max(self.workers * _AHEAD - len(self._jobs), 0)

    def share(self, packed: bytes) -> Any:
        """Return a reference to bytes in the object store."""
        return self._ray.put(packed)

    def submit(self, job: Job, handle: Any) -> None:
        """Start a task."""
        self._jobs[self._task.remote(self._shared, job, handle)] = (job, handle)

    def finished(self, timeout_s: float) -> Sequence[tuple[Job, Done]]:
        """Return finished tasks; restart a task whose workers kept dying or whose data was lost with a host."""
        ready, _ = self._ray.wait(list(self._jobs), num_returns=1, timeout=timeout_s)
        if ready:
            more, _ = self._ray.wait(list(self._jobs), num_returns=len(self._jobs), timeout=0)
            ready = list({*ready, *more})
        finished_jobs = []
        for reference in ready:
            job, handle = self._jobs.pop(reference)
            try:
                finished_jobs.append((job, self._ray.get(reference)))
            except (self._ray.exceptions.WorkerCrashedError, self._ray.exceptions.ObjectLostError) as error:
                self.restarts += 1
                if self.restarts > 10 * RETRIES:
                    raise MachineError(f"workers keep dying: {error}", "is there enough memory on the hosts?") from None
                self.submit(job, handle)
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause if isinstance(error.cause, MachineError) else error from None
        return finished_jobs


def _perform(inputs: Inputs, job: Job, packed: bytes | None) -> Done:
    """Execute a job in a Ray worker; the inputs are opened once per process."""
    return perform(open_inputs(inputs), job, packed)


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError:
        raise MachineError("--engine ray needs Ray, which is not installed", _INSTALL) from None
