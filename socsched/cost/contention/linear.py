"""Linear interference: the slowdown as a linear function of both sides' L2 and DRAM utilisation.

Choi et al., "Serving Heterogeneous Machine Learning Models on Multi-GPU Servers with Spatio-Temporal Sharing", USENIX
ATC 2022 (gpulet):

    slowdown = constant + l2_me L2(own) + l2_you L2(others) + dram_me DRAM(own) + dram_you DRAM(others)

fitted to pairs of networks on one GPU (the authors report at most 10.26 % error for 90 % of the pairs).  Utilisations
are shares of 1.  DRAM utilisation follows from a segment's demand and the memory's bandwidth; a segment does not know
its L2 traffic, so L2 utilisation is taken as `l2_per_dram` times DRAM utilisation, at most 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from socsched.cost.contention import Rival, Setting, draw, loudest, slow_down
from socsched.cost.cost import Segment

_FIELDS = ("l2_me", "l2_you", "dram_me", "dram_you", "constant", "l2_per_dram", "error")


@dataclass(frozen=True, slots=True)
class Linear:
    """The five coefficients, the ratio of L2 to DRAM utilisation, bandwidth (bytes/s), relative error of the fit."""

    capacity: float
    l2_me: float
    l2_you: float
    dram_me: float
    dram_you: float
    constant: float
    l2_per_dram: float = 0.0
    error: float = 0.0

    def slowdown(self, l2_me: float, l2_you: float, dram_me: float, dram_you: float) -> float:
        """Return the slowdown (1 = none, never less) at utilisations 0..1, as published."""
        mine = self.l2_me * l2_me + self.dram_me * dram_me
        yours = self.l2_you * l2_you + self.dram_you * dram_you
        return max(self.constant + mine + yours, 1.0)

    def paces(self, running: Sequence[tuple[str, Segment]]) -> tuple[int, ...]:
        """Return each segment's time (ns); it is slowed only if it and a co-runner draw bandwidth."""
        demands = [draw(segment) for _, segment in running]
        result = []
        for index, (_, segment) in enumerate(running):
            others = sum(demands[:index]) + sum(demands[index + 1 :])
            slowed = demands[index] and others
            result.append(slow_down(segment, self._beside(demands[index], others)) if slowed else segment.time_ns)
        return tuple(result)

    def worst_pace(self, engine: str, segments: Sequence[Segment], rivals: Sequence[Sequence[Rival]]) -> int:
        """Return the time (ns) of the segments under the worst load of the other lanes, plus the error.

        The slowdown is piecewise linear in the others' load, so it is largest at an end of the range or where L2
        utilisation reaches 1.
        """
        most = sum(loudest(rivals)) * (1 + 1e-9)
        full = self.capacity / self.l2_per_dram if self.l2_per_dram else most
        loads = (0.0, min(full, most), min(self.capacity, most), most)
        return sum(
            slow_down(segment, max(self._beside(draw(segment), load) for load in loads) * (1 + self.error))
            if draw(segment) and most
            else segment.time_ns
            for segment in segments
        )

    def _beside(self, own: float, others: float) -> float:
        mine, yours = min(own / self.capacity, 1.0), min(others / self.capacity, 1.0)
        return self.slowdown(min(mine * self.l2_per_dram, 1.0), min(yours * self.l2_per_dram, 1.0), mine, yours)


def build(setting: Setting) -> Linear:
    """Return the model; UsageError if a coefficient is missing or the bandwidth unknown."""
    setting.check(_FIELDS)
    if not setting.capacity:
        raise setting.fault("expected a memory with a bandwidth, from which utilisations follow")
    values = {name: setting.number(name, 0.0 if name in ("l2_per_dram", "error") else None) for name in _FIELDS}
    if values["l2_per_dram"] < 0 or values["error"] < 0:
        raise setting.fault("expected l2_per_dram and error at or above 0")
    return Linear(setting.capacity, **values)
