"""Comparison of policies on one plan over loads and seeds: misses, tails, fairness and energy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from socsched import plugins
from socsched.planning.plan import Plan
from socsched.sim.engine import run
from socsched.sim.policies import GROUP
from socsched.sim.totals import totals
from socsched_literature.studies import multiprogram, variation

ALIKE = 0.001
"""Energies that differ by less than this fraction count as equal."""
PLANNED = "as planned"
"""Name of the row for the plan's own policies."""
EXTRA = ("np-fifo", "np-fp")
"""Variants included in the comparison: a plain queue, and PREMA's HPF."""
FIGURES = {
    "misses": "share of frames late or dropped",
    "p99_9": "99.9th percentile of responses over the time alone, worst chain",
    "antt": "average normalised turnaround time",
    "stp": "system throughput (programs' worth of progress)",
    "fairness": "smallest ratio of two chains' proportional progress",
    "sla": "share of frames within the multiple of the time alone",
    "energy": "energy of the module a second (mJ)",
    "preemptions": "preemptions a second",
}
"""Contents of a cell, with their meanings."""
SMALLER_IS_BETTER = ("misses", "p99_9", "antt", "energy", "preemptions")


@dataclass(frozen=True, slots=True)
class Cell:
    """A policy under a load: the mean of every figure over seeds and half the width of its 95 % confidence interval.

    `samples` are the figures by seed.  `worst_ns`: the 99.9th percentile of the responses of every chain, the largest
    over seeds.
    """

    policy: str
    load: float
    samples: Mapping[str, tuple[float, ...]]
    worst_ns: Mapping[str, int]
    on_front: bool = False

    @property
    def figures(self) -> dict[str, tuple[float, float]]:
        """Return the mean and half the width of the confidence interval of every figure."""
        return {name: multiprogram.interval(values) for name, values in self.samples.items()}


@dataclass(frozen=True, slots=True)
class Study:
    """All cells, by load and then policy, and the reasons for omitted policies."""

    plan: Plan
    loads: tuple[float, ...]
    seeds: int
    duration_ns: int
    spread: float
    multiple: float
    cells: tuple[Cell, ...]
    left_out: Mapping[str, str]

    def cell(self, policy: str, load: float) -> Cell:
        """Return the cell of a policy under a load."""
        return next(cell for cell in self.cells if (cell.policy, cell.load) == (policy, load))

    def beats(self, load: float) -> list[str]:
        """Return the policies no worse than the plan's own in misses and energy, and better in one."""
        own = self.cell(PLANNED, load)
        return [c.policy for c in self.cells if c.load == load and c is not own and dominates(c, own)]


