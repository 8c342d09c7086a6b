"""The rows that a kernel records, as trace columns: made at once, or written in blocks while it runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from socsched.sim.lower import Lowered
from socsched.trace.blocks import BLOCK
from socsched.trace.columns import CLOCK, FOREIGN, MISS_OPEN, Columns, InstantColumns, JobColumns, SliceColumns
from socsched.trace.stored import GBPS, LAYOUTS, POWER, TRAFFIC, Counter, Meter, Stored

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from socsched.sim.callbacks import Callbacks

    Ints = NDArray[np.int64]
    Steps = dict[str, tuple[Ints, NDArray[np.float64]]]

HELD = 8 * 2**20
"""Bytes of rows up to which a trace is made in memory."""


class Recorder:
    """What a kernel recorded: `take` its rows while it runs, then make `columns`.

    Which rows share a block depends on their number alone, so that the same simulation gives the same bytes.
    """

    def __init__(self, lowered: Lowered, held: int = HELD) -> None:
        self.lowered, self.held, self.taken = lowered, held, 0
        self.widths = {"jobs": 13, "slices": 9 + lowered.tables["numbers"]["words"], "notes": 5, "steps": 3,
                       "depths": 3, "samples": 1, "releases": 2, "levels": 3}  # fmt: skip
        self.logs: dict[str, list[bytes]] = {name: [] for name in self.widths}
        self.stream: Stream | None = None

    def take(self, logs: Mapping[str, list[bytes]]) -> None:
        """Take over rows, as blocks by log."""
        for name, blocks in logs.items():
            self.logs[name] += blocks
            self.taken += sum(map(len, blocks))
        if self.taken > self.held:
            self.stream = self.stream or Stream(self.lowered)
            self.stream.take({name: self.rows(name) for name in STREAMED}, False)

    def rows(self, name: str) -> Ints:
        """Return the rows of a log since the last call as a matrix."""
        blocks, self.logs[name] = self.logs[name], []
        return np.frombuffer(b"".join(blocks), np.int64).reshape(-1, self.widths[name])

    def columns(self, callbacks: Callbacks) -> Columns:
        """Return everything recorded as columns, with the marks of the callbacks."""
        lowered, board = self.lowered, callbacks.board
        names = tuple(task.name for task in lowered.plan.tasks)
        fields: dict[str, Any] = {
            "tasks": names,
            "reads": tuple(task.reads for task in lowered.plan.tasks),
            "engines": tuple(engine.id for engine in lowered.plan.engines),
            "names": lowered.names,
            "subjects": (*names, *lowered.sources, *(engine.id for engine in lowered.plan.engines)),
        }
        first_engine = len(names) + len(lowered.sources)
        marks = _numbers(((t, code, first_engine + e, -1, value) for t, code, e, value in callbacks.list_marks()), 5)
        slow = _temperature(board.temperature if board and board.rule.time_constant_ns else ())
        slow |= _levels(lowered, self.rows("levels"))
        foreign = _foreign(callbacks.foreign)
        if self.stream is not None:
            self.stream.take({name: self.rows(name) for name in STREAMED}, True)
            return self.stream.columns(fields, marks, slow, foreign)
        jobs = _ordered(self.rows("jobs"))
        engines, job, segment, begin, end, _, _, _, *words = _ordered(self.rows("slices"))
        sets = _Lanes()
        releases, frames = self.rows("releases"), self.rows("samples")[:, 0]
        counters = {**_meters(lowered, self.rows("steps")), **slow, **_depths(lowered, self.rows("depths")), **foreign}
        return Columns(
            **fields,
            jobs=JobColumns(*(*jobs, frames)),
            slices=SliceColumns(engines, sets.codes(words), job, segment, begin, end),
            lane_sets=tuple(sets.known),
            instants=InstantColumns(**next(_instants([self.rows("notes")], marks))),
            counters=counters,
            releases={name: releases[releases[:, 0] == index, 1] for index, name in enumerate(lowered.sources)},
        )


# -- written in blocks


STREAMED = ("jobs", "slices", "notes", "steps", "depths", "samples", "releases")
"""Logs that are written while a simulation runs; clocks change seldom."""
_JOB, _JOBS_WRITTEN = 2, 8
"""In a row of a slice: its job, and how many rows of jobs came before it."""
_SLICES = ("engine", "job", "name", "start_ns", "end_ns", "task", "frame")


class Stream:
    """A recording that is written in blocks of `BLOCK` rows.

    A row is recorded when its subject ends, with the number of its beginning.  A block is written once a quarter
    more rows wait; a subject that has not ended by then is mended later (`Table.mend`).
    """

    def __init__(self, lowered: Lowered) -> None:
        self.lowered, self.lanes = lowered, _Lanes()
        self.stored = Stored(tempfile.TemporaryFile())  # noqa: SIM115 - lives as long as the columns
        self.stored.sources, self.stored.origins = lowered.sources, _origins(lowered)
        self.notes: list[Ints] = []
        self.waiting: dict[str, Ints] = {}
        self.jobs = 0
        self.depths = np.full(len(lowered.plan.tasks), -1)

    def take(self, logs: Mapping[str, Ints], last: bool) -> None:
        """Write rows by log in blocks; `last`: all that are left."""
        self._add_instants(logs, last)
        for name, rows in logs.items():
            self.waiting[name] = np.concatenate((self.waiting[name], rows)) if name in self.waiting else rows
        # slices look for jobs that are written: in the order in which their rows came, however many come at once
        for part in self._parts("slices", last):
            self._take_jobs(int(part[-1, _JOBS_WRITTEN]), False)
            self._take_numbered("slices", part, False)
        self._take_jobs(1 << 62, last)
        if last:
            self._take_numbered("slices", self.waiting["slices"][:0], True)
        for name in STREAMED[2:]:
            for part in self._parts(name, last):
                getattr(self, f"_{name}")(part)

    def _parts(self, name: str, last: bool, most: int = 1 << 62) -> Iterator[Ints]:
        """Yield the waiting rows of a log in blocks, up to `most`; `last`: all that are left."""
        waiting, at = self.waiting[name], 0
        while min(len(waiting), most) - at >= (1 if last else BLOCK):
            part = waiting[at : at + BLOCK]
            at += len(part)
            yield part
        self.waiting[name] = waiting[at:].copy()

    def _take_jobs(self, upto: int, last: bool) -> None:
        for part in self._parts("jobs", last, upto - self.jobs):
            self.jobs += len(part)
            self._take_numbered("jobs", part, False)
        if last:
            self._take_numbered("jobs", self.waiting["jobs"][:0], True)

    def _add_instants(self, logs: Mapping[str, Ints], last: bool) -> None:
        """Tell the clock when slices ended, power or queues changed and frames were released, up to the last of these.

        What is recorded as it happens is complete up to then, whatever the number of rows that come at once.
        """
        now = [logs["slices"][:, 5], logs["steps"][:, 0], logs["depths"][:, 0]]
        upto = 1 << 62 if last else max((int(times[-1]) for times in now if len(times)), default=0)
        self.stored.clock.add([*now, logs["releases"][:, 1]], upto)
        self.stored.clock.forget()
        self.stored.add_releases(*logs["releases"].T)

    def _take_numbered(self, name: str, part: Ints, last: bool) -> None:
        table, key = self.stored.tables[name], f"{name} by number"
        first = len(table)
        begun = self.waiting.get(key)
        for row in part[part[:, 0] < first]:
            values = self._named(name, row.reshape(1, -1))
            table.mend(int(row[0]), {column: int(values[column][0]) for column in table.layout.columns})
        part = part[part[:, 0] >= first]
        rows = part if begun is None else np.concatenate((begun, part))
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        while len(rows) >= (1 if last else BLOCK + BLOCK // 4):
            upto = min(first + BLOCK, int(rows[-1, 0]) + 1)
            here = int(np.searchsorted(rows[:, 0], upto))
            if name == "slices" and rows[:here, _JOB].max() >= len(self.stored.tables["jobs"]):
                break
            # a subject that has not ended has the row of another until it is mended
            block = np.repeat(rows[:1], upto - first, axis=0)
            block[rows[:here, 0] - first] = rows[:here]
            table.append(self._named(name, block))
            rows, first = rows[here:], upto
        self.waiting[key] = rows.copy()

    def _named(self, name: str, rows: Ints) -> dict[str, Ints]:
        if name == "jobs":
            return dict(zip(LAYOUTS["jobs"].columns, rows.T[1:], strict=True))
        own = dict(zip(_SLICES, rows.T[1:8], strict=True))
        return own | {"lanes": self.lanes.codes(list(rows.T[9:]))}

    def _notes(self, rows: Ints) -> None:
        self.notes.append(rows.copy())

    def _steps(self, rows: Ints) -> None:
        self.stored.tables["meters"].append(dict(zip(("time_ns", "load", "traffic"), rows.T, strict=True)))

    def _samples(self, rows: Ints) -> None:
        self.stored.tables["frames"].append({"frame": rows[:, 0]})

    def _releases(self, rows: Ints) -> None:
        self.stored.tables["releases"].append(dict(zip(("source", "time_ns"), rows.T, strict=True)))

    def _depths(self, rows: Ints) -> None:
        self.stored.tables["queues"].append(dict(zip(("time_ns", "counter", "value"), rows.T, strict=True)))
        np.maximum.at(self.depths, rows[:, 1], rows[:, 2])

    def columns(self, fields: Mapping[str, Any], marks: Ints, slow: Steps, foreign: Steps) -> Columns:
        """Return the columns once everything was taken."""
        stored, numbers = self.stored, self.lowered.tables["numbers"]
        for notes in _instants(self.notes, marks):
            stored.tables["instants"].append(notes)
        stored.meter = Meter(numbers["static_power"], numbers["scale"], numbers["energy_per_byte"])
        stored.counters = {name: Counter("meters", 0, None, 0.0, 1.0) for name in (POWER, TRAFFIC)}
        stored.add_counters(slow)
        queues = sorted((_queue(self.lowered, task), task) for task in np.flatnonzero(self.depths >= 0).tolist())
        stored.counters |= {name: Counter("queues", task, 0.0, 0, int(self.depths[task])) for name, task in queues}
        stored.add_counters(foreign)
        stored.finish()
        return stored.columns({**fields, "lane_sets": tuple(self.lanes.known)})


# -- what both have in common


def _origins(lowered: Lowered) -> tuple[int, ...]:
    """Return the source that the frames of each task are counted from: its own timer, or the first on its way."""
    sources, tasks = lowered.sources, {task.name: task for task in lowered.plan.tasks}

    def origin(name: str, left: int) -> int:
        if name in sources or not left or name not in tasks:
            return sources.index(name) if name in sources else -1
        return next((found for before in tasks[name].after if (found := origin(before, left - 1)) >= 0), -1)

    return tuple(origin(name, len(tasks)) for name in tasks)


class _Lanes:
    """Numbers sets of lanes that do not fit a mask, in order of first appearance."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, ...], int] = {}

    def codes(self, words: Sequence[Ints]) -> Ints:
        """Return the lanes of slices as in `trace.columns`."""
        if len(words) == 1:
            return words[0]
        distinct, which = np.unique(np.stack(words, axis=1), axis=0, return_inverse=True)
        bits = np.unpackbits(np.ascontiguousarray(distinct).view(np.uint8), axis=1, bitorder="little")
        sets = [tuple(np.flatnonzero(row).tolist()) for row in bits]
        numbers = np.array([self.known.setdefault(lanes, len(self.known)) for lanes in sets], np.int64)
        return -1 - numbers[np.asarray(which, np.int64).reshape(-1)]


