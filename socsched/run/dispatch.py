"""The executor's bookkeeping: which job is ready, which may start, what is dropped, whose data flows where.

No thread, clock or model is touched here: the executor reports releases and finished jobs with the time they happened
and gets back the jobs to start now.  A job needs all seats its discipline asks for (lanes of its engine, usually);
ready jobs are served in the discipline's order, and jobs of lower priority fill lanes that are left: the rule of the
simulator, which the bounds of the analysis hold for.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from socsched.errors import UsageError
from socsched.plan.plan import Plan, Task
from socsched.run.discipline import Discipline, EventChained, Place, WorkerKey
from socsched.run.ledger import ABORTED, DROPPED, Ledger, Ticket, let_go
from socsched.run.overload import Overload
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

    `cheap`: it runs the stage's cheaper variant.  `void`: its plan was replaced while it ran, nobody wants its outputs.
    `handed`: the tasks that got its outputs before it was finished, chained on the device.
    """

    task: Task
    job: Job
    index: int
    release_ns: int
    origin: Origin
    values: Values
    tickets: tuple[Ticket, ...]
    key: tuple[int, ...] = ()
    place: Place | None = None
    blockers: set[int] = field(default_factory=set)
    cheap: bool = False
    void: bool = False
    begun_ns: int = -1
    handed: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Delivery:
    """A frame as a producer hands it on."""

    release_ns: int
    origin: Origin
    values: Values
    tickets: tuple[Ticket, ...]


