"""Records of the jobs in progress, one each, allocated at the release and freed at the end."""

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.tables import Tables
else:
    from .tables import Tables


class JobPool(Tables):
    """Columns of job records, all times in ns; free ones are linked by `j_next`, like the waiting ones of a task.

    `live`: the jobs in progress.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.pool_size = 0
        self.live = 0
        self.next_number = 0
        self.j_free = -1
        self.job_columns = [array("q") for _ in range(13)]
        self.grow_pool()

    def grow_pool(self) -> None:
        """Double the number of records."""
        more: i64 = max(self.pool_size, 64)
        self.job_columns = [column + array("q", bytes(8 * more)) for column in self.job_columns]
        self.j_frame = self.own(self.job_columns[0])
        self.j_activation = self.own(self.job_columns[1])
        self.j_release = self.own(self.job_columns[2])
        self.j_deadline = self.own(self.job_columns[3])
        self.j_start = self.own(self.job_columns[4])
        self.j_exec = self.own(self.job_columns[5])
        self.j_blocked = self.own(self.job_columns[6])
        self.j_preempted = self.own(self.job_columns[7])
        self.j_migrated = self.own(self.job_columns[8])
        self.j_number = self.own(self.job_columns[9])
        self.j_sample = self.own(self.job_columns[10])
        self.j_next = self.own(self.job_columns[11])
        self.j_previous = self.own(self.job_columns[12])
        self.pool_size += more
        self.live += more  # which `free_job` takes off again
        job: i64
        for job in range(self.pool_size - 1, self.pool_size - more - 1, -1):
            self.free_job(job)

    def allocate_job(self, frame: i64, activation: i64, release: i64, deadline: i64) -> i64:
        """Allocate the record of a new job and return its index."""
        if self.j_free < 0:
            self.grow_pool()
        job: i64 = self.j_free
        self.j_free = self.j_next[job]
        self.j_frame[job], self.j_activation[job], self.j_release[job] = frame, activation, release
        self.j_deadline[job] = deadline
        self.j_start[job] = self.j_sample[job] = self.j_next[job] = -1
        self.j_exec[job] = self.j_blocked[job] = self.j_preempted[job] = self.j_migrated[job] = 0
        self.j_number[job] = self.next_number
        self.next_number += 1
        self.live += 1
        return job

    def free_job(self, job: i64) -> None:
        self.live -= 1
        self.j_next[job] = self.j_free
        self.j_free = job
