"""States of started jobs for the sweeps of `destructive`: tables, symmetry and dominance."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from socsched_literature.mapping.tables import Floats, Ints, Table

LEADERS = 48
"""Maximum number of states per key that the other states of the key are compared with."""
FAR = 1e17
"""A time or price larger than any real one."""
FIELDS = ("pos", "last", "prior", "ready", "free", "begun", "clock", "paid")


class OutOfTime(Exception):
    """The clock or the number of states ended a sweep before it was complete."""


@dataclass(slots=True)
class States:
    """Rows of states, by network and by engine.

    Per network: jobs done, last and previous engine, ready time.  Per engine: the time it is free and the start of its
    last job.  Also the clock and the price of memory traffic.
    """

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
    """Common base of both directions: tables, symmetry, dominance."""

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
        """Return a single integer key for the jobs done and the last engines."""
        found = np.zeros(len(states.clock), np.int64)
        for values, radix in ((states.pos, self.radix[0]), (states.last, self.radix[1])):
            for column in values.T:
                found = found * radix + column
        return found

    def renamed(self, states: States) -> States:
        """Name identical engines canonically, by the first network that ran last on each."""
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
        """Return the rows that no other row with an equal key dominates in every column of `times`."""
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
        """Count states; raise OutOfTime if the time or state limit is exceeded."""
        self.seen += count
        if count > self.width or time.monotonic() > self.until:
            raise OutOfTime


def states_of(pos: Ints, last: Ints, lanes: int) -> States:
    """Return states in which only the jobs done and the last engines are set."""
    count = len(pos)
    none, free = np.zeros(pos.shape, np.int64), np.zeros((count, lanes), np.int64)
    return States(pos, last, none, none, free, free, np.zeros(count, np.int64), np.zeros(count))


def join(parts: list[States]) -> States:
    return States(*(np.concatenate([getattr(part, name) for part in parts]) for name in FIELDS))
