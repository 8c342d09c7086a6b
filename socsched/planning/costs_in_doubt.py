"""The interval of a cost, and the cost at another time within it."""

from __future__ import annotations

from dataclasses import replace

from socsched.cost.cost import Cost


def interval_ns(cost: Cost) -> tuple[int, int]:
    """Return the least and the greatest time of a cost (ns)."""
    return max(round(cost.time_ns * (1 - min(cost.error, 1.0))), 1), round(cost.time_ns * (1 + cost.error))


def at_upper_end(cost: Cost) -> Cost:
    """Return a cost at the upper end of its interval, which leaves no error; the energy grows in proportion."""
    longer = rescale_cost(cost, interval_ns(cost)[1])
    energy = cost.energy_uj * longer.time_ns // max(cost.time_ns, 1)
    return replace(longer, energy_uj=energy, error=0.0)


def rescale_cost(cost: Cost, time_ns: int) -> Cost:
    """Return a cost that takes `time_ns`, with every segment in proportion."""
    factor = time_ns / max(cost.time_ns, 1)
    parts = tuple(
        replace(s, time_ns=max(round(s.time_ns * factor), 1), fixed_ns=min(s.fixed_ns, round(s.time_ns * factor)))
        for s in cost.segments
    )
    return replace(cost, segments=parts, time_ns=sum(s.time_ns for s in parts))
