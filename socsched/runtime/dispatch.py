"""The executor's bookkeeping: which jobs are ready, which may start, which are dropped, and where data flows.

This module touches no thread, clock or model: the executor reports releases and finished jobs with their timestamps
and gets back the jobs to start now.  A job needs all seats its discipline asks for (usually lanes of its engine).
Ready jobs are served in the discipline's order, and lower-priority jobs fill the remaining lanes.  The simulator uses
the same rule, and the analysis bounds hold for it.

Work on a successor's critical path comes first: `ended` frees seats and hands data on, and `start` selects the jobs
to run.  `record` writes the trace entries and may run any time later.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Iterable, Mapping
from operator import attrgetter

from socsched.planning.plan import Plan, Task
from socsched.runtime import criticality_levels
from socsched.runtime.activation import NOBODY, Activation, Delivery, Outputs, oldest
from socsched.runtime.criticality_isolation import Shield
from socsched.runtime.dataflow import Wiring
from socsched.runtime.dispatch_policy import Discipline, EventChained, WorkerKey
from socsched.runtime.frame_accounting import ABORTED, DROPPED, Ledger, let_go
from socsched.runtime.overload import Overload
from socsched.trace.trace import Instant, Job, Slice, Trace
from socsched.units import format_duration

__all__ = ["Activation", "Dispatcher", "Outputs"]


class Dispatcher:
    """The state of a running plan; records every job, slice and drop in `trace`.  Not thread safe.

    `needs` maps a task to the stages and sensors whose outputs its model reads (`registry.bindings`).  `lossless` lets
    every frame wait instead of dropping those that do not fit a queue: for measurements, and where releases wait for
    room.  `shield` keeps less critical jobs from starting concurrently with more critical ones.
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
        shield: bool = False,
    ) -> None:
        self._wiring = Wiring(plan, needs)
        self.trace = trace
        self.ledger = ledger or Ledger()
        self.outstanding = 0
        self.running: dict[int, Activation] = {}
        self.discipline = discipline or EventChained(plan)
        self._place, self._blocking = self.discipline.place, self.discipline.blocking
        self._lossless, self._overload = lossless, overload
        self.tasks = self._wiring.tasks
        self._latest: dict[str, tuple[int, Delivery]] = {}
        self._joins: dict[tuple[str, int], tuple[int, list[Delivery]]] = {}
        self._ready: list[Activation] = []
        self._waiting = dict.fromkeys(self.tasks, 0)
        self._changed: set[str] = set()
        self.seats: dict[Hashable, Activation] = {}
        self._lost: set[str] = set()
        self._shield = Shield(plan, not lossless) if shield else None
        self.levels = None if lossless else criticality_levels.Levels.of(plan)

    # -- events

    def release(self, name: str, frame: int, release_ns: int, now_ns: int, outputs: Outputs) -> None:
        """Release frame `frame` of a sensor, with its data, or of a timer task."""
        self.trace.releases.setdefault(name, []).append(release_ns)
        if self._shield is not None:
            self._shield.released(name, release_ns)
        if self.levels is not None and self.outstanding == 0:
            self.levels.high = False
        ticket = self.ledger.release(name, frame)
        origin = {name: (frame, release_ns)}
        if name in self._wiring.timers:
            ticket.hold()
            self._activate(self.tasks[name], frame, [Delivery(release_ns, origin, {}, (ticket,))], now_ns)
        else:
            self._deliver(name, frame, Delivery(release_ns, origin, {name: outputs}, (ticket,)), now_ns)
        ticket.let_go()

    def lose(self, sensor: str, frame: int, release_ns: int, why: str) -> None:
        """Drop a sensor frame that arrived but cannot be used, before any job sees it."""
        if self._shield is not None:
            self._shield.released(sensor, release_ns)
        self.trace.releases.setdefault(sensor, []).append(release_ns)
        self.trace.instants.append(Instant(release_ns, "input", sensor, frame, why))
        self.trace.instants.append(Instant(release_ns, "drop", sensor, frame, "frame lost: its data cannot be used"))
        self.ledger.release(sensor, frame).let_go(DROPPED)

    def start(self, now_ns: int) -> list[Activation]:
        """Return the jobs that start now, and drop jobs that no longer fit the queues."""
        started = self.pick(now_ns)
        self.tidy(now_ns)
        return started

    def pick(self, now_ns: int) -> list[Activation]:
        """Do the latency-critical part of `start`; `tidy` must follow."""
        started: list[Activation] = []
        place_of, seats = self._place, self.seats
        shield = self._shield
        first = 0 if shield is None else shield.under_way((*self.running.values(), *self._ready))
        for act in self._ready.copy():
            if shield is not None and shield.holds_back(act, first, now_ns):
                continue
            place = place_of(act, seats)
            if place is None:
                continue
            self._leave_queue(act)
            if not self._sample(act, now_ns) or (self._overload is not None and not self._worthwhile(act, now_ns)):
                continue
            act.place = place
            for seat in place.seats:
                seats[seat] = act
            self.running[act.index] = act
            started.append(act)
        if started and self._ready and self._blocking:
            self._note_blockers(started)
        return started

    def tidy(self, now_ns: int) -> None:
        """Drop jobs that no longer fit the queues, and record the queue depths."""
        if self._changed:
            if not self._lossless:
                self._overflow(now_ns)
            self._depths(now_ns)

    def launched(self, act: Activation, outputs: Outputs, now_ns: int, followers: frozenset[str]) -> None:
        """Hand the outputs of a job queued on its device to `followers`, which the device orders after it."""
        if act.void or not followers:
            return
        act.handed = followers
        self._deliver(act.task.name, act.job.frame, self._outcome(act, outputs), now_ns, only=followers)

    def finish(self, act: Activation, start_ns: int, end_ns: int, outputs: Outputs, title: str = "") -> None:
        """Finish a started job and hand its outputs on to its successors; `title` names its slice."""
        self.ended(act, start_ns, end_ns, outputs)
        self.record(act.task, act.job, act.index, title)

    def ended(self, act: Activation, start_ns: int, end_ns: int, outputs: Outputs) -> None:
        """Do the latency-critical part of `finish`; `record` must follow eventually."""
        job, task, overload = act.job, act.task, self._overload
        job.start_ns, job.finish_ns, job.exec_ns = start_ns, end_ns, end_ns - start_ns
        self._vacate(act, end_ns)
        if self._shield is not None:
            self._shield.ended(task.name, job.exec_ns)
        if self.levels is not None and self.levels.over(task.name, job.exec_ns):
            self.overran(act, end_ns)
        late = end_ns > job.deadline_ns
        if late and overload is not None and overload.missed(task, end_ns):
            self.trace.instants.append(Instant(end_ns, "overload", task.name, job.frame, "less critical work shed"))
        if act.void:
            self._abort(act, end_ns, "its plan was replaced while it ran")
        elif late and overload is not None and overload.aborts(task):
            self._abort(act, end_ns, "too late to be useful")
        else:
            job.status = "done"  # set once and last: the journal writes a job as soon as it has a status
            if self._wiring.followers[task.name] or task.name in self._wiring.sampled:
                self._deliver(task.name, job.frame, self._outcome(act, outputs), end_ns, but=act.handed)
            for ticket in act.tickets:
                ticket.let_go()

    def overran(self, act: Activation, now_ns: int) -> None:
        """Begin the high level of criticality, as a job has run for longer than planned: drop less critical ones."""
        if self.levels is None or self.levels.high:
            return
        self.levels.high = True
        note = Instant(now_ns, "overload", act.task.name, act.job.frame, criticality_levels.RAISED)
        self.trace.instants.append(note)
        for waiting in [other for other in self._ready if other.task.name in self.levels.low]:
            self._leave_queue(waiting)
            self.outstanding -= 1
            self._drop(waiting, now_ns, criticality_levels.DROPPED)

    def record(self, task: Task, job: Job, index: int, title: str = "") -> None:
        """Record an ended job, number `index` in the trace."""
        end = job.finish_ns
        self.trace.slices.append(Slice(task.engine, task.lanes, index, title or task.name, job.start_ns, end))
        if (late := end - job.deadline_ns) > 0:
            text = f"{format_duration(late)} late"
            self.trace.instants.append(Instant(end, "miss", task.name, job.frame, text))

    def abandon(self, act: Activation, start_ns: int, end_ns: int, why: str = "") -> None:
        """Give up a started job that failed or hangs: it has no outputs, but its slice stays in the trace.

        With `why` the job is aborted; without, it stays unfinished, for a run that ends here.
        """
        task = act.task
        act.job.start_ns, act.job.exec_ns = start_ns, end_ns - start_ns
        self._vacate(act, end_ns)
        self.trace.slices.append(Slice(task.engine, task.lanes, act.index, task.name, start_ns, end_ns))
        if why:
            self._abort(act, end_ns, why)
        else:
            let_go(act.tickets, ABORTED)

    def retire(self, worker: WorkerKey, tasks: Iterable[str], now_ns: int) -> None:
        """Take a worker out of service: frames that need one of `tasks` are aborted from now on."""
        self._lost |= set(tasks)
        for act in [act for act in self._ready if act.task.name in self._lost]:
            self._leave_queue(act)
            self.outstanding -= 1
            self._abort(act, now_ns, f"{worker[0]} is out of service")

    def close(self, now_ns: int) -> None:
        """Abort all waiting jobs and void the running ones: another plan takes over."""
        for act in list(self._ready):
            self._leave_queue(act)
            self.outstanding -= 1
            self._abort(act, now_ns, "its plan was replaced")
        for act in self.running.values():
            act.void = True
        for _, deliveries in self._joins.values():
            for delivery in deliveries:
                let_go(delivery.tickets, ABORTED)
        self._joins.clear()
        self._depths(now_ns)

    def inherit(self, other: Dispatcher) -> None:
        """Take over the latest outputs of another plan's stages, for the tasks that sample them."""
        sampled = self._wiring.sampled
        self._latest.update((name, latest) for name, latest in other._latest.items() if name in sampled)

    def settle(self) -> None:
        """End the run: frames still held by joins count as dropped for want of a partner, open ones as aborted."""
        for _, deliveries in self._joins.values():
            for delivery in deliveries:
                let_go(delivery.tickets, DROPPED)
        self._joins.clear()

    def waiting(self, task: str) -> int:
        """Return the number of waiting jobs of a task."""
        return self._waiting.get(task, 0)

    # -- implementation

    def _outcome(self, act: Activation, outputs: Outputs) -> Delivery:
        name, wiring = act.task.name, self._wiring
        carry = wiring.carry[name]
        if not carry:
            return Delivery(act.release_ns, act.origin, {}, act.tickets)
        values = {**act.values, name: outputs}
        if name in wiring.replaces:  # a conversion: its successors read the source's tensors in converted form
            source = wiring.replaces[name]
            values[source] = {**values.get(source, {}), **outputs}
        carried = {key: values[key] for key in carry if key in values}
        return Delivery(act.release_ns, act.origin, carried, act.tickets)

    def _deliver(
        self,
        name: str,
        frame: int,
        delivery: Delivery,
        now_ns: int,
        only: frozenset[str] | None = None,
        but: frozenset[str] = NOBODY,
    ) -> None:
        """Hand a frame to the successors of `name`: to all `but` those that already have it, or `only` to some."""
        if only is None and name in self._wiring.sampled and frame >= self._latest.get(name, (-1,))[0]:
            self._latest[name] = (frame, delivery)
        for task in self._wiring.followers.get(name, ()):
            if (only is not None and task.name not in only) or task.name in but:
                continue
            for ticket in delivery.tickets:
                ticket.hold()
            if len(task.after) == 1:
                self._activate(task, frame, [delivery], now_ns)
                continue
            key = (task.name, frame % self._wiring.apart)
            held, arrived = self._joins.setdefault(key, (frame, []))
            if held != frame:  # one input is too far ahead of another
                for lost in arrived:
                    let_go(lost.tickets, DROPPED)
                held, arrived = self._joins[key] = (frame, [])
            arrived.append(delivery)
            if len(arrived) == len(task.after):
                del self._joins[key]
                self._forget_older(task.name, frame - self.discipline.disorder)
                self._activate(task, frame, arrived, now_ns)

    def _forget_older(self, task: str, frame: int) -> None:
        """Drop joins older than `frame`, which will never be complete.

        Producers deliver in frame order, up to the discipline's disorder.
        """
        for key in [key for key, (held, _) in self._joins.items() if key[0] == task and held < frame]:
            for delivery in self._joins.pop(key)[1]:
                let_go(delivery.tickets, DROPPED)

    def _activate(self, task: Task, frame: int, inputs: list[Delivery], now_ns: int) -> None:
        """Create a job from `inputs`; the holds on their tickets pass to the job."""
        name = task.name
        if len(inputs) == 1:
            (given,) = inputs
            release, origin, values, tickets = given.release_ns, given.origin, given.values.copy(), given.tickets
        else:
            release, origin = min(d.release_ns for d in inputs), oldest([d.origin for d in inputs])
            values = {source: out for delivery in inputs for source, out in delivery.values.items()}
            tickets = tuple(ticket for delivery in inputs for ticket in delivery.tickets)
        job = Job(name, frame, now_ns, release + task.deadline_ns)
        act = Activation(task, job, self.ledger.jobs, release, origin, values, tickets)
        act.key = self.discipline.key(act)
        self.ledger.jobs += 1  # not len(trace.jobs): the journal may have removed jobs from the trace
        self.trace.jobs.append(job)
        if name in self._lost:
            self._abort(act, now_ns, f"{task.engine} is out of service")
            return
        if self._overload is not None and self._overload.sheds(task, now_ns):
            self._drop(act, now_ns, "shed: more critical stages miss their deadlines")
            return
        if self.levels is not None and self.levels.high and name in self.levels.low:
            self._drop(act, now_ns, criticality_levels.DROPPED)
            return
        self.outstanding += 1
        if self._blocking and self.running:
            held = (self.seats.get((task.engine, lane)) for lane in task.lanes)
            act.blockers = {other.index for other in held if other is not None and other.key > act.key}
        insort(self._ready, act, key=_key)
        self._waiting[name] += 1
        self._changed.add(name)

    def _leave_queue(self, act: Activation) -> None:
        self._ready.remove(act)
        self._waiting[act.task.name] -= 1
        self._changed.add(act.task.name)

    def _sample(self, act: Activation, now_ns: int) -> bool:
        """Read the latest outputs of `reads`; return False, and drop the job, if the model lacks a needed one."""
        task = act.task
        if task.reads:
            sampled: dict[str, int] = {}
            for name in task.reads:
                if name in self._latest:
                    sampled[name], delivery = self._latest[name]
                    act.values = {**delivery.values, **act.values}
                    act.origin = oldest([act.origin, delivery.origin])
            act.job.sampled = sampled
        if missing := self._wiring.needs[task.name] - act.values.keys():
            self.outstanding -= 1
            self._drop(act, now_ns, f"no data from {', '.join(sorted(missing))} yet")
        return not missing

    def _worthwhile(self, act: Activation, now_ns: int) -> bool:
        """Return whether a job should start under its stage's overload policy; set `cheap`, or drop the job."""
        assert self._overload is not None
        choice = self._overload.choose(act.task, act.job.deadline_ns - now_ns)
        act.cheap = choice == "degrade"
        if choice == "skip":
            self.outstanding -= 1
            self._drop(act, now_ns, "skipped: it would have been late")
        return choice != "skip"

    def _overflow(self, now_ns: int) -> None:
        for name in self._changed:
            if not (waits := self._waiting[name]):
                continue
            room = max(self.tasks[name].queue, 0)
            if waits > room:
                waiting = sorted((a for a in self._ready if a.task.name == name), key=lambda a: a.job.frame)
                keep_newest = self.tasks[name].overflow == "oldest"
                for act in waiting[: waits - room] if keep_newest else waiting[room:]:
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

    def _vacate(self, act: Activation, end_ns: int) -> None:
        """Free a job's seats, and record the blocking time of the jobs it blocked."""
        seats = self.seats
        self.running.pop(act.index, None)
        for seat in act.place.seats if act.place else ():
            if seats.get(seat) is act:
                del seats[seat]
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
        counters, names = self.trace.counters, self._wiring.queue_names
        for name in self._changed:
            depth, counter = self._waiting[name], names[name]
            steps = counters.get(counter)
            if (steps[-1][1] if steps else 0.0) != depth:
                if steps is None:
                    steps = counters[counter] = [(0, 0.0)]
                steps.append((now_ns, float(depth)))
        self._changed.clear()


_key = attrgetter("key")
