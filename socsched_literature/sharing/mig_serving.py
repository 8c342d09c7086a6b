"""MIG-Serving: partition reconfigurable GPUs and assign services to instances, using the fewest GPUs.

Tan et al., "Serving DNN models with multi-instance GPUs: a case of the reconfigurable machine scheduling problem",
arXiv 2109.11067.  A configuration of a GPU is a legal partition and a service for each instance; its utility for a
service is the fraction of the required rate it provides.  The fast algorithm (section 5.2) adds the configuration with
the best score, sum (1 - c) u over services with c the completed fraction, until everything is completed.  The slow one
(section 5.3, a genetic algorithm with tree search) is left out: it improved on the fast one in few drawn workloads.

Details follow the abstract and reimplementations, as the full text was not available.  Ours are: utilities beyond the
remaining need of a service do not count; at most `MIX` different services per GPU, one more once hardly anything is
missing, since large configuration sets would otherwise be too expensive to search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, combinations, combinations_with_replacement, product
from math import floor

import numpy as np
import numpy.typing as npt

from socsched.errors import UsageError
from socsched_literature.sharing.deployment import Demand, Deployment, Part, Served

# Multi-instance GPUs: profiles, legal positions of instances, and every legal layout.
#
# An instance occupies memory slices (eight on A100 and H100) from one of the starts its profile allows, and compute
# slices (seven); instances must not overlap.  NVIDIA MIG user guide, "Supported MIG profiles", and the placements
# printed by ``nvidia-smi mig -lgipp``.  A 3g instance takes half the memory, which is why 3g + 3g leaves a compute
# slice unused.


@dataclass(frozen=True, slots=True)
class InstanceProfile:
    """A kind of instance: compute and memory slices it takes, and memory slices at which it may start."""

    name: str
    compute: int
    memory: int
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Placed:
    """An instance: its start, its profile's name, and its compute slices."""

    start: int
    profile: str
    compute: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """The possible partitions of a GPU model."""

    name: str
    compute: int
    memory: int
    profiles: tuple[InstanceProfile, ...]

    def profile(self, name: str) -> InstanceProfile:
        """Return the profile of this name; UsageError naming the known ones if there is none."""
        match = next((one for one in self.profiles if one.name == name), None)
        if match is None:
            known = ", ".join(one.name for one in self.profiles)
            raise UsageError(f"{self.name} has no MIG profile {name!r}", hint=f"known: {known}")
        return match

    def legal(self, layout: tuple[Placed, ...]) -> bool:
        """Return whether these instances may coexist."""
        used: set[int] = set()
        for one in layout:
            profile = self.profile(one.profile)
            cells = set(range(one.start, one.start + profile.memory))
            if one.start not in profile.starts or one.compute != profile.compute or cells & used:
                return False
            used |= cells
        return sum(one.compute for one in layout) <= self.compute


def _profiles(unit: int, compute_gb: int) -> tuple[InstanceProfile, ...]:
    whole = unit * 8
    return (
        InstanceProfile(f"1g.{compute_gb}gb", 1, 1, (0, 1, 2, 3, 4, 5, 6)),
        InstanceProfile(f"2g.{2 * unit}gb", 2, 2, (0, 2, 4)),
        InstanceProfile(f"3g.{4 * unit}gb", 3, 4, (0, 4)),
        InstanceProfile(f"4g.{4 * unit}gb", 4, 4, (0,)),
        InstanceProfile(f"7g.{whole}gb", 7, 8, (0,)),
    )


GEOMETRIES: dict[str, Geometry] = {
    "a100-40gb": Geometry("a100-40gb", 7, 8, _profiles(5, 5)),
    "a100-80gb": Geometry("a100-80gb", 7, 8, _profiles(10, 10)),
    "h100-80gb": Geometry(
        "h100-80gb", 7, 8, (*_profiles(10, 10), InstanceProfile("1g.20gb", 1, 2, (0, 2, 4, 6)))
    ),
    "a30-24gb": Geometry(
        "a30-24gb", 4, 4,
        (
            InstanceProfile("1g.6gb", 1, 1, (0, 1, 2, 3)),
            InstanceProfile("2g.12gb", 2, 2, (0, 2)),
            InstanceProfile("4g.24gb", 4, 4, (0,)),
        ),
    ),
}  # fmt: skip


