"""Transition between two deployments on MIG GPUs without loss of service in between: exchange and compact.

Tan et al., arXiv 2109.11067, section 6.  Exchange: missing instances are created first, on free slices or on borrowed
GPUs, then surplus ones are removed; from then on the instances are those of the target.  Compact: the GPUs become those
of the target one by one; an instance moves by being created at its new place before it is removed from its old one. At
no moment does a service have less than the smaller of its capacities before and after, and every intermediate layout is
legal.

Reconstructed in the order of moves (instances to keep, next GPU): most instances in common first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from socsched_literature.sharing.mig import Geometry, Placed, geometry, place
from socsched_literature.sharing.mig_serving import Config


@dataclass(frozen=True, slots=True)
class Action:
    """One step: an instance with a service is created or removed."""

    kind: Literal["make", "remove"]
    phase: Literal["exchange", "compact"]
    gpu: int
    placed: Placed
    service: str


@dataclass(frozen=True, slots=True)
class Transition:
    """All steps in order, the peak number of GPUs in between, and the final contents of each GPU."""

    actions: tuple[Action, ...]
    peak: int
    final: tuple[dict[Placed, str], ...]


@dataclass(slots=True)
class _Fleet:
    cut: Geometry
    gpus: list[dict[Placed, str]]
    actions: list[Action] = field(default_factory=list)
    peak: int = 0
    phase: Literal["exchange", "compact"] = "exchange"

    def make(self, gpu: int, placed: Placed, service: str) -> None:
        self.gpus[gpu][placed] = service
        self.actions.append(Action("make", self.phase, gpu, placed, service))
        self.peak = max(self.peak, sum(bool(one) for one in self.gpus))

    def remove(self, gpu: int, placed: Placed) -> None:
        service = self.gpus[gpu].pop(placed)
        self.actions.append(Action("remove", self.phase, gpu, placed, service))

    def room(self, profile: str, closed: set[int]) -> tuple[int, Placed]:
        """Return a place for an instance, fullest GPU first; a borrowed GPU if there is no other."""
        wanted = self.cut.profile(profile)
        order = sorted(range(len(self.gpus)), key=lambda i: (-sum(p.compute for p in self.gpus[i]), i))
        for gpu in order:
            for start in wanted.starts if gpu not in closed else ():
                spot = Placed(start, profile, wanted.compute)
                if self.cut.legal((*self.gpus[gpu], spot)):
                    return gpu, spot
        self.gpus.append({})
        return len(self.gpus) - 1, Placed(wanted.starts[0], profile, wanted.compute)

    def move(self, gpu: int, placed: Placed, to: int, spot: Placed) -> None:
        self.make(to, spot, self.gpus[gpu][placed])
        self.remove(gpu, placed)


def lay_out(gpu: str, config: Config) -> dict[Placed, str]:
    """Return the places of the instances of a configuration, with their services; AssertionError if they do not fit."""
    spots = place(gpu, tuple(profile for profile, _ in config))
    assert spots is not None, config
    waiting: dict[str, list[str]] = {}
    for profile, service in sorted(config):
        waiting.setdefault(profile, []).append(service)
    return {spot: waiting[spot.profile].pop(0) for spot in spots}


def transition(gpu: str, now: Sequence[Config], target: Sequence[Config]) -> Transition:
    """Return the steps that turn GPUs configured as `now` into `target`, both unordered."""
    fleet = _Fleet(geometry(gpu), [lay_out(gpu, config) for config in now])
    fleet.peak = len(fleet.gpus)
    _exchange(fleet, target)
    fleet.phase = "compact"
    finished: set[int] = set()
    for config in sorted(target, key=lambda config: (-_common(fleet, config, finished)[0], config)):
        _, host = _common(fleet, config, finished)
        if host is None:
            fleet.gpus.append({})
            host = len(fleet.gpus) - 1
        _compact(gpu, fleet, host, config, finished)
        finished.add(host)
    return Transition(tuple(fleet.actions), fleet.peak, tuple(one for one in fleet.gpus if one))


def _exchange(fleet: _Fleet, target: Sequence[Config]) -> None:
    wanted = Counter(pair for config in target for pair in config)
    have = Counter((placed.profile, service) for one in fleet.gpus for placed, service in one.items())
    for (profile, service), number in sorted((wanted - have).items()):
        for _ in range(number):
            where, spot = fleet.room(profile, set())
            fleet.make(where, spot, service)
    for pair, number in sorted((have - wanted).items()):
        for _ in range(number):
            # Remove from the emptiest GPU first, so that it becomes free sooner.
            homes = [
                (sum(p.compute for p in one), i, placed)
                for i, one in enumerate(fleet.gpus)
                for placed, service in sorted(one.items())
                if (placed.profile, service) == pair
            ]
            _, where, placed = min(homes)
            fleet.remove(where, placed)


def _common(fleet: _Fleet, config: Config, finished: set[int]) -> tuple[int, int | None]:
    """Return the unfinished GPU with the most instances of a configuration, preceded by their number."""
    best: tuple[int, int | None] = (-1, None)
    for i, one in enumerate(fleet.gpus):
        if i not in finished and one:
            shared = sum((Counter((p.profile, s) for p, s in one.items()) & Counter(config)).values())
            if shared > best[0]:
                best = (shared, i)
    return best


def _compact(gpu: str, fleet: _Fleet, host: int, config: Config, finished: set[int]) -> None:
    kept, goal = _kept(gpu, fleet.cut, fleet.gpus[host], config)
    for placed in sorted(set(fleet.gpus[host]) - kept):
        where, spot = fleet.room(placed.profile, {*finished, host})
        fleet.move(host, placed, where, spot)
    for spot, service in sorted(goal.items()):
        if spot in kept:
            continue
        where, placed = next(
            (i, p)
            for i in sorted(set(range(len(fleet.gpus))) - finished - {host}, key=lambda i: (len(fleet.gpus[i]), i))
            for p, s in sorted(fleet.gpus[i].items())
            if (p.profile, s) == (spot.profile, service)
        )
        fleet.move(where, placed, host, spot)


def _kept(
    gpu: str, cut: Geometry, have: dict[Placed, str], config: Config
) -> tuple[set[Placed], dict[Placed, str]]:  # fmt: skip
    """Return the largest set of instances that can stay in place, and the whole layout with them."""
    wanted = Counter(config)
    useful = [placed for placed in sorted(have) if wanted[placed.profile, have[placed]]]
    for count in range(len(useful), 0, -1):
        for stay in combinations(useful, count):
            mine = Counter((placed.profile, have[placed]) for placed in stay)
            if mine - wanted:
                continue
            rest = sorted((wanted - mine).elements(), key=lambda pair: -cut.profile(pair[0]).memory)
            layout = _around(cut, {placed: have[placed] for placed in stay}, rest)
            if layout is not None:
                return set(stay), layout
    return set(), lay_out(gpu, config)


def _around(cut: Geometry, layout: dict[Placed, str], rest: list[tuple[str, str]]) -> dict[Placed, str] | None:
    if not rest:
        return layout
    (profile, service), *others = rest
    for start in cut.profile(profile).starts:
        spot = Placed(start, profile, cut.profile(profile).compute)
        if cut.legal((*layout, spot)):
            found = _around(cut, {**layout, spot: service}, others)
            if found is not None:
                return found
    return None
