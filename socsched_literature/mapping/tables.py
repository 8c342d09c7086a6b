"""Problems made of chains of single jobs, as arrays: the input of beam search, enumeration and the sweeps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from socsched.planning.mapping.problem import JobKey, Problem, Schedule
from socsched_literature.mapping.relaxation import Relaxed

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Table:
    """A problem as arrays over network k, position g, lane e, previous lane b (the last index: none).

    `time` without contention (ns, infinite if a lane has no option), its `fixed` part, `bytes`; `lag[k, g, b, e]` is
    the time a hand-over occupies its lane, `delay` the time that passes since the previous group, `slack[k, g, b]` its
    maximum; `option` the index of the option; `worth` and `tail` the price and the time from group g to the end of the
    network.
    """

    lanes: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    length: Ints
    time: Floats
    fixed: Floats
    bytes: Floats
    lag: Floats
    delay: Floats
    slack: Floats
    option: Ints
    release: Floats
    price: Floats
    memory: float
    bandwidth: float
    worth: Floats
    tail: Floats

    def alike(self, contended: bool) -> list[list[int]]:
        """Return the sets of interchangeable lanes, with or without contention."""
        values = [self.time, self.price]
        values += [self.fixed, self.bytes] if contended else [self.bytes] if self.memory else []
        sets: list[list[int]] = []
        count = len(self.lanes)
        for lane in range(count):
            for lanes in sets:
                swapped = np.arange(count + 1)
                swapped[[lanes[0], lane]] = lane, lanes[0]
                same = all(np.array_equal(each[..., lanes[0]], each[..., lane]) for each in values)
                hops = (self.lag, self.delay)
                if same and all(np.array_equal(h, h[:, :, swapped][:, :, :, swapped[:count]]) for h in hops):
                    lanes.append(lane)
                    break
            else:
                sets.append([lane])
        return [lanes for lanes in sets if len(lanes) > 1]


def chains(problem: Problem) -> tuple[tuple[int, ...], ...] | None:
    """Return the groups of every network in order, None if the problem is not made of chains of single jobs."""
    if any(group.frames > 1 or any(o.share > 1 for o in group.options) for group in problem.groups):
        return None
    if problem.budgets or any(group.twin for group in problem.groups):
        return None
    if any(len(near) > 1 for near in (*problem.before, *problem.after)):
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
    alone = np.full((nets, most + 1, count), np.inf)
    fixed, size = np.zeros_like(alone), np.zeros_like(alone)
    option = np.zeros(alone.shape, np.int64)
    lag = np.zeros((nets, most + 1, count + 1, count))
    delay = np.zeros_like(lag)
    for k, chain in enumerate(groups):
        for g, index in enumerate(chain):
            for e, name in enumerate(lanes):
                for number, way in enumerate(problem.groups[index].options):
                    if way.engine == name and way.time_ns < alone[k, g, e]:
                        alone[k, g, e], option[k, g, e] = max(way.time_ns, 1), number
                        fixed[k, g, e] = sum(s.fixed_ns for s in way.segments)
                        size[k, g, e] = sum(s.bytes for s in way.segments)
            if g:
                hops = problem.edges[problem.before[index][0]].hops
                for b, e in np.ndindex(count, count):
                    hop = hops[option[k, g - 1, b]][option[k, g, e]]
                    reachable = hop and np.isfinite(alone[k, g - 1, b]) and np.isfinite(alone[k, g, e])
                    lag[k, g, b, e] = hop.way_ns - hop.delay_ns if hop and reachable else np.inf
                    delay[k, g, b, e] = hop.delay_ns if hop and reachable else 0.0
    price = np.array([relaxed.prices.get(name, 1.0) / problem.lanes(name) for name in lanes])
    total = price.sum() + relaxed.memory_price or 1.0
    price, memory = price / total, relaxed.memory_price / total
    bandwidth = problem.bandwidth / 1e9
    spent = np.where(size > 0, size / bandwidth, 0.0) if bandwidth else np.zeros_like(size)
    worth, tail = np.zeros((nets, most + 1, count + 1)), np.zeros((nets, most + 1, count + 1))
    for k, chain in enumerate(groups):
        for g in range(len(chain) - 1, -1, -1):
            times = np.where(np.isfinite(alone[k, g]), lag[k, g] + alone[k, g], np.inf)
            worth[k, g] = (
                np.where(np.isfinite(times), times, 1e30) * price + spent[k, g] * memory + worth[k, g + 1, :count]
            ).min(1)
            tail[k, g] = (times + delay[k, g] + tail[k, g + 1, :count]).min(1)
    release = np.array([problem.groups[chain[0]].release_ns for chain in groups], float)
    length = np.array([len(chain) for chain in groups])
    arrays = (alone, fixed, size, lag, delay, delay.max(3), option, release, price)
    return Table(lanes, groups, length, *arrays, memory, bandwidth, worth, tail)


def enumerable(problem: Problem) -> bool:
    """Return whether `enumerate_below` covers every schedule of a problem.

    This requires chains, one single-segment option per engine, and no work between the groups.
    """
    hops = [hop for edge in problem.edges for row in edge.hops for hop in row]
    single = all(
        len({o.engine for o in group.options}) == len(group.options)
        and all(len(o.segments) == 1 for o in group.options)
        for group in problem.groups
    )
    plain = all(hop is None or (hop.engine is None and hop.handoff_ns == 0) for hop in hops)
    return single and plain and chains(problem) is not None


def with_conversions(problem: Problem, schedule: Schedule) -> Schedule:
    """Return a schedule of groups with each conversion inserted right before the group that needs it."""
    order: list[JobKey] = []
    for key in schedule.order:
        for number in problem.before[key.index]:
            hop = problem.hop(number, schedule.choice)
            if hop and hop.engine:
                order.append(JobKey(key.frame, number, True))
        order.append(key)
    return Schedule(schedule.choice, tuple(order), schedule.holds)
