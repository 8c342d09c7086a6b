"""Results from recordings: their jobs as a plan and a trace that reports, `why` and `compare` read like a run.

Nothing was searched for, planned or proved.  Every task that a trace of jobs (BTF, scheduler events) shows becomes a
chain of its own, since such traces state no data flow.  Its deadline is the one that its jobs state, else the longest
response recorded.

Of profiles with times of day, every stage has a lane of its engine to itself, since streams and sessions may overlap.
A job is ready when its range was opened, or its predecessor ended.  The longest response recorded serves as the
deadline.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from socsched.cost.cost import Segment
from socsched.cost.profile import MeasuredCost
from socsched.descriptor.platform import Platform
from socsched.errors import UsageError
from socsched.interchange.costs import Imported
from socsched.interchange.profile_model import Section
from socsched.planning.plan import IMPORTED, Bandwidth, ChainResult, Plan, PlannedEngine, Power, SearchReport
from socsched.planning.task import ExecutionTimes, Task
from socsched.runtime.profile import quantiles
from socsched.text import one_line
from socsched.trace.trace import Job, Slice, Trace


def recorded_plan(
    platform: str,
    mode: str,
    engines: Iterable[tuple[str, str, int, str]],
    tasks: Iterable[Task],
    chains: Iterable[tuple[str, tuple[str, ...], int, int]],
    **stated: Any,
) -> Plan:
    """Return a plan that describes a recording; nothing was searched for, planned or proved.

    `engines`: name, kind, lanes and preemption; `chains`: name, path, longest and median response (ns).
    """
    return Plan(
        **{
            "platform": platform,
            "mode": mode,
            "pipeline": "recorded",
            "engines": tuple(PlannedEngine(*engine, 0, "fifo", 0, 0, 0) for engine in engines),
            "sensors": (),
            "tasks": tuple(tasks),
            "chains": tuple(ChainResult(*chain, None, None, ()) for chain in chains),
            "verdict": "undecided",
            "policy": "fifo",
            "transitions": (),
            "violations": (),
            "power": Power(),
            "bandwidth": Bandwidth(),
            "solver": SearchReport(name=IMPORTED, status="recorded elsewhere: nothing was planned or proved"),
            "inputs": {},
            **stated,
        }
    )


def recorded_task(name: str, times_ns: Sequence[int], **stated: Any) -> Task:
    """Return a task of a recording: the execution times of its jobs (ascending), and what else is known of it."""
    median = times_ns[len(times_ns) // 2]
    known: dict[str, Any] = {
        "name": name,
        "kind": "stage",
        "after": (),
        "reads": (),
        "queue": 1,
        "jitter_ns": 0,
        "precision": "fp32",
        "cost_ns": median,
        "wcet_ns": times_ns[-1],
        "bytes": 0,
        "energy_uj": 0,
        "segments": (Segment(name, median, 0, 0),),
        "provenance": "measured",
        "times": ExecutionTimes(quantiles(times_ns)),
        "priority": 0,
        "criticality": "firm",
        "why": "as recorded",
    }
    return Task(**known | stated)


MOST_LANES = 4096


@dataclass(frozen=True, slots=True)
class RecordedTask:
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


def _accepted(names: Iterable[str]) -> dict[str, str]:
    """Return the names that plans accept, by those of a trace."""
    accepted, taken = dict[str, str](), set[str]()
    for name in dict.fromkeys(names):
        base = re.sub(r"^[^A-Za-z0-9_]+", "", re.sub(r"[^A-Za-z0-9_.+:#>@-]+", "-", name))[:200] or "task"
        numbered = (base if number == 1 else f"{base}-{number}" for number in count(1))
        accepted[name] = next(new for new in numbered if new not in taken)
        taken.add(accepted[name])
    return accepted


def _named(trace: Trace) -> tuple[Trace, dict[str, str]]:
    """Return a trace whose tasks and engines have names that plans accept, and the new name of each task."""
    tasks = _accepted(job.task for job in trace.jobs)
    engines = _accepted(piece.engine for piece in trace.slices)
    jobs = [replace(job, task=tasks[job.task]) for job in trace.jobs]
    slices = [
        replace(piece, engine=engines[piece.engine], name=tasks.get(piece.name, piece.name)) for piece in trace.slices
    ]
    return Trace("measured", trace.duration_ns, trace.seed, jobs, slices, [], {}), tasks


def tasks_of(trace: Trace) -> tuple[RecordedTask, ...]:
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
    recorded = []
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
        recorded.append(RecordedTask(name, *place, *when, times, responses))
    return tuple(recorded)


def recorded_jobs(
    trace: Trace,
    source: str,
    tool: str,
    remarks: Sequence[str],
    place: tuple[str, str] = ("recorded", "recorded"),
    only: Collection[str] | None = None,
) -> tuple[Plan, Trace]:
    """Return a plan and a trace of the jobs of a trace, of `only` some of its tasks; UsageError if none was finished.

    `place`: platform and mode; `remarks`: what the source lacks, such as lost events.
    """
    trace, names = _named(trace)
    origins = {new: [one_line(old)[:200]] for old, new in names.items() if new != old}
    kept = {names[name] for name in (names if only is None else only)}
    tasks = {task.name: task for task in tasks_of(trace) if task.name in kept}
    if not tasks:
        raise UsageError(f"{source}: no task finished a job, so there is no result", "record a longer time")
    lanes: dict[str, int] = {}
    for piece in trace.slices:
        lanes[piece.engine] = max(lanes.get(piece.engine, 1), *(lane + 1 for lane in piece.lanes))
    if max(lanes.values()) > MOST_LANES:
        raise UsageError(f"{source}: expected at most {MOST_LANES} lanes of an engine", "check the trace")
    due = {name: task.deadline_ns or task.responses_ns[-1] for name, task in tasks.items()}
    plan = recorded_plan(
        *place,
        ((name, "cpu", width, "full") for name, width in sorted(lanes.items())),
        (
            recorded_task(
                name,
                task.times_ns,
                timer=True,
                period_ns=task.period_ns or 10**9,
                offset_ns=task.first_ns,
                jitter_ns=task.jitter_ns,
                engine=task.engine,
                lanes=task.lanes,
                width=task.width,
                source="; ".join([f"{tool}, {source}", *origins.get(name, ()), *remarks]),
                error=0.0,
                deadline_ns=due[name],
            )
            for name, task in tasks.items()
        ),
        ((n, (n,), due[n], task.responses_ns[len(task.responses_ns) // 2]) for n, task in tasks.items()),
        tool={"recorded": tool},
    )
    return plan, _with_deadlines(trace, due)


def _with_deadlines(trace: Trace, due: Mapping[str, int]) -> Trace:
    """Return the jobs of tasks that have a deadline, with their own or else their task's."""
    kept = {number: job for number, job in enumerate(trace.jobs) if job.task in due}
    places = {number: place for place, number in enumerate(kept)}
    jobs = [
        job if job.deadline_ns > job.activation_ns else replace(job, deadline_ns=job.activation_ns + due[job.task])
        for job in kept.values()
    ]
    slices = [replace(piece, job=places[piece.job]) for piece in trace.slices if piece.job in places]
    releases: dict[str, list[int]] = {}
    for job in sorted(jobs, key=lambda job: (job.task, job.frame)):
        times = releases.setdefault(job.task, [])
        while len(times) < job.frame < len(times) + 10**5:  # frames that the trace does not show
            times.append(job.activation_ns)
        times.append(job.activation_ns)
    return Trace("measured", trace.duration_ns, trace.seed, jobs, slices, [], releases)


