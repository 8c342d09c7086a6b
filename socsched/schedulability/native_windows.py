"""Windows of paths in C, over flat tables of tasks and paths; the functions of `path_windows` say what they are.

A window takes a hundred steps over a few rivals each, which neither Python nor arrays do fast: a plan of 256 stages has
a million of them.  The library is compiled once and cached; without a C compiler, or where numbers might not fit 64
bits, the Python functions do the same.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path as File
from typing import TYPE_CHECKING, Any, TypeVar

from socsched import deadline
from socsched.progress import notice
from socsched.schedulability.tasks import RtTask, packed, single_resource, topological

if TYPE_CHECKING:
    from socsched.schedulability.path_windows import Path, PathSystem

_COLUMNS = (
    "wcet", "period", "offset", "release_jitter", "segment", "change", "priority", "deadline", "due_later", "sporadic",
    "group", "lanes", "width", "source", "key", "order",
    "single", "full", "group_switch", "segments", "first_of_group", "tasks_of_group",
    "first_path", "too_many", "first_group", "rests_on",
    "first_task", "path_tasks", "source_offset", "source_jitter", "timer", "rank",
    "later", "overlap", "most", "finish", "value", "best",
)  # fmt: skip
_NUMBERS = ("tasks", "groups", "keys", "sets", "words", "edf", "rounds", "steps", "own_spans", "own_jobs")
NONE = -(1 << 63)
ROOM = 1 << 62
"""Sums of times stay below this, or the Python functions are used."""


class Tables(ctypes.Structure):
    """The struct of windows.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in _COLUMNS),
        *((name, ctypes.c_int64) for name in _NUMBERS),
    )


_FLAGS = ("-O2", "-fPIC", "-shared", "-fwrapv", "-w")


def _sources() -> list[File]:
    return sorted(File(__file__).with_name("native").glob("*.[ch]"))


@cache
def library() -> Any:
    """Return the compiled library, None if it cannot be compiled here, or is not wanted (SOCSCHED_KERNEL=python)."""
    from socsched.compiler import store
    from socsched.errors import MachineError

    if os.environ.get("SOCSCHED_KERNEL") == "python":
        return None
    try:
        key = store.digest([source.read_text(encoding="utf-8") for source in _sources()], _FLAGS)
        found = ctypes.CDLL(str(store.library("analysis", key, "bounds.so", _build)))
    except (MachineError, OSError, subprocess.SubprocessError) as error:
        notice("analysis", f"bounds are computed in Python, which is slower: {error}")
        return None
    numbers = ctypes.c_int64
    found.socsched_since.argtypes = [ctypes.c_void_p, numbers, numbers]
    found.socsched_since.restype = numbers
    found.socsched_settle.argtypes, found.socsched_settle.restype = [ctypes.c_void_p], numbers
    found.socsched_factor.argtypes = [ctypes.c_void_p, numbers]
    found.socsched_factor.restype = ctypes.c_double
    found.socsched_limit.argtypes, found.socsched_limit.restype = [ctypes.c_double], None
    found.socsched_edf.argtypes = [ctypes.c_void_p, numbers, ctypes.c_int, numbers, numbers, *[ctypes.c_void_p] * 2]
    return found


def call(name: str, *arguments: Any) -> Any:
    """Return the answer of a function of the library; OutOfTime where the deadline of this thread ended it."""
    compiled = library()
    compiled.socsched_limit(deadline.left())
    answer = getattr(compiled, name)(*arguments)
    if compiled.socsched_left():
        raise deadline.OutOfTime
    return answer


def _build(folder: File) -> None:
    from socsched.compiler.native import compilers
    from socsched.errors import MachineError

    compiler = compilers.c_compiler()
    if not compiler:
        raise MachineError("there is no C compiler", "install one")
    code = [str(source) for source in _sources() if source.suffix == ".c"]
    compilers.run([compiler, *_FLAGS, *code, "-o", "bounds.so", "-lm"], folder)


Structure = TypeVar("Structure", bound=ctypes.Structure)


def as_tables(kind: type[Structure], columns: dict[str, array[int]], numbers: Mapping[str, int]) -> Structure:
    """Return a struct of pointers to columns, which must live as long, and of numbers; an empty column gets a value."""
    tables = kind()
    for name, column in columns.items():
        if not column:
            column.append(0)
        setattr(tables, name, column.buffer_info()[0])
    for name, value in numbers.items():
        setattr(tables, name, value)
    return tables


