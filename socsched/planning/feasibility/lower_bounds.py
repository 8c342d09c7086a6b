"""Necessary conditions that no mapping meets, proved by lower bounds on the needs of stages, wherever they run.

Every bound holds for all engines, data types and shares a stage may have, including those the search does not try, for
every schedule of them, and for every way to cut a network that may be cut: there the units of its layers are counted
individually.  The theorems are those of docs/proofs.md, section *Infeasible*.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from socsched.cost.cost import Cost
from socsched.cost.power import power_terms
from socsched.descriptor.pipeline import PER_COST, Chain, Stage
from socsched.graph.taskgraph import TaskGraph, task_graph
from socsched.planning.candidate import losses
from socsched.planning.cutting.divisible import Divisible
from socsched.planning.deployment import CAPACITY, capacity, least_weights, stage_bytes
from socsched.planning.execution import degraded_segments, execution_times
from socsched.planning.plan import Necessity, Theorem, Violation
from socsched.planning.workload import Workload
from socsched.schedulability.tasks import upstream

_SECOND = 10**9
_MICROWATTS = 1000
"""Microwatts (µJ/s) per milliwatt."""
_SETS = 256
"""Maximum number of engine groups whose capacity is checked; a platform has fewer."""
_STEPS = 300
"""Steps in the search for weights of engines."""
_WHOLE = 1000
"""The largest weight of an engine, as an integer."""
SAMPLED = "one period at most"
"""End of the names of terms that sampling adds to bounds."""
Terms = tuple[tuple[str, int], ...]
Options = Mapping[str, Sequence[Cost]]
"""Stage -> the costs that it may have."""


def all_costs(workload: Workload, stage: Stage) -> list[Cost]:
    """Return the costs of a stage wherever it can run, on any number of cores up to its share."""
    model, found = workload.model, list(workload.model.candidates(stage))
    most = max((engine.lanes for engine in workload.engines()), default=1)
    # A known time applies to a number of cores, or to as many as the stage may have: query every such number.
    for limit in range(1, min(stage.share or most, most) + 1):
        found += model.candidates(replace(stage, share=limit))
    return list({(c.engine, c.precision, c.share, c.time_ns): c for c in found}.values())


def shortest_ns(workload: Workload, stage: Stage, cost: Cost) -> int:
    """Return the time (ns) alone below which no job of a stage ends: its shortest, in its cheapest variant."""
    times = execution_times(stage, cost, workload.model)
    shortest = min(times.values_ns) if times else cost.time_ns
    cheaper = sum(segment.time_ns for segment in degraded_segments(stage, cost, workload.model))
    return min(shortest, cheaper * shortest // max(cost.time_ns, 1)) if cheaper else shortest


def impossible(
    workload: Workload,
    divided: Mapping[str, Divisible] | None = None,
    unknown: Sequence[str] = (),
    options: Options | None = None,
) -> list[Necessity]:
    """Return the necessary conditions that no mapping meets, with their least demand and the terms that add up to it.

    `divided`: the stages that may be cut; `unknown`: stages for which that is not known, which count as zero;
    `options`: costs to which the stages that stay whole are restricted.  Stages that no engine can run are not covered
    (`unplaceable`).
    """
    needs = _Needs.of(workload, divided or {}, unknown, options)
    return [*_slow(needs), *_late(needs), *_crowded(needs), *_drawn(needs), *_stored(needs), *_others(needs)]


def least_latencies(
    workload: Workload, divided: Mapping[str, Divisible], unknown: Sequence[str] = ()
) -> dict[str, int]:
    """Return what no mapping is below (ns) by requirement, for deadlines and ages of chains; arguments as above."""
    pipeline = workload.graph.pipeline
    none = (replace(c, deadline_ns=0, max_age_ns=None if c.max_age_ns is None else 0) for c in pipeline.chains)
    asked = workload.asking(task_graph(replace(pipeline, chains=tuple(none))))
    return {one.requirement: int(one.demand) for one in _late(_Needs.of(asked, divided, unknown, None))}


def beyond_proof(
    workload: Workload, divided: Mapping[str, Divisible], unknown: Sequence[str] = ()
) -> tuple[Violation, ...]:
    """Return the deadlines and ages of chains that no mapping's bound meets; arguments as of `impossible`.

    It proves nothing of schedules: bounds charge a whole period where data are sampled (`schedulability.chains`).
    """
    graph, found = workload.graph, list[Violation]()
    parts = least_parts(graph, _Needs.of(workload, divided, unknown, None).fastest)
    for chain in graph.pipeline.chains:
        ends, mine = [(f"{name}: {_AT_LEAST}", time) for name, time, _ in parts[chain.name]], parts[chain.name]
        waits = [(f"{name}: sampling, {SAMPLED}", period) for name, _, period in mine[1:]]
        kept = [(f"{name}: read until the next output, {SAMPLED}", period) for name, _, period in mine[:-1]]
        for requirement, bound, sampled in (
            (f"deadline of chain {chain.name}", chain.deadline_ns, waits),
            (f"data age of chain {chain.name}", chain.max_age_ns, kept),
        ):
            terms = tuple(term for term in (*ends, *sampled) if term[1])
            demand = sum(value for _, value in terms)
            if bound is not None and demand > bound:
                found.append(Violation(requirement, demand, bound, demand - bound, "ns", terms, ()))
    return tuple(found)


def least_parts(graph: TaskGraph, fastest: Mapping[str, int]) -> dict[str, list[tuple[str, int, int]]]:
    """Return (last stage, least time from the begin to its end, period) in ns of every segment of each chain.

    `fastest`: the least time (ns) of each stage.  The last stage of a sensor that is sampled is its own name.
    """
    begins = {sensor.name: sensor.offset_ns for sensor in graph.pipeline.sensors}
    begins |= {name: graph.offset_ns[name] for name in graph.order if graph.stage(name).period_ns is not None}
    ends: dict[str, int] = {}
    for name in graph.order:
        before = [ends.get(other, begins.get(other, 0)) for other in graph.stage(name).after]
        ends[name] = fastest[name] + max(before, default=begins.get(name, 0))
    result: dict[str, list[tuple[str, int, int]]] = {}
    for chain in graph.pipeline.chains:
        result[chain.name] = []
        for part in graph.segments(chain):
            begin = max(begins[source] for source in graph.sources.get(part.root, (part.root,)))
            last = part.nodes[-1] if part.nodes else part.root
            result[chain.name].append((last, ends[last] - begin if part.nodes else 0, part.period_ns))
    return result


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to run a piece: the engine, how many of its cores (0: not known), and the sum of their time (ns)."""

    engine: str
    cores: int
    lanes_ns: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """Work that stays in one piece, a stage or a unit of its layers, and the minimum of each figure per job."""

    stage: str
    ways: tuple[_Way, ...]
    time_ns: int
    uj: float
    bytes: int


