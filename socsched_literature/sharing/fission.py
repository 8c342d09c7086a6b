"""Tasks on an NPU of subarrays, on a clock of cycles: subarrays are reassigned whenever a task arrives or ends.

A task is a request of a network with a priority and a time limit.  A scheduler is called when a task arrives or ends
(or every `quantum` cycles, if it has one).  Its decision takes effect at the end of the tiles that then run, all tasks
together, as in Planaria's published simulator.  Preempting a task, or changing its number of subarrays, costs `switch`
cycles of the array, in which a tile's outputs are saved and weights loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from socsched_literature.sharing.subarrays import Npu, Table


@dataclass(slots=True, eq=False)
class Task:
    """A request in progress; times in cycles, `layer` and the finished `part` of it, `have` subarrays (0: waiting)."""

    number: int
    table: Table
    priority: int
    arrival: int
    allowed: int
    layer: int = 0
    part: float = 0.0
    have: int = 0
    whole: bool = False
    token: float = 0.0
    since: int = 0
    switching: int = 0
    finish: int = -1
    switches: int = 0

    def remaining(self, subarrays: int, *, whole: bool = False) -> int:
        """Return cycles to the end on `subarrays`, or on the undivided array; the current tile counts in full."""
        row = 0 if whole else subarrays
        tile = self.table.tiles[row][self.layer]
        return ceil((1 - self.part) * tile.count - 1e-9) * tile.cycles + self.table.after[row][self.layer]

    def slack(self, now: int) -> int:
        """Return cycles until the deadline."""
        return self.arrival + self.allowed - now

    @property
    def row(self) -> int:
        """Return the row of the table that applies while the task runs."""
        return 0 if self.whole else self.have

    def tile_end(self, cycles: int) -> int:
        """Return the time from now to the first end of a tile at or after `cycles` from now."""
        if not self.have:
            return cycles
        passed = self.switching
        layer, part = self.layer, self.part
        while True:
            tile = self.table.tiles[self.row][layer]
            left = ceil((1 - part) * tile.count - 1e-9)
            need = max(0, ceil((cycles - passed) / tile.cycles))
            if need <= left or layer + 1 == len(self.table.tiles[self.row]):
                return passed + min(need, left) * tile.cycles
            passed, layer, part = passed + left * tile.cycles, layer + 1, 0.0

    def advance(self, cycles: int) -> bool:
        """Run for `cycles` (ends of tiles), and return whether the task is done."""
        if not self.have:
            return False
        spent = min(self.switching, cycles)
        self.switching -= spent
        left = cycles - spent
        row = self.table.tiles[self.row]
        while left > 0 and self.layer < len(row):
            tile = row[self.layer]
            todo = ceil((1 - self.part) * tile.count - 1e-9)
            done = min(todo, left // tile.cycles)
            left -= done * tile.cycles
            if done == todo:
                self.layer, self.part = self.layer + 1, 0.0
                continue
            self.part += done / tile.count
            break
        return self.layer == len(row)


class Scheduler(Protocol):
    """A scheduler of subarrays; `quantum`: cycles between calls in addition to arrivals and ends, 0 for none."""

    @property
    def quantum(self) -> int:
        """Return cycles between calls."""

    def assign(self, tasks: Sequence[Task], now: int, npu: Npu) -> dict[int, tuple[int, bool]]:
        """Return by task number its subarrays, and whether it runs on the undivided array."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request: arrival (cycles), network, priority, and time allowed (cycles)."""

    at: int
    table: Table
    priority: int
    allowed: int


def serve(arrivals: Sequence[Arrival], scheduler: Scheduler, npu: Npu, switch: int = 0) -> list[Task]:
    """Return all tasks with their ends, in order of arrival."""
    everyone = [Task(i, one.table, one.priority, one.at, one.allowed) for i, one in enumerate(arrivals)]
    waiting = now = 0
    active: list[Task] = []
    while waiting < len(everyone) or active:
        if not active:
            now = max(now, everyone[waiting].arrival)
        while waiting < len(everyone) and everyone[waiting].arrival <= now:
            everyone[waiting].since = everyone[waiting].arrival
            active.append(everyone[waiting])
            waiting += 1
        _assign(active, scheduler.assign(active, now, npu), switch)
        ends = [task.switching + task.remaining(task.have, whole=task.whole) for task in active if task.have]
        steps = [min(ends)] if ends else []
        if waiting < len(everyone):
            steps.append(everyone[waiting].arrival - now)
        if scheduler.quantum and len(active) > 1:
            steps.append(scheduler.quantum)
        ahead = max(task.tile_end(min(steps)) for task in active)
        for task in active:
            # A task that ends before the others' tiles finishes at its own end, not at theirs.
            alone = task.switching + task.remaining(task.have, whole=task.whole) if task.have else 0
            if task.advance(ahead):
                task.finish = now + min(alone, ahead)
        now += ahead
        active = [task for task in active if task.finish < 0]
    return everyone


def _assign(active: Sequence[Task], given: dict[int, tuple[int, bool]], switch: int) -> None:
    for task in active:
        have, whole = given.get(task.number, (0, False))
        if (have, whole) != (task.have, task.whole):
            if have and (task.layer or task.part):
                task.switching = switch
                task.switches += 1
            task.have, task.whole = have, whole
