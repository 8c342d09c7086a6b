"""Lossless conversion between lists of records and columns."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from socsched.trace.columns import STATUS, Columns, Instant, InstantColumns, Job, JobColumns, Slice, SliceColumns

if TYPE_CHECKING:
    from socsched.trace.columns import Floats, Ints

JOB_FIELDS = (
    "frame",
    "activation_ns",
    "deadline_ns",
    "start_ns",
    "finish_ns",
    "exec_ns",
    "blocking_ns",
    "preemptions",
    "migrations",
)
"""Fields of a job that are numbers."""
MASK_LANES = 63
_STATUS = {name: code for code, name in enumerate(STATUS)}
_Thing = TypeVar("_Thing", bound=Hashable)


class Names(dict[_Thing, int]):
    """Numbers keys in order of first lookup."""

    def __missing__(self, thing: _Thing) -> int:
        self[thing] = number = len(self)
        return number


def to_columns(
    jobs: Sequence[Job],
    slices: Sequence[Slice],
    instants: Sequence[Instant],
    releases: Mapping[str, Sequence[int]],
    counters: Mapping[str, Sequence[tuple[int, float]]],
) -> Columns:
    """Return the columns of records given as lists.

    Raises OverflowError for a number beyond int64 and KeyError for a status that does not exist.
    """
    tasks: Names[str] = Names()
    job_columns, reads = _jobs(jobs, tasks)
    engines: Names[str] = Names()
    names: Names[str] = Names()
    lane_sets: Names[tuple[int, ...]] = Names()
    masks = {lanes: _mask(lanes, lane_sets) for lanes in dict.fromkeys(piece.lanes for piece in slices)}
    slice_columns = SliceColumns(
        column([engines[piece.engine] for piece in slices]),
        column([masks[piece.lanes] for piece in slices]),
        column([piece.job for piece in slices]),
        column([names[piece.name] for piece in slices]),
        column([piece.start_ns for piece in slices]),
        column([piece.end_ns for piece in slices]),
    )
    subjects: Names[str] = Names()
    kinds: Names[str] = Names()
    texts: Names[str] = Names()
    instant_columns = InstantColumns(
        column([note.time_ns for note in instants]),
        column([-1 - kinds[note.kind] for note in instants]),
        column([subjects[note.subject] for note in instants]),
        column([note.frame for note in instants]),
        column([texts[note.text] for note in instants]),
    )
    return Columns(
        tuple(tasks),
        tuple(tuple(read) for read in reads),
        tuple(engines),
        tuple(names),
        tuple(subjects),
        job_columns,
        slice_columns,
        instant_columns,
        {name: steps(*zip(*found, strict=True)) if found else steps((), ()) for name, found in counters.items()},
        {name: column(times) for name, times in releases.items()},
        tuple(lane_sets),
        tuple(kinds),
        tuple(texts),
    )


def column(values: Iterable[int]) -> Ints:
    """Return whole numbers as a column."""
    return np.array(values if isinstance(values, (list, tuple)) else list(values), np.int64)


def steps(times: Iterable[int], values: Iterable[float]) -> tuple[Ints, Floats]:
    """Return the steps of a counter as columns."""
    return column(times), np.array(list(values), np.float64)


def encode_values(values: Ints) -> tuple[Ints, Ints]:
    """Return the distinct values, ascending, and each entry's index among them; fast for small values."""
    if not len(values) or values.min() < 0 or values.max() >= 1 << 16:
        found, places = np.unique(values, return_inverse=True)
        return found, places.reshape(-1)
    found = np.flatnonzero(np.bincount(values))
    numbers = np.zeros(found[-1] + 1, np.int64)
    numbers[found] = np.arange(len(found))
    return found, numbers[values]