@dataclass(frozen=True, slots=True)
class _Needs:
    """The least needs of a workload.

    `costs`: of the stages that stay whole; `pieces`: of all stages but those whose parts are not known; `fastest`: time
    (ns) by stage; `cut`: stages that may be cut.
    """

    workload: Workload
    costs: Options
    pieces: tuple[_Piece, ...]
    fastest: Mapping[str, int]
    cut: frozenset[str]

    @staticmethod
    def of(
        workload: Workload, divided: Mapping[str, Divisible], unknown: Sequence[str], options: Options | None
    ) -> _Needs:
        graph, cut = workload.graph, frozenset((*divided, *unknown))
        costs = {n: all_costs(workload, graph.stage(n)) if options is None else options[n] for n in graph.order}
        fastest = {}
        for name, found in costs.items():
            stage = graph.stage(name)
            fastest[name] = min(shortest_ns(workload, stage, cost) for cost in found)
            if name in divided:
                floor = max(divided[name].floor_ns() - divided[name].units, 0)  # every unit is rounded up
                fastest[name] = min(fastest[name], _scaled(stage, floor))
            if name in unknown:
                fastest[name] = 0
        whole = {name: found for name, found in costs.items() if name not in cut}
        pieces = [_whole(workload, graph.stage(name), found) for name, found in whole.items()]
        for name, network in divided.items():
            # Where a time is known for the whole, the parts' shares of it need not add up.
            if name not in unknown and not graph.stage(name).costs and workload.model.profile is None:
                pieces += _units(graph.stage(name), network)
        return _Needs(workload, whole, tuple(pieces), fastest, cut)

    def counted(self) -> list[_Piece]:
        """Return the pieces of stages of which every job must run: late jobs of the others may be abandoned."""
        graph, kept = self.workload.graph, set[str]()
        for chain in graph.pipeline.chains:
            # A chain without sampling loses each frame that one of its stages, or of what they wait for, abandons.
            if len(graph.segments(chain)) == 1:
                kept |= _ancestors(graph, chain.path[-1])
        return [p for p in self.pieces if p.stage in kept or graph.stage(p.stage).on_late in ("continue", "degrade")]


