"""The kernel's running figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from socsched.trace.summary import ChainTotals, Histogram, TaskTotals, Totals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from socsched.sim.simulate import SimulationRun

    Ints = NDArray[np.int64]


_PAGE, _PAGES = 1024, 44
"""Bins per page of a histogram, and the most pages it may have (`kernel.stores`)."""


class KernelResult:
    """The kernel's accounting by name (`kernel.Kernel.close`): arrays with one entry per task, engine or chain."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.found = found

    def ints(self, name: str) -> Ints:
        """Return an array of numbers."""
        return np.asarray(self.found[name], np.int64)

    def ints_of(self, name: str, which: int) -> Ints:
        """Return one statistic of histograms: 1 sums (of any size), 2 largest, 3 numbers of, or 4 least values."""
        return np.asarray(self.found[name][which], object if which == 1 else np.int64)

    def bins_of(self, name: str, index: int) -> Ints:
        """Return the counts per bin of one histogram (`trace.summary.bin_of`), up to the last nonzero one."""
        pages, bins = self.found[name][0]
        own = pages[_PAGES * index : _PAGES * (index + 1)]
        counts = [np.asarray(bins[at : at + _PAGE]) if at >= 0 else np.zeros(_PAGE, np.int64) for at in own]
        return np.trim_zeros(np.concatenate(counts), "b")

    def number(self, name: str) -> Any:
        """Return a single number or object unchanged."""
        return self.found[name]


# Totals of a simulation without a trace: the kernel's running figures in the terms of `trace.summary`.


def totals(simulated: SimulationRun) -> Totals:
    """Return the totals of `simulated`, as its trace would be summarised."""
    plan, found, duration = simulated.lowered.plan, simulated.outcome, simulated.duration_ns
    tasks = {}
    for index, task in enumerate(plan.tasks):
        done, dropped, aborted = (int(found.ints(name)[index]) for name in ("done", "dropped", "aborted"))
        blocking, preemptions = int(found.ints("blocked")[index]), int(found.ints("preempted")[index])
        seen = _histogram(simulated, "execs", index)
        tasks[task.name] = TaskTotals(done, dropped, aborted, seen, blocking, preemptions)
    chains = {}
    for index, chain in enumerate(plan.chains):
        chains[chain.name] = ChainTotals(
            int(found.ints("chain_released")[index]),
            int(found.ints("chain_completed")[index]),
            int(found.ints("chain_missed")[index]),
            int(found.ints("chain_dropped")[index]),
            int(found.ints("chain_stale")[index]),
            _histogram(simulated, "chains", 2 * index),
            _histogram(simulated, "chains", 2 * index + 1),
        )
    busy, energy = _busy_times(simulated)
    energy += found.number("corun_energy") / simulated.lowered.tables["numbers"]["scale"]
    energy += found.number("traffic") * plan.dram_picojoule_per_byte
    static = plan.base_mw + sum(engine.idle_mw for engine in plan.engines)
    mean = static + energy / duration if duration else float(static)
    traffic = found.number("traffic") / duration if duration else 0.0
    return Totals(
        "simulated",
        duration,
        simulated.seed,
        tasks,
        chains,
        busy,
        (mean, max(found.number("power_peak"), float(static))),
        mean * duration / 1e9,
        (traffic, found.number("rate_peak")),
    )


def _histogram(simulated: SimulationRun, name: str, index: int) -> Histogram:
    found = simulated.outcome
    sums, most, number, least = (found.ints_of(name, which)[index] for which in (1, 2, 3, 4))
    if not number:
        return Histogram()
    return Histogram(found.bins_of(name, index), int(number), int(sums), int(least), int(most))


def _busy_times(simulated: SimulationRun) -> tuple[dict[str, tuple[int, ...]], float]:
    """Return every engine's busy slot time by operating point (ns), and the total dynamic energy (mW ns)."""
    tables, plan = simulated.lowered.tables, simulated.lowered.plan
    levels, busy_time = tables["numbers"]["levels"], simulated.outcome.ints("busy_time")
    busy: dict[str, tuple[int, ...]] = {}
    energy = 0
    for index, engine in enumerate(plan.engines):
        times = [int(time) for time in busy_time[index * levels : (index + 1) * levels]]
        own = max(len(engine.levels), 1)
        busy[engine.id] = (sum(times[: levels - own + 1]), *times[levels - own + 1 :])
        energy += sum(time * tables["n_power"][index * levels + level] for level, time in enumerate(times))
    return busy, energy / tables["numbers"]["scale"]
