"""The threads and the state of one execution.

One worker serves each set of lanes (see `worker`); a thread of its own releases frames at absolute times, so that no
lateness adds up; a finished stage starts the next one through the dispatcher, nothing polls; the monitor watches from
outside; the calling thread tells what is finished.  Before time zero all stages, those of plans that may take over
included, run on a sound frame, untraced: thread pools, caches and memory are then warm.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from socsched.errors import MachineError, SocschedError
from socsched.plan.plan import Plan, Task
from socsched.run import realtime, timetable
from socsched.run.backends.base import Backend, Outputs, Setting
from socsched.run.backends.choose import Instances, gate, limit, prepare, queued, title_of
from socsched.run.boards.base import Board, Meter
from socsched.run.collect import Collector, class_names
from socsched.run.discipline import Discipline, Sequential, WorkerKey, discipline
from socsched.run.dispatch import Activation, Dispatcher
from socsched.run.errors import StageFailed
from socsched.run.faults import Faults, Injector
from socsched.run.inputs import FrameSource
from socsched.run.journal import Journal
from socsched.run.ledger import Ledger
from socsched.run.monitor import Monitor, hang_limit
from socsched.run.options import Options
from socsched.run.overload import Overload, Policies
from socsched.run.worker import Habits, Worker, warn
from socsched.trace.trace import Instant, Trace

WARMUP_FRAMES = 2
_LOOK_NS = 100_000_000
"""How often waiting threads look for an interrupt."""


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


@dataclass(slots=True)
class _Version:
    """A plan that can be in charge: its rules and its workers."""

    plan: Plan
    setting: Setting
    rules: Discipline
    chained: Mapping[str, frozenset[str]]
    titles: Mapping[str, str]
    workers: dict[WorkerKey, Worker]


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
        self.options, self.board, self.alone = options, board, alone
        self.setting, self.feeds, self.on_frame = setting, feeds, on_frame
        self.backends = Instances(backends)
        self.plan = setting.plan
        self.needs = {stage: set(ports.values()) for stage, ports in setting.bound.items()}
        self.told: dict[str, int] = {}
        self.state = threading.Condition()
        self.reports: deque[FrameReport] = deque()
        self.failure: tuple[Activation, BaseException] | None = None
        self.broken: BaseException | None = None
        self.interrupted = self.halted = self.released = False
        self.running = 0
        self.origin_ns = 0
        self.lossless = alone
        self.room_wanted = False
        self.warming: list[Any] | None = None
        self.collector: Collector | None = None
        self.policies = options.policies or Policies()
        self.injector = Injector(options.faults or Faults(), setting.seed)
        self.versions = [self._version(plan) for plan in (self.plan, *options.limp_home)]
        self.version = self.versions[0]
        self.lost: set[tuple[str, int]] = set()
        self.owners: dict[Activation, tuple[Dispatcher, _Version]] = {}
        self.notices: list[str] = []
        self.accounts: dict[str, dict[str, int]] = {}
        self.dispatcher = self._dispatcher(Trace("measured", 0, setting.seed), self.version)

    def trace_of(self, horizon_ns: int, asap: bool, seed: int, stats: bool) -> Trace:
        """Warm up, release frames until `horizon_ns`, wait for what is under way, and return the trace."""
        trace = Trace("measured", horizon_ns, seed)
        self.lossless = self.alone or asap
        with ExitStack() as stack:
            stack.enter_context(self._interrupts())
            stack.callback(self._stop_workers)
            self._start_workers()
            for version in self.versions:
                self._warm_up(version)
            self.version = self.versions[0]
            self.dispatcher = self._dispatcher(trace, self.version)
            journal = stack.enter_context(Journal(self.options.journal, trace)) if self.options.journal else None
            meters = [stack.enter_context(meter) for meter in self.board.meters()]
            self.collector = stack.enter_context(Collector(trace, stats, class_names(self.setting.pipeline)))
            lock = self.options.realtime != "off"
            stack.enter_context(realtime.quiet_interpreter(lock, self._note))
            self.origin_ns = self.injector.origin_ns = time.monotonic_ns()
            stack.enter_context(self._monitor())
            self._release_and_wait(horizon_ns, asap)
            self._wind_down()
            if journal is not None:
                journal.close()  # what follows moves rows
            self._close(trace, horizon_ns, asap, meters)
        if self.broken is not None:
            raise self.broken
        if self.failure is not None:
            act, error = self.failure
            raise StageFailed(act.task.name, act.job.frame, error, trace) from error
        return trace

    # -- threads

    def _version(self, plan: Plan) -> _Version:
        setting = replace(self.setting, plan=plan)
        on_device = {task.name: queued(task, setting, self.backends) for task in plan.tasks}
        frames = max(self.options.in_flight, WARMUP_FRAMES)
        count = {engine.id: sum(t.engine == engine.id for t in plan.tasks) for engine in plan.engines}
        depths = {task.name: frames * count[task.engine] for task in plan.tasks if on_device[task.name]}
        gates = {
            task.name: room
            for task in plan.tasks
            if on_device[task.name]
            and not any(on_device.get(name) for name in task.after)
            and (room := gate(task, setting, self.backends)) is not None
        }
        chosen, steal = self.options.executor, self.options.steal
        rules = Sequential(plan) if self.alone else discipline(chosen, plan, frames, depths, steal, gates)
        engines = {task.name: task.engine for task in plan.tasks}
        chained = {
            task.name: frozenset(
                other.name
                for other in plan.tasks
                if rules.chained
                and not other.timer
                and task.name in other.after
                and on_device[task.name]
                and on_device[other.name]
                and engines[other.name] == task.engine
            )
            for task in plan.tasks
        }
        titles = {task.name: title_of(task, setting) for task in plan.tasks}
        return _Version(plan, setting, rules, chained, titles, {})

    def _start_workers(self) -> None:
        for version in self.versions:
            self._crew(version)
        for worker in [worker for version in self.versions for worker in version.workers.values()]:
            while not worker.ready.wait(0.1):
                if self.interrupted:
                    raise KeyboardInterrupt
            for notice in worker.notices:
                self._note(notice)
            if isinstance(worker.failure, SocschedError):
                raise worker.failure
            if worker.failure is not None:
                error = worker.failure
                text = f"stage {worker.failed_task!r} could not be prepared: {type(error).__name__}: {error}"
                raise MachineError(text, "see `socsched doctor`") from error

    def _crew(self, version: _Version) -> None:
        """Start the workers of a plan."""
        plan = version.plan
        crews = version.rules.crews()
        cpus = {key: self._cpus(version, crew.engine, crew.lanes) for key, crew in crews.items()}
        followers = {name: {t.name for t in plan.tasks if not t.timer and name in t.after} for name in version.chained}
        kind, notice = realtime.chosen_class(self.options.realtime, len(set().union(*cpus.values())))
        if notice:
            self._note(notice)

        def enter(tasks: Sequence[Task]) -> str:
            realtime.fine_timers()
            return realtime.set_fifo(realtime.fifo_priority(tasks, plan.tasks)) if kind == "fifo" else ""

        def settle(tasks: Sequence[Task]) -> str:
            return realtime.set_deadline(realtime.reservation(tasks)) if kind == "deadline" else ""

        habits = Habits(
            done=self._done,
            injector=self.injector,
            launched=self._launched if version.rules.chained else None,
            awaited=lambda name: not followers[name] or bool(followers[name] - version.chained[name]),
            enter=enter,
            settle=settle,
            cheaper={task.name: cheap for task in plan.tasks if (cheap := self.policies.cheaper(task))},
        )
        for key, crew in crews.items():
            name = f"{key[0]}[{','.join(map(str, key[1]))}]{key[2] and ' ' + key[2]}"
            setting = version.setting

            def prepared(task: Task, setting: Setting = setting) -> Any:
                return prepare(task, setting, self.backends)

            worker = Worker(name, crew.tasks, cpus[key], prepared, habits)
            version.workers[key] = worker
            worker.thread.start()

    def _cpus(self, version: _Version, engine: str, lanes: tuple[int, ...]) -> set[int]:
        if engine in {e.id for e in version.plan.engines}:
            return self.board.cpus(engine, lanes)
        # a thread that serves all engines: all processors any of them stands for
        found: set[int] = set()
        for task in version.plan.tasks:
            found |= self.board.cpus(task.engine, tuple(task.lanes))
        return found

    def _stop_workers(self) -> None:
        self.injector.freed.set()
        workers = [worker for version in self.versions for worker in version.workers.values()]
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join(timeout=10)

    def _done(self, worker: Worker, act: Activation, start: int, end: int, result: Outputs | BaseException) -> None:
        """Runs in the worker's thread when a job ended: hand its data on and start what is ready now."""
        failed = isinstance(result, BaseException)
        if self.collector is not None and not failed and not act.void and not worker.dead:
            self.collector.add(act.job.frame, act.task.name, result)  # type: ignore[arg-type]
        with self.state:
            owner = self.owners.pop(act, None)
            if owner is None or worker.dead:
                return  # it was given up long ago
            dispatcher, version = owner
            self.running -= 1
            if self.warming is not None:
                self.warming.append(result)
            start, end = start - self.origin_ns, end - self.origin_ns
            if isinstance(result, BaseException):
                self._failed(worker, act, start, end, result, dispatcher)
            else:
                dispatcher.finish(act, start, end, result, version.titles[act.task.name])
                if not act.void:
                    self._report(act)
            self._dispatch()
            if self.reports or self.failure or not self.running or self.room_wanted:
                self.state.notify_all()

    def _launched(self, act: Activation, outputs: Outputs) -> None:
        """Runs in the worker's thread when a job is queued on its device: queue what follows it there, too."""
        with self.state:
            owner = self.owners.get(act)
            if owner is None:
                return
            dispatcher, version = owner
            dispatcher.launched(act, outputs, self._now(), version.chained[act.task.name])
            self._dispatch()

    def _dispatch(self) -> None:
        if self.halted:
            return
        dispatcher, version = self.dispatcher, self.version
        for act in dispatcher.start(self._now()):
            self.running += 1
            self.owners[act] = (dispatcher, version)
            assert act.place is not None
            version.workers[act.place.worker].submit(act)

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

    # -- what goes wrong

    def _failed(
        self, worker: Worker, act: Activation, start: int, end: int, error: BaseException, dispatcher: Dispatcher
    ) -> None:
        """A stage raised: another plan takes over, or the run ends."""
        text = f"{type(error).__name__}: {error}"
        if self.collector is not None and self._replacement(act) is not None:
            dispatcher.abandon(act, start, end, text)
            self._take_over(act, end, text)
            return
        self.failure = self.failure or (act, error)
        self.halted = True
        dispatcher.abandon(act, start, end)

    def _hung(self, act: Activation, now: int, text: str) -> None:
        """The monitor found a job that does not end: its engine is out of service.  The guard is held."""
        owner = self.owners.pop(act, None)
        if owner is None or act.place is None:
            return
        dispatcher, version = owner
        version.workers[act.place.worker].dead = True
        self._give_up(act, dispatcher, now, text)
        for other in [o for o in dispatcher.running.values() if o.place and o.place.worker == act.place.worker]:
            if self.owners.pop(other, None):  # queued behind it: nobody will report its end either
                self._give_up(other, dispatcher, now, f"queued behind a job that hangs: {text}")
        if self._replacement(act) is not None:
            self._take_over(act, now, text)
        elif version.rules.name == "event-chained":
            dispatcher.retire(act.place.worker, [t.name for t in version.rules.crews()[act.place.worker].tasks], now)
            dispatcher.trace.instants.append(
                Instant(now, "fault", act.task.name, act.job.frame, f"{text}; no plan can take over")
            )
            self._lose(act)
        else:
            self.failure = self.failure or (act, MachineError(text, "event-chained goes on without the engine"))
            self.halted = True
        self._dispatch()
        self.state.notify_all()

    def _give_up(self, act: Activation, dispatcher: Dispatcher, now: int, why: str) -> None:
        self.running -= 1
        begun = act.begun_ns - self.origin_ns if act.begun_ns >= 0 else now
        dispatcher.abandon(act, begun, now, why)

    def _lose(self, act: Activation) -> None:
        self.lost |= {(act.task.engine, lane) for lane in act.task.lanes}

    def _replacement(self, act: Activation) -> _Version | None:
        """Return the first plan that does without the lanes lost, those of `act` included."""
        lost = self.lost | {(act.task.engine, lane) for lane in act.task.lanes}
        for version in self.versions[1:]:
            used = {(task.engine, lane) for task in version.plan.tasks for lane in task.lanes}
            if version is not self.version and not used & lost:
                return version
        return None

    def _take_over(self, act: Activation, now: int, why: str) -> None:
        version = self._replacement(act)
        assert version is not None
        self._lose(act)
        old, self.version = self.dispatcher, version
        old.close(now)
        self.dispatcher = self._dispatcher(old.trace, version, old.ledger)
        self.dispatcher.inherit(old)
        text = f"{why}; {act.task.engine} is out of service, another plan takes over"
        old.trace.instants.append(Instant(now, "fault", act.task.name, act.job.frame, text))

    def _monitor(self) -> Monitor:
        replaceable = len(self.versions) > 1
        return Monitor(
            self.plan,
            lambda: self.dispatcher,
            self.state,
            self.origin_ns,
            self._hung,
            lambda task: hang_limit(task, replaceable, self.options.hang_ns),
        )

    def _note(self, text: str) -> None:
        """Warn, once."""
        if text not in self.notices:
            self.notices.append(text)
            warn(text)

    # -- time

    def _warm_up(self, version: _Version) -> None:
        """Run every stage on a sound frame; a stage that cannot is told before time zero.

        As many frames as can be under way later are kept to the end, so that memory for all of them exists by then.
        """
        self.origin_ns = time.monotonic_ns()
        self.version = version
        self.dispatcher = self._dispatcher(Trace("measured", 0, self.setting.seed), version, warming=True)
        self.warming = []
        for frame in range(self._warm_frames(version)):
            with self.state:
                for name in timetable.names(version.plan):
                    outputs = self.feeds[name].warm().outputs if name in self.feeds else {}
                    self.dispatcher.release(name, frame, self._now(), self._now(), outputs)
                self._dispatch()
            if not self._wait_idle():
                break
        self.warming = None
        limit(self.backends, self._warm_frames(version))
        if self.interrupted:
            raise KeyboardInterrupt
        if self.failure is not None:
            act, error = self.failure
            raise StageFailed(act.task.name, act.job.frame, error, self.dispatcher.trace) from error

    def _warm_frames(self, version: _Version) -> int:
        """One more than can be under way where frames have slots: the last one's is given back a moment late."""
        return max(WARMUP_FRAMES, self.options.in_flight + any(version.chained.values()))

    def _release_and_wait(self, horizon_ns: int, asap: bool) -> None:
        """Release in a thread of its own; tell of finished frames in this one."""

        def release() -> None:
            try:
                realtime.fine_timers()
                if self.options.realtime not in ("off", "auto"):
                    realtime.set_fifo(90)  # it only sleeps and releases; what it releases must not wait for what runs
                self._release_all(horizon_ns, asap)
            except BaseException as error:
                self.broken = error
            finally:
                with self.state:
                    self.released = True
                    self.state.notify_all()

        thread = threading.Thread(target=release, name="release", daemon=True)
        thread.start()
        while not self.released and not self._over():
            self._tell()
            with self.state:
                if not self.reports and not self.released and not self._over():
                    self.state.wait(_LOOK_NS / 1e9)
        thread.join()

    def _release_all(self, horizon_ns: int, asap: bool) -> None:
        open_groups: deque[list[Any]] = deque()
        for group in timetable.releases(self.plan, horizon_ns):
            frames = {name: self.feeds[name].frame(number) for _, name, number in group if name in self.feeds}
            if not (self._wait_for_room(open_groups) if asap else self._sleep(group[0][0])):
                return
            if asap and self.options.in_flight == 1 and self.collector is not None:
                self.collector.drain()
            with self.state:
                now = self._now()
                known = set(self.dispatcher.ledger.open)
                for nominal, name, number in group:
                    self._release(name, number, now if asap else nominal, now, frames)
                open_groups.append([t for t in self.dispatcher.ledger.open if t not in known])
                self._dispatch()

    def _release(self, name: str, number: int, nominal: int, now: int, frames: Mapping[str, Any]) -> None:
        frame = frames.get(name)
        trace = self.dispatcher.trace
        if now > nominal:
            trace.counters.setdefault(f"release_late_ns.{name}", []).append((nominal, float(now - nominal)))
        if frame is not None and self.collector is not None and ("points" in frame.outputs or frame.problem):
            points = {"points": len(frame.outputs["points"])} if frame.outputs else {"problem": frame.problem}
            self.collector.note(number, input=frame.title, **points)
        if frame is not None and frame.problem:
            self.dispatcher.lose(name, number, nominal, frame.problem)
        elif self.injector.loses(name, nominal):
            self.dispatcher.lose(name, number, nominal, "dropout, as the faults file asks")
        else:
            self.dispatcher.release(name, number, nominal, now, frame.outputs if frame else {})

    def _over(self) -> bool:
        return self.failure is not None or self.interrupted

    def _sleep(self, until_ns: int) -> bool:
        """Sleep until a time of this run; False when the run must end now."""
        while not self._over():
            left = until_ns - self._now()
            if left <= 0:
                return True
            realtime.sleep_until(self.origin_ns + (until_ns if left <= _LOOK_NS else self._now() + _LOOK_NS))
        return False

    def _wait_for_room(self, groups: deque[list[Any]]) -> bool:
        """Wait until fewer frames than allowed are under way; False when the run must end now."""
        limit = max(self.options.in_flight, 1)
        with self.state:
            while not self._over():
                still = self.dispatcher.ledger.open
                for group in [g for g in groups if not any(ticket in still for ticket in g)]:
                    groups.remove(group)
                if len(groups) < limit:
                    return True
                self.room_wanted = True
                self.state.wait(_LOOK_NS / 1e9)
                self.room_wanted = False
        return False

    def _wait_idle(self) -> bool:
        """Wait until nothing is under way; False when the run must end now."""
        while True:
            self._tell()
            with self.state:
                if self._over():
                    return False
                if self.dispatcher.outstanding == 0:
                    return True
                if not self.reports:  # one may have come in since they were told
                    self.state.wait(_LOOK_NS / 1e9)

    def _tell(self) -> None:
        while self.reports:
            report = self.reports.popleft()
            if self.on_frame is not None:
                self.on_frame(report)

    def _wind_down(self) -> None:
        """Let released frames come to their end, or after an interrupt or failure only the jobs under way."""
        self._wait_idle()
        with self.state:
            self.halted = True
            while self.running:
                self.state.wait(0.1)
        self._tell()

    def _now(self) -> int:
        return time.monotonic_ns() - self.origin_ns

    # -- the trace

    def _dispatcher(
        self, trace: Trace, version: _Version, ledger: Ledger | None = None, warming: bool = False
    ) -> Dispatcher:
        """Return the bookkeeping of a plan; while warming up every stage runs, whatever its policy and queue."""
        wanted = not warming and (self.policies.stages or self.policies.shed_below)
        overload = Overload(self.policies) if wanted else None
        lossless = warming or self.lossless
        return Dispatcher(version.plan, self.needs, trace, version.rules, lossless, ledger or Ledger(), overload)

    def _close(self, trace: Trace, horizon_ns: int, asap: bool, meters: Sequence[Meter]) -> None:
        last = max((piece.end_ns for piece in trace.slices), default=0)
        whole = not asap and not self.interrupted and self.failure is None
        trace.duration_ns = max(last, horizon_ns) if whole else max(last, self._now() if self.interrupted else 0)
        for meter in meters:
            trace.counters.update(meter.counters(self.origin_ns))
        if self.failure is not None:
            act, error = self.failure
            text = f"{type(error).__name__}: {error}"
            trace.instants.append(Instant(trace.duration_ns, "fault", act.task.name, act.job.frame, text))
        elif self.interrupted:
            trace.instants.append(Instant(trace.duration_ns, "fault", "run", -1, "interrupted by the user"))
        for name in timetable.names(self.plan):
            trace.releases.setdefault(name, [])
        self.dispatcher.settle()
        self.dispatcher.ledger.settle()
        self.accounts = self.dispatcher.ledger.document()
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
