"""Controllers written in Python: their schedule, their views, and the resulting changes to the kernel's tables.

Declared ones (`policies.control`) run inside the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from socsched.sim.lower import FAR, Lowered
from socsched.sim.mechanisms import as_taken
from socsched.sim.policies import Ready
from socsched.sim.policies.control import Controller, View


class Kernel(Protocol):
    """Queries answered by a running kernel."""

    def ready(self, unit: int) -> Sequence[tuple[int, ...]]: ...
    def expected(self, source: int) -> tuple[int, int]: ...


class Steering:
    """The controllers of one simulation, one for each unit whose policy has one; `next_ns`: next sampling instant.

    `kernel` is set once it exists.
    """

    def __init__(self, lowered: Lowered) -> None:
        self.lowered, self.tables = lowered, lowered.tables
        self.kernel: Kernel | None = None
        self._units: list[tuple[int, Controller]] = []
        for index, unit in enumerate(lowered.units):
            rule = lowered.policies[unit.engine]
            if callable(rule.control):
                self._units.append((index, rule.control()))
        self._due = [max(controller.period_ns, 1) for _, controller in self._units]
        self._seen: dict[int, tuple[int, int]] = {}
        own: dict[int, list[int]] = {}
        for number in range(len(lowered.plan.tasks)):
            own.setdefault(self.tables["g_unit"][self.tables["t_first"][number]], []).append(number)
        self._tasks = {unit: tuple(numbers) for unit, numbers in own.items()}
        self._plan = as_taken(lowered.plan, lowered.policies)

    @property
    def next_ns(self) -> int:
        """Return the next sampling instant of any controller (ns); FAR if there is none."""
        return min(self._due, default=FAR)

    def look(self, now: int, books: Mapping[str, Sequence[int]]) -> set[int]:
        """Run the controllers that are due; return the engines whose order or operating point changed."""
        changed: set[int] = set()
        for place, (unit, controller) in enumerate(self._units):
            if self._due[place] > now:
                continue
            engine = self.lowered.units[unit].engine
            order, level = controller.look(self._view(unit, engine, now, books), now)
            # read again because the controller may have changed its period
            self._due[place] = now + max(controller.period_ns, 1)
            terms = (int(order[0]), int(order[1]))
            if terms != (self.tables["u_term0"][unit], self.tables["u_term1"][unit]):
                self.tables["u_term0"][unit], self.tables["u_term1"][unit] = terms
                changed.add(engine)
            points = self.lowered.plan.engines[engine].levels
            if level is not None and points:
                # engines with fewer operating points than the largest repeat their slowest one
                wanted = self.tables["numbers"]["levels"] - len(points) + max(min(level, len(points) - 1), 0)
                wanted = min(wanted, self.tables["n_top"][engine])
                if wanted != self.tables["n_level"][engine]:
                    self.tables["n_level"][engine] = wanted
                    changed.add(engine)
        return changed

    def _view(self, unit: int, engine: int, now: int, books: Mapping[str, Sequence[int]]) -> View:
        levels, lanes = self.tables["numbers"]["levels"], max(self.lowered.plan.engines[engine].lanes, 1)
        spent = books["spent"]
        total = sum(spent[engine * levels : (engine + 1) * levels])
        before, since = self._seen.get(unit, (0, 0))
        self._seen[unit] = (total, now)
        busy = (total - before) * (1 / max((now - since) * lanes, 1))
        plan = self.lowered.plan

        def ready() -> list[Ready]:
            assert self.kernel is not None
            return [_job(plan.tasks[row[0]], row) for row in self.kernel.ready(unit)]

        def next_frames() -> dict[str, tuple[int, int]]:
            assert self.kernel is not None
            return {name: self.kernel.expected(source) for source, name in enumerate(self.lowered.sources)}

        return View(
            self._plan, plan.engines[engine].id, unit, self._tasks.get(unit, ()), busy, ready, next_frames, books
        )


def _job(task: Any, row: Sequence[int]) -> Ready:
    number, frame, activation, release, deadline, start, done, left, running = row
    return Ready(task, number, frame, activation, release, deadline, start, done, left, bool(running))