class Dispatcher:
    """The state of one plan as it runs; records every job, slice and drop in `trace`.  Not thread safe.

    `needs` maps a task to the stages and sensors whose outputs its model reads (`registry.bindings`).  `lossless` lets
    every frame wait instead of dropping what does not fit a queue: for measuring, and where releases wait for room.
    """

    def __init__(
        self,
        plan: Plan,
        needs: Mapping[str, set[str]],
        trace: Trace,
        discipline: Discipline | None = None,
        lossless: bool = False,
        ledger: Ledger | None = None,
        overload: Overload | None = None,
    ) -> None:
        for task in plan.tasks:
            _check(plan, task)
        self.trace = trace
        self.ledger = ledger or Ledger()
        self.outstanding = 0
        self.running: dict[int, Activation] = {}
        self.discipline = discipline or EventChained(plan)
        self._lossless, self._overload = lossless, overload
        self.tasks = {task.name: task for task in plan.tasks}
        self._timers = {task.name for task in plan.tasks if task.timer}
        self._followers = _followers(plan)
        self._carry = _carried(plan, needs)
        self._needs = needs
        self._replaces = {t.task: t.source for t in plan.transitions if t.task}
        self._sampled = {name for task in plan.tasks for name in task.reads}
        self._latest: dict[str, tuple[int, _Delivery]] = {}
        self._joins: dict[tuple[str, int], list[_Delivery]] = {}
        self._ready: list[Activation] = []
        self._waiting = dict.fromkeys(self.tasks, 0)
        self._changed: set[str] = set()
        self._seats: dict[Hashable, Activation] = {}
        self._lost: set[str] = set()

    # -- what happens

    def release(self, name: str, frame: int, release_ns: int, now_ns: int, outputs: Outputs) -> None:
        """Take frame `frame` of a sensor, with its data, or of a timer task."""
        self.trace.releases.setdefault(name, []).append(release_ns)
        ticket = self.ledger.release(name, frame)
        origin = {name: (frame, release_ns)}
        if name in self._timers:
            ticket.hold()
            self._activate(self.tasks[name], frame, [_Delivery(release_ns, origin, {}, (ticket,))], now_ns)
        else:
            self._deliver(name, frame, _Delivery(release_ns, origin, {name: outputs}, (ticket,)), now_ns)
        ticket.let_go()

    def lose(self, sensor: str, frame: int, release_ns: int, why: str) -> None:
        """Take a frame of a sensor that came but cannot be used: it is dropped before any job sees it."""
        self.trace.releases.setdefault(sensor, []).append(release_ns)
        self.trace.instants.append(Instant(release_ns, "input", sensor, frame, why))
        self.trace.instants.append(Instant(release_ns, "drop", sensor, frame, "frame lost: its data cannot be used"))
        self.ledger.release(sensor, frame).let_go(DROPPED)

    def start(self, now_ns: int) -> list[Activation]:
        """Return the jobs that occupy their places from now on, and drop what no longer fits the queues."""
        started: list[Activation] = []
        for act in list(self._ready):
            place = self.discipline.place(act, self._seats)
            if place is None:
                continue
            self._leave_queue(act)
            if not self._sample(act, now_ns) or not self._worthwhile(act, now_ns):
                continue
            act.place = place
            self._seats.update(dict.fromkeys(place.seats, act))
            self.running[act.index] = act
            started.append(act)
        if started and self._ready and self.discipline.blocking:
            self._note_blockers(started)
        if not self._lossless:
            self._overflow(now_ns)
        self._depths(now_ns)
        return started

    def launched(self, act: Activation, outputs: Outputs, now_ns: int, followers: frozenset[str]) -> None:
        """Hand the outputs of a job that is queued on its device to `followers`, which the device will keep waiting."""
        if act.void or not followers:
            return
        act.handed = followers
        self._deliver(act.task.name, act.job.frame, self._outcome(act, outputs), now_ns, only=followers)

    def finish(self, act: Activation, start_ns: int, end_ns: int, outputs: Outputs, title: str = "") -> None:
        """Take the end of a started job and hand its outputs on to the tasks behind it; `title` names its slice."""
        job, task = act.job, act.task
        job.start_ns, job.finish_ns, job.exec_ns, job.status = start_ns, end_ns, end_ns - start_ns, "done"
        self._ended(act, start_ns, end_ns, title)
        late = end_ns - job.deadline_ns
        if late > 0:
            self.trace.instants.append(Instant(end_ns, "miss", task.name, job.frame, f"{format_duration(late)} late"))
            if self._overload is not None and self._overload.missed(task, end_ns):
                self.trace.instants.append(Instant(end_ns, "overload", task.name, job.frame, "less critical work shed"))
        if act.void:
            self._abort(act, end_ns, "its plan was replaced while it ran")
        elif late > 0 and self._overload is not None and self._overload.aborts(task):
            self._abort(act, end_ns, "too late to be of use")
        else:
            self._deliver(task.name, job.frame, self._outcome(act, outputs), end_ns, but=act.handed)
            let_go(act.tickets)

    def abandon(self, act: Activation, start_ns: int, end_ns: int, why: str = "") -> None:
        """Take a started job that failed or hangs: it has no outputs, what it did remains in the trace.

        With `why` it is aborted; without it stays unfinished, for a run that ends here.
        """
        act.job.start_ns, act.job.exec_ns = start_ns, end_ns - start_ns
        self._ended(act, start_ns, end_ns)
        if why:
            self._abort(act, end_ns, why)
        else:
            let_go(act.tickets, ABORTED)

    def retire(self, worker: WorkerKey, tasks: Iterable[str], now_ns: int) -> None:
        """Take a worker out: frames that need one of `tasks` are aborted from now on."""
        self._lost |= set(tasks)
        for act in [act for act in self._ready if act.task.name in self._lost]:
            self._leave_queue(act)
            self.outstanding -= 1
            self._abort(act, now_ns, f"{worker[0]} is out of service")

    def close(self, now_ns: int) -> None:
        """Abort everything that waits, and let what runs end in vain: another plan takes over."""
        for act in list(self._ready):
            self._leave_queue(act)
            self.outstanding -= 1
            self._abort(act, now_ns, "its plan was replaced")
        for act in self.running.values():
            act.void = True
        for deliveries in self._joins.values():
            for delivery in deliveries:
                let_go(delivery.tickets, ABORTED)
        self._joins.clear()
        self._depths(now_ns)

    def inherit(self, other: Dispatcher) -> None:
        """Take over the latest outputs another plan's stages left, for those who sample them."""
        self._latest.update((name, latest) for name, latest in other._latest.items() if name in self._sampled)

    def settle(self) -> None:
        """End the run: frames that joins still hold were dropped for want of a partner, open ones are aborted."""
        for deliveries in self._joins.values():
            for delivery in deliveries:
                let_go(delivery.tickets, DROPPED)
        self._joins.clear()

    def waiting(self, task: str) -> int:
        """Return how many jobs of a task wait."""
        return self._waiting.get(task, 0)

    # -- how it is done

    def _outcome(self, act: Activation, outputs: Outputs) -> _Delivery:
        name = act.task.name
        values = {**act.values, name: outputs}
        if name in self._replaces:  # a conversion: what follows reads its source's tensors as it leaves them
            source = self._replaces[name]
            values[source] = {**values.get(source, {}), **outputs}
        carried = {key: values[key] for key in self._carry[name] if key in values}
        return _Delivery(act.release_ns, act.origin, carried, act.tickets)

    def _deliver(
        self,
        name: str,
        frame: int,
        delivery: _Delivery,
        now_ns: int,
        only: frozenset[str] | None = None,
        but: frozenset[str] = frozenset(),
    ) -> None:
        """Hand a frame to the tasks behind `name`: to all `but` those that have it, or to `only` some."""
        if only is None and name in self._sampled and frame >= self._latest.get(name, (-1,))[0]:
            self._latest[name] = (frame, delivery)
        for task in self._followers.get(name, ()):
            if (only is not None and task.name not in only) or task.name in but:
                continue
            arrived = self._joins.setdefault((task.name, frame), [])
            arrived.append(delivery)
            for ticket in delivery.tickets:
                ticket.hold()
            if len(arrived) == len(task.after):
                del self._joins[task.name, frame]
                if len(task.after) > 1:
                    self._forget_older(task.name, frame - self.discipline.disorder)
                self._activate(task, frame, arrived, now_ns)

    def _forget_older(self, task: str, frame: int) -> None:
        """Producers deliver in frame order, up to the discipline's disorder: what is older will never be complete."""
        for key in [k for k in self._joins if k[0] == task and k[1] < frame]:
            for delivery in self._joins.pop(key):
                let_go(delivery.tickets, DROPPED)

    def _activate(self, task: Task, frame: int, inputs: list[_Delivery], now_ns: int) -> None:
        """Make a job of `inputs`; the holds on their tickets become the job's."""
        release = min(delivery.release_ns for delivery in inputs)
        job = Job(task.name, frame, now_ns, release + task.deadline_ns)
        values = {name: out for delivery in inputs for name, out in delivery.values.items()}
        tickets = tuple(ticket for delivery in inputs for ticket in delivery.tickets)
        origin = inputs[0].origin if len(inputs) == 1 else _oldest([delivery.origin for delivery in inputs])
        act = Activation(task, job, len(self.trace.jobs), release, origin, values, tickets)
        act.key = self.discipline.key(act)
        self.trace.jobs.append(job)
        if task.name in self._lost:
            self._abort(act, now_ns, f"{task.engine} is out of service")
            return
        if self._overload is not None and self._overload.sheds(task, now_ns):
            self._drop(act, now_ns, "shed: more critical stages miss their deadlines")
            return
        self.outstanding += 1
        if self.discipline.blocking:
            held = {id(a): a for lane in task.lanes if (a := self._seats.get((task.engine, lane)))}
            act.blockers = {other.index for other in held.values() if other.key > act.key}
        insort(self._ready, act, key=_key)
        self._waiting[task.name] += 1
        self._changed.add(task.name)

    def _leave_queue(self, act: Activation) -> None:
        self._ready.remove(act)
        self._waiting[act.task.name] -= 1
        self._changed.add(act.task.name)

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
            self.outstanding -= 1
            self._drop(act, now_ns, f"nothing from {', '.join(missing)} yet")
        return not missing

    def _worthwhile(self, act: Activation, now_ns: int) -> bool:
        """Whether a job should start under its stage's overload policy; sets `cheap`, drops what should not."""
        if self._overload is None:
            return True
        choice = self._overload.choose(act.task, act.job.deadline_ns - now_ns)
        act.cheap = choice == "degrade"
        if choice == "skip":
            self.outstanding -= 1
            self._drop(act, now_ns, "skipped: it would have been late")
        return choice != "skip"

    def _overflow(self, now_ns: int) -> None:
        for name in self._changed:
            room = max(self.tasks[name].queue, 0)
            if self._waiting[name] > room:
                waiting = sorted((a for a in self._ready if a.task.name == name), key=lambda a: a.job.frame)
                for act in waiting[room:]:
                    self._leave_queue(act)
                    self.outstanding -= 1
                    self._drop(act, now_ns, f"{self.tasks[name].queue} frames wait already")

    def _drop(self, act: Activation, now_ns: int, why: str) -> None:
        act.job.status = "dropped"
        self.trace.instants.append(Instant(now_ns, "drop", act.task.name, act.job.frame, why))
        let_go(act.tickets, DROPPED)

    def _abort(self, act: Activation, now_ns: int, why: str) -> None:
        act.job.status = "aborted"
        self.trace.instants.append(Instant(now_ns, "abort", act.task.name, act.job.frame, why))
        let_go(act.tickets, ABORTED)

    def _ended(self, act: Activation, start_ns: int, end_ns: int, title: str = "") -> None:
        task = act.task
        self.trace.slices.append(Slice(task.engine, task.lanes, act.index, title or task.name, start_ns, end_ns))
        self.running.pop(act.index, None)
        for seat in act.place.seats if act.place else ():
            if self._seats.get(seat) is act:
                del self._seats[seat]
        for waiting in self._ready:
            if act.index in waiting.blockers:
                waiting.job.blocking_ns = max(waiting.job.blocking_ns, end_ns - waiting.job.activation_ns)
        self.outstanding -= 1

    def _note_blockers(self, started: list[Activation]) -> None:
        for waiting in self._ready:
            engine, mine = waiting.task.engine, set(waiting.task.lanes)
            for act in started:
                if act.task.engine == engine and act.key > waiting.key and mine.intersection(act.task.lanes):
                    waiting.blockers.add(act.index)

    def _depths(self, now_ns: int) -> None:
        for name in self._changed:
            depth = self._waiting[name]
            steps = self.trace.counters.get(f"queue.{name}")
            if (steps[-1][1] if steps else 0.0) != depth:
                if steps is None:
                    steps = self.trace.counters[f"queue.{name}"] = [(0, 0.0)]
                steps.append((now_ns, float(depth)))
        self._changed.clear()


def _key(act: Activation) -> tuple[int, ...]:
    return act.key


def _oldest(origins: list[Origin]) -> Origin:
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
