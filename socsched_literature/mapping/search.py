"""Solve a mapping problem: a list schedule first, a bound by linear relaxation, then the core's constraint program.

Every schedule is judged by its exact evaluation, contention included.  "optimal" means that no schedule is better by
more than `TOLERANCE` of the value; both bounds hold for every real execution.  Where contention slows more than two
engines, or more pairs than the program models, its bound need not be reached: the status is then feasible, with a gap.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from socsched.planning.mapping.problem import Problem, Schedule, alone_ns
from socsched.planning.mapping.program import Answer, Program, available, linear
from socsched_literature.mapping.evaluate import Evaluation, Impossible, evaluate
from socsched_literature.mapping.lists import list_schedule

# A lower bound from a linear program: options and hand-overs as fractions, engines as mere capacities.
#
# Constraints kept: one option per group, hand-overs consistent with the options at both ends (flows between them),
# load of every engine, traffic against the bandwidth, path lengths, budgets.  Dropped: order and integrality.
# Contention only lengthens jobs, and total traffic never exceeds the bandwidth, so the bound also holds with
# contention.


_SAFE = 1e-7
"""Fraction of a bound subtracted to cover the solver's floating-point tolerance."""


class _Program:
    def __init__(self, problem: Problem, linear: Any) -> None:
        self.problem = problem
        self.solver = linear.Solver.CreateSolver("GLOP")
        number = self.solver.NumVar
        self.options = [[number(0, 1, "") for _ in group.options] for group in problem.groups]
        self.flows = [[[number(0, 1 if hop else 0, "") for hop in row] for row in edge.hops] for edge in problem.edges]
        # With hundreds of thousands of terms, Python expressions would take seconds: coefficients are set one by one.
        for row in self.options:
            self._row(1, 1, [(x, 1) for x in row])
        for edge, flow in zip(problem.edges, self.flows, strict=True):
            sources, sinks = (self.options[problem.index[name]] for name in (edge.source, edge.sink))
            for i, x in enumerate(sources):
                self._row(0, 0, [*((y, 1) for y in flow[i]), (x, -1)])
            for j, x in enumerate(sinks):
                self._row(0, 0, [*((row[j], 1) for row in flow), (x, -1)])
        self.ends = [number(0, math.inf, "") for _ in problem.groups]
        self._paths()
        for budget in problem.budgets:
            self._row(-math.inf, budget.limit, self._drawn(budget.name))

    def _row(self, low: float, high: float, terms: Sequence[tuple[Any, float]]) -> Any:
        row = self.solver.Constraint(low, high)
        for variable, factor in terms:
            row.SetCoefficient(variable, row.GetCoefficient(variable) + factor)
        return row

    def _hops(self) -> list[tuple[Any, Any, int, int]]:
        return [
            (y, hop, self.problem.index[edge.source], self.problem.index[edge.sink])
            for edge, flow in zip(self.problem.edges, self.flows, strict=True)
            for ys, hops in zip(flow, edge.hops, strict=True)
            for y, hop in zip(ys, hops, strict=True)
            if hop
        ]

    def _paths(self) -> None:
        problem = self.problem
        for index, group in enumerate(problem.groups):
            work = [
                (x, -alone_ns(option, problem.bandwidth))
                for x, option in zip(self.options[index], group.options, strict=True)
            ]
            self._row(group.release_ns, math.inf, [(self.ends[index], 1), *work])
            for number in problem.before[index]:
                edge, flow = problem.edges[number], self.flows[number]
                cost = [
                    (y, -hop.way_ns)
                    for ys, hops in zip(flow, edge.hops, strict=True)
                    for y, hop in zip(ys, hops, strict=True)
                    if hop and hop.way_ns
                ]
                terms = [(self.ends[index], 1), (self.ends[problem.index[edge.source]], -1), *work, *cost]
                self._row(0, math.inf, terms)

    def _drawn(self, name: str) -> list[tuple[Any, float]]:
        terms = [
            (x, amount)
            for group, xs in zip(self.problem.groups, self.options, strict=True)
            for x, option in zip(xs, group.options, strict=True)
            for key, amount in option.draws
            if key == name
        ]
        return terms + [(y, amount) for y, hop, _, _ in self._hops() for key, amount in hop.draws if key == name]

    def loads(self) -> dict[str, list[tuple[Any, float]]]:
        """Return the busy time of every engine over all frames; hand-overs count only for groups with one reader."""
        terms: dict[str, list[tuple[Any, float]]] = {engine.id: [] for engine in self.problem.engines}
        for group, xs in zip(self.problem.groups, self.options, strict=True):
            for x, option in zip(xs, group.options, strict=True):
                terms[option.engine].append((x, alone_ns(option, self.problem.bandwidth) * option.share * group.frames))
        for edge, flow in zip(self.problem.edges, self.flows, strict=True):
            source, sink = (self.problem.index[name] for name in (edge.source, edge.sink))
            givers, takers = self.problem.groups[source], self.problem.groups[sink]
            for giver, ys, hops in zip(givers.options, flow, edge.hops, strict=True):
                for taker, y, hop in zip(takers.options, ys, hops, strict=True):
                    if hop and hop.engine:
                        terms[hop.engine].append((y, hop.time_ns * givers.frames))
                    if hop and hop.pickup_ns:
                        terms[taker.engine].append((y, hop.pickup_ns * taker.share * takers.frames))
                    if hop and hop.handoff_ns and len(self.problem.after[source]) == 1:
                        terms[giver.engine].append((y, hop.handoff_ns * giver.share * givers.frames))
        return terms

    def traffic(self) -> list[tuple[Any, float]]:
        """Return the bytes moved over all frames."""
        terms: list[tuple[Any, float]] = []
        for group, xs in zip(self.problem.groups, self.options, strict=True):
            for x, option in zip(xs, group.options, strict=True):
                size = sum(segment.bytes for segment in option.segments)
                terms += [(x, size * group.frames)] if size else []
        for y, hop, source, _ in self._hops():
            size = sum(segment.bytes for segment in hop.segments)
            terms += [(y, size * self.problem.groups[source].frames)] if size else []
        return terms

    def minimum(self, objective: str) -> int:
        """Return the minimum of an objective in this relaxation, 0 where the solver finds none."""
        problem, solver = self.problem, self.solver
        top = solver.NumVar(0, math.inf, "")
        solver.Minimize(top)
        if objective == "makespan":
            first = min(group.release_ns for group in problem.groups)
            for engine, terms in self.loads().items():
                lanes = problem.lanes(engine)
                self._row(first, math.inf, [(top, 1), *((x, -c / lanes) for x, c in terms)])
            if problem.bandwidth:
                scale = 1e9 / problem.bandwidth
                self._row(first, math.inf, [(top, 1), *((x, -c * scale) for x, c in self.traffic())])
            for end, group in zip(self.ends, problem.groups, strict=True):
                self._row((group.frames - 1) * group.period_ns, math.inf, [(top, 1), (end, -1)])
        elif objective == "interval":
            frames = max(group.frames for group in problem.groups)
            for engine, terms in self.loads().items():
                lanes = problem.lanes(engine) * frames
                self._row(0, math.inf, [(top, 1), *((x, -c / lanes) for x, c in terms)])
        elif objective == "energy":
            terms = [
                (x, -option.energy_uj * group.frames)
                for group, xs in zip(problem.groups, self.options, strict=True)
                for x, option in zip(xs, group.options, strict=True)
            ]
            terms += [(y, -hop.energy_uj * problem.groups[s].frames) for y, hop, s, _ in self._hops() if hop.energy_uj]
            self._row(0, math.inf, [(top, 1), *terms])
        else:
            self._requirements(top, objective)
        if solver.Solve() != solver.OPTIMAL:
            return 0
        bound: int = math.ceil(solver.Objective().Value() * (1 - _SAFE))
        return bound

    def _requirements(self, top: Any, objective: str) -> None:
        problem, total, constant = self.problem, [], 0
        for need in problem.requirements:
            ends = [problem.index[name] for name in need.ends]
            fixed = need.sampling_ns - sum(problem.groups[end].release_ns for end in ends)
            total += [(self.ends[end], -need.weight) for end in ends]
            constant += need.weight * fixed
            if objective == "slack" and need.limit_ns:
                scale = 1e6 / need.limit_ns
                self._row(fixed * scale, math.inf, [(top, 1), *((self.ends[end], -scale) for end in ends)])
        if objective == "latency":
            self._row(constant, math.inf, [(top, 1), *total])


