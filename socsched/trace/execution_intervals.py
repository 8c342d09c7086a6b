"""Lane occupancy of jobs, as columns: the boxes of a trace viewer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from socsched.trace.blocks import spans
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
