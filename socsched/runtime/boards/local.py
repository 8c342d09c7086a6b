"""The board `local`: this machine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from socsched.descriptor import host
from socsched.descriptor.host import rapl_domains
from socsched.descriptor.platform import Platform
from socsched.errors import UsageError
from socsched.planning.plan import Plan
from socsched.planning.task import COPY
from socsched.runtime.boards.base import Meter
from socsched.runtime.meters import Nvml, SamplingMeter

# Power of this machine during a run, from the package energy counters if the user may read them.
#
# Without such a counter nothing is recorded: a run reports only measured power.


class PowerMeter:
    """Samples energy counters (microjoules, wrapping at `max_energy_range_uj`) in a thread; a context manager."""

    def __init__(self, counters: tuple[Path, ...], interval_s: float = 0.05) -> None:
        self.samples: list[tuple[int, float]] = []
        self._counters = counters
        self._interval = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="power", daemon=True)

    def __enter__(self) -> PowerMeter:
        if self._counters:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._counters:
            self._thread.join(timeout=2)

    def steps(self, start_ns: int, samples: list[tuple[int, float]] | None = None) -> list[tuple[int, float]]:
        """Return (ns since `start_ns`, mW) of every interval that began after it, from `samples` or from all."""
        known = self.samples if samples is None else samples
        return [(time_ns - start_ns, power) for time_ns, power in known if time_ns >= start_ns]

    def counters(self, start_ns: int) -> dict[str, list[tuple[int, float]]]:
        """Return `steps` as the counter power_mw, empty if nothing was measured; returned samples are discarded."""
        steps = self.steps(start_ns, found := self.samples[:])
        del self.samples[: len(found)]
        return {"power_mw": steps} if steps else {}

    def _run(self) -> None:
        before, then = self._read(), time.monotonic_ns()
        while not self._stop.wait(self._interval):
            after, now = self._read(), time.monotonic_ns()
            spans = [int((one.parent / "max_energy_range_uj").read_text()) + 1 for one in self._counters]
            used = sum((b - a) % span for a, b, span in zip(before, after, spans, strict=True))
            self.samples.append((then, used * 1e6 / max(now - then, 1)))
            before, then = after, now

    def _read(self) -> list[int]:
        return [int(counter.read_text()) for counter in self._counters]


_GPU_INTERVAL_S = 0.1
"""The driver averages power over about this time."""


class LocalBoard:
    """This machine; `platform` replaces the detected one."""

    title = "this machine"

    def __init__(self, platform: Platform | None = None) -> None:
        self._platform = platform

    def platform_for(self, plan: Plan) -> Platform:
        """Return this machine's platform; raise UsageError if the plan is for another one or for more cores."""
        return self._platform or platform_for(plan)

    def cpus(self, engine: str, lanes: tuple[int, ...]) -> set[int]:
        """Return the CPU numbers of `lanes`; none for engines that are not CPUs."""
        known = {e.id: e.kind for e in self._platform.engines} if self._platform else {}
        return cpus(lanes) if known.get(engine, "cpu") == "cpu" else set()

    def meters(self) -> Sequence[Meter]:
        """Return meters of the package energy counters and of an NVIDIA GPU, if this user may read them."""
        gpu = Nvml()
        found: list[Meter] = [PowerMeter(power_counters())]
        return [*found, SamplingMeter(gpu.read, _GPU_INTERVAL_S)] if gpu.available else found

    def facts(self) -> Mapping[str, Any]:
        """Return the system's name and version."""
        system = os.uname()
        return {"system": f"{system.sysname} {system.release} {system.machine}"}

    @contextmanager
    def prepared(self, plan: Plan) -> Iterator[None]:
        """Do nothing: this machine has one mode."""
        yield


def platform_for(plan: Plan) -> Platform:
    """Return this machine's platform; raise UsageError if the plan is for another one or for more cores."""
    if plan.platform != "host":
        raise UsageError(
            f"the plan is for {plan.platform!r}, this machine is 'host'",
            f"plan for this machine: socsched plan {plan.pipeline} -p host -o plan.json; or simulate this plan",
        )
    here = host.detect()
    known = {engine.id: engine for engine in here.engines}
    for engine in (one for one in plan.engines if one.kind != COPY):
        if engine.id not in known or engine.lanes > known[engine.id].units:
            units = known[engine.id].units if engine.id in known else 0
            raise UsageError(
                f"the plan uses {engine.lanes} lanes of {engine.id!r}, this machine has {units}",
                f"plan again on this machine: socsched plan {plan.pipeline} -p host -o plan.json",
            )
    return here


def power_counters() -> tuple[Path, ...]:
    """Return the package energy counters this user may read."""
    return tuple(rapl_domains())


def cpus(lanes: tuple[int, ...]) -> set[int]:
    """Return the CPU numbers of `lanes`: the usable CPUs in order."""
    usable = sorted(os.sched_getaffinity(0))
    return {usable[lane] for lane in lanes if lane < len(usable)}
