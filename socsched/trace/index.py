"""Vectorised lookup of jobs by task, and by task and frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from socsched.trace.columns import Columns

if TYPE_CHECKING:
    from socsched.trace.columns import Ints


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
        task, count = columns.jobs.task, len(columns.tasks)
        # stable and, on 16 bits, a radix sort: linear in the jobs
        self._order = np.argsort(task.astype(np.uint16) if count < 1 << 16 else task, kind="stable")
        self._bounds = np.concatenate(([0], np.cumsum(np.bincount(task, minlength=count))))

    def rows(self, task: str) -> Ints:
        """Return the rows of the jobs of `task`, in the order of the record."""
        if task not in self.numbers:
            return np.zeros(0, np.int64)
        begin, end = self._bounds[self.numbers[task] :][:2]
        found: Ints = self._order[begin:end]
        return found