def _whole(workload: Workload, stage: Stage, costs: Sequence[Cost]) -> _Piece:
    times = [shortest_ns(workload, stage, cost) for cost in costs]
    ways = tuple(
        _Way(cost.engine, cores := _cores(workload, cost), time * cores)
        for cost, time in zip(costs, times, strict=True)
    )
    least = min(c.energy_uj for c in costs) - 1.0
    return _Piece(stage.name, ways, min(times), least, min(c.bytes for c in costs))


def _units(stage: Stage, network: Divisible) -> Iterator[_Piece]:
    for unit in network.least():
        ways = tuple(_Way(engine, 0, _scaled(stage, lanes)) for engine, lanes in unit.lanes_ns.items())
        yield _Piece(stage.name, ways, _scaled(stage, unit.time_ns), unit.uj, unit.bytes)


def _scaled(stage: Stage, time_ns: int) -> int:
    """Return a planned time as the shortest execution time, if that is stated and shorter."""
    least = min(stage.execution.values) if stage.execution is not None and stage.execution.relative else PER_COST
    return time_ns * min(least, PER_COST) // PER_COST


def _cores(workload: Workload, cost: Cost) -> int:
    lanes = workload.lanes(cost.engine)
    return min(cost.share, lanes) if lanes > 1 else 1


def _ancestors(graph: TaskGraph, name: str) -> set[str]:
    found, queue = set[str](), [name]
    while queue:
        one = queue.pop()
        if one not in found:
            found.add(one)
            queue += graph.predecessors(one)
    return found


def violated(
    theorem: Theorem, requirement: str, terms: Iterable[tuple[str, int]], bound: int, unit: str
) -> list[Necessity]:
    """Return the necessity that a bound above the sum of terms violates, none if it is not above."""
    kept = tuple(term for term in terms if term[1])
    demand = sum(value for _, value in kept)
    return [Necessity(theorem, requirement, demand, bound, unit, kept)] if demand > bound else []


_AT_LEAST = "least on any engine"


def _slow(needs: _Needs) -> Iterator[Necessity]:
    """Yield stages that take longer than their period: the frames of a stage, or of one part, follow each other."""
    period = needs.workload.graph.period_ns
    for piece in needs.counted():
        name = "+".join(dict.fromkeys(way.engine for way in piece.ways))
        terms = ((f"{piece.stage}: {_AT_LEAST}", _rate(piece.time_ns, period[piece.stage])),)
        yield from violated("period", f"utilisation of {name}", terms, _SECOND, "ns/s")


