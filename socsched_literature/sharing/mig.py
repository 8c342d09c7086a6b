"""Multi-instance GPUs: profiles, legal positions of instances, and every legal layout.

An instance occupies memory slices (eight on A100 and H100) from one of the starts its profile allows, and compute
slices (seven); instances must not overlap.  NVIDIA MIG user guide, "Supported MIG profiles", and the placements printed
by ``nvidia-smi mig -lgipp``.  A 3g instance takes half the memory, which is why 3g + 3g leaves a compute slice unused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from socsched.errors import UsageError


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
        found = next((one for one in self.profiles if one.name == name), None)
        if found is None:
            known = ", ".join(one.name for one in self.profiles)
            raise UsageError(f"{self.name} has no MIG profile {name!r}", hint=f"known: {known}")
        return found

    def legal(self, layout: tuple[Placed, ...]) -> bool:
        """Return whether these instances may coexist."""
        taken: set[int] = set()
        for one in layout:
            profile = self.profile(one.profile)
            cells = set(range(one.start, one.start + profile.memory))
            if one.start not in profile.starts or one.compute != profile.compute or cells & taken:
                return False
            taken |= cells
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
    found: set[tuple[Placed, ...]] = set()

    def grow(layout: tuple[Placed, ...], first: int) -> None:
        more = [i for i in range(len(spots)) if cut.legal((*layout, spots[i]))]
        if not more:
            found.add(tuple(sorted(layout)))
        for i in more:
            if i >= first:
                grow((*layout, spots[i]), i + 1)

    grow((), 0)
    return tuple(sorted(found, key=lambda layout: (sorted(-one.compute for one in layout), layout)))


@cache
def partitions(name: str) -> tuple[tuple[str, ...], ...]:
    """Return the distinct multisets of profiles among the layouts: positions do not matter to a service."""
    unique = {tuple(sorted((one.profile for one in layout), reverse=True)): None for layout in layouts(name)}
    return tuple(unique)


def place(name: str, profiles: tuple[str, ...]) -> tuple[Placed, ...] | None:
    """Return positions for instances of these profiles on one GPU, None if they do not fit."""
    cut = geometry(name)
    order = sorted((cut.profile(one) for one in profiles), key=lambda one: (-one.memory, -one.compute))

    def put(layout: tuple[Placed, ...], rest: int) -> tuple[Placed, ...] | None:
        if rest == len(order):
            return tuple(sorted(layout))
        for start in order[rest].starts:
            grown = (*layout, Placed(start, order[rest].name, order[rest].compute))
            if cut.legal(grown):
                found = put(grown, rest + 1)
                if found is not None:
                    return found
        return None

    return put((), 0)