def relax(problem: Problem, objective: str, linear: Any) -> int:
    """Return the bound for one objective; `linear` is the linear-solver module of OR-Tools.

    Source of the flow formulation: Ahuja, Magnanti, Orlin, Network Flows, 1993, chapter 9 (the linear program of a path
    has integral vertices, so for one chain the bound equals that of Lagrangian relaxation of the engine capacities).
    """
    return _Program(problem, linear).minimum(objective)


TOLERANCE = 5e-4
ROUNDS = 4
"""Rounds of solving, evaluating and increasing durations, used if the program cannot model all overlaps."""


@dataclass(frozen=True, slots=True)
class Result:
    """The best schedule with its evaluation; per objective its value and a lower bound.

    `status`: optimal, feasible (limits kept, `gap` open), undecided (no schedule within the limits found), infeasible
    (there is none).  `solver` names the solver that found the schedule.  `model_value`: the value of the schedule in
    the model of CP-SAT.
    """

    status: str
    solver: str
    schedule: Schedule
    evaluation: Evaluation
    values: Mapping[str, int]
    bounds: Mapping[str, int]
    gap: float
    seconds: float
    model_value: int | None = None


@dataclass(slots=True)
class _Best:
    problem: Problem
    objectives: tuple[str, ...]
    schedule: Schedule
    evaluation: Evaluation
    solver: str

    def key(self, evaluation: Evaluation) -> tuple[float, ...]:
        over = sum((value - limit) / max(limit, 1) for _, value, limit in evaluation.excess)
        return (over, *(evaluation.value(name) for name in self.objectives))

    def offer(self, schedule: Schedule | None, solver: str) -> Evaluation | None:
        """Keep a schedule if it is better; return its evaluation, None if it cannot run."""
        if schedule is None:
            return None
        try:
            evaluation = evaluate(self.problem, schedule)
        except Impossible:
            return None
        if schedule.holds or schedule.earliest:
            plain = replace(schedule, holds=(), earliest=())
            freed = evaluate(self.problem, plain)
            if self.key(freed) <= self.key(evaluation):
                schedule, evaluation = plain, freed
        if self.key(evaluation) < self.key(self.evaluation):
            self.schedule, self.evaluation, self.solver = schedule, evaluation, solver
        return evaluation


