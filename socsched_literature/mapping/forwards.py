"""All schedules that may end within a limit, without contention: the forward sweep of `destructive`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from socsched.planning.mapping.problem import JobKey, Schedule
from socsched_literature.mapping.backwards import Backwards
from socsched_literature.mapping.sweeps import FAR, States, Sweep, join
from socsched_literature.mapping.tables import Ints, Table


class Forwards(Sweep):
    """All schedules that may end within a limit, in order of their starts."""

    def __init__(self, table: Table, width: int, until: float, limit: float, ends: Backwards | None) -> None:
        super().__init__(table, width, until)
        # Prices are floating point, times are integers: half a ns exceeds the rounding error.
        self.limit, self.ends = limit + 0.5, ends
        self.trail: list[tuple[Ints, Ints]] = []
        self.ends_at = 0

    def sweep(self) -> Schedule | None:
        """Return a schedule that ends within the limit, None if there is none; raises OutOfTime."""
        table = self.table
        states = States(
            np.zeros((1, self.nets), np.int64),
            np.full((1, self.nets), self.lanes),
            np.full((1, self.nets), self.lanes),
            table.release[None].astype(np.int64),
            np.zeros((1, self.lanes), np.int64),
            np.zeros((1, self.lanes), np.int64),
            np.zeros(1, np.int64),
            np.zeros(1),
        )
        for _ in range(int(table.length.sum())):
            states, parents, pairs = self._step(states)
            if not len(states.clock):
                return None
            self.trail.append((parents, pairs))
        ends = states.ready.max(1)
        self.ends_at = int(ends.min())
        return self._schedule(int(ends.argmin()))

    def _step(self, states: States) -> tuple[States, Ints, Ints]:
        found, parents, pairs = [], [], []
        for k in range(self.nets):
            origin = np.nonzero(states.pos[:, k] < self.table.length[k])[0]
            if not len(origin):
                continue
            left = states.take(origin)
            g, before = left.pos[:, k], left.last[:, k]
            for lane in range(self.lanes):
                length = self.lag[k, g, before, lane] + self.time[k, g, lane]
                ready = left.ready[:, k] + self.delay[k, g, before, lane].astype(np.int64)
                begun = np.maximum(np.maximum(left.clock, left.free[:, lane]), ready)
                fits = length < FAR
                # Price the child before copying the state, so that pruned children cost no copy.
                end = begun + length.clip(max=FAR)
                fits &= end + self.table.tail[k, g + 1, lane] <= self.limit
                free = np.maximum(left.free, begun[:, None])
                free[:, lane] = end.clip(max=FAR).astype(np.int64)
                rest = self.table.worth[self.rows, left.pos, left.last].sum(1)
                rest += self.table.worth[k, g + 1, lane] - self.table.worth[k, g, before]
                paid = left.paid + self.moved[k, g, lane]
                fits &= free @ self.table.price + rest + paid <= self.limit
                rows = np.nonzero(fits)[0]
                if not len(rows):
                    continue
                child = left.take(rows)
                ends = free[rows, lane]
                child.free[:, lane], child.ready[:, k] = ends, ends
                child.begun[:, lane] = child.clock = begun[rows]
                child.prior[:, k], child.last[:, k] = child.last[:, k], lane
                child.pos[:, k] += 1
                child.paid = paid[rows]
                found.append(child)
                parents.append(origin[rows])
                pairs.append(np.full(len(rows), k * self.lanes + lane))
        if not found:
            return states.take(np.zeros(0, np.int64)), np.zeros(0, np.int64), np.zeros(0, np.int64)
        raw = join(found)
        from_, pair = np.concatenate(parents), np.concatenate(pairs)
        named = self.renamed(raw)
        keys = self.key(named)
        kept = np.nonzero(self._below(named))[0]
        self.check(len(kept))
        raw, from_, pair, keys = raw.take(kept), from_[kept], pair[kept], keys[kept]
        clock = raw.clock[:, None]
        slack = self.table.slack[self.rows, np.minimum(raw.pos, self.table.slack.shape[1] - 1), raw.last]
        ready = np.maximum(raw.ready, clock - slack.astype(np.int64))
        best = self.undominated(keys, np.concatenate([ready, clock], 1))
        return raw.take(best), from_[best], pair[best]

    def _below(self, states: States) -> npt.NDArray[np.bool_]:
        ways = (states.ready + self.table.tail[self.rows, states.pos, states.last]).max(1)
        kept: npt.NDArray[np.bool_] = ways <= self.limit
        if self.ends is None:
            return kept
        # Split at the clock into finished work and the rest; a running job belongs to the rest from its start.
        running = (states.ready > states.clock[:, None]) & (states.pos > 0)
        pos, last = states.pos - running, np.where(running, states.prior, states.last)
        spent = np.maximum(np.where(states.free > states.clock[:, None], states.begun, states.clock[:, None]), 0)
        paid = states.paid - np.where(
            running, self.moved[self.rows, pos, np.minimum(states.last, self.lanes - 1)], 0.0
        ).sum(1)
        # Identical engines are renamed to match the sets in the lookup table.
        ended = self.renamed(replace(states, pos=pos, last=last))
        kept &= spent @ self.table.price + paid + self.ends.least(ended) <= self.limit
        return kept

    def _schedule(self, row: int) -> Schedule:
        steps = []
        for parents, pairs in reversed(self.trail):
            steps.append(int(pairs[row]))
            row = int(parents[row])
        choice = [0] * sum(map(len, self.table.groups))
        position, order = [0] * self.nets, []
        for pair in reversed(steps):
            net, lane = divmod(pair, self.lanes)
            group = self.table.groups[net][position[net]]
            choice[group] = int(self.table.option[net, position[net], lane])
            order.append(JobKey(0, group))
            position[net] += 1
        return Schedule(tuple(choice), tuple(order))
