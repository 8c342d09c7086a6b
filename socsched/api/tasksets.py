"""Simulation and analysis of published task sets: periodic tasks on identical processors."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from socsched.api import tables
from socsched.api.tables import Columns, Rows, Tables

if TYPE_CHECKING:
    from socsched.descriptor.taskset import TaskSet
    from socsched.sim.engine import SimulationRun
    from socsched.sim.policies import Key, Policy


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """Jobs of one task; response times in ns from the arrival, None if no job was completed.

    `late`: jobs completed after their deadline; `unfinished`: jobs not completed although their deadline passed.
    """

    id: int
    name: str
    released: int
    completed: int
    response_max_ns: int | None
    response_mean_ns: float | None
    late: int
    unfinished: int
    preemptions: int
    migrations: int


@dataclass(frozen=True, slots=True)
class TaskSetSimulation(Tables):
    """Result of a simulated task set, task by task in the order of its file."""

    taskset: TaskSet
    simulated: SimulationRun
    tasks: tuple[TaskFigures, ...]

    @property
    def missed(self) -> int:
        """Return the number of jobs that were late or unfinished at their deadline."""
        return sum(task.late + task.unfinished for task in self.tasks)

    @property
    def met(self) -> bool:
        """Return whether every job was in time."""
        return not self.missed

    @property
    def interrupted(self) -> bool:
        """Return whether the simulation covers less time than requested."""
        return self.simulated.interrupted

    def columns(self, rows: Rows) -> Columns:
        """Return the tasks, or the jobs if they were recorded, as columns; times in ns (NaN: none)."""
        if rows == "jobs":
            names = {str(task.id): task.name for task in self.taskset.tasks}
            return tables.jobs(self.simulated.trace, names)
        if rows == "tasks":
            heads = [field.name for field in fields(TaskFigures)]
            listed = [[getattr(task, name) for name in heads] for task in self.tasks]
            return tables.table(["id", "task", *heads[2:]], listed)
        raise tables.unknown(rows, ("jobs", "tasks"))

    def document(self, jobs: int = 0) -> dict[str, Any]:
        """Return the result in the file's unit of time, with the first `jobs` jobs (`sim.tasksets.answer`)."""
        from socsched.sim.tasksets import summarise_taskset

        return summarise_taskset(self.taskset, self.simulated, jobs)


def simulate(
    taskset: TaskSet,
    length_ns: int | None = None,
    *,
    policy: str | Policy | Key | None = None,
    execution: str = "wcet",
    seed: int = 0,
    record: bool = False,
    reported: bool = False,
) -> TaskSetSimulation:
    """Simulate a task set for `length_ns`, else its horizon, else until it repeats: at most a minute or a million jobs.

    `policy` replaces the set's own; `execution` wcet | bcet | random (between both, by `seed`).  `record` keeps the
    trace, `reported` makes every deadline a requirement of the simulated plan.
    """
    from socsched.sim.policies import name_of
    from socsched.sim.tasksets import simulate_taskset

    rule = None if policy is None else name_of(policy)
    done = simulate_taskset(taskset, length_ns, rule, execution, seed, record=record, reported=reported)
    return TaskSetSimulation(taskset, done, tuple(_figures(taskset, done)))


def _figures(taskset: TaskSet, done: SimulationRun) -> list[TaskFigures]:
    found = done.outcome
    sums, most, counts = (found.ints_of("responses", which) for which in (1, 2, 3))
    columns = {name: found.ints(name) for name in ("released", "late", "overdue", "preempted", "migrated")}
    return [
        TaskFigures(
            task.id,
            task.name,
            int(columns["released"][number]),
            int(counts[number]),
            int(most[number]) if counts[number] else None,
            int(sums[number]) / int(counts[number]) if counts[number] else None,
            *(int(columns[name][number]) for name in ("late", "overdue", "preempted", "migrated")),
        )
        for number, task in enumerate(taskset.tasks)
    ]
