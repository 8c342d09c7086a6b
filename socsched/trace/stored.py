"""The tables of a trace in a file of blocks: what a long simulation writes as it goes, and every verb reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from socsched.descriptor.limits import MOST_NS
from socsched.trace.blocks import BLOCK, Clock, File, Layout, Table, groups_of, spans
from socsched.trace.columns import MAGIC, Columns, InstantColumns, JobColumns, SliceColumns

if TYPE_CHECKING:
    from socsched.trace.columns import Floats, Ints

POWER, TRAFFIC = "power_mw", "bandwidth_gbps"
GBPS = 1e5
"""Recorded steps of traffic (10 kB/s) in a GB/s."""


def _released(stored: Stored, column: Callable[[str], Ints], _: tuple[int, int]) -> Ints:
    """Return when the frames of jobs were released, where that is on record by their activation, else the latter."""
    frames, activation, tasks = column("frame"), column("activation_ns"), column("task")
    times: Ints = activation.copy()
    order, begins = groups_of(tasks)
    for own in np.split(order, begins[1:]):
        task = int(tasks[own[0]])
        release = stored.releases(stored.origins[task]) if 0 <= task < len(stored.origins) else activation[:0]
        rows = own[(frames[own] >= 0) & (frames[own] < len(release))]
        at = release[frames[rows]]
        times[rows] = np.where(at <= activation[rows], at, activation[rows])
    return times


def _jobs(stored: Stored, column: Callable[[str], Ints], window: tuple[int, int]) -> Ints:
    """Return which of the jobs of a window have the tasks and frames of slices; any where none has."""
    low, high = window
    if not 0 <= low <= high < low + WINDOW:
        return np.full(len(column("task")), low)
    jobs = stored.tables["jobs"]
    known = (jobs.written("task", low, high + 1) << 40) + jobs.written("frame", low, high + 1)
    order = np.argsort(known, kind="stable")
    at = np.searchsorted(known[order], (column("task") << 40) + column("frame"))
    found: Ints = low + order[np.minimum(at, len(order) - 1)]
    return found


WINDOW = 1 << 22
"""Most jobs among which those of a block of slices are looked for."""
LAYOUTS = {
    "clock": Layout(("time_ns",)),
    "jobs": Layout(
        ("task", "frame", "activation_ns", "deadline_ns", "start_ns", "finish_ns", "exec_ns", "blocking_ns",
         "preemptions", "migrations", "status", "sampled"),
        "task",
        {
            "deadline_ns": ((1, "release_ns"),),
            "start_ns": ((1, "activation_ns"),),
            "finish_ns": ((1, "start_ns"),),
            "exec_ns": ((1, "finish_ns"), (-1, "start_ns")),
        },
        ("activation_ns", "start_ns", "finish_ns"),
        derived={"release_ns": _released},
    ),
    "slices": Layout(
        ("task", "frame", "name", "engine", "lanes", "job", "start_ns", "end_ns"), "task",
        {"end_ns": ((1, "start_ns"),), "job": ((1, "job of frame"),)},
        ("start_ns", "end_ns"), "start_ns", "end_ns", {"job of frame": _jobs},
    ),
    "instants": Layout(("subject", "time_ns", "kind", "frame", "value"), "subject", times=("time_ns",)),
    "frames": Layout(("frame",)),
    "releases": Layout(("source", "time_ns"), "source", times=("time_ns",)),
    "meters": Layout(("time_ns", "load", "traffic"), times=("time_ns",)),
    "queues": Layout(("counter", "time_ns", "value"), "counter", times=("time_ns",)),
    "counters": Layout(("counter", "time_ns", "value"), "counter", times=("time_ns",)),
}  # fmt: skip
"""Tables by name.  `traffic` is in 10 kB/s, values of `counters` are the bits of float64; queues hold whole numbers."""
SMALL = 1 << 18
"""Rows up to which a file is read at once."""
_WHOLE = 1 << 22
"""Rows up to which all counters of a table are kept once one of them is read."""
_Record = TypeVar("_Record")


class Meter(NamedTuple):
    """What makes power of a row of `meters`: static mW, the loads of a mW, and mW for each GB/s."""

    static_mw: float
    scale: float
    mw_per_gbps: float


class Counter(NamedTuple):
    """Where a counter is: its table, its number there, its value from time 0 on if not recorded, and its extremes."""

    table: str
    number: int
    initial: float | None
    least: float
    most: float


class Stored:
    """The tables of a trace: `sources` and `counters` name what they refer to by number.

    `origins`: by task, the source that its frames are counted from; -1 for none.
    """

    def __init__(self, file: IO[bytes], name: str = "the recording", end: int = 0) -> None:
        self.file = File(file, name, end)
        self.tables = {name: Table(self, name, layout) for name, layout in LAYOUTS.items()}
        self.clock = Clock(self.tables["clock"])
        self.sources: tuple[str, ...] = ()
        self.origins: tuple[int, ...] = ()
        self.counters: dict[str, Counter] = {}
        self.meter: Meter | None = None
        self._released: dict[int, list[Ints]] | None = None
        if not end:
            self.file.write(MAGIC)

    @classmethod
    def of(cls, columns: Columns, file: IO[bytes]) -> Stored:
        """Write columns to a file."""
        stored = cls(file)
        jobs, slices = columns.jobs, columns.slices
        stored.clock.add([slices.end_ns, jobs.activation_ns, *columns.releases.values()], 1 << 62)
        for name in ("jobs", "slices", "instants"):
            record = getattr(columns, name)
            of = {"task": jobs.task, "frame": jobs.frame} if name == "slices" else {}
            more = {field: column[slices.job] if len(slices) else slices.job for field, column in of.items()}
            own = {field: getattr(record, field) for field in LAYOUTS[name].columns if field not in more}
            stored.tables[name].append(more | own)
        stored.tables["frames"].append({"frame": jobs.frames})
        stored.sources = tuple(columns.releases)
        stored.tables["releases"].append(_numbered("source", columns.releases.values()))
        stored.add_counters(columns.counters)
        stored.finish()
        return stored

    def finish(self) -> None:
        """Write what is left once all tables are."""
        while self.clock.left:
            self.clock.write(BLOCK)

    def add_releases(self, sources: Ints, times: Ints) -> None:
        """Take down releases that will be written, those of a source in the order of its frames."""
        known = self._released = self._released or {}
        for source in np.unique(sources).tolist():
            known.setdefault(source, []).append(times[sources == source])

    def releases(self, source: int) -> Ints:
        """Return when the frames of a source were released, as far as that is known."""
        if self._released is None:
            table = self.tables["releases"]
            sources, times = (np.asarray(table.column(name)) for name in ("source", "time_ns"))
            self._released = {number: [times[sources == number]] for number in range(len(self.sources))}
        parts = self._released.get(source) or [np.zeros(0, np.int64)]
        if len(parts) > 1:
            parts[:] = [np.concatenate(parts)]
        return parts[0]

    def add_counters(self, counters: Mapping[str, tuple[Ints, Floats]]) -> None:
        """Write whole counters."""
        for name, (times, values) in counters.items():
            number = sum(counter.table == "counters" for counter in self.counters.values())
            extremes = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
            self.counters[name] = Counter("counters", number, None, *extremes)
            table = {"counter": np.full(len(times), number), "time_ns": times, "value": values.view(np.int64)}
            self.tables["counters"].append(table)

    def columns(self, names: Mapping[str, Any]) -> Columns:
        """Return the columns, with `names` as the fields of `Columns` that are no tables; few rows are read at once."""
        whole = sum(len(table) for table in self.tables.values()) <= SMALL
        jobs = {name: self._column("jobs", name, whole) for name in LAYOUTS["jobs"].columns}
        jobs["frames"] = self._column("frames", "frame", whole)
        return Columns(
            **names,
            jobs=JobColumns(**jobs),
            slices=self._record(SliceColumns, "slices", whole),
            instants=self._record(InstantColumns, "instants", whole),
            counters={name: self.counter(name) for name in self.counters} if whole else _Counters(self),
            releases={name: self.releases(number) for number, name in enumerate(self.sources)},
            stored=None if whole else self,
        )

    def _column(self, table: str, name: str, whole: bool) -> Any:
        column = self.tables[table].column(name)
        return np.asarray(column) if whole else column

    def _record(self, kind: type[_Record], table: str, whole: bool) -> _Record:
        names: Sequence[str] = kind.__slots__  # type: ignore[attr-defined]
        return kind(**{name: self._column(table, name, whole) for name in names})

    def blocks_between(self, table: str, begin: int, end: int) -> list[slice]:
        """Return the ranges of rows of the blocks that touch a window (ns)."""
        begins = self.tables[table].begins.tolist()
        return [slice(begins[n], begins[n + 1]) for n in self.tables[table].between(begin, end)]

    # -- counters

    def counter(self, name: str) -> tuple[Ints, Floats]:
        """Return the steps of a counter."""
        parts = list(self.steps(name)) or [(np.zeros(0, np.int64), np.zeros(0))]
        times, values = zip(*parts, strict=True)
        return np.concatenate(times), np.concatenate(values)

    def steps(self, name: str) -> Iterator[tuple[Ints, Floats]]:
        """Yield the steps of a counter in parts; nothing for an unknown one."""
        for times, values in self._steps(name):
            if len(times) and (times.min() < 0 or times.max() > MOST_NS or not np.isfinite(values).all()):
                raise self.file.damaged(f"counter {name}: times from 0 to {MOST_NS} and finite values expected")
            yield times, values

    def steps_of(self, names: Sequence[str]) -> dict[str, Iterable[tuple[Ints, Floats]]]:
        """Return the steps of some counters; the queues of a long trace are read once for all of them."""
        found: dict[str, Iterable[tuple[Ints, Floats]]] = {name: self.steps(name) for name in names}
        queues = {name: self.counters[name] for name in names if self.counters[name].table == "queues"}
        if len(self.tables["queues"]) > _WHOLE and queues:
            own: dict[str, list[tuple[Ints, Floats]]] = {name: [] for name in queues}
            for which, times, values in self._queues(queues):
                for number, name in enumerate(own):
                    here = which == number
                    if here.any():
                        own[name].append((times[here], values[here]))
            found |= own
        return found

    def _steps(self, name: str) -> Iterator[tuple[Ints, Floats]]:
        counter = self.counters.get(name)
        if counter is None:
            return
        if counter.table == "meters":
            yield from self._metered(name == POWER)
            return
        if counter.initial is not None:
            yield np.zeros(1, np.int64), np.array([counter.initial])
        table = self.tables[counter.table]
        number, time, value = (table.column(column) for column in ("counter", "time_ns", "value"))
        # a table of moderate size is read once for all its counters
        rows = [slice(0, len(table))] if 0 < len(table) <= _WHOLE else spans(len(table))
        for part in rows:
            own = np.flatnonzero(number[part] == counter.number) + part.start
            if len(own):
                values = value[own]
                bits = counter.table == "counters"
                yield time[own], values.view(np.float64) if bits else values.astype(np.float64)

    def _metered(self, power: bool) -> Iterator[tuple[Ints, Floats]]:
        """Yield the power or the traffic, which is recorded where it changes."""
        assert self.meter is not None
        table, last = self.tables["meters"], None
        for part in (None, *spans(len(table))):
            if part is None:  # from time 0 on
                times, loads, rates = np.zeros(1, np.int64), np.zeros(1), np.zeros(1)
            else:
                times, load, traffic = (table.column(name)[part] for name in ("time_ns", "load", "traffic"))
                loads, rates = load.astype(np.float64), traffic / GBPS
            if power:
                yield times, self.meter.static_mw + loads / self.meter.scale + rates * self.meter.mw_per_gbps
                continue
            moved = np.diff(rates, prepend=rates[0] if last is None else last) != 0
            moved[0] |= last is None
            last = rates[-1]
            yield times[moved], rates[moved]

    def steps_by_time(self) -> Iterator[tuple[dict[str, float], Iterator[tuple[Ints, Ints, Floats]]]]:
        """Yield the counters of each table; `steps_by_time` says what."""
        for table in ("meters", "queues", "counters"):
            own = {name: counter for name, counter in self.counters.items() if counter.table == table}
            if not own:
                continue
            if table == "counters":
                yield from _steps_by_time({name: self.counter(name) for name in own})
                continue
            most = {name: max(abs(counter.least), abs(counter.most)) for name, counter in own.items()}
            if table == "meters":
                assert self.meter is not None
                load, traffic = (self.tables[table].bounds.get(name, (0, 0))[1] for name in ("load", "traffic"))
                static, scale, by_rate = self.meter
                most = {POWER: static + load / scale + traffic / GBPS * by_rate, TRAFFIC: traffic / GBPS}
            yield most, (self._both() if table == "meters" else self._queues(own))

    def _both(self) -> Iterator[tuple[Ints, Ints, Floats]]:
        for parts in zip(self.steps(POWER), self.steps(TRAFFIC), strict=True):
            yield merged(parts)

    def _queues(self, own: Mapping[str, Counter]) -> Iterator[tuple[Ints, Ints, Floats]]:
        yield merged([(np.zeros(1, np.int64), np.array([counter.initial or 0.0])) for counter in own.values()])
        table = self.tables["queues"]
        last = max(table.bounds.get("counter", (0, 0))[1], *(counter.number for counter in self.counters.values()))
        places = np.full(last + 1, -1)
        places[[counter.number for counter in own.values()]] = np.arange(len(own))
        for part in spans(len(table)):
            number, time, value = (table.column(column)[part] for column in ("counter", "time_ns", "value"))
            if min(number.min(), time.min()) < 0 or time.max() > MOST_NS:
                raise self.file.damaged(f"queues: numbers of counters and times from 0 to {MOST_NS} expected")
            here = places[number] >= 0
            yield places[number][here], time[here], value[here].astype(np.float64)


def steps_by_time(columns: Columns) -> Iterator[tuple[dict[str, float], Iterator[tuple[Ints, Ints, Floats]]]]:
    """Yield sets of counters: their greatest values by name, and their steps in parts in order of time.

    A part is the number of the counter among these names, the time and the value of each step.
    """
    if columns.stored is not None:
        yield from columns.stored.steps_by_time()
    elif columns.counters:
        yield from _steps_by_time(columns.counters)


def _steps_by_time(
    counters: Mapping[str, tuple[Ints, Floats]],
) -> Iterator[tuple[dict[str, float], Iterator[tuple[Ints, Ints, Floats]]]]:
    most = {name: float(np.abs(values).max(initial=0.0)) for name, (_, values) in counters.items()}
    yield most, iter([merged(list(counters.values()))])


def merged(steps: Sequence[tuple[Ints, Floats]]) -> tuple[Ints, Ints, Floats]:
    """Return the steps of counters as number, time and value, in order of time."""
    which = np.repeat(np.arange(len(steps)), [len(at) for at, _ in steps])
    at, values = (np.concatenate(parts) for parts in zip(*steps, strict=True))
    order = np.argsort(at, kind="stable")
    return which[order], at[order], values[order]


class _Counters(Mapping[str, "tuple[Ints, Floats]"]):
    """The counters of a long trace, read when asked for."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored

    def __getitem__(self, name: str) -> tuple[Ints, Floats]:
        if name not in self.stored.counters:
            raise KeyError(name)
        return self.stored.counter(name)

    def __contains__(self, name: object) -> bool:
        return name in self.stored.counters  # that of Mapping would read the counter

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored.counters)

    def __len__(self) -> int:
        return len(self.stored.counters)


def _numbered(name: str, columns: Any) -> dict[str, Ints]:
    listed = [np.asarray(times, np.int64) for times in columns]
    numbers = np.repeat(np.arange(len(listed)), [len(times) for times in listed]) if listed else np.zeros(0, np.int64)
    return {name: numbers, "time_ns": np.concatenate([np.zeros(0, np.int64), *listed])}
