"""A second, slow simulator for checking bounds: one step per ns, no optimisation, every kind of task set.

It shares no code with the simulator of the product.  Task sets have to be small: times of some tens of ns.

Levels of criticality on one processor are those of AMC (Baruah, Burns, Davis, RTSS 2011) and EDF-VD (Baruah et al.,
ECRTS 2012): a job that has run for its bound of the present level without ending raises the level; jobs of lower
criticality are then aborted, later ones dropped or run degraded, until an idle instant returns to the lowest level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

from socsched.descriptor.taskset import Node, PeriodicTask, TaskSet


@dataclass(slots=True)
class Piece:
    """Something a processor can execute: a sequential job, or a node of a parallel one."""

    job: Job
    left: int
    needs: int = 0
    type: str = ""
    done: int = 0
    locked_from: int = 0
    locked_to: int = 0


@dataclass(slots=True)
class Job:
    """One job; `marks` are executed times at which it suspends or asks the accelerator."""

    task: int
    arrival: int
    release: int
    key: tuple[float, ...]
    pieces: list[Piece] = field(default_factory=list)
    marks: list[tuple[int, str, int, int]] = field(default_factory=list)
    accesses: frozenset[int] = frozenset()
    degraded: bool = False
    state: str = "ready"
    wake: int = 0
    start: int = -1


@dataclass(slots=True)
class Seen:
    """What was observed: longest response from arrival by task (completed jobs), and (start, end) of every job."""

    responses: dict[str, int]
    jobs: dict[str, list[tuple[int, int]]]


class Simulation:
    """One run of a task set from given offsets."""

    def __init__(self, taskset: TaskSet, offsets: Sequence[int], seed: int, worst: bool) -> None:
        self.taskset, self.draw, self.worst = taskset, Random(seed), worst
        self.offsets, self.ranks = offsets, taskset.ranks
        self.queues: list[list[Job]] = [[] for _ in taskset.tasks]
        self.released = [0] * len(taskset.tasks)
        self.arrivals = list(offsets)
        self.level, self.scale = 0, _virtual_deadlines(taskset)
        self.latest = [-(10**9)] * len(taskset.tasks)
        self.pending: list[Job] = []
        self.running: dict[int, list[Piece]] = {}
        self.requests: list[tuple[tuple[float, ...], Job, list[int]]] = []
        self.serving: tuple[Job, list[int]] | None = None
        self.spent: dict[int, int] = {}
        self.seen = Seen({}, {task.name: [] for task in taskset.tasks})

    def run(self, until: int) -> Seen:
        """Return the observations up to an instant."""
        for now in range(until):
            if self.taskset.memguard is not None and now % self.taskset.memguard.period_ns == 0:
                self.spent.clear()
            self._release(now)
            self._wake(now)
            self.level = self.level if any(self.queues) else 0
            self._serve()
            self._execute(now)
        return self.seen

    def _release(self, now: int) -> None:
        for index, task in enumerate(self.taskset.tasks):
            arrival = self.arrivals[index]
            if now >= arrival:
                low = task.level < self.level
                self.arrivals[index] += task.degraded_ns[1] if low and task.degraded_ns else task.period_ns
                if low and not task.degraded_ns:
                    continue
                self.released[index] += 1
                late = self.draw.randint(0, task.jitter_ns) if not self.worst else 0
                if self.worst and self.released[index] == 1:
                    late = task.jitter_ns  # the first as late as possible, the next at once
                release = max(arrival + late, self.latest[index] + task.distance_ns)
                self.latest[index] = release
                self.pending.append(self._job(index, task, arrival, release))
        for job in [job for job in self.pending if job.release <= now]:
            self.pending.remove(job)
            self.queues[job.task].append(job)

    def _job(self, index: int, task: PeriodicTask, arrival: int, release: int) -> Job:
        rule = self.taskset.policy.rule
        due = arrival + task.deadline_ns * (self.scale if task.level > self.level else 1)
        first = {"edf": due, "fifo": release}.get(rule, self.ranks[index])
        job = Job(index, arrival, release, (first, self.draw.random() if rule in ("edf", "fifo") else 0))
        cost = task.wcet_ns if self.worst or self.draw.random() < 0.5 else self.draw.randint(task.bcet_ns, task.wcet_ns)
        if task.level and not self.worst and self.draw.random() < 0.6:
            cost = task.wcet_at(0)
        if task.level < self.level and task.degraded_ns:
            cost, job.degraded = min(cost, task.degraded_ns[0]), True
        if task.graph is not None:
            before = [sum(b == i for _, b in task.graph.edges) for i in range(len(task.graph.nodes))]
            job.pieces = [
                Piece(job, self._part(node), count, node.type)
                for node, count in zip(task.graph.nodes, before, strict=True)
            ]
            return job
        piece = Piece(job, cost)
        if task.longest_region_ns:
            piece.locked_from = self.draw.randint(0, max(cost - task.longest_region_ns, 0))
            piece.locked_to = piece.locked_from + task.longest_region_ns
        job.pieces = [piece]
        if task.suspension_ns:
            self._suspensions(job, task, cost)
        # Between two requests there is some computation, at which the job can be preempted.
        places = self.draw.sample(range(1, cost + 1), min(len(task.requests), cost))
        for place, request in zip(places, task.requests, strict=False):
            job.marks.append((place, "request", request.handling_ns, request.time_ns))
        job.marks.sort(key=lambda mark: mark[0])
        if task.accesses:
            count = min(task.accesses, cost)
            spread = range(count) if self.worst else self.draw.sample(range(cost), count)
            job.accesses = frozenset(spread)
        return job

    def _part(self, node: Node) -> int:
        return node.wcet_ns if self.worst or self.draw.random() < 0.7 else self.draw.randint(1, node.wcet_ns)

    def _suspensions(self, job: Job, task: PeriodicTask, cost: int) -> None:
        left = task.suspension_ns if self.draw.random() < 0.7 else self.draw.randint(0, task.suspension_ns)
        while left:
            part = self.draw.randint(1, left)
            job.marks.append((self.draw.randint(0, cost - 1), "suspend", part, 0))
            left -= part

    def _wake(self, now: int) -> None:
        for queue in self.queues:
            if queue and queue[0].state == "asleep" and queue[0].wake <= now:
                queue[0].state = "ready"
            while queue and queue[0].state == "ready" and self._mark(queue[0], now):
                pass
            if queue and queue[0].state == "ready" and all(piece.left == 0 for piece in queue[0].pieces):
                self._finish(queue, now)

    def _finish(self, queue: list[Job], now: int) -> None:
        job = queue.pop(0)
        task = self.taskset.tasks[job.task]
        if not task.degraded_ns:  # the bound of one that may be degraded holds until an overrun only
            self.seen.responses[task.name] = max(self.seen.responses.get(task.name, 0), now - job.arrival)
        self.seen.jobs[task.name].append((job.start, now))
        if queue:
            self._wake(now)

    def _mark(self, job: Job, now: int) -> bool:
        """Begin the action due at this point of the job's execution; return whether there was one."""
        if not job.marks or job.marks[0][0] > job.pieces[0].done or job.start < 0:
            return False
        _, kind, first, second = job.marks.pop(0)
        if kind == "suspend":
            job.state, job.wake = "asleep", now + first
        else:
            busy = self.taskset.accelerator is not None and self.taskset.accelerator.wait == "busy"
            # First come, first served while spinning; by priority through the server.
            key = (float(now), self.draw.random()) if busy else job.key
            job.state = "spins" if busy else "asks"
            self.requests.append((key, job, [0, first + second] if busy else [first, second]))
        return True

    def _serve(self) -> None:
        if self.serving is None and self.requests:
            best = min(self.requests, key=lambda entry: entry[0])
            self.requests.remove(best)
            self.serving = (best[1], best[2])

    def _execute(self, now: int) -> None:
        taskset = self.taskset
        served_by = -1
        if self.serving is not None:
            left = self.serving[1]
            if left[0]:
                left[0] -= 1
                served_by = taskset.accelerator.cpu if taskset.accelerator else -1
            elif left[1]:
                left[1] -= 1
        groups: dict[int, list[Piece]] = {}
        for index, queue in enumerate(self.queues):
            if queue and queue[0].state in ("ready", "spins"):
                cpu = -1 if taskset.policy.scheme == "global" else taskset.tasks[index].cpu or 0
                groups.setdefault(cpu, []).extend(p for p in queue[0].pieces if p.left or queue[0].state == "spins")
        for cpu, pieces in groups.items():
            if cpu != served_by or cpu < 0:
                self._group(cpu, pieces, now)
        if self.serving is not None and not any(self.serving[1]):
            self.serving[0].state = "ready"
            self.serving = None

    def _group(self, cpu: int, pieces: list[Piece], now: int) -> None:
        ready = [piece for piece in pieces if not piece.needs]
        before = self.running.get(cpu, [])
        locked = [p for p in ready if any(p is q for q in before) and self._locked(p)]
        ready.sort(key=lambda p: p.job.key)
        order = [*locked, *(p for p in ready if not any(p is q for q in locked))]
        if self.taskset.types:
            chosen = []
            for kind, count in self.taskset.types:
                chosen += [p for p in order if p.type == kind][:count]
        else:
            chosen = order[: self.taskset.processors if cpu < 0 else 1]
        self.running[cpu] = chosen
        for piece in chosen:
            if not self._throttled(cpu, piece):
                self._step(piece, now)

    def _locked(self, piece: Piece) -> bool:
        task = self.taskset.tasks[piece.job.task]
        if piece.job.state == "spins":
            return True
        if not self.taskset.policy.preemptive:
            return piece.done > 0
        if task.regions_ns:
            edges, at = set(), 0
            for region in task.regions_ns:
                at += region
                edges.add(at)
            return piece.done > 0 and piece.done not in edges
        return piece.locked_from < piece.done < piece.locked_to

    def _throttled(self, cpu: int, piece: Piece) -> bool:
        guard = self.taskset.memguard
        if guard is None:
            return False
        if self.spent.get(cpu, 0) >= guard.budgets[cpu]:
            return True
        if piece.done in piece.job.accesses:
            self.spent[cpu] = self.spent.get(cpu, 0) + 1
        return False

    def _step(self, piece: Piece, now: int) -> None:
        job = piece.job
        if job.state == "spins":
            return
        if job.start < 0:
            job.start = now
            # A mark at the very beginning is come upon once the job is on the processor.
            if job.marks and job.marks[0][0] == 0:
                job.marks[0] = (1, *job.marks[0][1:])
        piece.left -= 1
        piece.done += 1
        task = self.taskset.tasks[job.task]
        if piece.left and task.level > self.level and piece.done >= task.wcet_at(self.level):
            self._raise_level()
        if piece.left == 0 and len(job.pieces) > 1:
            graph = self.taskset.tasks[job.task].graph
            assert graph is not None
            here = next(i for i, other in enumerate(job.pieces) if other is piece)
            for a, b in graph.edges:
                if a == here:
                    job.pieces[b].needs -= 1

    def _raise_level(self) -> None:
        self.level += 1
        for task, queue in zip(self.taskset.tasks, self.queues, strict=True):
            queue[:] = [job for job in queue if task.level >= self.level or job.degraded]
            for job in queue if self.taskset.policy.rule == "edf" else ():
                job.key = (job.arrival + task.deadline_ns, *job.key[1:])


