"""An exact explorer of small scheduling problems: every reachable state, one step per tick.

It shares no code with the analyses or simulators that it checks.  A state is the countdown of every clock, the pending
jobs of every task and the data in flight; branches are release jitter, execution times from best to worst, positions
of floating non-preemptive regions, and phases.  The longest response over all reachable states is the true worst case
in integer time.  Rules:

- All completions of an instant precede releases, which precede dispatching.  A task serves its frames in order.
- A job runs while it has all its lanes.  Lanes are granted in order of urgency, greedily: a less urgent job fills lanes
  that a waiting gang cannot use yet.  A job inside a non-preemptive region keeps its lanes.
- A job that resumes after a preemption first pays `switch` ticks.  Where preemption restarts (`restart`), the preempted
  job loses its region, and the jobs that take its lanes first wait `reset` ticks.
- DRAM bandwidth is shared max-min fairly; work counts in twelfths of a tick, and a job that ends within a tick holds
  its lanes until the tick is over, as if it had taken that long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

UNIT = 12
"""Work per tick of a job at full speed, and DRAM bandwidth in the unit of `Task.traffic`."""
_JITTER = 1 << 30
"""Bit of `Job.need`: the job arrived but is not released yet."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task; times in ticks.

    `lanes` are bits, or 0 if the task runs on any of the system's `processors`.  A task without `after` arrives at its
    offset and every period; the job is released at most `jitter` later.  The others run for a frame once the tasks in
    `after` have delivered it.  A job takes `best` to `worst` ticks alone.  `rank` is the fixed priority (0 first),
    `deadline` counts from the arrival of the frame, or from its release if the source `moves` it (the earliest of
    several sources).  `regions` lie between preemption points and add up to `worst` (empty: any instant is one);
    regions of up to `floating` ticks may begin anywhere; with `restart`, regions do not lock but start again after a
    preemption.  `traffic`: DRAM
    demand, 6 or 12 twelfths of the bandwidth.
    """

    period: int
    worst: int
    best: int
    rank: int
    deadline: int
    lanes: int = 1
    jitter: int = 0
    moves: bool = False
    regions: tuple[int, ...] = ()
    floating: int = 0
    switch: int = 0
    restart: bool = False
    reset: int = 0
    traffic: int = 0
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class System:
    """Tasks under ``fp``, ``edf`` or ``fifo``; ties by position, reversed if `reverse`.

    `chain` lists stretches of tasks: within one, frames trigger; the first task of each but the first reads, at its
    start, the latest output of the stretch before.
    """

    tasks: tuple[Task, ...]
    rule: str
    processors: int = 1
    reverse: bool = False
    chain: tuple[tuple[int, ...], ...] = ()


class Job(NamedTuple):
    """A pending job: ticks since arrival, awaited predecessors (bits), shift of its deadline, work done, and so on.

    `extra`: ticks of switching left; `lock`: fixed regions: 1 inside one; floating: ticks left, -1 if none is due;
    `was`: 0 not started, 1 ran in the last tick, 2 preempted; `stamp`: age of its source data, -1 for none.
    """

    age: int
    need: int
    late: int
    done: int
    extra: int
    lock: int
    was: int
    stamp: int


class State(NamedTuple):
    """Countdowns to arrivals, pending jobs by task, ages of data in registers (-1: none), age of the last output."""

    clocks: tuple[int, ...]
    queues: tuple[tuple[Job, ...], ...]
    registers: tuple[int, ...]
    last: int


@dataclass(slots=True)
class Truth:
    """The longest responses found, of the chain too; `complete` if every reachable state was visited."""

    responses: list[int]
    reaction: int = 0
    age: int = 0
    states: int = 0
    complete: bool = True


@dataclass(slots=True)
class Explorer:
    """The exploration of one system."""

    system: System
    truth: Truth = field(init=False)
    leads: list[int] = field(init=False)
    edges: list[frozenset[int]] = field(init=False)
    next: list[list[int]] = field(init=False)
    place: dict[int, tuple[int, bool, bool]] = field(init=False)
    offsets: Sequence[int] = ()
    shift: int = 0

    def __post_init__(self) -> None:
        """Derive the tables that every step uses."""
        tasks = self.system.tasks
        self.truth = Truth([0] * len(tasks))
        self.next = [[j for j, other in enumerate(tasks) if i in other.after] for i in range(len(tasks))]
        self.edges = []
        for task in tasks:
            at, edges = 0, set()
            for region in task.regions:
                at += region * UNIT
                edges.add(at)
            self.edges.append(frozenset(edges))
        self.place = {}
        for number, stretch in enumerate(self.system.chain):
            for index in stretch:
                self.place[index] = (number, index == stretch[0], index == stretch[-1])

    def run(self, phases: Sequence[Sequence[int]], limit: int) -> Truth:
        """Explore from each vector of first arrivals (entries of triggered tasks are unused), up to `limit` states."""
        roots = [self._roots(index) for index in range(len(self.system.tasks))]
        found = self.truth
        longest = 30 * max(task.period for task in self.system.tasks)
        seen: set[tuple[State, tuple[int, ...]]] = set()
        for number, offsets in enumerate(phases):
            most = limit * (number + 1) // len(phases)
            self.offsets = offsets
            # A job's age counts from the earliest arrival among its sources.
            self.leads = [min(group, key=lambda root: (offsets[root], root)) for group in roots]
            if self.system.chain:
                head = self.system.chain[0][0]
                self.shift = offsets[head] - offsets[self.leads[self.system.chain[0][-1]]]
            empty = tuple(() for _ in self.system.tasks)
            begin = State(tuple(offsets), empty, (-1,) * max(len(self.system.chain) - 1, 0), -1)
            # The offsets decide how frames of joined sources match: otherwise, phases share what was visited.
            kind = (*self.leads, self.shift, *self._distances())
            stack = [begin]
            while stack:
                state = stack.pop()
                found.states += 1
                for other in self._steps(state):
                    if (other, kind) not in seen:
                        if any(queue and queue[0].age > longest for queue in other.queues):
                            found.complete = False
                            continue
                        seen.add((other, kind))
                        stack.append(other)
                if len(seen) > most:
                    found.complete = False
                    break
        return found

    def _distances(self) -> tuple[int, ...]:
        """Return how much later the lead of a predecessor arrives than that of the task, for every trigger."""
        tasks, at = self.system.tasks, [self.offsets[lead] for lead in self.leads]
        return tuple(at[other] - at[index] for index, task in enumerate(tasks) for other in task.after)

    def _roots(self, index: int) -> set[int]:
        after = self.system.tasks[index].after
        return set().union(*(self._roots(other) for other in after)) if after else {index}

    def _steps(self, state: State) -> Iterator[State]:
        clocks, queues = self._arrivals(state)
        late = [i for i, queue in enumerate(queues) if any(job.need & _JITTER for job in queue)]
        for released in product(*(self._releases(i, queues[i]) for i in late)):
            mine = list(queues)
            for index, queue in zip(late, released, strict=True):
                mine[index] = queue
            for running, locks in self._dispatch(mine):
                yield from self._tick(clocks, mine, running, locks, state)

    def _arrivals(self, state: State) -> tuple[tuple[int, ...], list[tuple[Job, ...]]]:
        tasks, queues = self.system.tasks, list(state.queues)
        clocks = []
        for index, clock in enumerate(state.clocks):
            if tasks[index].after:
                clocks.append(0)
                continue
            if clock == 0:
                clock = tasks[index].period
                for other, lead in enumerate(self.leads):
                    if lead == index:
                        after = tasks[other].after
                        need = sum(1 << i for i in after) if after else _JITTER if tasks[other].jitter else 0
                        lock = -1 if tasks[other].floating else 0
                        queues[other] = (*queues[other], Job(0, need, -1 if after else 0, 0, 0, lock, 0, -1))
            clocks.append(clock - 1)
        return tuple(clocks), queues

    def _releases(self, index: int, queue: tuple[Job, ...]) -> Iterator[tuple[Job, ...]]:
        """Yield the ways in which jobs that have arrived may be released now, in order of arrival."""
        for count in range(sum(1 for job in queue if job.need & _JITTER), -1, -1):
            left, made, fits = count, [], True
            for job in queue:
                if job.need & _JITTER and left:
                    left -= 1
                    job = job._replace(need=0, late=job.age if self.system.tasks[index].moves else 0)
                elif job.need & _JITTER and job.age >= self.system.tasks[index].jitter:
                    fits = False  # it is overdue
                made.append(job)
            if fits:
                yield tuple(made)

    def _urgency(self, index: int, job: Job) -> tuple[int, int]:
        task, tie = self.system.tasks[index], -index if self.system.reverse else index
        if self.system.rule == "fp":
            return task.rank, tie
        if self.system.rule == "fifo":
            return -job.age, tie
        return task.deadline - job.age + job.late, tie

    def _dispatch(self, queues: Sequence[tuple[Job, ...]]) -> Iterator[tuple[list[int], dict[int, int]]]:
        """Yield the tasks that run in this tick and the floating regions just found to be under way (ticks left)."""
        ready = [(self._urgency(i, q[0]), i) for i, q in enumerate(queues) if q and not q[0].need]
        order = [index for _, index in sorted(ready)]
        held = [i for i in order if queues[i][0].was == 1 and queues[i][0].lock > 0]
        running = self._granted(order, held)
        open_ = [i for i in order if queues[i][0].was == 1 and queues[i][0].lock == -1 and i not in running]
        for choice in product(*(range(self.system.tasks[i].floating) for i in open_)):
            locks = {i: left for i, left in zip(open_, choice, strict=True) if left}
            yield (self._granted(order, [*held, *locks]) if locks else running), locks

    def _granted(self, order: Sequence[int], held: Sequence[int]) -> list[int]:
        used, count, result = 0, 0, []
        for index in (*held, *(i for i in order if i not in held)):
            lanes = self.system.tasks[index].lanes
            if not lanes & used if lanes else count < self.system.processors:
                result.append(index)
                used |= lanes
                count += 1
        return result

    def _tick(
        self,
        clocks: tuple[int, ...],
        queues: Sequence[tuple[Job, ...]],
        running: Sequence[int],
        locks: dict[int, int],
        before: State,
    ) -> Iterator[State]:
        """Yield the states after one tick in which `running` run; jobs past their best case may end now or later."""
        tasks = self.system.tasks
        killed = 0
        for index, queue in enumerate(queues):
            if queue and queue[0].was == 1 and tasks[index].restart and index not in running:
                killed |= tasks[index].lanes
        if killed:
            queues = [
                (q[0]._replace(extra=q[0].extra + tasks[i].reset), *q[1:])
                if i in running and q[0].was != 1 and tasks[i].lanes & killed
                else q
                for i, q in enumerate(queues)
            ]
        speeds = self._speeds(queues, running)
        heads: dict[int, Job] = {}
        ends: list[list[tuple[int, bool]]] = []
        for index in running:
            job = queues[index][0]
            if job.was == 0 and (place := self.place.get(index)) and place[0] and place[1]:
                job = job._replace(stamp=before.registers[place[0] - 1])
            job = self._advance(index, job, speeds[index], locks.get(index))
            heads[index] = job
            task = tasks[index]
            if job.done >= task.worst * UNIT:
                ends.append([(index, True)])
            elif job.done >= task.best * UNIT and not job.extra:
                ends.append([(index, True), (index, False)])
        waiting = [self._aged(index, queue, heads.get(index)) for index, queue in enumerate(queues)]
        registers = tuple(age + 1 if age >= 0 else -1 for age in before.registers)
        last = before.last + 1 if before.last >= 0 else -1
        for choice in product(*ends):
            ended = [index for index, end in choice if end]
            yield (
                self._completed(clocks, waiting, ended, registers, last)
                if ended
                else State(clocks, tuple(waiting), registers, last)
            )

    def _aged(self, index: int, queue: tuple[Job, ...], head: Job | None) -> tuple[Job, ...]:
        made = []
        for position, job in enumerate(queue):
            if position == 0 and head is not None:
                job = head
            elif job.was == 1:
                job = job._replace(was=2, extra=self.system.tasks[index].switch, lock=min(job.lock, 0))
                if self.system.tasks[index].floating:
                    job = job._replace(lock=-1)
                if self.system.tasks[index].restart:
                    kept = max((edge for edge in self.edges[index] if edge <= job.done), default=0)
                    job = job._replace(done=kept)
            made.append(job._replace(age=job.age + 1, stamp=job.stamp + 1 if job.stamp >= 0 else -1))
        return tuple(made)

    def _advance(self, index: int, job: Job, speed: int, lock: int | None) -> Job:
        task = self.system.tasks[index]
        if lock is None:
            lock = job.lock
        after = lock - 1 if lock > 0 else -1
        locks = bool(task.regions) and not task.restart
        if job.extra:
            return job._replace(extra=job.extra - 1, was=1, lock=after if task.floating else int(locks))
        edge = min((e for e in self.edges[index] if e > job.done), default=task.worst * UNIT)
        done = min(job.done + speed, edge)
        inside = int(locks and done not in self.edges[index])
        return job._replace(done=done, was=1, lock=after if task.floating else inside)

    def _speeds(self, queues: Sequence[tuple[Job, ...]], running: Sequence[int]) -> dict[int, int]:
        """Return the work per tick of each running job under max-min fair shares of the bandwidth."""
        speeds = dict.fromkeys(running, UNIT)
        users = sorted(
            (self.system.tasks[i].traffic, i)
            for i in running
            if self.system.tasks[i].traffic and not queues[i][0].extra
        )
        left = UNIT * UNIT  # in twelfths of the unit of traffic
        for position, (wanted, index) in enumerate(users):
            share = min(wanted * UNIT, left // (len(users) - position))
            left -= share
            speeds[index] = share // wanted
        return speeds

    def _completed(
        self,
        clocks: tuple[int, ...],
        waiting: Sequence[tuple[Job, ...]],
        ended: Sequence[int],
        registers: tuple[int, ...],
        last: int,
    ) -> State:
        queues, stored = list(waiting), list(registers)
        for index in ended:
            job, *rest = queues[index]
            queues[index] = tuple(rest)
            self.truth.responses[index] = max(self.truth.responses[index], job.age)
            place, stamp = self.place.get(index), job.stamp
            if place:
                if place[0] == 0:
                    stamp = job.age - self.shift
                if place[2] and place[0] + 1 < len(self.system.chain):
                    stored[place[0]] = stamp
                elif place[2] and stamp >= 0:
                    last = self._output(stamp, last)
            for other in self.next[index]:
                queues[other] = self._deliver(queues[other], index, job, stamp if place else -1, other)
        return State(clocks, tuple(queues), tuple(stored), last)

    def _deliver(self, queue: tuple[Job, ...], index: int, job: Job, stamp: int, to: int) -> tuple[Job, ...]:
        made = list(queue)
        late = job.late + self.offsets[self.leads[index]] - self.offsets[self.leads[to]]
        for position, other in enumerate(made):
            if other.need & (1 << index):
                carried = stamp if to in self.place else -1
                made[position] = other._replace(
                    need=other.need & ~(1 << index),
                    late=late if other.late < 0 else min(other.late, late),
                    stamp=carried if carried >= 0 else other.stamp,
                )
                break
        return tuple(made)

    def _output(self, stamp: int, last: int) -> int:
        """Record an output of the chain with data `stamp` ticks old, the one before being `last` old by now."""
        self.truth.age = max(self.truth.age, stamp)
        if last < 0:
            self.truth.reaction = max(self.truth.reaction, stamp)
        elif stamp < last:
            period = self.system.tasks[self.system.chain[0][0]].period
            self.truth.reaction = max(self.truth.reaction, last - period)
        return stamp if last < 0 else min(stamp, last)


def explore(system: System, phases: Sequence[Sequence[int]], limit: int = 4000) -> Truth:
    """Return the longest responses from these phases; `limit` bounds the states visited."""
    return Explorer(system).run(phases, limit)