@dataclass(frozen=True, slots=True)
class _Row:
    """A stage of a recording: its cost, section and lane, and the stages of its job in order."""

    cost: MeasuredCost
    section: Section
    lane: int
    group: tuple[str, ...]
    period_ns: int
    longest_ns: int
    median_ns: int


def recorded(imported: Imported, platform: Platform) -> tuple[Plan, Trace]:
    """Return the plan and the trace of a recording; UsageError unless exactly one profile states when jobs ran."""
    timed = [one for one in imported.recordings if one.sections and all(section.spans_ns for section in one.sections)]
    if len(timed) != 1:
        raise UsageError(
            f"a result needs one profile that states when jobs ran, got {len(timed)}",
            "give one of Nsight Systems, ONNX Runtime or PyTorch; trtexec's profiles hold means only",
        )
    costs = {(cost.stage): cost for cost in imported.profile.costs}
    names = [name for name in imported.layers if name in costs]
    first = sum(len(one.sections) for one in imported.recordings[: imported.recordings.index(timed[0])])
    sections = timed[0].sections
    rows = _rows([costs[name] for name in names[first : first + len(sections)]], sections)
    zero = min(ready for row in rows for ready, _, _ in row.section.spans_ns)
    return _profile_plan(rows, platform, imported, zero), _profile_trace(rows, zero)


