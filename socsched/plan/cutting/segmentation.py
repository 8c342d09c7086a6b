"""Ways to cut a network worth trying: shortest paths over units and places, under many prices.

A path through the units changes places wherever that pays: time, or energy, is weighed, and an engine's time may be
made dearer than others'.  As prices vary, the paths sweep the convex hull of what can be traded for what: the same list
serves an engine that is overloaded, a chain that is late, and energy.  (Shortest paths under prices are Lagrangian
relaxation: Handler & Zang, "A dual algorithm for the constrained shortest path problem", Networks 10, 1980.)  Between
the hull's corners, where a change of place costs so much that no price proposes one, lie the cuts that share a network
out between two engines: those with one border are all listed, and the best-balanced ones with two.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from socsched.plan.cutting.divisible import Divisible, Leg, Legs, Place

PRICES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""By how much the time on an engine is made dearer."""
WATTS = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0)
"""What a second of latency is worth in energy (W) where energy is weighed."""
LEFT = (0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.8, 0.9)
"""How much of its time for the whole network an engine may keep that gives a stretch in the middle away."""
_NEVER = float("inf")


def segmentations(stage: Divisible, borders: Sequence[tuple[float, float]] | None = None) -> list[Legs]:
    """Return different ways to cut a stage, those of a single leg included; `borders`: what it takes (ns) to come to
    each place from the stages before, and from there to those after.
    """
    engines = dict.fromkeys(place.engine for place in stage.places)
    found: dict[Legs, None] = {}
    for dear, price in [("", 0.0), *itertools.product(engines, PRICES)]:
        factor = [1.0 + (price if place.engine == dear else 0.0) for place in stage.places]
        found |= dict.fromkeys(_path(stage, factor, None, borders))
    for watts in WATTS:
        found |= dict.fromkeys(_path(stage, [1.0] * len(stage.places), watts, borders))
    found |= dict.fromkeys(_shared(stage))
    return list(found)


def _shared(stage: Divisible) -> Iterator[Legs]:
    """Yield ways to share the units out between two engines, at the place where each is fastest."""
    chosen = _representatives(stage)
    for a, b in itertools.permutations(chosen, 2):
        sums = [_sums(stage, place) for place in (a, b)]
        ends = range(1, stage.units)
        one = [(max(sums[0][i], sums[1][-1] - sums[1][i]), i) for i in ends]
        for longest, end in sorted(one):
            if longest < _NEVER:
                yield (Leg(end, stage.places[a]), Leg(stage.units, stage.places[b]))
        for i, j in _inner(stage, a, b, sums):
            first, second = stage.places[a], stage.places[b]
            yield (Leg(i, first), Leg(j, second), Leg(stage.units, first))


def _inner(stage: Divisible, a: int, b: int, sums: Sequence[Sequence[float]]) -> Iterator[tuple[int, int]]:
    """Yield stretches for `b` within `a`: the best-balanced ones, and the fastest that leave `a` so much to do."""
    fastest: dict[float, tuple[float, int, int]] = {}
    balanced = []
    for i, j in itertools.combinations(range(1, stage.units), 2):
        mine, other = sums[0][i] + sums[0][-1] - sums[0][j], sums[1][j] - sums[1][i]
        there, back = stage.change(i - 1, a, b), stage.change(j - 1, b, a)
        if there is None or back is None or max(mine, other) == _NEVER:
            continue
        balanced.append((max(mine, other), i, j))
        total = mine + other + there[0] + back[0]
        for share in LEFT:
            if mine <= share * sums[0][-1] and total < fastest.get(share, (_NEVER,))[0]:
                fastest[share] = (total, i, j)
    yield from dict.fromkeys((i, j) for _, i, j in [*sorted(balanced)[:2], *fastest.values()])


def _representatives(stage: Divisible) -> list[int]:
    """Return the fastest place of each engine, equal engines once."""
    by_engine: dict[str, tuple[float, int]] = {}
    for p, place in enumerate(stage.places):
        total = stage.entry_ns[p] + sum(_or_never(times[p], 1e12) for times in stage.time_ns)
        by_engine[place.engine] = min(by_engine.get(place.engine, (_NEVER, p)), (total, p))
    different = {tuple(times[p] for times in stage.time_ns): (total, p) for total, p in reversed(by_engine.values())}
    return [p for _, p in sorted(different.values())]


