"""Downsampling of long records for drawing, preserving their extremes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from socsched.trace.columns import Floats, Ints


def steps(times: Ints, values: Floats, end: int, buckets: int) -> list[tuple[int, float, float, float]]:
    """Return a step function over `buckets` equal parts of [0, end) as (start ns, mean over time, min, max).

    `times` ascend; before the first step, its value is used.
    """
    if not len(times) or end <= 0:
        return []
    buckets = int(min(buckets, end))
    edges = (np.arange(buckets + 1, dtype=np.int64) * end) // buckets
    inside = times < end
    times, values = np.concatenate(([0], times[inside][1:])), values[inside]
    if not len(values):
        return []
    points = np.union1d(times, edges[:-1])
    # of several steps at the same instant the last one applies
    held = values[np.searchsorted(times, points, side="right") - 1]
    widths = np.diff(points, append=end)
    begins = np.searchsorted(points, edges[:-1])
    lengths = np.diff(edges)
    mean = np.add.reduceat(held * widths, begins) / lengths
    least, most = np.minimum.reduceat(held, begins), np.maximum.reduceat(held, begins)
    return list(zip(edges[:-1].tolist(), mean.tolist(), least.tolist(), most.tolist(), strict=True))


def highest(times: Ints, values: Ints, end: int, buckets: int) -> NDArray[np.intp]:
    """Return the indices of the points to keep, in order of time: the highest and lowest in every part of [0, end)."""
    if len(times) <= 2 * buckets:
        return np.argsort(times, kind="stable")
    place = np.minimum(times * buckets // max(end, 1), buckets - 1)
    order = np.lexsort((values, place))
    change = np.flatnonzero(np.diff(place[order]))
    ends = np.concatenate((change, [len(order) - 1]))
    begins = np.concatenate(([0], change + 1))
    kept: NDArray[np.intp] = np.unique(np.concatenate((order[ends], order[begins])))
    return kept[np.argsort(times[kept], kind="stable")]


def ranks(count: int, points: int) -> list[int]:
    """Return ranks (from 0) of `count` ordered values at which to draw a distribution: equal steps and the whole tail.

    The largest 1 % is drawn value by value up to `points` values, so that no late frame is lost.
    """
    if count <= points * 2:
        return list(range(count))
    tail = range(max(count - max(count // 100, 1), count - points), count)
    return sorted({*(i * (tail.start - 1) // points for i in range(points + 1)), *tail})