def _rows(costs: Sequence[MeasuredCost], sections: Sequence[Section]) -> list[_Row]:
    rows, lanes = list[_Row](), dict[str, int]()
    for cost, section in zip(costs, sections, strict=True):
        together = [(c, s) for c, s in zip(costs, sections, strict=True) if s.number and section.number]
        group = tuple(c.stage for c, _ in together) or (cost.stage,)
        begun = together[0][1] if together else section
        ended = together[-1][1] if together else section
        responses = sorted(e[2] - b[0] for b, e in zip(begun.spans_ns, ended.spans_ns, strict=True))
        starts = [ready for ready, _, _ in begun.spans_ns]
        period = max(1, (starts[-1] - starts[0]) // max(1, len(starts) - 1)) if len(starts) > 1 else 10**9
        lane = lanes[cost.engine] = lanes.get(cost.engine, -1) + 1
        rows.append(_Row(cost, section, lane, group, period, max(1, responses[-1]), responses[len(responses) // 2]))
    return rows


def _profile_trace(rows: Sequence[_Row], zero: int) -> Trace:
    jobs, slices, releases = list[Job](), list[Slice](), dict[str, list[int]]()
    begun = {row.cost.stage: row.section.spans_ns for row in rows}
    listed = [(span, frame, row) for row in rows for frame, span in enumerate(row.section.spans_ns)]
    for (ready, start, end), frame, row in sorted(listed, key=lambda entry: (entry[0], entry[2].cost.stage)):
        deadline = begun[row.group[0]][frame][0] - zero + row.longest_ns
        name = row.cost.stage
        slices.append(Slice(row.cost.engine, (row.lane,), len(jobs), name, start - zero, end - zero))
        jobs.append(Job(name, frame, ready - zero, deadline, start - zero, end - zero, end - start, status="done"))
        if name == row.group[0]:
            releases.setdefault(name, []).append(ready - zero)
    slices.sort(key=lambda found: found.start_ns)
    return Trace("measured", max(found.end_ns for found in slices), 0, jobs, slices, [], releases)


def _profile_plan(rows: Sequence[_Row], platform: Platform, imported: Imported, zero: int) -> Plan:
    lanes = {row.cost.engine: row.lane + 1 for row in rows}
    groups = {row.group: row for row in rows}
    return recorded_plan(
        platform.name,
        rows[0].cost.mode,
        ((e.id, e.kind, lanes[e.id], "none") for e in platform.engines if e.id in lanes),
        (_row_task(row, zero) for row in rows),
        ((group[0], group, row.longest_ns, row.median_ns) for group, row in groups.items()),
        tool={"profile": imported.profile.tool},
    )


def _row_task(row: _Row, zero: int) -> Task:
    cost, place = row.cost, row.group.index(row.cost.stage)
    return recorded_task(
        cost.stage,
        sorted(max(1, end - start) for _, start, end in row.section.spans_ns),
        after=(row.group[place - 1],) if place else (),
        timer=not place,
        period_ns=row.period_ns,
        offset_ns=0 if place else row.section.spans_ns[0][0] - zero,
        engine=cost.engine,
        lanes=(row.lane,),
        precision=cost.precision,
        source=cost.source,
        error=cost.error,
        times=ExecutionTimes(cost.times_ns) if cost.times_ns else None,
        deadline_ns=row.longest_ns,
    )
