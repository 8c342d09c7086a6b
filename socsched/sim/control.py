"""Power cap and thermal throttling by the board itself, stepping one operating point at a time.

Temperature follows one lumped mass (a thermal resistance and a time constant; the thermal circuit of Skadron et al.,
"Temperature-aware microarchitecture", ISCA 2003, with a single node), stepped in whole millikelvins so that the result
is the same on every machine.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Any

from socsched.planning.plan import Plan, Throttle
from socsched.sim.lower import FAR
from socsched.trace.columns import THROTTLE, THROTTLE_OVER

Mark = tuple[int, int, int, int]
LEAST_LOOK_NS = 100_000
"""Least time between two looks at a load."""


class Board:
    """Steps the operating points of multi-level engines by `Throttle`; `temperature` holds (ns, degrees C) steps."""

    def __init__(self, plan: Plan, rule: Throttle, tables: dict[str, Any]) -> None:
        self.plan, self.rule, self.tables = plan, rule, tables
        self.levels: int = tables["numbers"]["levels"]
        self.temperature_mk = rule.ambient_mc
        self.temperature: list[tuple[int, float]] = [(0, rule.ambient_mc / 1000)]
        self.steps_down: list[tuple[int, int]] = []
        self.marks: list[Mark] = []
        self._busy_time = [0] * (len(plan.engines) * self.levels)
        self._traffic = 0.0

    def sample(self, now: int, busy_time: Sequence[int], traffic: float) -> tuple[int, tuple[int, ...]]:
        """Return the next sampling instant and the changed engines; `busy_time`: slot time by engine and level (ns)."""
        drawn = [self._mean_power(index, busy_time) for index in range(len(self.plan.engines))]
        static = self.plan.base_mw + sum(engine.idle_mw for engine in self.plan.engines)
        memory = (traffic - self._traffic) * self.plan.dram_picojoule_per_byte / self.rule.period_ns
        power = static + sum(drawn) + int(memory)
        self._busy_time, self._traffic = list(busy_time), traffic
        hot = self._update_temperature(now, power)
        rule = self.rule
        changed: tuple[int, ...] = ()
        if (rule.cap_mw and power > rule.cap_mw) or (rule.trip_mc and hot >= rule.trip_mc):
            changed = self._step_down(now, drawn)
        elif self.steps_down and self._has_recovered(power, hot):
            changed = self._step_up(now)
        return now + rule.period_ns, changed

    def _has_recovered(self, power: int, hot: int) -> bool:
        rule = self.rule
        cool = not rule.trip_mc or hot <= rule.recover_mc
        return cool and (not rule.cap_mw or power < rule.cap_mw * rule.recover)

    def _mean_power(self, engine: int, busy_time: Sequence[int]) -> int:
        """Return an engine's mean dynamic power in this period (mW)."""
        first, total = engine * self.levels, 0
        for level in range(self.levels):
            total += (busy_time[first + level] - self._busy_time[first + level]) * self.tables["n_power"][first + level]
        return int(total / self.tables["numbers"]["scale"]) // self.rule.period_ns

    def _update_temperature(self, now: int, power: int) -> int:
        rule = self.rule
        if rule.time_constant_ns:
            towards = rule.ambient_mc + power * rule.resistance_mk_per_w // 1000
            self.temperature_mk += (towards - self.temperature_mk) * rule.period_ns // rule.time_constant_ns
            self.temperature.append((now, self.temperature_mk / 1000))
        return self.temperature_mk

    def _step_down(self, now: int, drawn: Sequence[int]) -> tuple[int, ...]:
        level: MutableSequence[int] = self.tables["n_level"]
        able = [engine for engine in range(len(drawn)) if level[engine] > self._lowest(engine)]
        if not able:
            return ()
        chosen = max(able, key=lambda engine: (drawn[engine], -engine))
        self.steps_down.append((chosen, self.tables["n_top"][chosen]))
        return self._limit_level(now, chosen, level[chosen] - 1)

    def _step_up(self, now: int) -> tuple[int, ...]:
        return self._limit_level(now, *self.steps_down.pop())

    def _limit_level(self, now: int, engine: int, level: int) -> tuple[int, ...]:
        """Set the highest operating point an engine may use; adopt it unless a governor picks among those allowed."""
        self.tables["n_top"][engine] = level
        if not self.tables["n_governor"][engine] or level < self.tables["n_level"][engine]:
            self.tables["n_level"][engine] = level
        clocks = self.tables["n_clock"][engine * self.levels : (engine + 1) * self.levels]
        speed = 1_000_000 * clocks[level] // clocks[-1]
        self.marks.append((now, THROTTLE if level < self.levels - 1 else THROTTLE_OVER, engine, speed))
        return (engine,)

    def _lowest(self, engine: int) -> int:
        return self.levels - max(len(self.plan.engines[engine].levels), 1)


class ClockFollower:
    """Sets clocks by the load: of an engine's points the slowest at which it is busy for its share of the time.

    Load is busy time by clock over a period, as devfreq governors count it; the clock starts at the lowest point.
    Looks are `LEAST_LOOK_NS` apart at least, so that a file cannot make a simulation endless.
    """

    def __init__(self, plan: Plan, tables: dict[str, Any]) -> None:
        self.plan, self.tables = plan, tables
        self.levels: int = tables["numbers"]["levels"]
        self._engines = [i for i, engine in enumerate(plan.engines) if engine.governor == "load"]
        self._look = {index: max(plan.engines[index].look_ns, LEAST_LOOK_NS) for index in self._engines}
        self._due = dict(self._look)
        self._busy = [0] * (len(plan.engines) * self.levels)
        for index in self._engines:
            tables["n_level"][index] = self.levels - len(plan.engines[index].levels)

    @property
    def next_ns(self) -> int:
        """Return the next look at a load (ns); FAR if there is none."""
        return min(self._due.values(), default=FAR)

    def sample(self, now: int, busy_time: Sequence[int]) -> set[int]:
        """Set the clocks that are due; return the engines whose clock changed."""
        changed = set()
        for index in self._engines:
            if self._due[index] > now:
                continue
            engine = self.plan.engines[index]
            self._due[index] = now + self._look[index]
            first, last = index * self.levels, (index + 1) * self.levels
            clocks = self.tables["n_clock"][first:last]
            work = sum((busy_time[i] - self._busy[i]) * clocks[i - first] for i in range(first, last))
            self._busy[first:last] = busy_time[first:last]
            wanted = work * 1_000_000 // (self._look[index] * engine.lanes * max(engine.busy_ppm, 1))
            lowest, top = self.levels - len(engine.levels), self.tables["n_top"][index]
            level = next((i for i in range(lowest, top) if clocks[i] >= wanted), top)
            if level != self.tables["n_level"][index]:
                self.tables["n_level"][index] = level
                changed.add(index)
        return changed