def geometry(name: str) -> Geometry:
    """Return the geometry of this GPU; UsageError naming the known ones if there is none."""
    if name not in GEOMETRIES:
        raise UsageError(f"no MIG geometry of {name!r}", hint=f"known: {', '.join(GEOMETRIES)}")
    return GEOMETRIES[name]


@cache
def layouts(name: str) -> tuple[tuple[Placed, ...], ...]:
    """Return every maximal legal layout of a GPU, the largest compute instance first."""
    cut = geometry(name)
    spots = [
        Placed(start, profile.name, profile.compute)
        for profile in sorted(cut.profiles, key=lambda one: (-one.compute, -one.memory))
        for start in profile.starts
    ]
    complete: set[tuple[Placed, ...]] = set()

    def grow(layout: tuple[Placed, ...], first: int) -> None:
        more = [i for i in range(len(spots)) if cut.legal((*layout, spots[i]))]
        if not more:
            complete.add(tuple(sorted(layout)))
        for i in more:
            if i >= first:
                grow((*layout, spots[i]), i + 1)

    grow((), 0)
    return tuple(sorted(complete, key=lambda layout: (sorted(-one.compute for one in layout), layout)))


@cache
def partitions(name: str) -> tuple[tuple[str, ...], ...]:
    """Return the distinct multisets of profiles among the layouts: positions do not matter to a service."""
    unique = {tuple(sorted((one.profile for one in layout), reverse=True)): None for layout in layouts(name)}
    return tuple(unique)


Config = tuple[tuple[str, str], ...]
"""Instances of a GPU as (profile, service), sorted; unneeded instances are left out."""


MIX, LAST_MILE = 3, 0.5
"""Services per GPU; one more once less than this part of a GPU's worth is missing."""
SLACK = 1.1
"""Factor of all latencies."""


@dataclass(frozen=True)
class Problem:
    """Services with rates on GPUs of a geometry; `batch` and `throughput` of an instance by (profile, service)."""

    gpu: str
    demands: tuple[Demand, ...]
    throughput: Mapping[tuple[str, str], float] = field(default_factory=dict, repr=False)
    batch: Mapping[tuple[str, str], int] = field(default_factory=dict, repr=False)

    @property
    def services(self) -> tuple[str, ...]:
        """Return the names of the services."""
        return tuple(one.profile.name for one in self.demands)

    def utility(self, config: Config) -> tuple[float, ...]:
        """Return by service the fraction of its rate provided by a GPU with this configuration."""
        gained = Counter[str]()
        for profile, service in config:
            gained[service] += self.throughput[profile, service]  # type: ignore[assignment]
        return tuple(gained[one.profile.name] / one.rate for one in self.demands)

    def completed(self, configs: Sequence[Config]) -> tuple[float, ...]:
        """Return by service the fraction of its rate provided by these GPUs."""
        total = [0.0] * len(self.demands)
        for config in configs:
            total = [a + b for a, b in zip(total, self.utility(config), strict=True)]
        return tuple(total)


def share_of(gpu: str, profile: str) -> int:
    """Return an instance's percentage of a GPU's compute, rounded down so that legal layouts never exceed 100."""
    cut = geometry(gpu)
    return floor(100 * cut.profile(profile).compute / cut.compute)


def problem(gpu: str, demands: Sequence[Demand]) -> Problem:
    """Return the problem; UsageError if a service is in time on no instance at all."""
    throughput: dict[tuple[str, str], float] = {}
    batch: dict[tuple[str, str], int] = {}
    for one in demands:
        for profile in geometry(gpu).profiles:
            key = (profile.name, one.profile.name)
            batch[key], throughput[key] = one.profile.saturated(share_of(gpu, profile.name), SLACK)
        if not any(throughput[profile.name, one.profile.name] for profile in geometry(gpu).profiles):
            raise UsageError(f"{one.profile.name} meets its objective on no part of a {gpu}")
    return Problem(gpu, tuple(demands), throughput, batch)


