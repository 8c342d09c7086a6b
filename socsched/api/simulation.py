"""Simulation of plans and task sets on a clock of integer nanoseconds; equal arguments give byte-identical results."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from socsched.api.loading import load_plan
from socsched.api.results import Columns, Result, Rows, Tables, columns_of, jobs_columns, unknown_rows
from socsched.descriptor.taskset import TaskSet
from socsched.errors import UsageError
from socsched.faults.file import load_faults
from socsched.faults.model import SIMULATION, Faults
from socsched.planning.plan import Plan
from socsched.sim.policies import Key, Policy, name_of
from socsched.sim.simulate import SimulationRun
from socsched.sim.simulate import run as run_kernel
from socsched.trace.metrics import count_abandoned
from socsched.trace.metrics import result as of_trace
from socsched.units import parse_duration

if TYPE_CHECKING:
    from socsched.trace.io import ResultDocument


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
            return jobs_columns(self.simulated.trace, names)
        if rows == "tasks":
            heads = [field.name for field in fields(TaskFigures)]
            listed = [[getattr(task, name) for name in heads] for task in self.tasks]
            return columns_of(["id", "task", *heads[2:]], listed)
        raise unknown_rows(rows, ("jobs", "tasks"))

    def document(self, jobs: int = 0) -> dict[str, Any]:
        """Return the result in the file's unit of time, with the first `jobs` jobs (`sim.tasksets.answer`)."""
        from socsched.sim.tasksets import summarise_taskset

        return summarise_taskset(self.taskset, self.simulated, jobs)


def simulate_set(
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
    from socsched.sim.tasksets import simulate_taskset

    rule = None if policy is None else name_of(policy)
    done = simulate_taskset(taskset, length_ns, rule, execution, seed, record=record, reported=reported)
    return TaskSetSimulation(taskset, done, tuple(_set_figures(taskset, done)))


def _set_figures(taskset: TaskSet, done: SimulationRun) -> list[TaskFigures]:
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


SECOND = 10**9
DEFAULT_NS = 60 * SECOND
"""Default length (ns) of the simulation of a plan."""
TRACED_JOBS = 500_000
"""Jobs up to which a simulation is traced even if the trace is not kept, which makes its percentiles exact."""


@dataclass(frozen=True, slots=True)
class Simulation(Result):
    """Result of a simulated plan; `interrupted`: it covers less time than requested."""

    interrupted: bool = False


@overload
def simulate(subject: str | Path | Plan, duration: str | int | None = ..., **options: Any) -> Simulation: ...
@overload
def simulate(subject: TaskSet, duration: str | int | None = ..., **options: Any) -> TaskSetSimulation: ...
def simulate(
    subject: str | Path | Plan | TaskSet, duration: str | int | None = None, **options: Any
) -> Simulation | TaskSetSimulation:
    """Simulate a plan (or its plan.json), or a task set, for `duration` (text such as "10 s", or ns).

    Options of a plan: `policy` replaces the planned one on every engine: a name, a `Policy`, or a function ``key(job,
    now_ns)``; `seed`; `faults`: a file or `Faults`; `governor` static | ccedf | load; `record` False keeps no trace and
    needs constant memory (None: keeps no trace of a long simulation).  Options of a task set: `api.tasksets`.
    Without a duration a plan is simulated for 60 s, a task set for its horizon or until it repeats.

    Raises UsageError for a plan without tasks, or a policy, governor or duration that cannot be simulated.
    """
    length = duration_ns(duration)
    if isinstance(subject, TaskSet):
        return simulate_set(subject, length, **options)
    return simulate_plan(load_plan(subject), DEFAULT_NS if length is None else length, **options)


def simulate_plan(
    plan: Plan,
    length_ns: int,
    *,
    policy: str | Policy | Key | None = None,
    seed: int = 0,
    faults: str | Path | Faults | None = None,
    governor: str = "static",
    record: bool | None = True,
) -> Simulation:
    """Simulate a plan for `length_ns`; options as in `simulate`."""
    if not plan.tasks:
        raise UsageError("nothing to simulate: a stage has no engine", "see the plan's violations")
    plan_to_run = apply_policy(plan, policy, governor)
    traced = not many_jobs(plan_to_run, length_ns) if record is None else record
    done = run(plan_to_run, length_ns, seed, faults, traced)
    return Simulation(plan_to_run, done.trace, figures(done), done.interrupted)


def apply_policy(plan: Plan, policy: str | Policy | Key | None = None, governor: str = "static") -> Plan:
    """Return the plan to simulate: every engine under `policy`, with a `governor` where clocks are selectable."""
    if policy is not None:
        from socsched.sim.lower import with_policy
        from socsched.sim.policies import name_of

        plan = with_policy(plan, name_of(policy))
    if governor != "static":
        from socsched.planning.workload import apply_governor

        plan = apply_governor(plan, governor)
    return plan


def policy_to_plan_with(name: str) -> str:
    """Return the policy to plan with when `name` is simulated: itself if bounds exist for it, else EDF."""
    return name if name in ("edf", "fp") else "edf"


def run(plan: Plan, length_ns: int, seed: int, faults: str | Path | Faults | None, record: bool) -> SimulationRun:
    """Simulate a plan unchanged, with or without a trace."""
    injected = load_faults(Path(faults), plan, SIMULATION) if isinstance(faults, str | Path) else faults
    assert injected is None or isinstance(injected, Faults)
    return run_kernel(plan, length_ns, seed, None, injected, record=record)


def many_jobs(plan: Plan, length_ns: int) -> bool:
    """Return whether a simulation is too long to record a trace that would not be kept."""
    return sum(length_ns // max(task.period_ns, 1) for task in plan.tasks) > TRACED_JOBS


def figures(done: SimulationRun) -> ResultDocument:
    """Return the figures of a simulation in the form of result.json."""
    if done.trace is None:
        from socsched.sim.results import totals
        from socsched.trace.summary import result

        return result(totals(done), done.lowered.plan)
    found = of_trace(done.trace, done.lowered.plan)
    lost = count_abandoned(done.trace)
    return {**found, "given_up": lost} if lost else found


def duration_ns(duration: str | int | None) -> int | None:
    """Return a duration in ns; ValueError for text that is not a duration."""
    return parse_duration(duration) if isinstance(duration, str) else duration
