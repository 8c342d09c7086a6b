"""Data flow along chains, for all frames at once: the frame each job acted on, and the fate of each frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from socsched.planning.plan import ChainResult, Plan
from socsched.trace.blocks import narrow, spans
from socsched.trace.columns import DONE, DROPPED, Columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from socsched.trace.columns import Ints

    Flags = NDArray[np.bool_]


# Vectorised lookup of jobs by task, and by task and frame.


class Frames:
    """The jobs `rows` of one task by frame; of several jobs for a frame, the last one counts."""

    def __init__(self, columns: Columns, rows: Ints) -> None:
        frames = columns.jobs.frame[rows]
        order = np.argsort(frames, kind="stable")
        self._frames, self._rows = frames[order], rows[order]

    def rows(self, frames: Ints) -> Ints:
        """Return the job for each of `frames`, -1 for none."""
        if not len(self._frames):
            return np.full(len(frames), -1, np.int64)
        at = np.searchsorted(self._frames, frames, side="right") - 1
        return np.where((at >= 0) & (self._frames[at] == frames), self._rows[at], -1)


class Tasks:
    """The jobs of every task; `numbers` maps a task's name to its number."""

    def __init__(self, columns: Columns) -> None:
        self.numbers = {name: number for number, name in enumerate(columns.tasks)}
        if "jobs of tasks" not in columns.known:
            columns.known["jobs of tasks"] = _by_task(narrow(columns.jobs.task), len(columns.tasks))
        self._order, self._bounds = columns.known["jobs of tasks"]

    def rows(self, task: str) -> Ints:
        """Return the rows of the jobs of `task`, in the order of the record."""
        if task not in self.numbers:
            return np.zeros(0, np.int64)
        begin, end = self._bounds[self.numbers[task] :][:2]
        found: Ints = self._order[begin:end].astype(np.int64)
        return found


def _by_task(task: NDArray[Any], count: int) -> tuple[NDArray[Any], Ints]:
    """Return the rows of the jobs, task by task, and where those of each task begin; in little memory besides."""
    # stable and, on 16 bits, a radix sort: linear in the jobs
    task = task.astype(np.uint16, copy=False) if count < 1 << 16 else task
    counts = [np.bincount(task[part], minlength=count) for part in spans(len(task))]
    bounds = np.concatenate(([0], np.cumsum(sum(counts, np.zeros(count, np.int64)))))
    order, places = np.empty(len(task), np.uint32 if len(task) < 1 << 32 else np.int64), bounds[:-1].copy()
    for part, own in zip(spans(len(task)), counts, strict=True):
        rows = np.argsort(task[part], kind="stable")
        order[np.repeat(places - np.cumsum(own) + own, own) + np.arange(len(rows))] = rows + part.start
        places += own
    return order, bounds


@dataclass(frozen=True, slots=True, eq=False)
class Fates:
    """The fate of every frame of a chain's source, by frame number; see `metrics.chain_figures`.

    Times in ns; `finish_ns` is -1 for frames without a reaction, dropped ones among them: what a newer frame causes is
    no response to them.
    """

    release_ns: Ints
    finish_ns: Ints
    dropped: Flags
    missed: Flags

    @property
    def completed(self) -> Flags:
        """Return a mask of the frames with a reaction."""
        completed: Flags = self.finish_ns >= 0
        return completed

    @property
    def response_ns(self) -> Ints:
        """Return the times from release to reaction of completed frames, by frame number."""
        return (self.finish_ns - self.release_ns)[self.completed]


