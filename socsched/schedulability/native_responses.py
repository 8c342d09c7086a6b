"""Response times in C, over flat tables; `holistic`, `response_times` and `published.earliest_deadline_first` say what
they are, and compute them where there is no C compiler or numbers might not fit 64 bits.

The C functions find values, and where each was found; Python makes the terms of these alone.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from socsched.schedulability.native_windows import NONE, ROOM, as_tables, call, library, system_columns
from socsched.schedulability.tasks import RtTask, packed

COLUMNS = (
    "wcet", "period", "offset", "release_jitter", "segment", "change", "priority", "width", "lanes", "whole",
    "group", "first_of_group", "tasks_of_group", "single", "full", "first_after", "after", "endless",
    "apart", "overlap", "finish", "value", "bounded", "way", "frame", "window",
)  # fmt: skip
_NUMBERS = ("tasks", "words", "sets", "horizon")
CLASSIC, GANG, START = range(3)


class Tables(ctypes.Structure):
    """The struct of responses.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in COLUMNS),
        *((name, ctypes.c_int64) for name in _NUMBERS),
    )


class Answer(NamedTuple):
    """A response (ns), whether it is a bound, and the interference, job and window (ns) that it follows from."""

    value: int
    bounded: bool
    way: int
    frame: int
    window: int


def holistic_answers(
    tasks: Mapping[str, RtTask],
    groups: Mapping[str, Sequence[RtTask]],
    apart: Mapping[str, Set[str]],
    endless: Iterable[str],
    finish: dict[str, int],
    horizon: int,
) -> dict[str, Answer] | None:
    """Return the answers under finish times that no longer grow, which `finish` then has; None where Python must."""
    if library() is None or not _fits(tasks.values(), horizon, finish):
        return None
    number = {name: place for place, name in enumerate(tasks)}
    parts = list({id(group): group for group in groups.values()}.values())
    group_of = {task.name: place for place, group in enumerate(parts) for task in group}
    shared, sets = system_columns(tasks, parts)
    words = max((len(tasks) + 63) // 64, 1)
    rows, lost = list(tasks.values()), set(endless)
    empty = array("q", [0]) * max(len(rows), 1)
    columns = {
        **shared,
        "priority": array("q", [task.priority for task in rows]),
        "whole": array("q", [task.preemption == "none" for task in rows]),
        "group": array("q", [group_of[task.name] for task in rows]),
        "full": array("q", [task.preemption == "full" for task in rows]),
        "endless": array("q", [task.name in lost for task in rows]),
        "apart": array("B", packed((apart[name] for name in tasks), number)),
        "finish": array("q", [finish[name] for name in tasks]),
        **{name: array("q", empty) for name in ("value", "bounded", "way", "frame", "window")},
    }
    numbers = {"tasks": len(rows), "words": words, "sets": sets, "horizon": horizon}
    tables = as_tables(Tables, columns, numbers)
    if call("socsched_holistic", ctypes.byref(tables)):
        raise MemoryError
    finish.update(zip(tasks, columns["finish"], strict=False))
    each = zip(*(columns[name] for name in ("value", "bounded", "way", "frame", "window")), strict=True)
    return {name: Answer(v, bool(b), w, f, at) for name, (v, b, w, f, at) in zip(tasks, each, strict=False)}


def _fits(tasks: Iterable[RtTask], horizon: int, finish: Mapping[str, int]) -> bool:
    rows = list(tasks)
    longest = 2 * horizon + sum(
        max((abs(value) for value in values), default=0)
        for values in (
            [task.wcet for task in rows], [task.period for task in rows], [task.offset for task in rows],
            [task.release_jitter for task in rows], finish.values(),
        )
    )  # fmt: skip
    work = sum(
        (2 * longest // task.period + 4) * (task.wcet + task.segment + 2 * len(task.lanes) * task.switch)
        for task in rows
    )
    return 4 * (longest + work * max(len(rows), 1)) < ROOM


class Busy(NamedTuple):
    """The deadline busy period of a job by its arrival: its length, the blocking in it, and the job's earlier frames.

    `length` ends with the job, or with its start where jobs are not preempted (ns).
    """

    arrival: int
    blocked: int
    length: int
    earlier: int


def edf_answers(
    rows: Sequence[tuple[int, int, int, int, int]], whole: bool, work: int, steps: int
) -> list[tuple[int | None, Busy]] | None:
    """Return the response (ns) under EDF of every task of a processor with its busy period; None where Python must.

    `rows`: WCET, period, deadline, jitter, and longest segment (ns); `whole`: jobs are not preempted.  A response is
    None where there are more than `work` arrivals times tasks to examine.
    """
    count = len(rows)
    used = sum(wcet / period for wcet, period, *_ in rows)
    begun = sum(wcet * (2 + jitter / period) + segment for wcet, period, _, jitter, segment in rows)
    longest = begun / max(1 - used, 1e-9) + max((abs(value) for row in rows for value in row), default=0)
    if library() is None or 8 * longest * (1 + used) + 8 * begun >= ROOM:  # no busy period is longer
        return None
    given = array("q", [value for row in rows for value in row])
    values, busy = array("q", [0]) * count, array("q", [0]) * (4 * count)
    where = [column.buffer_info()[0] for column in (given, values, busy)]
    if call("socsched_edf", where[0], count, whole, work, steps, where[1], where[2]):
        raise MemoryError
    return [(None if values[n] == NONE else values[n], Busy(*busy[4 * n : 4 * n + 4])) for n in range(count)]
