"""States of started jobs for the sweeps of `destructive`: tables, symmetry and dominance."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from socsched.literature.mapping.tables import Floats, Ints, Table

LEADERS = 48
"""States of a kind that others of it are compared with, at most."""
FAR = 1e17
"""A time or a price that nothing has."""
FIELDS = ("pos", "last", "prior", "ready", "free", "begun", "clock", "paid")


class OutOfTime(Exception):
    """The clock or the number of states ended a sweep before everything was seen."""


@dataclass(slots=True)
class States:
    """Rows of states: jobs done of each network, engine last and before, when it is ready; of engines, when free and
    when their last job began; the clock, and what memory cost."""

    pos: Ints
    last: Ints
    prior: Ints
    ready: Ints
    free: Ints
    begun: Ints
    clock: Ints
    paid: Floats

    def take(self, rows: npt.NDArray[np.bool_] | Ints) -> States:
        return States(*(getattr(self, name)[rows] for name in FIELDS))


class Sweep:
    """What both directions share: tables, symmetry, dominance."""

    def __init__(self, table: Table, width: int, until: float) -> None:
        self.table, self.width, self.until = table, width, until
        self.nets, self.lanes = len(table.groups), len(table.lanes)
        self.rows = np.arange(self.nets)
        self.alike = table.alike(contended=False)
        self.time = np.where(np.isfinite(table.time), table.time, FAR)
        self.lag = np.where(np.isfinite(table.lag), table.lag, FAR)
        self.delay = table.delay
        self.moved = table.memory * table.bytes / table.bandwidth if table.bandwidth else np.zeros_like(table.bytes)
        base = self.lanes + 1
        self.seen = 0
        self.radix = (int(table.length.max()) + 1, base)

    def key(self, states: States) -> Ints:
        """Return one number for the jobs done and the engines last."""
        found = np.zeros(len(states.clock), np.int64)
        for values, radix in ((states.pos, self.radix[0]), (states.last, self.radix[1])):
            for column in values.T:
                found = found * radix + column
        return found

    def renamed(self, states: States) -> States:
        """Give engines that are alike the names of the first network that was last on them."""
        for lanes in self.alike:
            mark = np.stack([np.where(states.last == lane, self.rows, self.nets).min(1) for lane in lanes], 1)
            order = np.lexsort((states.free[:, lanes], mark), axis=1)
            place = np.arange(len(mark))[:, None]
            picked = np.array(lanes)[order]
            names = np.tile(np.arange(self.lanes + 1), (len(mark), 1))
            names[place, picked] = np.array(lanes)
            free, begun = states.free.copy(), states.begun.copy()
            free[:, lanes], begun[:, lanes] = states.free[place, picked], states.begun[place, picked]
            last, prior = names[place, states.last], names[place, states.prior]
            states = replace(states, last=last, prior=prior, free=free, begun=begun)
        return states

    def undominated(self, keys: Ints, times: Ints) -> Ints:
        """Return the rows (of equal keys) that no other row beats in every column of `times`."""
        order = np.lexsort((times.sum(1), keys))
        keys, times = keys[order], times[order]
        count = len(keys)
        first = np.ones(count, bool)
        first[1:] = keys[1:] != keys[:-1]
        start = np.maximum.accumulate(np.where(first, np.arange(count), 0))
        alive = np.ones(count, bool)
        left = np.arange(count)
        for leader in range(LEADERS):
            left = left[start[left] + leader < left]
            if not len(left):
                break
            ahead = start[left] + leader
            beaten = alive[ahead] & (times[ahead] <= times[left]).all(1)
            alive[left[beaten]] = False
            left = left[~beaten]
        return order[alive]

    def check(self, count: int) -> None:
        """Count states; raise OutOfTime where there is no time, or no room, for so many."""
        self.seen += count
        if count > self.width or time.monotonic() > self.until:
            raise OutOfTime


def states_of(pos: Ints, last: Ints, lanes: int) -> States:
    """Return states of which only the jobs done and the engines last matter."""
    count = len(pos)
    none, free = np.zeros(pos.shape, np.int64), np.zeros((count, lanes), np.int64)
    return States(pos, last, none, none, free, free, np.zeros(count, np.int64), np.zeros(count))


def joined(parts: list[States]) -> States:
    return States(*(np.concatenate([getattr(part, name) for part in parts]) for name in FIELDS))
