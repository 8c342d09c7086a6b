"""The kernel's output as trace columns and running figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from socsched.sim.lower import Lowered
from socsched.trace.columns import CLOCK, FOREIGN, MISS_OPEN, Columns, InstantColumns, JobColumns, SliceColumns
from socsched.trace.summary import ChainTotals, Histogram, TaskTotals, Totals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from socsched.sim.callbacks import Callbacks, Mark
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

    def rows(self, name: str, width: int) -> Ints:
        """Return a log as a matrix, one row per entry."""
        blocks = self.found[name]
        joined = np.frombuffer(b"".join(blocks), np.int64) if blocks else np.zeros(0, np.int64)
        return joined.reshape(-1, width)


def _ordered(rows: Ints) -> list[Ints]:
    """Return the columns of rows, sorted by their first number, which is a permutation of 0 to their count."""
    where = np.empty(len(rows), np.int64)
    where[rows[:, 0]] = np.arange(len(rows))
    return [np.take(column, where) for column in rows.T[1:]]


def _lanes(words: Sequence[Ints]) -> tuple[Ints, tuple[tuple[int, ...], ...]]:
    """Return the lanes of slices as in `trace.columns`, and the sets that do not fit a mask."""
    if len(words) == 1:
        return words[0], ()
    distinct, which = np.unique(np.stack(words, axis=1), axis=0, return_inverse=True)
    bits = np.unpackbits(np.ascontiguousarray(distinct).view(np.uint8), axis=1, bitorder="little")
    sets = tuple(tuple(np.flatnonzero(row).tolist()) for row in bits)
    return -1 - np.asarray(which, np.int64).reshape(-1), sets


def make_columns(lowered: Lowered, outcome: KernelResult, callbacks: Callbacks) -> Columns:
    """Return all recorded data as trace columns, including the callbacks's marks."""
    marks, board = callbacks.list_marks(), callbacks.board
    plan, tasks = lowered.plan, len(lowered.plan.tasks)
    jobs = _ordered(outcome.rows("jobs", 13))
    engines, job, segment, begin, end, *words = _ordered(outcome.rows("slices", 6 + lowered.tables["numbers"]["words"]))
    lanes, lane_sets = _lanes(words)
    frames = outcome.rows("samples", 1)[:, 0]
    names = tuple(task.name for task in plan.tasks)
    subjects = (*names, *lowered.sources, *(engine.id for engine in plan.engines))
    releases = outcome.rows("releases", 2)
    return Columns(
        tasks=names,
        reads=tuple(task.reads for task in plan.tasks),
        engines=tuple(engine.id for engine in plan.engines),
        names=lowered.names,
        subjects=subjects,
        jobs=JobColumns(*(*jobs, frames)),
        slices=SliceColumns(engines, lanes, job, segment, begin, end),
        lane_sets=lane_sets,
        instants=_instants(outcome.rows("notes", 5), marks, tasks + len(lowered.sources)),
        counters=_counters(lowered, outcome, board.temperature if board and board.rule.time_constant_ns else [])
        | _foreign(callbacks.foreign),
        releases={name: releases[releases[:, 0] == index, 1] for index, name in enumerate(lowered.sources)},
    )


def _instants(notes: Ints, marks: Sequence[Mark], first_engine: int) -> InstantColumns:
    own = np.array([(time, code, first_engine + engine, -1, value) for time, code, engine, value in marks], np.int64)
    # a job unfinished at its deadline is only known at the end, so it comes last at its instant
    late = notes[:, 1] == MISS_OPEN
    known = np.concatenate([own.reshape(-1, 5), notes[~late], notes[late]])
    known = known[np.argsort(known[:, 0], kind="stable")]
    return InstantColumns(*(np.ascontiguousarray(column) for column in known.T))


def _foreign(steps: Sequence[tuple[int, str, float]]) -> dict[str, tuple[Ints, NDArray[np.float64]]]:
    """Return the foreign traffic of each engine as a counter."""
    found = {}
    for engine in dict.fromkeys(engine for _, engine, _ in steps):
        own = [(0, 0.0), *((time, rate) for time, name, rate in steps if name == engine)]
        found[FOREIGN + engine] = (np.array([t for t, _ in own], np.int64), np.array([rate for _, rate in own]))
    return found


def _counters(
    lowered: Lowered, outcome: KernelResult, temperature: Sequence[tuple[int, float]]
) -> dict[str, tuple[Ints, NDArray[np.float64]]]:
    numbers = lowered.tables["numbers"]
    steps = outcome.rows("steps", 3)
    times = np.concatenate([np.zeros(1, np.int64), steps[:, 0]])
    rates = np.concatenate([np.zeros(1), steps[:, 2].copy().view(np.float64)])
    loads = np.concatenate([np.zeros(1), steps[:, 1].astype(np.float64)])
    power = numbers["static_power"] + loads / numbers["scale"] + rates * numbers["energy_per_byte"]
    moved = np.concatenate([[True], rates[1:] != rates[:-1]])
    found = {"power_mw": (times, power), "bandwidth_gbps": (times[moved], rates[moved])}
    if temperature:
        instants, degrees = zip(*temperature, strict=True)
        found["temperature_c"] = (np.array(instants, np.int64), np.array(degrees, np.float64))
    levels = outcome.rows("levels", 3)
    for engine in np.unique(levels[:, 1]).tolist():
        clocks = np.array([point.clock_hz for point in lowered.plan.engines[engine].levels], np.float64)
        if not len(clocks):
            continue
        own = levels[levels[:, 1] == engine]
        # engines with fewer operating points than the largest repeat their slowest one
        points = np.maximum(own[:, 2] - (numbers["levels"] - len(clocks)), 0)
        name = CLOCK + lowered.plan.engines[engine].id
        at = np.concatenate([np.zeros(1, np.int64), own[:, 0]])
        found[name] = (at, np.concatenate([clocks[-1:], clocks[points]]))
    depths = outcome.rows("depths", 3)
    for task in np.unique(depths[:, 1]):
        own = depths[depths[:, 1] == task]
        frames = np.concatenate([np.zeros(1), own[:, 2].astype(np.float64)])
        name = f"queue.{lowered.plan.tasks[int(task)].name}"
        found[name] = (np.concatenate([np.zeros(1, np.int64), own[:, 0]]), frames)
    queues = sorted(name for name in found if name.startswith("queue."))
    return {name: found[name] for name in (*(name for name in found if name not in queues), *queues)}


# Totals of a simulation without a trace: the kernel's running figures in the terms of `trace.summary`.


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
