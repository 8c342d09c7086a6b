"""Controllers written in Python: their schedule, their views, and the resulting changes to the kernel's tables.

Declared ones (`policies.controllers`) run inside the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from socsched.sim.lower import FAR, Lowered
from socsched.sim.mechanisms import apply_policies
from socsched.sim.policies import ReadyJob
from socsched.sim.policies.controllers import Controller, View


class KernelQueries(Protocol):
    """Queries answered by a running kernel."""

    def list_ready(self, unit: int) -> Sequence[tuple[int, ...]]: ...
    def get_next_release(self, source: int) -> tuple[int, int]: ...


class CustomControllers:
    """The controllers of one simulation, one for each unit whose policy has one; `next_ns`: next sampling instant.

    `kernel` is set once it exists.
    """

    def __init__(self, lowered: Lowered) -> None:
        self.lowered, self.tables = lowered, lowered.tables
        self.kernel: KernelQueries | None = None
        self._units: list[tuple[int, Controller]] = []
        for index, unit in enumerate(lowered.units):
            rule = lowered.policies[unit.engine]
            if callable(rule.controller):
                self._units.append((index, rule.controller()))
        self._due = [max(controller.period_ns, 1) for _, controller in self._units]
        self._sampled: dict[int, tuple[int, int]] = {}
        own: dict[int, list[int]] = {}
        for number in range(len(lowered.plan.tasks)):
            own.setdefault(self.tables["g_unit"][self.tables["t_first"][number]], []).append(number)
        self._tasks = {unit: tuple(numbers) for unit, numbers in own.items()}
        self._plan = apply_policies(lowered.plan, lowered.policies)

    @property
    def next_ns(self) -> int:
        """Return the next sampling instant of any controller (ns); FAR if there is none."""
        return min(self._due, default=FAR)

    def sample(self, now: int, counters: Mapping[str, Sequence[int]]) -> set[int]:
        """Run the controllers that are due; return the engines whose order or operating point changed."""
        changed: set[int] = set()
        for number, (unit, controller) in enumerate(self._units):
            if self._due[number] > now:
                continue
            engine = self.lowered.units[unit].engine
            order, level = controller.decide(self._view(unit, engine, now, counters), now)
            # read again because the controller may have changed its period
            self._due[number] = now + max(controller.period_ns, 1)
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

    def _view(self, unit: int, engine: int, now: int, counters: Mapping[str, Sequence[int]]) -> View:
        levels, slots = self.tables["numbers"]["levels"], max(self.lowered.plan.engines[engine].lanes, 1)
        busy_time = counters["busy_time"]
        total = sum(busy_time[engine * levels : (engine + 1) * levels])
        before, since = self._sampled.get(unit, (0, 0))
        self._sampled[unit] = (total, now)
        busy = (total - before) * (1 / max((now - since) * slots, 1))
        plan = self.lowered.plan

        def ready() -> list[ReadyJob]:
            assert self.kernel is not None
            return [_job(plan.tasks[row[0]], row) for row in self.kernel.list_ready(unit)]

        def next_frames() -> dict[str, tuple[int, int]]:
            assert self.kernel is not None
            return {name: self.kernel.get_next_release(source) for source, name in enumerate(self.lowered.sources)}

        return View(
            self._plan, plan.engines[engine].id, unit, self._tasks.get(unit, ()), busy, ready, next_frames, counters
        )


def _job(task: Any, row: Sequence[int]) -> ReadyJob:
    number, frame, activation, release, deadline, start, done, left, running = row
    return ReadyJob(task, number, frame, activation, release, deadline, start, done, left, bool(running))
