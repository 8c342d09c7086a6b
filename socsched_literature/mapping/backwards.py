"""Lower bounds on the cost of schedule suffixes, without contention: the backward sweep of `destructive`."""

from __future__ import annotations

import time

import numpy as np

from socsched_literature.mapping.sweeps import FAR, OutOfTime, States, Sweep, join
from socsched_literature.mapping.tables import Floats, Table


class Backwards(Sweep):
    """All schedule suffixes whose price stays within an allowance; `least` gives the price by set of last jobs.

    Jobs are added in order of their ends, latest first, which in time counted from the end is the order of their
    starts.  The `last` engine of a network is that of the job preceding the set: it determines the hand-over time.
    """

    def __init__(self, table: Table, width: int, until: float, limit: float, upper: float) -> None:
        super().__init__(table, width, until)
        # The allowance limits prices only: the price of anything above it remains unknown.
        self.limit, self.upper = limit, upper
        self.prefix, self.head = self._prefixes()
        self.keys, self.costs = np.zeros(0, np.int64), np.zeros(0)
        self.seconds = 0.0

    def wider(self, factor: float, until: float) -> Backwards | None:
        """Return a sweep with the allowance scaled by `factor`, None if it does not finish in time."""
        least = float(self.prefix[self.rows, self.table.length].min(1).sum())
        wide = Backwards(self.table, self.width, until, least + (self.limit - least) * factor, self.upper)
        try:
            wide.sweep()
        except OutOfTime:
            return None
        return wide

    def _prefixes(self) -> tuple[Floats, Floats]:
        """Return the least price and the least time of everything before job g if engine c runs the preceding job."""
        table = self.table
        most = int(table.length.max())
        price, head = (np.full((self.nets, most + 1, self.lanes + 1), FAR) for _ in range(2))
        price[:, 0, self.lanes], head[:, 0, self.lanes] = 0.0, table.release
        for k in range(self.nets):
            for g in range(int(table.length[k])):
                length = self.lag[k, g] + self.time[k, g]
                cost = length * table.price + self.moved[k, g]
                price[k, g + 1, : self.lanes] = (price[k, g][:, None] + cost).min(0)
                head[k, g + 1, : self.lanes] = (head[k, g][:, None] + length + self.delay[k, g]).min(0)
        return np.minimum(price, FAR), np.minimum(head, FAR)

    def sweep(self) -> None:
        """Enumerate all sets of last jobs; raises OutOfTime."""
        begun = time.monotonic()
        grids = np.meshgrid(*[np.arange(self.lanes)] * self.nets, indexing="ij")
        last = np.stack([grid.ravel() for grid in grids], 1)
        count = len(last)
        zero = np.zeros((count, self.nets), np.int64)
        states = States(
            np.tile(self.table.length, (count, 1)),
            last,
            zero + self.lanes,
            zero,
            np.zeros((count, self.lanes), np.int64),
            np.zeros((count, self.lanes), np.int64),
            np.zeros(count, np.int64),
            np.zeros(count),
        )
        states = self._kept(self.renamed(states))
        while len(states.clock):
            self._note(states)
            states = self._step(states)
        order = np.argsort(self.keys)
        self.keys, self.costs = self.keys[order], self.costs[order]
        self.seconds = time.monotonic() - begun

    def _note(self, states: States) -> None:
        keys, cost = self.key(states), self._cost(states)
        order = np.lexsort((cost, keys))
        keys, cost = keys[order], cost[order]
        first = np.ones(len(keys), bool)
        first[1:] = keys[1:] != keys[:-1]
        self.keys = np.concatenate([self.keys, keys[first]])
        self.costs = np.concatenate([self.costs, cost[first]])

    def _cost(self, states: States) -> Floats:
        cost: Floats = np.maximum(states.free, states.clock[:, None]) @ self.table.price + states.paid
        return cost

    def before(self, states: States) -> Floats:
        """Return the least price of everything before the set, for every state."""
        found: Floats = self.prefix[self.rows, states.pos, states.last].sum(1)
        return found

    def _kept(self, states: States) -> States:
        ends = (states.ready + self.head[self.rows, states.pos, states.last]).max(1)
        return states.take((self._cost(states) + self.before(states) <= self.limit) & (ends <= self.upper))

    def _step(self, states: States) -> States:
        found = []
        for k in range(self.nets):
            left = states.take(states.pos[:, k] > 0)
            if not len(left.clock):
                continue
            g, lane, row = left.pos[:, k] - 1, left.last[:, k], np.arange(len(left.clock))
            begun = np.maximum(np.maximum(left.ready[:, k], left.free[row, lane]), left.clock)
            for b in range(self.lanes + 1):
                length = self.lag[k, g, b, lane] + self.time[k, g, lane]
                fits = ((g == 0) == (b == self.lanes)) & (length < FAR)
                if not fits.any():
                    continue
                child = left.take(fits)
                some, on = g[fits], lane[fits]
                end = begun[fits] + length[fits].astype(np.int64)
                child.free[np.arange(len(on)), on] = end
                child.ready[:, k] = end + self.delay[k, some, b, on].astype(np.int64)
                child.pos[:, k], child.last[:, k], child.clock = some, b, begun[fits]
                child.paid = child.paid + self.moved[k, some, on]
                found.append(self._kept(child))
        if not found:
            return states.take(np.zeros(0, np.int64))
        states = self.renamed(join(found))
        self.check(len(states.clock))
        clock = states.clock[:, None]
        times = np.concatenate([np.maximum(states.ready, clock), np.maximum(states.free, clock), clock], 1)
        return states.take(self.undominated(self.key(states), times))

    def least(self, states: States) -> Floats:
        """Return a lower bound on the price of the jobs outside the sets of `states`."""
        missing, keys = self.limit - self.before(states), self.key(states)
        if not len(self.keys):
            return missing
        place = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.costs[place], missing)
