"""The tables of a trace in a file of blocks: what a long simulation writes as it goes, and every verb reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from socsched.descriptor.limits import MOST_NS
from socsched.trace.blocks import File, Layout, Table, spans
from socsched.trace.columns import MAGIC, Columns, InstantColumns, JobColumns, SliceColumns

if TYPE_CHECKING:
    from socsched.trace.columns import Floats, Ints

POWER, TRAFFIC = "power_mw", "bandwidth_gbps"

LAYOUTS = {
    "jobs": Layout(
        ("task", "frame", "activation_ns", "deadline_ns", "start_ns", "finish_ns", "exec_ns", "blocking_ns",
         "preemptions", "migrations", "status", "sampled"),
        "task",
        {
            "deadline_ns": ((1, "activation_ns"),),
            "start_ns": ((1, "activation_ns"),),
            "finish_ns": ((1, "start_ns"),),
            "exec_ns": ((1, "finish_ns"), (-1, "start_ns")),
        },
    ),
    "slices": Layout(
        ("name", "engine", "lanes", "job", "start_ns", "end_ns"), "name", {"end_ns": ((1, "start_ns"),)},
        "start_ns", "end_ns",
    ),
    "instants": Layout(("subject", "time_ns", "kind", "frame", "value"), "subject"),
    "frames": Layout(("frame",)),
    "releases": Layout(("source", "time_ns"), "source"),
    "meters": Layout(("time_ns", "load", "rate")),
    "queues": Layout(("counter", "time_ns", "value"), "counter"),
    "counters": Layout(("counter", "time_ns", "value"), "counter"),
}  # fmt: skip
"""Tables by name.  `rate` and the values of `counters` are the bits of float64; queues hold whole numbers."""
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
    """The tables of a trace: `sources` and `counters` name what they refer to by number."""

    def __init__(self, file: IO[bytes], name: str = "the recording", end: int = 0) -> None:
        self.file = File(file, name, end)
        self.tables = {name: Table(self.file, name, layout) for name, layout in LAYOUTS.items()}
        self.sources: tuple[str, ...] = ()
        self.counters: dict[str, Counter] = {}
        self.meter: Meter | None = None
        if not end:
            self.file.write(MAGIC)

    @classmethod
    def of(cls, columns: Columns, file: IO[bytes]) -> Stored:
        """Write columns to a file."""
        stored = cls(file)
        for name in ("jobs", "slices", "instants"):
            record = getattr(columns, name)
            stored.tables[name].append({field: getattr(record, field) for field in LAYOUTS[name].columns})
        stored.tables["frames"].append({"frame": columns.jobs.frames})
        stored.sources = tuple(columns.releases)
        stored.tables["releases"].append(_numbered("source", columns.releases.values()))
        stored.add_counters(columns.counters)
        return stored

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
            releases=self._releases(),
            stored=None if whole else self,
        )

    def _column(self, table: str, name: str, whole: bool) -> Any:
        column = self.tables[table].column(name)
        return np.asarray(column) if whole else column

    def _record(self, kind: type[_Record], table: str, whole: bool) -> _Record:
        return kind(**{name: self._column(table, name, whole) for name in LAYOUTS[table].columns})

    def _releases(self) -> dict[str, Ints]:
        table = self.tables["releases"]
        source, times = (np.asarray(table.column(name)) for name in ("source", "time_ns"))
        return {name: times[source == number] for number, name in enumerate(self.sources)}

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
            own = number[part] == counter.number
            if own.any():
                values = value[part][own]
                bits = counter.table == "counters"
                yield time[part][own], values.view(np.float64) if bits else values.astype(np.float64)

    def _metered(self, power: bool) -> Iterator[tuple[Ints, Floats]]:
        """Yield the power or the traffic, which is recorded where it changes."""
        assert self.meter is not None
        table, last = self.tables["meters"], None
        for part in (None, *spans(len(table))):
            if part is None:  # from time 0 on
                times, loads, rates = np.zeros(1, np.int64), np.zeros(1), np.zeros(1)
            else:
                times, load, bits = (table.column(name)[part] for name in ("time_ns", "load", "rate"))
                loads, rates = load.astype(np.float64), bits.view(np.float64)
            if power:
                yield times, self.meter.static_mw + loads / self.meter.scale + rates * self.meter.mw_per_gbps
                continue
            moved = np.diff(rates, prepend=rates[0] if last is None else last) != 0
            moved[0] |= last is None
            last = rates[-1]
            yield times[moved], rates[moved]


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
