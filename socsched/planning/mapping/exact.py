"""Constraint programming for a better mapping, or a proof that there is none; latency only.

The planner's decision is a mapping problem: engine, precision and share of every stage, without an order.  Analysis
judges a mapping whatever the order; so lanes count as unlimited here, and engines have budgets of utilisation instead.
The effects that analysis adds (blocking, contention, unevenly filled lanes) only make a mapping worse: the problem is a
relaxation, its bound holds, and mappings are generated in the order of their expected latency.

A network that may be cut is a group per unit, as far as parts follow each other: a unit takes its time within any part,
a change of place costs the hand-over to the very next unit and the new part's own overhead, and conversions of tensors
read later are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from socsched.cost.cost import Cost, Segment
from socsched.planning.candidate import Candidate, judge, objective_value, score
from socsched.planning.clock import Clock
from socsched.planning.cutting.divisible import Divisible, Leg, Legs, Place
from socsched.planning.cutting.search import Cutter
from socsched.planning.cutting.segmentation import merge_neighbours
from socsched.planning.mapping.local_search import Solution
from socsched.planning.mapping.problem import (
    FREE,
    Amounts,
    Budget,
    Edge,
    Group,
    Hop,
    Lanes,
    Option,
    Problem,
    Requirement,
    Schedule,
)
from socsched.planning.mapping.program import Program, conflict
from socsched.planning.workload import Mapping_, Unconnectable, Workload

_PPM = 1_000_000


def unit_name(stage: str, unit: int) -> str:
    """Return the name of a unit's group."""
    return f"{stage}#{unit}"


@dataclass(frozen=True, slots=True)
class Inside:
    """The groups of a stage's units in order, and the edges between them."""

    groups: tuple[Group, ...]
    edges: tuple[Edge, ...]

    @staticmethod
    def of(workload: Workload, stage: Divisible, ways: Sequence[Cost]) -> Inside:
        """Return a stage's units; options are its places, in the order of `ways`."""
        name = stage.stage.name
        period = workload.graph.period_ns[name]
        groups = tuple(
            Group(unit_name(name, unit), tuple(_unit_options(workload, stage, unit, period)), period_ns=period)
            for unit in range(stage.units)
        )
        edges = tuple(
            Edge(groups[unit].name, groups[unit + 1].name, _unit_hops(workload, stage, unit, period))
            for unit in range(stage.units - 1)
        )
        return Inside(groups, edges)


def _unit_options(workload: Workload, stage: Divisible, unit: int, period: int) -> list[Option]:
    found = []
    for number, place in enumerate(stage.places):
        time = stage.time_ns[unit][number]
        if time is None:  # no hop leads here
            found.append(Option(place.engine, (Segment("refused", 0, 0, 0),)))
            continue
        least = 0 if stage.free[unit] else max(time - 1, 0)  # a part is rounded up once, its units individually
        entry = stage.entry_ns[number] if unit == 0 else 0
        first: Amounts = ((f"resident jobs on {place.engine}", 1),) if unit == 0 else ()
        segment = Segment(unit_name(stage.stage.name, unit), least + entry, 0, 0)
        drawn = ((f"utilisation of {place.engine}", _used(workload, place, least + entry, period)), *first)
        found.append(Option(place.engine, (segment,), 1, place.precision, 0, drawn))
    return found


def _used(workload: Workload, place: Place, time: int, period: int) -> int:
    lanes = workload.lanes(place.engine)
    return time * (min(place.share, lanes) if lanes > 1 else 1) * _PPM // period


def _unit_hops(workload: Workload, stage: Divisible, unit: int, period: int) -> tuple[tuple[Hop | None, ...], ...]:
    count = range(len(stage.places))
    return tuple(tuple(_unit_hop(workload, stage, unit, a, b, period) for b in count) for a in count)


