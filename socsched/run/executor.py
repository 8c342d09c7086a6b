"""Run a plan on this machine: the planned stages, frame after frame, against their deadlines.

One worker thread serves each set of lanes; the calling thread releases frames at absolute times, so that no lateness
adds up; a finished stage starts the next one through the dispatcher, nothing polls.  Running jobs are never preempted.
Before time zero all stages run twice on a sound frame, untraced: thread pools, caches and memory are then warm.
"""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.errors import MachineError, SocschedError, UsageError
from socsched.models.registry import bindings
from socsched.plan.plan import Plan
from socsched.run import timetable
from socsched.run.backends.base import Backend, Outputs, Setting
from socsched.run.backends.choose import prepare, sort_of, title_of
from socsched.run.boards import local
from socsched.run.collect import Collector, class_names
from socsched.run.dispatch import Activation, Dispatcher
from socsched.run.errors import StageFailed
from socsched.run.inputs import FrameSource, ScanFiles, sources
from socsched.run.telemetry import PowerMeter
from socsched.run.worker import Worker, warn
from socsched.trace.trace import Instant, Trace

WARMUP_FRAMES = 2
_LOOK_NS = 100_000_000
"""How often the calling thread looks for an interrupt while it waits."""


@dataclass(frozen=True, slots=True)
class FrameReport:
    """A chain that reached its end with frame `frame` of its source as the oldest data; times in ns from the start."""

    chain: str
    frame: int
    release_ns: int
    finish_ns: int
    deadline_ns: int

    @property
    def response_ns(self) -> int:
        """Time from the release of that frame to the end of the chain."""
        return self.finish_ns - self.release_ns

    @property
    def met(self) -> bool:
        """Whether the chain's deadline held."""
        return self.response_ns <= self.deadline_ns


def execute(
    plan: Plan,
    pipeline: Pipeline,
    *,
    scans: Sequence[Path] | None = None,
    weights: Path | None = None,
    scales: Path | None = None,
    frames: int | None = None,
    duration_ns: int | None = None,
    seed: int = 0,
    pace: str = "rate",
    on_frame: Callable[[FrameReport], None] | None = None,
    stats: bool = False,
    alone: bool = False,
    platform: Platform | None = None,
    backends: Mapping[str, Backend] | None = None,
) -> Trace:
    """Run `plan` on this machine and return what happened, in the simulator's vocabulary.

    `scans` feed the LiDAR in turn (round again only if `frames` asks for more); without them it sees a seeded synthetic
    street.  `scales` is the file `socsched calibrate` wrote, for stages in int8.  `frames` counts frames of the LiDAR,
    or of the first sensor where there is none.  `pace` "rate" releases at the planned rates, "asap" as soon as
    everything released before is finished.  `on_frame` is called in this thread for every chain end.  `stats` adds
    figures of all intermediate tensors to `Trace.details`, which costs processor time.  `alone` lets one job run at a
    time, whatever its lanes.  An interrupt (SIGINT) ends the run after the jobs under way.  `platform` and `backends`
    replace this machine and how its stages are run.

    Raises UsageError for a plan this machine cannot run, StageFailed (with the trace so far) when a stage raises.
    """
    if pace not in ("rate", "asap"):
        raise UsageError(f"pace {pace!r} is unknown", "use 'rate' or 'asap'")
    here = platform or local.platform_for(plan)
    bound = bindings(pipeline)
    setting = Setting(plan, pipeline, here, bound, weights, seed, scales)
    feeds = sources(pipeline, bound, scans, seed)
    scanned = next((name for name, feed in feeds.items() if isinstance(feed, ScanFiles)), None)
    lidar = scanned or next((sensor.name for sensor in pipeline.sensors if sensor.kind == "lidar"), None)
    lead = timetable.lead_source(plan, lidar)
    horizon = timetable.horizon_ns(plan, lead, len(scans or ()), frames, duration_ns)
    if weights is None and any(sort_of(task, setting) == "network" for task in plan.tasks):
        warn("no weights given: the networks run with seeded random ones, so what they find means nothing")
    if scales is None and any(t.precision == "int8" and sort_of(t, setting) == "network" for t in plan.tasks):
        warn("no int8 scales given: ones of seeded inputs are used, so what the networks find may be worth little")
    for name in timetable.names(plan):
        if name in feeds:
            feeds[name].preload(timetable.frames_of(plan, name, horizon))
    run = _Run(setting, feeds, backends or {}, on_frame, alone)
    return run.trace_of(horizon, pace == "asap", seed, stats)


