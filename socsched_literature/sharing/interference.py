"""Slowdown of a part due to its neighbours: gpulet's linear model with published constants.

Choi et al., "Serving heterogeneous machine learning models on multi-GPU servers with spatio-temporal sharing", USENIX
ATC 2022, section 4.4: latency is multiplied by c0 l2_me + c1 l2_you + c2 dram_me + c3 dram_you + c4, where utilisations
of the whole GPU are scaled by the share of the part.  A neighbour never speeds a part up, so the factor is at least 1.
The model covers pairs; adding the loads of several neighbours is our extension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from socsched_literature.sharing.profile import Profile


@dataclass(frozen=True, slots=True)
class Running:
    """A batch of a network on a share (percent)."""

    profile: Profile
    batch: int
    share: int


class Interference(Protocol):
    """Interface of interference models."""

    def factor(self, me: Running, others: Sequence[Running]) -> float:
        """Return the factor by which `others` on the same accelerator stretch `me`, at least 1."""


@dataclass(frozen=True, slots=True)
class NoInterference:
    """Parts without mutual interference."""

    def factor(self, me: Running, others: Sequence[Running]) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True, slots=True)
class LinearInterference:
    """Constants of gpulet's model, in the order of its file: L2 of me and you, DRAM of me and you, intercept."""

    l2_me: float
    l2_you: float
    dram_me: float
    dram_you: float
    rest: float

    def predicted(self, me: Running, others: Sequence[Running]) -> float:
        """Return the factor of the published formula, which may be below 1."""
        mine = me.profile.at(me.batch)
        part = me.share / 100
        l2 = dram = 0.0
        for other in others:
            yours = other.profile.at(other.batch)
            l2 += yours.l2 * other.share / 100
            dram += yours.dram * other.share / 100
        return (
            self.l2_me * mine.l2 * part
            + self.l2_you * l2
            + self.dram_me * mine.dram * part
            + self.dram_you * dram
            + self.rest
        )

    def factor(self, me: Running, others: Sequence[Running]) -> float:
        """Return the factor by which `others` stretch `me`."""
        return max(1.0, self.predicted(me, others)) if others else 1.0


@dataclass(frozen=True, slots=True)
class SharedBandwidth:
    """Memory shared in proportion to demand: the memory time of a part stretches once the total exceeds the bandwidth.

    A sample's `dram` is the share of the bandwidth it uses on the whole accelerator; on a part its demand is lower, as
    it takes longer.  Equivalent to max-min sharing among equals (`cost.contention`), without its rounds.
    """

    def factor(self, me: Running, others: Sequence[Running]) -> float:
        """Return the factor by which `others` stretch `me`."""
        mine = _asked(me)
        total = mine + sum(map(_asked, others))
        return 1.0 + mine * (total - 1.0) if total > 1 else 1.0


def _asked(one: Running) -> float:
    return (
        one.profile.at(one.batch).dram * one.profile.latency(one.batch, 100) / one.profile.latency(one.batch, one.share)
    )
