"""The Python dispatcher on a virtual clock: the reference that the native executor must match decision by decision.

At every instant jobs end in the order of the tasks, then frames are released, then jobs are started once, then the
monitor looks: the order of the simulator.
"""

from __future__ import annotations

import heapq
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import cycle
from pathlib import Path
from typing import Any

from socsched.errors import MachineError
from socsched.executor.orders import declared_key
from socsched.executor.outcome import Executed, read_outcome
from socsched.executor.settings import RunSettings, write_settings
from socsched.planning.plan import Plan
from socsched.runtime import timetable
from socsched.runtime.activation import Activation
from socsched.runtime.dispatch_policy import EventChained, WorkerKey
from socsched.runtime.executor_state import Hub
from socsched.runtime.failover import Losses
from socsched.runtime.monitor import Monitor, hang_limit
from socsched.runtime.plan_instance import Version
from socsched.sim.simulate import simulate
from socsched.trace.trace import Instant, Trace

HANGS = -1
"""The listed execution time of a job that never ends; one below fails after that time."""
_NEVER = 1 << 62


class Failed(Exception):
    """The failure of a job whose listed time says so."""


class _Quiet:
    """A collector that wants no outputs."""

    slow = False

    def wants(self, *_: object) -> bool:
        return False


class _Hub(Hub):
    """A hub on a virtual clock that starts jobs once an instant."""

    at_ns = 0
    immediate = False

    def clock(self) -> int:
        return self.at_ns

    def dispatch(self) -> None:
        if self.immediate:
            super().dispatch()


class _Worker:
    """Begins jobs at once and ends them after their planned or listed time."""

    cpus: frozenset[int] = frozenset()

    def __init__(self, run: VirtualRun, plan: Plan) -> None:
        self.dead = False
        self._run = run
        self._number = {task.name: number for number, task in enumerate(plan.tasks)}

    def submit(self, act: Activation) -> None:
        task, run = act.task, self._run
        cost = sum(segment.time_ns for segment in task.segments) if task.segments else task.cost_ns
        time = next(run.times[task.name]) if task.name in run.times else cost
        act.begun_ns = run.hub.at_ns
        took = abs(time) // 2 if act.cheap else abs(time)
        if task.high_ns and (time == HANGS or took > task.wcet_ns):
            heapq.heappush(run.overruns, (run.hub.at_ns + task.wcet_ns, act.index, act))
        if time != HANGS:
            end = run.hub.at_ns + took
            heapq.heappush(run.ends, (end, self._number[task.name], act.index, self, act, time < 0))


class VirtualRun:
    """One run of settings on a virtual clock; `trace` and `accounts` hold the result of `run`."""

    def __init__(self, settings: RunSettings) -> None:
        self.times: dict[str, Iterator[int]] = {name: cycle(times) for name, times in settings.times.items() if times}
        self.ends: list[Any] = []
        self.overruns: list[tuple[int, int, Activation]] = []
        self.accounts: dict[str, dict[str, int]] = {}
        self._settings = settings
        self.trace = Trace("measured", settings.horizon_ns, settings.seed)
        self.hub = hub = _Hub(settings.plan, settings.needs, settings.policies, False)
        hub.shield = settings.shield
        hub.collector = _Quiet()  # type: ignore[assignment]
        versions = [self._version(plan) for plan in (settings.plan, *settings.limp_home)]
        self._losses = hub.losses = Losses(hub, versions)
        hub.put_in_charge(versions[0], self.trace)
        self._monitor = Monitor(
            settings.plan, lambda: hub.dispatcher, nullcontext(), 0, self._losses.hung,
            lambda task: hang_limit(task, len(versions) > 1, settings.hang_ns),
        )  # fmt: skip

    def _version(self, plan: Plan) -> Version:
        keys = {engine.policy: declared_key(engine.policy) for engine in plan.engines}
        rules = EventChained(plan, keys=keys)
        none = {task.name: frozenset[str]() for task in plan.tasks}
        workers: dict[WorkerKey, Any] = {key: _Worker(self, plan) for key in rules.crews()}
        names = {task.name: task.name for task in plan.tasks}
        return Version(plan, None, rules, none, none, names, workers)  # type: ignore[arg-type]

    def _overrun(self) -> int:
        """Return the instant of the next overrun that raises the level of criticality."""
        dispatcher, overruns = self.hub.dispatcher, self.overruns
        while overruns and dispatcher.running.get(overruns[0][1]) is not overruns[0][2]:
            heapq.heappop(overruns)
        raised = dispatcher.levels is None or dispatcher.levels.high
        return overruns[0][0] if overruns and not raised else _NEVER

    def run(self) -> None:
        """Run until all frames released before the horizon are done."""
        hub, settings = self.hub, self._settings
        groups = timetable.releases(settings.plan, settings.horizon_ns)
        group = next(groups, None)
        look = step = self._monitor.interval_ns
        while True:
            release = _NEVER if group is None or hub.over else group[0][0]
            end = self.ends[0][0] if self.ends else _NEVER
            if release == end == _NEVER and (hub.over or hub.dispatcher.outstanding == 0):
                break
            now = hub.at_ns = min(release, end, look, self._overrun())
            while self.ends and self.ends[0][0] == now:
                *_, worker, act, fails = heapq.heappop(self.ends)
                hub.done(worker, act, act.begun_ns, now, Failed("as scripted") if fails else {})
            if self._overrun() == now:
                hub.dispatcher.overran(self.overruns[0][2], now)
            if release == now and group is not None and not hub.over:
                for _, name, frame in group:
                    self._release(name, frame, now)
                group = next(groups, None)
            hub.immediate = True
            hub.dispatch()
            if look == now:
                with hub.guard:
                    self._monitor.look(now)
                if hub.shield:
                    hub.dispatch()
                look += step
            hub.immediate = False
        hub.write()
        self._close()

    def _release(self, name: str, frame: int, now: int) -> None:
        dropouts = self._settings.faults.dropouts
        if any(f.sensor == name and f.from_ns <= now < f.until_ns for f in dropouts):
            self.hub.dispatcher.lose(name, frame, now, "dropout, as specified in the faults file")
        else:
            self.hub.dispatcher.release(name, frame, now, now, {})

    def _close(self) -> None:
        hub, trace = self.hub, self.trace
        last = max((piece.end_ns for piece in trace.slices), default=0)
        trace.duration_ns = last if hub.over else max(last, self._settings.horizon_ns)
        if hub.failure is not None:
            act, error = hub.failure
            text = f"{type(error).__name__}: {error}"
            trace.instants.append(Instant(trace.duration_ns, "fault", act.task.name, act.job.frame, text))
        hub.dispatcher.settle()
        hub.dispatcher.ledger.settle()
        self.accounts = hub.dispatcher.ledger.document()


