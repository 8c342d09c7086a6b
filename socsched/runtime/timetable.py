"""Release times of sensors and timers, and the length of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import count, groupby

from socsched.planning.plan import Plan

Release = tuple[int, str, int]
"""Nominal time (ns from the start), sensor or timer, frame."""
DEFAULT_FRAMES = 10


def horizon_ns(plan: Plan, lead: str, scans: int, frames: int | None, duration_ns: int | None) -> int:
    """Return the time (exclusive) until which frames are released, in ns.

    `frames` counts frames of the `lead` source.  Without it, a run with scan files ends with the last scan; a run
    without either lasts `DEFAULT_FRAMES`.  `duration_ns` ends the run in any case.
    """
    offset, period = _sources(plan)[lead]
    wanted = frames or scans or (None if duration_ns else DEFAULT_FRAMES)
    ends = [offset + wanted * period] if wanted else []
    return min([*ends, *([duration_ns] if duration_ns else [])])


def lead_source(plan: Plan, scanned: str | None) -> str:
    """Return the source whose frames are counted: `scanned` (the LiDAR), else the first sensor, else a timer."""
    return scanned or next(iter(_sources(plan)))


def frames_of(plan: Plan, name: str, until_ns: int) -> int:
    """Return the number of frames a sensor or timer releases before `until_ns`."""
    offset, period = _sources(plan)[name]
    return max(-(-(until_ns - offset) // period), 0)


def names(plan: Plan) -> tuple[str, ...]:
    """Return the names of all sensors, then all timers."""
    return tuple(_sources(plan))


def releases(plan: Plan, until_ns: int) -> Iterator[list[Release]]:
    """Yield the releases before `until_ns` in order of time, grouped by instant, sensors before timers."""

    def series(name: str, offset: int, period: int, rank: int) -> Iterator[tuple[int, int, str, int]]:
        for frame in count():
            if (time := offset + frame * period) >= until_ns:
                return
            yield time, rank, name, frame

    known: Mapping[str, tuple[int, int]] = _sources(plan)
    rows = merge(*(series(name, *timing, rank) for rank, (name, timing) in enumerate(known.items())))
    for _, group in groupby(rows, key=lambda row: row[0]):
        yield [(time, name, frame) for time, _, name, frame in group]


def _sources(plan: Plan) -> dict[str, tuple[int, int]]:
    sensors = {sensor.name: (sensor.offset_ns, sensor.period_ns) for sensor in plan.sensors}
    return sensors | {task.name: (task.offset_ns, task.period_ns) for task in plan.tasks if task.timer}
