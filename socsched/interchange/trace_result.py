"""Results from traces of jobs (BTF, scheduler events): the recording as a plan that reports and `why` read like a run.

Every task that a trace shows becomes a chain of its own, since such traces state no data flow.  Its deadline is the one
that its jobs state, else the longest response recorded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from socsched.cost.cost import Segment
from socsched.errors import UsageError
from socsched.interchange.recorded_plan import RECORDED
from socsched.planning.plan import ChainResult, Plan, PlannedEngine
from socsched.planning.task import ExecutionTimes, Task
from socsched.runtime.profile import quantiles
from socsched.text import one_line
from socsched.trace.trace import Job, Trace

MOST_LANES = 4096


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a trace shows of a task (ns): activations of its frames, place, times of its finished jobs.

    `period_ns`: mean distance of frames, 0 if only one is known; `jitter_ns`: largest lateness after the period's grid.
    `deadline_ns`: least distance from an activation to its deadline, 0 if no job states one.
    """

    name: str
    engine: str
    lanes: tuple[int, ...]
    width: int
    first_ns: int
    period_ns: int
    jitter_ns: int
    deadline_ns: int
    times_ns: tuple[int, ...]
    responses_ns: tuple[int, ...]


def named(trace: Trace) -> tuple[Trace, dict[str, str]]:
    """Return a trace whose tasks and engines have names that plans accept, and the new name of each task."""
    tasks = _accepted(job.task for job in trace.jobs)
    engines = _accepted(piece.engine for piece in trace.slices)
    if all(old == new for names in (tasks, engines) for old, new in names.items()):
        return trace, tasks
    jobs = [replace(job, task=tasks[job.task]) for job in trace.jobs]
    slices = [
        replace(piece, engine=engines[piece.engine], name=tasks.get(piece.name, piece.name)) for piece in trace.slices
    ]
    releases = {tasks.get(name, name): times for name, times in trace.releases.items()}
    found = Trace(trace.kind, trace.duration_ns, trace.seed, jobs, slices, trace.instants, releases, trace.counters)
    return found, tasks


