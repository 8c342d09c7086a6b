"""The readings of a board's meters: power, DRAM traffic and queue depths as step functions of time."""

from __future__ import annotations

from socsched.planning.plan import Plan

Steps = list[tuple[int, float]]


class Meters:
    """Records (time, value) whenever a value changes.

    `load` is the dynamic power of all busy lanes times `scale`, an integer so that it never drifts; `rate` the DRAM
    traffic in bytes/ns, which is GB/s.
    """

    def __init__(self, plan: Plan, scale: int) -> None:
        self.load = 0
        self.rate = 0.0
        self._scale = scale
        self._shown = (0, 0.0)
        self._picojoule_per_byte = plan.dram_picojoule_per_byte
        self._static_mw = plan.base_mw + sum(engine.idle_mw for engine in plan.engines)
        self.power: Steps = [(0, float(self._static_mw))]
        self.traffic: Steps = [(0, 0.0)]
        self.queues: dict[str, Steps] = {}

    def read(self, now_ns: int) -> None:
        """Take down power and traffic if they have changed."""
        load, rate = self.load, self.rate
        if (load, rate) == self._shown:
            return
        if rate != self._shown[1]:
            self.traffic.append((now_ns, rate))
        self._shown = (load, rate)
        # pJ/byte times bytes/ns is pJ/ns, a milliwatt.
        self.power.append((now_ns, self._static_mw + load / self._scale + rate * self._picojoule_per_byte))

    def depth(self, now_ns: int, task: str, frames: int) -> None:
        """Take down that `frames` frames wait at a task now."""
        self.queues.setdefault(f"queue.{task}", [(0, 0.0)]).append((now_ns, float(frames)))

    def counters(self) -> dict[str, Steps]:
        """Return everything recorded, under the names a trace uses."""
        return {"power_mw": self.power, "bandwidth_gbps": self.traffic, **dict(sorted(self.queues.items()))}
