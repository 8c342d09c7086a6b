"""Slots of jobs in progress, one each, allocated at the release and freed at the end."""

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.tables import Tables
else:
    from .tables import Tables


class Slots(Tables):
    """Columns of job slots, all times in ns; free ones are linked by `j_next`, like the waiting ones of a task."""

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.room = 0
        self.number = 0
        self.j_free = -1
        self.columns = [array("q") for _ in range(13)]
        self.more_slots()

    def more_slots(self) -> None:
        """Double the number of slots."""
        more: i64 = max(self.room, 64)
        self.columns = [column + array("q", bytes(8 * more)) for column in self.columns]
        self.j_frame = self.own(self.columns[0])
        self.j_activation = self.own(self.columns[1])
        self.j_release = self.own(self.columns[2])
        self.j_deadline = self.own(self.columns[3])
        self.j_start = self.own(self.columns[4])
        self.j_exec = self.own(self.columns[5])
        self.j_blocked = self.own(self.columns[6])
        self.j_preempted = self.own(self.columns[7])
        self.j_migrated = self.own(self.columns[8])
        self.j_number = self.own(self.columns[9])
        self.j_sample = self.own(self.columns[10])
        self.j_next = self.own(self.columns[11])
        self.j_before = self.own(self.columns[12])
        self.room += more
        slot: i64
        for slot in range(self.room - 1, self.room - more - 1, -1):
            self.free_slot(slot)

    def take_slot(self, frame: i64, activation: i64, release: i64, deadline: i64) -> i64:
        """Allocate the slot of a new job and return it."""
        if self.j_free < 0:
            self.more_slots()
        slot: i64 = self.j_free
        self.j_free = self.j_next[slot]
        self.j_frame[slot], self.j_activation[slot], self.j_release[slot] = frame, activation, release
        self.j_deadline[slot] = deadline
        self.j_start[slot] = self.j_sample[slot] = self.j_next[slot] = -1
        self.j_exec[slot] = self.j_blocked[slot] = self.j_preempted[slot] = self.j_migrated[slot] = 0
        self.j_number[slot] = self.number
        self.number += 1
        return slot

    def free_slot(self, slot: i64) -> None:
        self.j_next[slot] = self.j_free
        self.j_free = slot
