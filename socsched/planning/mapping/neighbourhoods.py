"""Large-neighbourhood search for mappings of many stages: clusters are placed anew together, the rest stays.

Shaw, "Using constraint programming and local search methods to solve vehicle routing problems", CP 1998; operators are
chosen by their success, as Ropke and Pisinger, "An adaptive large neighborhood search heuristic for the pickup and
delivery problem with time windows", Transportation Science 40(4) 2006.  Single moves in order, which suit a dozen
stages, come back to one after thousands of others, and of two stages on full engines neither can move alone.

A cluster is a stretch of a chain.  It moves to one engine as a whole, exchanges places with other stages, or is placed
by a constraint program that minimises its times and hand-overs at prices of its engines' load; the analysis decides.
Random numbers are seeded and rounds counted: equal inputs give equal mappings unless the clock ends the search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from socsched.cost.cost import Cost
from socsched.planning.candidate import Candidate, Score, judge, make_improvement_test, score
from socsched.planning.clock import FEW, PER_SECOND, Clock, count
from socsched.planning.mapping.local_search import Solution, standing, transfer_ns
from socsched.planning.mapping.program import available, constraints
from socsched.planning.workload import Workload, place_of
from socsched.progress import listening, tell

LONGEST = 8
"""Stages of a cluster."""
_INVOLVED = 0.7
"""Chance that a cluster is one that an unmet requirement names."""
_IDLE = 60
"""Mappings without a better one after which a cluster is moved whatever becomes of it."""
_BACK = 3
"""Such moves without a better mapping after which the search returns to the best one."""
_SOLVES = 2
"""Mappings taken from one program."""
_SECONDS, _LEVELLING = 0.02, 0.4
"""Deterministic seconds of one, and of the program that levels the load of all engines."""
_EVENLY = 4
"""Weight of the busiest engine's load beside the mean load of a stage."""
_DISMISSED = 3
"""Mappings that count for one analysis, besides those that are analysed: an estimate dismisses most."""
_FULL = 0.97
"""Share of an engine's lanes up to which its load costs nothing but its price."""
_MOVE = Mapping[str, Cost]
Options = Mapping[str, Sequence[Cost]]


def suits(workload: Workload) -> bool:
    """Return whether a workload has so many stages that single moves in order do not reach all of them."""
    return len(workload.graph.order) > FEW


def search(
    solution: Solution,
    workload: Workload,
    goals: Sequence[str],
    budget: int,
    clock: Clock,
    enough: float = -1.0,
    most: int | None = None,
    thorough: bool = False,
) -> Solution:
    """Return the best solution found from a given one with at most `budget` mappings.

    A score that begins with at most `enough` ends the search; at most `most` stages move.  `thorough`: so is the
    analysis of every mapping, where little is missing.
    """
    start = dict(solution.candidate.deployment.mapping)
    options = workload.options()
    if set(start) != set(options) or not any(len(costs) > 1 for costs in options.values()):
        return solution
    most = len(options) if most is None else most
    found = _Search(workload, goals, budget, clock, options, start, most, thorough)
    mapping, evaluated = found.run(solution.candidate, solution.score, enough)
    counted = replace(solution.search, evaluated=solution.search.evaluated + evaluated)
    if mapping == start and clock.late():
        return replace(solution, search=counted)
    # a thorough analysis sets other deadlines, by which a chain may fail that the search saw hold
    both = [judge(workload, mapping, thorough) for thorough in (True, False)]
    candidate = min(both, key=lambda one: score(one, goals))
    if score(candidate, goals) >= solution.score:
        return replace(solution, search=counted)
    return replace(solution, candidate=candidate, score=score(candidate, goals), search=counted)


