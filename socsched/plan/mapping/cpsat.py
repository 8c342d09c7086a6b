"""The mapping problem as a constraint program, solved by OR-Tools CP-SAT; the only importer of `ortools`.

Time counts in grains: the greatest common divisor of all times, or a hundred-thousandth of the horizon, rounded down;
so the bound of a program solved to its end holds for the problem, whatever the grain.

Contention.  Group i loses, while it overlaps with j, the share 1 - alone/stretched of that time, by the same max-min
fair shares as everywhere.  Every pair that may overlap has its overlap as a variable, and the duration of i is at least
its time alone plus its losses to the groups of any one other engine, which follow each other.  With two engines that is
the fluid model itself.  With more it is a lower bound, as a third engine only shrinks shares further; then the schedule
is evaluated exactly and the program's value remains a bound.  Pairs beyond `PAIRS` are left out; durations grow in
rounds by what the exact evaluation of the last schedule shows instead (`refined`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from socsched.errors import MachineError
from socsched.plan.mapping import grains
from socsched.plan.mapping.grains import SCALE
from socsched.plan.mapping.problem import JobKey, Problem, Schedule, alone_ns

PAIRS = 400
"""Pairs of jobs whose overlap is modelled, at most; each costs a dozen variables."""


def available() -> bool:
    """Say whether OR-Tools is installed."""
    import importlib.util

    return importlib.util.find_spec("ortools") is not None


def require() -> None:
    """Raise MachineError where OR-Tools is not installed."""
    if not available():
        raise _missing()


def linear() -> Any:
    """Return OR-Tools' module of linear solvers; MachineError where it is not installed."""
    try:
        from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]
    except ImportError:
        raise _missing() from None
    return pywraplp


def _cp() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise _missing() from None
    return cp_model


