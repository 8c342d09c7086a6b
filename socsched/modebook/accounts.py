"""Accounts of frames in one stretch of a simulated book: every frame of a sensor or timer has one fate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from socsched.planning.plan import Plan, Task
    from socsched.trace.trace import Job, Trace

COMPLETED, DROPPED, ABORTED, LOST, DROPOUT, HELD, ABANDONED, UNFINISHED, UNACCOUNTED = (
    "completed", "dropped", "aborted", "lost", "dropout", "held", "abandoned", "unfinished", "unaccounted",
)  # fmt: skip
"""Fates: all jobs done; dropped by a queue or before its start; aborted; lost with an engine; never delivered by its
sensor; released between two plans; not done when the drain's bound ends a plan, which faults alone can cause; in
progress at the end of the simulation; none of these, which is an error."""
FATES = (COMPLETED, DROPPED, ABORTED, LOST, DROPOUT, HELD, ABANDONED, UNFINISHED, UNACCOUNTED)
_ORDER = (UNACCOUNTED, LOST, ABORTED, DROPPED, DROPOUT, ABANDONED, UNFINISHED, COMPLETED)
"""The fate of a frame is the first of these among its jobs'."""


def account(
    plan: Plan, trace: Trace, until_ns: int, gone: frozenset[str], last: bool
) -> tuple[dict[str, Counter[str]], int]:
    """Return source -> fates of the frames released before `until_ns`, and the instant the last of their jobs ended.

    `gone`: tasks that need an engine lost at `until_ns`; `last`: the simulation ends then, else the drain.
    """
    jobs = {(job.task, job.frame): job for job in trace.jobs}
    tasks = {task.name: task for task in plan.tasks}
    undelivered = {
        (one.subject, one.frame)
        for one in trace.instants
        if one.kind == "drop" and one.subject in trace.releases and one.text.startswith("frame lost")
    }
    followers = {name: _followers(name, plan.tasks) for name in trace.releases}
    fates: dict[str, Counter[str]] = {}
    ended = 0
    for source, releases in trace.releases.items():
        count: Counter[str] = Counter()
        for frame, release in enumerate(releases):
            if release >= until_ns:
                break
            memory: dict[str, str] = {}
            found = {
                _fate(name, frame, tasks, jobs, undelivered, gone, last, memory) for name in followers[source]
            } or {DROPOUT if (source, frame) in undelivered else COMPLETED}
            count[min(found, key=_ORDER.index)] += 1
            for name in followers[source]:
                job = jobs.get((name, frame))
                if job is not None and job.finish_ns >= 0:
                    ended = max(ended, job.finish_ns)
        fates[source] = count
    return fates, ended


def _followers(source: str, tasks: tuple[Task, ...]) -> list[str]:
    """Return the tasks that frames of a source trigger, itself if it is a timer."""
    found = [task.name for task in tasks if task.name == source]
    reached = {source}
    more = True
    while more:
        fresh = [task.name for task in tasks if task.name not in reached and reached & set(task.after)]
        reached.update(fresh)
        found += fresh
        more = bool(fresh)
    return found


def _fate(
    name: str,
    frame: int,
    tasks: Mapping[str, Task],
    jobs: Mapping[tuple[str, int], Job],
    undelivered: set[tuple[str, int]],
    gone: frozenset[str],
    last: bool,
    memory: dict[str, str],
) -> str:
    """Return the fate of a task's job for a frame; a job that never came has the fate of the input it lacks."""
    if name in memory:
        return memory[name]
    job, task = jobs.get((name, frame)), tasks[name]
    if (name, frame) in undelivered:
        fate = DROPOUT
    elif job is not None and job.status == "done":
        fate = COMPLETED
    elif name in gone and (job is not None or not task.after):
        fate = LOST
    elif job is not None:
        fate = {"dropped": DROPPED, "aborted": ABORTED}.get(job.status, UNFINISHED if last else ABANDONED)
    else:
        before = [
            _fate(other, frame, tasks, jobs, undelivered, gone, last, memory)
            if other in tasks
            else (DROPOUT if (other, frame) in undelivered else COMPLETED)
            for other in task.after
        ]
        fate = min(before, key=_ORDER.index, default=UNACCOUNTED)
        if fate == COMPLETED:  # all inputs came, so there should be a job
            fate = UNACCOUNTED
    memory[name] = fate
    return fate