def levelled(solution: Solution, workload: Workload, goals: Sequence[str], clock: Clock) -> Solution:
    """Return the mapping whose busiest engine is least busy, and its chains short, where it is nearer to a plan.

    A list schedule that takes the fastest places leaves full engines, from which moves of some stages do not lead away.
    """
    options, period = workload.options(), workload.graph.period_ns
    if not available() or clock.over():
        return solution
    here = solution.candidate.deployment.mapping
    cp = constraints()
    model = cp.CpModel()
    loads, terms = dict[str, list[Any]](), list[Any]()
    taken = {name: [model.new_bool_var("") for _ in costs] for name, costs in options.items()}
    for name, costs in options.items():
        model.add_exactly_one(taken[name])
        for x, cost in zip(taken[name], costs, strict=True):
            loads.setdefault(cost.engine, []).append(round(_load(workload, cost)) * x)
            terms.append(round(1e6 * cost.time_ns / period[name]) * x)
            if name in here:
                model.add_hint(x, cost is here[name])
    peak = model.new_int_var(0, 10**12, "")
    for engine, parts in loads.items():
        model.add(sum(parts) <= workload.lanes(engine) * peak)
    model.minimize(_EVENLY * len(options) * peak + sum(terms))
    chosen, _ = _solved(cp, model, taken, options, clock, _LEVELLING)
    if chosen is None:
        return solution
    candidate = judge(workload, chosen)
    mine = score(candidate, goals)
    return replace(solution, candidate=candidate, score=mine) if mine < solution.score else solution


def _load(workload: Workload, cost: Cost) -> float:
    """Return the lanes (1e-6) of its engine that a stage keeps busy where it is placed."""
    lanes = workload.lanes(cost.engine)
    period = workload.graph.period_ns[cost.stage]
    return 1e6 * cost.time_ns / period * (min(cost.share, lanes) if lanes > 1 else 1)


def _solved(
    cp: Any, model: Any, taken: Mapping[str, Sequence[Any]], options: Options, clock: Clock, seconds: float
) -> tuple[dict[str, Cost] | None, float]:
    """Return the places that a program chooses, None if it finds none, and the deterministic `seconds` that it took."""
    solver = cp.CpSolver()
    solver.parameters.max_deterministic_time, solver.parameters.num_workers = seconds, 1
    solver.parameters.random_seed = 0
    solver.parameters.max_time_in_seconds = min(max(clock.seconds(), 1e-3), 60.0)
    status = solver.solve(model)
    took = float(solver.response_proto.deterministic_time)
    if status not in (cp.OPTIMAL, cp.FEASIBLE):
        return None, took
    number = {name: next(n for n, x in enumerate(xs) if solver.value(x)) for name, xs in taken.items()}
    return {name: options[name][place] for name, place in number.items()}, took


def clusters_of(workload: Workload) -> list[tuple[str, ...]]:
    """Return stretches of chains, and of the triggers of stages that no chain has, of at most `LONGEST` stages."""
    graph, placed = workload.graph, set[str]()
    found = list[tuple[str, ...]]()
    for chain in graph.pipeline.chains:
        names = [name for name in chain.path if name in graph.period_ns]
        found += [tuple(names[at : at + LONGEST]) for at in range(0, len(names), LONGEST)]
        placed.update(names)
    after: dict[str, list[str]] = {}
    for name in graph.order:
        for other in graph.predecessors(name):
            after.setdefault(other, []).append(name)
    for name in graph.order:
        if name in placed:
            continue
        members = [name]
        for member in members:
            members += [n for n in after.get(member, ()) if n not in placed and n not in members]
            if len(members) >= LONGEST:
                break
        found.append(tuple(members[:LONGEST]))
        placed.update(members[:LONGEST])
    return [names for names in dict.fromkeys(found) if names]