def _unit_hop(workload: Workload, stage: Divisible, unit: int, source: int, sink: int, period: int) -> Hop | None:
    if stage.time_ns[unit + 1][sink] is None or stage.time_ns[unit][source] is None:
        return None
    if source == sink:
        return FREE
    change = stage.forced(unit, source, sink)
    if change is None:
        return None
    entry, place = stage.entry_ns[sink], stage.places[sink]
    drawn = (
        (f"utilisation of {place.engine}", _used(workload, place, entry, period)),
        (f"resident jobs on {place.engine}", 1),
    )
    return Hop(delay_ns=change[0] + entry, draws=drawn)


_ACCURACY = "accuracy loss"
Options = Mapping[str, Sequence[Cost]]
_NO_WORK = (Segment("stand-in", 0, 0, 0),)
T = TypeVar("T")


def stage_problem(workload: Workload, divided: Mapping[str, Divisible] | None = None) -> Problem:
    """Return the problem of choosing a cost for every stage that minimises the sum of expected chain latencies.

    Stages of `divided` are chosen unit by unit: a cut lies between neighbours in different places (`inside`).
    """
    graph, model = workload.graph, workload.model
    inner, given = divided or {}, workload.options()
    options = {name: _ways(given[name], inner.get(name)) for name in graph.order}
    head, tail = {n: n for n in graph.order}, {n: n for n in graph.order}
    groups: tuple[Group, ...] = ()
    edges: tuple[Edge, ...] = ()
    for name in graph.order:
        if name in inner:
            units = Inside.of(workload, inner[name], options[name])
            head[name], tail[name] = units.groups[0].name, units.groups[-1].name
            groups, edges = (*groups, *units.groups), (*edges, *units.edges)
        else:
            ways = tuple(_option(workload, cost) for cost in options[name])
            groups = (*groups, Group(name, ways, period_ns=graph.period_ns[name]))
    # Sampled data are handed over too, but no job waits for them: a stand-in for the reader ends the path.
    sampled = [(p, c) for p, c in workload.edges if not _before(workload, p, c)]
    groups += tuple(
        Group(f"{p}>{c}", tuple(Option(cost.engine, _NO_WORK) for cost in options[c]), twin=head[c]) for p, c in sampled
    )
    for p, c in workload.edges:
        late = (p, c) in sampled
        direct = p in (graph.stage(c).reads if late else graph.predecessors(c))
        rows = tuple(tuple(_hop(workload, a, b, direct) for b in options[c]) for a in options[p])
        edges = (*edges, Edge(tail[p], f"{p}>{c}" if late else head[c], rows))
    requirements = []
    for chain in graph.pipeline.chains:
        parts = [part for part in graph.segments(chain) if part.nodes]
        sampling = sum(part.period_ns // 2 for part in parts if part.sampled)
        ends = tuple(
            f"{a.nodes[-1]}>{b.root}" if (a.nodes[-1], b.root) in sampled else tail[a.nodes[-1]]
            for a, b in zip(parts, [*parts[1:], parts[-1]], strict=True)
        )
        requirements.append(Requirement(f"deadline of chain {chain.name}", ends, chain.deadline_ns, sampling))
    budgets = [Budget(f"utilisation of {e.id}", e.lanes * _PPM, "1e-6") for e in workload.engines()]
    budgets += [
        Budget(f"resident jobs on {engine.id}", engine.operators.max_jobs, "jobs")
        for engine in model.platform.engines
        if engine.operators.max_jobs
    ]
    if graph.pipeline.accuracy_budget is not None:
        budgets.append(Budget(_ACCURACY, graph.pipeline.accuracy_budget, "1e-3 points"))
    lanes = tuple(Lanes(e.id, len(groups) + len(edges)) for e in workload.engines())
    return Problem(lanes, groups, edges, tuple(requirements), tuple(budgets), 0, ("latency",))


def _option(workload: Workload, cost: Cost) -> Option:
    lanes = workload.lanes(cost.engine)
    share = min(cost.share, lanes) if lanes > 1 else 1
    return Option(
        cost.engine, cost.segments, 1, cost.precision, cost.energy_uj, _draws(workload, cost, cost.stage, share)
    )


def _draws(workload: Workload, cost: Cost, stage: str, share: int) -> Amounts:
    used = cost.time_ns * share * _PPM // workload.graph.period_ns[stage]
    drawn = ((f"utilisation of {cost.engine}", used), (f"resident jobs on {cost.engine}", 1))
    if workload.graph.pipeline.accuracy_budget is None or cost.stage not in workload.graph.order:
        return drawn
    return (*drawn, (_ACCURACY, workload.graph.stage(cost.stage).losses.get(cost.precision, 0)))


def _hop(workload: Workload, producer: Cost, consumer: Cost, direct: bool) -> Hop | None:
    try:
        conversion = workload.conversion(producer, consumer)
    except Unconnectable:
        return None
    size = workload.output_bytes(producer)
    if conversion is None and not direct:
        # A consumer that needs an ancestor's data in its own format finds them in memory.
        return FREE
    crossing = workload.handover_ns(producer, consumer)
    if conversion is None:
        return Hop(handoff_ns=workload.visible_ns(producer.engine, consumer.engine, size) + crossing)
    return Hop(
        handoff_ns=workload.visible_ns(producer.engine, conversion.engine, size),
        delay_ns=workload.visible_ns(conversion.engine, consumer.engine, conversion.bytes // 2) + crossing,
        engine=conversion.engine,
        segments=conversion.segments,
        energy_uj=conversion.energy_uj,
        draws=_draws(workload, conversion, producer.stage, 1),
    )


def _before(workload: Workload, producer: str, consumer: str) -> bool:
    """Return whether every frame of the consumer waits for one of the producer; sampled data may be older."""
    queue = list(workload.graph.predecessors(consumer))
    while queue:
        name = queue.pop()
        if name == producer:
            return True
        queue += workload.graph.predecessors(name)
    return False


@dataclass(frozen=True, slots=True)
class Exact(Generic[T]):
    """Result of the exact search: optimal | feasible | infeasible | exhausted | undecided, and a bound (ns) on latency.

    infeasible: no mapping keeps the limits; exhausted: none is left, but an analysis rejected some, or the limits allow
    for half a period of sampling and for planned times, of which a schedule may need less.
    `best`: a mapping judged feasible and better than the known one, None if there is none; `tried`: number of mappings
    judged; `conflict`: limits that no mapping can keep together.
    """

    status: str
    best: T | None
    bound: int
    tried: int
    conflict: tuple[str, ...] = ()


def exact_mapping(
    workload: Workload,
    judged: Callable[[Mapping_, Mapping[str, Legs]], tuple[int, T] | None],
    known: int | None,
    clock: Clock,
    seed: int = 0,
    divided: Mapping[str, Divisible] | None = None,
) -> Exact[T]:
    """Try mappings in the order of a lower bound on their latency, until no remaining mapping can be better.

    `judged` returns latency (ns) and candidate of a feasible mapping, None for any other; `known` is the latency of a
    feasible mapping found earlier.  Stages of `divided` may be mapped as legs, whose parts follow each other; these are
    the second argument of `judged`.  Ends when no mapping can be better, none is left, or when the `clock` runs out.
    """
    options = workload.options()
    problem = stage_problem(workload, divided)
    program, bound, tried = Program(problem), 0, 0
    best: T | None = None
    while not clock.over():
        answer = program.solve_within(clock, "latency", seed)
        if answer.status == "infeasible":
            if known is not None:
                return Exact("optimal", best, known, tried)
            return Exact(
                "infeasible" if not tried and _necessary(workload, problem) else "exhausted",
                None,
                bound,
                tried,
                conflict(problem, clock) if not tried else (),
            )
        if answer.schedule is None:
            break
        bound = max(bound, answer.bound)
        if known is not None and bound >= known:
            return Exact("optimal", best, known, tried)
        if answer.status != "optimal":
            break
        tried += 1
        found = judged(*_mapping(workload, answer.schedule, problem, divided or {}, options))
        if found is not None and (known is None or found[0] < known):
            known, best = found
        program.exclude(answer.schedule.choice)
    return Exact("feasible" if known is not None else "undecided", best, bound, tried)


def _necessary(workload: Workload, problem: Problem) -> bool:
    """Return whether every schedule keeps the limits of a problem: none samples, and no job is shorter than planned."""
    stated = any(s.execution is not None or s.degraded is not None for s in workload.graph.pipeline.stages)
    return not (stated or workload.model.profile or any(need.sampling_ns for need in problem.requirements))


def _mapping(
    workload: Workload, schedule: Schedule, problem: Problem, divided: Mapping[str, Divisible], options: Options
) -> tuple[Mapping_, dict[str, Legs]]:
    graph, chosen, cuts = workload.graph, dict[str, Cost](), dict[str, Legs]()
    for name in graph.order:
        stage = divided.get(name)
        ways = _ways(options[name], stage)
        if stage is None:
            chosen[name] = ways[schedule.choice[problem.index[name]]]
            continue
        numbers = [schedule.choice[problem.index[unit_name(name, unit)]] for unit in range(stage.units)]
        legs = merge_neighbours(tuple(Leg(unit + 1, stage.places[number]) for unit, number in enumerate(numbers)))
        place = legs[0].place
        whole = workload.model.at(stage.stage, place.engine, place.precision, place.share) if len(legs) == 1 else None
        if whole is None:
            cuts[name] = legs
        else:
            chosen[name] = whole
    return chosen, cuts


def _ways(candidates: Sequence[Cost], stage: Divisible | None) -> list[Cost]:
    """Return the options of a stage: its candidates, or its places as costs of its ends if it may be cut."""
    if stage is None:
        return list(candidates)
    like = candidates[0]
    return [replace(like, engine=p.engine, precision=p.precision, share=p.share) for p in stage.places]


WHOLE = 0.3
"""Share of the evaluations spent on mappings of whole stages, whose proof is much easier."""


def prove(
    solution: Solution, workload: Workload, goals: Sequence[str], clock: Clock, cutter: Cutter | None = None
) -> Solution:
    """Search for a better mapping with CP-SAT and bound all others; only for latency as the first objective.

    With a `cutter`, mappings of its stages in parts that follow each other are tried as well, after those of whole
    stages; `whole` is the status of the latter.
    """
    if cutter is None or not cutter.stages:
        return _proved(solution, workload, goals, clock, None)
    first = _proved(solution, workload, goals, clock.part(WHOLE), None)
    status = first.exact.status if first.exact else ""
    return replace(_proved(first, workload, goals, clock, cutter), whole=status)


def _proved(
    solution: Solution, workload: Workload, goals: Sequence[str], clock: Clock, cutter: Cutter | None
) -> Solution:
    def judged(mapping: Mapping[str, Cost], cuts: Mapping[str, Legs]) -> tuple[int, Candidate] | None:
        mapped = cutter.mapping(mapping, cuts) if cutter and cuts else (workload, mapping)
        if mapped is None:
            return None
        try:
            candidate = judge(*mapped)
        except Unconnectable:
            return None
        feasible = candidate.verdict == "feasible"
        return (int(objective_value(candidate, goals[0])), candidate) if feasible else None

    feasible = solution.candidate.verdict == "feasible"
    known = int(solution.score[1]) if feasible else None
    exact = exact_mapping(workload, judged, known, clock, divided=cutter.stages if cutter else None)
    if exact.best is None:
        return replace(solution, exact=exact)
    found = score(exact.best, goals)
    if feasible and found >= solution.score:
        return replace(solution, exact=exact)
    return replace(solution, candidate=exact.best, score=found, exact=exact)
