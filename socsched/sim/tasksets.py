"""Simulation of task sets: a plan of timer tasks on one engine with one slot per processor, and figures per task.

As in SimSo, jobs are still released at the horizon itself, and a late job runs to completion.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import lcm
from typing import Any

from socsched.cost.cost import Segment
from socsched.descriptor.limits import PLAN_NAME_PATTERN
from socsched.descriptor.taskset import PeriodicTask, TaskSet
from socsched.errors import UsageError
from socsched.limits import MOST_CHAINS
from socsched.planning.plan import (
    Bandwidth,
    ChainResult,
    ExecutionTimes,
    Plan,
    PlannedEngine,
    Power,
    SearchReport,
    Task,
)
from socsched.sim.simulate import SimulationRun, run
from socsched.trace.trace import Job

SCHEMA_VERSION = "1"
_EACH = 4096
"""Up to this many execution times from best to worst are tabulated one by one, beyond that as two quantiles."""
_NO_LIMIT = 1 << 40
_MOST_NS, _MOST_JOBS = 60 * 10**9, 1_000_000
"""Longest simulation of a task set without a horizon, if it takes longer to repeat."""


def make_taskset_plan(tasks: TaskSet, execution: str = "wcet", policy: str | None = None) -> Plan:
    """Return the plan for `tasks` as their file specifies, with `policy` instead of its rule if given.

    `execution` wcet | bcet | random (uniform between both).  Raises UsageError for features that only the analyses
    support.
    """
    rule = policy or ("fp" if tasks.policy.rule in ("rm", "dm") else tasks.policy.rule)
    preemption = "full" if tasks.policy.preemptive else "none"
    engine = PlannedEngine("cpu", "cpu", tasks.processors, preemption, 0, rule, 0, 0, 0)
    ranks = tasks.ranks
    planned = tuple(_task(tasks, task, ranks[index], execution) for index, task in enumerate(tasks.tasks))
    name = re.sub(
        r"[^\w.+:#>@-]", "_", f"tasks-{tasks.name}" if tasks.name[:1] in ".+:#>@- " else tasks.name, flags=re.A
    )
    parts = (Power(), Bandwidth(), SearchReport())
    return Plan(name, "any", name, "undecided", rule, (engine,), (), planned, (), (), (), *parts, {})


def _task(tasks: TaskSet, task: PeriodicTask, rank: int, execution: str) -> Task:
    for what, present in (
        ("suspension", task.suspension_ns), ("accelerator requests", task.requests), ("a graph", task.graph),
        ("blocking", task.blocking_ns), ("memory accesses", task.accesses),
        ("non-preemptive regions", task.longest_region_ns), ("criticality levels", task.level or task.degraded_ns),
    ):  # fmt: skip
        if present:
            problem = f"task set {tasks.name!r}: task {task.id} has {what}, which is analysed but not simulated"
            raise UsageError(problem, hint="`socsched analyze` takes it; to simulate it, describe it as a pipeline")
    partitioned = tasks.policy.scheme == "partitioned"
    lanes = (task.cpu or 0,) if partitioned or tasks.processors == 1 else tuple(range(tasks.processors))
    cost = task.bcet_ns if execution == "bcet" else task.wcet_ns
    segments = tuple(Segment(str(task.id), part, 0, 0) for part in task.regions_ns) or (
        Segment(str(task.id), cost, 0, 0),
    )
    return Task(
        name=str(task.id), kind="stage", engine="cpu", lanes=lanes, precision="", after=(), reads=(), timer=True,
        period_ns=task.period_ns, offset_ns=task.offset_ns, queue=_NO_LIMIT, cost_ns=cost, wcet_ns=task.wcet_ns,
        bytes=0, energy_uj=0, segments=segments, priority=rank, deadline_ns=task.deadline_ns, jitter_ns=task.jitter_ns,
        criticality="firm", provenance="assumed", source="", error=0.0, width=1 if len(lanes) > 1 else 0,
        times=_times(task) if execution == "random" else None, release_jitter_ns=task.jitter_ns,
    )  # fmt: skip


def _times(task: PeriodicTask) -> ExecutionTimes | None:
    best, worst = task.bcet_ns, task.wcet_ns
    if best >= worst:
        return None
    if worst - best < _EACH:
        return ExecutionTimes(tuple(range(best, worst + 1)))
    return ExecutionTimes((best, worst + 1), True)


def with_chains(made: Plan) -> Plan:
    """Return the plan of a task set with each task's deadline as a requirement, for trace, report and `why`."""
    if len(made.tasks) > MOST_CHAINS:
        problem = f"a report of {len(made.tasks)} tasks: at most {MOST_CHAINS} are shown"
        raise UsageError(problem, hint="leave -o out, or use --json")
    for task in made.tasks:
        if not re.match(PLAN_NAME_PATTERN, task.name):
            problem = f"task {task.name!r}: the results of a plan name tasks by letters, digits and _ . + : # > @ -"
            raise UsageError(problem, hint="rename it, leave -o out, or use --json")
    chains = tuple(ChainResult(t.name, (t.name,), t.deadline_ns, t.wcet_ns, None, None, ()) for t in made.tasks)
    return replace(made, chains=chains)


