"""Jobs, chains and tasks of a result as columns, as a DataFrame of pandas, and as CSV."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from socsched.errors import MachineError, UsageError, unwritable

if TYPE_CHECKING:
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
        try:
            write_file(file, content)
        except OSError as error:
            raise unwritable(file, error) from None


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


def jobs(trace: Trace | None, names: Mapping[str, str] | None = None) -> Columns:
    """Return the jobs of a trace in the order of activation; `names`: names of tasks in place of those in the trace.

    `response_ns` counts from the activation.  Raises UsageError without a trace.
    """
    from socsched.trace.columns import STATUS

    if trace is None:
        raise UsageError("no jobs were recorded", "simulate with record=True")
    columns = trace.columns
    found = columns.jobs
    tasks = [(names or {}).get(name, name) for name in columns.tasks]
    start, finish = (_times(values) for values in (found.start_ns, found.finish_ns))
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


def _times(values: Any) -> NDArray[np.float64]:
    # a float holds every time of a trace exactly: 100 days are below 2**53 ns
    return np.where(np.asarray(values) < 0, np.nan, np.asarray(values, dtype=np.float64))


def table(fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> Columns:
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


def unknown(rows: object, known: Sequence[str]) -> UsageError:
    """Return the error for rows that a result does not have."""
    return UsageError(f"this result has no table of {rows!r}", f"tables: {', '.join(known)}")
