"""Requirements that no mapping meets, proved by lower bounds on the needs of stages, wherever and however they run.

Every bound holds for all engines, data types and shares a stage may have, including those the search does not try, and
for every way to cut a network that may be cut: there the units of its layers are counted individually.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from socsched.cost.cost import Cost
from socsched.cost.power import power_terms
from socsched.descriptor.pipeline import Stage
from socsched.graph.taskgraph import task_graph
from socsched.planning.accuracy import losses
from socsched.planning.cutting.divisible import Divisible
from socsched.planning.memory import CAPACITY, capacity, least_weights
from socsched.planning.plan import Violation
from socsched.planning.workload import Workload

_SECOND = 10**9
_MICROWATTS = 1000
"""Microwatts (µJ/s) per milliwatt."""
_SETS = 256
"""Maximum number of engine groups whose capacity is checked; a platform has fewer."""
Terms = tuple[tuple[str, int], ...]


def all_costs(workload: Workload, stage: Stage) -> list[Cost]:
    """Return the costs of a stage wherever it can run, on any number of cores up to its share."""
    model, found = workload.model, list(workload.model.candidates(stage))
    most = max((engine.lanes for engine in workload.engines()), default=1)
    # A known time applies to a number of cores, or to as many as the stage may have: query every such number.
    for limit in range(1, min(stage.share or most, most) + 1):
        found += model.candidates(replace(stage, share=limit))
    return list({(c.engine, c.precision, c.share, c.time_ns): c for c in found}.values())


@dataclass(frozen=True, slots=True)
class _Least:
    """Work that stays in one piece, a stage or a unit of its layers: the minimum of each figure, by engine.

    `lanes_ns`: time times cores, by engine that can run it; `time_ns`: on the fastest engine; `uj` and `bytes`: per
    job.
    """

    stage: str
    lanes_ns: Mapping[str, int]
    time_ns: int
    uj: float
    bytes: int


def _pieces(workload: Workload, divided: Mapping[str, Divisible]) -> list[_Least]:
    found = []
    for name in workload.graph.order:
        stage = workload.graph.stage(name)
        if name in divided:
            # Where a time is known for the whole, the parts' shares of it need not add up.
            known = stage.costs or workload.model.profile is not None
            found += [] if known else [_Least(name, *unit) for unit in divided[name].least()]
            continue
        costs = all_costs(workload, stage)
        by_engine: dict[str, int] = {}
        for cost in costs:
            spent = cost.time_ns * _cores(workload, cost)
            by_engine[cost.engine] = min(by_engine.get(cost.engine, spent), spent)
        figures = min(c.time_ns for c in costs), min(c.energy_uj for c in costs) - 1.0, min(c.bytes for c in costs)
        found.append(_Least(name, by_engine, *figures))
    return found


def _cores(workload: Workload, cost: Cost) -> int:
    lanes = workload.lanes(cost.engine)
    return min(cost.share, lanes) if lanes > 1 else 1


def impossible(
    workload: Workload, divided: Mapping[str, Divisible] | None = None, unknown: Sequence[str] = ()
) -> list[Violation]:
    """Return the requirements that no mapping meets, with their least demand and the terms that add up to it.

    `divided`: the stages that may be cut; `unknown`: stages for which that is not known, which count as zero.  Stages
    that no engine can run are not covered (`unplaceable`).
    """
    inner = divided or {}
    pieces = [piece for piece in _pieces(workload, inner) if piece.stage not in unknown]
    fastest = _fastest(workload, inner, unknown)
    cut = frozenset((*inner, *unknown))
    found = [*_crowded(workload, pieces), *_late(workload, fastest), *_drawn(workload, pieces), *_others(workload, cut)]
    return found or list(_queued(workload, fastest, cut))


def least_latencies(
    workload: Workload, divided: Mapping[str, Divisible], unknown: Sequence[str] = ()
) -> dict[str, int]:
    """Return what no mapping is below (ns) by requirement, for deadlines and ages of chains; arguments as above."""
    pipeline = workload.graph.pipeline
    none = (replace(c, deadline_ns=0, max_age_ns=None if c.max_age_ns is None else 0) for c in pipeline.chains)
    asked = workload.asking(task_graph(replace(pipeline, chains=tuple(none))))
    found = _late(asked, _fastest(workload, divided, unknown))
    return {violation.requirement: int(violation.demand) for violation in found}


def _fastest(workload: Workload, divided: Mapping[str, Divisible], unknown: Sequence[str]) -> dict[str, int]:
    """Return the least time (ns) of every stage, wherever and however it runs."""
    fastest = dict.fromkeys(unknown, 0)
    for name in workload.graph.order:
        if name not in fastest:
            fastest[name] = min(cost.time_ns for cost in all_costs(workload, workload.graph.stage(name)))
    for name, stage in divided.items():
        fastest[name] = min(fastest[name], max(stage.floor_ns() - stage.units, 0))  # every unit is rounded up
    return fastest


def _violation(requirement: str, terms: Terms, bound: int, unit: str) -> Iterator[Violation]:
    demand = sum(value for _, value in terms)
    if demand > bound:
        yield Violation(requirement, demand, bound, demand - bound, unit, tuple(t for t in terms if t[1]), ())


def _ways(workload: Workload, fastest: Mapping[str, int]) -> dict[str, Terms]:
    """Return by stage the longest path of triggers to its end, with every stage on it at its fastest."""
    graph, length, before = workload.graph, dict[str, int](), dict[str, str]()
    for name in graph.order:
        last = max(graph.predecessors(name), key=length.__getitem__, default="")
        length[name], before[name] = fastest[name] + length.get(last, 0), last

    def terms(name: str) -> Terms:
        found: list[tuple[str, int]] = []
        while name:
            found.insert(0, (f"{name}: {_AT_LEAST}", fastest[name]))
            name = before[name]
        return tuple(found)

    chains = {part.nodes[-1] for chain in graph.pipeline.chains for part in graph.segments(chain) if part.nodes}
    short = {name for name in graph.order if length[name] > max(graph.stage(name).queue, 1) * graph.period_ns[name]}
    return {name: terms(name) for name in graph.order if name in chains | short}


def _late(workload: Workload, fastest: Mapping[str, int]) -> Iterator[Violation]:
    """Yield deadlines and ages of chains that are too short for the fastest times of the stages on their path."""
    graph, known = workload.graph, _ways(workload, fastest)
    for chain in graph.pipeline.chains:
        parts = [part for part in graph.segments(chain) if part.nodes]
        ways = [known[part.nodes[-1]] for part in parts]
        waits = [((f"{part.nodes[-1]}: sampling, one period", part.period_ns),) for part in parts]
        reaction = tuple(t for way, wait in zip(ways, [(), *waits[1:]], strict=True) for t in (*wait, *way))
        yield from _violation(f"deadline of chain {chain.name}", reaction, chain.deadline_ns, "ns")
        if chain.max_age_ns is not None:
            age = tuple(t for way, wait in zip(ways, [*waits[:-1], ()], strict=True) for t in (*way, *wait))
            yield from _violation(f"data age of chain {chain.name}", age, chain.max_age_ns, "ns")


def _queued(workload: Workload, fastest: Mapping[str, int], cut: frozenset[str]) -> Iterator[Violation]:
    """Yield queues that overflow before the stages on the path to them are done, even at their fastest."""
    graph, known = workload.graph, _ways(workload, fastest)
    for name in graph.order:
        if name not in cut and name in known:
            queue = graph.stage(name).queue
            room = max(queue, 1) * graph.period_ns[name]
            yield from _violation(f"queue of {name} ({queue} may wait)", known[name], room, "ns")


_AT_LEAST = "least on any engine"


def _crowded(workload: Workload, pieces: list[_Least]) -> Iterator[Violation]:
    """Yield engines whose capacity is exceeded by the stages that can run nowhere else."""
    period, lanes = workload.graph.period_ns, {engine.id: engine.lanes for engine in workload.engines()}
    reported: set[str] = set()
    for piece in pieces:
        if piece.time_ns > period[piece.stage]:
            terms = ((f"{piece.stage}: {_AT_LEAST}", _rate(piece.time_ns, period[piece.stage])),)
            for violation in _violation(f"utilisation of {'+'.join(piece.lanes_ns)}", terms, _SECOND, "ns/s"):
                reported.add(piece.stage)
                yield violation
    sets = dict.fromkeys(frozenset(piece.lanes_ns) for piece in pieces)
    for number in range(2, len(sets) + 1):
        if len(sets) > _SETS:
            break
        sets |= dict.fromkeys(reduce(frozenset.union, some) for some in itertools.combinations(list(sets), number))
    for engines in sorted(sets, key=len):
        inside = [p for p in pieces if set(p.lanes_ns) <= engines and p.stage not in reported]
        rates: dict[str, int] = {}
        for piece in inside:
            least = _rate(min(piece.lanes_ns.values()), period[piece.stage])
            rates[piece.stage] = rates.get(piece.stage, 0) + least
        room = sum(lanes[engine] for engine in engines) * _SECOND
        name = "+".join(engine for engine in lanes if engine in engines)
        for violation in _violation(f"utilisation of {name}", tuple(rates.items()), room, "ns/s"):
            reported |= set(rates)
            yield violation


def _rate(time_ns: int, period_ns: int) -> int:
    return time_ns * _SECOND // period_ns


def _drawn(workload: Workload, pieces: list[_Least]) -> Iterator[Violation]:
    """Yield caps of power, DRAM traffic and memory below the sums of the least energy and bytes of every stage."""
    model, period = workload.model, workload.graph.period_ns
    caps = [round(model.mode.cap_mw.value)] if model.mode.cap_mw else []
    caps += [workload.limits.power_mw] if workload.limits.power_mw else []
    sensors = sum(s.bytes_per_frame * _SECOND // s.period_ns for s in workload.sensors())
    if caps:
        fixed = power_terms(model.platform, model.mode, {}, sensors)
        # Each term is rounded separately: half a milliwatt each.
        slack = 1 + len(fixed) // 2
        jobs = sum(max(piece.uj, 0.0) * _SECOND / period[piece.stage] for piece in pieces) / _MICROWATTS
        terms = (*fixed, ("stages: least energy on any engine", max(int(jobs) - slack, 0)))
        yield from _violation("mean power", terms, min(caps), "mW")
    rates: dict[str, int] = {}
    for piece in pieces:
        rates[piece.stage] = rates.get(piece.stage, 0) + _rate(piece.bytes, period[piece.stage])
    moved = (*((f"{n}: {_AT_LEAST}", rate) for n, rate in rates.items()), ("sensors", sensors))
    cap = min(round(model.dram), workload.limits.bytes_per_s or round(model.dram))
    yield from _violation("DRAM traffic", moved, cap, "B/s")
    weights = tuple(
        (f"{n}: least weights", least_weights(model, workload.graph.stage(n))) for n in workload.graph.order
    )
    yield from _violation(CAPACITY, weights, capacity(model.platform), "B")


def _others(workload: Workload, cut: frozenset[str]) -> Iterator[Violation]:
    """Yield an accuracy budget below the least loss, and engines with fewer job slots than jobs that need one there."""
    graph, pipeline = workload.graph, workload.graph.pipeline
    able = {name: all_costs(workload, graph.stage(name)) for name in graph.order if name not in cut}
    if pipeline.accuracy_budget is not None:
        best = []
        for name in graph.order:
            stage = graph.stage(name)
            accepted = {cost.precision for cost in able[name]} if name in able else set(stage.precisions)
            best.append((stage, min(sorted(accepted), key=lambda p, s=stage: s.losses.get(p, 0))))  # type: ignore[misc]
        yield from _violation("accuracy loss", tuple(losses(pipeline, best)), pipeline.accuracy_budget, "1e-3 points")
    for engine in workload.model.platform.engines:
        limit = engine.operators.max_jobs
        jobs = tuple((name, 1) for name, costs in able.items() if {cost.engine for cost in costs} == {engine.id})
        if limit:
            yield from _violation(f"resident jobs on {engine.id}", jobs, limit, "jobs")
