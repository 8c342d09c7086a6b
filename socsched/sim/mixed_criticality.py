"""Simulation of task sets with criticality levels on single processors: overruns, mode switches, dropped work.

The rules are those of AMC (fixed priorities; Baruah, Burns, Davis, RTSS 2011) and EDF-VD (Baruah et al., ECRTS 2012):
a processor starts at level 0; a job that has run for its task's bound of the present level without ending raises the
level; jobs of lower criticality are then aborted, and later ones are dropped or run degraded.  An idle instant returns
the processor to level 0.  Under EDF, deadlines of higher criticality are scaled at level 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any

from socsched.descriptor.taskset import PeriodicTask, TaskSet
from socsched.errors import UsageError
from socsched.schedulability.published.choose import problems
from socsched.schedulability.published.mixed_criticality import scaling
from socsched.schedulability.published.model import Problem

MOST_JOBS = 2_000_000
"""Jobs of a simulation at most."""
Times = Callable[[PeriodicTask, int], int]
"""The execution time (ns) of job number k of a task, at most its WCET."""


@dataclass(slots=True)
class Figures:
    """Jobs of one task: released, completed, aborted by a switch, dropped (not released), late, longest response."""

    released: int = 0
    completed: int = 0
    aborted: int = 0
    dropped: int = 0
    late: int = 0
    response_max: int = 0


@dataclass(slots=True)
class _Job:
    task: int
    arrival: int
    left: int
    ran: int
    due: int
    degraded: bool


@dataclass(slots=True)
class Processor:
    """One processor: its tasks by rank, level, pending jobs and switches (ns, level)."""

    problem: Problem
    times: Times
    figures: list[Figures] = field(init=False)
    switches: list[tuple[int, int]] = field(default_factory=list)
    level: int = 0

    def __post_init__(self) -> None:
        """Start all figures at zero."""
        self.figures = [Figures() for _ in self.problem.tasks]

    def run(self, until: int) -> None:
        """Simulate up to an instant (ns); raises UsageError where EDF has no scaling factor."""
        tasks, jobs = self.problem.tasks, list[_Job]()
        factor = scaling(self.problem) if self.problem.policy.rule == "edf" else Fraction(1)
        if factor is None:
            raise UsageError(
                f"task set {self.problem.taskset.name!r}: EDF-VD finds no virtual deadlines",
                hint="`socsched analyze` lists the utilisations; use fixed priorities (policy FP, RM or DM)",
            )
        arrivals, counts = [task.offset_ns for task in tasks], [0] * len(tasks)
        now = 0
        while now <= until:
            self._release(now, jobs, arrivals, counts)
            following = min(arrivals)
            if not jobs:
                if self.level:
                    self.level = 0
                    self.switches.append((now, 0))
                now = following
                continue
            job = min(jobs, key=lambda job: self._urgency(job, factor))
            task = tasks[job.task]
            budget = task.wcet_at(self.level) if task.level > self.level else task.wcet_ns
            length = min(job.left, following - now, max(budget - job.ran, 0) if task.level > self.level else job.left)
            now += length
            job.left, job.ran = job.left - length, job.ran + length
            if not job.left:
                self._complete(now, job, jobs)
            elif task.level > self.level and job.ran >= budget:
                self._switch(now, jobs)

    def _release(self, now: int, jobs: list[_Job], arrivals: list[int], counts: list[int]) -> None:
        for index, task in enumerate(self.problem.tasks):
            while arrivals[index] <= now:
                arrival, mine = arrivals[index], self.figures[index]
                low = task.level < self.level
                arrivals[index] += task.degraded_ns[1] if low and task.degraded_ns else task.period_ns
                counts[index] += 1
                if low and not task.degraded_ns:
                    mine.dropped += 1
                    continue
                mine.released += 1
                time = self.times(task, counts[index] - 1)
                if low and task.degraded_ns:
                    time = min(time, task.degraded_ns[0])
                jobs.append(_Job(index, arrival, time, 0, arrival + task.deadline_ns, low))

    def _urgency(self, job: _Job, factor: Fraction) -> tuple[Fraction | int, int]:
        if self.problem.policy.rule != "edf":
            return self.problem.ranks[job.task], job.arrival
        task = self.problem.tasks[job.task]
        scaled = task.level > self.level
        return job.arrival + (factor * task.deadline_ns if scaled else task.deadline_ns), job.task

    def _complete(self, now: int, job: _Job, jobs: list[_Job]) -> None:
        jobs.remove(job)
        mine = self.figures[job.task]
        mine.completed += 1
        mine.late += now > job.due
        mine.response_max = max(mine.response_max, now - job.arrival)

    def _switch(self, now: int, jobs: list[_Job]) -> None:
        self.level += 1
        self.switches.append((now, self.level))
        for job in [job for job in jobs if self.problem.tasks[job.task].level < self.level and not job.degraded]:
            jobs.remove(job)
            self.figures[job.task].aborted += 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished simulation: the processors with their figures; `met`: no completed job was late."""

    processors: Sequence[Processor]
    duration_ns: int

    @property
    def met(self) -> bool:
        """Return whether no job was late."""
        return not any(mine.late for processor in self.processors for mine in processor.figures)