def _virtual_deadlines(taskset: TaskSet) -> Fraction:
    """Return the factor on deadlines of high criticality before an overrun; 1 where plain EDF suffices."""
    high = [task for task in taskset.tasks if task.level]
    low = sum((Fraction(t.wcet_ns, t.period_ns) for t in taskset.tasks if not t.level), Fraction())
    if low + sum(Fraction(t.wcet_ns, t.period_ns) for t in high) <= 1 or low >= 1:
        return Fraction(1)
    return sum((Fraction(t.wcet_at(0), t.period_ns) for t in high), Fraction()) / (1 - low)


def simulate(taskset: TaskSet, offsets: Sequence[int], until: int, seed: int, worst: bool) -> Seen:
    """Return the observations of one run: `worst` takes every job at its WCET and jitter only at the first release."""
    return Simulation(taskset, offsets, seed, worst).run(until)


def phasings(taskset: TaskSet, count: int, draw: Random) -> list[list[int]]:
    """Return offsets to try: together, each task just before the others, then at random."""
    size = len(taskset.tasks)
    latest = max(task.jitter_ns for task in taskset.tasks)
    # With jitter the first releases coincide when arrivals are early by it.
    together = [latest - task.jitter_ns for task in taskset.tasks]
    found = [together]
    for index in range(size):
        found.append([offset + (0 if other == index else 1) for other, offset in enumerate(together)])
    while len(found) < count:
        found.append([draw.randrange(task.period_ns) for task in taskset.tasks])
    return found


def observed(seen: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Return the larger response of each task."""
    return {name: max(seen.get(name, 0), other.get(name, 0)) for name in {*seen, *other}}