class Record:
    """Columns of a trace of `plan` with an index of the jobs of every task."""

    def __init__(self, columns: Columns, plan: Plan, end_ns: int) -> None:
        self.columns, self.end_ns = columns, end_ns
        self._tasks = Tasks(columns)
        self._after = {task.name: task.after for task in plan.tasks}
        self._conversions = {task.name for task in plan.tasks if task.kind == "conversion"}
        self._frames: dict[str, Frames] = {}

    def rows(self, task: str) -> Ints:
        """Return the rows of the jobs of `task`, in the order of the record."""
        return self._tasks.rows(task)

    def forget(self) -> None:
        """Drop the index of jobs by frame, which takes as much memory as two columns of the jobs it was used for."""
        self._frames.clear()

    def _done(self, task: str) -> Ints:
        rows = self.rows(task)
        done: Ints = rows[self.columns.jobs.status[rows] == DONE]
        return done

    def _rows_of(self, task: str, frames: Ints) -> Ints:
        if task not in self._frames:
            self._frames[task] = Frames(self.columns, self._done(task))
        return self._frames[task].rows(frames)

    def _sampled(self, task: str, frames: Ints) -> Mapping[str, Ints]:
        """Return, by producer, the frames that the jobs of `task` for `frames` sampled; -1 for none."""
        number = self._tasks.numbers.get(task, -1)
        reads = self.columns.reads[number] if number >= 0 else ()
        if not reads:
            return {}
        jobs = self.columns.jobs
        rows = self._rows_of(task, frames)
        begins = np.where(rows >= 0, jobs.sampled[rows], -1)
        taken = begins >= 0
        found = {}
        for place, name in enumerate(reads):
            found[name] = np.full(len(frames), -1, np.int64)
            found[name][taken] = jobs.frames[begins[taken] + place]
        return found

    def taken(self, producer: str, task: str, frames: Ints) -> Ints:
        """Return the frame of `producer` that each job of `task` took, perhaps through conversions; -1 for none."""
        after, sampled = self._after.get(task, ()), self._sampled(task, frames)
        delivered = dict.fromkeys(after, frames)
        for name, numbers in sampled.items():
            delivered[name] = np.where(numbers >= 0, numbers, frames) if name in delivered else numbers
        found: Ints = delivered.get(producer, np.full(len(frames), -1, np.int64)).copy()
        if producer not in after:
            for name in reversed(delivered):
                if name in self._conversions:
                    lacking = np.flatnonzero((found < 0) & (delivered[name] >= 0))
                    found[lacking] = self.taken(producer, name, delivered[name][lacking])
        return found

    def acted_on(self, path: tuple[str, ...]) -> tuple[Ints, Ints]:
        """Return the done jobs of a path's last task in order of completion, and the source frame each acted on.

        The frame is traced back along the path; jobs that acted on no frame are left out.
        """
        task = path[-1]
        rows = self._done(task)
        frames = self.columns.jobs.frame[rows]
        for producer in path[-2::-1]:
            frames = self.taken(producer, task, frames)
            rows, frames, task = rows[frames >= 0], frames[frames >= 0], producer
        order = np.lexsort((frames, self.columns.jobs.finish_ns[rows]))
        return rows[order], frames[order]

    def arrivals(self, chain: ChainResult) -> tuple[Ints, Ints]:
        """Return completion time and source frame for every job of `acted_on`."""
        rows, frames = self.acted_on(chain.path)
        return self.columns.jobs.finish_ns[rows], frames

    def released(self, chain: ChainResult) -> Ints:
        """Return the release times of a chain's source."""
        return self.columns.releases.get(chain.path[0], np.zeros(0, np.int64))

    def ages(self, chain: ChainResult, arrivals: tuple[Ints, Ints]) -> Ints:
        """Return the data age of each arrival, from the release of its frame, if the trace has that release."""
        releases, (finish, frames) = self.released(chain), arrivals
        known = frames < len(releases)  # a killed run may have recorded only the job
        found: Ints = finish[known] - releases[frames[known]]
        return found

    def fates(self, chain: ChainResult, arrivals: tuple[Ints, Ints] | None = None) -> Fates:
        """Return the fate of every released frame of a chain's source."""
        releases, path = self.released(chain), chain.path
        links = enumerate(pairwise(path))
        sampling = next((i for i, (a, b) in links if not self._triggers(a, b)), len(path) - 1)
        completions, frames = self.arrivals(chain) if arrivals is None else arrivals
        known = (frames >= 0) & (frames < len(releases))
        exact = np.full(len(releases), -1, np.int64)
        # assign backwards, so that the earliest completion wins
        exact[frames[known][::-1]] = completions[known][::-1]
        if sampling == len(path) - 1:
            finish = exact
        else:
            newest = np.maximum.accumulate(frames) if len(frames) else frames
            first = np.searchsorted(newest, np.arange(len(releases)))
            finish = np.concatenate((completions, [-1]))[first]
        dropped = self._lost(path[: sampling + 1], len(releases)) & (exact < 0)
        finish = np.where(dropped, -1, finish)
        deadline = releases + chain.deadline_ns
        late = np.where(finish >= 0, finish > deadline, deadline <= self.end_ns)
        return Fates(releases, finish, dropped, late & ~dropped)

    def _lost(self, path: tuple[str, ...], frames: int) -> Flags:
        """Return a mask of the frames lost at the source or at a stage that frames reach under their own number."""
        columns, notes, jobs = self.columns, self.columns.instants, self.columns.jobs
        gone = []
        if path[0] in columns.subjects:
            about = columns.instants_of(path[0])
            drops = [code for code in np.unique(notes.kind[about]).tolist() if columns.kind(code) == "drop"]
            gone.append(notes.frame[about[np.isin(notes.kind[about], drops)]])
        for task in path[1:]:
            rows = self.rows(task)
            gone.append(jobs.frame[rows[jobs.status[rows] == DROPPED]])
        lost = np.zeros(frames, np.bool_)
        for numbers in gone:
            lost[numbers[(numbers >= 0) & (numbers < frames)]] = True
        return lost

    def _triggers(self, producer: str, consumer: str) -> bool:
        """Return whether frame k of `producer` activates job k of `consumer`, directly or through conversions."""
        waiting = list(self._after.get(consumer, ()))
        while waiting:
            name = waiting.pop()
            if name == producer:
                return True
            if name in self._conversions:
                waiting.extend(self._after[name])
        return False
