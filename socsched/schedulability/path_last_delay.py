"""The window of a path by the job of its own sources that delays it last: that job ends at a known time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from socsched.schedulability.path_rivals import (
    NEVER,
    Path,
    Rival,
    System,
    Window,
    ends,
    frames,
    latest_release,
)

SPANS = 20
"""Steps of the iteration over the jobs of a path's own sources after which it keeps its bound."""
JOBS = 48
"""Jobs of a path's own sources in a window that are examined one by one; a longer window keeps its bound."""


def by_last_delay(system: System, path: Path, finish: Mapping[str, int], whole: Window, limit: int) -> int | None:
    """Return the longest response of a path by the job of its own sources that delays it last; None from `limit` on.

    That job ends at a known time after the release, and what follows is delayed by other jobs only.  Jobs for which
    this is worse than their execution times are charged with these, one after the other.
    """
    most, span = limit - whole.origin, whole.alone + 1
    rivals = [_aligned_rival(system, path, finish, rival) for rival in whole.aligned]
    if not _aligned_jobs(rivals, most + whole.later):  # the same equation as for `whole`
        return None
    parts: dict[int, Window | None] = {0: whole}
    for _ in range(SPANS):
        jobs = _aligned_jobs(rivals, span + whole.later)
        if len(jobs) > JOBS:
            return None
        found = _last_delay(system, path, finish, parts, jobs, span, most)
        if found is None or found <= span:
            return None if found is None else found + whole.origin
        span = found
    return None


def _last_delay(
    system: System,
    path: Path,
    finish: Mapping[str, int],
    parts: dict[int, Window | None],
    jobs: Sequence[_Job],
    span: int,
    most: int,
) -> int | None:
    """Return the longest window if only `jobs` of its own sources, all within a `span`, delay it; None from `most`."""
    fixed = sum(job.switch for job in jobs)
    free, best, charged = [job for job in jobs if job.wcet], most, 0
    lengths: dict[int, int] = {}  # they grow with what is charged
    while True:
        for start in sorted({0, *(job.first for job in free)}):
            if start not in parts:
                parts[start] = Window.of(system, path, finish, start)
            part = parts[start]
            length = part.length(fixed + charged, span, most, lengths.get(start, 0)) if part else None
            lengths[start] = most if length is None else length
            if lengths[0] >= best:
                return best if best < most else None
        worst, by = lengths[0], None
        for job in free:
            if job.end + lengths[job.first] > worst:
                worst, by = job.end + lengths[job.first], job
        best = min(best, worst)
        if by is None:
            return best if best < most else None
        charged += min(by.wcet, by.end)
        free.remove(by)


@dataclass(frozen=True, slots=True)
class _Job:
    """A job of the path's own sources that may delay it: its latest end (ns), and the first of the tasks it delays."""

    end: int
    wcet: int
    switch: int
    first: int


@dataclass(frozen=True, slots=True)
class _Aligned:
    """A rival of the path's own sources.

    `hops`: index, latest release of a job that goes before it, and latest end (ns) of each task that it may delay;
    `preempts`: it may preempt jobs that hold other lanes; `blocks`: one that has begun holds its lanes for a segment.
    """

    rival: Rival
    hops: tuple[tuple[int, int, int], ...]
    preempts: bool
    blocks: bool


def _aligned_rival(system: System, path: Path, finish: Mapping[str, int], rival: Rival) -> _Aligned:
    key = rival.name, path
    one = system.single[rival.name]
    if key not in system.ahead:
        task, group = system.tasks[rival.name], system.groups[rival.name]
        full = all(other.preemption == "full" for other in group)
        system.ahead[key] = [
            (index, latest_release(system, task, [system.tasks[name]], path, True) if one or full else -NEVER, name)
            for index, name in enumerate(path.tasks)
            if system.groups[name] is group and (one or system.tasks[name].lanes & task.lanes)
        ]
    hops = tuple((index, latest, ends(system, path, name, finish)) for index, latest, name in system.ahead[key])
    return _Aligned(rival, hops, not one, one and bool(system.tasks[rival.name].segment))


def _aligned_jobs(rivals: Sequence[_Aligned], span: int) -> list[_Job]:
    """Return the jobs released within a `span` that may delay the path."""
    found = []
    for each in rivals:
        rival = each.rival
        for _, at in frames(rival, 0, span):
            first = next((index for index, latest, end in each.hops if at <= latest and at < end), None)
            if first is not None and each.blocks:  # tasks before that one are delayed, too, if it has begun
                first = next(index for index, _, end in each.hops if at < end)
            if first is not None:
                found.append(_Job(at + rival.finish, rival.wcet, rival.switch, first))
            elif at <= rival.latest and each.preempts:
                found.append(_Job(at + rival.finish, 0, rival.switch, 0))
    return found
