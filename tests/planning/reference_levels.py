"""Task sets with criticality levels on single processors, simulated: overruns, mode switches, dropped work.

The rules are those of AMC (fixed priorities; Baruah, Burns, Davis, RTSS 2011) and EDF-VD (Baruah et al., ECRTS 2012):
a processor starts at level 0; a job that has run for its task's bound of the present level without ending raises the
level; jobs of lower criticality are then aborted, and later ones are dropped or run degraded.  An idle instant returns
the processor to level 0.  Under EDF, deadlines of higher criticality are scaled at level 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from socsched.descriptor.taskset import PeriodicTask, TaskSet
from socsched.schedulability.published.choose import problems
from socsched.schedulability.published.mixed_criticality import scaling
from socsched.schedulability.published.model import Problem

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
        """Simulate up to an instant (ns)."""
        tasks, jobs = self.problem.tasks, list[_Job]()
        factor = scaling(self.problem) if self.problem.policy.rule == "edf" else Fraction(1)
        assert factor is not None, "EDF-VD finds no virtual deadlines"
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


def simulate(taskset: TaskSet, duration_ns: int, times: Times | None = None) -> list[Processor]:
    """Simulate a partitioned or uniprocessor set with levels; by default every job takes its WCET."""
    made = [Processor(problem, times or (lambda task, _: task.wcet_ns)) for _, problem in problems(taskset)]
    for processor in made:
        processor.run(duration_ns)
    return made
