"""Comparison of policies on one plan over loads and seeds: misses, tails, fairness and energy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from socsched import plugins
from socsched.errors import UsageError
from socsched.planning.plan import ChainResult, ExecutionTimes, Plan, Task
from socsched.reporting.markup import element, text, ticks
from socsched.reporting.terminal import table
from socsched.sim.policies import GROUP
from socsched.sim.results import totals
from socsched.sim.simulate import run
from socsched.trace.summary import Histogram, bin_of
from socsched.units import format_duration

# Metrics of several programs that share a machine, as PREMA reports them.
#
# Eyerman & Eeckhout, IEEE Micro 28(3) 2008, equations for NTT, ANTT and STP; PREMA (Choi & Rhu, HPCA 2020), section VI:
# fairness by proportional progress, and satisfaction of service level agreements as multiples of the time alone.


_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t at 97.5 % for 1 to 30 degrees of freedom."""


def antt(together: Sequence[float], alone: Sequence[float]) -> float:
    """Return the average normalised turnaround time: the mean of times together over times alone; 1 is best."""
    return math.fsum(t / a for t, a in zip(together, alone, strict=True)) / len(together)


def stp(together: Sequence[float], alone: Sequence[float]) -> float:
    """Return the system throughput: the progress made in programs' worth; the number of programs is best."""
    return math.fsum(a / t for t, a in zip(together, alone, strict=True))


def fairness(together: Sequence[float], alone: Sequence[float], priorities: Sequence[float]) -> float:
    """Return the smallest ratio of two programs' progress in proportion to priority, 1 when all have their share.

    Progress of i: (alone_i / together_i) / (priority_i / sum of priorities).
    """
    progress = [a / t / p for t, a, p in zip(together, alone, priorities, strict=True)]
    return min(progress) / max(progress)


