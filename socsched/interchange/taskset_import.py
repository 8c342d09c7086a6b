"""Task sets of other tools: SimSo's XML, PARTSim's YAML, rt-app's JSON, and job sets of SAG's nptest as CSV.

A reader returns a mapping in the form of a task-set file, whose checks then apply to it; what they find is reported at
the position of the task in the source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from socsched import bounded
from socsched.descriptor.taskset import TaskSet, taskset_from_mapping
from socsched.errors import DescriptorError, InputError
from socsched.text import one_line

Form = Literal["simso", "partsim", "rt-app", "nptest"]
MOST_BYTES = 16 * 2**20
_TASK = re.compile(r"tasks\[(\d+)\]")
_JOB_ROW = re.compile(r"\s*\d+\s*(?:,\s*[-+.\deE]+\s*){7,}")


@dataclass(frozen=True, slots=True)
class ImportedTaskSet:
    """A task set in the form of its file, the line and column of every task, and what was left open."""

    mapping: Mapping[str, Any]
    places: tuple[tuple[int, int], ...]
    notes: tuple[str, ...] = ()

    def taskset(self, path: Path) -> TaskSet:
        """Return the task set; DescriptorError with positions in the source."""
        try:
            return taskset_from_mapping(self.mapping, str(path))
        except DescriptorError as error:
            found = []
            for finding in error.findings:
                match = _TASK.match(finding.field)
                line, column = self.places[int(match[1])] if match else (1, 1)
                found.append(replace(finding, line=line, column=column))
            raise DescriptorError(found, error.hint) from None


def set_of(
    path: Path, form: str, unit: str, policy: str, processors: int, tasks: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return a task set in the form of its file."""
    name = path.name.split(".")[0][:300] or form
    return {"name": name, "time_unit": unit, "policy": policy, "processors": processors, "tasks": tasks}


def decimal_of(value: object) -> Decimal:
    """Return a number, not a number for anything else."""
    try:
        return Decimal(str(value).strip())
    except ArithmeticError:
        return Decimal("NaN")


class TaskNames:
    """Names of tasks as the source has them, numbered where two are equal."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, text: str) -> str:
        """Return the name of a task, with a number if it is taken."""
        base = one_line(text)[:56] or "task"
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}-{number}"
        self._taken.add(name)
        return name


def form_of(path: Path) -> Form | None:
    """Return the form of another tool's task set or job set by its content; None for every other file."""
    try:
        head = bounded.decode(bounded.read_head(path, "file", "", 2**16), "replace")
    except InputError:
        return None
    text = head.lstrip()
    if text.startswith("<"):
        return "simso" if re.search(r"<simulation[\s/>]", text) else None
    if text.startswith("{"):
        return "rt-app" if re.search(r'"tasks"\s*:\s*\{', head) and not re.search(r'"schema_version"', head) else None
    rows = [row for row in text.splitlines() if row.strip()]
    if any(_JOB_ROW.fullmatch(row) for row in rows[:3]) or (len(rows) == 1 and _job_head(rows[0])):
        return "nptest"
    return "partsim" if any(re.match(r"taskset\s*:", row) for row in rows) else None


def _job_head(row: str) -> bool:
    return row.count(",") >= 7 and "cost" in row.lower()
