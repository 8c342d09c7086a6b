"""Worker threads: one for every set of lanes the plan uses, each with its own prepared stages."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from socsched.plan.plan import Task
from socsched.run.backends.base import Call, Outputs
from socsched.run.dispatch import Activation

Prepare = Callable[[Task], Call]
Done = Callable[["Worker", Activation, int, int, "Outputs | BaseException"], None]
_BUILD = threading.Lock()
"""One worker prepares at a time: TVM reads its thread settings from the process environment when a pool starts."""


class Worker:
    """Runs the jobs of one lane set in turn.

    `prepare` makes a task callable, in this thread; `done` is told the start and end (monotonic ns) and the outputs,
    or the exception.  `cpus` are the processors the lanes stand for; where the system refuses the affinity, the worker
    runs unpinned and `notice` says so.
    """

    def __init__(self, tasks: Sequence[Task], cpus: set[int], prepare: Prepare, done: Done) -> None:
        self.failure: BaseException | None = None
        self.failed_task = ""
        self.notice = ""
        self.ready = threading.Event()
        self._tasks, self._cpus, self._prepare, self._done = tasks, cpus, prepare, done
        self._calls: dict[str, Call] = {}
        self._warm: set[str] = set()
        self._wake = threading.Condition()
        self._next: Activation | None = None
        self._stopping = False
        lanes = ",".join(map(str, tasks[0].lanes))
        self.thread = threading.Thread(target=self._run, name=f"{tasks[0].engine}[{lanes}]", daemon=True)

    def submit(self, act: Activation) -> None:
        """Let the worker run this job; it must be idle."""
        with self._wake:
            self._next = act
            self._wake.notify()

    def stop(self) -> None:
        """End the thread after the job under way, if any."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def _run(self) -> None:
        self._pin()
        try:
            for task in self._tasks:
                self.failed_task = task.name
                with _BUILD, pool_of(len(task.lanes)):
                    self._calls[task.name] = self._prepare(task)
        except BaseException as error:
            self.failure = error
            return
        finally:
            self.ready.set()
        while (act := self._take()) is not None:
            self._execute(act)

    def _take(self) -> Activation | None:
        with self._wake:
            while self._next is None and not self._stopping:
                self._wake.wait()
            act, self._next = self._next, None
            return act

    def _execute(self, act: Activation) -> None:
        call, values = self._calls[act.task.name], act.values
        result: Mapping[str, Any] | BaseException
        start = time.monotonic_ns()
        try:
            result = call(values) if act.task.name in self._warm else self._first(act, call)
        except BaseException as error:
            result = error
        self._done(self, act, start, time.monotonic_ns(), result)

    def _first(self, act: Activation, call: Call) -> Outputs:
        """A thread's TVM pool starts with its first call, so that call sees the settings too."""
        self._warm.add(act.task.name)
        with _BUILD, pool_of(len(act.task.lanes)):
            return call(act.values)

    def _pin(self) -> None:
        if not self._cpus or not hasattr(os, "sched_setaffinity"):
            return
        try:
            os.sched_setaffinity(0, self._cpus)
        except OSError as error:
            self.notice = f"worker {self.thread.name}: not pinned to processors {sorted(self._cpus)}: {error.strerror}"


class pool_of:
    """Context in which a TVM thread pool starts with `threads` threads, which inherit the caller's processors."""

    def __init__(self, threads: int) -> None:
        # TVM's own binding would count from processor 0 and pile all workers up there
        self._wanted = {"TVM_NUM_THREADS": str(threads), "TVM_BIND_THREADS": "0"}

    def __enter__(self) -> None:
        self._before = {name: os.environ.get(name) for name in self._wanted}
        os.environ.update(self._wanted)

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def warn(text: str) -> None:
    """Print a warning for people."""
    print(f"socsched: {text}", file=sys.stderr)
