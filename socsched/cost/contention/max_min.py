"""Max-min fair shares of the DRAM bandwidth, and segment times under these shares.

Model: every running segment demands bandwidth; the memory controller serves demands max-min fairly up to the achievable
bandwidth (Bertsekas & Gallager, Data Networks, 1992, section 6.5.2); a segment whose share is below its demand is
stretched along the memory roof of the roofline (Williams, Waterman, Patterson, CACM 52(4) 2009).  No parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from socsched.cost.contention import Law, Rival, Setting, demand, draw, fair_shares, last_share, loudest, stretch
from socsched.cost.cost import Segment


@dataclass(frozen=True, slots=True)
class MaxMin:
    """Max-min fair sharing of `capacity` bytes/s; 0 means unlimited."""

    capacity: float

    def law(self) -> Law:
        """Return what a simulation computes `paces` from."""
        return Law(self.capacity, lambda _, segment: draw(segment), {})

    def paces(self, running: Sequence[tuple[str, Segment]]) -> tuple[int, ...]:
        """Return each segment's time (ns) under its fair share."""
        if not self.capacity:
            return tuple(segment.time_ns for _, segment in running)
        demands = [draw(segment) for _, segment in running]
        shares = fair_shares(demands, self.capacity)
        return tuple(
            stretch(segment, share) if wanted else segment.time_ns
            for (_, segment), wanted, share in zip(running, demands, shares, strict=True)
        )

    def worst_pace(self, engine: str, segments: Sequence[Segment], rivals: Sequence[Sequence[Rival]]) -> int:
        """Return the time (ns) of the segments under their smallest possible shares.

        Shares only shrink when a competitor's demand grows, and spreading a gang's demand over its lanes can only
        shrink the shares of the others.
        """
        if not self.capacity:
            return sum(segment.time_ns for segment in segments)
        others = sorted(loudest(rivals))
        return sum(self._worst(segment, others) for segment in segments)

    def _worst(self, segment: Segment, others: Sequence[float]) -> int:
        if not draw(segment):
            return segment.time_ns
        return stretch(segment, last_share(demand(segment), others, self.capacity))


def build(setting: Setting) -> MaxMin:
    """Return the model for a memory; UsageError if parameters are given, as it has none."""
    setting.check(())
    return MaxMin(setting.capacity)
