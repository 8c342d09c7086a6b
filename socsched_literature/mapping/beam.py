"""Beam search over schedules of networks that are chains, with contention in every step; deterministic.

A state is a moment at which an engine and a network are both free.  Its completion is bounded from below by the prices
of `relaxation`: idle time, and options dearer than a network's cheapest continuation, raise the bound immediately.  The
states with the least bounds are kept.  Times are floating point here; the caller evaluates the schedule exactly.

Source: Ow and Morton, "Filtered beam search in scheduling", Int. J. Production Research 26(1), 1988.
"""

from __future__ import annotations

import time

import numpy as np

from socsched.planning.mapping.problem import JobKey, Problem, Schedule
from socsched_literature.mapping.fluid import Fluid, State, take
from socsched_literature.mapping.relaxation import Relaxed
from socsched_literature.mapping.tables import Floats, Ints, Table, chains, tabulate, with_conversions

ALL_WAITS = 1 << 30
"""Lanes may wait for any number of job completions."""


def beam_search(problem: Problem, relaxed: Relaxed, width: int) -> Schedule | None:
    """Return the best schedule found with `width` states per step; None if the problem is not made of chains.

    No lane waits while a network is free.
    """
    groups = chains(problem)
    if not groups:
        return None
    found = Beam(tabulate(problem, groups, relaxed), width, 0).search()
    return with_conversions(problem, found) if found else None


def enumerate_below(
    problem: Problem, relaxed: Relaxed, limit: int, width: int, until: float, waiting: bool = True
) -> tuple[Schedule | None, bool]:
    """Enumerate every schedule whose makespan may be below `limit` (ns); return the best and whether all were covered.

    Coverage is incomplete if a step has more than `width` states or the clock (`time.monotonic`) passes `until`.  Lanes
    may wait for any event; without `waiting`, schedules in which a lane waits while a network is free are left out and
    coverage counts as incomplete.  Of states that differ only in elapsed time, the earlier one is kept.
    """
    groups = chains(problem)
    if not groups:
        return None, False
    beam = Beam(tabulate(problem, groups, relaxed), width, ALL_WAITS if waiting else 0, float(limit), until)
    found = beam.search()
    return found, beam.complete and waiting