def _ordered(rows: Ints) -> list[Ints]:
    """Return the columns of rows, sorted by their first number, which is a permutation of 0 to their count."""
    where = np.empty(len(rows), np.int64)
    where[rows[:, 0]] = np.arange(len(rows))
    return [np.take(column, where) for column in rows.T[1:]]


def _numbers(rows: Any, width: int) -> Ints:
    return np.array(list(rows), np.int64).reshape(-1, width)


def _instants(parts: Sequence[Ints], marks: Ints) -> Iterator[dict[str, Ints]]:
    """Yield the instants in order of time, part by part: marks first at their instant, what is known late last.

    A job unfinished at its deadline is only known at the end.
    """
    late = [part[part[:, 1] == MISS_OPEN] for part in parts] or [marks[:0]]
    parts = [part[part[:, 1] != MISS_OPEN] for part in parts]
    parts = [part for part in parts if len(part)] or [marks[:0]]
    after = np.concatenate(late)
    ends = [*(int(part[0, 0]) for part in parts[1:]), 1 << 62]
    for part, end in zip(parts, ends, strict=True):
        # an instant that the next part shares has its marks here, and what is known late there
        here = marks[:, 0] < end, after[:, 0] < end
        joined = np.concatenate([marks[here[0]], part, after[here[1]]])
        marks, after = marks[~here[0]], after[~here[1]]
        joined = joined[np.argsort(joined[:, 0], kind="stable")]
        names = ("time_ns", "kind", "subject", "frame", "value")
        yield {name: np.ascontiguousarray(column) for name, column in zip(names, joined.T, strict=True)}