def _accepted(names: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in dict.fromkeys(names):
        new = re.sub(r"^[^A-Za-z0-9_]+", "", re.sub(r"[^A-Za-z0-9_.+:#>@-]+", "-", name))[:200] or "task"
        base, number = new, 1
        while new in taken:
            number += 1
            new = f"{base}-{number}"
        taken.add(new)
        found[name] = new
    return found


def tasks_of(trace: Trace) -> tuple[Recorded, ...]:
    """Return the tasks of a trace that finished a job, in the order of their names."""
    jobs: dict[str, list[Job]] = {}
    for job in trace.jobs:
        jobs.setdefault(job.task, []).append(job)
    places: dict[str, dict[str, set[int]]] = {}
    widths: dict[str, int] = {}
    for piece in trace.slices:
        task = trace.jobs[piece.job].task
        places.setdefault(task, {}).setdefault(piece.engine, set()).update(piece.lanes)
        widths[task] = max(widths.get(task, 1), len(piece.lanes))
    found = []
    for name, mine in sorted(jobs.items()):
        done = [job for job in mine if job.status == "done" and job.finish_ns >= 0]
        if not done or name not in places:
            continue
        engine, lanes = next(iter(places[name].items()))
        first, last = min(mine, key=lambda job: job.frame), max(mine, key=lambda job: job.frame)
        frames = last.frame - first.frame
        period = round((last.activation_ns - first.activation_ns) / frames) if frames else 0
        late = [job.activation_ns - first.activation_ns - (job.frame - first.frame) * period for job in mine]
        due = [job.deadline_ns - job.activation_ns for job in mine if job.deadline_ns > job.activation_ns]
        times = tuple(sorted(max(1, job.exec_ns) for job in done))
        responses = tuple(sorted(max(1, job.finish_ns - job.activation_ns) for job in done))
        spread = max(late) - min(late) if period else 0
        place = (engine, tuple(sorted(lanes)), widths[name])
        when = (first.activation_ns, max(0, period), spread, min(due, default=0))
        found.append(Recorded(name, *place, *when, times, responses))
    return tuple(found)


def plan_of(
    trace: Trace,
    source: str,
    tool: str,
    platform: str = "recorded",
    mode: str = "recorded",
    only: Collection[str] = (),
    origins: Mapping[str, str] | None = None,
    remarks: Sequence[str] = (),
) -> Plan:
    """Return a plan that describes a trace, or `only` some of its tasks; UsageError if no task finished a job.

    `origins`: task -> its name in the source; `remarks`: what the source lacks, such as lost events.
    """
    tasks = [task for task in tasks_of(trace) if not only or task.name in only]
    if not tasks:
        raise UsageError(f"{source}: no task finished a job, so there is no result", "record a longer time")
    lanes: dict[str, int] = {}
    for piece in trace.slices:
        lanes[piece.engine] = max(lanes.get(piece.engine, 1), *(lane + 1 for lane in piece.lanes))
    if max(lanes.values()) > MOST_LANES:
        raise UsageError(f"{source}: expected at most {MOST_LANES} lanes of an engine", "check the trace")
    engines = tuple(PlannedEngine(name, "cpu", n, "full", 0, "fifo", 0, 0, 0) for name, n in sorted(lanes.items()))
    chains = tuple(
        ChainResult(t.name, (t.name,), _due(t), t.responses_ns[len(t.responses_ns) // 2], None, None, ()) for t in tasks
    )
    return Plan(
        platform=platform,
        mode=mode,
        pipeline="recorded",
        engines=engines,
        sensors=(),
        tasks=tuple(_task(t, "; ".join([f"{tool}, {source}", *_origin(t, origins), *remarks])) for t in tasks),
        chains=chains,
        tool={"recorded": tool},
        **RECORDED,
    )


def with_deadlines(trace: Trace, plan: Plan) -> Trace:
    """Return a trace whose jobs have deadlines: their own, else their task's; tasks without a plan are left out."""
    known: Mapping[str, int] = {task.name: task.deadline_ns for task in plan.tasks}
    kept = {number: job for number, job in enumerate(trace.jobs) if job.task in known}
    places = {number: place for place, number in enumerate(kept)}
    jobs = [
        job if job.deadline_ns > job.activation_ns else replace(job, deadline_ns=job.activation_ns + known[job.task])
        for job in kept.values()
    ]
    slices = [replace(piece, job=places[piece.job]) for piece in trace.slices if piece.job in places]
    releases: dict[str, list[int]] = {}
    for job in sorted(jobs, key=lambda job: (job.task, job.frame)):
        times = releases.setdefault(job.task, [])
        while len(times) < job.frame < len(times) + 10**5:  # frames that the trace does not show
            times.append(job.activation_ns)
        times.append(job.activation_ns)
    return Trace("measured", trace.duration_ns, trace.seed, jobs, slices, [], releases, {})


def _origin(task: Recorded, origins: Mapping[str, str] | None) -> list[str]:
    name = (origins or {}).get(task.name, task.name)
    return [] if name == task.name else [one_line(name)[:200]]


def _due(task: Recorded) -> int:
    return task.deadline_ns or task.responses_ns[-1]


def _task(task: Recorded, source: str) -> Task:
    median = task.times_ns[len(task.times_ns) // 2]
    return Task(
        name=task.name,
        kind="stage",
        after=(),
        reads=(),
        timer=True,
        period_ns=task.period_ns or 10**9,
        offset_ns=task.first_ns,
        queue=1,
        jitter_ns=task.jitter_ns,
        engine=task.engine,
        lanes=task.lanes,
        width=task.width,
        precision="fp32",
        cost_ns=median,
        wcet_ns=task.times_ns[-1],
        bytes=0,
        energy_uj=0,
        segments=(Segment(task.name, median, 0, 0),),
        provenance="measured",
        source=source,
        error=0.0,
        times=ExecutionTimes(quantiles(task.times_ns)),
        priority=0,
        deadline_ns=_due(task),
        criticality="firm",
        why="as recorded",
    )
