"""Max-min fair shares of the DRAM bandwidth, and segment times under these shares.

Model: every running segment demands bandwidth; the memory controller serves demands max-min fairly up to the achievable
bandwidth (Bertsekas & Gallager, Data Networks, 1992, section 6.5.2); a segment whose share is below its demand is
stretched along the memory roof of the roofline (Williams, Waterman, Patterson, CACM 52(4) 2009).  No parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from socsched.cost.contention.base import Rival, Setting, demand, draw, loudest
from socsched.cost.cost import Segment


@dataclass(frozen=True, slots=True)
class MaxMin:
    """Max-min fair sharing of `capacity` bytes/s; 0 means unlimited."""

    capacity: float

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
        return stretch(segment, _last_share(demand(segment), others, self.capacity))


def build(setting: Setting) -> MaxMin:
    """Return the model for a memory; UsageError if parameters are given, as it has none."""
    setting.check(())
    return MaxMin(setting.capacity)


def fair_shares(demands: Sequence[float], capacity: float) -> list[float]:
    """Return the max-min fair share (bytes/s) of each demand under `capacity`; no share exceeds its demand."""
    shares = [0.0] * len(demands)
    left = float(capacity)
    waiting = sorted(range(len(demands)), key=lambda i: demands[i])
    for position, index in enumerate(waiting):
        shares[index] = min(demands[index], left / (len(waiting) - position))
        left -= shares[index]
    return shares


def stretch(segment: Segment, share: float) -> int:
    """Return the time (ns, rounded up) of a segment that gets `share` bytes/s of DRAM bandwidth throughout."""
    if segment.bytes == 0 or share >= demand(segment):
        return segment.time_ns
    memory_ns = -int(-segment.bytes * 1e9 // share) if share > 0 else 2**62
    return max(segment.time_ns, segment.fixed_ns + memory_ns)


def worst_share(own: float, others: Sequence[float], capacity: float) -> float:
    """Return the smallest share a demand `own` can get while each competitor draws at most its entry of `others`.

    Max-min fair shares only shrink when a competitor's demand grows, so the largest demands give the bound.
    """
    return _last_share(own, sorted(others), capacity)


def _last_share(own: float, others: Sequence[float], capacity: float) -> float:
    """Return the `fair_shares` share of a demand `own` among others in rising order."""
    left, waiting = float(capacity), len(others) + 1
    for other in others:
        if other >= own:
            break
        left -= min(other, left / waiting)
        waiting -= 1
    return min(own, left / waiting)