def _crowded(needs: _Needs) -> Iterator[Necessity]:
    """Yield sets of engines that have less time than the stages need of them."""
    period, lanes = needs.workload.graph.period_ns, {e.id: e.lanes for e in needs.workload.engines()}
    pieces = [piece for piece in needs.counted() if piece.time_ns <= period[piece.stage]]
    sets = dict.fromkeys(frozenset(way.engine for way in piece.ways) for piece in pieces)
    for number in range(2, len(sets) + 1):
        if len(sets) > _SETS:
            break
        sets |= dict.fromkeys(reduce(frozenset.union, some) for some in itertools.combinations(list(sets), number))
    reported: set[str] = set()
    for engines in sorted(sets, key=len):
        rest = [piece for piece in pieces if piece.stage not in reported]
        for found in _weighed(needs, rest, {engine: 1 for engine in lanes if engine in engines}):
            reported |= {name for name, _ in found.terms}
            yield found
    for engine, count in lanes.items():
        if count > 1:
            yield from _wide(needs, pieces, engine, count)
    if not reported and len(lanes) > 1:
        yield from _weighed(needs, pieces, _weights(needs, pieces, lanes))


def _weighed(needs: _Needs, pieces: Sequence[_Piece], weights: Mapping[str, int]) -> list[Necessity]:
    """Return the violated capacity of engines, the time on each counted by its weight; engines without one are free."""
    lanes = {e.id: e.lanes for e in needs.workload.engines()}
    room = sum(lanes[engine] for engine in weights)
    scale = sum(weight * lanes[engine] for engine, weight in weights.items())
    rates: dict[str, int] = {}
    for piece in pieces:
        least = min(weights.get(way.engine, 0) * way.lanes_ns for way in piece.ways)
        rate = least * _SECOND * room // (needs.workload.graph.period_ns[piece.stage] * scale)
        rates[piece.stage] = rates.get(piece.stage, 0) + rate
    name = f"utilisation of {'+'.join(weights)}"
    equal = len(set(weights.values())) == 1
    if not equal:
        name += f", weighed {' : '.join(f'{weight / _WHOLE:g}' for weight in weights.values())}"
    theorem: Theorem = "capacity" if len(weights) == 1 else "joint capacity"
    return violated(theorem, name, rates.items(), room * _SECOND, "ns/s")


def _weights(needs: _Needs, pieces: Sequence[_Piece], lanes: Mapping[str, int]) -> dict[str, int]:
    """Return the weights of engines under which the stages' least shares of all capacity are the largest.

    Multiplicative weights (Plotkin, Shmoys & Tardos, Math. Oper. Res. 20(2), 1995) approach the linear program of
    dividing every stage among its engines; whatever the weights, what follows from them is exact.
    """
    engines = list(lanes)
    most = 1e9  # an engine that cannot run a piece
    table = np.full((len(pieces), len(engines)), most)
    for row, piece in enumerate(pieces):
        for way in piece.ways:
            column = engines.index(way.engine)
            share = way.lanes_ns / needs.workload.graph.period_ns[piece.stage] / lanes[way.engine]
            table[row, column] = min(table[row, column], share)
    load, best, found = np.zeros(len(engines)), -1.0, np.ones(len(engines))
    for step in range(1, _STEPS + 1):
        weights = np.exp((load - load.max()) / max(step**0.5, 1.0) * 2)
        weights /= weights.sum()
        chosen = (table * weights).argmin(axis=1)
        value = float((table * weights).min(axis=1).sum())
        if value > best:
            best, found = value, weights
        np.add.at(load, chosen, table[np.arange(len(pieces)), chosen])
    per_lane = found / np.array([lanes[engine] for engine in engines])
    whole = np.rint(per_lane / per_lane.max() * _WHOLE).astype(int)
    return {engine: int(weight) for engine, weight in zip(engines, whole, strict=True) if weight}


def _wide(needs: _Needs, pieces: Sequence[_Piece], engine: str, lanes: int) -> list[Necessity]:
    """Return the violated capacity for jobs of more than half of an engine's lanes: no two of them run at once.

    Two jobs of exactly half of the lanes do, and count half.
    """
    rates: dict[str, int] = {}
    for piece in pieces:
        least = min(
            way.lanes_ns // way.cores * min(2 * way.cores // lanes, 2 - (2 * way.cores == lanes))
            if way.engine == engine and way.cores
            else 0
            for way in piece.ways
        )
        rates[piece.stage] = rates.get(piece.stage, 0) + _rate(least, 2 * needs.workload.graph.period_ns[piece.stage])
    return violated(
        "capacity", f"utilisation of {engine} by jobs of half its lanes or more", rates.items(), _SECOND, "ns/s"
    )


