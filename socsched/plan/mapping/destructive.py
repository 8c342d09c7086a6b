"""A bound by exhaustion: no schedule is shorter than a limit when none is left after everything longer was cut off.

Contention is left out, so what holds here holds for everything that can run, at whatever instants jobs start.  A state
is a set of started jobs; of two with the same jobs started, the same engine last for every network, the one where no
time is later dominates: whatever follows the other can follow it at the same instants.

The price of what is left (`relaxation`) takes no idle time for granted.  So the ends of all schedules are swept first,
backwards: what a set of last jobs costs at the least, idle time between them included, is known then for the sweep
from the front, or known to be more than what the sweep backwards was allowed.  Limits rise until a schedule is found
or time is up.

Source: Klein and Scholl, "Computing lower bounds by destructive improvement", EJOR 112(2), 1999; Ibaraki, "The power of
dominance relations in branch-and-bound algorithms", J. ACM 24(2), 1977.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from socsched.plan.mapping.beam import Table, chains, enumerable, tabulate
from socsched.plan.mapping.problem import JobKey, Problem, Schedule
from socsched.plan.mapping.relaxation import Relaxed

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_FIELDS = ("pos", "last", "prior", "ready", "free", "begun", "clock", "paid")
LEADERS = 48
"""States of a kind that others of it are compared with, at most."""
STATES = 2_000_000
"""States of a step, at most: two hundred bytes each."""
COMBINATIONS = 20_000
"""Combinations of engines that the last jobs of all networks may be on, at most."""
_FAR = 1e17


@dataclass(frozen=True, slots=True)
class Exhausted:
    """What rising limits showed: nothing ends before `bound` (ns); the schedule found, if any; whether it is shortest.

    The schedule's end without contention is `value`; `ends` what the last full sweep backwards showed.
    """

    bound: int
    schedule: Schedule | None
    value: int
    complete: bool
    ends: Backwards | None = None


class OutOfTime(Exception):
    """The clock or the number of states ended a sweep before everything was seen."""


@dataclass(slots=True)
class _States:
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

    def take(self, rows: npt.NDArray[np.bool_] | Ints) -> _States:
        return _States(*(getattr(self, name)[rows] for name in _FIELDS))


class _Sweep:
    """What both directions share: tables, symmetry, dominance."""

    def __init__(self, table: Table, width: int, until: float) -> None:
        self.table, self.width, self.until = table, width, until
        self.nets, self.lanes = len(table.groups), len(table.lanes)
        self.rows = np.arange(self.nets)
        self.alike = _alike(table)
        self.time = np.where(np.isfinite(table.time), table.time, _FAR)
        self.lag = np.where(np.isfinite(table.lag), table.lag, _FAR)
        self.delay = table.delay
        self.moved = table.memory * table.bytes / table.bandwidth if table.bandwidth else np.zeros_like(table.bytes)
        base = self.lanes + 1
        self.seen = 0
        self.radix = (int(table.length.max()) + 1, base)

    def key(self, states: _States) -> Ints:
        """Return one number for the jobs done and the engines last."""
        found = np.zeros(len(states.clock), np.int64)
        for values, radix in ((states.pos, self.radix[0]), (states.last, self.radix[1])):
            for column in values.T:
                found = found * radix + column
        return found

    def renamed(self, states: _States) -> _States:
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


class Backwards(_Sweep):
    """All ends of schedules whose price stays within an allowance; `least` of every set of last jobs.

    Jobs come in the order of their ends, latest first: in time counted from the end, in the order of their starts.  An
    engine last is that of the job before the first of the set: it decides what the hand-over takes.
    """

    def __init__(self, table: Table, width: int, until: float, limit: float, upper: float) -> None:
        super().__init__(table, width, until)
        # The allowance is for prices only: nothing is known of the price of what takes longer than it.
        self.limit, self.upper = limit, upper
        self.prefix, self.head = self._prefixes()
        self.keys, self.costs = np.zeros(0, np.int64), np.zeros(0)
        self.seconds = 0.0

    def wider(self, factor: float, until: float) -> Backwards | None:
        """Return a sweep that is allowed more by a factor, None where it does not end in time."""
        least = float(self.prefix[self.rows, self.table.length].min(1).sum())
        wide = Backwards(self.table, self.width, until, least + (self.limit - least) * factor, self.upper)
        try:
            wide.sweep()
        except OutOfTime:
            return None
        return wide

    def _prefixes(self) -> tuple[Floats, Floats]:
        """Return the least price and the least time of what comes before job g when engine c runs the one before."""
        table = self.table
        most = int(table.length.max())
        price, head = (np.full((self.nets, most + 1, self.lanes + 1), _FAR) for _ in range(2))
        price[:, 0, self.lanes], head[:, 0, self.lanes] = 0.0, table.release
        for k in range(self.nets):
            for g in range(int(table.length[k])):
                length = self.lag[k, g] + self.time[k, g]
                cost = length * table.price + self.moved[k, g]
                price[k, g + 1, : self.lanes] = (price[k, g][:, None] + cost).min(0)
                head[k, g + 1, : self.lanes] = (head[k, g][:, None] + length + self.delay[k, g]).min(0)
        return np.minimum(price, _FAR), np.minimum(head, _FAR)

    def sweep(self) -> None:
        """Go through all sets of last jobs; raises OutOfTime."""
        begun = time.monotonic()
        grids = np.meshgrid(*[np.arange(self.lanes)] * self.nets, indexing="ij")
        last = np.stack([grid.ravel() for grid in grids], 1)
        count = len(last)
        zero = np.zeros((count, self.nets), np.int64)
        states = _States(
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

    def _note(self, states: _States) -> None:
        keys, cost = self.key(states), self._cost(states)
        order = np.lexsort((cost, keys))
        keys, cost = keys[order], cost[order]
        first = np.ones(len(keys), bool)
        first[1:] = keys[1:] != keys[:-1]
        self.keys = np.concatenate([self.keys, keys[first]])
        self.costs = np.concatenate([self.costs, cost[first]])

    def _cost(self, states: _States) -> Floats:
        cost: Floats = np.maximum(states.free, states.clock[:, None]) @ self.table.price + states.paid
        return cost

    def before(self, states: _States) -> Floats:
        """Return the least price of everything before the set, for every state."""
        found: Floats = self.prefix[self.rows, states.pos, states.last].sum(1)
        return found

    def _kept(self, states: _States) -> _States:
        ends = (states.ready + self.head[self.rows, states.pos, states.last]).max(1)
        return states.take((self._cost(states) + self.before(states) <= self.limit) & (ends <= self.upper))

    def _step(self, states: _States) -> _States:
        found = []
        for k in range(self.nets):
            left = states.take(states.pos[:, k] > 0)
            if not len(left.clock):
                continue
            g, lane, row = left.pos[:, k] - 1, left.last[:, k], np.arange(len(left.clock))
            begun = np.maximum(np.maximum(left.ready[:, k], left.free[row, lane]), left.clock)
            for b in range(self.lanes + 1):
                length = self.lag[k, g, b, lane] + self.time[k, g, lane]
                fits = ((g == 0) == (b == self.lanes)) & (length < _FAR)
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
        states = self.renamed(_joined(found))
        self.check(len(states.clock))
        clock = states.clock[:, None]
        times = np.concatenate([np.maximum(states.ready, clock), np.maximum(states.free, clock), clock], 1)
        return states.take(self.undominated(self.key(states), times))

    def least(self, states: _States) -> Floats:
        """Return what the jobs outside of the sets of `states` cost at the least."""
        missing, keys = self.limit - self.before(states), self.key(states)
        if not len(self.keys):
            return missing
        place = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.costs[place], missing)


class Forwards(_Sweep):
    """All schedules that may end within a limit, in the order of their starts."""

    def __init__(self, table: Table, width: int, until: float, limit: float, ends: Backwards | None) -> None:
        super().__init__(table, width, until)
        # Prices are floating point, times are whole: half a ns is more than their error.
        self.limit, self.ends = limit + 0.5, ends
        self.trail: list[tuple[Ints, Ints]] = []
        self.ends_at = 0

    def sweep(self) -> Schedule | None:
        """Return a schedule that ends within the limit, None when there is none; raises OutOfTime."""
        table = self.table
        states = _States(
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

    def _step(self, states: _States) -> tuple[_States, Ints, Ints]:
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
                fits = length < _FAR
                # The price from here on shows without a copy of the state whether it is worth one.
                end = begun + length.clip(max=_FAR)
                fits &= end + self.table.tail[k, g + 1, lane] <= self.limit
                free = np.maximum(left.free, begun[:, None])
                free[:, lane] = end.clip(max=_FAR).astype(np.int64)
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
        raw = _joined(found)
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

    def _below(self, states: _States) -> npt.NDArray[np.bool_]:
        ways = (states.ready + self.table.tail[self.rows, states.pos, states.last]).max(1)
        kept: npt.NDArray[np.bool_] = ways <= self.limit
        if self.ends is None:
            return kept
        # What has ended by the clock, and all the rest: a running job counts to the rest from where it began.
        running = (states.ready > states.clock[:, None]) & (states.pos > 0)
        pos, last = states.pos - running, np.where(running, states.prior, states.last)
        spent = np.maximum(np.where(states.free > states.clock[:, None], states.begun, states.clock[:, None]), 0)
        paid = states.paid - np.where(
            running, self.moved[self.rows, pos, np.minimum(states.last, self.lanes - 1)], 0.0
        ).sum(1)
        # Names of engines that are alike follow the sets that are looked up.
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


def states_of(pos: Ints, last: Ints, lanes: int) -> _States:
    """Return states of which only the jobs done and the engines last matter."""
    count = len(pos)
    none, free = np.zeros(pos.shape, np.int64), np.zeros((count, lanes), np.int64)
    return _States(pos, last, none, none, free, free, np.zeros(count, np.int64), np.zeros(count))


def _joined(parts: list[_States]) -> _States:
    return _States(*(np.concatenate([getattr(part, name) for part in parts]) for name in _FIELDS))


def _alike(table: Table) -> list[list[int]]:
    """Return the sets of engines that could swap names without contention."""
    sets: list[list[int]] = []
    count = len(table.lanes)
    for lane in range(count):
        for lanes in sets:
            swapped = np.arange(count + 1)
            swapped[[lanes[0], lane]] = lane, lanes[0]
            same = all(np.array_equal(v[..., lanes[0]], v[..., lane]) for v in (table.time, table.price))
            same &= not table.memory or np.array_equal(table.bytes[..., lanes[0]], table.bytes[..., lane])
            same &= np.array_equal(table.delay, table.delay[:, :, swapped][:, :, :, swapped[:count]])
            if same and np.array_equal(table.lag, table.lag[:, :, swapped][:, :, :, swapped[:count]]):
                lanes.append(lane)
                break
        else:
            sets.append([lane])
    return [lanes for lanes in sets if len(lanes) > 1]


def suitable(problem: Problem) -> bool:
    """Say whether `exhaust` can be tried: chains of plain jobs, and few enough combinations of engines."""
    groups = chains(problem)
    if not groups or not enumerable(problem):
        return False
    lanes, nets, most = sum(engine.count for engine in problem.engines), len(groups), max(map(len, groups))
    return bool(lanes**nets <= COMBINATIONS and ((most + 1) * (lanes + 1)) ** nets < 1 << 62)


def exhaust(
    problem: Problem, relaxed: Relaxed, upper: int, step: float, until: float, width: int = STATES, exact: bool = True
) -> Exhausted:
    """Raise a limit by shares `step` of the relaxation's bound until a schedule ends within it.

    `exact`: then lower it until none is shorter.  Stops at `upper` (ns), at `until` (`time.monotonic`) and where a
    sweep has more than `width` states.  `suitable` problems only.
    """
    groups = chains(problem)
    assert groups
    table = tabulate(problem, groups, relaxed)
    least = float(table.worth[np.arange(len(groups)), 0, len(table.lanes)].sum())
    bound, reached, share = relaxed.bound, relaxed.bound, 0.5
    found: Schedule | None = None
    value, known, highest = 0, None, float(upper)
    grain = max(int(relaxed.bound * step), 1)
    while reached < upper:
        limit = min(reached + grain, upper)
        try:
            ends = Backwards(table, width, until, least + max(limit - least, 0) * share, highest)
            ends.sweep()
            known = ends
            ahead = Forwards(table, width, until, limit, ends)
            schedule = ahead.sweep()
        except OutOfTime:
            return Exhausted(bound, found, value, False, known)
        # Either sweep grows with what it is allowed: let them see about as many states.
        if ahead.seen > 2 * ends.seen and share < 0.8:
            share += 0.05
        elif ends.seen > 2 * ahead.seen and share > 0.3:
            share -= 0.05
        if schedule is None:
            bound, reached = max(bound, limit + 1), limit
            continue
        found, value = schedule, ahead.ends_at
        if value - 1 <= reached or not exact:
            break
        upper, grain = value - 1, max(value - 1 - reached, 1)
    return Exhausted(bound, found, value, True, known)