def _jobs(jobs: Sequence[Job], tasks: Names[str]) -> tuple[JobColumns, list[Names[str]]]:
    numbers = column([tasks[job.task] for job in jobs])
    reads: list[Names[str]] = [Names() for _ in tasks]
    sampling = [(number, job.sampled) for number, job in zip(numbers.tolist(), jobs, strict=True) if job.sampled]
    for number, sampled in sampling:
        for name in sampled:
            reads[number][name]
    frames: list[int] = []
    offsets = [-1] * len(jobs)
    for index, (number, job) in enumerate(zip(numbers.tolist(), jobs, strict=True)):
        if job.sampled:
            offsets[index] = len(frames)
            frames += [job.sampled.get(name, -1) for name in reads[number]]
    plain = {name: column(list(map(attrgetter(name), jobs))) for name in JOB_FIELDS}
    status = column([_STATUS[job.status] for job in jobs])
    return JobColumns(task=numbers, status=status, sampled=column(offsets), frames=column(frames), **plain), reads


def _mask(lanes: tuple[int, ...], sets: Names[tuple[int, ...]]) -> int:
    if all(0 <= lane < MASK_LANES for lane in lanes) and tuple(sorted(set(lanes))) == tuple(lanes):
        return sum(1 << lane for lane in lanes)
    return -1 - sets[tuple(lanes)]


def jobs_of(columns: Columns, which: Ints | list[int] | slice = slice(None)) -> list[Job]:
    """Return the jobs, or those at `which`, as records."""
    table, tasks, reads = columns.jobs, columns.tasks, columns.reads
    rows = [*_rows(table, ("task", *JOB_FIELDS, "status", "sampled"), which)]
    sampled = [row[-1] for row in rows if row[-1] >= 0]
    begin, most = min(sampled, default=0), max(map(len, reads), default=0)
    frames = table.frames[begin : max(sampled, default=-most) + most].tolist()
    found = []
    for task, frame, activation, deadline, start, finish, exec_ns, blocking, preempted, migrated, status, at in rows:
        job = Job(
            tasks[task],
            frame,
            activation,
            deadline,
            start_ns=start,
            finish_ns=finish,
            exec_ns=exec_ns,
            blocking_ns=blocking,
            preemptions=preempted,
            status=STATUS[status],
            migrations=migrated,
        )
        if at >= 0:
            names = reads[task]
            taken = zip(names, frames[at - begin : at - begin + len(names)], strict=True)
            job.sampled = {name: frame for name, frame in taken if frame >= 0}
        found.append(job)
    return found


def slices_of(columns: Columns, which: Ints | slice = slice(None)) -> list[Slice]:
    """Return the slices, or those at `which`, as records."""
    table, engines, names, lanes = columns.slices, columns.engines, columns.names, columns.lanes
    rows = _rows(table, ("engine", "lanes", "job", "name", "start_ns", "end_ns"), which)
    return [Slice(engines[engine], lanes(code), job, names[name], a, b) for engine, code, job, name, a, b in rows]


def instants_of(columns: Columns, which: Ints | slice = slice(None)) -> list[Instant]:
    """Return the instants, or those at `which`, as records, with their texts."""
    rows = _rows(columns.instants, ("time_ns", "kind", "subject", "frame", "value"), which)
    subjects, kind, text = columns.subjects, columns.kind, columns.text
    return [Instant(time, kind(code), subjects[of], frame, text(code, value)) for time, code, of, frame, value in rows]


def counters_of(columns: Columns) -> dict[str, list[tuple[int, float]]]:
    """Return the counters as lists of (time, value)."""
    return {
        name: list(zip(times.tolist(), values.tolist(), strict=True))
        for name, (times, values) in columns.counters.items()
    }


def releases_of(columns: Columns) -> dict[str, list[int]]:
    """Return the release times as lists."""
    return {name: times.tolist() for name, times in columns.releases.items()}


def _rows(table: Any, names: Sequence[str], which: Ints | list[int] | slice) -> Iterable[Any]:
    return zip(*(getattr(table, name)[which].tolist() for name in names), strict=True)
