"""Local deadlines, priorities and the bounds that follow in C, over flat tables: what a search needs of each mapping.

`planning.assess` says what they are, and finds them where this cannot: without a C compiler, with lanes that are
overloaded, where windows of paths may shorten the bounds, and where numbers might not fit 64 bits.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from socsched.schedulability import native_demand, native_responses
from socsched.schedulability.native_windows import ROOM, as_tables, call, library
from socsched.schedulability.tasks import RtTask, families, packed, relatives, topological

_COLUMNS = (
    "wcet", "period", "offset", "release_jitter", "segment", "change", "code", "order", "first_after", "after",
    "group", "first_of_group", "tasks_of_group", "single", "first_of_family", "tasks_of_family",
    "first_end", "ends", "budget", "first_of_lane", "tasks_of_lane", "lanes",
    "overlap", "near", "apart",
    "base", "names", "priority", "finish", "value", "bounded", "chosen", "result", "bounds", "demand", "responses",
    "horizon", "load",
)  # fmt: skip
_NUMBERS = ("tasks", "groups", "families", "needs", "every_lane", "sets", "words", "steps", "movable", "work",
            "busy_steps")  # fmt: skip
FOUND, OVERLOADED, WINDOWS = range(3)
CODES = {"full": 0, "segment": 1, "none": 2}
_WORK, _BUSY_STEPS = 20_000, 50_000
"""As `edf.WORK`, and steps of a busy period."""


class Tables(ctypes.Structure):
    """The struct of choices.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in _COLUMNS),
        *((name, ctypes.c_int64) for name in _NUMBERS),
    )


class Row(NamedTuple):
    """What a task takes where it is mapped: times (ns), the code of its preemption, and its lanes by number."""

    wcet: int
    segment: int
    change: int
    code: int
    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """What stays the same while the stages of a pipeline move: tasks with their triggers, requirements but for budgets.

    `ends`: of each requirement, the places of the tasks whose responses it adds up.
    """

    tasks: Mapping[str, RtTask]
    ends: Sequence[Sequence[int]]
    columns: dict[str, array[int]] = field(default_factory=dict)

    @staticmethod
    def of(tasks: Mapping[str, RtTask], ends: Sequence[Sequence[int]]) -> Shape:
        """Return the shape of these tasks, of which only releases and triggers count."""
        number = {name: place for place, name in enumerate(tasks)}
        near = relatives(tasks)
        rows = list(tasks.values())
        columns = {
            "period": array("q", [task.period for task in rows]),
            "offset": array("q", [task.offset for task in rows]),
            "release_jitter": array("q", [task.release_jitter for task in rows]),
            "order": array("q", [number[name] for name in topological(tasks)]),
            "near": array("B", packed((near[name] for name in tasks), number)),
            "endless": array("q", [0]) * max(len(rows), 1),
        }
        columns["first_after"], columns["after"] = _rows([number[o] for o in t.after if o in number] for t in rows)
        columns["first_of_family"], columns["tasks_of_family"] = _rows(
            [number[name] for name in family] for family in families(tasks)
        )
        columns["first_end"], columns["ends"] = _rows(ends)
        return Shape(tasks, ends, columns)


def _rows(parts: Iterable[Iterable[int]]) -> tuple[array[int], array[int]]:
    first, members = array("q", [0]), array("q")
    for part in parts:
        members.extend(part)
        first.append(len(members))
    return first, members


class Choice(NamedTuple):
    """How a choice ended, and the responses (ns) of the tasks in order, with whether each is a bound.

    `deadlines`: the local ones (ns) that were chosen.
    """

    kind: int
    values: Sequence[int]
    bounded: Sequence[int]
    deadlines: Sequence[int]


def choose(
    shape: Shape, rows: Sequence[Row], budgets: Sequence[int], policy: str, steps: int, movable: bool
) -> Choice | None:
    """Return the responses under the local deadlines or priorities that meet requirements best; None where Python must.

    `budgets`: of the requirements (ns); `steps`: of each bisection; `movable`: no job is dropped at its local deadline.
    """
    if library() is None:
        return None
    columns, numbers = _tables(shape, rows)
    if not _fits(columns, rows, max(numbers["every_lane"], 1)):
        return None
    count = max(len(rows), 1)
    for name in ("base", "names", "priority", "finish", "value", "bounded", "way", "frame", "window", "chosen"):
        columns[name] = array("q", [0]) * count
    columns |= {name: array("q", [0]) * count for name in ("result", "bounds")}
    columns["deadline"], columns["budget"] = columns["chosen"][:], array("q", budgets)
    load = array("d", [0.0])
    demand = as_tables(
        native_demand.Tables,
        {**{name: columns[name] for name in native_demand.COLUMNS if name != "full"}, "full": columns["full_group"]},
        numbers,
    )
    responses = as_tables(
        native_responses.Tables, {name: columns[name] for name in native_responses.COLUMNS}, {**numbers, "horizon": 0}
    )
    given = {name: columns[name] for name in _COLUMNS if name in columns}
    tables = as_tables(Tables, given, {
        **numbers, "needs": len(budgets), "steps": steps, "movable": movable, "work": _WORK, "busy_steps": _BUSY_STEPS,
    })  # fmt: skip
    tables.demand, tables.responses = ctypes.addressof(demand), ctypes.addressof(responses)
    tables.horizon = ctypes.addressof(responses) + native_responses.Tables.horizon.offset
    tables.load = load.buffer_info()[0]
    kind = call("socsched_choose", ctypes.byref(tables), policy == "edf")
    if kind < 0:
        raise MemoryError
    return Choice(kind, columns["result"], columns["bounds"], columns["chosen"]) if kind <= WINDOWS else None