@dataclass(slots=True)
class _Search:
    workload: Workload
    goals: Sequence[str]
    budget: int
    clock: Clock
    options: Mapping[str, Sequence[Cost]]
    origin: Mapping[str, Cost]
    most: int
    thorough: bool = False
    draw: Random = field(default_factory=lambda: Random(0))
    tried: set[tuple[Any, ...]] = field(default_factory=set)

    def run(self, candidate: Candidate, best: Score, enough: float) -> tuple[dict[str, Cost], int]:
        """Return the best mapping found and the number of mappings judged."""
        clusters = clusters_of(self.workload)
        beats = make_improvement_test(self.workload, self.goals, self.thorough)
        operators = [self.together, self.single, self.exchange] + ([self.programmed] if available() else [])
        gains = [2.0] * len(operators)
        mapping = here = dict(candidate.deployment.mapping)
        # a quick analysis judges what the search compares; the given one may be thorough
        mine = beats(here, (float("inf"),)) or best
        best = standard = mine
        involved, evaluated, idle, kicks = self._involved(candidate, clusters), 1, 0, 0
        while evaluated < self.budget and not self.clock.over() and best[0] > enough:
            cluster = self._cluster(clusters, involved)
            number = self.draw.choices(range(len(operators)), gains)[0]
            improved = False
            for move in operators[number](here, cluster):
                trial = {**here, **move}
                places = tuple(map(place_of, trial.values()))
                if places in self.tried or self._far(trial):
                    continue
                self.tried.add(places)
                evaluated += 1
                count(evaluated % _DISMISSED == 0)
                tell("planning", evaluated, self.budget, "mappings", standing(best) if listening() else "")
                found = beats(trial, standard)
                if found is not None:
                    here, standard, improved = trial, found, True
                    break
                idle += 1
                if self.clock.over():
                    break
            gains[number] = max(0.9 * gains[number] + (2.0 if improved else 0.0), 0.2)
            if improved:
                idle = 0
                if standard < best:
                    mapping, best, kicks = here, standard, 0
                    mended = best[0] <= 0
                    involved = [] if mended else self._involved(judge(self.workload, here, self.thorough), clusters)
            elif idle > _IDLE:
                kicks, idle = kicks + 1, 0
                start = mapping if kicks % _BACK == 0 else here
                there = {**start, **self._kick(self._cluster(clusters, involved))}
                kicked = beats(there, (float("inf"),))
                evaluated += 1
                if kicked is not None:
                    here, standard = there, kicked
        return mapping, evaluated

    def _far(self, mapping: Mapping[str, Cost]) -> bool:
        """Return whether more stages have moved than may."""
        if self.most >= len(mapping):
            return False
        return sum(cost is not self.origin[name] for name, cost in mapping.items()) > self.most

    def _involved(self, candidate: Candidate, clusters: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
        named = {term.split(":")[0] for violation in candidate.violations for term, _ in violation.terms}
        return [cluster for cluster in clusters if not named.isdisjoint(cluster)]

    def _cluster(self, clusters: Sequence[tuple[str, ...]], involved: Sequence[tuple[str, ...]]) -> list[str]:
        names = self.draw.choice(involved if involved and self.draw.random() < _INVOLVED else clusters)
        movable = [name for name in names if len(self.options[name]) > 1]
        return movable or [self.draw.choice([name for name, costs in self.options.items() if len(costs) > 1])]

    def _kick(self, cluster: Sequence[str]) -> _MOVE:
        return {name: self.draw.choice(self.options[name]) for name in cluster}

    # -- operators: moves of a cluster, the most promising first

    def single(self, mapping: Mapping[str, Cost], cluster: Sequence[str]) -> Iterator[_MOVE]:
        """Yield moves of one stage of a cluster to every other place."""
        name = self.draw.choice(cluster)
        others = [cost for cost in self.options[name] if cost is not mapping[name]]
        for cost in sorted(others, key=lambda cost: cost.time_ns):
            yield {name: cost}

    def together(self, mapping: Mapping[str, Cost], cluster: Sequence[str]) -> Iterator[_MOVE]:
        """Yield moves of neighbours of a cluster to one engine, in the data type that is fastest there."""
        first = self.draw.randrange(len(cluster))
        names = cluster[first : first + self.draw.randint(2, max(len(cluster), 2))]
        engines = dict.fromkeys(cost.engine for name in names for cost in self.options[name])
        for engine in self.draw.sample(list(engines), len(engines)):
            move = {}
            for name in names:
                there = [cost for cost in self.options[name] if cost.engine == engine]
                if there:
                    move[name] = min(there, key=lambda cost: cost.time_ns)
            yield move

    def exchange(self, mapping: Mapping[str, Cost], cluster: Sequence[str]) -> Iterator[_MOVE]:
        """Yield exchanges of places between a stage of a cluster and one elsewhere."""
        name = self.draw.choice(cluster)
        mine = mapping[name].engine
        others = [other for other in mapping if mapping[other].engine != mine and len(self.options[other]) > 1]
        for other in self.draw.sample(others, min(len(others), 4)):
            theirs = mapping[other].engine
            here = [cost for cost in self.options[name] if cost.engine == theirs]
            there = [cost for cost in self.options[other] if cost.engine == mine]
            if here and there:
                yield {
                    name: min(here, key=lambda cost: cost.time_ns),
                    other: min(there, key=lambda cost: cost.time_ns),
                }

    def programmed(self, mapping: Mapping[str, Cost], cluster: Sequence[str]) -> Iterator[_MOVE]:
        """Yield placements of a cluster, with one more drawn, that a constraint program finds best."""
        more = self.draw.choice([name for name, costs in self.options.items() if len(costs) > 1])
        names = list(dict.fromkeys((*cluster, more)))
        yield from _Placement(self, mapping, names).best()


class _Placement:
    """A constraint program: places of some stages beside all others, at prices of loads that are drawn."""

    def __init__(self, of: _Search, mapping: Mapping[str, Cost], names: Sequence[str]) -> None:
        self._workload, self._of, self._names = of.workload, of, names
        self._cp = constraints()
        self._model = self._cp.CpModel()
        self._mapping = mapping
        self._options = {name: of.options[name] for name in names}
        self._x = {name: [self._model.new_bool_var("") for _ in costs] for name, costs in self._options.items()}
        prices, terms = self._loads()
        worth = self._worth()
        for name, costs in self._options.items():
            self._model.add_exactly_one(self._x[name])
            for x, cost in zip(self._x[name], costs, strict=True):
                terms.append(round(worth(cost) * prices[cost.engine] * of.draw.uniform(0.9, 1.1)) * x)
        for producer, consumer in self._workload.edges:
            if producer in self._x or consumer in self._x:
                terms += self._hand_over(producer, consumer)
        self._model.minimize(sum(terms))

    def _worth(self) -> Callable[[Cost], float]:
        if self._of.goals[0] == "energy":
            period = self._workload.graph.period_ns
            return lambda cost: cost.energy_uj * 1e9 / period[cost.stage]
        return lambda cost: float(cost.time_ns)

    def _loads(self) -> tuple[dict[str, float], list[Any]]:
        """Return a price of every engine, and the terms of what exceeds its lanes."""
        workload = self._workload
        fixed: dict[str, float] = {}
        free: dict[str, list[Any]] = {}

        for name, cost in self._mapping.items():
            if name not in self._x:
                fixed[cost.engine] = fixed.get(cost.engine, 0.0) + _load(workload, cost)
        for name, costs in self._options.items():
            for x, cost in zip(self._x[name], costs, strict=True):
                free.setdefault(cost.engine, []).append(round(_load(workload, cost)) * x)
        prices, terms = dict[str, float](), []
        for engine, loads in free.items():
            room = round(workload.lanes(engine) * 1e6 * _FULL - fixed.get(engine, 0.0))
            over = self._model.new_int_var(0, 10**9, "")
            self._model.add(over >= sum(loads) - room)
            terms.append(100_000 * over)
            share = fixed.get(engine, 0.0) / (workload.lanes(engine) * 1e6)
            prices[engine] = 1.0 + self._of.draw.uniform(0.0, 3.0) * share * share
        return prices, terms

    def _hand_over(self, producer: str, consumer: str) -> list[Any]:
        sources = self._options.get(producer, [self._mapping[producer]])
        sinks = self._options.get(consumer, [self._mapping[consumer]])
        terms = []
        for a, source in enumerate(sources):
            for b, sink in enumerate(sinks):
                xs = [self._x[name][at] for name, at in ((producer, a), (consumer, b)) if name in self._x]
                way = transfer_ns(self._workload, source, sink)
                if way >= 1e18:
                    self._model.add(sum(xs) <= len(xs) - 1)
                elif way and len(xs) == 1:
                    terms.append(round(way) * xs[0])
                elif way:
                    both = self._model.new_bool_var("")
                    self._model.add(both >= sum(xs) - 1)
                    terms.append(round(way) * both)
        return terms

    def best(self) -> Iterator[_MOVE]:
        """Yield other placements than the mapping's, the best first."""
        chosen: dict[str, Cost] | None = {name: self._mapping[name] for name in self._names}
        for _ in range(_SOLVES):
            assert chosen
            self._exclude(chosen)
            chosen, took = _solved(self._cp, self._model, self._x, self._options, self._of.clock, _SECONDS)
            count(round(took * PER_SECOND))
            if chosen is None:
                return
            yield chosen

    def _exclude(self, chosen: Mapping[str, Cost]) -> None:
        taken = [self._x[name][self._options[name].index(cost)] for name, cost in chosen.items()]
        self._model.add(sum(taken) <= len(taken) - 1)
