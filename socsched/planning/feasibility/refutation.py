"""The proof behind an "infeasible" verdict: no mapping meets every requirement, whatever the schedule.

Lower bounds on all mappings come first (`impossible`), then a search through the mappings of whole stages.  The search
ranges over necessary conditions alone: a mapping that only fails an analysis may be met by another order of jobs, other
lanes or a better analysis, and ends it without a proof.  It does not cover networks that may be cut: there are too many
ways to cut them.  For the same reason the conditions count neither jitter nor longest execution times: a pipeline would
be infeasible for a coincidence that no simulation shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from socsched.cost.cost import Cost
from socsched.planning.candidate import Candidate, balance, judge
from socsched.planning.clock import Clock, count
from socsched.planning.cutting.divisible import Divisible
from socsched.planning.deployment import Deployment, deploy
from socsched.planning.feasibility.lower_bounds import (
    Options,
    all_costs,
    impossible,
    late,
    path_terms,
    shortest_ns,
    violated,
)
from socsched.planning.plan import BOUND, SEARCH, Necessity, Proof
from socsched.planning.task import Task
from socsched.planning.workload import Unconnectable, Workload
from socsched.units import format_bandwidth, format_duration, format_power

FEW = 4000
"""Maximum number of sets of mappings examined by the search."""
_SECOND = 10**9


def by_bounds(workload: Workload, divided: Mapping[str, Divisible], unknown: Sequence[str] = ()) -> Proof | None:
    """Return the proof by lower bounds, None if they prove nothing; `unknown`: stages that may or may not be cut."""
    found = impossible(workload, divided, unknown)
    if not found:
        return None
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Proof(BOUND, f"{told(found[0])}{more}", tuple(found))


def told(one: Necessity) -> str:
    """Return a necessity in words."""
    return f"{one.requirement}: at least {_shown(one.demand, one.unit)}, allowed {_shown(one.bound, one.unit)}"


def by_search(workload: Workload, clock: Clock) -> Proof | None:
    """Return the proof that every mapping of whole stages violates a necessity; None if one may meet all, or time ends.

    Stages are fixed one after the other, and a set of mappings that a bound on it excludes is not divided further.
    """
    search = _Search(workload, clock)
    names = sorted(workload.graph.order, key=lambda name: len(search.options[name]))
    if not search.excluded({}, names):
        return None
    found = tuple(search.least.values())
    text = f"each mapping violates a necessary condition, shown for {search.leaves} sets of mappings: "
    return Proof(SEARCH, text + "; ".join(told(one) for one in found[:3]), found)


class _Search:
    """The search through all mappings; `least`: by requirement, the necessity with the least demand that was used."""

    def __init__(self, workload: Workload, clock: Clock) -> None:
        self.workload, self.clock = workload, clock
        self.options = {name: all_costs(workload, workload.graph.stage(name)) for name in workload.graph.order}
        self.least: dict[str, Necessity] = {}
        self.visited = self.leaves = 0

    def excluded(self, chosen: dict[str, Cost], left: Sequence[str]) -> bool:
        """Return whether every mapping that continues the chosen costs violates a necessity."""
        self.visited += 1
        count(1)
        if self.visited > FEW or self.clock.over():
            return False
        narrowed: Options = {name: [chosen[name]] if name in chosen else costs for name, costs in self.options.items()}
        found = impossible(self.workload, options=narrowed)
        if not found and not left:
            found = list(_of_mapping(self.workload, chosen))
        if found:
            self.leaves += 1
            before = self.least.get(found[0].requirement)
            if before is None or found[0].demand < before.demand:
                self.least[found[0].requirement] = found[0]
            return True
        return bool(left) and all(self.excluded({**chosen, left[0]: cost}, left[1:]) for cost in self.options[left[0]])


def _of_mapping(workload: Workload, mapping: Mapping[str, Cost]) -> Iterator[Necessity]:
    """Yield the necessities that one mapping violates, its conversions and hand-overs included."""
    try:
        deployment = deploy(workload, mapping)
    except Unconnectable as error:
        yield Necessity("no engine", "an engine for a conversion", 1, 0, "engines", ((str(error), 1),))
        return
    graph, tasks = workload.graph, deployment.tasks
    times = {task.name: _shortest(deployment, task) for task in tasks}
    after = {task.name: () if task.timer else task.after for task in tasks}

    def end(last: str, following: str) -> str:
        return f"{last}>{following}" if f"{last}>{following}" in times else last

    for chain in graph.pipeline.chains:
        yield from late(chain, path_terms(graph, chain, after, times, end))
    for engine in workload.engines():
        rates = [
            (task.name, times[task.name] * len(task.lanes) * _SECOND // task.period_ns)
            for task in tasks
            if task.engine == engine.id and task.on_late in ("continue", "degrade")
        ]
        yield from violated("capacity", f"utilisation of {engine.id}", rates, engine.lanes * _SECOND, "ns/s")
    sums = balance(deployment)
    if sums.power_cap is not None:
        yield from violated("power", "mean power", sums.power, sums.power_cap, "mW")
    yield from violated("traffic", "DRAM traffic", sums.traffic, sums.traffic_cap, "B/s")


def _shortest(deployment: Deployment, task: Task) -> int:
    """Return the time (ns) alone below which no job of a task ends."""
    if task.kind != "stage":
        return task.cost_ns
    cost, stage = deployment.mapping[task.name], deployment.workload.graph.stage(task.name)
    return task.cost_ns - cost.time_ns + shortest_ns(deployment.workload, stage, cost)


def _shown(value: int, unit: str) -> str:
    if unit == "ns/s":
        return f"{value / 1e7:.4g} %"
    formatter = {"ns": format_duration, "mW": format_power, "B/s": format_bandwidth}.get(unit)
    return formatter(value) if formatter else f"{value} {unit}"


def meet_requirements(workload: Workload, mapping: Mapping[str, Cost]) -> Candidate | None:
    """Return the candidate of a mapping if it meets every requirement, else None."""
    try:
        candidate = judge(workload, mapping)
    except Unconnectable:
        return None
    return candidate if candidate.verdict == "feasible" else None