def _sums(stage: Divisible, place: int) -> list[float]:
    """Time of the first n units on a place, n from 0; infinite from the first unit on that it does not take."""
    return list(itertools.accumulate((_or_never(times[place], _NEVER) for times in stage.time_ns), initial=0.0))


def _or_never(time: int | None, never: float) -> float:
    return never if time is None else float(time)


def _path(
    stage: Divisible, factor: Sequence[float], watts: float | None, borders: Sequence[tuple[float, float]] | None
) -> Iterator[Legs]:
    """Yield the legs of least price; `watts` None: time counts, else energy and time at that rate."""
    count = len(stage.places)

    def price(time: float, energy: float, place: int) -> float:
        return time * factor[place] if watts is None else energy * 1e3 + watts * time

    enters = [price(stage.entry_ns[p], stage.entry_uj[p], p) for p in range(count)]
    first = [enters[p] + (price(borders[p][0], 0.0, p) if borders else 0.0) for p in range(count)]
    value, came = first, list[list[int]]()
    for unit in range(stage.units):
        origin = list(range(count))
        if unit:
            cheapest = list(value)
            for sink, source in itertools.permutations(range(count), 2):
                if value[source] == _NEVER:
                    continue
                change = stage.change(unit - 1, source, sink)
                if change is not None:
                    total = value[source] + price(change[0], change[1], sink) + enters[sink]
                    if total < cheapest[sink]:
                        cheapest[sink], origin[sink] = total, source
            value = cheapest
        came.append(origin)
        times, energies = stage.time_ns[unit], stage.energy_uj[unit]
        value = [
            _NEVER if (time := times[p]) is None else value[p] + price(time, energies[p] or 0.0, p)
            for p in range(count)
        ]
    ends = [value[p] + (price(borders[p][1], 0.0, p) if borders else 0.0) for p in range(count)]
    last = min(range(count), key=ends.__getitem__)
    if ends[last] < _NEVER:
        yield _legs(stage, came, last)


def _legs(stage: Divisible, came: Sequence[Sequence[int]], last: int) -> Legs:
    legs, place, end = list[Leg](), last, stage.units
    for unit in reversed(range(stage.units)):
        before = came[unit][place]
        if before != place or unit == 0:
            legs.insert(0, Leg(end, stage.places[place]))
            place, end = before, unit
    return tuple(legs)


def twins(stage: Divisible) -> dict[Place, list[Place]]:
    """Return for every place those on engines that cost the same, such as the other of two; itself included."""
    columns = [
        (place.precision, place.share, *(t[p] for t in stage.time_ns), *(e[p] for e in stage.energy_uj))
        for p, place in enumerate(stage.places)
    ]
    return {
        place: [other for q, other in enumerate(stage.places) if columns[q] == columns[p]]
        for p, place in enumerate(stage.places)
    }


def shifted(stage: Divisible, legs: Legs) -> Iterator[Legs]:
    """Yield the legs with one border moved by one or two units, or one leg given to a neighbour."""
    for index in range(len(legs) - 1):
        low = legs[index - 1].end if index else 0
        for step in (-2, -1, 1, 2):
            end = legs[index].end + step
            if low < end < legs[index + 1].end and _able(stage, legs, index, end):
                yield (*legs[:index], Leg(end, legs[index].place), *legs[index + 1 :])
        yield merged((*legs[:index], *legs[index + 1 :]))
        yield merged((*legs[:index], Leg(legs[index + 1].end, legs[index].place), *legs[index + 2 :]))


def _able(stage: Divisible, legs: Legs, index: int, end: int) -> bool:
    number: Mapping[object, int] = {place: p for p, place in enumerate(stage.places)}
    low, high = sorted((legs[index].end, end))
    taker = number[legs[index if end > legs[index].end else index + 1].place]
    return all(stage.time_ns[unit][taker] is not None for unit in range(low, high))


def duration_ns(stage: Divisible, legs: Legs) -> int | None:
    """Return how long the legs take one after the other, changes of place included; None where an engine refuses."""
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


def merged(legs: Legs) -> Legs:
    """Return the legs with neighbours in one place made one."""
    result: list[Leg] = []
    for leg in legs:
        if result and result[-1].place == leg.place:
            result[-1] = leg
        else:
            result.append(leg)
    return tuple(result)
