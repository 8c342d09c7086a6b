"""Worker threads: one for every set of lanes the plan uses, each with its own prepared stages.

A CPU worker runs a job to completion.  A worker of a device with a queue launches jobs without waiting; a second
thread sleeps on their completion events, in order, and reports them.  It does not wake for a job whose outputs only
the device needs as long as another job is queued behind it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from socsched.planning.plan import Task
from socsched.runtime.activation import Activation
from socsched.runtime.backends.base import Call, Outputs, Pending
from socsched.runtime.futex_queue import mailbox
from socsched.runtime.injector import Injector
from socsched.text import printable

Prepare = Callable[[Task], Call]
Done = Callable[["Worker", Activation, int, int, "Outputs | BaseException"], None]
Launched = Callable[[Activation, Outputs], None]
_BUILD = threading.Lock()
"""Workers prepare one at a time: TVM reads its thread settings from the process environment when a pool starts, and
two threads that capture device work at once break both captures."""


@dataclass(slots=True)
class Habits:
    """Settings shared by all workers of a run: thread setup, fault injection and callbacks.

    `enter` is called in the thread before, `settle` after its stages are prepared, with its tasks; both return a
    notice or an empty string.  `awaited` tells whether a task's end matters to the host.  Consecutive calls of `done`
    are made within `together`.  `begun` is called for every CPU job when it starts (monotonic ns).
    """

    done: Done
    injector: Injector | None = None
    launched: Launched | None = None
    begun: Callable[[str, int], None] | None = None
    awaited: Callable[[str], bool] = lambda name: True
    enter: Callable[[Sequence[Task]], str] = lambda tasks: ""
    settle: Callable[[Sequence[Task]], str] = lambda tasks: ""
    cheaper: Mapping[str, Task] = field(default_factory=dict)
    together: AbstractContextManager[Any] = field(default_factory=nullcontext)


class Worker:
    """Runs the jobs of one lane set in turn.

    `prepare` makes a task callable, in this thread; `done` gets the start and end (monotonic ns) and the outputs or the
    exception.  `cpus` are the cores of the lanes; if the system refuses the affinity, the worker runs unpinned and
    `notices` report it.
    """

    def __init__(self, name: str, tasks: Sequence[Task], cpus: set[int], prepare: Prepare, habits: Habits) -> None:
        self.failure: BaseException | None = None
        self.failed_task = ""
        self.notices: list[str] = []
        self.ready = threading.Event()
        self.dead = self.pinned = False
        self.cpus = cpus
        self._tasks, self._prepare, self._habits = tasks, prepare, habits
        self._calls: dict[str, Call] = {}
        self._cheap: dict[str, Call] = {}
        self._warm: set[tuple[str, bool]] = set()
        self._jobs = mailbox()
        self._pending: SimpleQueue[tuple[Activation, Pending, int] | None] = SimpleQueue()
        self._reaper: threading.Thread | None = None
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, act: Activation) -> None:
        """Queue a job on the worker."""
        self._jobs.put(act)

    def expect(self, from_ns: int, until_ns: int) -> None:
        """Keep the worker awake for an expected job from `from_ns` to `until_ns` (monotonic ns)."""
        self._jobs.expect(from_ns, until_ns)

    def stop(self) -> None:
        """End the threads after the jobs in progress, if any."""
        self._jobs.put(None)

    def join(self, timeout: float) -> None:
        """Wait for the threads to end; a hung thread is abandoned."""
        if not self.dead:
            self.thread.join(timeout)
            if self._reaper is not None:
                self._reaper.join(timeout)

    def _run(self) -> None:
        self._pin()
        try:
            self._note(self._habits.enter(self._tasks))
            for task in self._tasks:
                self.failed_task = task.name
                with _BUILD, pool_of(len(task.lanes)):
                    self._calls[task.name] = self._prepare(task)
                    if cheap := self._habits.cheaper.get(task.name):
                        self._cheap[task.name] = self._prepare(cheap)
            self._note(self._habits.settle(self._tasks))
        except BaseException as error:
            self.failure = error
            return
        finally:
            self.ready.set()
        if self._habits.launched and any(hasattr(call, "launch") for call in self._calls.values()):
            self._reaper = threading.Thread(target=self._reap, name=f"{self.thread.name} events", daemon=True)
            self._reaper.start()
        while (act := self._jobs.get()) is not None:
            self._execute(act)
            del act  # waiting for the next job must not keep this one's tensors alive
        self._pending.put(None)

    def _execute(self, act: Activation) -> None:
        name = act.task.name
        call = self._cheap.get(name) if act.cheap else None
        call = call or self._calls[name]
        if self._reaper is not None and hasattr(call, "launch"):
            self._launch(act, call)
            return
        result: Mapping[str, Any] | BaseException
        injector, start = self._habits.injector, time.monotonic_ns()
        act.begun_ns = start
        try:
            if self._habits.begun is not None:
                self._habits.begun(name, start)
            if injector is not None:
                injector.before(act.task)
            result = call(act.values) if (name, act.cheap) in self._warm else self._first(act, call)
            if injector is not None:
                injector.after(act.task, start)
        except BaseException as error:
            result = error
        self._habits.done(self, act, start, time.monotonic_ns(), result)

    def _launch(self, act: Activation, call: Any) -> None:
        start = time.monotonic_ns()
        try:
            if self._habits.injector is not None:
                self._habits.injector.before(act.task)
            pending: Pending = call.launch(act.values)
        except BaseException as error:
            self._habits.done(self, act, start, time.monotonic_ns(), error)
            return
        if self._habits.launched is not None:
            self._habits.launched(act, pending.outputs)
        self._pending.put((act, pending, start))

    def _reap(self) -> None:
        held: list[tuple[Activation, Pending, int]] = []
        while (item := self._pending.get()) is not None:
            held.append(item)
            act = item[0]
            if self._habits.awaited(act.task.name) or self._pending.empty():
                # wait outside the guard: held jobs may be on other streams and still running
                ends = [self._await(*entry[:2]) for entry in held]
                # report them all under one hold of the guard, unless an injected fault may prolong a report
                with self._habits.together if self._habits.injector is None else nullcontext():
                    for entry, end in zip(held, ends, strict=True):
                        self._report(*entry, end)
                held.clear()
                del entry
            del item, act  # waiting for the next job must not keep this one's slot

    def _await(self, act: Activation, pending: Pending) -> tuple[int, int] | BaseException:
        act.begun_ns = time.monotonic_ns()
        try:
            return pending.wait()
        except BaseException as error:
            return error

    def _report(self, act: Activation, pending: Pending, launched: int, ended: tuple[int, int] | BaseException) -> None:
        result: Mapping[str, Any] | BaseException = pending.outputs
        start = launched
        try:
            if isinstance(ended, BaseException):
                raise ended
            start, end = ended
            if self._habits.injector is not None:
                self._habits.injector.after(act.task, start)
        except BaseException as error:
            result, end = error, time.monotonic_ns()
        self._habits.done(self, act, start, end, result)

    def _first(self, act: Activation, call: Call) -> Outputs:
        """Run a task's first call under the pool settings, since a thread's TVM pool starts with its first call."""
        self._warm.add((act.task.name, act.cheap))
        with _BUILD, pool_of(len(act.task.lanes)):
            return call(act.values)

    def _note(self, notice: str) -> None:
        if notice:
            self.notices.append(f"worker {self.thread.name}: {notice}")

    def _pin(self) -> None:
        if not self.cpus or not hasattr(os, "sched_setaffinity"):
            return
        try:
            os.sched_setaffinity(0, self.cpus)
            self.pinned = True
        except OSError as error:
            self._note(f"not pinned to processors {sorted(self.cpus)}: {error.strerror}")


class pool_of:
    """Context in which a TVM thread pool starts with `threads` threads, which inherit the caller's affinity."""

    def __init__(self, threads: int) -> None:
        # TVM's own binding counts from core 0 and would place all workers there
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
    """Print a warning to stderr."""
    print(printable(f"socsched: {text}"), file=sys.stderr)
