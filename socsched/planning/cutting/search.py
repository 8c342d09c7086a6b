"""Local search for cut points: cuts of one network are tried in the whole deployment; borders and parts are moved.

The worth of a cut depends on everything else: the engine it relieves, deadlines, traffic.  Paths under prices therefore
only propose cuts (`segmentation`), and the evaluation used for whole stages decides.  Cuts of each network in isolation
would ignore its engines' other tasks; analysing every candidate took 30 times as long, for the same plans.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from socsched.cost.cost import Cost
from socsched.cost.model import CostModel
from socsched.descriptor.pipeline import Pipeline
from socsched.errors import UsageError
from socsched.graph.taskgraph import task_graph
from socsched.models.parts import cut_pipeline
from socsched.planning.candidate import Candidate, Score, better, judge, make_improvement_test, score
from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.cutting.divisible import Apart, Divisible, Leg, Legs, Place, priced, taken_apart
from socsched.planning.cutting.segmentation import (
    duration_ns,
    merge_neighbours,
    parallel_cuts,
    segmentations,
    shift_borders,
    twins,
)
from socsched.planning.mapping.local_search import Improved, Solution, improve, transfer_ns
from socsched.planning.workload import NO_LIMITS, NOTHING, Limits, Observed, Results, Unconnectable, Workload
from socsched.units import format_duration

WORTH = 0.01
"""Share of the objective a cut has to gain unless it fixes a violation: less is within the error of its costs."""
SLOWER = 1.25
"""Slowdown factor above which a longer stage is not tried for latency while every requirement is met."""
ROUGH = 0.02
"""Share of a stage's time by which the estimate of a cut may be off."""
Divided = dict[str, Divisible | None]
"""Stages in units, None for stages that stay whole."""
Cuts = Mapping[str, Legs]
"""Legs of the stages that are cut; the others are whole."""


@dataclass(slots=True)
class Cutter:
    """The search in one power mode; it caches workloads by their cuts."""

    pipeline: Pipeline
    model: CostModel
    policy: str
    goals: Sequence[str]
    observed: Observed = NOTHING
    limits: Limits = NO_LIMITS
    stages: dict[str, Divisible] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    evaluated: int = 0
    results: Results | None = None
    _workloads: dict[str, Workload] = field(default_factory=dict)

    def workload(self, cuts: Cuts) -> Workload:
        """Return the workload with some stages cut."""
        key = repr(sorted((name, tuple(leg.end for leg in legs)) for name, legs in cuts.items()))
        if key not in self._workloads:
            parts = {name: self.stages[name].parts(legs) for name, legs in cuts.items()}
            graph = task_graph(cut_pipeline(self.pipeline, parts))
            self._workloads[key] = Workload.of(graph, self.model, self.policy, self.observed, self.limits, self.results)
        return self._workloads[key]

    def mapping(self, whole: Mapping[str, Cost], cuts: Cuts) -> tuple[Workload, dict[str, Cost]] | None:
        """Return the workload and costs with some stages cut and the others as in `whole`; None where an engine refuses
        a part.
        """
        workload = self.workload(cuts)
        found: dict[str, Cost] = {}
        for name in workload.graph.order:
            if name in whole:
                found[name] = whole[name]
                continue
            stage, number = name.rsplit(".", 1)
            cost = self._cost(workload, name, cuts[stage][int(number) - 1].place)
            if cost is None:
                return None
            found[name] = cost
        return workload, found

    def _cost(self, workload: Workload, name: str, place: Place) -> Cost | None:
        return self.model.at(workload.graph.stage(name), place.engine, place.precision, place.share)

    def better(self, whole: Mapping[str, Cost], cuts: Cuts, best: Score) -> Candidate | None:
        """Return the candidate if it beats `best`."""
        mapped = self.mapping(whole, cuts)
        if mapped is None:
            return None
        self.evaluated += 1
        try:
            return better(*mapped, self.goals, best)
        except Unconnectable:
            return None


def cutter_of(
    pipeline: Pipeline,
    workload: Workload,
    goals: Sequence[str],
    known: Divided | None = None,
    clock: Clock = NO_CLOCK,
    apart: dict[str, Apart | None] | None = None,
) -> Cutter:
    """Return the search over the stages of `workload`, whole there, that may be cut.

    `known` remembers stages in units, `apart` the part of them that holds in every mode; stages not yet in units when
    the guard rail of the `clock` is reached are `left`.
    """
    apart = {} if apart is None else apart
    known = {} if known is None else known
    cutter = Cutter(pipeline, workload.model, workload.policy, goals, workload.observed, workload.limits)
    cutter.results = workload.results
    for stage in pipeline.stages:
        if stage.name not in known:
            if clock.late():
                cutter.left += (stage.name,) if stage.modelled else ()
                continue
            if stage.name not in apart:
                apart[stage.name] = taken_apart(pipeline, stage, workload.model)
            units = apart[stage.name]
            known[stage.name] = priced(units, workload.model) if units else None
        divided = known[stage.name]
        if divided is not None:
            cutter.stages[stage.name] = divided
    return cutter


