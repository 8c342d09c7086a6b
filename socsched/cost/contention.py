"""Shared DRAM bandwidth: max-min fair shares, and how long a segment lasts under its share.

Model: every running segment demands bandwidth; the memory controller serves demands max-min fairly up to the achievable
bandwidth (Bertsekas & Gallager, Data Networks, 1992, section 6.5.2); a segment whose share is below its demand is
stretched along the memory roof of the roofline (Williams, Waterman, Patterson, CACM 52(4) 2009).
"""

from __future__ import annotations

from collections.abc import Sequence

from socsched.cost.cost import Segment


def demand(segment: Segment) -> float:
    """Return the bandwidth (bytes/s) a segment draws when nothing else runs."""
    busy_ns = max(segment.time_ns - segment.fixed_ns, 1)
    return segment.bytes * 1e9 / busy_ns


def fair_shares(demands: Sequence[float], capacity: float) -> list[float]:
    """Return the max-min fair share (bytes/s) of each demand under `capacity`; no share exceeds its demand."""
    shares = [0.0] * len(demands)
    left = float(capacity)
    waiting = sorted(range(len(demands)), key=lambda i: demands[i])
    for position, index in enumerate(waiting):
        shares[index] = min(demands[index], left / (len(waiting) - position))
        left -= shares[index]
    return shares


def stretched_ns(segment: Segment, share: float) -> int:
    """Return how long a segment lasts (ns, rounded up) when it gets `share` bytes/s of DRAM bandwidth throughout."""
    if segment.bytes == 0 or share >= demand(segment):
        return segment.time_ns
    memory_ns = -int(-segment.bytes * 1e9 // share) if share > 0 else 2**62
    return max(segment.time_ns, segment.fixed_ns + memory_ns)


def worst_share(own: float, others: Sequence[float], capacity: float) -> float:
    """Return the smallest share a demand `own` can get while each competitor draws at most its entry of `others`.

    Max-min fair shares only shrink when a competitor's demand grows, so the largest demands give the bound.
    """
    return fair_shares([own, *others], capacity)[0]
