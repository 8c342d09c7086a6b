"""The executor's bookkeeping: which job is ready, which may start, what is dropped, whose data flows where.

No thread, clock or model is touched here: the executor reports releases and finished jobs with the time they happened
and gets back the jobs to start now.  A job needs all lanes of its task; ready jobs are served in policy order, and jobs
of lower priority fill lanes that are left: the rule of the simulator, which the bounds of the analysis hold for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from socsched.errors import UsageError
from socsched.plan.plan import Plan, Task
from socsched.run.policy import policy
from socsched.trace.trace import Instant, Job, Slice, Trace
from socsched.units import format_duration

Outputs = Mapping[str, Any]
"""Output port name -> array of one stage or sensor."""
Values = dict[str, Outputs]
"""Stage or sensor name -> what it put out."""
Origin = dict[str, tuple[int, int]]
"""Sensor or timer -> (frame, release in ns) of the oldest data."""


@dataclass(slots=True, eq=False)
class Activation:
    """A job with what it needs to run; `blockers` are running jobs of lower priority on its lanes.

    `origin` says which data the job's stems from, over all ways it came: of every sensor or timer the oldest.
    """

    task: Task
    job: Job
    index: int
    key: tuple[int, ...]
    release_ns: int
    values: Values
    origin: Origin
    blockers: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Delivery:
    """A frame as a producer hands it on."""

    release_ns: int
    origin: Origin
    values: Values


class Dispatcher:
    """The state of one run of a plan; records every job, slice and drop in `trace`.  Not thread safe.

    `needs` maps a task to the stages and sensors whose outputs its model reads (`registry.bindings`).  `alone` lets one
    job run at a time and every frame wait: for measuring, not for serving.
    """

    def __init__(self, plan: Plan, needs: Mapping[str, set[str]], trace: Trace, alone: bool = False) -> None:
        self.trace = trace
        self._alone = alone
        self.outstanding = 0
        self._order = {task.name: index for index, task in enumerate(plan.tasks)}
        self._tasks = {task.name: task for task in plan.tasks}
        self._policies = {engine.id: policy(engine.policy) for engine in plan.engines}
        self._timers = {task.name for task in plan.tasks if task.timer}
        self._followers = _followers(plan)
        self._carry = _carried(plan, needs)
        self._needs = needs
        self._sampled = {name for task in plan.tasks for name in task.reads}
        self._latest: dict[str, tuple[int, _Delivery]] = {}
        self._joins: dict[tuple[str, int], list[_Delivery]] = {}
        self._ready: list[Activation] = []
        self._lanes: dict[tuple[str, int], Activation] = {}
        for task in plan.tasks:
            _check(plan, task)

    def release(self, name: str, frame: int, release_ns: int, now_ns: int, outputs: Outputs) -> None:
        """Take frame `frame` of a sensor, with its data, or of a timer task."""
        self.trace.releases.setdefault(name, []).append(release_ns)
        origin = {name: (frame, release_ns)}
        if name in self._timers:
            self._activate(self._tasks[name], frame, [_Delivery(release_ns, origin, {})], now_ns)
        else:
            self._deliver(name, frame, _Delivery(release_ns, origin, {name: outputs}), now_ns)

    def lose(self, sensor: str, frame: int, release_ns: int, why: str) -> None:
        """Take a frame of a sensor that came but cannot be used: it is dropped before any job sees it."""
        self.trace.releases.setdefault(sensor, []).append(release_ns)
        self.trace.instants.append(Instant(release_ns, "input", sensor, frame, why))
        self.trace.instants.append(Instant(release_ns, "drop", sensor, frame, "frame lost: its data cannot be used"))

    def start(self, now_ns: int) -> list[Activation]:
        """Return the jobs that occupy lanes from now on, and drop what no longer fits the queues."""
        started: list[Activation] = []
        taken = set(self._lanes)
        for act in sorted(self._ready, key=lambda a: a.key):
            if self._alone and (self._lanes or started):
                break
            lanes = {(act.task.engine, lane) for lane in act.task.lanes}
            if not lanes & taken:
                if not self._sample(act, now_ns):
                    continue
                self._lanes.update(dict.fromkeys(lanes, act))
                started.append(act)
                taken |= lanes
        gone = {act.index for act in started}
        self._ready = [act for act in self._ready if act.index not in gone and act.job.status == "unfinished"]
        for waiting in self._ready:
            mine = set(waiting.task.lanes)
            waiting.blockers |= {
                act.index
                for act in started
                if act.task.engine == waiting.task.engine and act.key > waiting.key and mine & set(act.task.lanes)
            }
        if not self._alone:
            self._overflow(now_ns)
        self._depths(now_ns)
        return started

    def finish(self, act: Activation, start_ns: int, end_ns: int, outputs: Outputs, title: str = "") -> None:
        """Take the end of a started job and hand its outputs on to the tasks behind it; `title` names its slice."""
        job, task = act.job, act.task
        job.start_ns, job.finish_ns, job.exec_ns, job.status = start_ns, end_ns, end_ns - start_ns, "done"
        self.trace.slices.append(Slice(task.engine, task.lanes, act.index, title or task.name, start_ns, end_ns))
        self._unblock(act, end_ns)
        self.outstanding -= 1
        if end_ns > job.deadline_ns:
            late = end_ns - job.deadline_ns
            self.trace.instants.append(Instant(end_ns, "miss", task.name, job.frame, f"{format_duration(late)} late"))
        values = {**act.values, task.name: outputs}
        carried = {name: values[name] for name in self._carry[task.name] if name in values}
        self._deliver(task.name, job.frame, _Delivery(act.release_ns, dict(act.origin), carried), end_ns)

    def abandon(self, act: Activation, start_ns: int, end_ns: int) -> None:
        """Take a started job that failed: it stays unfinished, what it did remains in the trace."""
        act.job.start_ns, act.job.exec_ns = start_ns, end_ns - start_ns
        task = act.task
        self.trace.slices.append(Slice(task.engine, task.lanes, act.index, task.name, start_ns, end_ns))
        self._unblock(act, end_ns)
        self.outstanding -= 1

    def _deliver(self, name: str, frame: int, delivery: _Delivery, now_ns: int) -> None:
        if name in self._sampled:
            self._latest[name] = (frame, delivery)
        for task in self._followers.get(name, ()):
            arrived = self._joins.setdefault((task.name, frame), [])
            arrived.append(delivery)
            if len(arrived) == len(task.after):
                # producers deliver in frame order: what is older and incomplete will never be complete
                for key in [k for k in self._joins if k[0] == task.name and k[1] <= frame]:
                    del self._joins[key]
                self._activate(task, frame, arrived, now_ns)

    def _activate(self, task: Task, frame: int, inputs: list[_Delivery], now_ns: int) -> None:
        release = min(delivery.release_ns for delivery in inputs)
        origin = _oldest([delivery.origin for delivery in inputs])
        job = Job(task.name, frame, now_ns, release + task.deadline_ns)
        values = {name: out for delivery in inputs for name, out in delivery.values.items()}
        key = (*self._policies[task.engine](job, task), self._order[task.name], frame)
        act = Activation(task, job, len(self.trace.jobs), key, release, values, origin)
        self.trace.jobs.append(job)
        self.outstanding += 1
        held = {id(a): a for lane in task.lanes if (a := self._lanes.get((task.engine, lane)))}
        act.blockers = {other.index for other in held.values() if other.key > key}
        self._ready.append(act)

    def _sample(self, act: Activation, now_ns: int) -> bool:
        """Read the latest outputs of `reads`; False (and dropped) when the model lacks one it needs."""
        sampled: dict[str, int] = {}
        for name in act.task.reads:
            if name in self._latest:
                sampled[name], delivery = self._latest[name]
                act.values = {**delivery.values, **act.values}
                act.origin = _oldest([act.origin, delivery.origin])
        act.job.sampled = sampled
        missing = sorted(self._needs.get(act.task.name, set()) - set(act.values))
        if missing:
            self._drop(act, now_ns, f"nothing from {', '.join(missing)} yet")
        return not missing

    def _overflow(self, now_ns: int) -> None:
        for task in self._tasks.values():
            waiting = sorted((a for a in self._ready if a.task is task), key=lambda a: a.job.frame)
            for act in waiting[max(task.queue, 0) :]:
                self._ready.remove(act)
                self._drop(act, now_ns, f"{task.queue} frames wait already")

    def _drop(self, act: Activation, now_ns: int, why: str) -> None:
        act.job.status = "dropped"
        self.outstanding -= 1
        self.trace.instants.append(Instant(now_ns, "drop", act.task.name, act.job.frame, why))

    def _unblock(self, act: Activation, now_ns: int) -> None:
        for lane in act.task.lanes:
            del self._lanes[act.task.engine, lane]
        for waiting in self._ready:
            if act.index in waiting.blockers:
                waiting.job.blocking_ns = max(waiting.job.blocking_ns, now_ns - waiting.job.activation_ns)

    def _depths(self, now_ns: int) -> None:
        for name in self._tasks:
            depth = sum(1 for act in self._ready if act.task.name == name)
            steps = self.trace.counters.get(f"queue.{name}", [(0, 0.0)])
            if steps[-1][1] != depth:
                self.trace.counters[f"queue.{name}"] = steps
                steps.append((now_ns, float(depth)))


def _oldest(origins: list[Mapping[str, tuple[int, int]]]) -> Origin:
    merged: Origin = {}
    for origin in origins:
        for name, mark in origin.items():
            merged[name] = min(mark, merged.get(name, mark))
    return merged


def _followers(plan: Plan) -> dict[str, list[Task]]:
    followers: dict[str, list[Task]] = {}
    for task in plan.tasks:
        for name in () if task.timer else task.after:
            followers.setdefault(name, []).append(task)
    return followers


def _carried(plan: Plan, needs: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return, for every task, whose outputs some task behind it still reads; all else is freed when it ends."""
    behind: dict[str, list[str]] = {task.name: [] for task in plan.tasks}
    for task in plan.tasks:
        for name in {*task.after, *task.reads} & set(behind):
            behind[name].append(task.name)
    carry: dict[str, set[str]] = {task.name: set() for task in plan.tasks}
    changed = True
    while changed:  # `reads` may close a circle, so iterate to the fixed point
        changed = False
        for name, followers in behind.items():
            wanted = set().union(*(needs.get(f, set()) | carry[f] for f in followers)) if followers else set()
            changed |= wanted != carry[name]
            carry[name] = wanted
    return carry


def _check(plan: Plan, task: Task) -> None:
    engine = next((engine for engine in plan.engines if engine.id == task.engine), None)
    if engine is None or not task.lanes or not all(0 <= lane < engine.lanes for lane in task.lanes):
        where = f"lanes {list(task.lanes)} of {task.engine!r}"
        raise UsageError(f"plan: task {task.name!r}: {where} do not exist", "plan again")
