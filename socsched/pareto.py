"""The Pareto front of points in two measures, smaller being better in both."""

from __future__ import annotations

from collections.abc import Sequence


def undominated(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices, ascending, of points that no other is below in one measure and not above in the other."""
    kept: list[int] = []
    for index in sorted(range(len(points)), key=lambda number: (points[number], number)):
        if not kept or points[index][1] < points[kept[-1]][1] or points[index] == points[kept[-1]]:
            kept.append(index)
    return sorted(kept)