class _Run:
    """Threads and state of one execution."""

    def __init__(
        self,
        setting: Setting,
        feeds: Mapping[str, FrameSource],
        backends: Mapping[str, Backend],
        on_frame: Callable[[FrameReport], None] | None,
        alone: bool = False,
    ) -> None:
        self.alone = alone
        self.setting, self.feeds, self.backends, self.on_frame = setting, feeds, backends, on_frame
        self.plan = setting.plan
        self.needs = {stage: set(ports.values()) for stage, ports in setting.bound.items()}
        self.told: dict[str, int] = {}
        self.state = threading.Condition()
        self.reports: deque[FrameReport] = deque()
        self.failure: tuple[Activation, BaseException] | None = None
        self.interrupted = self.halted = False
        self.running = 0
        self.origin_ns = 0
        self.collector: Collector | None = None
        self.workers: dict[tuple[str, tuple[int, ...]], Worker] = {}
        self.dispatcher = self._dispatcher(Trace("measured", 0, setting.seed))

    def trace_of(self, horizon_ns: int, asap: bool, seed: int, stats: bool) -> Trace:
        """Warm up, release frames until `horizon_ns`, wait for what is under way, and return the trace."""
        trace = Trace("measured", horizon_ns, seed)
        with ExitStack() as stack:
            stack.enter_context(self._interrupts())
            stack.callback(self._stop_workers)
            self._start_workers()
            self._warm_up()
            self.dispatcher = self._dispatcher(trace)
            meter = stack.enter_context(PowerMeter(local.power_counters()))
            self.collector = stack.enter_context(Collector(trace, stats, class_names(self.setting.pipeline)))
            stack.enter_context(_no_garbage_collection())
            self.origin_ns = time.monotonic_ns()
            self._release_all(horizon_ns, asap)
            self._wind_down()
            self._close(trace, horizon_ns, asap, meter)
        if self.failure is not None:
            act, error = self.failure
            raise StageFailed(act.task.name, act.job.frame, error, trace) from error
        return trace

    # -- threads

    def _start_workers(self) -> None:
        groups: dict[tuple[str, tuple[int, ...]], list[Any]] = {}
        for task in self.plan.tasks:
            groups.setdefault((task.engine, tuple(task.lanes)), []).append(task)
        for key, tasks in groups.items():
            cpus = local.cpus(key[1])
            worker = Worker(tasks, cpus, lambda task: prepare(task, self.setting, self.backends), self._done)
            self.workers[key] = worker
            worker.thread.start()
        for worker in self.workers.values():
            while not worker.ready.wait(0.1):
                if self.interrupted:
                    raise KeyboardInterrupt
            if worker.notice:
                warn(worker.notice)
            if isinstance(worker.failure, SocschedError):
                raise worker.failure
            if worker.failure is not None:
                error = worker.failure
                text = f"stage {worker.failed_task!r} could not be prepared: {type(error).__name__}: {error}"
                raise MachineError(text, "see `socsched doctor`") from error

    def _stop_workers(self) -> None:
        for worker in self.workers.values():
            worker.stop()
        for worker in self.workers.values():
            worker.thread.join(timeout=10)

    def _done(self, worker: Worker, act: Activation, start: int, end: int, result: Outputs | BaseException) -> None:
        """Runs in the worker's thread when a job ended: hand its data on and start what is ready now."""
        failed = isinstance(result, BaseException)
        if self.collector is not None and not failed:
            self.collector.add(act.job.frame, act.task.name, result)  # type: ignore[arg-type]
        with self.state:
            self.running -= 1
            start, end = start - self.origin_ns, end - self.origin_ns
            if isinstance(result, BaseException):
                self.failure = self.failure or (act, result)
                self.halted = True
                self.dispatcher.abandon(act, start, end)
            else:
                self.dispatcher.finish(act, start, end, result, title_of(act.task, self.setting))
                self._report(act)
            self._dispatch()
            if self.reports or self.failure or not self.running:
                self.state.notify_all()

    def _dispatch(self) -> None:
        if self.halted:
            return
        for act in self.dispatcher.start(self._now()):
            self.running += 1
            self.workers[act.task.engine, tuple(act.task.lanes)].submit(act)

    def _report(self, act: Activation) -> None:
        """Tell of every chain that ends here and has come to a frame of its source not told of yet."""
        if self.on_frame is None or self.collector is None:
            return
        job = act.job
        for chain in self.plan.chains:
            if chain.path[-1] != job.task or chain.path[0] not in act.origin:
                continue
            frame, release = act.origin[chain.path[0]]
            if frame > self.told.get(chain.name, -1):
                self.told[chain.name] = frame
                self.reports.append(FrameReport(chain.name, frame, release, job.finish_ns, chain.deadline_ns))

    # -- time

    def _warm_up(self) -> None:
        """Run every stage on a sound frame; a stage that cannot is told before time zero."""
        self.origin_ns = time.monotonic_ns()
        for frame in range(WARMUP_FRAMES):
            with self.state:
                for name in timetable.names(self.plan):
                    outputs = self.feeds[name].warm().outputs if name in self.feeds else {}
                    self.dispatcher.release(name, frame, self._now(), self._now(), outputs)
                self._dispatch()
            if not self._wait(None):
                break
        if self.interrupted:
            raise KeyboardInterrupt
        if self.failure is not None:
            act, error = self.failure
            raise StageFailed(act.task.name, act.job.frame, error, self.dispatcher.trace) from error

    def _release_all(self, horizon_ns: int, asap: bool) -> None:
        for group in timetable.releases(self.plan, horizon_ns):
            frames = {name: self.feeds[name].frame(number) for _, name, number in group if name in self.feeds}
            if not self._wait(None if asap else group[0][0]):
                return
            if asap and self.collector is not None:
                self.collector.drain()
            with self.state:
                now = self._now()
                for nominal, name, number in group:
                    self._release(name, number, now if asap else nominal, now, frames)
                self._dispatch()

    def _release(self, name: str, number: int, nominal: int, now: int, frames: Mapping[str, Any]) -> None:
        frame = frames.get(name)
        if frame is not None and self.collector is not None and ("points" in frame.outputs or frame.problem):
            points = {"points": len(frame.outputs["points"])} if frame.outputs else {"problem": frame.problem}
            self.collector.note(number, input=frame.title, **points)
        if frame is not None and frame.problem:
            self.dispatcher.lose(name, number, nominal, frame.problem)
        else:
            self.dispatcher.release(name, number, nominal, now, frame.outputs if frame else {})

    def _wait(self, until_ns: int | None) -> bool:
        """Wait until a time (None: until nothing is under way); False when the run must end now."""
        while True:
            self._tell()
            with self.state:
                if self.failure is not None or self.interrupted:
                    return False
                if until_ns is None and self.dispatcher.outstanding == 0:
                    return True
                left = _LOOK_NS if until_ns is None else until_ns - self._now()
                if left <= 0:
                    return True
                if not self.reports:  # one may have come in since they were told
                    self.state.wait(min(left, _LOOK_NS) / 1e9)

    def _tell(self) -> None:
        while self.reports:
            report = self.reports.popleft()
            if self.on_frame is not None:
                self.on_frame(report)

    def _wind_down(self) -> None:
        """Let released frames come to their end, or after an interrupt or failure only the jobs under way."""
        self._wait(None)
        with self.state:
            self.halted = True
            while self.running:
                self.state.wait(0.1)
        self._tell()

    def _now(self) -> int:
        return time.monotonic_ns() - self.origin_ns

    # -- the trace

    def _dispatcher(self, trace: Trace) -> Dispatcher:
        return Dispatcher(self.plan, self.needs, trace, self.alone)

    def _close(self, trace: Trace, horizon_ns: int, asap: bool, meter: PowerMeter) -> None:
        last = max((piece.end_ns for piece in trace.slices), default=0)
        whole = not asap and not self.interrupted and self.failure is None
        trace.duration_ns = max(last, horizon_ns) if whole else max(last, self._now() if self.interrupted else 0)
        if power := meter.steps(self.origin_ns):
            trace.counters["power_mw"] = power
        if self.failure is not None:
            act, error = self.failure
            text = f"{type(error).__name__}: {error}"
            trace.instants.append(Instant(trace.duration_ns, "fault", act.task.name, act.job.frame, text))
        elif self.interrupted:
            trace.instants.append(Instant(trace.duration_ns, "fault", "run", -1, "interrupted by the user"))
        for name in timetable.names(self.plan):
            trace.releases.setdefault(name, [])
        trace.instants.sort(key=lambda instant: instant.time_ns)
        trace.slices.sort(key=lambda piece: piece.start_ns)

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        """Turn the first SIGINT into an orderly end; a second one is Python's own again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, stack: object) -> None:
            self.interrupted = True
            signal.signal(signal.SIGINT, before)

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep the cycle collector from pausing a stage; the run itself makes no cycles."""
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
