"""Cuts that let branches of a network run at the same time: one engine keeps the network, another takes a branch.

A branch is a run of consecutive units that no unit just before it feeds: it reads what was finished earlier, and the
units in between, or those after it up to where it is read, do not need it.  The first engine's part ends where the
branch may start, so that both go on from there together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from socsched.planning.cutting.divisible import NEVER, Divisible, Leg, Legs

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
                yield _legs(stage, chosen, kept, given), time


def _gain(stage: Divisible, branch: Branch, kept: int, given: int) -> float:
    """Return the time (ns) saved by running a branch on another engine; less than none where that refuses a unit."""
    table, units = stage.table(), slice(branch.begin, branch.end)
    there = table.change_ns[branch.fork - 1, kept, given] + table.time[units, given].sum() + stage.entry_ns[given]
    back = table.change_ns[branch.end - 1, given, kept] if branch.end < stage.units else 0.0
    beside = table.time[list(branch.beside), kept].sum() + stage.entry_ns[kept]
    return float(beside + table.time[units, kept].sum() - max(beside, there + back) - 2 * stage.entry_ns[kept])


def _legs(stage: Divisible, chosen: list[Branch], kept: int, given: int) -> Legs:
    mine, other = stage.places[kept], stage.places[given]
    borders = {branch.begin: mine for branch in chosen} | {branch.end: other for branch in chosen}
    borders = {branch.fork: mine for branch in chosen if branch.fork not in borders} | borders
    legs = [Leg(end, borders[end]) for end in sorted(borders)]
    return tuple(legs if legs[-1].end == stage.units else [*legs, Leg(stage.units, mine)])
