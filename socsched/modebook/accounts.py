"""Accounts of frames in one stretch of a simulated book: every frame of a sensor or timer has one fate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from socsched.planning.plan import Plan, Task
    from socsched.trace.trace import Job, Trace

COMPLETED, DROPPED, ABORTED, LOST, DROPOUT, UNPAIRED, HELD, ABANDONED, UNFINISHED, UNACCOUNTED = (
    "completed", "dropped", "aborted", "lost", "dropout", "unpaired", "held", "abandoned", "unfinished", "unaccounted",
)  # fmt: skip
"""Fates: all jobs done; dropped by a queue or before its start; aborted; lost with an engine; never delivered by its
sensor; released before a switch was requested, while the frame that a join needs with it was held; released between two
plans; not done when the drain's bound ends a plan, which faults alone can cause; in progress at the end of the
simulation; none of these, which is an error."""
FATES = (COMPLETED, DROPPED, ABORTED, LOST, DROPOUT, UNPAIRED, HELD, ABANDONED, UNFINISHED, UNACCOUNTED)
_ORDER = (UNACCOUNTED, LOST, ABORTED, DROPPED, DROPOUT, ABANDONED, UNPAIRED, UNFINISHED, COMPLETED)
"""The fate of a frame is the first of these among its jobs'."""


def account(
    plan: Plan, trace: Trace, until_ns: int, gone: frozenset[str], last: bool
) -> tuple[dict[str, Counter[str]], int]:
    """Return source -> fates of the frames released before `until_ns`, and the instant the last of their jobs ended.

    `gone`: tasks that need an engine lost at `until_ns`; `last`: the simulation ends then, else the drain, in which
    sources deliver nothing.  A frame from then on that has a job all the same is unaccounted.
    """
    jobs = {(job.task, job.frame): job for job in trace.jobs}
    undelivered = {
        (one.subject, one.frame): one.time_ns
        for one in trace.instants
        if one.kind == "drop" and one.subject in trace.releases and one.text.startswith("frame lost")
    }
    # releases of timers are listed at their nominal instants, so a late one may be listed before the request
    released = {
        source: sum(at < until_ns and undelivered.get((source, k), -1) < until_ns for k, at in enumerate(releases))
        for source, releases in trace.releases.items()
    }
    tasks = {task.name: task for task in plan.tasks}
    fates: dict[str, Counter[str]] = {source: Counter() for source in trace.releases}
    ended = 0
    for source, releases in trace.releases.items():
        behind = _followers(source, plan.tasks)
        for frame in range(len(releases)):
            own = [job for name in behind if (job := jobs.get((name, frame))) is not None]
            if frame < released[source]:
                story = _Frame(frame, tasks, jobs, undelivered, released, gone, last, {})
                fates[source][min((story.fate(name) for name in (source, *behind)), key=_ORDER.index)] += 1
                ended = max(ended, *(job.finish_ns for job in own), 0)
            elif own:
                fates[source][UNACCOUNTED] += 1
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


@dataclass(frozen=True, slots=True)
class _Frame:
    """Everything about the frames of one number: the arguments of `account` and what it derived from them."""

    number: int
    tasks: Mapping[str, Task]
    jobs: Mapping[tuple[str, int], Job]
    undelivered: Mapping[tuple[str, int], int]
    released: Mapping[str, int]
    gone: frozenset[str]
    last: bool
    known: dict[str, str]

    def fate(self, name: str) -> str:
        """Return the fate of a sensor's frame or a task's job; a job that never came has that of the input it lacks."""
        if name not in self.known:
            self.known[name] = self._fate(name)
        return self.known[name]

    def _fate(self, name: str) -> str:
        if self.number >= self.released.get(name, self.number + 1):  # a source whose frame has not come
            return UNFINISHED if self.last else UNPAIRED
        if (name, self.number) in self.undelivered:
            return DROPOUT
        job = self.jobs.get((name, self.number))
        if name not in self.tasks or (job is not None and job.status == "done"):
            return COMPLETED
        task = self.tasks[name]
        if name in self.gone and (job is not None or not task.after):
            return LOST
        if job is not None:
            return {"dropped": DROPPED, "aborted": ABORTED}.get(job.status, UNFINISHED if self.last else ABANDONED)
        lacking = min((self.fate(other) for other in task.after), key=_ORDER.index, default=COMPLETED)
        return UNACCOUNTED if lacking == COMPLETED else lacking  # if all inputs came, there should be a job