class Beam:
    """The search over a table: `width` states per step, each also expanded after up to `waits` further job completions.

    After the search, `complete` is true if neither the width nor the clock (`until`) cut off anything below `limit`.
    """

    def __init__(self, table: Table, width: int, waits: int, limit: float = np.inf, until: float = np.inf) -> None:
        self.table, self.width, self.waits, self.limit, self.until = table, width, waits, limit, until
        self.fluid = Fluid(table)
        self.nets, self.lanes = len(table.groups), len(table.lanes)
        self.rows = np.arange(self.nets)[None]
        self.complete = True
        self.alike = table.alike(contended=True)
        self.released = not table.release.any()
        self.factors = (
            np.random.default_rng(0).integers(1, 2**62, 3 * self.lanes + 3 * self.nets + 1, dtype=np.int64) | 1
        )

    def search(self) -> Schedule | None:
        """Assign one group per step and keep the states of least bound; None if no state stays below the limit."""
        state = self.fluid.settle(self.fluid.first())
        trail: list[tuple[Ints, Ints]] = []
        for _ in range(int(self.table.length.sum())):
            if time.monotonic() > self.until:
                self.complete = False
                return None
            state, parents, pairs = self._step(state)
            if not len(parents):
                return None
            trail.append((parents, pairs))
        while (state["run"] >= 0).any():
            state = self.fluid.advance(state, np.ones(len(state["t"]), bool))
        return self._schedule(trail, int(state["t"].argmin()))

    def _step(self, state: State) -> tuple[State, Ints, Ints]:
        found: list[State] = []
        parents: list[Ints] = []
        pairs: list[Ints] = []
        origin = np.arange(len(state["t"]))
        for wait in range(self.waits + 1):
            child, parent, pair = self._assigned(state)
            found.append(child)
            parents.append(origin[parent])
            pairs.append(pair)
            can = np.nonzero((state["run"] >= 0).any(1))[0]
            if wait == self.waits or not len(can):
                break
            state = self.fluid.past(take(state, can))
            waiting = self._below(state)
            state, origin = take(state, waiting), origin[can][waiting]
        children = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
        from_, chosen = np.concatenate(parents), np.concatenate(pairs)
        children, from_, chosen = self._cut(children, from_, chosen, self.width * 3)
        children = self.fluid.settle(children)
        kept = self._below(children)
        children, from_, chosen = take(children, kept), from_[kept], chosen[kept]
        first = self._distinct(children)
        return self._cut(take(children, first), from_[first], chosen[first], self.width)

    def _below(self, state: State) -> Ints:
        """Return the states whose bound is below the limit."""
        if np.isinf(self.limit):
            return np.arange(len(state["t"]))
        return np.nonzero(self._bound(state)[0] < self.limit)[0]

    def _cut(self, state: State, parents: Ints, pairs: Ints, width: int) -> tuple[State, Ints, Ints]:
        """Keep the `width` states of least bound."""
        if len(parents) <= width and np.isfinite(self.limit):
            return state, parents, pairs
        self.complete &= len(parents) <= width
        bound, ways = self._bound(state)
        best = np.argsort(bound + 1e-6 * ways, kind="stable")[:width]
        return take(state, best), parents[best], pairs[best]

    def _distinct(self, state: State) -> Ints:
        """Return one state per equivalence class: the earliest of those that differ only in elapsed time.

        Identical engines are interchangeable; times are compared to a tenth of a ns.
        """
        run, last = state["run"], state["last"]
        left, rest = state["lag"], state["rem"] * state["time"]
        for lanes in self.alike:
            mark = np.stack([np.where(last == lane, self.rows, self.nets).min(1) for lane in lanes], 1)
            order = np.argsort(run[:, lanes] * (self.nets + 1) + mark, axis=1, kind="stable")
            picked = np.array(lanes)[order]
            place = np.arange(len(run))[:, None]
            names = np.tile(np.arange(self.lanes + 1), (len(run), 1))
            names[place, picked] = np.array(lanes)
            run, left, rest = run.copy(), left.copy(), rest.copy()
            for values, source in ((run, state["run"]), (left, state["lag"]), (rest, state["rem"] * state["time"])):
                values[:, lanes] = source[place, picked]
            last = names[place, last]
        clock = np.zeros(len(run)) if self.released else state["t"]
        since = np.minimum(state["t"][:, None] - state["done"], self._slack(state))
        whole = (np.rint(values * 10) for values in (left, rest, since, clock[:, None]))
        parts = (run, state["pos"], last, *whole)
        key = np.concatenate([part.astype(np.int64) for part in parts], 1)
        with np.errstate(over="ignore"):
            mixed = (key * self.factors[: key.shape[1]]).sum(1)
        early = np.argsort(state["t"], kind="stable")
        return np.asarray(early[np.unique(mixed[early], return_index=True)[1]])

    def _slack(self, state: State) -> Floats:
        """Return the upper limit on the delay before each network's next group."""
        slack = self.table.slack[self.rows, np.minimum(state["pos"], self.table.slack.shape[1] - 1), state["last"]]
        return np.where(state["busy"], 0.0, slack)

    def _assigned(self, state: State) -> tuple[State, Ints, Ints]:
        """Return every state with one more free network on a free lane, its parent state, and the pair."""
        table = self.table
        free = ~state["busy"] & (state["pos"] < table.length)
        usable = np.isfinite(table.time[self.rows, np.minimum(state["pos"], table.time.shape[1] - 1)])
        usable &= np.isfinite(table.lag[self.rows, np.minimum(state["pos"], table.lag.shape[1] - 1), state["last"]])
        parent, net, lane = np.nonzero(free[:, :, None] & (state["run"] < 0)[:, None, :] & usable)
        position, before = state["pos"][parent, net], state["last"][parent, net]
        waiting = np.where(position == 0, np.maximum(table.release[net] - state["t"][parent], 0), 0)
        since = state["t"][parent] - state["done"][parent, net]
        lag = table.lag[net, position, before, lane] + waiting
        lag = lag + np.maximum(table.delay[net, position, before, lane] - since, 0)
        if np.isfinite(self.limit):
            # Compute the increase of the state's bound first, so that pruned children cost no array copies.
            way = lag + table.time[net, position, lane]
            more = way * table.price[lane] + table.worth[net, position + 1, lane] - table.worth[net, position, before]
            if table.bandwidth:
                more += table.memory * table.bytes[net, position, lane] / table.bandwidth
            ends = state["t"][parent] + way + table.tail[net, position + 1, lane]
            kept = np.nonzero((self._priced(state)[0][parent] + more < self.limit) & (ends < self.limit))[0]
            parent, net, lane, lag, position = parent[kept], net[kept], lane[kept], lag[kept], position[kept]
        child = take(state, parent)
        row = np.arange(len(parent))
        child["run"][row, lane], child["busy"][row, net] = net, True
        child["lag"][row, lane] = lag
        child["rem"][row, lane] = 1.0
        for name, values in (("time", table.time), ("fixed", table.fixed), ("bytes", table.bytes)):
            child[name][row, lane] = values[net, position, lane]
        latest = child["latest"]
        group = np.where(latest >= 0, child["pos"][row, latest] - 1, -1)
        return child, parent, np.stack([net, lane, latest, group], 1)

    def _bound(self, state: State) -> tuple[Floats, Floats]:
        """Return the bound on a state's end (from priced work and the longest network), and the sum of network ends."""
        priced, ways = self._priced(state)
        return np.maximum(priced, ways.max(1)), ways.sum(1)

    def _priced(self, state: State) -> tuple[Floats, Floats]:
        """Return elapsed time plus the price of all remaining work, and the earliest end of each network."""
        table, running = self.table, state["run"] >= 0
        left = np.where(running, state["lag"] + state["rem"] * state["time"], 0.0)
        following, last = state["pos"] + state["busy"], state["last"].copy()
        own = np.zeros(last.shape)
        row, lane = np.nonzero(running)
        net = state["run"][row, lane]
        last[row, net], own[row, net] = lane, left[row, lane]
        priced = state["t"] + (left * table.price).sum(1) + table.worth[self.rows, following, last].sum(1)
        if table.bandwidth:
            moving = np.where(running, state["rem"] * state["bytes"], 0.0)
            priced = priced + table.memory * moving.sum(1) / table.bandwidth
        # A delay that has already elapsed since the last group ended does not count again.
        passed = np.where(state["busy"], 0.0, np.minimum(state["t"][:, None] - state["done"], self._slack(state)))
        ways = state["t"][:, None] + own + table.tail[self.rows, following, last] - passed
        return priced, ways

    def _schedule(self, trail: list[tuple[Ints, Ints]], last: int) -> Schedule:
        steps: list[tuple[int, ...]] = []
        for parents, pairs in reversed(trail):
            steps.append(tuple(int(value) for value in pairs[last]))
            last = int(parents[last])
        choice = [0] * sum(map(len, self.table.groups))
        position = [0] * self.nets
        for net, lane, _, _ in reversed(steps):
            choice[self.table.groups[net][position[net]]] = int(self.table.option[net, position[net], lane])
            position[net] += 1
        position = [0] * self.nets
        order: list[JobKey] = []
        holds: list[tuple[JobKey, JobKey]] = []
        for net, _, latest, group in reversed(steps):
            order.append(JobKey(0, self.table.groups[net][position[net]]))
            if latest >= 0 and latest != net:
                holds.append((order[-1], JobKey(0, self.table.groups[latest][group])))
            position[net] += 1
        return Schedule(tuple(choice), tuple(order), tuple(holds))
