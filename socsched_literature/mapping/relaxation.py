"""A lower bound from a linear program: options and hand-overs as fractions, engines as mere capacities.

Constraints kept: one option per group, hand-overs consistent with the options at both ends (flows between them), load
of every engine, traffic against the bandwidth, path lengths, budgets.  Dropped: order and integrality.  Contention only
lengthens jobs, and total traffic never exceeds the bandwidth, so the bound also holds with contention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from socsched.planning.mapping.problem import Problem, alone_ns

_SAFE = 1e-7
"""Fraction of a bound subtracted to cover the solver's floating-point tolerance."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The bound on an objective, in its unit, and the dual prices per unit of each engine's and the memory's time."""

    bound: int
    prices: dict[str, float]
    memory_price: float


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
        found: dict[str, list[tuple[Any, float]]] = {engine.id: [] for engine in self.problem.engines}
        for group, xs in zip(self.problem.groups, self.options, strict=True):
            for x, option in zip(xs, group.options, strict=True):
                found[option.engine].append((x, alone_ns(option, self.problem.bandwidth) * option.share * group.frames))
        for edge, flow in zip(self.problem.edges, self.flows, strict=True):
            source, sink = (self.problem.index[name] for name in (edge.source, edge.sink))
            givers, takers = self.problem.groups[source], self.problem.groups[sink]
            for giver, ys, hops in zip(givers.options, flow, edge.hops, strict=True):
                for taker, y, hop in zip(takers.options, ys, hops, strict=True):
                    if hop and hop.engine:
                        found[hop.engine].append((y, hop.time_ns * givers.frames))
                    if hop and hop.pickup_ns:
                        found[taker.engine].append((y, hop.pickup_ns * taker.share * takers.frames))
                    if hop and hop.handoff_ns and len(self.problem.after[source]) == 1:
                        found[giver.engine].append((y, hop.handoff_ns * giver.share * givers.frames))
        return found

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

    def minimum(self, objective: str) -> Relaxed:
        """Return the minimum of an objective in this relaxation."""
        problem, solver = self.problem, self.solver
        top = solver.NumVar(0, math.inf, "")
        solver.Minimize(top)
        rows: dict[str, Any] = {}
        memory: Any = None
        if objective == "makespan":
            first = min(group.release_ns for group in problem.groups)
            for engine, terms in self.loads().items():
                lanes = problem.lanes(engine)
                rows[engine] = self._row(first, math.inf, [(top, 1), *((x, -c / lanes) for x, c in terms)])
            if problem.bandwidth:
                scale = 1e9 / problem.bandwidth
                memory = self._row(first, math.inf, [(top, 1), *((x, -c * scale) for x, c in self.traffic())])
            for end, group in zip(self.ends, problem.groups, strict=True):
                self._row((group.frames - 1) * group.period_ns, math.inf, [(top, 1), (end, -1)])
        elif objective == "interval":
            frames = max(group.frames for group in problem.groups)
            for engine, terms in self.loads().items():
                lanes = problem.lanes(engine) * frames
                rows[engine] = self._row(0, math.inf, [(top, 1), *((x, -c / lanes) for x, c in terms)])
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
            return Relaxed(0, dict.fromkeys(rows, 1.0), 0.0)
        value = solver.Objective().Value()
        prices = {engine: abs(row.dual_value()) for engine, row in rows.items()}
        return Relaxed(math.ceil(value * (1 - _SAFE)), prices, abs(memory.dual_value()) if memory else 0.0)

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


def relax(problem: Problem, objective: str, linear: Any) -> Relaxed:
    """Return the bound for one objective; `linear` is the linear-solver module of OR-Tools.

    Source of the flow formulation: Ahuja, Magnanti, Orlin, Network Flows, 1993, chapter 9 (the linear program of a path
    has integral vertices, so for one chain the bound equals that of Lagrangian relaxation of the engine capacities).
    """
    return _Program(problem, linear).minimum(objective)
