"""Local search for a mapping: HEFT order and insertion over one round of frames, single moves, and restarts.

HEFT: Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing",
IEEE TPDS 13(3) 2002, sections 4.1 (upward rank, eq. 8) and 4.2 (insertion-based earliest finish time).

Restarts: Lourenço, Martin, Stützle, "Iterated Local Search", Handbook of Metaheuristics, 2003.  A local search by
single moves stops where two or three stages would have to move together; a perturbation moves that many at random,
most of them stages that violations name.  The random numbers are seeded and the rounds counted, so that equal inputs
give equal mappings unless the clock ends the search.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from socsched.cost.cost import Cost
from socsched.deadline import check
from socsched.errors import UsageError
from socsched.planning.candidate import Beats, Candidate, Score, judge, make_improvement_test, score
from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.workload import Unconnectable, Workload, place_of
from socsched.progress import listening, tell

if TYPE_CHECKING:
    from socsched.planning.mapping.exact import Exact
    from socsched.planning.plan import Proof, Violation


FRAMES = 100
"""Maximum number of frames laid out for a stage; a much faster stage repeats its pattern long before."""


Edges = Mapping[tuple[int, int], float]
"""(task, successor) -> communication cost, paid when the two run on different processors."""


def upward_ranks(mean_cost: Sequence[float], edges: Edges) -> list[float]:
    """Return rank_u of every task: mean cost plus the longest path to an exit task (eq. 8)."""
    after: dict[int, list[int]] = {task: [] for task in range(len(mean_cost))}
    for task, successor in edges:
        after[task].append(successor)
    ranks = [0.0] * len(mean_cost)
    for task in TopologicalSorter(after).static_order():
        ranks[task] = mean_cost[task] + max((edges[task, s] + ranks[s] for s in after[task]), default=0.0)
    return ranks


def earliest_slot(busy: Sequence[tuple[float, float]], ready: float, duration: float, first: int = 0) -> float:
    """Return the earliest start >= `ready` at which `duration` fits between the sorted `busy` intervals.

    Those before the place `first` end by `ready`.
    """
    start = ready
    for place in range(first, len(busy)):
        begin, end = busy[place]
        if start + duration <= begin:
            break
        start = max(start, end)
    return start


@dataclass(slots=True)
class _Timeline:
    """Busy intervals and utilisation of every lane while stages are placed one after the other."""

    busy: dict[tuple[str, int], list[tuple[float, float]]] = field(default_factory=dict)
    load: dict[tuple[str, int], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Option:
    """A candidate tried in the timeline.

    `crowded`: whether a lane's utilisation exceeds the limit; `finish`: latest finish after a release; `starts`: of
    each frame.
    """

    crowded: bool
    finish: float
    cost: Cost
    lanes: tuple[int, ...]
    starts: tuple[float, ...]


def initial_mapping(workload: Workload, frames: int = 2, limit: float = 1.0) -> dict[str, Cost]:
    """Return a mapping by HEFT over the stages of one round of frames (`frames` times the longest period).

    All frames of a stage use the same candidate: the one whose latest frame finishes first among those that keep every
    lane's utilisation within `limit`, or the least crowded if none does.
    """
    graph, options = workload.graph, workload.options()
    timeline, mapping, done = _Timeline(), dict[str, Cost](), dict[str, tuple[float, ...]]()
    horizon = frames * max(graph.period_ns.values())
    for name in _by_rank(workload, options):
        check()
        tried = [_try(workload, timeline, mapping, done, cost, horizon, limit) for cost in options[name]]
        best = min(enumerate(tried), key=lambda pair: (pair[1].crowded, pair[1].finish, pair[0]))[1]
        mapping[name] = best.cost
        done[name] = tuple(start + best.cost.time_ns for start in best.starts)
        for lane in best.lanes:
            key = (best.cost.engine, lane)
            spans = [(start, start + best.cost.time_ns) for start in best.starts]
            timeline.busy[key] = sorted([*timeline.busy.get(key, []), *spans])
            timeline.load[key] = timeline.load.get(key, 0.0) + best.cost.time_ns / graph.period_ns[name]
    return {name: mapping[name] for name in graph.order}


def _by_rank(workload: Workload, options: Mapping[str, Sequence[Cost]]) -> list[str]:
    """Return the stages by upward rank, predecessors first; only edges that trigger count."""
    order = workload.graph.order
    index = {name: i for i, name in enumerate(order)}
    means = [sum(c.time_ns for c in options[name]) / len(options[name]) for name in order]
    edges = {
        (index[p], index[name]): _mean_transfer(workload, options[p], options[name])
        for name in order
        for p in workload.graph.predecessors(name)
    }
    ranks = upward_ranks(means, edges)
    return sorted(order, key=lambda name: (-ranks[index[name]], index[name]))


def _mean_transfer(workload: Workload, producers: Sequence[Cost], consumers: Sequence[Cost]) -> float:
    check()
    pairs = [(p, c) for p in producers for c in consumers]
    return sum(transfer_ns(workload, p, c) for p, c in pairs) / len(pairs)


def transfer_ns(workload: Workload, producer: Cost, consumer: Cost) -> float:
    """Return the time (ns) between the end of one stage and the start of another, 1e18 if no engine can convert."""
    try:
        conversion = workload.conversion(producer, consumer)
    except Unconnectable:
        return 1e18
    sink = conversion.engine if conversion else consumer.engine
    size = workload.output_bytes(producer)
    handoff = workload.visible_ns(producer.engine, sink, size) + workload.handover_ns(producer, consumer)
    return handoff + (conversion.time_ns if conversion else 0)


def _try(
    workload: Workload,
    timeline: _Timeline,
    mapping: Mapping[str, Cost],
    done: Mapping[str, tuple[float, ...]],
    cost: Cost,
    horizon: int,
    limit: float,
) -> _Option:
    graph = workload.graph
    period, offset = graph.period_ns[cost.stage], graph.offset_ns[cost.stage]
    count = min(workload.lanes(cost.engine), cost.share) if workload.lanes(cost.engine) > 1 else 1
    lanes = _lanes(timeline, cost.engine, workload.lanes(cost.engine), count)
    busy = sorted(span for lane in lanes for span in timeline.busy.get((cost.engine, lane), []))
    over = list(itertools.accumulate((end for _, end in busy), max))
    transfers = {p: transfer_ns(workload, mapping[p], cost) for p in graph.predecessors(cost.stage)}
    starts, latest = list[float](), 0.0
    for frame in range(min(max(horizon // period, 1), FRAMES)):
        release = offset + frame * period
        ready = max([float(release), *(done[p][frame] + transfers[p] for p in transfers)])
        start = earliest_slot(busy, ready, cost.time_ns, bisect_right(over, ready))
        starts.append(start)
        latest = max(latest, start + cost.time_ns - release)
    load = cost.time_ns / period + max(timeline.load.get((cost.engine, lane), 0.0) for lane in lanes)
    if load > limit:
        latest = load * 1e18
    return _Option(load > limit, latest, cost, lanes, tuple(starts))


def _lanes(timeline: _Timeline, engine: str, available: int, count: int) -> tuple[int, ...]:
    if count > 1:
        return tuple(range(count))
    return (min(range(available), key=lambda lane: (timeline.load.get((engine, lane), 0.0), lane)),)


@dataclass(frozen=True, slots=True)
class Improved:
    """The final mapping of an improvement, its score, mappings evaluated, and whether the search ran to its end."""

    mapping: dict[str, Cost]
    score: Score
    evaluated: int
    complete: bool


def improve(
    mapping: dict[str, Cost],
    options: Mapping[str, Sequence[Cost]],
    beats: Beats,
    budget: int = 400,
    clock: Clock = NO_CLOCK,
    enough: float = -1.0,
) -> Improved:
    """Move one stage at a time to another candidate while that helps; stop at a local optimum or after `budget` tries.

    A mapping whose score begins with at most `enough` ends the search.

    Deterministic unless the `clock` cuts it short.  Stages are visited in order, and all again after every success;
    because neighbours on one engine save a conversion, a stage also moves together with the next one.
    """
    worst = (float("inf"),)
    best, tried = beats(mapping, worst) or worst, {tuple(map(place_of, mapping.values()))}
    evaluated = 1
    moves = list(_moves(list(mapping), options))
    position = idle = 0
    while idle < len(moves) and best[0] > enough:
        if evaluated >= budget or clock.over():
            return Improved(mapping, best, evaluated, False)
        trial = {**mapping, **{cost.stage: cost for cost in moves[position]}}
        position, idle = (position + 1) % len(moves), idle + 1
        places = tuple(map(place_of, trial.values()))
        if places in tried:
            continue
        tried.add(places)
        evaluated += 1
        tell("planning", evaluated, budget, "mappings", standing(best) if listening() else "")
        found = beats(trial, best)
        if found is not None:
            mapping, best, idle = trial, found, 0
    return Improved(mapping, best, evaluated, True)


def standing(best: Score) -> str:
    """Return how good the best mapping so far is, in words."""
    met = "every requirement met" if best[0] <= 0 else "not every requirement met"
    return met + (f", best value {best[1]:.6g}" if len(best) > 1 else "")


def _moves(names: Sequence[str], options: Mapping[str, Sequence[Cost]]) -> list[tuple[Cost, ...]]:
    single: list[tuple[Cost, ...]] = [(cost,) for name in names for cost in options[name]]
    pairs = [
        (first, second)
        for name, following in itertools.pairwise(names)
        for first in options[name]
        for second in options[following]
        if (first.engine, first.precision) == (second.engine, second.precision)
    ]
    return single + pairs


@dataclass(frozen=True, slots=True)
class Solution:
    """The best solution found in one mode.

    `floors`: least time (ns) of stages that may be cut, whatever the cuts; `notes`: why some of them are whole;
    `whole`: status of the proof for whole stages; `proof`: that no mapping meets every requirement, if that is known;
    `least`: what no mapping is below (ns), by requirement, if neither a plan nor a proof was found; `beyond`:
    requirements that no mapping's bounds meet.
    """

    candidate: Candidate
    search: Improved
    score: Score
    exact: Exact[Candidate] | None = None
    floors: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    whole: str = ""
    proof: Proof | None = None
    least: Mapping[str, int] = field(default_factory=dict)
    beyond: tuple[Violation, ...] = ()

    @property
    def open(self) -> bool:
        """Return whether another mapping may yet be proved to meet every requirement."""
        return self.proof is None and not self.beyond


def solve(workload: Workload, goals: Sequence[str], budget: int = 400, clock: Clock = NO_CLOCK) -> Solution:
    """Map by HEFT, then improve; UsageError if neighbours cannot be connected whatever the mapping."""

    search = improve(
        initial_mapping(workload), workload.options(), make_improvement_test(workload, goals), budget, clock
    )
    try:
        candidate = judge(workload, search.mapping)
    except Unconnectable as error:
        raise UsageError(str(error), "let an engine of the platform declare `converts: true`") from None
    return Solution(candidate, search, score(candidate, goals))


def given(workload: Workload, mapping: Mapping[str, Cost], goals: Sequence[str]) -> Solution:
    """Return a mapping as a solution."""
    candidate = judge(workload, mapping)
    found = score(candidate, goals)
    return Solution(candidate, Improved(dict(mapping), found, 1, True), found)


def mend(solution: Solution, goals: Sequence[str], budget: int, clock: Clock) -> Solution:
    """Return a solution that meets every requirement if moving stages one by one leads to one, else the given one.

    Moves are judged by the full analysis, while the preceding search spends less on each.
    """
    deployment = solution.candidate.deployment
    workload, mapping = deployment.workload, dict(deployment.mapping)
    found = improve(mapping, workload.options(), make_improvement_test(workload, goals, thorough=True), budget, clock)
    counted = replace(solution.search, evaluated=solution.search.evaluated + found.evaluated)
    candidate = judge(workload, found.mapping)
    if score(candidate, goals) >= solution.score:
        return replace(solution, search=counted)
    return replace(solution, candidate=candidate, score=score(candidate, goals), search=counted)


ROUNDS = 60
"""Local searches at most."""
BUDGET = 120
"""Mappings evaluated by each."""
_MOVED = (2, 3, 4)
"""Stages that a perturbation moves."""
_INVOLVED = 0.7
"""Chance that a stage to move is one that a violation names."""
_BACK = 6
"""Rounds without a better mapping after which the search returns to the best one."""


def restart(solution: Solution, workload: Workload, goals: Sequence[str], clock: Clock) -> Solution:
    """Return a solution that meets every requirement if one of the searches finds one, else the best one seen."""
    options, draws = workload.options(), random.Random(0)
    movable = [name for name in workload.graph.order if len(options[name]) > 1]
    start = dict(solution.candidate.deployment.mapping)
    if not movable or set(start) != set(options):
        return solution
    best, here, idle, evaluated = solution.candidate, solution.candidate, 0, 0
    for _ in range(ROUNDS):
        if clock.over() or best.verdict == "feasible":
            break
        mapping = _perturbed(here, options, movable, draws)
        found = improve(mapping, options, make_improvement_test(workload, goals), BUDGET, clock, enough=0.0)
        evaluated += found.evaluated
        try:
            candidate = judge(workload, found.mapping)
        except Unconnectable:
            continue
        here = candidate if score(candidate, goals) < score(here, goals) or not idle else here
        if score(candidate, goals) < score(best, goals):
            best, here, idle = candidate, candidate, 0
        else:
            idle += 1
            if idle % _BACK == 0:
                here = best
    if best.verdict == "feasible" and not clock.over():
        mapping = dict(best.deployment.mapping)
        found = improve(mapping, options, make_improvement_test(workload, goals), BUDGET, clock)
        evaluated += found.evaluated
        candidate = judge(workload, found.mapping)
        if score(candidate, goals) < score(best, goals):
            best = candidate
    counted = replace(solution.search, evaluated=solution.search.evaluated + evaluated)
    return replace(solution, candidate=best, score=score(best, goals), search=counted)


def _perturbed(
    candidate: Candidate, options: Mapping[str, Sequence[Cost]], movable: Sequence[str], draws: random.Random
) -> dict[str, Cost]:
    named = {term.split(":")[0] for violation in candidate.violations for term, _ in violation.terms}
    involved = [name for name in movable if name in named]
    mapping = dict(candidate.deployment.mapping)
    for _ in range(draws.choice(_MOVED)):
        names = involved if involved and draws.random() < _INVOLVED else movable
        name = draws.choice(names)
        mapping[name] = draws.choice(options[name])
    return mapping