def _queue(lowered: Lowered, task: int) -> str:
    return f"queue.{lowered.plan.tasks[task].name}"


def _temperature(degrees: Sequence[tuple[int, float]]) -> Steps:
    if not degrees:
        return {}
    times, values = zip(*degrees, strict=True)
    return {"temperature_c": (np.array(times, np.int64), np.array(values, np.float64))}


def _foreign(steps: Sequence[tuple[int, str, float]]) -> Steps:
    """Return the foreign traffic of each engine as a counter."""
    found = {}
    for engine in dict.fromkeys(engine for _, engine, _ in steps):
        own = [(0, 0.0), *((time, rate) for time, name, rate in steps if name == engine)]
        found[FOREIGN + engine] = (np.array([t for t, _ in own], np.int64), np.array([rate for _, rate in own]))
    return found


def _meters(lowered: Lowered, steps: Ints) -> Steps:
    """Return power and traffic."""
    numbers = lowered.tables["numbers"]
    times = np.concatenate([np.zeros(1, np.int64), steps[:, 0]])
    rates = np.concatenate([np.zeros(1), steps[:, 2] / GBPS])
    loads = np.concatenate([np.zeros(1), steps[:, 1].astype(np.float64)])
    power = numbers["static_power"] + loads / numbers["scale"] + rates * numbers["energy_per_byte"]
    moved = np.concatenate([[True], rates[1:] != rates[:-1]])
    return {POWER: (times, power), TRAFFIC: (times[moved], rates[moved])}


def _levels(lowered: Lowered, levels: Ints) -> Steps:
    """Return the clocks of engines that change them."""
    found: Steps = {}
    for engine in np.unique(levels[:, 1]).tolist():
        clocks = np.array([point.clock_hz for point in lowered.plan.engines[engine].levels], np.float64)
        if not len(clocks):
            continue
        own = levels[levels[:, 1] == engine]
        # engines with fewer operating points than the largest repeat their slowest one
        points = np.maximum(own[:, 2] - (lowered.tables["numbers"]["levels"] - len(clocks)), 0)
        at = np.concatenate([np.zeros(1, np.int64), own[:, 0]])
        found[CLOCK + lowered.plan.engines[engine].id] = (at, np.concatenate([clocks[-1:], clocks[points]]))
    return found


def _depths(lowered: Lowered, depths: Ints) -> Steps:
    """Return the frames that wait in each queue."""
    found = {}
    for task in np.unique(depths[:, 1]).tolist():
        own = depths[depths[:, 1] == task]
        frames = np.concatenate([np.zeros(1), own[:, 2].astype(np.float64)])
        found[_queue(lowered, task)] = (np.concatenate([np.zeros(1, np.int64), own[:, 0]]), frames)
    return dict(sorted(found.items()))