def system_columns(
    tasks: Mapping[str, RtTask], groups: Sequence[Sequence[RtTask]]
) -> tuple[dict[str, array[int]], int]:
    """Return what every analysis reads of tasks and of the groups whose lanes overlap, and the number of lane sets."""
    rows, number = list(tasks.values()), {name: place for place, name in enumerate(tasks)}
    after, first_after, first_of_group = array("q"), array("q", [0]), array("q", [0])
    for task in rows:
        after.extend(number[other] for other in task.after if other in number)
        first_after.append(len(after))
    for group in groups:
        first_of_group.append(first_of_group[-1] + len(group))
    sets = {lanes: place for place, lanes in enumerate(dict.fromkeys(task.lanes for task in rows))}
    columns = {
        "wcet": array("q", [task.wcet for task in rows]),
        "period": array("q", [task.period for task in rows]),
        "offset": array("q", [task.offset for task in rows]),
        "release_jitter": array("q", [task.release_jitter for task in rows]),
        "segment": array("q", [task.segment for task in rows]),
        "change": array("q", [task.switch for task in rows]),
        "width": array("q", [len(task.lanes) for task in rows]),
        "lanes": array("q", [sets[task.lanes] for task in rows]),
        "first_after": first_after,
        "after": after,
        "first_of_group": first_of_group,
        "tasks_of_group": array("q", [number[task.name] for group in groups for task in group]),
        "single": array("q", [single_resource(group) for group in groups]),
        "overlap": array("B", [bool(one & other) for one in sets for other in sets]),
    }
    return columns, len(sets)


class Windows:
    """The windows of the paths of a system, in C."""

    def __init__(self, system: PathSystem, numbers: Mapping[str, int]) -> None:
        self._system = system
        self._names = list(system.tasks)
        self._number = {name: n for n, name in enumerate(self._names)}
        found = {**_task_columns(system, self._number), **self._path_columns(), **numbers}
        self._columns: dict[str, array[int]] = {name: found[name] for name in _COLUMNS if name in found}
        for name in ("most", "finish", "value", "best"):
            self._columns[name] = array("q", [NONE]) * max(len(self._names), 1)
        self._tables = as_tables(Tables, self._columns, {name: found[name] for name in _NUMBERS})

    @staticmethod
    def of(system: PathSystem, limits: Mapping[str, int], numbers: Mapping[str, int]) -> Windows | None:
        """Return the windows of a system, None where only Python has them.

        `limits`: the longest finish times (ns); `numbers`: what iterations end after, by name.
        """
        return Windows(system, numbers) if _fits(system, limits) and library() is not None else None

    def _path_columns(self) -> dict[str, Any]:
        known = self._system.columns
        self._paths: list[Path] = known.get("paths", [])
        self._place: dict[Path, int] = known.get("place", {})
        if self._place:
            return known
        system, number = self._system, self._number
        first_path, too_many = array("q", [0]), array("q")
        first_task, tasks, rank = array("q", [0]), array("q"), array("q")
        numbers: dict[tuple[str, ...], list[int]] = {}
        for name in self._names:
            kept = system.paths_to(name) or ()
            too_many.append(not kept)
            order = {one: n for n, one in enumerate(sorted({path.tasks for path in kept}))} if len(kept) > 1 else {}
            for path in kept:
                self._place[path] = len(self._paths)
                self._paths.append(path)
                tasks.extend(numbers.setdefault(path.tasks, [number[task] for task in path.tasks]))
                first_task.append(len(tasks))
                rank.append(order.get(path.tasks, 0))
            first_path.append(len(self._paths))
        sources = [path.source for path in self._paths]
        known |= {
            "paths": self._paths,
            "place": self._place,
            "first_path": first_path,
            "too_many": too_many,
            "first_task": first_task,
            "path_tasks": tasks,
            "source_offset": array("q", [source.offset for source in sources]),
            "source_jitter": array("q", [source.jitter for source in sources]),
            "timer": array("q", [source.timer for source in sources]),
            "rank": rank,
        }
        return known

    def longest(
        self, most: Mapping[str, int], least: Mapping[str, int]
    ) -> tuple[bool, dict[str, tuple[int, tuple[str, ...]] | None]]:
        """Return whether least finish times are confirmed, and for each task the longest window (ns) below `most`.

        `least`: finish times (ns) below which none are; None for a task without a window below `most`.
        """
        place, paths = self._number, self._paths
        columns = self._columns
        columns["most"][:] = columns["finish"][:] = array("q", [NONE]) * max(len(self._names), 1)
        for name, value in most.items():
            columns["most"][place[name]] = value
            columns["finish"][place[name]] = least[name]
        confirmed = call("socsched_tighten", ctypes.byref(self._tables))
        if confirmed < 0:
            raise MemoryError
        values, best = columns["value"], columns["best"]
        found = {
            name: (values[place[name]], paths[best[place[name]]].tasks) if best[place[name]] >= 0 else None
            for name in most
        }
        return bool(confirmed), found

    def since(self, path: Path, finish: Mapping[str, int], limit: int) -> int | None:
        """Return the longest window of a path from the arrival at its source (ns), None from `limit` on."""
        columns = self._columns
        columns["finish"][:] = array("q", [finish.get(name, NONE) for name in self._names])
        found = call("socsched_since", ctypes.byref(self._tables), self._place[path], limit)
        return None if found == NONE else int(found)