def _missing() -> MachineError:
    return MachineError(
        "the exact solver needs OR-Tools, which is not installed",
        "pip install ortools==9.15.*, or plan with --solver heft",
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What the solver found: optimal | feasible | infeasible | unknown, in the program's own terms.

    `bound` holds for the problem (in the objective's unit), `value` is the program's makespan or other objective.
    """

    status: str
    schedule: Schedule | None
    value: int
    bound: int
    starts: Mapping[JobKey, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Job:
    """Start, end and duration; from `begun` to `over` the option itself runs, without pick-up and hand-over."""

    start: Any
    end: Any
    duration: Any
    begun: Any = None
    over: Any = None


class Program:
    """A mapping problem as CP-SAT variables and constraints."""

    def __init__(self, problem: Problem, contention: bool = True, grown: Mapping[tuple[int, int], int] | None = None):
        self.problem, self.cp = problem, _cp()
        self.model = self.cp.CpModel()
        self.grown = grown or {}
        self.grain = grains.grain(problem)
        counted = (*grains.times(problem), *grains.samplings(problem))
        self.whole = not problem.bandwidth and not any(value % self.grain for value in counted)
        self.horizon = grains.horizon(problem) // self.grain + 2
        self.taken = [[self.model.new_bool_var("") for _ in group.options] for group in problem.groups]
        self.flows: list[list[list[Any]]] = []
        self.jobs: dict[JobKey, _Job] = {}
        self.conversions: dict[JobKey, list[tuple[Any, str]]] = {}
        self.intervals: dict[str, list[tuple[Any, int]]] = {engine.id: [] for engine in problem.engines}
        self.loads: dict[str, list[Any]] = {engine.id: [] for engine in problem.engines}
        self.pairs = 0
        for row in self.taken:
            self.model.add_exactly_one(row)
        for row, group in zip(self.taken, problem.groups, strict=True):
            if group.twin:
                for x, y in zip(row, self.taken[problem.index[group.twin]], strict=True):
                    self.model.add(x == y)
        self._flows()
        stretch = self._stretches() if contention and problem.bandwidth else {}
        self._groups(stretch)
        self._edges()
        if stretch:
            self._contention(stretch)
        self._capacities()
        self._limits()

    def _time(self, value: int) -> int:
        return value // self.grain

    # -- options and hand-overs

    def _flows(self) -> None:
        model, problem = self.model, self.problem
        for edge in problem.edges:
            sources, sinks = (self.taken[problem.index[name]] for name in (edge.source, edge.sink))
            flow = [[model.new_bool_var("") for _ in sinks] for _ in sources]
            for i, x in enumerate(sources):
                model.add(sum(flow[i]) == x)
            for j, x in enumerate(sinks):
                model.add(sum(row[j] for row in flow) == x)
            for row, hops in zip(flow, edge.hops, strict=True):
                for y, hop in zip(row, hops, strict=True):
                    if hop is None:
                        model.add(y == 0)
            self.flows.append(flow)

    def _hops(self, number: int) -> list[tuple[Any, Any]]:
        edge = self.problem.edges[number]
        return [
            (y, hop)
            for ys, hops in zip(self.flows[number], edge.hops, strict=True)
            for y, hop in zip(ys, hops, strict=True)
            if hop
        ]

    def _groups(self, stretch: Mapping[tuple[int, int, int, int], tuple[int, int]]) -> None:
        model, problem = self.model, self.problem
        for index, group in enumerate(problem.groups):
            times = [
                self._time(alone_ns(option, problem.bandwidth) + self.grown.get((index, number), 0))
                for number, option in enumerate(group.options)
            ]
            paid = self._paid(index)
            # Rounded times of a contended schedule need not differ by a duration rounded down, so none is fixed then.
            variable = bool(stretch) or paid is not None
            for frame in range(group.frames):
                release = self._time(group.release_ns + frame * group.period_ns)
                start = model.new_int_var(release, self.horizon, "")
                end = model.new_int_var(release, self.horizon, "")
                alone = sum(t * x for t, x in zip(times, self.taken[index], strict=True))
                if variable:
                    duration = model.new_int_var(min(times), self.horizon, "")
                    extra = 0 if paid is None else paid[0] + paid[1]
                    model.add(duration >= alone + extra if stretch else duration == alone + extra)
                    model.add(end == start + duration)
                else:
                    duration = alone
                    model.add(end == start + alone)
                begun, over = (start, end) if paid is None else (start + paid[0], end - paid[1])
                self.jobs[JobKey(frame, index)] = _Job(start, end, duration, begun, over)
                for x, option, time in zip(self.taken[index], group.options, times, strict=True):
                    size = duration if variable else time
                    interval = model.new_optional_interval_var(start, size, end, x, "")
                    self.intervals[option.engine].append((interval, option.share))
                    self.loads[option.engine].append(time * option.share * x)
                for engine, share in dict.fromkeys((option.engine, option.share) for option in group.options):
                    self.loads[engine] += self._picked(index, engine, share)
                if frame:
                    model.add(start >= self.jobs[JobKey(frame - 1, index)].end)

    def _paid(self, index: int) -> tuple[Any, Any] | None:
        """Return the pick-ups of a group and the longest hand-over it pays for, None when there is neither."""
        taken = [
            self._time(hop.pickup_ns) * y
            for number in self.problem.before[index]
            for y, hop in self._hops(number)
            if hop.pickup_ns >= self.grain
        ]
        handed = self._handed(index)
        handed = 0 if handed is None and taken else handed
        return (sum(taken), handed) if taken or handed is not None else None

    def _picked(self, index: int, engine: str, share: int) -> list[Any]:
        """Return what pick-ups add to the load of an engine."""
        return [
            self._time(hop.pickup_ns) * share * y
            for number in self.problem.before[index]
            for ys, hops in zip(self.flows[number], self.problem.edges[number].hops, strict=True)
            for y, hop, option in zip(ys, hops, self.problem.groups[index].options, strict=True)
            if hop and hop.pickup_ns >= self.grain and option.engine == engine and option.share == share
        ]

    def _handed(self, index: int) -> Any:
        paying = [
            [(y, self._time(hop.handoff_ns)) for y, hop in self._hops(number) if hop.handoff_ns >= self.grain]
            for number in self.problem.after[index]
        ]
        paying = [terms for terms in paying if terms]
        if not paying:
            return None
        paid = self.model.new_int_var(0, max(value for terms in paying for _, value in terms), "")
        self.model.add_max_equality(paid, [sum(value * y for y, value in terms) for terms in paying])
        return paid

    def _edges(self) -> None:
        model, problem = self.model, self.problem
        for number, edge in enumerate(problem.edges):
            source, sink = problem.index[edge.source], problem.index[edge.sink]
            hops = self._hops(number)
            delay = sum(self._time(hop.delay_ns) * y for y, hop in hops if hop.delay_ns)
            converting = [(y, hop, self._time(hop.time_ns)) for y, hop in hops if hop.engine]
            for frame in range(problem.groups[source].frames):
                before, after = self.jobs[JobKey(frame, source)], self.jobs[JobKey(frame, sink)]
                if not converting:
                    model.add(after.start >= before.end + delay)
                    continue
                start = model.new_int_var(0, self.horizon, "")
                end = model.new_int_var(0, self.horizon, "")
                alone, duration = sum(time * y for y, _, time in converting), model.new_int_var(0, self.horizon, "")
                model.add(duration >= alone if self.pairs else duration == alone)
                model.add(end == start + duration)
                model.add(start >= before.end)
                model.add(after.start >= end + delay)
                key = JobKey(frame, number, True)
                self.jobs[key] = _Job(start, end, duration)
                self.conversions[key] = [(y, hop.engine) for y, hop, _ in converting]
                for y, hop, time in converting:
                    size = duration if self.pairs else time
                    self.intervals[hop.engine].append((model.new_optional_interval_var(start, size, end, y, ""), 1))
                    self.loads[hop.engine].append(time * y)

    # -- contention

    def _stretches(self) -> dict[tuple[int, int, int, int], tuple[int, int]]:
        """Return what groups i and j with options a and b lose to each other (1 / SCALE of their overlap)."""
        problem, found = self.problem, dict[tuple[int, int, int, int], tuple[int, int]]()
        related = grains.related(problem)
        several = {engine.id for engine in problem.engines if engine.count > 1}
        pairs = 0
        for i, left in enumerate(problem.groups):
            for j in range(i + 1, len(problem.groups)):
                right = problem.groups[j]
                if j in related[i] or i in related[j]:
                    continue
                losses = {
                    (i, a, j, b): lost
                    for a, first in enumerate(left.options)
                    for b, second in enumerate(right.options)
                    if first.engine != second.engine or first.engine in several
                    if any(lost := grains.losses(first, second, problem.bandwidth))
                }
                if losses:
                    pairs += left.frames * right.frames
                    found.update(losses)
                if pairs > PAIRS:
                    return {}
        self.pairs = pairs
        return found

    def _contention(self, stretch: Mapping[tuple[int, int, int, int], tuple[int, int]]) -> None:
        model, groups = self.model, self.problem.groups
        losses: dict[tuple[JobKey, str, int], list[Any]] = {}
        for i, j in dict.fromkeys((i, j) for i, _, j, _ in stretch):
            options = [(a, b, lost) for (x, a, y, b), lost in stretch.items() if (x, y) == (i, j)]
            for f in range(groups[i].frames):
                for g in range(groups[j].frames):
                    overlap = self._overlap(JobKey(f, i), JobKey(g, j))
                    for side, (key, other) in enumerate(((JobKey(f, i), j), (JobKey(g, j), i))):
                        rows: dict[tuple[str, int], list[tuple[int, Any, int]]] = {}
                        for a, b, lost in options:
                            option = groups[other].options[b if side == 0 else a]
                            # On an engine of several lanes two may run at once: each then bounds on its own.
                            single = self.problem.lanes(option.engine) == 1
                            rows.setdefault((option.engine, -1 if single else other), []).append(
                                (lost[side], self.taken[i][a], b)
                            )
                        for (engine, number), terms in rows.items():
                            part = model.new_int_var(0, self.horizon * SCALE, "")
                            for factor, x, b in terms:
                                if factor:
                                    model.add(part >= factor * (overlap - 3)).only_enforce_if([x, self.taken[j][b]])
                            losses.setdefault((key, engine, number), []).append(part)
        for (key, _, _), parts in losses.items():
            group = groups[key.index]
            alone = sum(
                self._time(alone_ns(option, self.problem.bandwidth)) * x
                for x, option in zip(self.taken[key.index], group.options, strict=True)
            )
            ran = self.jobs[key].over - self.jobs[key].begun
            model.add(ran * SCALE >= alone * SCALE + sum(parts) - 3 * SCALE)

    def _overlap(self, first: JobKey, second: JobKey) -> Any:
        model, a, b = self.model, self.jobs[first], self.jobs[second]
        overlap = model.new_int_var(0, self.horizon, "")
        low, high = model.new_int_var(0, self.horizon, ""), model.new_int_var(0, self.horizon, "")
        model.add_max_equality(low, [a.begun, b.begun])
        model.add_min_equality(high, [a.over, b.over])
        model.add(overlap >= high - low)
        return overlap

    # -- capacities and limits

    def _capacities(self) -> None:
        model, problem = self.model, self.problem
        first = self._time(min(group.release_ns for group in problem.groups))
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
                for y, hop in self._hops(number)
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
                        release = self._time(group.release_ns + frame * group.period_ns)
                        model.add(responses[end] >= self.jobs[JobKey(frame, end)].end - release)
            total = sum(responses[problem.index[name]] for name in need.ends) + self._time(need.sampling_ns)
            self.latencies.append(total)
            if need.limit_ns is not None:
                # Rounding both ends of a span down can lengthen it by less than a grain.
                limit = need.limit_ns // self.grain
                model.add(total <= (limit if self.whole else limit + len(need.ends) + 1))

    def objective(self, name: str) -> tuple[Any, int]:
        """Return the expression of an objective, and what one unit of it stands for."""
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
                terms += [hop.energy_uj * frames * y for y, hop in self._hops(number) if hop.energy_uj]
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
        """Begin from a schedule whose jobs have these starts and ends (ns)."""
        model = self.model
        model.clear_hints()
        for row, chosen in zip(self.taken, schedule.choice, strict=True):
            for number, x in enumerate(row):
                model.add_hint(x, int(number == chosen))
        for key, (start, end) in starts.items():
            if key in self.jobs:
                model.add_hint(self.jobs[key].start, self._time(start))
                model.add_hint(self.jobs[key].end, self._time(end))
        model.add_hint(self.makespan, self._time(max(end for _, end in starts.values())))

    def solve(self, objective: str, seconds: float, workers: int, seed: int, floor: int = 0) -> Answer:
        """Minimise one objective; `floor` is a bound known already, in its unit.

        One worker, or several that take turns (`interleave_search`): the same input gives the same answer unless the
        wall clock ends the search before its deterministic time does.
        """
        expression, unit = self.objective(objective)
        self.model.minimize(expression)
        if floor // unit > 0:
            self.model.add(expression >= floor // unit)
        solver = self.cp.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.max_deterministic_time = seconds
        solver.parameters.num_workers = workers
        solver.parameters.interleave_search = workers > 1
        solver.parameters.random_seed = seed
        status = solver.solve(self.model)
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

    def _slip(self, objective: str) -> int:
        """Return by how much rounding may make an objective larger than that of the schedule it stands for."""
        needs = self.problem.requirements
        if self.whole or objective in ("makespan", "energy", "interval"):
            return 0
        if objective == "latency":
            return self.grain * sum(need.weight * (len(need.ends) + 1) for need in needs)
        tight = min((need.limit_ns for need in needs if need.limit_ns), default=1)
        return -(-self.grain * 10**6 * max(len(need.ends) + 1 for need in needs) // tight)

    def keep(self) -> None:
        """Let what follows be no worse in the objective solved last."""
        expression, value = self.best
        self.model.add(expression <= value)

    def exclude(self, choice: Sequence[int]) -> None:
        """Rule one choice of options out."""
        self.model.add_bool_or([row[number].negated() for row, number in zip(self.taken, choice, strict=True)])

    def _present(self, solver: Any, key: JobKey) -> bool:
        return not key.conversion or any(solver.value(y) for y, _ in self.conversions[key])

    def _rank(self, key: JobKey, place: Mapping[int, int]) -> tuple[int, int, bool]:
        """Order jobs that start together, which jobs without duration may: by frame, then by precedence."""
        index = self.problem.index[self.problem.edges[key.index].sink] if key.conversion else key.index
        return key.frame, place[index], not key.conversion
