"""Typed results of a simulation or run: chains with their response times, tables, and saving to a folder."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from socsched.errors import MachineError, UsageError, writing
from socsched.units import format_duration

if TYPE_CHECKING:
    from socsched.api.folders import Sources
    from socsched.planning.plan import Plan
    from socsched.trace.io import ChainDocument, ResultDocument
    from socsched.trace.trace import Trace


Rows = Literal["jobs", "chains", "tasks"]
Columns = dict[str, NDArray[Any]]
"""Columns of equal length by name; times in ns, NaN where there is none."""


class Tables(ABC):
    """Something with tables: `columns` returns one of them."""

    __slots__ = ()

    @abstractmethod
    def columns(self, rows: Rows) -> Columns:
        """Return one of the tables as columns; UsageError if the result has no such table."""

    def to_pandas(self, rows: Rows = "jobs") -> Any:
        """Return the jobs, chains or tasks as a DataFrame; times in ns.

        Raises UsageError if the result has no such rows, MachineError without pandas, which is optional.
        """
        columns = self.columns(rows)
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise MachineError("pandas is not installed", "pip install pandas, or use columns() or to_csv()") from None
        return pandas.DataFrame(columns)

    def to_csv(self, file: str | Path, rows: Rows = "jobs") -> None:
        """Write the jobs, chains or tasks as CSV; times in ns, empty where there is none.

        Raises UsageError if the result has no such rows, InputError or MachineError for a file that cannot be written.
        """
        from socsched.files import write_file

        content = csv_text(self.columns(rows))
        with writing(file):
            write_file(file, content)


def csv_text(columns: Mapping[str, NDArray[Any]]) -> str:
    """Return columns as CSV with a header; whole numbers without fraction, NaN as an empty cell."""
    written = io.StringIO()
    out = csv.writer(written, lineterminator="\n")
    out.writerow(columns)
    out.writerows(zip(*([_cell(value) for value in column.tolist()] for column in columns.values()), strict=True))
    return written.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "" if value != value else str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def jobs_columns(trace: Trace | None, names: Mapping[str, str] | None = None) -> Columns:
    """Return the jobs of a trace in the order of activation; `names`: names of tasks in place of those in the trace.

    `response_ns` counts from the activation.  Raises UsageError without a trace.
    """
    from socsched.trace.columns import STATUS

    if trace is None:
        raise UsageError("no jobs were recorded", "simulate with record=True")
    columns = trace.columns
    found = columns.jobs
    tasks = [(names or {}).get(name, name) for name in columns.tasks]
    start, finish = (_float_times(values) for values in (found.start_ns, found.finish_ns))
    return {
        "task": np.array(tasks, dtype=object)[found.task],
        "frame": np.asarray(found.frame),
        "activation_ns": np.asarray(found.activation_ns),
        "deadline_ns": np.asarray(found.deadline_ns),
        "start_ns": start,
        "finish_ns": finish,
        "response_ns": finish - np.asarray(found.activation_ns),
        "exec_ns": np.asarray(found.exec_ns),
        "blocking_ns": np.asarray(found.blocking_ns),
        "preemptions": np.asarray(found.preemptions),
        "migrations": np.asarray(found.migrations),
        "status": np.array(STATUS, dtype=object)[found.status],
    }


def _float_times(values: Any) -> NDArray[np.float64]:
    # a float holds every time of a trace exactly: 100 days are below 2**53 ns
    return np.where(np.asarray(values) < 0, np.nan, np.asarray(values, dtype=np.float64))


def columns_of(fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> Columns:
    """Return rows as columns: text as objects, None as NaN."""
    found: Columns = {}
    for at, name in enumerate(fields):
        values = [row[at] for row in rows]
        if any(isinstance(value, str) for value in values):
            found[name] = np.array(values, dtype=object)
        elif any(value is None or isinstance(value, float) for value in values):
            found[name] = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        else:
            found[name] = np.array(values, dtype=np.bool_ if values and isinstance(values[0], bool) else np.int64)
    return found


def unknown_rows(rows: object, known: Sequence[str]) -> UsageError:
    """Return the error for rows that a result does not have."""
    return UsageError(f"this result has no table of {rows!r}", f"tables: {', '.join(known)}")


class Duration(int):
    """A time in integer nanoseconds that prints in human-readable form."""

    __slots__ = ()

    def __str__(self) -> str:
        return format_duration(int(self))

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class ChainFigures:
    """Frames of one chain and their response times (reduced reaction times where a stage samples); None without frames.

    `missed`: completed late, or unfinished at the deadline; `dropped`: lost before the end of the chain; `stale`:
    outputs whose data were older than the chain allows.
    """

    name: str
    deadline: Duration
    released: int
    completed: int
    missed: int
    dropped: int
    stale: int
    mean: Duration | None
    p50: Duration | None
    p99: Duration | None
    p99_9: Duration | None
    max: Duration | None

    @property
    def met(self) -> bool:
        """Return whether every frame was in time, and no output too old."""
        return not self.missed and not self.dropped and not self.stale


def _chain(name: str, deadline_ns: int, found: ChainDocument) -> ChainFigures:
    times = found["response_time_ns"]
    return ChainFigures(
        name=name,
        deadline=Duration(deadline_ns),
        released=found["released"],
        completed=found["completed"],
        missed=found["missed"],
        dropped=found["dropped"],
        stale=found["stale"],
        mean=_duration(times["mean"]),
        p50=_duration(times["p50"]),
        p99=_duration(times["p99"]),
        p99_9=_duration(times["p99_9"]),
        max=_duration(times["max"]),
    )


def _duration(time_ns: int | None) -> Duration | None:
    return None if time_ns is None else Duration(time_ns)


_COUNTS = ("released", "completed", "missed", "dropped", "stale")
_CHAINS = ("deadline", "released", "completed", "missed", "dropped", "stale", "mean", "p50", "p99", "p99_9", "max")
_TIMES = ("mean", "p50", "p99", "max")


@dataclass(frozen=True, slots=True)
class Result(Tables):
    """A plan, its outcome, and its figures in the form of result.json; `trace` if it was kept."""

    plan: Plan
    trace: Trace | None
    figures: ResultDocument

    @property
    def chains(self) -> Mapping[str, ChainFigures]:
        """Return the figures of every chain by name."""
        deadlines = {chain.name: chain.deadline_ns for chain in self.plan.chains}
        return {name: _chain(name, deadlines[name], found) for name, found in self.figures["chains"].items()}

    @property
    def met(self) -> bool:
        """Return whether every frame of every chain was in time, and none was aborted."""
        accounts = self.figures["run"]["accounts"].values() if "run" in self.figures else ()
        return all(chain.met for chain in self.chains.values()) and not any(one["aborted"] for one in accounts)

    def columns(self, rows: Rows) -> Columns:
        """Return a table as columns, times in ns (NaN: none); UsageError for jobs that were not recorded.

        ``jobs``: as in the trace, in the order of activation.  ``chains``: the fields of `ChainFigures`, and met.
        ``tasks``: where each was placed, jobs completed, execution times, longest blocking and preemptions.
        """
        if rows == "jobs":
            return jobs_columns(self.trace)
        if rows == "chains":
            heads = [name if name in _COUNTS else f"{name}_ns" for name in _CHAINS]
            chains = [
                (one.name, *(None if (v := getattr(one, name)) is None else int(v) for name in _CHAINS), one.met)
                for one in self.chains.values()
            ]
            return columns_of(("chain", *heads, "met"), chains)
        if rows == "tasks":
            placed = {task.name: task for task in self.plan.tasks}
            listed = [
                (
                    name, placed[name].engine, " ".join(map(str, placed[name].lanes)), placed[name].period_ns,
                    placed[name].deadline_ns, placed[name].wcet_ns, one["jobs"],
                    *(one["exec_ns"][time] for time in _TIMES), one["blocking_ns"], one["preemptions"],  # type: ignore[literal-required]
                )
                for name, one in self.figures["stages"].items() if name in placed
            ]  # fmt: skip
            heads = [f"exec_{time}_ns" for time in _TIMES]
            own = ("task", "engine", "lanes", "period_ns", "deadline_ns", "wcet_ns", "jobs")
            return columns_of((*own, *heads, "blocking_ns", "preemptions"), listed)
        raise unknown_rows(rows, ("jobs", "chains", "tasks"))

    def _repr_html_(self) -> str:
        """Return the result as a notebook shows it."""
        from socsched.reporting.report import frame

        return frame(self.plan, self.trace, self.figures)

    def render(self, file: str | Path, sources: Sources) -> None:
        """Write the result in the format of the suffix of `file`, one of `folders.formats`."""
        from tempfile import TemporaryDirectory

        from socsched.api.folders import render

        with TemporaryDirectory() as scratch:
            self.save(scratch, page=False)
            render(Path(scratch), Path(file), sources)

    def save(self, folder: str | Path, page: bool = True, kept: Sequence[str] = ()) -> None:
        """Write plan.json, result.json, the trace, and with `page` report.html into a folder.

        `kept`: files of this result that are there already.  Raises UsageError if no trace was recorded, InputError
        for a folder that cannot be written.
        """
        from socsched.api.folders import save
        from socsched.errors import UsageError

        if self.trace is None:
            raise UsageError("a result without its trace cannot be saved", "simulate with record=True")
        save(Path(folder), self.plan, self.trace, self.figures, page, kept)
