"""Job completion and dispatch: the state shared by all threads of a run, behind one guard.

The path from the end of a job to the start of the next is the overhead of every stage, so it comes first: seats are
freed, data is handed on, successors are submitted to their workers.  A woken worker needs the interpreter lock and
sleeps a second time if another thread holds it; so events are only queued here and recorded later, off the critical
path.  Only threads that actually wait are notified: the calling thread polls for frames to report.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from socsched.planning.plan import Plan, Task
from socsched.runtime.activation import Activation, Origin, Outputs
from socsched.runtime.collect import Collector
from socsched.runtime.dispatch import Dispatcher
from socsched.runtime.frame_accounting import Ledger
from socsched.runtime.overload import Overload, Policies
from socsched.runtime.plan_instance import Version
from socsched.runtime.prewake import Anticipation, Rehearsal
from socsched.runtime.worker import Worker
from socsched.trace.trace import Job, Trace

LOOK_S = 0.1
"""Interval at which waiting threads check for an interrupt."""


@dataclass(frozen=True, slots=True)
class FrameReport:
    """The completion of a chain with source frame `frame` as its oldest data; times in ns from the start."""

    chain: str
    frame: int
    release_ns: int
    finish_ns: int
    deadline_ns: int

    @property
    def response_ns(self) -> int:
        """Return the time from the release of the frame to the end of the chain."""
        return self.finish_ns - self.release_ns

    @property
    def met(self) -> bool:
        """Return whether the chain met its deadline."""
        return self.response_ns <= self.deadline_ns


class Hub:
    """The active plan, its dispatcher, and the work in progress.

    `losses` handles failed jobs; `reporting` tells whether finished frames are reported.  `collector` receives
    outputs, as does `warming` while stages warm up; `keeping` holds the jobs whose outputs are being collected.  All
    methods but `done`, `launched` and `write` are called with `guard` held.
    """

    def __init__(self, plan: Plan, needs: Mapping[str, set[str]], policies: Policies, reporting: bool) -> None:
        self.guard = threading.RLock()
        self.state = threading.Condition(self.guard)
        self.waiters = 0
        self.needs, self.policies, self.reporting = needs, policies, reporting
        self.reports: deque[FrameReport] = deque()
        self.failure: tuple[Activation, BaseException] | None = None
        self.interrupted = self.halted = False
        self.running = 0
        self.keeping: deque[Activation] = deque()
        self.origin_ns = 0
        self.lossless = self.shield = False
        self.awake_ns = 0
        self.warming: list[Any] | None = None
        self.collector: Collector | None = None
        self.anticipation: Anticipation | None = None
        self.rehearsal: Rehearsal | None = None
        self.owners: dict[Activation, tuple[Dispatcher, Version]] = {}
        self.losses: Any = None
        self.version: Version
        self.dispatcher: Dispatcher
        self._unwritten: deque[tuple[Dispatcher, Task, Job, int, str, Origin | None]] = deque()
        self._reported: dict[str, int] = {}
        self._ends: dict[str, list[Any]] = {}
        for chain in plan.chains:
            self._ends.setdefault(chain.path[-1], []).append(chain)

    # -- called by workers

    def done(self, worker: Worker, act: Activation, start: int, end: int, result: Outputs | BaseException) -> None:
        """Handle the end of a job (monotonic ns): hand its data on, start ready jobs, queue its record."""
        outputs = None if isinstance(result, BaseException) else result
        collector = self.collector
        if collector is None or outputs is None or not collector.wants(act.task.name, outputs):
            outputs = None
        elif collector.slow and not act.void and not worker.dead:
            collector.add(act.job.frame, act.task.name, outputs)  # may block; successors must then wait too
            outputs = None
        with self.guard:
            owner = self.owners.pop(act, None)
            if owner is None or worker.dead:
                return  # it was abandoned before
            dispatcher, version = owner
            frames = dispatcher.ledger.open
            under_way = len(frames)
            self.running -= 1
            if self.warming is not None:
                self.warming.append(result)
            origin = self.origin_ns
            if isinstance(result, BaseException):
                self.losses.failed(act, start - origin, end - origin, result, dispatcher)
                self.dispatch()
            else:
                dispatcher.ended(act, start - origin, end - origin, result)
                self.dispatch()
                task = act.task
                if self.anticipation is not None:
                    self.anticipation.ended(task.name, end - start)
                reported = act.origin if self.reporting and not act.void and task.name in self._ends else None
                self._unwritten.append((dispatcher, task, act.job, act.index, version.titles[task.name], reported))
            if self.waiters and (len(frames) != under_way or not self.running or self.failure):
                self.state.notify_all()
            keep = outputs is not None and not act.void
            if keep:
                self.keeping.append(act)  # the run does not end before its outputs are collected
        if keep and outputs is not None and collector is not None:
            try:
                collector.add(act.job.frame, act.task.name, outputs)
            finally:
                self.keeping.popleft()

    def begun(self, task: str, now_ns: int) -> None:
        """Handle the start of a job: expect its successors."""
        if self.anticipation is not None:
            self.anticipation.began(task, now_ns, self.dispatcher.seats)

    def launched(self, act: Activation, outputs: Outputs) -> None:
        """Handle a job queued on its device: queue its chained successors there too."""
        with self.guard:
            owner = self.owners.get(act)
            if owner is not None:
                dispatcher, version = owner
                dispatcher.launched(act, outputs, self.now(), version.chained[act.task.name])
                self.dispatch()

    def write(self) -> None:
        """Record the jobs that ended since the last call."""
        while self._unwritten:
            with self.guard:  # take the guard per record, so that no job waits long
                if self._unwritten:
                    dispatcher, task, job, index, title, origin = self._unwritten.popleft()
                    dispatcher.record(task, job, index, title)
                    if origin is not None and self.collector is not None:
                        self._report(job, origin)

    def look(self) -> None:
        """Record ended jobs, and start jobs the shield has held back long enough, since no event may trigger that."""
        self.write()
        if self.shield:
            with self.guard:
                self.dispatch()

    # -- called with the guard held

    def dispatch(self) -> None:
        """Submit every job that can start now to its worker."""
        if self.halted:
            return
        dispatcher, version = self.dispatcher, self.version
        now = self.now()
        for act in dispatcher.pick(now):
            self.running += 1
            self.owners[act] = (dispatcher, version)
            assert act.place is not None
            version.workers[act.place.worker].submit(act)
        dispatcher.tidy(now)

    def wait(self) -> None:
        """Sleep until notified, or until it is time to check for an interrupt."""
        self.waiters += 1
        try:
            self.state.wait(LOOK_S)
        finally:
            self.waiters -= 1

    def notify(self) -> None:
        """Wake all waiting threads."""
        self.state.notify_all()

    def put_in_charge(
        self, version: Version, trace: Trace, ledger: Ledger | None = None, warming: bool = False
    ) -> None:
        """Activate a plan with a fresh dispatcher; during warm-up every stage runs, whatever its policy and queue."""
        wanted = not warming and (self.policies.stages or self.policies.shed_below)
        overload = Overload(self.policies) if wanted else None
        lossless = warming or self.lossless
        self.version = version
        if self.awake_ns and not warming:
            self.anticipation, self.rehearsal = Anticipation(version, self.awake_ns), Rehearsal(version, self.needs)
        self.dispatcher = Dispatcher(
            version.plan, self.needs, trace, version.rules, lossless, ledger or Ledger(), overload,
            shield=self.shield and not warming,
        )  # fmt: skip

    def now(self) -> int:
        """Return the time of this run in ns."""
        return self.clock() - self.origin_ns

    def clock(self) -> int:
        """Return the time in ns; a test may replace it."""
        return time.monotonic_ns()

    def busy(self) -> set[int]:
        """Return the cores that run jobs now; read without the guard, so only a hint."""
        places = [act.place for act in [*self.dispatcher.running.values()] if act.place]
        return {cpu for place in places for cpu in self.version.workers[place.worker].cpus}

    @property
    def over(self) -> bool:
        """Return whether the run must end now."""
        return self.failure is not None or self.interrupted

    def _report(self, job: Job, origin: Origin) -> None:
        """Queue a report for every chain that ends with this job and has reached a source frame not yet reported."""
        for chain in self._ends[job.task]:
            if chain.path[0] not in origin:
                continue
            frame, release = origin[chain.path[0]]
            if frame > self._reported.get(chain.name, -1):
                self._reported[chain.name] = frame
                self.reports.append(FrameReport(chain.name, frame, release, job.finish_ns, chain.deadline_ns))