def satisfaction(responses: Histogram, alone_ns: float, multiple: float) -> float:
    """Return the share of jobs that took at most a multiple of the time alone, to 2**-10 of it; 1 for no jobs."""
    if not responses.count:
        return 1.0
    limit = int(alone_ns * multiple)
    return float(responses.counts[: bin_of(limit) + 1].sum()) / responses.count


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half the width of its 95 % confidence interval (Student's t); 0 for a single value."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    free = len(values) - 1
    return mean, (_T[free - 1] if free <= len(_T) else 1.96) * spread / math.sqrt(len(values))


# Variants of a plan: other loads, and source phases and execution times drawn from a seed.


def scale_rates(plan: Plan, load: float) -> Plan:
    """Return the plan with every source `load` times as fast, offsets and jitters in proportion; deadlines stay."""
    if load <= 0:
        raise UsageError(f"a load must be above 0, got {load:g}")

    def faster(value: int) -> int:
        return round(value / load)

    sensors = tuple(
        replace(
            s, period_ns=max(faster(s.period_ns), 1), offset_ns=faster(s.offset_ns), jitter_ns=faster(s.jitter_ns),
            gap_ns=faster(s.gap_ns),
        )
        for s in plan.sensors
    )  # fmt: skip
    tasks = tuple(
        replace(
            t, period_ns=faster(t.period_ns) or t.period_ns, offset_ns=faster(t.offset_ns), gap_ns=faster(t.gap_ns),
            release_jitter_ns=faster(t.release_jitter_ns),
        )
        for t in plan.tasks
    )  # fmt: skip
    return replace(plan, sensors=sensors, tasks=tasks)


def vary_plan(plan: Plan, seed: int, spread: float) -> Plan:
    """Return the plan with sources at drawn phases, and jobs that take from ``1 - spread`` of their cost up to it.

    Tasks with given execution times keep them; the cost in a plan is the maximum execution time of a job.
    """

    def phase(name: str, period_ns: int) -> int:
        return Random(f"{seed}:phase:{name}").randrange(max(period_ns, 1))

    def task(each: Task) -> Task:
        cost = sum(segment.time_ns for segment in each.segments) or each.cost_ns
        drawn = each.times
        if drawn is None and spread > 0 and cost:
            drawn = ExecutionTimes((max(round(cost * (1 - spread)), 1), cost), True)
        offset = each.offset_ns + phase(each.name, each.period_ns) if each.timer else each.offset_ns
        return replace(each, times=drawn, offset_ns=offset)

    sensors = tuple(replace(s, offset_ns=s.offset_ns + phase(s.name, s.period_ns)) for s in plan.sensors)
    return replace(plan, sensors=sensors, tasks=tuple(map(task, plan.tasks)))


def programs(plan: Plan) -> tuple[ChainResult, ...]:
    """Return the plan's programs: its chains, or each task by itself if it has none."""
    if plan.chains:
        return plan.chains
    return tuple(ChainResult(t.name, (t.name,), t.deadline_ns, t.cost_ns, None, None, ()) for t in plan.tasks)


def alone(plan: Plan, chain: ChainResult) -> Plan:
    """Return the plan reduced to the needs of a chain: its tasks, and those whose data they wait for or read."""
    known = {task.name: task for task in plan.tasks}
    needed: set[str] = set()
    left = [name for name in chain.path if name in known]
    while left:
        name = left.pop()
        if name not in needed:
            needed.add(name)
            left += [other for other in (*known[name].after, *known[name].reads) if other in known]
    tasks = tuple(task for task in plan.tasks if task.name in needed)
    return replace(plan, tasks=tasks, chains=(chain,))


def importance(plan: Plan, chain: ChainResult) -> int:
    """Return a chain's priority in PREMA's terms: 9, 3 or 1 for its most critical task (hard, firm, soft)."""
    criticality = {task.name: task.criticality for task in plan.tasks}
    return max(
        ({"hard": 9, "firm": 3}.get(criticality[name], 1) for name in chain.path if name in criticality), default=1
    )


def applicable(name: str, plan: Plan) -> str:
    """Return the reason why a policy would have no effect on a plan, empty if it applies."""
    from socsched.sim.policies import get_policy

    rule = get_policy(name)
    kinds = {engine.kind for engine in plan.engines if any(task.engine == engine.id for task in plan.tasks)}
    ways = [way for way in rule.preemption if way.kinds]
    if ways and not any(set(way.kinds) & kinds for way in ways):
        return (
            f"applies only to {', '.join(sorted({kind for way in ways for kind in way.kinds}))}, and the plan uses none"
        )
    if rule.serves and not any(task.budget_ns for task in plan.tasks):
        return "serves reservations, and no task has one"
    if len({task.criticality for task in plan.tasks}) == 1 and name in ("reef", "edf-criticality"):
        return "distinguishes criticalities, and all tasks have the same one"
    return ""


def needs(names: Sequence[str]) -> None:
    """Raise UsageError unless all these policies are known."""
    from socsched.sim.policies import get_policy

    for name in names:
        get_policy(name)


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
        return {name: interval(values) for name, values in self.samples.items()}


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
        needs([name for name in names if name != PLANNED])
        return tuple(dict.fromkeys((PLANNED, *names))), {}
    reasons = {name: applicable(name, plan) for name in (*plugins.names(GROUP, own=True), *EXTRA)}
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
        base = scale_rates(plan, load)
        draws = [vary_plan(base, seed, spread) for seed in range(seeds)]
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
    mean, half = interval([x - y for x, y in zip(a, b, strict=True)])
    return 0.0 if abs(mean) <= max(half, alike * max(a)) else mean


def _alone(plan: Plan, seed: int, duration_ns: int) -> dict[str, float]:
    """Return the mean response of every chain with nothing else on the board (ns)."""
    means = {}
    for chain in programs(plan):
        response = _responses(alone(plan, chain), seed, duration_ns, None)[0][chain.name]
        means[chain.name] = max(response.total / response.count if response.count else chain.expected_ns, 1.0)
    return means


def _responses(plan: Plan, seed: int, duration_ns: int, policy: str | None) -> tuple[dict[str, Any], Any]:
    whole = replace(plan, chains=programs(plan))
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
        chains = [chain for chain in programs(draw) if responses[chain.name].count]
        single = [singles[seed][chain.name] for chain in chains]
        together = [responses[chain.name].total / responses[chain.name].count for chain in chains]
        tails = [responses[chain.name].percentile(999) for chain in chains]
        for chain, tail in zip(chains, tails, strict=True):
            worst[chain.name] = max(worst.get(chain.name, 0), tail)
        lost = sum(chain.missed + chain.dropped for chain in summed.chains.values())
        released = sum(chain.released for chain in summed.chains.values())
        weights = [importance(draw, chain) for chain in chains]
        met = [satisfaction(responses[c.name], s, multiple) for c, s in zip(chains, single, strict=True)]
        seconds = duration_ns / 1e9
        values = {
            "misses": lost / max(released, 1),
            "p99_9": max((tail / s for tail, s in zip(tails, single, strict=True)), default=0.0),
            "antt": antt(together, single) if chains else 0.0,
            "stp": stp(together, single),
            "fairness": fairness(together, single, weights) if chains else 0.0,
            "sla": sum(met) / max(len(met), 1),
            "energy": (summed.energy_mj or 0.0) / seconds,
            "preemptions": sum(task.preemptions for task in summed.tasks.values()) / seconds,
        }
        for figure, value in values.items():
            rows[figure].append(value)
    return Cell(name, load, {figure: tuple(values) for figure, values in rows.items()}, worst)


def document(results: Study) -> dict[str, Any]:
    """Return a study as plain data: intervals as [mean, half width], times of chains in ns."""
    return {
        "kind": "policies",
        "pipeline": results.plan.pipeline,
        "platform": results.plan.platform,
        "mode": results.plan.mode,
        "loads": list(results.loads),
        "seeds": results.seeds,
        "duration_ns": results.duration_ns,
        "spread": results.spread,
        "sla_multiple": results.multiple,
        "figures": dict(FIGURES),
        "cells": [
            {
                "policy": cell.policy,
                "load": cell.load,
                "on_front": cell.on_front,
                **{name: [round(mean, 9), round(half, 9)] for name, (mean, half) in cell.figures.items()},
                "p99_9_ns": dict(cell.worst_ns),
            }
            for cell in results.cells
        ],
        "beats_the_plan": {f"{load:g}": results.beats(load) for load in results.loads},
        "left_out": dict(results.left_out),
    }


# Report of a policy study: a table per load, and a figure of misses, turnaround and energy.


COLUMNS = ("misses", "p99_9", "antt", "stp", "fairness", "sla", "energy", "preemptions")
_HEADS = ("", "policy", "missed", "p99.9", "ANTT", "STP", "fairness", "SLA", "mJ/s", "preempt/s")
_COLOURS = ("#1b6ca8", "#c8553d", "#2f7d4f", "#7b4ea3", "#b8860b", "#3d7f8c")
LEFT, TOP, ROW, PANEL, GAP = 150, 56, 22, 250, 34


def view(results: Study) -> RenderableType:
    """Return one table per load, policies in the order of misses and ANTT, and a legend of the marks."""
    parts: list[RenderableType] = []
    for load in results.loads:
        cells = sorted((c for c in results.cells if c.load == load), key=_rank)
        rows = [["●" if cell.on_front else "", cell.policy, *_numbers(cell)] for cell in cells]
        parts.append(table(f"load {load:g}", list(_HEADS), rows, tuple(range(2, 10))))
        beaten = results.beats(load)
        verdict = f"beaten by {', '.join(beaten)}" if beaten else "on the front"
        parts.append(Text(f"the unchanged plan: {verdict} of misses and energy", "dim"))
    sampling = f"mean ± 95 % interval of {results.seeds} seeds, {format_duration(results.duration_ns)} each"
    marks = "●: no other policy is better in misses or energy and no worse in the other"
    alone = f"p99.9, ANTT in times alone; SLA: within {results.multiple:g} of them"
    parts.append(Text(f"{sampling}, jobs from {1 - results.spread:.0%} of their cost; {alone}; {marks}", "dim"))
    if results.left_out:
        parts.append(Text("left out: " + "; ".join(f"{name} {why}" for name, why in results.left_out.items()), "dim"))
    return Group(*parts)


def _rank(cell: Cell) -> tuple[float, float, str]:
    return (cell.figures["misses"][0], cell.figures["antt"][0], cell.policy)


def _numbers(cell: Cell) -> list[str]:
    return [_shown(name, *cell.figures[name]) for name in COLUMNS]


def _shown(name: str, mean: float, half: float) -> str:
    if name in ("misses", "sla"):
        return f"{mean:.2%} ± {half:.2%}"
    digits = 0 if name in ("energy", "preemptions") else 2
    return f"{mean:.{digits}f} ± {half:.{max(digits, 1)}f}"


def markdown(results: Study) -> str:
    """Return the tables in Markdown."""
    lines = []
    for load in results.loads:
        lines += [f"Load {load:g}:", "", f"| {' | '.join(_HEADS)} |", "|---|---|" + "--:|" * 8]
        for cell in sorted((c for c in results.cells if c.load == load), key=_rank):
            name = f"**{cell.policy}**" if cell.policy == PLANNED else f"`{cell.policy}`"
            lines.append(f"| {'●' if cell.on_front else ''} | {name} | {' | '.join(_numbers(cell))} |")
        lines.append("")
    return "\n".join(lines)


def figure(results: Study) -> str:
    """Return the figure: a row per policy, panels for misses, ANTT and energy, a bar per load with its interval."""
    first = [c for c in results.cells if c.load == results.loads[-1]]
    names = [cell.policy for cell in sorted(first, key=_rank)]
    panels = (("misses", "frames missed [%]", 100.0), ("antt", "ANTT", 1.0), ("energy", "energy [mJ/s]", 1.0))
    height = TOP + ROW * len(names) + 40
    width = LEFT + len(panels) * (PANEL + GAP)
    body = element("rect", x=0, y=0, width=width, height=height, fill="#ffffff")
    plan = results.plan
    title = f"{plan.pipeline} on {plan.platform}: policies at {len(results.loads)} loads, {results.seeds} seeds"
    body += text(title, 12, 20, font_size=14, font_weight="bold")
    for place, load in enumerate(results.loads):
        x = 12 + place * 90
        body += element("rect", x=x, y=28, width=10, height=10, fill=_COLOURS[place % len(_COLOURS)])
        body += text(f"load {load:g}", x + 15, 37, font_size=11)
    for row, name in enumerate(names):
        weight = "bold" if name == PLANNED else None
        body += text(name, LEFT - 8, TOP + ROW * (row + 0.68), font_size=11, text_anchor="end", font_weight=weight)
    for number, (key, label, scale) in enumerate(panels):
        body += _panel(results, names, key, label, scale, LEFT + number * (PANEL + GAP))
    return element(
        "svg", element("title", title) + body, viewBox=f"0 0 {width} {height}", width=width, height=height,
        xmlns="http://www.w3.org/2000/svg", font_family="sans-serif",
    )  # fmt: skip


def _panel(results: Study, names: list[str], key: str, label: str, scale: float, left: int) -> str:
    tops = [sum(cell.figures[key]) * scale for cell in results.cells]
    most = max([*tops, 1e-9]) * 1.05
    bottom, body = TOP + ROW * len(names), ""
    for tick in ticks(0, most, 4):
        x = left + tick / most * PANEL
        body += element("line", x1=x, x2=x, y1=TOP, y2=bottom, stroke="#dddddd")
        body += text(f"{tick:g}", x, bottom + 14, font_size=10, text_anchor="middle")
    body += text(label, left + PANEL / 2, bottom + 30, font_size=11, text_anchor="middle")
    thick = (ROW - 6) / len(results.loads)
    for row, name in enumerate(names):
        for place, load in enumerate(results.loads):
            mean, half = (value * scale for value in results.cell(name, load).figures[key])
            y = TOP + ROW * row + 3 + thick * place
            long = mean / most * PANEL
            body += element("rect", x=left, y=y, width=long, height=thick - 0.5, fill=_COLOURS[place % len(_COLOURS)])
            if half:
                reach = half / most * PANEL
                middle = y + thick / 2
                body += element(
                    "line", x1=max(left + long - reach, left), x2=left + long + reach, y1=middle, y2=middle,
                    stroke="#333333",
                )  # fmt: skip
    return body
