"""One execution of a plan: setup before time zero, the run itself, and the final accounting.

One worker serves each set of lanes (see `worker`).  A dedicated thread releases frames at absolute times.  A finished
stage starts the next one (see `hub`) without polling.  The monitor watches from outside, and the calling thread reports
finished frames.  Before time zero all stages, including those of failover plans, run untraced on a usable frame, to
warm up thread pools, caches and memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from socsched.faults.model import Faults
from socsched.runtime import realtime, timetable
from socsched.runtime.backends.base import Backend, Setting
from socsched.runtime.backends.choose import Instances, limit, replaced_runtimes
from socsched.runtime.boards.base import Board, Meter
from socsched.runtime.collect import Collector, class_names
from socsched.runtime.errors import StageFailed
from socsched.runtime.executor_state import FrameReport, Hub
from socsched.runtime.failover import Losses
from socsched.runtime.frames import FrameSource
from socsched.runtime.frames_file import FramesFile
from socsched.runtime.injector import Injector
from socsched.runtime.interrupts import on_first_interrupt
from socsched.runtime.journal import Journal
from socsched.runtime.monitor import Monitor, hang_limit
from socsched.runtime.options import Options
from socsched.runtime.overload import Policies
from socsched.runtime.plan_instance import (
    WARMUP_FRAMES,
    Version,
    await_workers,
    make_version,
    start_workers,
    stop_workers,
)
from socsched.runtime.prewake import AUTO_NS
from socsched.runtime.releases import Releases
from socsched.runtime.worker import Habits, Worker, warn
from socsched.trace.trace import Instant, Trace

INTERRUPTED = "interrupted by the user"
"""The trace note of a run that SIGINT ended early."""


def require_whole(trace: Trace) -> None:
    """Raise KeyboardInterrupt if the trace is of a run that SIGINT ended early."""
    if any(note.text == INTERRUPTED and note.subject == "run" for note in trace.instants):
        raise KeyboardInterrupt


class Session:
    """One execution of a plan on a board; see `executor.execute`."""

    def __init__(
        self,
        setting: Setting,
        feeds: Mapping[str, FrameSource],
        backends: Mapping[str, Backend],
        board: Board,
        on_frame: Callable[[FrameReport], None] | None,
        options: Options,
        alone: bool,
    ) -> None:
        self.accounts: dict[str, dict[str, int]] = {}
        self._options, self._board, self._alone = options, board, alone
        self._setting, self._feeds, self._on_frame = setting, feeds, on_frame
        self._backends = Instances(backends)
        self._plan = setting.plan
        self._notices: list[str] = []
        self._injector = Injector(options.faults or Faults(), setting.seed)
        needs = {stage: set(ports.values()) for stage, ports in setting.bound.items()}
        self._hub = Hub(self._plan, needs, options.policies or Policies(), on_frame is not None)
        self._hub.shield = options.shield
        self._versions = [
            make_version(plan, setting, options, self._backends, alone) for plan in (self._plan, *options.limp_home)
        ]
        self._losses = self._hub.losses = Losses(self._hub, self._versions)
        self._hub.lossless = alone
        self._hub.put_in_charge(self._versions[0], Trace("measured", 0, setting.seed))

    def trace_of(self, horizon_ns: int, asap: bool, seed: int, stats: bool) -> Trace:
        """Warm up, release frames until `horizon_ns`, wait for frames in progress, and return the trace."""
        hub, options = self._hub, self._options
        trace = Trace("measured", horizon_ns, seed)
        hub.lossless = self._alone or asap
        realtime.keep_memory()
        with ExitStack() as stack:
            stack.enter_context(on_first_interrupt(self._interrupt))
            stack.callback(lambda: stop_workers(self._workers(), self._injector.freed))
            for text in replaced_runtimes(self._setting):
                self._note(text)
            self._start_workers()
            for version in self._versions:
                self._warm_up(version)
            hub.put_in_charge(self._versions[0], trace)
            journal = stack.enter_context(Journal(options.journal, trace)) if options.journal else None
            meters = [stack.enter_context(meter) for meter in self._board.meters()]
            file = options.results or (FramesFile(options.frames) if options.frames else None)
            hub.collector = stack.enter_context(Collector(trace, stats, class_names(self._setting.pipeline), file))
            lock = options.realtime != "off"
            stack.enter_context(realtime.quiet_interpreter(lock, self._note))
            hub.origin_ns = self._injector.origin_ns = time.monotonic_ns()
            if journal is not None:
                journal.gather = lambda: self._gather(trace, meters)
            stack.enter_context(self._monitor())
            releases = Releases(hub, self._plan, self._feeds, options, self._injector, horizon_ns, asap, self._alone)
            releases.run(self._tell)
            self._wind_down()
            if journal is not None:
                journal.close()  # the trace is complete again
                if journal.error is not None:
                    self._note(f"the journal is incomplete: {journal.error}")
            self._gather(trace, meters)
            self._close(trace, horizon_ns, asap)
        if releases.broken is not None:
            raise releases.broken
        if hub.failure is not None:
            act, error = hub.failure
            raise StageFailed(act.task.name, act.job.frame, error, trace) from error
        return trace

    # -- setup

    def _workers(self) -> list[Worker]:
        return [worker for version in self._versions for worker in version.workers.values()]

    def _start_workers(self) -> None:
        hub = self._hub
        policies = self._options.policies or Policies()
        cheaper = {task.name: cheap for task in self._plan.tasks if (cheap := policies.cheaper(task))}
        injector = self._injector if self._options.faults else None
        begun = None if self._options.awake_ns == 0 else hub.begun
        habits = Habits(hub.done, injector, hub.launched, begun, cheaper=cheaper, together=hub.guard)
        classes = [
            start_workers(version, self._board, self._options, self._backends, habits, self._note)
            for version in self._versions
        ]
        awake_ns = self._options.awake_ns
        hub.awake_ns = (0 if "off" in classes else AUTO_NS) if awake_ns is None else awake_ns
        await_workers(self._workers(), lambda: hub.interrupted, self._note)

    def _warm_up(self, version: Version) -> None:
        """Run every stage on a usable frame; report a failing stage before time zero.

        As many frames as may later be in progress at once are kept to the end, so that memory for all of them exists.
        """
        hub = self._hub
        hub.origin_ns = time.monotonic_ns()
        hub.put_in_charge(version, Trace("measured", 0, self._setting.seed), warming=True)
        hub.warming = []
        for frame in range(self._warm_frames(version)):
            with hub.guard:
                for name in timetable.names(version.plan):
                    outputs = self._feeds[name].warm().outputs if name in self._feeds else {}
                    hub.dispatcher.release(name, frame, hub.now(), hub.now(), outputs)
                hub.dispatch()
            if not self._wait_idle():
                break
        hub.warming = None
        limit(self._backends, self._warm_frames(version))
        if hub.interrupted:
            raise KeyboardInterrupt
        if hub.failure is not None:
            act, error = hub.failure
            raise StageFailed(act.task.name, act.job.frame, error, hub.dispatcher.trace) from error

    def _warm_frames(self, version: Version) -> int:
        """Return the number of warm-up frames.

        If frames have slots, it exceeds the frames in progress by one: the last frame's slot is returned late.
        """
        return max(WARMUP_FRAMES, self._options.in_flight + any(version.chained.values()))

    def _monitor(self) -> Monitor:
        replaceable, hub = len(self._versions) > 1, self._hub
        return Monitor(
            self._plan,
            lambda: hub.dispatcher,
            hub.guard,
            hub.origin_ns,
            self._losses.hung,
            lambda task: hang_limit(task, replaceable, self._options.hang_ns),
            hub.look,
        )

    def _note(self, text: str) -> None:
        """Print a warning once."""
        if text not in self._notices:
            self._notices.append(text)
            warn(text)

    # -- during the run

    def _tell(self) -> None:
        reports = self._hub.reports
        while reports:
            report = reports.popleft()
            if self._on_frame is not None:
                self._on_frame(report)

    def _wait_idle(self) -> bool:
        """Wait until no job is outstanding; return False if the run must end now."""
        hub = self._hub
        while True:
            hub.look()
            self._tell()
            with hub.guard:
                if hub.over:
                    return False
                if hub.dispatcher.outstanding == 0:
                    return True
                hub.wait()

    def _wind_down(self) -> None:
        """Let released frames complete; after an interrupt or failure, only the jobs in progress."""
        hub = self._hub
        self._wait_idle()
        with hub.guard:
            hub.halted = True
            while hub.running or hub.keeping:
                hub.wait()
        hub.write()
        self._tell()

    # -- wrap-up

    def _gather(self, trace: Trace, meters: Sequence[Meter]) -> None:
        """Add the meters' samples since the last call to the trace."""
        for meter in meters:
            for name, steps in meter.counters(self._hub.origin_ns).items():
                trace.counters.setdefault(name, []).extend(steps)

    def _close(self, trace: Trace, horizon_ns: int, asap: bool) -> None:
        hub = self._hub
        last = max((piece.end_ns for piece in trace.slices), default=0)
        whole = not asap and not hub.over
        trace.duration_ns = max(last, horizon_ns) if whole else max(last, hub.now() if hub.interrupted else 0)
        if hub.failure is not None:
            act, error = hub.failure
            text = f"{type(error).__name__}: {error}"
            trace.instants.append(Instant(trace.duration_ns, "fault", act.task.name, act.job.frame, text))
        elif hub.interrupted:
            trace.instants.append(Instant(trace.duration_ns, "fault", "run", -1, INTERRUPTED))
        for name in timetable.names(self._plan):
            trace.releases.setdefault(name, [])
        hub.dispatcher.settle()
        hub.dispatcher.ledger.settle()
        self.accounts = hub.dispatcher.ledger.document()
        trace.instants.sort(key=lambda instant: instant.time_ns)
        trace.slices.sort(key=lambda piece: piece.start_ns)

    def _interrupt(self) -> None:
        self._hub.interrupted = True