def select_policies(plan: Plan, names: Sequence[str] | None) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the policies to compare, and the reasons for omitted ones; all known policies if `names` is None."""
    if names is not None:
        variation.needs([name for name in names if name != PLANNED])
        return tuple(dict.fromkeys((PLANNED, *names))), {}
    reasons = {name: variation.applicable(name, plan) for name in (*plugins.names(GROUP, own=True), *EXTRA)}
    kept = [name for name, reason in reasons.items() if not reason]
    return (PLANNED, *kept), {name: reason for name, reason in reasons.items() if reason}


def study(
    plan: Plan,
    names: Sequence[str] | None = None,
    loads: Sequence[float] = (1.0,),
    seeds: int = 20,
    duration_ns: int = 10 * 10**9,
    spread: float = 0.3,
    multiple: float = 4.0,
    progress: Callable[[str], None] = lambda text: None,
) -> Study:
    """Return the results of policies on `plan` under every load, `seeds` times each (`variation` defines the draws).

    Times alone, the reference of turnaround and agreements, are means of a chain simulated with nothing else on the
    board.  UsageError for unknown policies and invalid loads.
    """
    policies, left_out = select_policies(plan, names)
    cells: list[Cell] = []
    for load in loads:
        base = variation.scale_rates(plan, load)
        draws = [variation.vary_plan(base, seed, spread) for seed in range(seeds)]
        singles = [_alone(draw, seed, duration_ns) for seed, draw in enumerate(draws)]
        found = []
        for name in policies:
            progress(f"load {load:g}: {name}")
            found.append(_cell(name, load, draws, singles, duration_ns, multiple))
        cells += [replace(cell, on_front=not any(dominates(other, cell) for other in found)) for cell in found]
    return Study(plan, tuple(loads), seeds, duration_ns, spread, multiple, tuple(cells), left_out)


def dominates(a: Cell, b: Cell) -> bool:
    """Return whether `a` is no worse than `b` in misses and energy and better in one of them.

    Differences are taken seed by seed; a difference whose 95 % interval includes 0 counts as none, as does one of
    energy below the fraction `ALIKE` of it.
    """
    misses = _difference(a.samples["misses"], b.samples["misses"], 0.0)
    energy = _difference(a.samples["energy"], b.samples["energy"], ALIKE)
    return misses <= 0 and energy <= 0 and (misses < 0 or energy < 0)


def _difference(a: Sequence[float], b: Sequence[float], alike: float) -> float:
    mean, half = multiprogram.interval([x - y for x, y in zip(a, b, strict=True)])
    return 0.0 if abs(mean) <= max(half, alike * max(a)) else mean


def _alone(plan: Plan, seed: int, duration_ns: int) -> dict[str, float]:
    """Return the mean response of every chain with nothing else on the board (ns)."""
    found = {}
    for chain in variation.programs(plan):
        response = _responses(variation.alone(plan, chain), seed, duration_ns, None)[0][chain.name]
        found[chain.name] = max(response.total / response.count if response.count else chain.expected_ns, 1.0)
    return found


def _responses(plan: Plan, seed: int, duration_ns: int, policy: str | None) -> tuple[dict[str, Any], Any]:
    whole = replace(plan, chains=variation.programs(plan))
    summed = totals(run(whole, duration_ns, seed, policy, record=False))
    return {name: chain.response_ns for name, chain in summed.chains.items()}, summed


def _cell(
    name: str, load: float, draws: Sequence[Plan], singles: Sequence[Mapping[str, float]], duration_ns: int,
    multiple: float,
) -> Cell:  # fmt: skip
    rows: dict[str, list[float]] = {figure: [] for figure in FIGURES}
    worst: dict[str, int] = {}
    for seed, draw in enumerate(draws):
        responses, summed = _responses(draw, seed, duration_ns, None if name == PLANNED else name)
        chains = [chain for chain in variation.programs(draw) if responses[chain.name].count]
        single = [singles[seed][chain.name] for chain in chains]
        together = [responses[chain.name].total / responses[chain.name].count for chain in chains]
        tails = [responses[chain.name].percentile(999) for chain in chains]
        for chain, tail in zip(chains, tails, strict=True):
            worst[chain.name] = max(worst.get(chain.name, 0), tail)
        lost = sum(chain.missed + chain.dropped for chain in summed.chains.values())
        released = sum(chain.released for chain in summed.chains.values())
        weights = [variation.importance(draw, chain) for chain in chains]
        met = [multiprogram.satisfaction(responses[c.name], s, multiple) for c, s in zip(chains, single, strict=True)]
        seconds = duration_ns / 1e9
        values = {
            "misses": lost / max(released, 1),
            "p99_9": max((tail / s for tail, s in zip(tails, single, strict=True)), default=0.0),
            "antt": multiprogram.antt(together, single) if chains else 0.0,
            "stp": multiprogram.stp(together, single),
            "fairness": multiprogram.fairness(together, single, weights) if chains else 0.0,
            "sla": sum(met) / max(len(met), 1),
            "energy": (summed.energy_mj or 0.0) / seconds,
            "preemptions": sum(task.preemptions for task in summed.tasks.values()) / seconds,
        }
        for figure, value in values.items():
            rows[figure].append(value)
    return Cell(name, load, {figure: tuple(values) for figure, values in rows.items()}, worst)


def document(found: Study) -> dict[str, Any]:
    """Return a study as plain data: intervals as [mean, half width], times of chains in ns."""
    return {
        "kind": "policies",
        "pipeline": found.plan.pipeline,
        "platform": found.plan.platform,
        "mode": found.plan.mode,
        "loads": list(found.loads),
        "seeds": found.seeds,
        "duration_ns": found.duration_ns,
        "spread": found.spread,
        "sla_multiple": found.multiple,
        "figures": dict(FIGURES),
        "cells": [
            {
                "policy": cell.policy,
                "load": cell.load,
                "on_front": cell.on_front,
                **{name: [round(mean, 9), round(half, 9)] for name, (mean, half) in cell.figures.items()},
                "p99_9_ns": dict(cell.worst_ns),
            }
            for cell in found.cells
        ],
        "beats_the_plan": {f"{load:g}": found.beats(load) for load in found.loads},
        "left_out": dict(found.left_out),
    }
