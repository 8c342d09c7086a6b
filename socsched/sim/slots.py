"""Units: the slots of an engine that tasks compete for, and the unit of every task and segment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from socsched.planning.plan import Plan, Task


@dataclass(frozen=True, slots=True)
class Unit:
    """Slots of one engine that compete with each other; tasks outside the unit share no slot with tasks inside."""

    engine: int
    mask: int


class UnitMap:
    """Where tasks and their segments run: the `units` of the plan, and the unit of each slot of an engine.

    `masks` receives the slots of every segment row, bit k for slot k.
    """

    def __init__(self, plan: Plan, engines: Mapping[str, int]) -> None:
        self._engines = engines
        self._known: dict[tuple[str, tuple[int, ...]], tuple[int, int]] = {}
        self.masks: list[int] = []
        wanted = dict.fromkeys(claim for task in plan.tasks for claim in _wanted(task))
        apart: dict[int, list[int]] = {index: [] for index in range(len(plan.engines))}
        for name, lanes in wanted:
            mask, others = _mask(lanes), []
            for other in apart[engines[name]]:
                if other & mask:
                    mask |= other
                else:
                    others.append(other)
            apart[engines[name]] = [*others, mask]
        self.units = tuple(Unit(engine, mask) for engine, masks in apart.items() for mask in sorted(masks))
        first = {(unit.engine, (unit.mask & -unit.mask).bit_length() - 1): i for i, unit in enumerate(self.units)}
        unit_of: dict[tuple[int, int], int] = {}
        for (engine, _), number in first.items():
            rest = self.units[number].mask
            while rest:
                slot = (rest & -rest).bit_length() - 1
                unit_of[engine, slot] = number
                rest &= rest - 1
        for name, lanes in wanted:
            self._known[name, lanes] = _mask(lanes), unit_of[engines[name], lanes[0]]

    def find(self, engine: str, lanes: tuple[int, ...]) -> tuple[int, int]:
        """Return slots as a mask, and the number of their unit."""
        return self._known[engine, lanes]


def _mask(lanes: Iterable[int]) -> int:
    mask = 0
    for slot in lanes:
        mask |= 1 << slot
    return mask


def _wanted(task: Task) -> Iterable[tuple[str, tuple[int, ...]]]:
    yield task.engine, task.lanes
    for segment in (*task.segments, *task.degraded):
        if segment.engine:
            yield segment.engine, segment.lanes