def _rate(time_ns: int, period_ns: int) -> int:
    return time_ns * _SECOND // period_ns


def _late(needs: _Needs) -> Iterator[Necessity]:
    """Yield deadlines and ages of chains that are too short for the fastest times of the stages on their path."""
    graph, fastest = needs.workload.graph, needs.fastest
    after = {name: graph.stage(name).after for name in graph.order}
    for chain in graph.pipeline.chains:
        terms = path_terms(graph, chain, after, fastest, lambda last, following: last)
        yield from late(chain, terms)


def late(chain: Chain, terms: Terms) -> Iterator[Necessity]:
    """Yield the deadline and the age of a chain if the terms of its path exceed them."""
    yield from violated("path", f"deadline of chain {chain.name}", terms, chain.deadline_ns, "ns")
    if chain.max_age_ns is not None:
        yield from violated("path", f"data age of chain {chain.name}", terms, chain.max_age_ns, "ns")


def path_terms(
    graph: TaskGraph,
    chain: Chain,
    after: Mapping[str, Sequence[str]],
    times: Mapping[str, int],
    end: Callable[[str, str], str],
) -> Terms:
    """Return terms whose sum (ns) some frame of a chain takes at least, and some output's data are old at least.

    `after` lists the triggers of stages or tasks, `times` their least times; `end` names the last task of a stretch
    before a stage that samples it.  Of the first stretch, the latest path counts, each source of a join from its own
    release.  Sampling adds no time for certain: a job that starts later may read newer data.
    """
    segments = graph.segments(chain)
    found: list[tuple[str, int]] = []
    for number, part in enumerate(segments):
        if not part.nodes:
            continue
        last = part.nodes[-1]
        if number + 1 < len(segments):
            last = end(last, segments[number + 1].root)
        ways = [_way(part.root, last, after, times)]
        if number == 0:
            sources = graph.sources[part.nodes[-1]]
            ways += [(*_shift(graph, part.root, one), *_way(one, last, after, times)) for one in sources]
        found += max(ways, key=lambda way: sum(value for _, value in way))
    return tuple(found)


def _way(root: str, last: str, after: Mapping[str, Sequence[str]], times: Mapping[str, int]) -> Terms:
    """Return the longest path of triggers from a source or stage to the end of another, every stage at its fastest."""
    known: dict[str, tuple[int, str] | None] = {}
    for name in upstream(last, lambda one: () if one == root else after.get(one, ()), known):
        before = [(way[0], one) for one in after.get(name, ()) if (way := known.get(one)) is not None]
        longest = (0, "") if name == root else max(before, key=lambda pair: pair[0], default=None)
        known[name] = longest and (longest[0] + times.get(name, 0), longest[1])
    found: list[tuple[str, int]] = []
    while last and (step := known[last]) is not None:
        found.append((f"{last}: {_AT_LEAST}", times.get(last, 0)))
        last = step[1]
    return tuple(reversed(found))


def _shift(graph: TaskGraph, head: str, source: str) -> Terms:
    """Return how much later than a frame at the head of a chain another source releases its own, at the least."""
    sensors = {sensor.name: sensor for sensor in graph.pipeline.sensors}
    if source == head:
        return ()
    offset, own = ((sensors.get(name) or graph.stage(name)).offset_ns for name in (source, head))
    # A frame of a sensor counts from its arrival, that of a timer from its nominal instant.
    jitter = sensors[head].jitter_ns if head in sensors else 0
    return ((f"{source}: offset from {head}", offset - own - jitter),)