def cut_further(solution: Solution, cutter: Cutter, budget: int, clock: Clock = NO_CLOCK) -> Solution:
    """Return a solution with networks cut where that pays, else the given one.

    Tries at most `budget` mappings, none after `clock`.  A cut has to fix a violation or gain `WORTH` of the objective.
    """
    if not cutter.stages:
        return solution
    workload, goals = solution.candidate.deployment.workload, cutter.goals
    solution = replace(solution, floors={name: stage.floor_ns() for name, stage in cutter.stages.items()})
    whole = dict(solution.candidate.deployment.mapping)
    best, cuts = solution.candidate, dict[str, Legs]()

    def left() -> bool:
        return cutter.evaluated < budget and not clock.over()

    target = _worthwhile(score(best, goals))
    improved = True
    while improved and left():
        improved = False
        for name, divided in cutter.stages.items():
            saved = _transfers(workload, whole, name)
            for legs in _proposals(workload, divided, whole, cuts.get(name)):
                if not left():
                    break
                if _hopeless(divided, legs, cuts.get(name), whole[name], saved, goals, target):
                    continue
                trial = {**cuts, name: legs}
                if len(legs) == 1:
                    del trial[name]
                instead = _with(cutter, whole, divided, legs)
                found = cutter.better(instead, trial, target)
                if found is not None:
                    best, cuts, whole, improved = found, trial, instead, True
                    target = score(best, goals)
    notes = {name: _why_whole(each, clock) for name, each in cutter.stages.items() if name not in cuts}
    notes = {name: note for name, note in notes.items() if note} | dict.fromkeys(cutter.left, _LATE)
    search = replace(solution.search, complete=solution.search.complete and not clock.over())
    solution = replace(solution, notes=notes, search=search)
    if not cuts:
        return replace(solution, search=_counted(solution, cutter.evaluated))
    best, more = _polished(cutter, best, goals, max(budget - cutter.evaluated, 0), clock)
    final = judge(best.deployment.workload, best.deployment.mapping)
    if score(final, goals) >= solution.score:
        return replace(solution, search=_counted(solution, cutter.evaluated + more))
    return replace(
        solution, candidate=final, score=score(final, goals), search=_counted(solution, cutter.evaluated + more)
    )


def _hopeless(
    stage: Divisible,
    legs: Legs,
    present: Legs | None,
    whole: Cost,
    saved: float,
    goals: Sequence[str],
    target: Score,
) -> bool:
    """Return whether legs are so much slower than the present ones that only a violation could justify them.

    With all requirements met, a longer stage lowers latency only by what it saves on transfers from and to its
    neighbours, which take `saved` (ns) while it is whole.
    """
    if goals[0] != "latency" or target[0] > 0 or len(legs) == 1:
        return False
    at_once = parallel_cuts(stage)
    before = at_once.get(present) or duration_ns(stage, present) if present else whole.time_ns
    after = at_once.get(legs) or duration_ns(stage, legs)
    if before is None or after is None:
        return False
    return after > SLOWER * before or (present is None and after > (1 + ROUGH) * before + saved)


def _transfers(workload: Workload, whole: Mapping[str, Cost], name: str) -> float:
    """Return the time (ns) of all transfers from and to a stage, infinite where these are not all that a cut may save.

    Simulated waiting times also depend on what other stages find their engines doing.
    """
    if workload.observed is not NOTHING:
        return math.inf
    return sum(transfer_ns(workload, whole[a], whole[b]) for a, b in workload.edges if name in (a, b))


def _counted(solution: Solution, more: int) -> Improved:
    return replace(solution.search, evaluated=solution.search.evaluated + more)


def _worthwhile(found: Score) -> Score:
    return (found[0], *(value * (1 - WORTH) for value in found[1:2]), *found[2:])


def _with(cutter: Cutter, whole: Mapping[str, Cost], stage: Divisible, legs: Legs) -> dict[str, Cost]:
    """Return the costs of whole stages, with that of a stage reduced to a single leg."""
    if len(legs) > 1:
        return dict(whole)
    place = legs[0].place
    cost = cutter.model.at(stage.stage, place.engine, place.precision, place.share)
    return {**whole, stage.stage.name: cost} if cost else dict(whole)


