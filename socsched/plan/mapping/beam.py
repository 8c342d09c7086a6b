"""Beam search over schedules of networks that are chains, with contention in every step; deterministic.

A state is a moment at which an engine and a network are both free.  What completes it is bounded from below by the prices
of `relaxation`: time left idle and options dearer than a network's cheapest way to its end show at once.  The states of
least bound are kept.  Times are floating point here; whoever takes the schedule evaluates it exactly.

Source: Ow and Morton, "Filtered beam search in scheduling", Int. J. Production Research 26(1), 1988.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.plan.mapping.problem import JobKey, Problem, Schedule
from socsched.plan.mapping.relaxation import Relaxed

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
State = dict[str, Any]
_TINY = 1e-6


@dataclass(frozen=True, slots=True)
class Table:
    """A problem as arrays over network k, position g, lane e, lane before b (the last index: none before).

    `time` alone (ns, infinite where a lane has no option), `fixed` part of it, `bytes`; `lag[k, g, b, e]` what a hand-over
    takes; `option` its index; `worth` and `tail`: the price and the time from group g to the network's end.
    """

    lanes: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    length: Ints
    time: Floats
    fixed: Floats
    bytes: Floats
    lag: Floats
    option: Ints
    release: Floats
    price: Floats
    memory: float
    bandwidth: float
    worth: Floats
    tail: Floats


def chains(problem: Problem) -> tuple[tuple[int, ...], ...] | None:
    """Return the groups of every network in order, None for a problem that is not made of chains of single jobs."""
    if any(group.frames > 1 or any(o.share > 1 for o in group.options) for group in problem.groups):
        return None
    if problem.budgets or any(len(near) > 1 for near in (*problem.before, *problem.after)):
        return None
    found = []
    for group in problem.order:
        if not problem.before[group]:
            chain = [group]
            while problem.after[chain[-1]]:
                chain.append(problem.index[problem.edges[problem.after[chain[-1]][0]].sink])
            found.append(tuple(chain))
    return tuple(found)


def tabulate(problem: Problem, groups: tuple[tuple[int, ...], ...], relaxed: Relaxed) -> Table:
    """Return the arrays of a problem made of chains."""
    lanes = tuple(engine.id for engine in problem.engines for _ in range(engine.count))
    count, nets, most = len(lanes), len(groups), max(map(len, groups))
    time = np.full((nets, most + 1, count), np.inf)
    fixed, size = np.zeros_like(time), np.zeros_like(time)
    option = np.zeros(time.shape, np.int64)
    lag = np.zeros((nets, most + 1, count + 1, count))
    for k, chain in enumerate(groups):
        for g, index in enumerate(chain):
            for e, name in enumerate(lanes):
                for number, way in enumerate(problem.groups[index].options):
                    if way.engine == name and way.time_ns < time[k, g, e]:
                        time[k, g, e], option[k, g, e] = max(way.time_ns, 1), number
                        fixed[k, g, e] = sum(s.fixed_ns for s in way.segments)
                        size[k, g, e] = sum(s.bytes for s in way.segments)
            if g:
                hops = problem.edges[problem.before[index][0]].hops
                for b, e in np.ndindex(count, count):
                    hop = hops[option[k, g - 1, b]][option[k, g, e]]
                    reachable = hop and np.isfinite(time[k, g - 1, b]) and np.isfinite(time[k, g, e])
                    lag[k, g, b, e] = hop.way_ns if hop and reachable else np.inf
    price = np.array([relaxed.prices.get(name, 1.0) / problem.lanes(name) for name in lanes])
    total = price.sum() + relaxed.memory_price or 1.0
    price, memory = price / total, relaxed.memory_price / total
    bandwidth = problem.bandwidth / 1e9
    spent = np.where(size > 0, size / bandwidth, 0.0) if bandwidth else np.zeros_like(size)
    worth, tail = np.zeros((nets, most + 1, count + 1)), np.zeros((nets, most + 1, count + 1))
    for k, chain in enumerate(groups):
        for g in range(len(chain) - 1, -1, -1):
            way = lag[k, g] + time[k, g][None]
            worth[k, g] = (way * price + spent[k, g] * memory + worth[k, g + 1, :count]).min(1)
            tail[k, g] = (way + tail[k, g + 1, :count]).min(1)
    release = np.array([problem.groups[chain[0]].release_ns for chain in groups], float)
    length = np.array([len(chain) for chain in groups])
    arrays = (time, fixed, size, lag, option, release, price)
    return Table(lanes, groups, length, *arrays, memory, bandwidth, worth, tail)


def beam_search(problem: Problem, relaxed: Relaxed, width: int, waits: int = 0) -> Schedule | None:
    """Return the best schedule found with `width` states a step, letting `waits` events pass idle; None: no chains."""
    groups = chains(problem)
    if not groups:
        return None
    return with_conversions(problem, _Beam(tabulate(problem, groups, relaxed), width, waits).search())


class _Beam:
    def __init__(self, table: Table, width: int, waits: int) -> None:
        self.table, self.width, self.waits = table, width, waits
        self.nets, self.lanes = len(table.groups), len(table.lanes)
        self.rows = np.arange(self.nets)[None]

    def search(self) -> Schedule:
        """Assign one group a step and keep the states of least bound."""
        state = self._settle(self._first())
        trail: list[tuple[Ints, Ints]] = []
        for _ in range(int(self.table.length.sum())):
            state, parents, pairs = self._step(state)
            trail.append((parents, pairs))
        while (state["run"] >= 0).any():
            state = self._advance(state, np.ones(len(state["t"]), bool))
        return self._schedule(trail, int(state["t"].argmin()))

    def _first(self) -> State:
        shape = (1, self.lanes)
        return {
            "t": np.zeros(1),
            "run": np.full(shape, -1, np.int64),
            "lag": np.zeros(shape),
            "rem": np.zeros(shape),
            "time": np.ones(shape),
            "fixed": np.zeros(shape),
            "bytes": np.zeros(shape),
            "pos": np.zeros((1, self.nets), np.int64),
            "last": np.full((1, self.nets), self.lanes, np.int64),
            "busy": np.zeros((1, self.nets), bool),
        }

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
            can = (state["run"] >= 0).any(1)
            if wait == self.waits or not can.any():
                break
            state, origin = _take(state, np.nonzero(can)[0]), origin[can]
            state = self._advance(state, np.ones(len(origin), bool))
        children = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
        from_, chosen = np.concatenate(parents), np.concatenate(pairs)
        best = np.argsort(self._bound(children), kind="stable")[: self.width * 3]
        children, from_, chosen = self._settle(_take(children, best)), from_[best], chosen[best]
        bound = self._bound(children)
        parts = (children["t"][:, None], children["lag"] + children["rem"] * children["time"], children["run"])
        key = np.round(np.concatenate([*parts, children["pos"], children["last"]], 1), 1)
        _, first = np.unique(key, axis=0, return_index=True)
        kept = first[np.argsort(bound[first], kind="stable")][: self.width]
        return _take(children, kept), from_[kept], chosen[kept]

    def _assigned(self, state: State) -> tuple[State, Ints, Ints]:
        """Return every state with one more free network on a free lane, which state it came from, and the pair."""
        table = self.table
        free = ~state["busy"] & (state["pos"] < table.length)
        usable = np.isfinite(table.time[self.rows, np.minimum(state["pos"], table.time.shape[1] - 1)])
        usable &= np.isfinite(table.lag[self.rows, np.minimum(state["pos"], table.lag.shape[1] - 1), state["last"]])
        parent, net, lane = np.nonzero(free[:, :, None] & (state["run"] < 0)[:, None, :] & usable)
        child = _take(state, parent)
        row = np.arange(len(parent))
        position, before = child["pos"][row, net], child["last"][row, net]
        child["run"][row, lane], child["busy"][row, net] = net, True
        waiting = np.where(position == 0, np.maximum(table.release[net] - child["t"], 0), 0)
        child["lag"][row, lane] = table.lag[net, position, before, lane] + waiting
        child["rem"][row, lane] = 1.0
        for name, values in (("time", table.time), ("fixed", table.fixed), ("bytes", table.bytes)):
            child[name][row, lane] = values[net, position, lane]
        return child, parent, np.stack([net, lane], 1)

    def _stretch(self, state: State) -> tuple[npt.NDArray[np.bool_], Floats]:
        """Return which lanes compute, and by what factor traffic stretches them (max-min fair shares)."""
        active = (state["run"] >= 0) & (state["lag"] <= _TINY)
        if not self.table.bandwidth:
            return active, np.ones(active.shape)
        demand = np.where(active, state["bytes"] / np.maximum(state["time"] - state["fixed"], 1), 0.0)
        left = np.full(len(demand), self.table.bandwidth)
        level = np.full(len(demand), np.inf)
        for place, column in enumerate(np.sort(demand, 1).T):
            fair, open_ = left / (self.lanes - place), np.isinf(level)
            served = column <= fair
            left = np.where(served & open_, left - column, left)
            level = np.where(~served & open_, fair, level)
        share = np.minimum(demand, level[:, None])
        slow = state["fixed"] + state["bytes"] / np.maximum(share, 1e-12)
        return active, np.where(demand > share * (1 + 1e-12), np.maximum(slow / state["time"], 1.0), 1.0)

    def _advance(self, state: State, must: npt.NDArray[np.bool_]) -> State:
        """Let time pass to the next event in the states that `must`."""
        active, stretch = self._stretch(state)
        running = state["run"] >= 0
        pace = state["time"] * stretch
        left = np.where(running, np.where(active, state["rem"] * pace, state["lag"]), np.inf)
        passed = left.min(1)
        passed = np.where(must & np.isfinite(passed), passed, 0.0)
        state["t"] = state["t"] + passed
        state["lag"] = np.where(running & ~active, state["lag"] - passed[:, None], state["lag"])
        state["rem"] = np.where(active, state["rem"] - passed[:, None] / pace, state["rem"])
        row, lane = np.nonzero(active & (state["rem"] * state["time"] <= _TINY))
        net = state["run"][row, lane]
        state["busy"][row, net], state["last"][row, net] = False, lane
        state["pos"][row, net] += 1
        state["run"][row, lane], state["rem"][row, lane] = -1, 0.0
        return state

    def _settle(self, state: State) -> State:
        """Let time pass until a lane and a network are free, or nothing runs."""
        while True:
            open_ = (~state["busy"] & (state["pos"] < self.table.length)).any(1) & (state["run"] < 0).any(1)
            must = ~open_ & (state["run"] >= 0).any(1)
            if not must.any():
                return state
            state = self._advance(state, must)

    def _bound(self, state: State) -> Floats:
        """Return what bounds a state's end: priced work left, and the longest network left."""
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
        ways = state["t"][:, None] + own + table.tail[self.rows, following, last]
        return np.asarray(np.maximum(priced, ways.max(1)) + 1e-6 * ways.sum(1))

    def _schedule(self, trail: list[tuple[Ints, Ints]], last: int) -> Schedule:
        steps: list[tuple[int, int]] = []
        for parents, pairs in reversed(trail):
            steps.append((int(pairs[last, 0]), int(pairs[last, 1])))
            last = int(parents[last])
        choice = [0] * sum(map(len, self.table.groups))
        position = [0] * self.nets
        for net, lane in reversed(steps):
            choice[self.table.groups[net][position[net]]] = int(self.table.option[net, position[net], lane])
            position[net] += 1
        position = [0] * self.nets
        order: list[JobKey] = []
        for net, _ in reversed(steps):
            order.append(JobKey(0, self.table.groups[net][position[net]]))
            position[net] += 1
        return Schedule(tuple(choice), tuple(order))


def with_conversions(problem: Problem, schedule: Schedule) -> Schedule:
    """Return a schedule of groups with each conversion put right before the group that needs it."""
    order: list[JobKey] = []
    for key in schedule.order:
        for number in problem.before[key.index]:
            hop = problem.hop(number, schedule.choice)
            if hop and hop.engine:
                order.append(JobKey(key.frame, number, True))
        order.append(key)
    return Schedule(schedule.choice, tuple(order))


def _take(state: State, rows: Ints) -> State:
    return {name: values[rows] for name, values in state.items()}
