"""State shared by several layers of the kernel: each task's current job, its claimed slots, and pending events."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.events import EventQueue
    from cython.cimports.socsched_kernel.job_pool import JobPool
else:
    from .events import EventQueue
    from .job_pool import JobPool


class State(JobPool):
    """Claims, current jobs and event sources of the kernel.

    A task claims slots with its current segment (claim `t`) and, while a segment runs elsewhere and the task
    busy-waits, its home slots too (claim `tasks + t`).

    A claim wants `mask` of its unit's slots, all of them or any `width`; it has `slots` while `running`, and makes
    progress while `slice_open`, from `slice_start` on.  A task works on `job` (a record of `JobPool`, or -1): segment
    `current` of the `count` from `first`, after an `overhead` (ns, such as a switch), in `up` / `down` of the planned
    times.

    A source releases its frame `s_frame` next, at `s_last`; its deadline counts from `s_due`.  Where frames wait for
    others to end (`s_loop`), `s_ended` counts those that did, and `s_waits` is set while one is waiting.

    Event sources by number, which is their order at one instant: ends of tasks' segments, releases, the board's
    control, aborts, budgets, quanta, and re-evaluations of units whose keys depend on time.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.job = self.fill(self.tasks, -1)
        self.first = self.fill(self.tasks, 0)
        self.count = self.fill(self.tasks, 0)
        self.current = self.fill(self.tasks, 0)
        self.overhead = self.fill(self.tasks, 0)
        self.up = self.fill(self.tasks, 1)
        self.down = self.fill(self.tasks, 1)
        self.unit = self.fill(self.claims, 0)
        self.mask = self.fill_sets(self.claims)
        self.width = self.fill(self.claims, 0)
        self.slots = self.fill_sets(self.claims)
        self.running = self.fill(self.claims, 0)
        self.slice_open = self.fill(self.claims, 0)
        self.slice_start = self.fill(self.claims, 0)
        self.s_frame = self.fill(self.sources, 0)
        self.s_ended = self.fill(self.sources, 0)
        self.s_waits = self.fill(self.sources, 0)
        self.s_last = self.fill(self.sources, 0)
        self.s_due = self.fill(self.sources, 0)
        self.events = EventQueue(4 * self.tasks + self.sources + self.units + 1)
        self.control_event = self.tasks + self.sources
        self.abort_event0 = self.control_event + 1
        self.budget_event0 = self.abort_event0 + self.tasks
        self.quantum_event0 = self.budget_event0 + self.tasks
        self.tick_event0 = self.quantum_event0 + self.tasks
