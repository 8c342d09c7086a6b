"""Candidate cuts of a network: shortest paths over units and places, under many prices.

A path through the units changes places wherever that pays: it weighs time, or energy, and may price one engine's time
above that of others.  As prices vary, the paths sweep the convex hull of the possible trade-offs: the same list serves
an overloaded engine, a late chain, and energy.  (Shortest paths under prices are Lagrangian relaxation: Handler & Zang,
"A dual algorithm for the constrained shortest path problem", Networks 10, 1980.)  Between the hull's corners, where a
change of place costs so much that no price proposes one, lie the cuts that divide a network between two engines: those
with one border are all listed, and the best-balanced ones with two.

Cuts that let branches of a network run at the same time: one engine keeps the network, another takes a branch.

A branch is a run of consecutive units that no unit just before it feeds: it reads what was finished earlier, and the
units in between, or those after it up to where it is read, do not need it.  The first engine's part ends where the
branch may start, so that both go on from there together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from socsched.planning.cutting.divisible import NEVER, Divisible, Floats, Leg, Legs, Place, Table

PRICES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Surcharges on the time of an engine, as multiples of that time."""
WATTS = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Energy value of a second of latency (W) where energy is weighed."""
LEFT = (0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.8, 0.9)
"""Shares of its time for the whole network that an engine may keep when it hands over a middle section."""
_Integers = np.ndarray[Any, np.dtype[np.int64]]


def segmentations(stage: Divisible, borders: Sequence[tuple[float, float]] | None = None) -> list[Legs]:
    """Return different ways to cut a stage, including those with a single leg.

    `borders`: times (ns) to reach each place from the stages before, and from there to the stages after.
    """
    engines = dict.fromkeys(place.engine for place in stage.places)
    factors = [
        [1.0 + (price if place.engine == dear else 0.0) for place in stage.places]
        for dear, price in [("", 0.0), *itertools.product(engines, PRICES)]
    ]
    table = stage.table()
    found = dict.fromkeys(_paths(stage, table, factors, borders))
    if stage.shared is None:
        stage.shared = list(dict.fromkeys(_shared(stage, table)))
    found |= dict.fromkeys(stage.shared)
    return list(found)


def _shared(stage: Divisible, table: Table) -> Iterator[Legs]:
    """Yield ways to divide the units between two engines, each at its fastest place."""
    chosen = _representatives(stage)
    sums = {p: _Sums.of(table.time[:, p]) for p in chosen}
    cuts = np.arange(1, stage.units)
    for a, b in itertools.permutations(chosen, 2):
        first, second = stage.places[a], stage.places[b]
        longest = np.maximum(sums[a].between(0, cuts), sums[b].between(cuts, stage.units))
        for index in np.argsort(longest, kind="stable"):
            if longest[index] < NEVER:
                yield (Leg(int(cuts[index]), first), Leg(stage.units, second))
        for i, j in _inner(stage.units, table.change_ns[:, a, b], table.change_ns[:, b, a], sums[a], sums[b]):
            yield (Leg(i, first), Leg(j, second), Leg(stage.units, first))


@dataclass(frozen=True, slots=True)
class _Sums:
    """Times (ns) of the first n units on a place, refused units counting as zero, and the number of refused units."""

    time: Floats
    refused: _Integers

    @staticmethod
    def of(times: Floats) -> _Sums:
        able = times < NEVER
        time = np.concatenate(([0.0], np.cumsum(np.where(able, times, 0.0))))
        return _Sums(time, np.concatenate(([0], np.cumsum(~able))))

    def between(self, begin: _Integers | int, end: _Integers | int) -> Floats:
        """Return the time of units `begin` up to `end` (exclusive), infinite where the place refuses one."""
        refused = self.refused[end] - self.refused[begin]
        return np.where(refused > 0, NEVER, self.time[end] - self.time[begin])


def _inner(units: int, there: Floats, back: Floats, mine: _Sums, other: _Sums) -> Iterator[tuple[int, int]]:
    """Yield middle sections for another place: the best-balanced, and the fastest at each share of `LEFT` kept.

    `there` and `back`: costs of the changes of place at each cut (ns); `mine`: times at the place that keeps the rest.
    """
    i, j = np.triu_indices(units - 1, 1)
    i, j = i + 1, j + 1
    kept, given = mine.between(0, i) + mine.between(j, units), other.between(i, j)
    total = kept + given + there[i - 1] + back[j - 1]
    able = total < NEVER
    i, j, kept, given, total = i[able], j[able], kept[able], given[able], total[able]
    found = [int(index) for index in np.argsort(np.maximum(kept, given), kind="stable")[:2]]
    fastest = []
    for share in LEFT:
        less = np.flatnonzero(kept <= share * mine.time[-1])
        if less.size:
            fastest.append((int(less[0]), int(less[np.argmin(total[less])])))
    found += [best for _, best in sorted(fastest, key=lambda pair: pair[0])]
    yield from dict.fromkeys((int(i[index]), int(j[index])) for index in found)


def _representatives(stage: Divisible) -> list[int]:
    """Return the fastest place of each engine, once for equal engines."""
    by_engine: dict[str, tuple[float, int]] = {}
    for p, place in enumerate(stage.places):
        total = stage.entry_ns[p] + sum(1e12 if (time := times[p]) is None else time for times in stage.time_ns)
        by_engine[place.engine] = min(by_engine.get(place.engine, (NEVER, p)), (total, p))
    different = {tuple(times[p] for times in stage.time_ns): (total, p) for total, p in reversed(by_engine.values())}
    return [p for _, p in sorted(different.values())]


def _paths(
    stage: Divisible,
    table: Table,
    factors: Sequence[Sequence[float]],
    borders: Sequence[tuple[float, float]] | None,
) -> Iterator[Legs]:
    """Yield the legs of least price: time under each of `factors` (by place), then energy and time at each of `WATTS`.

    One pass over the units serves all prices: arrays are [price, place] or [price, source, sink].
    """
    count = len(stage.places)
    weight = np.array([*factors, *([watts] * count for watts in WATTS)])
    microjoules = np.array([0.0] * len(factors) + [1e3] * len(WATTS))[:, None]

    def price(time: Floats, energy: Floats | float) -> Floats:
        finite = np.where(time < NEVER, time, 0.0)
        return np.where(time < NEVER, finite * weight + energy * microjoules, NEVER)

    def change(cut: int) -> Floats:
        time, energy = table.change_ns[cut], table.change_uj[cut]
        finite = np.where(time < NEVER, time, 0.0)
        priced = finite * weight[:, None, :] + energy * microjoules[:, :, None]
        return np.where(time < NEVER, priced, NEVER)

    enters = price(np.array(stage.entry_ns, float), np.array(stage.entry_uj, float))
    before, after = np.array(borders or [(0.0, 0.0)] * count, float).T
    value = enters + price(before, 0.0)
    here = np.arange(count)
    came = np.empty((stage.units, len(weight), count), int)
    for unit in range(stage.units):
        came[unit] = here
        if unit:
            total = (value[:, :, None] + change(unit - 1)) + enters[:, None, :]
            total[:, here, here] = NEVER
            source = total.argmin(axis=1)
            cheapest = np.take_along_axis(total, source[:, None, :], axis=1)[:, 0, :]
            moved = cheapest < value
            came[unit] = np.where(moved, source, here)
            value = np.where(moved, cheapest, value)
        value = value + price(table.time[unit], table.energy[unit])
    ends = value + price(after, 0.0)
    for number, last in enumerate(ends.argmin(axis=1)):
        if ends[number, last] < NEVER:
            yield _legs(stage, came[:, number], int(last))


def _legs(stage: Divisible, came: _Integers, last: int) -> Legs:
    legs, place, end = list[Leg](), last, stage.units
    for unit in reversed(range(stage.units)):
        before = int(came[unit, place])
        if before != place or unit == 0:
            legs.insert(0, Leg(end, stage.places[place]))
            place, end = before, unit
    return tuple(legs)


def twins(stage: Divisible) -> dict[Place, list[Place]]:
    """Return for every place those on engines of equal cost, such as the other of two; itself included."""
    columns = [
        (place.precision, place.share, *(t[p] for t in stage.time_ns), *(e[p] for e in stage.energy_uj))
        for p, place in enumerate(stage.places)
    ]
    return {
        place: [other for q, other in enumerate(stage.places) if columns[q] == columns[p]]
        for p, place in enumerate(stage.places)
    }


def shift_borders(stage: Divisible, legs: Legs) -> Iterator[Legs]:
    """Yield the legs with one border moved by one or two units, or one leg merged into a neighbour."""
    for index in range(len(legs) - 1):
        low = legs[index - 1].end if index else 0
        for step in (-2, -1, 1, 2):
            end = legs[index].end + step
            if low < end < legs[index + 1].end and _able(stage, legs, index, end):
                yield (*legs[:index], Leg(end, legs[index].place), *legs[index + 1 :])
        yield merge_neighbours((*legs[:index], *legs[index + 1 :]))
        yield merge_neighbours((*legs[:index], Leg(legs[index + 1].end, legs[index].place), *legs[index + 2 :]))


def _able(stage: Divisible, legs: Legs, index: int, end: int) -> bool:
    number: Mapping[object, int] = {place: p for p, place in enumerate(stage.places)}
    low, high = sorted((legs[index].end, end))
    taker = number[legs[index if end > legs[index].end else index + 1].place]
    return all(stage.time_ns[unit][taker] is not None for unit in range(low, high))


def duration_ns(stage: Divisible, legs: Legs) -> int | None:
    """Return the total time (ns) of the legs in sequence, changes of place included; None where an engine refuses."""
    number = {place: p for p, place in enumerate(stage.places)}
    total, start, before = 0, 0, -1
    for leg in legs:
        here = number[leg.place]
        times = [stage.time_ns[unit][here] for unit in range(start, leg.end)]
        change = stage.change(start - 1, before, here) if start else (0, 0)
        if None in times or change is None:
            return None
        total += stage.entry_ns[here] + change[0] + sum(time for time in times if time is not None)
        start, before = leg.end, here
    return total


def merge_neighbours(legs: Legs) -> Legs:
    """Return the legs with neighbours in one place merged."""
    result: list[Leg] = []
    for leg in legs:
        if result and result[-1].place == leg.place:
            result[-1] = leg
        else:
            result.append(leg)
    return tuple(result)


BEST = 4
"""Branches proposed for a pair of engines, those with the largest gain."""
GAIN = 0.01
"""Least gain, as a share of the network's time on its fastest engine."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Units `begin` to `end` (exclusive), which read units before `fork` only; `beside` may run at the same time."""

    fork: int
    begin: int
    end: int
    beside: tuple[int, ...]


