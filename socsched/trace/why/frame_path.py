"""The path of a frame along its chain: the job of every stage and conversion that carried it, with start and end."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from socsched.planning.plan import ChainResult, Plan, Task
from socsched.trace.chains import Record
from socsched.trace.columns import ABORTED, DONE, DROPPED, STATUS, UNFINISHED

if TYPE_CHECKING:
    from socsched.trace.columns import Ints


@dataclass(frozen=True, slots=True)
class Carrier:
    """A job (its row in the trace) that carried a frame from `from_ns` to `until_ns`; row -1: no such job exists.

    `sampled`: it sampled its data at its start, instead of being triggered by them.
    """

    task: Task
    row: int
    sampled: bool
    from_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Way:
    """The path of a frame: its carriers in order, each starting where its predecessor ended."""

    release_ns: int
    end_ns: int
    outcome: str
    carriers: tuple[Carrier, ...]


class Ways:
    """The paths of all frames of one chain.

    A stage's carrier is its first job that acts on the frame or, if the chain samples, on a newer one: the reaction
    of the chain up to that stage (`metrics.chain_figures`).  A dropped frame is followed up to its loss: what a newer
    one causes is no response to it.  Times never decrease along the chain.
    """

    def __init__(self, record: Record, plan: Plan, chain: ChainResult) -> None:
        self.record, self.plan, self.chain = record, plan, chain
        self.tasks = {task.name: task for task in plan.tasks}
        self.path = _expanded(chain.path, self.tasks)
        self.releases = record.released(chain)
        self._samples = [a not in self.tasks[b].after for a, b in pairwise(self.path)]
        self._exact = not any(self._samples)
        self._dropped = record.fates(chain).dropped
        self._acts: dict[int, tuple[Ints, Ints]] = {}

    def way(self, frame: int) -> Way:
        """Return the path of a released frame."""
        release = int(self.releases[frame])
        carriers: list[Carrier] = []
        at, expected = release, frame
        jobs = self.record.columns.jobs
        for place in range(0 if self.path[0] in self.tasks else 1, len(self.path)):
            task, sampled = self.tasks[self.path[place]], bool(place and self._samples[place - 1])
            row = self._carrier(place, frame)
            # a frame is dropped before the first stage that samples
            if row < 0 or (self._dropped[frame] and (sampled or int(jobs.frame[row]) != expected)):
                return self._ended(release, (*carriers,), task, sampled, at, expected, bool(self._dropped[frame]))
            until = max(int(jobs.finish_ns[row]), at)
            carriers.append(Carrier(task, row, sampled, at, until))
            at, expected = until, int(jobs.frame[row])
        return Way(release, at, "completed", tuple(carriers))

    def _carrier(self, place: int, frame: int) -> int:
        """Return the first job of a stage that acts on a frame (or a newer one) along the path, -1 for none."""
        if place not in self._acts:
            rows, frames = self.record.acted_on(self.path[: place + 1])
            if not self._exact:
                frames = np.maximum.accumulate(frames) if len(frames) else frames
            elif len(frames):
                order = np.lexsort((np.arange(len(frames)), frames))
                rows, frames = rows[order], frames[order]
            self._acts[place] = rows, frames
        rows, frames = self._acts[place]
        found = int(np.searchsorted(frames, frame))
        if found == len(frames) or (self._exact and frames[found] != frame):
            return -1
        return int(rows[found])

    def _ended(
        self,
        release: int,
        carriers: tuple[Carrier, ...],
        task: Task,
        sampled: bool,
        at: int,
        expected: int,
        dropped: bool,
    ) -> Way:
        """Return the path of a frame that did not get past `task`."""
        columns, end = self.record.columns, max(self.record.end_ns, at)
        jobs, rows = columns.jobs, self.record.rows(task.name)
        if sampled:
            open_rows = rows[
                (jobs.status[rows] == UNFINISHED)
                & ((jobs.start_ns[rows] >= at) | (jobs.start_ns[rows] < 0))
                & (not dropped)
            ]
        else:
            open_rows = rows[jobs.frame[rows] == expected]
        if not len(open_rows):
            lost = self._lost_at(self.path[0], expected) if not carriers else None
            outcome = "unfinished" if lost is None else "dropped"
            until = end if lost is None else min(max(lost, at), end)
            return Way(release, until, outcome, (*carriers, Carrier(task, -1, sampled, at, until)))
        row = int(open_rows[0])
        status = int(jobs.status[row])
        until = end
        if status == DROPPED:
            at_queue = self._lost_at(task.name, int(jobs.frame[row]))
            until = int(jobs.activation_ns[row]) if at_queue is None else at_queue
        elif status in (ABORTED, DONE):
            until = int(jobs.finish_ns[row]) if jobs.finish_ns[row] >= 0 else self._aborted_at(task.name, row, end)
        until = min(max(until, at), end)
        outcome = STATUS[status] if status != DONE else "unfinished"
        return Way(release, until, outcome, (*carriers, Carrier(task, row, sampled, at, until)))

    def _lost_at(self, subject: str, frame: int) -> int | None:
        return instant(self.record, subject, frame, "drop")

    def _aborted_at(self, subject: str, row: int, end: int) -> int:
        abort_ns = instant(self.record, subject, int(self.record.columns.jobs.frame[row]), "abort")
        return end if abort_ns is None else abort_ns


def instant(record: Record, subject: str, frame: int, kind: str) -> int | None:
    """Return the time of the first instant of a kind for a frame of a subject, None if there is none."""
    row = instant_row(record, subject, frame, kind)
    return None if row is None else int(record.columns.instants.time_ns[row])


def instant_row(record: Record, subject: str, frame: int, kind: str) -> int | None:
    """Return the row of the first instant of a kind for a frame of a subject, None if there is none."""
    columns, notes = record.columns, record.columns.instants
    if subject not in columns.subjects:
        return None
    about = np.flatnonzero((notes.subject == columns.subjects.index(subject)) & (notes.frame == frame))
    return next((row for row in about.tolist() if columns.kind(int(notes.kind[row])) == kind), None)


def _expanded(path: tuple[str, ...], tasks: dict[str, Task]) -> tuple[str, ...]:
    """Return a path with the conversions between its stages."""
    found = list(path[:1])
    for producer, consumer in pairwise(path):
        found += _between(producer, consumer, tasks)
        found.append(consumer)
    return tuple(found)


def _between(producer: str, consumer: str, tasks: dict[str, Task]) -> list[str]:
    """Return the conversions from one stage to another, in order; empty if data goes directly."""
    inputs = (*tasks[consumer].after, *tasks[consumer].reads)
    if producer in inputs:
        return []
    for name in inputs:
        if name in tasks and tasks[name].kind == "conversion":
            before = tasks[name]
            if producer in (*before.after, *before.reads):
                return [name]
            further = _between(producer, name, tasks)
            if further:
                return [*further, name]
    return []
