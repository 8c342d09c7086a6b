"""Totals of a simulation without a trace: the kernel's running figures in the terms of `trace.summary`."""

from __future__ import annotations

from socsched.sim.engine import SimulationRun
from socsched.trace.summary import ChainTotals, Histogram, TaskTotals, Totals


def totals(simulated: SimulationRun) -> Totals:
    """Return the totals of `simulated`, as its trace would be summarised (`trace.summary.totals`)."""
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