def solve(problem: Problem, solver: str = "auto", time_limit: float = 10.0, workers: int = 1, seed: int = 0) -> Result:
    """Return the best schedule found within `time_limit` seconds; raises MachineError for `cpsat` without OR-Tools.

    auto: CP-SAT if OR-Tools is installed, else the list schedule.  The same input gives the same result unless the
    wall clock ends the search early.  Raises Impossible if groups cannot be connected at all.
    """
    started = time.monotonic()
    first = list_schedule(problem)
    best = _Best(problem, problem.objectives, first, evaluate(problem, first), "heft")
    bounds = dict.fromkeys(problem.objectives, 0)
    if solver == "heft" or (solver == "auto" and not available()):
        return _result(best, bounds, "feasible", started)
    bounds = {name: relax(problem, name, linear()) for name in problem.objectives}
    if _proven(best, bounds):
        return _result(best, bounds, "optimal", started)
    return _exact(best, bounds, started, time_limit, workers, seed)


def _proven(best: _Best, bounds: Mapping[str, int]) -> bool:
    if best.evaluation.excess:
        return False
    # Rounding may cost a ns; energy is an integer and has no such error.
    return all(
        best.evaluation.value(name) * (1 - TOLERANCE) <= bound + (name != "energy") for name, bound in bounds.items()
    )


def _exact(best: _Best, bounds: dict[str, int], started: float, limit: float, workers: int, seed: int) -> Result:
    problem, grown = best.problem, dict[tuple[int, int], int]()
    model_value: int | None = None
    infeasible = False
    answer: Answer | None = None
    found: Evaluation | None = None
    for turn in range(ROUNDS):
        left = limit - (time.monotonic() - started)
        if left <= 0.05:
            break
        program = Program(problem, grown=grown)
        rounds = 1 if program.contended or not problem.bandwidth else ROUNDS - turn
        program.hint(best.schedule, {s.key: (s.start_ns, s.end_ns) for s in best.evaluation.spans})
        for name in problem.objectives:
            left = limit - (time.monotonic() - started)
            if left <= 0.05:
                break
            # A program with increased durations gives no valid bound for the original problem.
            floor = 0 if grown else bounds[name]
            answer = program.solve(name, left / rounds, workers, seed, floor)
            infeasible = answer.status == "infeasible" and not grown
            if answer.schedule is None:
                break
            if not grown:
                bounds[name] = max(bounds[name], answer.bound)
            clocked = tuple((key, start * program.grain) for key, start in answer.starts.items())
            found = best.offer(replace(answer.schedule, earliest=clocked), "cpsat")
            if name == problem.objectives[0]:
                model_value = answer.value
            if answer.status != "optimal":
                break
            program.keep()
        # none where building the program took all the time
        if answer is None or answer.schedule is None or infeasible or program.contended or not problem.bandwidth:
            break
        if _proven(best, bounds):
            break
        if found is None or not _grow(problem, answer.schedule, found, grown):
            break
    if infeasible:
        return _result(best, bounds, "infeasible", started, model_value)
    return _result(best, bounds, "optimal" if _proven(best, bounds) else "feasible", started, model_value)


def _grow(problem: Problem, schedule: Schedule, found: Evaluation, grown: dict[tuple[int, int], int]) -> bool:
    """Set the durations of the chosen options as evaluated; return whether any changed by more than a thousandth."""
    changed = False
    worst: dict[int, int] = {}
    for span in found.spans:
        if not span.key.conversion:
            index = span.key.index
            worst[index] = max(worst.get(index, 0), span.end_ns - span.start_ns - span.alone_ns)
    for index, more in worst.items():
        key = (index, schedule.choice[index])
        changed |= abs(more - grown.get(key, 0)) * 1000 > problem.groups[index].options[key[1]].time_ns
        grown[key] = more
    return changed


def _result(
    best: _Best, bounds: Mapping[str, int], status: str, started: float, model_value: int | None = None
) -> Result:
    values = {name: best.evaluation.value(name) for name in best.objectives}
    main = best.objectives[0]
    gap = max(values[main] - bounds[main], 0) / values[main] if values[main] and bounds[main] else 1.0
    if best.evaluation.excess and status != "infeasible":
        status = "undecided"
    seconds = time.monotonic() - started
    return Result(status, best.solver, best.schedule, best.evaluation, values, dict(bounds), gap, seconds, model_value)