def _drawn(needs: _Needs) -> Iterator[Necessity]:
    """Yield caps of power and DRAM traffic below the sums of the least energy and bytes of every stage."""
    workload = needs.workload
    model, period = workload.model, workload.graph.period_ns
    caps = [round(model.mode.cap_mw.value)] if model.mode.cap_mw else []
    caps += [workload.limits.power_mw] if workload.limits.power_mw else []
    sensors = sum(s.bytes_per_frame * _SECOND // s.period_ns for s in workload.sensors())
    if caps:
        fixed = power_terms(model.platform, model.mode, {}, sensors)
        # Each term is rounded separately: half a milliwatt each.
        slack = 1 + len(fixed) // 2
        jobs = sum(max(piece.uj, 0.0) * _SECOND / period[piece.stage] for piece in needs.pieces) / _MICROWATTS
        terms = (*fixed, ("stages: least energy on any engine", max(int(jobs) - slack, 0)))
        yield from violated("power", "mean power", terms, min(caps), "mW")
    rates: dict[str, int] = {}
    for piece in needs.pieces:
        rates[piece.stage] = rates.get(piece.stage, 0) + _rate(piece.bytes, period[piece.stage])
    moved = (*((f"{n}: {_AT_LEAST}", rate) for n, rate in rates.items()), ("sensors", sensors))
    cap = min(round(model.dram), workload.limits.bytes_per_s or round(model.dram))
    yield from violated("traffic", "DRAM traffic", moved, cap, "B/s")


def _stored(needs: _Needs) -> list[Necessity]:
    """Return the capacity of main memory if weights, activations and the least buffers exceed it."""
    workload, graph = needs.workload, needs.workload.graph
    frames: dict[str, int] = {}
    for name in graph.order:
        stage = graph.stage(name)
        for producer in stage.after:
            # a queue that nobody states may hold one frame, and a part of a cut network is not counted
            waiting = 0 if name in needs.cut else 1 if stage.open_queue else stage.queue
            frames[producer] = max(frames.get(producer, 1), waiting + 1)
    terms = []
    for name in graph.order:
        stage = graph.stage(name)
        if name in needs.cut:
            terms.append((f"{name}: least weights", least_weights(workload.model, stage)))
            continue
        costs = needs.costs[name]
        terms.append((f"{name}: least weights and activations", min(sum(stage_bytes(workload, c)) for c in costs)))
        output = min(workload.output_bytes(cost) for cost in costs)
        terms.append((f"{name}: least buffers of its output", output * (1 + frames.get(name, 1))))
    terms += [
        (f"{sensor.name}: least buffers of its frames", sensor.bytes_per_frame * (1 + frames.get(sensor.name, 1)))
        for sensor in workload.sensors()
    ]
    return violated("memory", CAPACITY, terms, capacity(workload.model.platform), "B")


def _others(needs: _Needs) -> Iterator[Necessity]:
    """Yield an accuracy budget below the least loss, and engines with fewer job slots than jobs that need one there."""
    graph, pipeline = needs.workload.graph, needs.workload.graph.pipeline
    if pipeline.accuracy_budget is not None:
        best = []
        for name in graph.order:
            stage = graph.stage(name)
            accepted = {c.precision for c in needs.costs[name]} if name in needs.costs else set(stage.precisions)
            best.append((stage, min(sorted(accepted), key=lambda p, s=stage: s.losses.get(p, 0))))  # type: ignore[misc]
        yield from violated(
            "accuracy", "accuracy loss", losses(pipeline, best), pipeline.accuracy_budget, "1e-3 points"
        )
    slots = {e.id: e.operators.max_jobs for e in needs.workload.model.platform.engines if e.operators.max_jobs}
    able = {name: {cost.engine for cost in costs} for name, costs in needs.costs.items()}
    for count in range(1, len(slots) + 1):
        for engines in itertools.combinations(slots, count):
            jobs = tuple((name, 1) for name, places in able.items() if places == set(engines))
            inside = tuple((name, 1) for name, places in able.items() if places <= set(engines))
            if jobs:
                room = sum(slots[engine] for engine in engines)
                yield from violated("resident jobs", f"resident jobs on {'+'.join(engines)}", inside, room, "jobs")