def _proposals(workload: Workload, stage: Divisible, whole: Mapping[str, Cost], legs: Legs | None) -> Iterator[Legs]:
    """Yield ways to cut a stage, those near the present one first."""
    if legs is not None:
        yield from shift_borders(stage, legs)
    rested = _rested(workload, stage, whole)
    proposed = segmentations(stage, _borders(workload, stage, whole))
    for found in dict.fromkeys(tuple(Leg(leg.end, rested[leg.place]) for leg in each) for each in proposed):
        # A network that only changes its data type or share stays in one part: no engine is relieved.
        parts = len({leg.place.engine for leg in found})
        if found != legs and (parts > 1 if len(found) > 1 else legs is not None):
            yield found
    yield from (found for found in parallel_cuts(stage) if found != legs)


_LATE = "not evaluated before the time limit"


def _why_whole(stage: Divisible, clock: Clock) -> str:
    """Return a note on the fastest cut between engines against the fastest place for the whole; "" without one."""
    if clock.late():
        return _LATE
    ways = segmentations(stage)
    times = {legs: time for legs in ways if (time := duration_ns(stage, legs)) is not None}
    alone = min((cost.time_ns for cost in stage.model.candidates(stage.stage)), default=None)
    cut = {legs: time for legs, time in times.items() if len({leg.place.engine for leg in legs}) > 1}
    if not cut or alone is None:
        return ""
    best = min(cut, key=cut.__getitem__)
    parts = ", ".join(f"{leg.place.engine} {leg.place.precision}" for leg in best)
    points = ", ".join("+".join(stage.cuts[leg.end - 1]) for leg in best[:-1])
    fastest = f"cut after {points} ({parts}): {format_duration(cut[best], 2)} at best, uncut"
    return f"{fastest} {format_duration(alone, 2)}"


def _rested(workload: Workload, stage: Divisible, whole: Mapping[str, Cost]) -> dict[Place, Place]:
    """Return for every place the one, among engines of equal cost, least loaded by other stages."""
    load: dict[str, float] = {}
    for name, cost in whole.items():
        if name != stage.stage.name:
            load[cost.engine] = load.get(cost.engine, 0.0) + cost.time_ns / workload.graph.period_ns[name]
    return {
        place: min(same, key=lambda other: (load.get(other.engine, 0.0), other != place))
        for place, same in twins(stage).items()
    }


def _borders(workload: Workload, stage: Divisible, whole: Mapping[str, Cost]) -> list[tuple[float, float]]:
    """Return the times (ns) to reach every place of a stage from its producers, and from there to its readers."""
    name, result = stage.stage.name, []
    for place in stage.places:
        here = replace(whole[name], engine=place.engine, precision=place.precision, share=place.share)
        before = (transfer_ns(workload, whole[p], here) for p, c in workload.edges if c == name)
        after = (transfer_ns(workload, here, whole[c]) for p, c in workload.edges if p == name)
        result.append((max(before, default=0.0), max(after, default=0.0)))
    return result


def _polished(
    cutter: Cutter, best: Candidate, goals: Sequence[str], budget: int, clock: Clock
) -> tuple[Candidate, int]:
    """Move parts and stages one at a time, as `improve` moves whole stages; adjacent parts in one place are merged."""
    workload = best.deployment.workload

    if budget < 1 or clock.over():
        return best, 0
    search = improve(
        dict(best.deployment.mapping), workload.options(), make_improvement_test(workload, goals), budget, clock
    )
    cuts, whole = _read_back(cutter, workload, search.mapping)
    mapped = cutter.mapping(whole, cuts)
    if mapped is None:
        return best, search.evaluated
    try:
        found = better(*mapped, goals, score(best, goals))
    except (Unconnectable, UsageError):
        found = None
    return found or best, search.evaluated


def _read_back(
    cutter: Cutter, workload: Workload, mapping: Mapping[str, Cost]
) -> tuple[dict[str, Legs], dict[str, Cost]]:
    """Return the legs and whole costs of a mapping of parts, with neighbours in one place merged."""
    legs: dict[str, list[Leg]] = {}
    whole: dict[str, Cost] = {}
    for name, cost in mapping.items():
        stage = name.rsplit(".", 1)[0]
        if "part" not in workload.graph.stage(name).params:
            whole[name] = cost
            continue
        divided = cutter.stages[stage]
        end = workload.graph.stage(name).params["part"]["cut"].partition(":")[2]
        number = next((i + 1 for i, cut in enumerate(divided.cuts) if "+".join(cut) == end), divided.units)
        legs.setdefault(stage, []).append(Leg(number, Place(cost.engine, cost.precision, cost.share)))
    cuts: dict[str, Legs] = {}
    for stage, found in legs.items():
        joined = merge_neighbours(tuple(sorted(found, key=lambda leg: leg.end)))
        if len(joined) > 1:
            cuts[stage] = joined
            continue
        place = joined[0].place
        alone = cutter.model.at(cutter.stages[stage].stage, place.engine, place.precision, place.share)
        if alone is None:
            cuts[stage] = tuple(sorted(found, key=lambda leg: leg.end))
        else:
            whole[stage] = alone
    return cuts, whole