def _tables(shape: Shape, rows: Sequence[Row]) -> tuple[dict[str, array[int]], dict[str, int]]:
    sets: dict[tuple[int, ...], int] = {}
    lanes = array("q", [sets.setdefault(row.lanes, len(sets)) for row in rows])
    members: list[list[int]] = [[] for _ in sets]
    for place, number in enumerate(lanes):
        members[number].append(place)
    every = sorted({lane for group in sets for lane in group})
    apart = sum(map(len, sets)) == len(every)
    groups = [[number] for number in range(len(sets))] if apart else _joined(list(sets))
    parts = [sorted(place for number in group for place in members[number]) for group in groups]
    group_of = array("q", [0]) * max(len(rows), 1)
    for number, part in enumerate(parts):
        for place in part:
            group_of[place] = number
    by_lane = {lane: [place for each, number in sets.items() if lane in each for place in members[number]]
               for lane in every}  # fmt: skip
    overlap = bytearray(len(sets) * len(sets))
    for number in range(len(sets)):
        overlap[number * len(sets) + number] = 1
    if not apart:
        overlap = bytearray(not set(one).isdisjoint(other) for one in sets for other in sets)
    columns = {
        **shape.columns,
        "wcet": array("q", [row.wcet for row in rows]),
        "segment": array("q", [row.segment for row in rows]),
        "change": array("q", [row.change for row in rows]),
        "code": array("q", [row.code for row in rows]),
        "whole": array("q", [row.code == CODES["none"] for row in rows]),
        "full": array("q", [row.code == CODES["full"] for row in rows]),
        "width": array("q", [len(row.lanes) for row in rows]),
        "lanes": lanes,
        "group": group_of,
        "single": array("q", [len(group) == 1 for group in groups]),
        "full_group": array("q", [all(not rows[place].code for place in part) for part in parts]),
        "lane_count": array("q", [len({lane for place in part for lane in rows[place].lanes}) for part in parts]),
        "hopeless": array("q", [0]) * max(len(parts), 1),
        "overlap": array("B", overlap),
        "apart": array("B", bytes(len(shape.columns["near"]))),
    }
    columns["first_of_group"], columns["tasks_of_group"] = _rows(parts)
    columns["first_of_lane"], columns["tasks_of_lane"] = _rows(by_lane.values())
    numbers = {
        "tasks": len(rows), "groups": len(parts), "families": len(shape.columns["first_of_family"]) - 1,
        "every_lane": len(every), "sets": len(sets), "words": max((len(rows) + 63) // 64, 1),
    }  # fmt: skip
    return columns, numbers


def _joined(sets: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Return the numbers of sets of lanes that overlap, directly or through others."""
    groups: list[tuple[set[int], list[int]]] = []
    for number, lanes in enumerate(sets):
        near = [group for group in groups if not group[0].isdisjoint(lanes)]
        groups = [group for group in groups if group not in near]
        groups.append((set(lanes).union(*(each for each, _ in near)), [n for _, each in near for n in each] + [number]))
    return [numbers for _, numbers in groups]


def _fits(columns: Mapping[str, array[int]], rows: Sequence[Row], lanes: int) -> bool:
    """Return whether no sum of times within the longest interval that is examined can leave 64 bits."""
    periods = columns["period"]
    late = max(map(abs, columns["offset"]), default=0) + max(columns["release_jitter"], default=0)
    due = 64 * max(periods, default=0)
    taken = [row.wcet + row.segment + 2 * lanes * row.change for row in rows]
    used: dict[int, float] = {}
    for group, time, period in zip(columns["group"], taken, periods, strict=False):
        used[group] = used.get(group, 0.0) + time / period
    least = min((1 - share for share in used.values() if share < 1 - 1e-9), default=1.0)
    span = 64 * due + native_demand.LARGEST * due + late + 8 * sum(taken) / least
    work = sum((2 * span // period + 4) * time for time, period in zip(taken, periods, strict=False))
    return 8 * (span + work) < ROOM