def choose_horizon(tasks: TaskSet) -> tuple[int, int]:
    """Return the simulation duration of `tasks` without a horizon, and the time after which they repeat (both ns).

    They repeat after the last offset and their hyperperiod.  If that exceeds a minute or a million jobs, the duration
    is cut to that limit, but not below two jobs of every task.
    """
    hyperperiod = lcm(*(task.period_ns for task in tasks.tasks))
    repeats = max(task.offset_ns for task in tasks.tasks) + hyperperiod
    two_jobs = max(task.offset_ns + 2 * task.period_ns for task in tasks.tasks)
    jobs = sum(hyperperiod // task.period_ns for task in tasks.tasks)
    most = max(min(_MOST_NS, hyperperiod * _MOST_JOBS // jobs), two_jobs)
    return min(repeats, most), repeats


def simulate_taskset(
    tasks: TaskSet,
    duration_ns: int | None = None,
    policy: str | None = None,
    execution: str = "wcet",
    seed: int = 0,
    *,
    record: bool = False,
    reported: bool = False,
) -> SimulationRun:
    """Simulate `tasks` for `duration_ns`, else to their horizon, else until they repeat, and return the simulation.

    `reported`: the simulated plan has every deadline as a requirement (`with_chains`).
    """
    duration = duration_ns if duration_ns is not None else tasks.horizon_ns
    if duration is None:
        duration, _ = choose_horizon(tasks)
    plan = make_taskset_plan(tasks, execution, policy)
    if reported:
        plan = with_chains(plan)
    if tasks.policy.preemptive and any(task.regions_ns for task in tasks.tasks):
        plan = replace(plan, engines=(replace(plan.engines[0], preemption="segment"),))
    return run(plan, duration + 1, seed, record=record)


def summarise_taskset(tasks: TaskSet, simulated: SimulationRun, jobs: int = 0) -> dict[str, Any]:
    """Return a simulation's figures for every task, and its first `jobs` jobs, in the file's own unit.

    Responses count from the arrival; `deadline_misses` are completed jobs that were late (as SimSo counts),
    `unfinished_misses` are jobs whose deadline passed without completion.  A whole number of units is given as an
    integer, anything else as a fraction.
    """
    found = simulated.outcome
    sums, most, done = (found.ints_of("responses", which) for which in (1, 2, 3))
    rows = []
    for index, task in enumerate(tasks.tasks):
        count = int(done[index])
        mean = int(sums[index]) / (count * tasks.unit_ns) if count else None
        rows.append(
            {
                "id": task.id,
                "jobs_released": int(found.ints("released")[index]),
                "jobs_completed": count,
                "response_max": _in_units(int(most[index]), tasks) if count else None,
                "response_mean": mean,
                "deadline_misses": int(found.ints("late")[index]),
                "unfinished_misses": int(found.ints("overdue")[index]),
                "preemptions": int(found.ints("preempted")[index]),
                "migrations": int(found.ints("migrated")[index]),
            }
        )
    answered: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kind": "simulated",
        "taskset": tasks.name,
        "policy": simulated.lowered.plan.policy,
        "duration": _in_units(simulated.duration_ns - 1, tasks),
        "unit_ns": tasks.unit_ns,
        "seed": simulated.seed,
        "tasks": rows,
    }
    if jobs and simulated.trace is not None:
        answered["jobs"] = [_job(tasks, job) for job in simulated.trace.jobs[:jobs]]
    return answered


def _job(tasks: TaskSet, job: Job) -> dict[str, Any]:
    times = {"activation": job.activation_ns, "first_execution": job.start_ns, "end": job.finish_ns}
    return {"task": int(job.task), **{k: _in_units(v, tasks) if v >= 0 else None for k, v in times.items()}}


def _in_units(time_ns: int, tasks: TaskSet) -> int | float:
    return time_ns // tasks.unit_ns if time_ns % tasks.unit_ns == 0 else time_ns / tasks.unit_ns