def _fits(system: PathSystem, limits: Mapping[str, int]) -> bool:
    """Return whether no sum of times within the longest window can leave 64 bits."""
    tasks, due = system.tasks.values(), system.deadlines or {}
    longest = max((abs(value) for value in limits.values()), default=0) + sum(
        max((abs(value) for value in values), default=0)
        for values in (
            [task.wcet for task in tasks], [task.period for task in tasks], [task.offset for task in tasks],
            [task.release_jitter for task in tasks], [task.due_later for task in tasks],
            [arrival.offset for task in tasks for arrival in task.arrivals],
            [arrival.jitter for task in tasks for arrival in task.arrivals], list(due.values()),
        )
    )  # fmt: skip
    lanes = max((len(task.lanes) for task in tasks), default=1)
    work = sum(
        (2 * longest // task.period + 4) * (task.wcet + task.segment + 2 * lanes * task.switch) for task in tasks
    )
    return 4 * (longest + work) < ROOM and all(abs(task.priority) < ROOM for task in tasks)


def _task_columns(system: PathSystem, number: Mapping[str, int]) -> dict[str, Any]:
    tasks, due = list(system.tasks.values()), system.deadlines
    members = list({id(group): group for group in (system.groups[name] for name in system.tasks)}.values())
    group_of = {task.name: n for n, group in enumerate(members) for task in group}
    source_of = {name: n for n, name in enumerate(dict.fromkeys(system.sources.values()))}
    keys: dict[tuple[str, int], int] = {}

    def column(values: Iterable[int]) -> array[int]:
        return array("q", values)

    if "later" not in system.columns:
        system.columns["later"] = array("B", packed((system.later[task.name] for task in tasks), number))
    shared, sets = system_columns(system.tasks, members)
    reached = _reached_groups(system, group_of)
    first_group, rests_on = [0], list[int]()
    for task in tasks:
        rests_on += reached[task.name]
        first_group.append(len(rests_on))
    return {
        **shared,
        "priority": column(task.priority for task in tasks),
        "deadline": column(due[task.name] if due is not None else 0 for task in tasks),
        "due_later": column(task.due_later for task in tasks),
        "sporadic": column(task.sporadic for task in tasks),
        "group": column(group_of[task.name] for task in tasks),
        "source": column(source_of[system.sources[task.name]] for task in tasks),
        "key": column(keys.setdefault((system.sources[task.name], task.period), len(keys)) for task in tasks),
        "order": column(number[name] for name in system.order()),
        "full": column(all(task.preemption == "full" for task in group) for group in members),
        "group_switch": column(max(task.switch for task in group) for group in members),
        "segments": column(any(task.segment for task in group) for group in members),
        "first_group": column(first_group),
        "rests_on": column(rests_on),
        "later": system.columns["later"],
        "tasks": len(tasks),
        "groups": len(members),
        "keys": len(keys),
        "sets": sets,
        "words": max((len(tasks) + 63) // 64, 1),
        "edf": due is not None,
    }


def _reached_groups(system: PathSystem, group_of: Mapping[str, int]) -> dict[str, list[int]]:
    """Return the groups of every task and of those that trigger it."""
    found: dict[str, set[int]] = {}
    for name in topological(system.tasks):
        before = [found[other] for other in system.tasks[name].after if other in found]
        found[name] = {group_of[name]}.union(*before)
    return {name: sorted(each) for name, each in found.items()}