def branches(stage: Divisible) -> list[Branch]:
    """Return the branches of a network during which other units may run."""
    needs = _needs(stage)
    known: list[set[int]] = []
    for need in needs:
        known.append(need.union(*(known[unit] for unit in need)))
    found = []
    for begin in range(1, stage.units):
        if begin - 1 in needs[begin] or not needs[begin]:
            continue
        inside, end = {begin}, begin + 1
        while end < stage.units and needs[end] & inside and needs[end] - inside <= known[begin]:
            inside.add(end)
            end += 1
        fork = max(known[begin]) + 1
        after = (unit for unit in range(end, stage.units) if not known[unit] & inside)
        beside = (*(unit for unit in range(fork, begin)), *after)
        if beside:
            found.append(Branch(fork, begin, end, beside))
    return found


def _needs(stage: Divisible) -> list[set[int]]:
    """Return by unit the units it reads."""
    home = {name: unit for unit, members in enumerate(stage.members) for name in members}
    layers = {layer.name: layer for layer in stage.network.layers}
    return [
        {home[name] for member in members for name in layers[member].inputs if name in home} - {unit}
        for unit, members in enumerate(stage.members)
    ]


def parallel_cuts(stage: Divisible) -> dict[Legs, int]:
    """Return cuts that run a branch, or all that pay, beside the rest of the network, with the estimated time (ns).

    Only those are listed that are faster than the whole network on any engine.
    """
    if stage.parallel is None:
        stage.parallel = dict(_parallel_cuts(stage))
    return stage.parallel


