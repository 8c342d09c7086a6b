"""Lane occupancy of jobs and the data flow between them, as columns: the boxes and arrows of a trace viewer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from socsched.planning.plan import Plan
from socsched.trace.blocks import spans
from socsched.trace.chains import Frames, Tasks
from socsched.trace.columns import Columns
from socsched.trace.convert import encode_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from socsched.trace.columns import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Stays:
    """Stays: uninterrupted occupancies of lanes by jobs, in order of their start.

    Stay i consists of the slices `pieces[first[i] : first[i] + count[i]]`, in order.  `job` is the stay's job, `opens`
    and `closes` tell whether it is its job's first and last stay.
    """

    pieces: Ints
    first: Ints
    count: Ints
    job: Ints
    opens: NDArray[np.bool_]
    closes: NDArray[np.bool_]


def stays(columns: Columns, rows: Ints | None = None) -> Stays:
    """Join contiguous slices of a job on the same lanes of an engine (segment after segment); `rows`: of these slices.

    `rows` ascend, and contain all slices of a job or none.
    """
    which = slice(None) if rows is None else rows
    names = ("start_ns", "end_ns", "job", "lanes", "engine")
    start, ends, owners, lanes, engine = (getattr(columns.slices, name)[which] for name in names)
    by_start = np.argsort(start, kind="stable")
    by_job = by_start[np.argsort(owners[by_start], kind="stable")]
    job, end = owners[by_job], ends[by_job]
    fresh = np.ones(len(by_job), np.bool_)
    fresh[1:] = (job[1:] != job[:-1]) | (end[:-1] != start[by_job[1:]])
    for held in (lanes, engine):
        fresh[1:] |= held[by_job[1:]] != held[by_job[:-1]]
    first = np.flatnonzero(fresh)
    count = np.diff(np.concatenate((first, [len(by_job)])))
    owner = job[first]
    change = np.concatenate(([True], owner[1:] != owner[:-1])) if len(owner) else fresh
    opens, closes = change, np.concatenate((change[1:], [True])) if len(owner) else fresh
    # stays that start at the same time keep the order of the record
    place = np.empty(len(by_job), np.int64)
    place[by_start] = np.arange(len(by_start))
    order = np.argsort(place[by_job[first]], kind="stable")
    pieces = by_job if rows is None else rows[by_job]
    return Stays(pieces, first[order], count[order], owner[order], opens[order], closes[order])


def stays_between(columns: Columns, begin: int, end: int) -> Stays:
    """Return the stays of all jobs with a slice that overlaps a window (ns).

    In a long trace, stays that reach further out of the window than its length are cut off there.
    """
    slices, jobs = columns.slices, columns.jobs
    rows = columns.slices_between(begin, end)
    concerned = np.unique(slices.job[rows])
    if columns.stored is None:
        rows = np.arange(len(slices))
    elif len(concerned):
        finish = jobs.finish_ns[concerned]
        first = max(min(begin, int(jobs.activation_ns[concerned].min())), 2 * begin - end)
        last = 2 * end - begin if (finish < 0).any() else min(max(end, int(finish.max())), 2 * end - begin)
        rows = columns.slices_between(first, last)
    return stays(columns, rows[np.isin(slices.job[rows], concerned)])


@dataclass(frozen=True, slots=True, eq=False)
class Arrows:
    """Numbered arrows, from the job or release that delivers data to the job that uses it.

    Job i receives the `received[i]` arrows from `first[i]` on and sends `by_job[job_begins[i] : job_begins[i + 1]]`;
    release i, numbered consecutively over all sources in their order, sends those of `by_release` likewise.
    """

    first: Ints
    received: Ints
    by_job: Ints
    job_begins: Ints
    by_release: Ints
    release_begins: Ints


def arrows(columns: Columns, plan: Plan) -> Arrows:
    """Connect every started job of `plan` with the jobs and releases whose data it used."""
    jobs, tasks, offsets = columns.jobs, Tasks(columns), _offsets(columns.releases)
    frames = {name: Frames(columns, tasks.rows(name)) for name in columns.tasks}
    found: list[tuple[Ints, Ints, Ints, Ints]] = []
    for task in plan.tasks:
        rows = tasks.rows(task.name)
        rows = rows[jobs.start_ns[rows] >= 0]
        taken = [(name, rows, jobs.frame[rows]) for name in task.after]
        if len(rows):
            sampling = rows[jobs.sampled[rows] >= 0]
            for place, name in enumerate(columns.reads[tasks.numbers[task.name]]):
                numbers = jobs.frames[jobs.sampled[sampling] + place]
                taken.append((name, sampling[numbers >= 0], numbers[numbers >= 0]))
        for slot, (name, using, numbers) in enumerate(taken):
            sender = frames[name].rows(numbers) if name in frames else np.full(len(numbers), -1, np.int64)
            release = np.full(len(numbers), -1, np.int64)
            if name in offsets:
                inside = (sender < 0) & (numbers >= 0) & (numbers < len(columns.releases[name]))
                release[inside] = offsets[name] + numbers[inside]
            known = (sender >= 0) | (release >= 0)
            slots = np.full(int(known.sum()), slot, np.int64)
            found.append((using[known], slots, sender[known], release[known]))
    none = (np.zeros(0, np.int64),) * 4
    user, slots, sender, release = (np.concatenate(parts) for parts in zip(*(found or [none]), strict=True))
    order = np.lexsort((slots, user))
    user, sender, release = user[order], sender[order], release[order]
    received = np.bincount(user, minlength=len(jobs))
    first = np.cumsum(received) - received + 1
    total = sum(len(times) for times in columns.releases.values())
    return Arrows(first, received, *_grouped(sender, len(jobs)), *_grouped(release, total))


def _offsets(releases: Mapping[str, Ints]) -> dict[str, int]:
    found, total = {}, 0
    for name, times in releases.items():
        found[name] = total
        total += len(times)
    return found


def _grouped(sender: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the arrow numbers grouped by sender, and the start index of each sender's group."""
    known = np.flatnonzero(sender >= 0)
    order = known[np.argsort(sender[known], kind="stable")]
    return order + 1, np.concatenate(([0], np.cumsum(np.bincount(sender[known], minlength=count))))


def used_lanes(columns: Columns) -> list[tuple[str, tuple[int, ...]]]:
    """Return the engines and lanes that slices held together, in the order they were first held."""
    slices, used = columns.slices, dict[tuple[int, int], None]()
    for part in spans(len(slices)):
        engine, lanes = slices.engine[part], slices.lanes[part]
        codes, held = encode_values(lanes)
        found, place = encode_values(engine * max(len(codes), 1) + held)
        first = np.empty(len(found), np.int64)
        first[place[::-1]] = np.arange(len(place))[::-1]  # the last write wins: the first occurrence
        rows = np.sort(first)
        used |= dict.fromkeys(zip(engine[rows].tolist(), lanes[rows].tolist(), strict=True))
    return [(columns.engines[engine], columns.lanes(code)) for engine, code in used]
