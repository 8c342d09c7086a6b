"""The mapping problem as a constraint program, solved by OR-Tools CP-SAT.

Time counts in grains: the greatest common divisor of all times, or a hundred-thousandth of the horizon, rounded down;
so the bound of a program solved to optimality holds for the problem, whatever the grain.

If more than two engines contend for memory (`overlaps`), or more pairs than are modelled, the schedule is evaluated
exactly and the program's value remains a bound; durations then grow in rounds by the slowdown that the exact evaluation
of the last schedule shows (`refined`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from socsched.planning.clock import PER_SECOND, Clock, count
from socsched.planning.mapping import grains
from socsched.planning.mapping.jobs import Jobs
from socsched.planning.mapping.overlaps import add_losses, losses_of
from socsched.planning.mapping.problem import JobKey, Problem, Schedule
from socsched.progress import listening, tell


@dataclass(frozen=True, slots=True)
class Answer:
    """The solver's result: optimal | feasible | infeasible | unknown, in terms of the program.

    `bound` holds for the problem (in the objective's unit), `value` is the program's makespan or other objective.
    """

    status: str
    schedule: Schedule | None
    value: int
    bound: int
    starts: Mapping[JobKey, int] = field(default_factory=dict)


class Program(Jobs):
    """A mapping problem as CP-SAT variables and constraints: jobs, contention losses, capacities and limits."""

    def __init__(
        self, problem: Problem, contention: bool = True, grown: Mapping[tuple[int, int], int] | None = None
    ) -> None:
        losses = losses_of(problem) if contention and problem.bandwidth else {}
        super().__init__(problem, bool(losses), grown or {})
        counted = (*grains.times(problem), *grains.samplings(problem))
        self.whole = not problem.bandwidth and not any(value % self.grain for value in counted)
        if losses:
            add_losses(self, losses)
        self._capacities()
        self._limits()

    # -- capacities and limits

    def _capacities(self) -> None:
        model, problem = self.model, self.problem
        first = self.grains_of(min(group.release_ns for group in problem.groups))
        self.makespan = model.new_int_var(0, self.horizon, "makespan")
        for engine in problem.engines:
            intervals = self.intervals[engine.id]
            if engine.count == 1:
                model.add_no_overlap([interval for interval, _ in intervals])
            else:
                model.add_cumulative([i for i, _ in intervals], [share for _, share in intervals], engine.count)
            model.add(engine.count * (self.makespan - first) >= sum(self.loads[engine.id]))
        for index, group in enumerate(problem.groups):
            if not problem.after[index]:
                model.add(self.makespan >= self.jobs[JobKey(group.frames - 1, index)].end)

    def _limits(self) -> None:
        model, problem = self.model, self.problem
        for budget in problem.budgets:
            terms = [
                amount * x
                for group, xs in zip(problem.groups, self.taken, strict=True)
                for x, option in zip(xs, group.options, strict=True)
                for name, amount in option.draws
                if name == budget.name
            ]
            terms += [
                amount * y
                for number in range(len(problem.edges))
                for y, hop in self.hops(number)
                for name, amount in hop.draws
                if name == budget.name
            ]
            model.add(sum(terms) <= budget.limit)
        self.latencies: list[Any] = []
        responses: dict[int, Any] = {}
        for need in problem.requirements:
            for end in (problem.index[name] for name in need.ends):
                if end not in responses:
                    group = problem.groups[end]
                    responses[end] = model.new_int_var(0, self.horizon, "")
                    for frame in range(group.frames):
                        release = self.grains_of(group.release_ns + frame * group.period_ns)
                        model.add(responses[end] >= self.jobs[JobKey(frame, end)].end - release)
            total = sum(responses[problem.index[name]] for name in need.ends) + self.grains_of(need.sampling_ns)
            self.latencies.append(total)
            if need.limit_ns is not None:
                # Rounding both ends of a span down can lengthen it by less than a grain.
                limit = need.limit_ns // self.grain
                model.add(total <= (limit if self.whole else limit + len(need.ends) + 1))

    def objective(self, name: str) -> tuple[Any, int]:
        """Return the expression of an objective, and the value of one unit of it."""
        problem = self.problem
        if name == "makespan":
            return self.makespan, self.grain
        if name == "latency":
            pairs = zip(problem.requirements, self.latencies, strict=True)
            return sum(need.weight * latency for need, latency in pairs), self.grain
        if name == "energy":
            terms = [
                option.energy_uj * group.frames * x
                for group, xs in zip(problem.groups, self.taken, strict=True)
                for x, option in zip(xs, group.options, strict=True)
            ]
            for number, edge in enumerate(problem.edges):
                frames = problem.groups[problem.index[edge.source]].frames
                terms += [hop.energy_uj * frames * y for y, hop in self.hops(number) if hop.energy_uj]
            return sum(terms), 1
        top = self.model.new_int_var(0, self.horizon * 10**6, "")
        if name == "interval":
            frames = max(group.frames for group in problem.groups)
            for engine in problem.engines:
                self.model.add(top * engine.count * frames >= sum(self.loads[engine.id]))
            return top, self.grain
        for need, latency in zip(problem.requirements, self.latencies, strict=True):
            if need.limit_ns is not None:
                self.model.add(top * need.limit_ns >= latency * (self.grain * 10**6))
        return top, 1

    # -- solving

    def hint(self, schedule: Schedule, starts: Mapping[JobKey, tuple[int, int]]) -> None:
        """Start the search from a schedule whose jobs have these starts and ends (ns)."""
        model = self.model
        model.clear_hints()
        for row, chosen in zip(self.taken, schedule.choice, strict=True):
            for number, x in enumerate(row):
                model.add_hint(x, int(number == chosen))
        for key, (start, end) in starts.items():
            if key in self.jobs:
                model.add_hint(self.jobs[key].start, self.grains_of(start))
                model.add_hint(self.jobs[key].end, self.grains_of(end))
        model.add_hint(self.makespan, self.grains_of(max(end for _, end in starts.values())))

    def solve(self, objective: str, seconds: float, workers: int, seed: int, floor: int = 0) -> Answer:
        """Minimise one objective; `floor` is a bound already known, in its unit.

        With one worker, or several that take turns (`interleave_search`), the same input gives the same answer unless
        the wall clock ends the search before its deterministic time does.
        """
        expression, unit = self.objective(objective)
        self.model.minimize(expression)
        if floor // unit > 0:
            self.model.add(expression >= floor // unit)
        return self._solved(expression, unit, objective, (seconds, seconds), workers, seed, floor)

    def solve_within(self, clock: Clock, objective: str, seed: int) -> Answer:
        """Minimise one objective with one worker, by an amount of work that the clock counts."""
        expression, unit = self.objective(objective)
        self.model.minimize(expression)
        return self._solved(expression, unit, objective, (clock.left() / PER_SECOND, clock.seconds()), 1, seed, 0)

    def _solved(
        self,
        expression: Any,
        unit: int,
        objective: str,
        limits: tuple[float, float],
        workers: int,
        seed: int,
        floor: int,
    ) -> Answer:
        """Return the answer within limits on deterministic time and on time (s)."""
        solver = self.cp.CpSolver()
        solver.parameters.max_deterministic_time, solver.parameters.max_time_in_seconds = limits
        solver.parameters.num_workers = workers
        solver.parameters.interleave_search = workers > 1
        solver.parameters.random_seed = seed
        status = solver.solve(self.model, *([self._watched(solver, min(limits))] if listening() else []))
        spent = float(solver.response_proto.deterministic_time)
        count(math.ceil(spent * PER_SECOND))
        names = {self.cp.OPTIMAL: "optimal", self.cp.FEASIBLE: "feasible", self.cp.INFEASIBLE: "infeasible"}
        name = names.get(status, "unknown")
        if name not in ("optimal", "feasible"):
            return Answer(name, None, 0, 0)
        bound = max(math.ceil(solver.best_objective_bound - 1e-6) * unit - self._slip(objective), floor)
        value = round(solver.objective_value)
        starts = {key: solver.value(job.start) for key, job in self.jobs.items() if self._present(solver, key)}
        choice = tuple(next(n for n, x in enumerate(row) if solver.value(x)) for row in self.taken)
        place = {group: position for position, group in enumerate(self.problem.order)}
        order = sorted(starts, key=lambda key: (starts[key], self._rank(key, place), key))
        self.best = (expression, value)
        return Answer(name, Schedule(choice, tuple(order)), value * unit, bound, starts)

    def _watched(self, solver: Any, seconds: float) -> Any:
        """Report the gap whenever a better solution or bound is found; return the callback for the solver."""
        started, found = time.monotonic(), dict[str, float]()

        def told() -> None:
            detail = ""
            if len(found) == 2 and found["value"]:
                gap = (found["value"] - found["bound"]) / abs(found["value"])
                detail = f"gap {gap:.1%}"
            tell("proving", time.monotonic() - started, seconds, "s", detail)

        def risen(bound: float) -> None:
            found["bound"] = bound
            told()

        class Better(self.cp.CpSolverSolutionCallback):  # type: ignore[misc, name-defined]
            def on_solution_callback(self) -> None:
                found["value"], found["bound"] = self.objective_value, self.best_objective_bound
                told()

        told()
        solver.best_bound_callback = risen
        return Better()

    def _slip(self, objective: str) -> int:
        """Return the amount by which rounding may raise an objective above that of the schedule it stands for."""
        needs = self.problem.requirements
        if self.whole or objective in ("makespan", "energy", "interval"):
            return 0
        if objective == "latency":
            return self.grain * sum(need.weight * (len(need.ends) + 1) for need in needs)
        tight = min((need.limit_ns for need in needs if need.limit_ns), default=1)
        return -(-self.grain * 10**6 * max(len(need.ends) + 1 for need in needs) // tight)

    def keep(self) -> None:
        """Constrain later solutions to be no worse in the objective solved last."""
        expression, value = self.best
        self.model.add(expression <= value)

    def exclude(self, choice: Sequence[int]) -> None:
        """Exclude one choice of options."""
        self.model.add_bool_or([row[number].negated() for row, number in zip(self.taken, choice, strict=True)])

    def _present(self, solver: Any, key: JobKey) -> bool:
        return not key.conversion or any(solver.value(y) for y, _ in self.conversions[key])

    def _rank(self, key: JobKey, place: Mapping[int, int]) -> tuple[int, int, bool]:
        """Return the order of jobs that start together, as jobs without duration may: by frame, then by precedence."""
        index = self.problem.index[self.problem.edges[key.index].sink] if key.conversion else key.index
        return key.frame, place[index], not key.conversion