def configurations(given: Problem, mix: int) -> list[Config]:
    """Return every configuration of a GPU with at most `mix` services, each instance with a service it can run."""
    found: dict[Config, None] = {}
    for count in range(1, mix + 1):
        for services in combinations(given.services, count):
            for partition in partitions(given.gpu):
                sizes = sorted(Counter(partition).items())
                ways = [_assigned(given, profile, number, services) for profile, number in sizes]
                for way in product(*ways):
                    config = tuple(sorted(pair for part in way for pair in part))
                    if len({service for _, service in config}) == count:
                        found[config] = None
    return list(found)


def _assigned(given: Problem, profile: str, number: int, services: tuple[str, ...]) -> list[Config]:
    able = [service for service in services if given.throughput[profile, service] > 0]
    if not able:
        return [()]
    return [tuple((profile, one) for one in chosen) for chosen in combinations_with_replacement(able, number)]


def is_complete(completed: Sequence[float]) -> bool:
    """Return whether every service has its full rate."""
    return all(c >= 1 - 1e-9 for c in completed)


class _Table:
    """Configurations, fewest instances first, each with a row of utilities."""

    def __init__(self, given: Problem, mix: int) -> None:
        self.configs = sorted(configurations(given, mix), key=lambda config: (len(config), config))
        self.rows = [given.utility(config) for config in self.configs]
        self.utilities = np.array(self.rows)

    def best(self, missing: npt.NDArray[np.float64]) -> tuple[Config, tuple[float, ...]]:
        """Return the configuration of the best score, rounded so that ties are identical on every machine."""
        # Scale by the largest missing fraction: otherwise rounding would hide the last small remainder.
        most = missing.max()
        best = int(np.argmax(np.round((np.minimum(self.utilities, missing) / most) @ (missing / most), 10)))
        return self.configs[best], self.rows[best]


def greedy(given: Problem, completed: Sequence[float] | None = None) -> list[Config]:
    """Return GPU configurations by the fast algorithm, in addition to the fractions already `completed`."""
    services = len(given.services)
    usual, last = (_Table(given, min(mix, services)) for mix in (MIX, MIX + 1))
    whole = float(usual.utilities.sum(axis=1).max())
    have = list(completed or [0.0] * services)
    chosen: list[Config] = []
    while not is_complete(have):
        missing = np.maximum(0.0, 1.0 - np.asarray(have))
        config, utility = (last if missing.sum() < LAST_MILE * whole else usual).best(missing)
        chosen.append(config)
        have = [a + b for a, b in zip(have, utility, strict=True)]
    return trim(given, chosen)


def trim(given: Problem, configs: Sequence[Config]) -> list[Config]:
    """Return the configurations without unneeded instances and without GPUs left empty."""
    kept = [list(config) for config in configs]
    for config in sorted(kept, key=len):
        for pair in sorted(config, key=lambda pair: given.throughput[pair]):
            rest = [tuple(one) for one in kept if one is not config]
            without = list(config)
            without.remove(pair)
            if is_complete(given.completed([*rest, tuple(without)])):
                config.remove(pair)
    return [tuple(config) for config in kept if config]


def deployment(given: Problem, configs: Sequence[Config]) -> Deployment:
    """Return the parts to serve from; the rate of a service is divided among its instances by throughput."""
    profiles = {one.profile.name: one.profile for one in given.demands}
    rates = {one.profile.name: one.rate for one in given.demands}
    whole = Counter[str]()
    for profile, service in chain.from_iterable(configs):
        whole[service] += given.throughput[profile, service]  # type: ignore[assignment]
    parts = []
    for device, config in enumerate(configs):
        for pair in config:
            rate = rates[pair[1]] * given.throughput[pair] / whole[pair[1]]
            served = Served(profiles[pair[1]], given.batch[pair], rate)
            parts.append(Part(device, share_of(given.gpu, pair[0]), (served,)))
    return Deployment(tuple(parts))
