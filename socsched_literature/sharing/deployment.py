"""Deployments: parts of accelerators and the networks in them."""

from __future__ import annotations

from dataclasses import dataclass

from socsched_literature.sharing.profile import Profile


@dataclass(frozen=True, slots=True)
class Served:
    """A network in a part: batches of at most `batch`, planned for `rate` requests per second."""

    profile: Profile
    batch: int
    rate: float


@dataclass(frozen=True, slots=True)
class Part:
    """`share` percent of accelerator `device`, and the networks that take turns in it."""

    device: int
    share: int
    served: tuple[Served, ...]

    def __str__(self) -> str:
        inside = ", ".join(f"{one.profile.name} b{one.batch} {one.rate:.0f}/s" for one in self.served)
        return f"{self.device}:{self.share}% {inside or 'free'}"


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests per second of a network."""

    profile: Profile
    rate: float


@dataclass(frozen=True, slots=True)
class Deployment:
    """Parts in use, and the requests per second of networks left without a part."""

    parts: tuple[Part, ...]
    unserved: tuple[Demand, ...] = ()

    @property
    def devices(self) -> int:
        """Return the number of accelerators used."""
        return len({part.device for part in self.parts if part.served})

    @property
    def complete(self) -> bool:
        """Return whether all demands are served."""
        return not self.unserved
