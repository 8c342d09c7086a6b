"""The demand test of EDF in C, over flat tables; `edf` says what it is, and does it where this cannot."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Collection, Mapping, Sequence

from socsched.schedulability.native_windows import ROOM, as_tables, call, library, system_columns
from socsched.schedulability.tasks import RtTask, single_resource

COLUMNS = (
    "wcet", "period", "offset", "release_jitter", "segment", "change", "width", "lanes", "order", "first_after",
    "after", "first_of_group", "tasks_of_group", "single", "full", "lane_count", "hopeless", "names", "overlap",
    "base", "deadline",
)  # fmt: skip
_NUMBERS = ("tasks", "groups", "sets")
LARGEST = 64
"""Largest factor on deadlines that is tried."""


class Tables(ctypes.Structure):
    """The struct of demand.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in COLUMNS),
        *((name, ctypes.c_int64) for name in _NUMBERS),
    )


class Demand:
    """The demand of the tasks of a system, by group of tasks whose lanes overlap."""

    def __init__(
        self,
        tasks: Mapping[str, RtTask],
        groups: Sequence[Sequence[RtTask]],
        order: Sequence[str],
        hopeless: Collection[str],
    ) -> None:
        rows, number = list(tasks.values()), {name: place for place, name in enumerate(tasks)}
        shared, sets = system_columns(tasks, groups)
        self._number = number
        self._columns = {
            **shared,
            "order": array("q", [number[name] for name in order]),
            "full": array("q", [all(task.preemption == "full" for task in group) for group in groups]),
            "lane_count": array("q", [len({lane for task in group for lane in task.lanes}) for group in groups]),
            "hopeless": array("q", [group[0].name in hopeless for group in groups]),
            **{name: array("q", [0]) * len(rows) for name in ("names", "base", "deadline")},
        }
        self._sizes = [_size(group) for group in groups if group[0].name not in hopeless]  # others are not examined
        self._late = sum(
            max((abs(value) for value in values), default=0)
            for values in ([task.release_jitter for task in rows], [task.offset for task in rows])
        )
        numbers = {"tasks": len(rows), "groups": len(groups), "sets": sets}
        self._tables = as_tables(Tables, self._columns, numbers)

    def factor(self, deadlines: Mapping[str, int], names: Collection[str], steps: int) -> float | None:
        """Return the smallest factor on the deadlines (ns) of `names` found to pass by bisection, 0 if none does.

        With `steps` below 0: 1 if they pass as they are, else 0.  None where Python must find out.
        """
        if library() is None or not self._fits(deadlines):
            return None
        base, chosen = self._columns["base"], self._columns["names"]
        for name, place in self._number.items():
            base[place], chosen[place] = deadlines[name], name in names
        found = float(call("socsched_factor", ctypes.byref(self._tables), steps))
        if found < 0:
            raise MemoryError
        return found

    def _fits(self, deadlines: Mapping[str, int]) -> bool:
        """Return whether no sum of times within the longest interval that is examined can leave 64 bits."""
        late = self._late + LARGEST * max(map(abs, deadlines.values()), default=0)
        return all(
            8 * ((1 + used) * (begun + late * used) / max(1 - used, 1e-9) + late + begun + 2 * late * events) < ROOM
            for used, begun, events in self._sizes
        )


def _size(group: Sequence[RtTask]) -> tuple[float, float, float]:
    """Return the utilisation of a group with its switches, its work (ns), and its switches in a window of 1 ns."""
    single = single_resource(group)
    switches = 1 if single else 2 * len({lane for task in group for lane in task.lanes})
    work = [(task.wcet + switches * task.switch, task.period) for task in group]
    begun = sum(4 * wcet for wcet, _ in work) + max(task.segment + task.switch for task in group)
    change = max(len(task.lanes) * task.switch for task in group)
    events = 0.0 if single else 4 * change * sum(1 / period for _, period in work) + change * len(group)
    return sum(wcet / period for wcet, period in work), begun, events
