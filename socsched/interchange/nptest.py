"""Job sets of nptest, the schedule-abstraction tool (CSV): tried on brandenburg/np-schedulability-analysis, 2021.

A line is a job: task, job, earliest and latest release, least and most cost, absolute deadline, priority (lower first).
Precedence has a file of its own: task and job of the predecessor, then of the successor.  A job is identified by task
and job together.  Times have no unit; decimals are read exactly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from socsched.bounded import read_text
from socsched.errors import DescriptorError, Finding, InputError
from socsched.interchange.taskset_import import MOST_BYTES
from socsched.schedulability.published.schedule_abstraction import MOST_JOBS, Job

HINT = "columns: task, job, release min and max, cost min and max, deadline, priority"
_PRECEDENCE = "columns: task and job of the predecessor, task and job of the successor"
_FIELDS = ("task", "job", "release min", "release max", "cost min", "cost max", "deadline", "priority")
_NUMBER = re.compile(r"[-+]?[0-9]{1,18}(?:\.[0-9]{0,9})?")
_LARGEST = 2**62


@dataclass(frozen=True, slots=True)
class JobSet:
    """Jobs with whole times, in steps of 1 / `scale` of the file's unit."""

    name: str
    jobs: tuple[Job, ...]
    scale: int


def read_jobs(path: Path, precedence: Path | None = None) -> JobSet:
    """Return the jobs of a file, with their precedence; DescriptorError with positions, InputError without jobs."""
    rows = _rows(path, "job set", HINT, 8)
    values = [[Decimal(text) for text in cells] for _, cells in rows]
    digits = max((-int(v.as_tuple().exponent) for row in values for v in row[2:7] if v % 1), default=0)
    ranks = max((-int(row[7].as_tuple().exponent) for row in values if row[7] % 1), default=0)
    scale = 10**digits
    places: dict[tuple[int, int], int] = {}
    jobs, faults = list[Job](), list[Finding]()
    for (line, _), row in zip(rows, values, strict=True):
        numbers = [*(int(v) for v in row[:2]), *(int(v * scale) for v in row[2:7]), int(row[7] * 10**ranks)]
        fault = _fault(row, numbers, places)
        if fault:
            faults.append(Finding(str(path), line, 1, *fault))
            continue
        places[numbers[0], numbers[1]] = len(jobs)
        task, job, first, last, least, most, due, rank = numbers
        jobs.append(Job(task, job, first, last, least, most, due, rank))
    if faults:
        raise DescriptorError(faults[:100], HINT)
    if not jobs:
        raise InputError(f"{path}: a job set without jobs", HINT)
    if len(jobs) > MOST_JOBS:
        raise InputError(f"{path}: more than {MOST_JOBS} jobs", "split it at an instant at which none is pending")
    if precedence is not None:
        jobs = _preceded(jobs, places, precedence)
    return JobSet(path.name.split(".")[0], tuple(jobs), scale)


def _fault(row: list[Decimal], numbers: list[int], places: dict[tuple[int, int], int]) -> tuple[str, str] | None:
    """Return the field of a job that is wrong and what was expected."""
    task, job, first, last, least, most, due, _ = numbers
    for name, value in zip(_FIELDS, row, strict=True):
        if name != "priority" and value < 0:
            return name, f"expected no negative number, got {value}"
        if name in ("task", "job") and value % 1:
            return name, f"expected a whole number, got {value}"
    if max(map(abs, numbers)) > _LARGEST or last + most > _LARGEST:
        return "file", f"expected numbers of at most {_LARGEST}"
    if (task, job) in places:
        return "job", f"expected every job of a task once, got task {task}, job {job} again"
    if first > last:
        return "release max", f"expected at least the release min of {row[2]}, got {row[3]}"
    if least > most:
        return "cost max", f"expected at least the cost min of {row[4]}, got {row[5]}"
    if not most:
        return "cost max", "expected a positive cost"
    return None if due else ("deadline", "expected a positive deadline")


def _preceded(jobs: list[Job], places: dict[tuple[int, int], int], path: Path) -> list[Job]:
    before: dict[int, list[int]] = {}
    for line, cells in _rows(path, "precedence", _PRECEDENCE, 4):
        ends = []
        for text in (cells[:2], cells[2:4]):
            place = places.get((int(Decimal(text[0])), int(Decimal(text[1]))))
            if place is None:
                expected = f"expected a job of the job set, got task {text[0]}, job {text[1]}"
                raise DescriptorError([Finding(str(path), line, 1, "job", expected)], _PRECEDENCE)
            ends.append(place)
        before.setdefault(ends[1], []).append(ends[0])
    found = [replace(job, before=tuple(dict.fromkeys(before.get(i, ())))) for i, job in enumerate(jobs)]
    done: set[int] = set()
    open_ = set(range(len(found)))
    while ready := [i for i in open_ if done.issuperset(found[i].before)]:
        done.update(ready)
        open_.difference_update(ready)
    if open_:
        job = found[min(open_)]
        raise InputError(f"{path}: jobs wait for each other in a cycle, task {job.task}, job {job.number} among them")
    return found


def _rows(path: Path, what: str, hint: str, columns: int) -> list[tuple[int, list[str]]]:
    """Return the lines below the head, each with its number, and their first cells; further columns are refused."""
    rows = []
    for line, text in enumerate(read_text(path, what, hint, MOST_BYTES).split("\n"), 1):
        cells = [cell.strip() for cell in text.split(",")]
        while len(cells) > columns and not cells[-1]:
            cells.pop()
        if not any(cells) or (line == 1 and not _NUMBER.fullmatch(cells[0])):
            continue
        wrong = next((n for n, cell in enumerate(cells[:columns]) if not _NUMBER.fullmatch(cell)), None)
        if len(cells) != columns or wrong is not None:
            got = repr(cells[wrong]) if wrong is not None else f"{len(cells)} columns"
            column = 1 if wrong is None else sum(len(cell) + 1 for cell in text.split(",")[:wrong]) + 1
            name = _FIELDS[wrong] if wrong is not None and columns == 8 else "line"
            raise DescriptorError(
                [Finding(str(path), line, column, name, f"expected {columns} numbers, got {got}")], hint
            )
        rows.append((line, cells))
    return rows