def simulate(taskset: TaskSet, duration_ns: int, times: Times | None = None) -> Outcome:
    """Simulate a partitioned or uniprocessor set with levels; by default every job takes its WCET.

    Raises UsageError for what the rules do not cover, or for more than `MOST_JOBS` jobs.
    """
    policy = taskset.policy
    extra = problems(taskset)[0][1].features - {"levels"}
    if policy.scheme == "global" or not policy.preemptive or extra or any(task.region_ns for task in taskset.tasks):
        raise UsageError(
            f"task set {taskset.name!r}: criticality levels are simulated for preemptive tasks bound to processors, "
            "without jitter or other features",
            hint="remove the other features, or the levels",
        )
    if sum(duration_ns // task.period_ns for task in taskset.tasks) > MOST_JOBS:
        raise UsageError(
            f"task set {taskset.name!r}: more than {MOST_JOBS} jobs in {duration_ns} ns",
            hint="set a shorter --duration",
        )
    made = [Processor(problem, times or (lambda task, _: task.wcet_ns)) for _, problem in problems(taskset)]
    for processor in made:
        processor.run(duration_ns)
    return Outcome(made, duration_ns)


def draw_times(execution: str, seed: int) -> Times:
    """Return execution times: ``wcet`` at the task's own level, ``bcet``, or ``random`` from best to worst."""
    random = Random(seed)
    if execution == "random":
        return lambda task, _: random.randint(task.bcet_ns, task.wcet_ns)
    return (lambda task, _: task.bcet_ns) if execution == "bcet" else (lambda task, _: task.wcet_ns)


def document(taskset: TaskSet, done: Outcome) -> dict[str, Any]:
    """Return the figures of every task, and the mode switches of every processor, in the file's unit."""
    unit = taskset.unit_ns

    def scaled(value: int) -> int | float:
        return value // unit if value % unit == 0 else value / unit

    rows = {
        task.name: {
            "id": task.id,
            "name": task.name,
            "level": task.level,
            "jobs_released": mine.released,
            "jobs_completed": mine.completed,
            "jobs_aborted": mine.aborted,
            "jobs_dropped": mine.dropped,
            "deadline_misses": mine.late,
            "response_max": scaled(mine.response_max) if mine.completed else None,
        }
        for processor in done.processors
        for task, mine in zip(processor.problem.tasks, processor.figures, strict=True)
    }
    return {
        "schema_version": "1",
        "kind": "simulated",
        "taskset": taskset.name,
        "policy": "edf-vd" if taskset.policy.rule == "edf" else "amc",
        "duration": scaled(done.duration_ns),
        "unit_ns": unit,
        "tasks": [rows[task.name] for task in taskset.tasks],
        "switches": [[[scaled(at), level] for at, level in processor.switches] for processor in done.processors],
    }