def run_reference(settings: RunSettings) -> VirtualRun:
    """Return a finished run of the Python dispatcher."""
    made = VirtualRun(settings)
    made.run()
    return made


def run_native(executor: Path, settings: RunSettings, folder: Path) -> tuple[Trace, Executed]:
    """Return trace and outcome of the native executor on a virtual clock; MachineError if it fails to run."""
    file = write_settings(settings, folder)
    command = [str(executor), str(file), "-o", str(folder), "--virtual"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3) or (done.returncode == 3 and done.stderr):
        raise MachineError(f"the native executor ended with {done.returncode}: {done.stderr}")
    return read_outcome(folder)


def differences(settings: RunSettings, native: Trace, executed: Executed) -> list[str]:
    """Return how a native run differs from the Python reference, job by job; empty if it does not."""
    reference = run_reference(settings)
    found: list[str] = []
    for what in ("jobs", "slices", "instants"):
        mine, theirs = (sorted(map(repr, _rows(trace, what))) for trace in (native, reference.trace))
        found += _differing(what, mine, theirs)
    for what in ("releases", "counters"):
        mine, theirs = (
            [f"{n}: {v}" for n, v in sorted(getattr(t, what).items()) if v] for t in (native, reference.trace)
        )
        found += _differing(what, mine, theirs)
    accounts = {name: {k: getattr(a, k) for k in a.__slots__} for name, a in executed.accounts.items()}
    found += _differing("accounts", [str(accounts)], [str(reference.accounts)])
    found += _differing("duration", [str(native.duration_ns)], [str(reference.trace.duration_ns)])
    return found


def differences_from_simulator(settings: RunSettings, native: Trace) -> list[str]:
    """Return how a native run differs from a simulation of its plan, job by job; empty if it does not.

    A simulation ends at the horizon, where the executor lets released frames complete: later events do not count.  The
    plan must be one that both model: engines with full preemption or none, no contention, constant execution times.
    """
    end = settings.horizon_ns
    dropped = {(n.subject, n.frame): n.time_ns for n in native.instants if n.kind == "drop"}
    mine: list[str] = []
    for job in native.jobs:
        if job.activation_ns > end:
            continue
        begun, ended = 0 <= job.start_ns < end, 0 <= job.finish_ns <= end
        status = job.status
        if (status == "done" and not ended) or (status == "dropped" and dropped[job.task, job.frame] >= end):
            status = "unfinished"
        times = (job.start_ns if begun else -1, job.finish_ns if ended else -1)
        sampled = sorted(job.sampled.items()) if begun else []
        mine.append(f"{job.task} {job.frame} {job.activation_ns} {job.deadline_ns} {times} {status} {sampled}")
    simulated = simulate(settings.plan, end)
    theirs = [
        f"{job.task} {job.frame} {job.activation_ns} {job.deadline_ns} {(job.start_ns, job.finish_ns)} {job.status} "
        f"{sorted((name, frame) for name, frame in job.sampled.items() if frame >= 0)}"
        for job in simulated.jobs
    ]
    found = _differing("jobs", sorted(mine), sorted(theirs))
    return found + _differing("intervals", _intervals(native, end), _intervals(simulated, end))


def _intervals(trace: Trace, end: int) -> list[str]:
    """Return the execution intervals of all jobs before `end`, in order, adjacent ones joined."""
    rows: list[list[Any]] = []
    pieces = [(repr((trace.jobs[p.job].task, trace.jobs[p.job].frame)), p.start_ns, p.end_ns) for p in trace.slices]
    for job, start, stop in sorted(pieces):
        if rows and rows[-1][0] == job and rows[-1][2] == start:
            rows[-1][2] = stop
        elif start < end:
            rows.append([job, start, stop])
    return [f"{job} {start} {min(stop, end)}" for job, start, stop in rows]


def _rows(trace: Trace, what: str) -> Sequence[Any]:
    if what != "slices":
        rows: Sequence[Any] = getattr(trace, what)
        return rows
    return [
        (p.engine, p.lanes, trace.jobs[p.job].task, trace.jobs[p.job].frame, p.start_ns, p.end_ns) for p in trace.slices
    ]


def _differing(what: str, mine: Sequence[str], theirs: Sequence[str]) -> list[str]:
    if list(mine) == list(theirs):
        return []
    extra = [row for row in mine if row not in theirs][:3]
    missing = [row for row in theirs if row not in mine][:3]
    return [f"{what}: native has {extra}, the other {missing} ({len(mine)} and {len(theirs)} in all)"]