def _parallel_cuts(stage: Divisible) -> Iterator[tuple[Legs, int]]:
    every = branches(stage)
    if not every:
        return
    table = stage.table()
    totals = table.time.sum(axis=0)
    fastest: dict[str, int] = {}
    for number in sorted(range(len(stage.places)), key=lambda p: float(totals[p])):
        fastest.setdefault(stage.places[number].engine, number)
    alone = min(stage.entry_ns[number] + float(totals[number]) for number in fastest.values())
    for kept, given in itertools.permutations(fastest.values(), 2):
        if totals[kept] == NEVER:
            continue
        whole = stage.entry_ns[kept] + int(totals[kept])
        gains = [(_gain(stage, branch, kept, given), branch) for branch in every]
        paying = sorted((pair for pair in gains if pair[0] > 0), key=lambda pair: -pair[0])
        together: list[tuple[float, Branch]] = []
        for gain, branch in paying:
            if len(together) < BEST and all(
                branch.begin >= other.end or branch.end <= other.fork for _, other in together
            ):
                together.append((gain, branch))
        for some in [*([pair] for pair in paying[:BEST]), *([together] if len(together) > 1 else [])]:
            chosen = [branch for _, branch in some]
            time = round(whole - sum(gain for gain, _ in some))
            if time < (1 - GAIN) * alone:
                yield _branch_legs(stage, chosen, kept, given), time


def _gain(stage: Divisible, branch: Branch, kept: int, given: int) -> float:
    """Return the time (ns) saved by running a branch on another engine; less than none where that refuses a unit."""
    table, units = stage.table(), slice(branch.begin, branch.end)
    there = table.change_ns[branch.fork - 1, kept, given] + table.time[units, given].sum() + stage.entry_ns[given]
    back = table.change_ns[branch.end - 1, given, kept] if branch.end < stage.units else 0.0
    beside = table.time[list(branch.beside), kept].sum() + stage.entry_ns[kept]
    return float(beside + table.time[units, kept].sum() - max(beside, there + back) - 2 * stage.entry_ns[kept])


def _branch_legs(stage: Divisible, chosen: list[Branch], kept: int, given: int) -> Legs:
    mine, other = stage.places[kept], stage.places[given]
    borders = {branch.begin: mine for branch in chosen} | {branch.end: other for branch in chosen}
    borders = {branch.fork: mine for branch in chosen if branch.fork not in borders} | borders
    legs = [Leg(end, borders[end]) for end in sorted(borders)]
    return tuple(legs if legs[-1].end == stage.units else [*legs, Leg(stage.units, mine)])
