"""State shared by several layers of the kernel: each task's current job, its claimed lanes, and pending events."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.events import EventQueue
    from cython.cimports.socsched_kernel.slots import Slots
else:
    from .events import EventQueue
    from .slots import Slots


class State(Slots):
    """Claims, current jobs and event sources of the kernel.

    A task claims lanes with its current segment (claim `t`) and, while a segment runs elsewhere and the task
    busy-waits, its home lanes too (claim `tasks + t`).

    A claim wants `mask` of its unit's lanes, all of them or any `wide`; it has `lanes` while `running`, and makes
    progress while `sliced`, from `slice_from` on.  A task works on `job` (a slot, or -1): `place` of the `count`
    segments from `first`, after a `prefix` (ns, such as a switch), in `up` / `down` of the planned times.

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
        self.place = self.fill(self.tasks, 0)
        self.prefix = self.fill(self.tasks, 0)
        self.up = self.fill(self.tasks, 1)
        self.down = self.fill(self.tasks, 1)
        self.unit = self.fill(self.width, 0)
        self.mask = self.fill_sets(self.width)
        self.wide = self.fill(self.width, 0)
        self.lanes = self.fill_sets(self.width)
        self.running = self.fill(self.width, 0)
        self.sliced = self.fill(self.width, 0)
        self.slice_from = self.fill(self.width, 0)
        self.s_frame = self.fill(self.sources, 0)
        self.s_ended = self.fill(self.sources, 0)
        self.s_waits = self.fill(self.sources, 0)
        self.s_last = self.fill(self.sources, 0)
        self.s_due = self.fill(self.sources, 0)
        self.events = EventQueue(4 * self.tasks + self.sources + self.units + 1)
        self.from_control = self.tasks + self.sources
        self.from_abort = self.from_control + 1
        self.from_budget = self.from_abort + self.tasks
        self.from_turn = self.from_budget + self.tasks
        self.from_tick = self.from_turn + self.tasks
